"""Section 4.1: derivatives of the softmax by differences, the mode by a general optimiser, ratios of evidences."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from scipy.stats import multivariate_normal, norm

from reference.riihimaki2013.fit import Prior
from reference.riihimaki2013.laplace import (
    extended_covariance,
    fit_laplace,
    la_tkp,
    laplace_gradients,
    laplace_log_marginal,
    laplace_newton_step,
    laplace_posterior,
    log_softmax_sum,
    predict_by_evidence_ratio,
    predict_laplace,
    softmax_gradient,
    softmax_w_matrix,
    tierney_kadane_ratio,
)
from reference.riihimaki2013.model import log_marginal_likelihood


def log_joint(f, K, y):
    return multivariate_normal.logpdf(f, np.zeros(len(f)), K) + log_softmax_sum(f, y)


def hessian_of_likelihood(f, y):
    """-∇∇ log p(y|f) by central differences of the derivative, which is checked by differences too."""
    return (
        -np.array([softmax_gradient(f + 1e-5 * e, y) - softmax_gradient(f - 1e-5 * e, y) for e in np.eye(len(f))])
        / 2e-5
    )


@pytest.mark.verifies("riihimaki2013", "u4.1-W", route="second differences of the log-likelihood")
def test_w_matrix(model, rng):
    f = rng.normal(size=15)
    derivative = [
        (log_softmax_sum(f + 1e-6 * e, model.y) - log_softmax_sum(f - 1e-6 * e, model.y)) / 2e-6 for e in np.eye(15)
    ]
    np.testing.assert_allclose(
        softmax_gradient(f, model.y), derivative, rtol=0, atol=1e-8
    )  # differences with step 1e-6
    # differences with step 1e-5: its square, and eps over it
    np.testing.assert_allclose(softmax_w_matrix(f, 5), hessian_of_likelihood(f, model.y), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 900.0), (1.0, -900.0), (500.0, 0.0), (100.0, 1e6)])
def test_softmax_terms_are_numbers_for_latent_values_of_any_size_and_shift(rng, scale, shift):
    at, y = scale * rng.normal(size=(4, 3)) + shift, np.array([2, 1, 0, 0])
    flat, p = at.T.ravel(), softmax(at, axis=1)
    digits = 1e-14 * max(1.0, abs(shift))  # eps of a difference of numbers of that size
    np.testing.assert_allclose(softmax_gradient(flat, y), (np.eye(3)[y] - p).T.ravel(), rtol=0, atol=digits)
    own = log_softmax(at, axis=1)[np.arange(4), y].sum()
    assert log_softmax_sum(flat, y) == pytest.approx(own, rel=1e-13, abs=10.0 * digits)


@pytest.mark.verifies("riihimaki2013", "u4.1-newton", route="Newton step of the log joint with the whole Hessian")
def test_newton_step(model, rng):
    f = rng.normal(size=15)
    W = hessian_of_likelihood(f, model.y)
    gradient = softmax_gradient(f, model.y) - np.linalg.solve(model.K, f)
    wanted = f + np.linalg.solve(np.linalg.inv(model.K) + W, gradient)
    got = laplace_newton_step(f, model.K, model.y)
    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-8)  # W by differences


@pytest.mark.verifies("riihimaki2013", "u4.1-laplace", route="maximum of the log joint by BFGS, inverse Hessian")
def test_mode_and_covariance(model):
    optimum = minimize(lambda f: -log_joint(f, model.K, model.y), np.zeros(15), method="BFGS", options={"gtol": 1e-7})
    got = laplace_posterior(model.K, model.y)
    assert got.converged
    np.testing.assert_allclose(got.mode, optimum.x, rtol=0, atol=1e-5)  # BFGS with differences
    wanted = np.linalg.inv(np.linalg.inv(model.K) + hessian_of_likelihood(got.mode, model.y))
    np.testing.assert_allclose(got.cov, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.verifies("riihimaki2013", "u4.1-logz", route="joint at the mode times the Gaussian integral around it")
def test_log_marginal(model):
    mode = laplace_posterior(model.K, model.y).mode
    precision = np.linalg.inv(model.K) + hessian_of_likelihood(mode, model.y)
    wanted = log_joint(mode, model.K, model.y) + 7.5 * np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    assert laplace_log_marginal(mode, model.K, model.y) == pytest.approx(wanted, rel=1e-8, abs=0)  # W by differences
    # against the truth: close where the posterior is nearly Gaussian
    K = 0.05 * np.eye(4)
    y = np.array([0, 1])
    value = laplace_log_marginal(laplace_posterior(K, y).mode, K, y)
    assert value == pytest.approx(log_marginal_likelihood(y, K, "softmax"), rel=1e-3, abs=0)


def test_gradient_is_total(model):
    s = model
    got = laplace_gradients(fit_laplace(s.X, s.y, 3, s.prior), s.X, s.y, s.prior)
    for field, where in (("variance", (2,)), ("lengthscales", (1, 1)), ("noise", (0,))):
        ends = []
        for sign in (1.0, -1.0):
            value = getattr(s.prior, field).copy()
            value[where] += 1e-5 * sign
            ends.append(fit_laplace(s.X, s.y, 3, s.prior._replace(**{field: value})).log_evidence)
        # central differences with step 1e-5 of a mode to 1e-10
        assert getattr(got, field)[where] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.verifies("riihimaki2013", "22", route="one-dimensional integrals of the difference of two latent values")
def test_ratio_of_integrals():
    K = np.diag([0.9, 0.6])
    x, w = np.polynomial.legendre.leggauss(300)
    d = 12.0 * x  # f⁰ - f¹ ~ N(0, 1.5)
    share = 12.0 * w * norm.pdf(d, 0.0, np.sqrt(1.5)) * expit(d)
    wanted = np.sum(share * expit(d)) / np.sum(share)
    got = tierney_kadane_ratio(lambda f: float(expit(f[0] - f[1])), K, np.array([0]))
    assert got == pytest.approx(wanted, rel=1e-8, abs=0)  # 40 nodes


@pytest.mark.verifies("riihimaki2013", "23", route="predictive integral over data and test point at once")
def test_prediction_as_a_ratio_of_evidences():
    rho = np.array([[0.8, 0.5], [0.5, 0.9]])
    K = np.kron(np.eye(2), rho)  # one datum and x_*, two classes
    got = predict_by_evidence_ratio(lambda K, y: log_marginal_likelihood(y, K, "softmax"), K, np.array([1]), 2)
    x, w = np.polynomial.legendre.leggauss(200)
    t, r = 9.0 * x[:, None], 9.0 * x[None, :]
    L = np.linalg.cholesky(2.0 * rho)  # of f⁰ - f¹ at the datum and at x_*
    share = np.outer(w, w) * norm.pdf(t) * norm.pdf(r) * expit(-L[0, 0] * t)
    at_star = expit(L[1, 0] * t + L[1, 1] * r)
    first = np.sum(share * at_star) / np.sum(share)
    np.testing.assert_allclose(got, [first, 1.0 - first], rtol=1e-8, atol=0)  # 40 nodes


@pytest.mark.verifies("riihimaki2013", "u4.1.1-la-tkp", route="Laplace evidences from scipy's optimiser and densities")
def test_la_tkp(model):
    s = model
    X, y, x_star = s.X[:3], s.y[:3], np.array([0.1, -0.3])
    K = extended_covariance(X, x_star, s.prior)

    def evidence(K, y):
        optimum = minimize(lambda f: -log_joint(f, K, y), np.zeros(len(K)), method="BFGS", options={"gtol": 1e-6})
        precision = np.linalg.inv(K) + hessian_of_likelihood(optimum.x, y)
        return -optimum.fun + 0.5 * len(K) * np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]

    kept = [0, 1, 2, 4, 5, 6, 8, 9, 10]
    before = evidence(K[np.ix_(kept, kept)], y)
    wanted = [np.exp(evidence(K, np.append(y, k)) - before) for k in range(3)]
    np.testing.assert_allclose(la_tkp(K, y, 3), wanted, rtol=1e-5, atol=0)  # BFGS with differences
    for k in range(3):
        assert K[4 * k + 3, 4 * k + 3] == s.prior.variance[k] + s.prior.noise[k]  # no jitter at a test point


def test_predictions_and_permutations(model, rng):
    s = model
    X_test = rng.normal(size=(3, 2))
    fit = fit_laplace(s.X, s.y, 3, s.prior)
    got = predict_laplace(fit, s.X, s.y, X_test, s.prior)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=1e-14, atol=0)  # one rule for all classes
    by_rule = predict_laplace(fit, s.X, s.y, X_test, s.prior, prediction_nodes=40)
    # 40 nodes for each class; 1e-4 of the Sobol' points
    np.testing.assert_allclose(by_rule.probability_mass, 1.0, rtol=0, atol=1e-4)
    np.testing.assert_allclose(by_rule.probability, got.probability, rtol=0, atol=3e-4)
    classes = np.array([2, 0, 1])
    prior = Prior(*(value[classes] for value in s.prior))
    moved = fit_laplace(s.X, np.argsort(classes)[s.y], 3, prior)
    assert moved.log_evidence == pytest.approx(fit.log_evidence, rel=1e-10, abs=0)
    other = predict_laplace(moved, s.X, np.argsort(classes)[s.y], X_test, prior)
    np.testing.assert_allclose(other.probability, got.probability[:, classes], rtol=0, atol=3e-4)  # the rule's error


def test_a_large_magnitude_still_has_its_mode(rng):
    X = rng.normal(size=(12, 2))
    prior = Prior(np.full(3, np.exp(8.0)), np.ones((3, 2)), np.zeros(3), np.full(3, 1e-6))
    y = rng.integers(0, 3, size=12)
    fit = fit_laplace(X, y, 3, prior)
    assert fit.converged
    got = predict_laplace(fit, X, y, 50.0 * np.ones((1, 2)), prior)
    assert np.all(np.isfinite(got.probability))
    assert not fit_laplace(X, y, 3, prior, max_iterations=1).converged
