"""Laplace's method for two classes in `reference`: the mode, its Gaussian, log Z and derivatives by other routes."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr

from reference.common.laplace_binary import (
    fit_laplace_binary,
    laplace_binary_gradients,
    laplace_derivatives,
    learn_laplace_binary,
    predict_laplace_binary,
)
from reference.common.priors import Hyper

LINKS = ("logit", "probit")


@pytest.fixture
def data(rng):
    X = rng.normal(size=(12, 2))
    return X, np.where(X[:, 0] + 0.6 * rng.normal(size=12) > 0.0, 1.0, -1.0)


def hyper(variance=2.3, noise=0.2, jitter=1e-3):
    return Hyper(variance, np.array([0.8, 1.3]), noise, jitter, None)


def covariance(X, h):
    K = h.variance * np.exp(-0.5 * (((X[:, None] - X[None]) / h.lengthscales) ** 2).sum(axis=2))
    return K + (h.noise + h.jitter) * np.eye(len(X))


def log_likelihood(link, z):
    return log_ndtr(z) if link == "probit" else -np.logaddexp(0.0, -z)


def exact(link, z):
    """First three derivatives of the log-likelihood in z, by mpmath."""
    with mpmath.workdps(200):
        if link == "logit":
            p = 1 / (1 + mpmath.exp(mpmath.mpf(z)))
            return [float(v) for v in (p, -p * (1 - p), p * (1 - p) * (1 - 2 * p))]
        x = mpmath.mpf(z)
        r = mpmath.npdf(x) / (mpmath.erfc(-x / mpmath.sqrt(2)) / 2)
        return [float(v) for v in (r, -r * (r + x), r * ((r + x) * (2 * r + x) - 1))]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("link", LINKS)
def test_derivatives_are_those_of_mpmath_however_far_out(link, sign):
    z = np.array([-200.0, -31.0, -29.0, -12.0, -3.0, -0.4, 0.0, 0.7, 4.0, 20.0])
    at = laplace_derivatives(sign * z, np.full(z.size, sign), link)
    first, second, third = np.array([exact(link, one) for one in z]).T
    # r + z by a continued fraction to 1e-13; right of -30 the bracket of the third loses z^4 eps, 1e-10 at worst
    np.testing.assert_allclose(at.first, sign * first, rtol=1e-12, atol=0)
    np.testing.assert_allclose(at.second, second, rtol=1e-12, atol=0)
    np.testing.assert_allclose(at.third, sign * third, rtol=1e-10, atol=1e-16)


@pytest.mark.parametrize("link", LINKS)
def test_the_answer_is_the_mode_of_the_posterior_and_its_second_order_integral(data, link):
    X, y = data
    h = hyper()
    K_inv = np.linalg.inv(covariance(X, h))

    def minus(f):
        return 0.5 * f @ K_inv @ f - log_likelihood(link, y * f).sum()

    end = minimize(minus, np.zeros(len(X)), method="BFGS", options={"gtol": 1e-8})
    fit = fit_laplace_binary(X, y, h, link)
    assert fit.converged
    np.testing.assert_allclose(fit.latent_mean, end.x, rtol=0, atol=1e-5)  # BFGS on differences
    step = 1e-4
    shifted = [log_likelihood(link, y * (fit.latent_mean + k * step)) for k in (-2, -1, 0, 1, 2)]
    curvature = (-shifted[0] + 16 * shifted[1] - 30 * shifted[2] + 16 * shifted[3] - shifted[4]) / (12 * step**2)
    precision = K_inv - np.diag(curvature)
    np.testing.assert_allclose(fit.latent_cov, np.linalg.inv(precision), rtol=1e-5, atol=1e-7)  # eps / step^2 = 1e-8
    # the integral of exp(second order of the log joint) over f
    value = -minus(fit.latent_mean) - 0.5 * (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(K_inv)[1])
    assert fit.log_evidence == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("link", LINKS)
def test_gradients_are_differences_with_the_mode_found_anew(data, link):
    X, y = data
    h = hyper()
    got = laplace_binary_gradients(fit_laplace_binary(X, y, h, link, tolerance=1e-13), X, y, link)

    def value(**changed):
        return fit_laplace_binary(X, y, h._replace(**changed), link, tolerance=1e-13).log_evidence

    # steps of 1e-4 leave 1e-8 times third derivatives of order one
    for name in ("variance", "noise"):
        at = getattr(h, name)
        right = (value(**{name: at + 1e-4}) - value(**{name: at - 1e-4})) / 2e-4
        assert got[name] == pytest.approx(right, abs=1e-7), name
    for j in range(2):
        ends = []
        for sign in (1.0, -1.0):
            scales = h.lengthscales.copy()
            scales[j] += sign * 1e-4
            ends.append(value(lengthscales=scales))
        assert got["lengthscales"][j] == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-7)


@pytest.mark.parametrize("link", LINKS)
def test_predictions_are_conditionals_of_the_joint_prior_and_means_of_the_link(data, link):
    X, y = data
    h = hyper()
    fit = fit_laplace_binary(X, y, h, link)
    tests = np.array([[0.3, -0.2], [2.0, 1.0]])
    cross = covariance(np.vstack([tests, X]), h)[:2, 2:]
    K_inv = np.linalg.inv(covariance(X, h))
    got = predict_laplace_binary(fit, X, y, tests, link)
    # E and Var of f_* by the two distributions of total expectation, K inverted at a condition below 1e3
    np.testing.assert_allclose(got.latent_mean, cross @ K_inv @ fit.latent_mean, rtol=0, atol=1e-9)
    inner = K_inv - K_inv @ fit.latent_cov @ K_inv
    var = h.variance + h.noise - np.einsum("tn,nm,tm->t", cross, inner, cross)
    np.testing.assert_allclose(got.latent_var, var, rtol=1e-9, atol=0)
    x = np.linspace(-9.0, 9.0, 4001)
    weights = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    f = got.latent_mean[:, None] + np.sqrt(got.latent_var)[:, None] * x
    np.testing.assert_allclose(got.probabilities[:, 1], np.exp(log_likelihood(link, f)) @ weights, rtol=0, atol=1e-10)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=1e-12)


def test_steps_that_overshoot_are_halved_and_the_log_joint_never_falls():
    X = np.array([[0.0], [0.01], [0.02], [3.0]])  # contradicting labels under a steep prior
    fit = fit_laplace_binary(X, np.array([1.0, -1.0, 1.0, -1.0]), Hyper(3e3, np.ones(1), 0.0, 1e-4, None), "probit")
    assert fit.converged
    assert np.all(np.diff(fit.trace) >= -1e-12 * np.abs(fit.trace[:-1]))


def test_equal_rows_need_no_jitter(data):
    X, y = data
    h = hyper(noise=0.0, jitter=0.0)
    fit = fit_laplace_binary(np.vstack([X, X]), np.concatenate([y, y]), h)
    assert fit.converged
    np.testing.assert_allclose(fit.latent_mean[:12], fit.latent_mean[12:], rtol=1e-12, atol=1e-12)


def test_a_search_ends_where_the_gradient_vanishes(data):
    X, y = data
    end = learn_laplace_binary(X, y, hyper(), "logit", learn=("variance", "noise"))
    derivatives = laplace_binary_gradients(end.fit, X, y, "logit")
    assert end.converged
    inside = {name: getattr(end.fit.hyper, name) * derivatives[name] for name in ("variance", "noise")}
    at_edge = {name: getattr(end.fit.hyper, name) for name in inside}
    start = hyper()
    for name, derivative in inside.items():
        # 1e-4 is the search's own promise; at the edge of its box a derivative may point outwards
        assert abs(derivative) < 2e-4 or abs(np.log(at_edge[name] / getattr(start, name))) > np.log(1e4) - 1e-9
    assert end.fit.log_evidence > fit_laplace_binary(X, y, start).log_evidence


def test_what_it_cannot_take_is_refused_by_name(data):
    X, y = data
    with pytest.raises(ValueError, match=r"^likelihood: found 'softmax', expected 'logit' or 'probit'"):
        fit_laplace_binary(X, y, hyper(), "softmax")
    with pytest.raises(ValueError, match=r"^Z: found inducing inputs, expected None"):
        fit_laplace_binary(X, y, hyper()._replace(Z=X[:3]))
    with pytest.raises(ValueError, match=r"^y_sign: found 0, expected only -1 and \+1"):
        fit_laplace_binary(X, (y > 0).astype(float), hyper())
    with pytest.raises(ValueError, match=r"^learn: found no names, expected at least one"):
        learn_laplace_binary(X, y, hyper(), learn=())


def test_one_step_says_that_it_did_not_arrive_and_tells_its_callback(data):
    X, y = data
    told = []
    fit = fit_laplace_binary(X, y, hyper(), "logit", max_iterations=1, callback=told.append)
    assert not fit.converged
    assert (fit.iterations, fit.trace.size) == (1, 2)
    assert [state.iteration for state in told] == [1]
    assert told[0].log_joint == fit.trace[1]
    assert told[0].residual == fit.residual > 1e-10
