"""The judge's own integrals of class probabilities, against closed forms, quadrature and SciPy's orthants."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, ndtr
from scipy.stats import multivariate_normal, norm

from softmax_laplace import probabilities
from validation import problems
from validation.judge.class_integrals import class_probabilities, probit_orthants, softmax_mean

MEAN, COV = np.array([[0.4, -0.9]]), np.array([[[3.0, 1.0], [1.0, 2.0]]])  # f_0 - f_1 has mean 1.3, variance 3


def gaussians(C, t, log_variance, seed):
    """Means and correlated covariances (t, C), (t, C, C), the largest variance exp(log_variance)."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(t, C, C))
    cov = root @ root.transpose(0, 2, 1)
    cov *= np.exp(log_variance) / np.einsum("tcc->tc", cov).max()
    return rng.normal(size=(t, C)) * np.exp(0.5 * log_variance), cov


def test_two_classes_have_known_integrals():
    result = softmax_mean(MEAN, COV)
    exact = quad(lambda d: norm.pdf(d, 1.3, np.sqrt(3.0)) * expit(d), -15, 15, epsabs=1e-13)[0]
    assert 0.0 < result.error < 1e-7
    np.testing.assert_allclose(result.probabilities, [[exact, 1.0 - exact]], rtol=0, atol=result.error)
    exact = ndtr(1.3 / np.sqrt(5.0))
    np.testing.assert_allclose(probit_orthants(MEAN, COV).probabilities, [[exact, 1.0 - exact]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", [softmax_mean, probit_orthants])
@pytest.mark.parametrize("C", [4, 7])  # a product rule, a lattice
def test_equal_classes_have_equal_shares(rule, C):
    result = rule(np.zeros((1, C)), 2.0 * np.eye(C)[None] + 0.5)
    np.testing.assert_allclose(result.probabilities, 1.0 / C, rtol=0, atol=result.error)
    assert result.error < (1e-7 if C == 4 else 1e-2)


@pytest.mark.parametrize("log_variance", [0.0, 3.0])
def test_softmax_of_correlated_classes_is_that_of_conditioning_and_a_table(log_variance):
    mean, cov = gaussians(3, 5, log_variance, seed=3)
    result = softmax_mean(mean, cov)
    # the other rule is good to 1e-9
    np.testing.assert_allclose(result.probabilities, probabilities(mean, cov), rtol=0, atol=result.error + 1e-9)
    assert result.error < 1e-7


@pytest.mark.parametrize("log_variance", [0.0, 3.0])
def test_orthants_of_correlated_classes_are_those_of_scipy(log_variance):
    mean, cov = gaussians(4, 3, log_variance, seed=4)
    expected = np.empty_like(mean)
    for i in range(3):
        for k in range(4):
            A = np.delete(np.eye(4), k, axis=0)
            A[:, k] = -1.0
            below = multivariate_normal(A @ mean[i], A @ (cov[i] + np.eye(4)) @ A.T, seed=0, abseps=1e-7, releps=0.0)
            expected[i, k] = below.cdf(np.zeros(3))
    result = probit_orthants(mean, cov)
    np.testing.assert_allclose(result.probabilities, expected, rtol=0, atol=1e-6)  # what SciPy's lattice leaves
    assert result.error < 1e-9


def test_a_lattice_states_its_error():
    """Six classes whose last two have no chance: four classes, which a product rule integrates."""
    mean, cov = gaussians(4, 2, 1.0, seed=5)
    more = np.full((2, 6), -60.0)
    more[:, :4] = mean
    wide = np.tile(4.0 * np.eye(6), (2, 1, 1))
    wide[:, :4, :4] = cov
    for rule in (softmax_mean, probit_orthants):
        exact, result = rule(mean, cov), rule(more, wide)
        apart = np.abs(result.probabilities[:, :4] - exact.probabilities).max()
        assert 1e-9 < apart <= result.error + exact.error
        assert result.error < 5e-3


def test_values_without_variance_have_the_likelihood_itself():
    mean = np.array([[0.3, -1.0, 2.0]])
    expected = np.exp(mean) / np.exp(mean).sum()
    np.testing.assert_allclose(softmax_mean(mean, np.zeros((1, 3, 3))).probabilities, expected, rtol=1e-12)


def test_only_methods_that_integrate_correlated_classes_have_an_integral():
    p = problems.get("two-points-3-softmax")
    mean, cov = gaussians(3, 2, 0.0, seed=6)
    assert class_probabilities(p, "laplace", mean, cov) is not None
    assert class_probabilities(p, "laplace-tkp", mean, cov) is None
    assert class_probabilities(p, "laplace", mean[:0], cov[:0]) is None
    assert class_probabilities(problems.get("two-points-3-threshold"), "ep", mean, cov) is None
