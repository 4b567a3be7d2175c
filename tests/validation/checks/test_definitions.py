"""The judge's own definitions, where their values are known by other routes still."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from validation import problems as stored
from validation.checks.definitions import binary as binary
from validation.checks.definitions import classes as classes
from validation.checks.definitions import full_classes as full
from validation.checks.definitions import tied as tied

SPARSE = stored.get("two-points-3-sparse-threshold")
FULL = stored.get("two-points-3")
BINARY = stored.get("three-points-fitc")


def test_counts_of_factors_by_hand():
    y = np.array([2, 0])
    assert tied.counts(y, 3, "all").tolist() == [4.0] * 3
    assert tied.counts(y, 3, "per-class").tolist() == [3.0, 2.0, 3.0]


def test_a_pair_is_won_with_the_probability_of_a_difference():
    mean, var = np.array([[0.3, -0.2, 0.8]]), np.array([[0.5, 1.5, 0.2]])
    result = tied.log_norms(np.array([1]), mean, var)
    assert result[0, 1] == 0.0
    expected = [norm.logsf(0.0, -0.2 - mean[0, k], np.sqrt(1.5 + var[0, k])) for k in (0, 2)]
    np.testing.assert_allclose(result[0, [0, 2]], expected, rtol=1e-12, atol=0.0)


def test_without_sites_every_factor_is_integrated_under_the_prior():
    dense = classes.Dense(SPARSE)
    prior = dense.moments(dense.K_inv, np.zeros((3, len(dense.K_inv[0]))))
    expected = np.log(classes.probabilities_of(dense.y, *prior)).sum()
    # a dozen operations on condition numbers below 1e3
    np.testing.assert_allclose(dense.with_sites(1.0, *np.zeros((2, 2, 3))), expected, rtol=0, atol=1e-11)
    pairs = tied.log_norms(dense.y, *prior).sum()
    estimate = classes.pair_evidence(classes.on_inducing(SPARSE), np.zeros((4, 2, 3)))
    np.testing.assert_allclose(estimate, pairs, rtol=0, atol=1e-11)
    # latent values at the data have the same marginals as what inducing values leave and say of them
    estimate = classes.pair_evidence(classes.on_latents(SPARSE), np.zeros((4, 2, 3)))
    np.testing.assert_allclose(estimate, pairs, rtol=0, atol=1e-11)


def test_without_sites_binary_labels_are_tossed():
    problem = binary.question("epgpc", BINARY)
    estimate = binary.ep_evidence(problem, np.zeros((2, problem.n)))
    np.testing.assert_allclose(estimate, problem.n * np.log(0.5), rtol=0, atol=1e-12)


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_expected_derivatives_are_differences_of_expected_values(likelihood):
    problem = BINARY.replace(likelihood=likelihood)
    y, m, v = np.array([1.0, -1.0]), np.array([0.7, 1.9]), np.array([0.4, 6.0])
    _, by_mean, by_var = binary.expected(problem, y, m, v)
    step = 1e-5
    ends = [binary.expected(problem, y, m + s * step, v)[0] for s in (1.0, -1.0)]
    # differences of 1e-5 leave 1e-10 times third derivatives below one
    np.testing.assert_allclose(by_mean, (ends[0] - ends[1]) / (2.0 * step), rtol=0, atol=1e-9)
    ends = [binary.expected(problem, y, m, v + s * step)[0] for s in (1.0, -1.0)]
    np.testing.assert_allclose(by_var, (ends[0] - ends[1]) / (2.0 * step), rtol=0, atol=1e-9)


def test_moments_of_g_are_those_of_an_orthant():
    P, h = np.linalg.inv(np.array([[1.2, 0.3, 0.1], [0.3, 0.8, -0.2], [0.1, -0.2, 1.5]])), np.array([0.3, -0.4, 0.2])
    tilted = full.tilted_g(1, P, h)
    mean, cov = tilted.before
    below = multivariate_normal(-mean, cov + np.eye(2), seed=1, abseps=1e-10, releps=0.0)
    # SciPy's bivariate probability is good to 1e-9
    np.testing.assert_allclose(np.exp(tilted.log_norm), below.cdf(np.zeros(2)), rtol=0, atol=1e-8)


def test_inner_ep_of_two_classes_is_a_probit():
    mean, cov = np.array([0.4, -0.3]), np.array([[1.1, 0.2], [0.2, 0.7]])
    gap = cov[0, 0] + cov[1, 1] - 2.0 * cov[0, 1]
    expected = norm.logcdf((mean[1] - mean[0]) / np.sqrt(2.0 + gap))
    np.testing.assert_allclose(full.inner_ep(1, mean, cov), expected, rtol=0, atol=1e-10)


def test_the_mode_is_flat():
    K = full.prior_cov(FULL)
    result = full.mode(K, FULL.y, 3)
    pi = full.softmax(result.mean, axis=1)
    derivative = (np.eye(3)[FULL.y] - pi).ravel() - np.linalg.solve(K, result.mean.ravel())
    # Newton ends at steps of 1e-13, curvatures are of order one
    np.testing.assert_allclose(derivative, 0.0, rtol=0, atol=1e-11)
