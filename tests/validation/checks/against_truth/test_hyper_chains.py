"""Definitions that chains over kernel parameters are judged by: densities, moments, rules; and what the checks see."""

import numpy as np
import pytest
from scipy.special import digamma, expit, polygamma

from gibbs.core.hyperpriors import LogDensity
from gibbs.models import hyper_models
from validation.checks.against_truth.hyper_chains import (
    DISTRIBUTIONS,
    JOINT,
    Model,
    binary_posterior,
    joint,
    joint_draws,
    statistics,
    z_of,
)
from validation.checks.core import Compared, Tested
from validation.checks.definitions import hyper_model as own


@pytest.mark.parametrize("distribution", [("half-student-t", 4.0, 3.0), ("log-normal", 0.8, 0.7)])
@pytest.mark.parametrize("root", [False, True])
def test_a_density_of_the_logarithm_integrates_to_one(distribution, root):
    w = np.linspace(-80.0, 80.0, 64001)
    assert np.exp(own.log_density(w, distribution, root=root)).sum() * (w[1] - w[0]) == pytest.approx(1.0, abs=1e-9)


def test_moments_of_logarithms_are_known():
    mean, var = own.log_moments(("half-student-t", 4.0, 3.0))
    assert mean == pytest.approx(np.log(3.0) + 0.5 * (np.log(4.0) + digamma(0.5) - digamma(2.0)), abs=1e-7)
    assert var == pytest.approx(0.25 * (polygamma(1, 0.5) + polygamma(1, 2.0)), abs=1e-7)
    assert own.log_moments(("log-normal", 0.8, 0.7)) == pytest.approx((np.log(0.7), 0.64), abs=1e-9)


def test_a_derivative_is_that_of_the_function():
    at = np.array([[0.3, -1.2], [2.0, 0.1]])
    expected = np.cos(at) * np.exp(0.1 * at) + 0.1 * np.sin(at) * np.exp(0.1 * at)
    result = own.derivative(lambda x: float((np.sin(x) * np.exp(0.1 * x)).sum()), at)
    np.testing.assert_allclose(result, expected, rtol=0.0, atol=1e-11)  # fourth order at a step of 2e-3


def test_a_difference_of_another_shape_or_of_nan_is_infinite():
    assert own.difference(np.zeros(2), np.zeros(3)) == np.inf
    assert own.difference([np.nan], [0.0]) == np.inf
    assert own.difference([2.5], [2.0]) == pytest.approx(0.25)


def test_quadrature_over_parameters_stands_still_when_it_is_made_finer():
    model = Model("gibbs-logit", "logit", 2, learn=("variance", "lengthscales"))
    coarse, fine = (binary_posterior(model, model.learn, np.array([0, 1]), nodes) for nodes in (27, 61))
    for a, b in zip(coarse, fine, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.0, atol=2e-4)  # a hundredth of what short chains resolve


@pytest.mark.parametrize("model", JOINT, ids=lambda model: model.name)
def test_draws_of_the_model_have_the_means_that_the_statistics_are_held_to(model):
    rng = np.random.default_rng(2)
    theta, v, _, y = joint_draws(rng, model, 4000)
    known, _ = statistics(model, theta, v, y)
    z = known.mean(axis=0) / (known.std(axis=0) / np.sqrt(len(known)))
    assert np.abs(z).max() < 5.0
    assert np.all((np.eye(model.n_classes)[y].sum(axis=(0, 1))) > 0.0)
    if model.likelihood == "logit":
        np.testing.assert_allclose((y - expit(v[:, 0])).mean(axis=0), 0.0, atol=0.05)  # six errors


def test_a_move_that_rounds_and_changes_nothing_has_no_z():
    before = np.random.default_rng(3).standard_normal((5000, 2))
    after = before + 1e-15 * (1.0 + before**2)  # a mean of its own
    for known in (True, False):
        assert not z_of(after, before, known).any()
    for known in (True, False):
        assert z_of(before + np.array([0.0, 0.5]), before, known)[1] > 10.0


def test_a_control_variate_leaves_the_mean_alone():
    rng = np.random.default_rng(3)
    before = rng.standard_normal((5000, 2))
    after = 0.9 * before + 0.3 * rng.standard_normal((5000, 2)) + np.array([0.0, 0.05])
    z = z_of(after, before, True)
    assert abs(z[0]) < 4.0
    assert z[1] > 8.0  # 0.05 of 0.3 in 5000: eleven errors, and three and a half without the control


@pytest.mark.parametrize("model", [JOINT[0], JOINT[4]], ids=lambda model: model.name)
def test_the_joint_distribution_sees_a_forgotten_jacobian(monkeypatch, model):
    right = hyper_models.joint_log_density

    def forgotten(log_hyper, distributions):
        result = right(log_hyper, distributions)
        return LogDensity(result.value - log_hyper.sum(axis=-1), result.gradient - 1.0)

    sizes = {"a sweep": 800, "slices": 800}
    monkeypatch.setattr(hyper_models, "joint_log_density", forgotten)
    result = [outcome for outcome in joint(model, sizes) if isinstance(outcome, Tested)]
    assert min(np.abs(outcome.z).max() for outcome in result) > 6.0


def test_steps_that_go_on_adapting_are_seen(monkeypatch):
    right = hyper_models.HyperModel.step

    def adapting(self, state, rngs):
        return right(self, state, rngs) | {"log_step": state["log_step"] + 0.01}

    monkeypatch.setattr(hyper_models.HyperModel, "step", adapting)
    results = [outcome for outcome in joint(JOINT[0], {"a sweep": 50}) if isinstance(outcome, Compared)]
    assert results[0].observed > results[0].limit


def test_the_distributions_of_the_short_problems_are_those_of_the_rule():
    assert set(DISTRIBUTIONS) == set(own.FIELDS)
