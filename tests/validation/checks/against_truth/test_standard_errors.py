"""Stated errors against what errs: bounds, series, posteriors by rejection; and that wrong errors are seen."""

import numpy as np
import pytest

from validation.checks.against_truth.standard_errors import (
    Estimates,
    judged,
    spread,
    widening,
)  # fmt: skip
from validation.checks.core import Compared, Tested
from validation.checks.definitions import hyper_model as own
from validation.checks.definitions.few_data import Few, margin_covariance, orthant


def test_right_errors_are_within_the_bounds_and_wrong_ones_beyond():
    rng = np.random.default_rng(1)
    values = 2.0 + rng.standard_normal((32, 5))
    for factor, above, below in ((1.0, False, False), (0.4, True, False), (3.0, False, True)):
        result = spread(Estimates(values, np.full((32, 5), factor)), np.full(5, 2.0))
        assert (result[0] > 1.0, result[1] > 1.0) == (above, below)
    assert spread(Estimates(values, np.zeros((32, 5))), np.full(5, 2.0)) == (np.inf, np.inf)


def test_a_biased_mean_is_seen():
    rng = np.random.default_rng(2)
    values = 2.0 + rng.standard_normal(32)
    errors = np.ones(32)
    tested = [outcome for outcome in judged("x", Estimates(values, errors), 4.0) if isinstance(outcome, Tested)]
    assert np.abs(tested[0].z).max() > 6.0
    compared = [outcome for outcome in judged("x", Estimates(values, errors), 2.0) if isinstance(outcome, Compared)]
    assert all(outcome.observed <= outcome.limit for outcome in compared)


def test_widening_falls_to_one():
    assert widening(2) > widening(8) > widening(128) > 1.0
    assert widening(10**6) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    "few",
    [Few("logit"), Few("probit", 0.0, True), Few("multinomial-probit"), Few("threshold", 0.3, True), Few("softmax")],
    ids=lambda few: few.likelihood,
)
def test_log_evidence_is_the_share_that_rejection_keeps(few):
    rng = np.random.default_rng(4)
    v = np.einsum("lij,rlj->rli", np.linalg.cholesky(few.cov), rng.standard_normal((40_000, few.n_latents, 2)))
    p = few._probability(v)
    error = p.std() / np.sqrt(len(p))
    assert abs(p.mean() - np.exp(few.log_evidence())) < 5.0 * error


def test_draws_by_rejection_are_inside_the_constraints():
    few = Few("threshold")
    assert np.all(few.draws(np.random.default_rng(5), 200).argmax(axis=1) == few.y)


def test_an_orthant_of_two_is_an_arcsine():
    cov = np.array([[1.0, 0.5], [0.5, 2.0]])
    assert orthant(cov) == pytest.approx(0.25 + np.arcsin(0.5 / np.sqrt(2.0)) / (2.0 * np.pi), abs=1e-6)
    assert orthant(np.eye(1)) == 0.5


def test_margins_are_differences_to_the_label():
    cov = Few("multinomial-probit").cov
    result = margin_covariance(cov, np.array([2, 0]))
    assert result[0, 0] == pytest.approx(cov[2, 0, 0] + cov[0, 0, 0])
    assert result[0, 2] == pytest.approx(-cov[0, 0, 1])  # h_2 - h_0 at the first, h_0 - h_1 at the second


def test_class_probabilities_of_equal_classes_are_equal():
    result = own.class_probabilities("threshold", np.zeros(3), np.ones(3), 0.0, 0.2)
    np.testing.assert_allclose(result, 1.0 / 3.0, atol=1e-12)  # trapezoid of a smooth integrand on nine deviations
