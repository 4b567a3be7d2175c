"""Definitions that chains over kernel parameters are judged by: densities, moments, rules; and what the checks see."""

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from validation.checks.against_truth.hyper_chains import DISTRIBUTIONS, Model, binary_posterior
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


def test_the_distributions_of_the_short_problems_are_those_of_the_rule():
    assert set(DISTRIBUTIONS) == set(own.FIELDS)
