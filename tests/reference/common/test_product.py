"""Class probabilities by Sobol' points: closed forms, bivariate orthants, long scrambled sequences, and far tails.

Tolerances are those that the module states, which were measured on other Gaussians, or twice as much.
"""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_ndtr, ndtr, ndtri, ndtri_exp, softmax
from scipy.stats import norm, qmc

from bivariate import bivariate_normal_cdf
from reference.common._product import log_orthant_probability, orthant_rule, sobol_points, softmax_probabilities
from reference.common.errors import NotPositiveDefiniteError
from reference.riihimaki2013.prediction import class_probability_from_g


def gaussian(rng, c, log_variance, correlated=True):
    """Mean and covariance of c correlated latent values."""
    root = rng.normal(size=(c, 2 * c))
    R = 0.9 * root @ root.T / (2 * c) + 0.1 * np.eye(c) if correlated else np.eye(c)
    cov = np.exp(log_variance) * R
    return np.linalg.cholesky(cov) @ rng.normal(size=c), cov


def differences(mean, cov, k):
    """Distribution of f_k - f_j plus unit noises of both classes, j ascending."""
    A = np.eye(len(mean))[k] - np.delete(np.eye(len(mean)), k, axis=0)
    return A @ mean, A @ (cov + np.eye(len(mean))) @ A.T


def scrambled(rng, dimension, log2_size, repeats):
    for _ in range(repeats):
        yield np.clip(qmc.Sobol(dimension, scramble=True, seed=rng).random_base2(log2_size), 1e-12, 1.0 - 1e-12)


def test_the_points_are_the_middles_of_cells():
    u = sobol_points(6, 4)
    np.testing.assert_array_equal(np.sort(u, axis=0), np.tile((np.arange(64) + 0.5)[:, None] / 64, (1, 4)))
    # van der Corput's sequence first, in Gray code's order: 0, 1/2, 3/4, 1/4
    np.testing.assert_array_equal(u[:4, 0], np.array([0.0, 0.5, 0.75, 0.25]) + 1 / 128)
    np.testing.assert_array_equal(u[2, :2], np.array([0.75, 0.25]) + 1 / 128)
    np.testing.assert_array_equal(u, sobol_points(6, 4))


@pytest.mark.parametrize("log_variance", [1.0, 4.0, 8.0])
def test_two_classes_are_one_dimensional(log_variance):
    v = np.exp(log_variance)
    mean, cov = np.array([0.4, -0.3]) * np.sqrt(v), np.array([[v, 0.3 * v], [0.3 * v, 1.2 * v]])
    gap, var = mean[0] - mean[1], 1.6 * v
    probit = class_probability_from_g(mean, cov, 0)
    assert probit == pytest.approx(ndtr(gap / np.sqrt(var + 2.0)), rel=1e-14, abs=0)  # no rule at all
    ends, bend = (gap - 12.0 * np.sqrt(var), gap + 12.0 * np.sqrt(var)), [-30.0, -3.0, 0.0, 3.0, 30.0]
    soft = quad(
        lambda d: norm.pdf(d, gap, np.sqrt(var)) * expit(d), *ends, points=bend, limit=200, epsabs=0, epsrel=1e-11
    )[0]
    # the midpoint rule of 4096 points: a bend at the size of sd/4096 shifts by less than half a weight
    np.testing.assert_allclose(softmax_probabilities(mean, cov), [soft, 1.0 - soft], rtol=0, atol=0.5 / 4096)


@pytest.mark.parametrize("log_variance", [1.0, 4.0, 8.0])
def test_orthants_of_three_classes_are_bivariate_normal(rng, log_variance):
    for correlated in (True, False):
        mean, cov = gaussian(rng, 3, log_variance, correlated)
        for k in range(3):
            mu, V = differences(mean, cov, k)
            wanted = bivariate_normal_cdf(mu, V)
            assert np.exp(log_orthant_probability(mu, V)) == pytest.approx(wanted, rel=0, abs=2e-5)
            assert class_probability_from_g(mean, cov, k) == pytest.approx(wanted, rel=0, abs=2e-5)


@pytest.mark.parametrize(("c", "tolerance"), [(4, 4e-4), (10, 3e-3), (12, 3e-3)])
@pytest.mark.parametrize("log_variance", [1.0, 4.0, 8.0])
def test_orthants_of_many_classes(rng, c, tolerance, log_variance):
    mean, cov = gaussian(rng, c, log_variance)
    got, wanted = np.empty(c), np.empty(c)
    for k in range(c):
        mu, V = differences(mean, cov, k)
        L = np.linalg.cholesky(V)
        means = []
        for u in scrambled(rng, c - 1, 12, 4):
            z, log_weight = np.zeros_like(u), 0.0
            for j in range(c - 1):
                b = (mu[j] + z[:, :j] @ L[j, :j]) / L[j, j]
                log_weight = log_weight + log_ndtr(b)
                z[:, j] = -ndtri_exp(np.log(u[:, j]) + log_ndtr(b))
            means.append(np.mean(np.exp(log_weight)))
        wanted[k] = np.mean(means)
        got[k] = class_probability_from_g(mean, cov, k)
    # twice the errors measured; the long means have 1e-4 (their sum is one within that too)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)
    assert np.sum(wanted) == pytest.approx(1.0, rel=0, abs=1e-3)
    assert np.sum(got) == pytest.approx(1.0, rel=0, abs=0.02)  # a sum of c errors: it is the diagnostic


@pytest.mark.parametrize(
    ("c", "log_variance", "tolerance"),
    [
        (3, 1.0, 3e-4),
        (3, 8.0, 2e-3),
        (4, 4.0, 2e-3),
        (4, 8.0, 4e-3),
        (10, 4.0, 5e-3),
        (10, 8.0, 0.012),
        (12, 1.0, 1.5e-3),
        (12, 8.0, 0.012),
    ],
)
def test_softmax_of_many_classes(rng, c, log_variance, tolerance):
    mean, cov = gaussian(rng, c, log_variance)
    L = np.linalg.cholesky(cov)
    means = [np.mean(softmax(mean + ndtri(u) @ L.T, axis=1), axis=0) for u in scrambled(rng, c, 15, 8)]
    got = softmax_probabilities(mean, cov)
    # twice the errors measured; the long means have 5e-4 at most
    np.testing.assert_allclose(got, np.mean(means, axis=0), rtol=0, atol=tolerance)
    assert np.sum(got) == pytest.approx(1.0, rel=1e-14, abs=0)  # by construction


def test_renaming_the_classes_moves_no_more_than_the_rule_errs(rng):
    for c, log_variance, soft, orthant in ((3, 4.0, 1e-3, 4e-5), (5, 4.0, 4e-3, 2e-3), (10, 8.0, 0.015, 4e-3)):
        mean, cov = gaussian(rng, c, log_variance)
        order = rng.permutation(c)
        moved_mean, moved_cov = mean[order], cov[np.ix_(order, order)]
        one, two = softmax_probabilities(mean, cov)[order], softmax_probabilities(moved_mean, moved_cov)
        np.testing.assert_allclose(one, two, rtol=0, atol=soft)
        one = [class_probability_from_g(mean, cov, k) for k in order]
        two = [class_probability_from_g(moved_mean, moved_cov, k) for k in range(c)]
        np.testing.assert_allclose(one, two, rtol=0, atol=orthant)


def test_probabilities_of_1e_minus_350_have_logarithms():
    """All rivals 40 standard deviations ahead, independent but for the label's own part."""
    for D in (1, 2, 5):
        V = 0.5 * np.eye(D) + 0.5
        got = log_orthant_probability(np.full(D, -40.0), V)
        # P(h_1 > 0) is above; below, all h_j stand at their common mean: 40²/2 over the mean correlation
        assert np.isfinite(got)
        assert got <= log_ndtr(-40.0) + 1e-9
        precision = np.ones(D) @ np.linalg.solve(V, np.ones(D))
        assert got == pytest.approx(-800.0 * precision, rel=0.02, abs=0)  # prefactors of a few logarithms of 40
    assert log_orthant_probability(np.array([-40.0]), np.eye(1)) == pytest.approx(norm.logcdf(-40.0), rel=1e-14, abs=0)
    pair = log_orthant_probability(np.array([-40.0, -40.0]), np.eye(2))  # independent: the logarithms add
    assert pair == pytest.approx(2.0 * norm.logcdf(-40.0), rel=1e-14, abs=0)


def test_the_measure_stands_on_the_orthant(rng):
    root = rng.normal(size=(4, 4))
    mean, cov = rng.normal(size=4), root @ root.T + 0.1 * np.eye(4)
    result = orthant_rule(mean, cov, sobol_points(8, 3))
    h = mean[:3] + result.z @ result.root[:3, :3].T
    assert np.min(h) > 0.0
    np.testing.assert_allclose(result.root @ result.root.T, cov, rtol=1e-12, atol=1e-12)
    last = mean[3] + result.z @ result.root[3, :3]
    np.testing.assert_allclose(result.b, last / result.root[3, 3], rtol=1e-12, atol=1e-12)
    with pytest.raises(NotPositiveDefiniteError, match="covariance of the differences"):
        orthant_rule(np.zeros(2), np.ones((2, 2)), sobol_points(3, 1))


def test_a_number_of_nodes_asks_for_a_product_rule(rng):
    mean, cov = gaussian(rng, 3, 0.0)
    by_rule = softmax_probabilities(mean, cov, 40)
    np.testing.assert_allclose(by_rule, softmax_probabilities(mean, cov), rtol=0, atol=2e-4)  # the points' error
    assert np.max(np.abs(by_rule - softmax_probabilities(mean, cov))) > 1e-9
    with pytest.raises(ValueError, match="nodes: found 40 in 5 dimensions, expected at most 1e6 points"):
        softmax_probabilities(np.zeros(6), np.eye(6), 40)
    with pytest.raises(ValueError, match="nodes: found 1, expected a whole number >= 2"):
        class_probability_from_g(mean, cov, 0, 1)


def test_a_product_rule_does_not_depend_on_the_order_of_the_classes(rng):
    mean, cov = gaussian(rng, 4, 2.0)
    order = np.array([2, 0, 3, 1])
    renamed = softmax_probabilities(mean[order], cov[np.ix_(order, order)], 6)  # far from converged
    np.testing.assert_allclose(renamed, softmax_probabilities(mean, cov, 6)[order], rtol=0, atol=1e-13)
