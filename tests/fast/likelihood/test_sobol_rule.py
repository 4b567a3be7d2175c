"""Fixed points of Sobol's sequence, and class probabilities by them: closed forms, Owen's T, many more other points."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri, owens_t, softmax
from scipy.stats import norm, qmc

from fast.core.results import Differences
from fast.full_classes.couplings import LatentDistribution
from fast.full_classes.predict import (
    independent_probabilities,
    log_probit_probabilities,
    normalised,
    quadrature_probabilities,
    softmax_probabilities,
)
from fast.likelihood.sobol_rule import log_orthant, normal_points, uniform_points


def random_distributions(rng, t, C, log_variance):
    """Means and covariances of f: correlated classes, standard deviations of 0.2 to 1 times exp(v/2)."""
    scale = np.exp(0.5 * log_variance)
    root = rng.normal(size=(t, C, C + 1)) * rng.uniform(0.2, 1.0, size=(t, C, 1)) * scale / np.sqrt(C + 1)
    mean = scale * rng.normal(size=(t, C)) * rng.choice([0.1, 0.3, 1.0], size=(t, 1))
    return mean, root @ root.transpose(0, 2, 1) + 1e-3 * np.eye(C)


def quadrant(h, k, rho):
    """P(x < h, y < k) for correlation rho, by Owen's T."""
    a = np.array([(k / h - rho), (h / k - rho)]) / np.sqrt(1.0 - rho**2)
    part = 0.0 if h * k > 0.0 else 0.5
    return 0.5 * (ndtr(h) + ndtr(k)) - owens_t(h, a[0]) - owens_t(k, a[1]) - part


def orthant_of_class(mean, cov, k):
    """Mean and covariance of f_k - f_j and unit noises, written with the matrix of differences."""
    A = np.delete(-np.eye(len(mean)), k, axis=0)
    A[:, k] = 1.0
    return A @ mean, A @ (cov + np.eye(len(mean))) @ A.T


@pytest.mark.parametrize(("dimension", "count"), [(1, 4096), (11, 1024), (19, 4096)])
def test_each_coordinate_takes_the_midpoints_of_equal_intervals_once(dimension, count):
    u = uniform_points(dimension, count)
    assert u.shape == (dimension, count)
    np.testing.assert_array_equal(np.sort(u, axis=1), np.tile((np.arange(count) + 0.5) / count, (dimension, 1)))
    np.testing.assert_array_equal(normal_points(dimension, count), ndtri(u))
    with pytest.raises(ValueError, match="read-only"):
        u[0, 0] = 0.5


def test_two_classes_are_exact_by_the_probit_and_a_midpoint_rule_by_the_softmax():
    mean, cov = np.array([[0.7, -0.2], [-30.0, 31.0]]), np.array([[[1.0, 0.3], [0.3, 0.5]], [[4.0, 0.0], [0.0, 2.0]]])
    h, H = mean[:, 0] - mean[:, 1], cov[:, 0, 0] + cov[:, 1, 1] - 2.0 * cov[:, 0, 1]
    expected = log_ndtr(h / np.sqrt(H + 2.0))
    np.testing.assert_allclose(log_probit_probabilities(mean, cov)[:, 0], expected, rtol=1e-13)  # a few roundings
    exact = quad(lambda d: norm.pdf(d, h[0], np.sqrt(H[0])) / (1.0 + np.exp(-d)), -12, 12, epsabs=1e-13)[0]
    # 1/(24 N^2) of the derivative at the ends of the unit interval, N = 4096, and the logistic is flat there
    np.testing.assert_allclose(softmax_probabilities(mean, cov)[0], [exact, 1.0 - exact], rtol=0, atol=1e-6)
    # a step in place of the logistic: a monotone function is met within half an interval
    steep = softmax_probabilities(np.array([[1e8, 0.0]]), np.array([[[1e16, 0.0], [0.0, 1e16]]]))[0, 0]
    assert abs(steep - ndtr(np.sqrt(0.5))) <= 0.5 / 4096


@pytest.mark.verifies("riihimaki2013", "25", route="orthant probability by Owen's T")
@pytest.mark.parametrize("log_variance", [1.0, 4.0, 8.0])
def test_three_classes_have_the_quadrants_of_owens_t(rng, log_variance):
    mean, cov = random_distributions(rng, 40, 3, log_variance)
    result = quadrature_probabilities(mean, cov)
    for i in range(len(mean)):
        for k in range(3):
            m, V = orthant_of_class(mean[i], cov[i], k)
            sd = np.sqrt(V.diagonal())
            # 3e-5: stated 2e-5 for the largest of some hundred probabilities, and these are others
            assert abs(result[i, k] - quadrant(*(m / sd), V[0, 1] / sd.prod())) < 3e-5
    np.testing.assert_allclose(result.sum(axis=1), 1.0, rtol=0, atol=5e-5)


def by_many_points(mean, cov, probit, rng, repeats=4, log_count=15):
    """Class probabilities by scrambled points: softmax in f itself, orthants in the opposite order of rivals."""
    C = len(mean)
    values = np.empty((repeats, C))
    for r in range(repeats):
        if not probit:
            x = ndtri(qmc.Sobol(C, seed=rng).random_base2(log_count))
            values[r] = softmax(mean + x @ np.linalg.cholesky(cov).T, axis=1).mean(axis=0)
            continue
        u = qmc.Sobol(C - 2, seed=rng).random_base2(log_count)
        for k in range(C):
            m, V = (value[::-1] for value in orthant_of_class(mean, cov, k))
            L = np.linalg.cholesky(V[:, ::-1])
            x, weight = np.zeros((len(u), C - 1)), np.ones(len(u))
            for j in range(C - 1):
                p = ndtr((m[j] + x @ L[j]) / L[j, j])
                weight *= p
                if j < C - 2:
                    x[:, j] = -ndtri(np.maximum(u[:, j] * p, 1e-300))
            values[r, k] = weight.mean()
    return values.mean(axis=0), values.std(axis=0, ddof=1).max() / np.sqrt(repeats)


# Twice the largest error that the module states for this C over log variances 1, 4, 8: distributions here are few, but
# others.
_STATED = {4: (6e-3, 8e-4), 10: (1.4e-2, 6e-3), 12: (1.4e-2, 6e-3)}


@pytest.mark.parametrize("log_variance", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("C", [4, 10, 12])
def test_many_classes_agree_with_many_scrambled_points(rng, C, log_variance):
    mean, cov = random_distributions(rng, 3, C, log_variance)
    for probit, function, limit in zip(
        (False, True), (softmax_probabilities, quadrature_probabilities), _STATED[C], strict=True
    ):
        result = function(mean, cov)
        for i in range(len(mean)):
            expected, error = by_many_points(mean[i], cov[i], probit, rng, log_count=13)
            np.testing.assert_allclose(result[i], expected, rtol=0, atol=limit + 4.0 * error)


@pytest.mark.parametrize(("function", "limit"), [(softmax_probabilities, 6e-3), (quadrature_probabilities, 8e-4)])
@pytest.mark.parametrize("log_variance", [1.0, 4.0, 8.0])
def test_renamed_classes_move_nothing_beyond_twice_the_error(rng, function, limit, log_variance):
    mean, cov = random_distributions(rng, 20, 4, log_variance)
    order = np.array([2, 3, 1, 0])
    renamed = function(mean[:, order], cov[:, order][:, :, order])
    np.testing.assert_allclose(renamed, function(mean, cov)[:, order], rtol=0, atol=limit)


def test_independent_classes_have_their_one_integral(rng):
    mean, var = 2.0 * rng.normal(size=(20, 3)), rng.uniform(0.1, 30.0, size=(20, 3))
    result = quadrature_probabilities(mean, var[:, :, None] * np.eye(3))
    np.testing.assert_allclose(result, independent_probabilities(mean, var), rtol=0, atol=3e-5)  # stated 2e-5


@pytest.mark.parametrize(("C", "limit"), [(3, 0.01), (4, 0.2), (12, 30.0)])
def test_tiny_probabilities_keep_their_logarithms(C, limit):
    # independent classes; the first is 40 standard deviations of a difference with its noises below all others
    mean = np.append(-80.0, np.zeros(C - 1))
    actual = log_probit_probabilities(mean[None], np.eye(C)[None])[0]
    s = np.linspace(-60.0, 20.0, 20001)
    terms = norm.logpdf(s, -80.0, np.sqrt(2.0)) + (C - 1) * log_ndtr(s / np.sqrt(2.0))
    direct = logsumexp(terms) + np.log(s[1] - s[0])
    # -1075, -1211 and -1495: the error of the rule is one of probabilities, not of their ratios, and there are no
    # points where a corner is cut off by many conditions; two in a hundred of the logarithm is what is left of it
    assert abs(actual[0] - direct) < limit
    np.testing.assert_allclose(np.exp(actual[1:]), 1.0 / (C - 1), rtol=0, atol=3e-3)  # stated for twelve classes


def test_orthants_of_independent_values_are_products_however_small():
    mean = np.array([[-1.0, 0.4], [-50.0, -45.0], [-33.0, 2.0], [35.0, 31.0], [-29.0, 40.0]])
    var = np.array([1.3, 0.8])
    got = log_orthant(Differences(mean, np.tile(np.diag(var), (5, 1, 1))))
    # sums of two logarithms of size 1e3, whatever the points
    np.testing.assert_allclose(got, log_ndtr(mean / np.sqrt(var)).sum(axis=1), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("a", "b"), [(-45.0, -30.0), (-32.0, 1.0), (0.3, -0.4)])
def test_an_orthant_of_two_correlated_values_is_its_integral_in_the_tail_too(a, b):
    rho = 0.6
    got = log_orthant(Differences(np.array([[a, b]]), np.array([[[1.0, rho], [rho, 1.0]]])))[0]
    # over the first value, from where it is positive to where its density has fallen by e^-40
    e = max(-a, -9.0) + (40.0 / -a if a < -10.0 else 18.0) * np.linspace(0.0, 1.0, 4001)
    terms = norm.logpdf(e) + log_ndtr((b + rho * e) / np.sqrt(1.0 - rho**2))
    expected = logsumexp(terms, b=np.r_[0.5, np.ones(3999), 0.5]) + np.log(e[1] - e[0])
    # 1024 points in one dimension; 4001 nodes leave 1e-4
    assert abs(got - expected) < 2e-3


def test_product_rules_are_the_integrals_of_three_classes(rng):
    mean, root = rng.normal(size=(4, 3)), 0.35 * rng.normal(size=(4, 3, 3))
    cov = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(3)
    x = np.linspace(-6.3, 6.3, 19)  # spacing 0.7: aliasing exp(-2 pi^2 / 0.49) = 3e-18, and 3e-10 is cut off
    w = norm.pdf(x) / norm.pdf(x).sum()
    grid = np.stack([axis.ravel() for axis in np.meshgrid(x, x, x)])
    weight = np.prod([axis.ravel() for axis in np.meshgrid(w, w, w)], axis=0)
    f = mean[:, :, None] + np.linalg.cholesky(cov) @ grid
    soft = softmax(f, axis=1) @ weight
    # P(f_k + u > f_j + noise of j, for all j) for the unit noise u of class k
    apart = [[f[:, k] - f[:, j] for j in range(3) if j != k] for k in range(3)]
    probit = [sum(p * (ndtr(a + u) * ndtr(b + u) @ weight) for u, p in zip(x, w, strict=True)) for a, b in apart]
    # 40 nodes a dimension leave 6e-8 at these deviations
    np.testing.assert_allclose(softmax_probabilities(mean, cov, 40), soft, rtol=0, atol=1e-6)
    np.testing.assert_allclose(quadrature_probabilities(mean, cov, 40), np.transpose(probit), rtol=0, atol=1e-6)


def test_without_variance_class_probabilities_are_the_softmax_however_far_apart():
    ends = (-3000.0, -650.0, -2.0, 0.3, 5.0, 650.0, 800.0, 3000.0)
    mean = np.array([[0.0, a, b] for a in ends for b in ends])
    got = softmax_probabilities(mean, np.tile(1e-24 * np.eye(3), (len(mean), 1, 1)))
    # a deviation of 1e-12 moves a logarithm by as much; one that underflows is zero
    np.testing.assert_allclose(got, softmax(mean, axis=1), rtol=1e-11, atol=1e-300)


def test_bulk_and_tail_meet_where_one_takes_over(monkeypatch, rng):
    mean, cov = random_distributions(rng, 6, 4, 8.0)
    plain = log_probit_probabilities(mean, cov)
    monkeypatch.setattr("fast.likelihood.sobol_rule._TAIL", np.inf)
    # all in logarithms: rounding of z^2/2 for |z| up to 30
    np.testing.assert_allclose(log_probit_probabilities(mean, cov), plain, rtol=1e-11, atol=1e-11)


def test_blocks_move_nothing(monkeypatch, rng):
    mean, cov = random_distributions(rng, 7, 5, 2.0)
    plain = softmax_probabilities(mean, cov), quadrature_probabilities(mean, cov)
    monkeypatch.setattr("fast.likelihood.sobol_rule._CELLS", 1)
    # products of other sizes round differently
    np.testing.assert_allclose(softmax_probabilities(mean, cov), plain[0], rtol=1e-12)
    np.testing.assert_allclose(quadrature_probabilities(mean, cov), plain[1], rtol=1e-11)
    np.testing.assert_allclose(plain[0].sum(axis=1), 1.0, rtol=0, atol=1e-13)
    assert softmax_probabilities(mean[:0], cov[:0]).shape == quadrature_probabilities(mean[:0], cov[:0]).shape == (0, 5)


def test_no_probabilities_are_made_up():
    distribution = LatentDistribution(np.zeros((2, 3)), np.tile(np.eye(3), (2, 1, 1)))
    with pytest.raises(FloatingPointError, match=r"^probabilities: found the sum 0\.0 .* test point 5"):
        normalised(distribution, np.array([[0.5, 0.2, 0.2], [0.0, 0.0, 0.0]]), first=4)
    with pytest.raises(FloatingPointError, match=r"^probabilities: found the sum nan over the classes at test point 0"):
        normalised(distribution, np.array([[0.5, np.nan, 0.2], [0.3, 0.3, 0.3]]))
    result = normalised(distribution, np.array([[0.5, 0.2, 0.2], [0.0, 0.0, 2.0]]))
    np.testing.assert_allclose(result.probability_mass, [0.9, 2.0], rtol=1e-15)
    np.testing.assert_allclose(result.probabilities.sum(axis=1), 1.0, rtol=1e-15)
