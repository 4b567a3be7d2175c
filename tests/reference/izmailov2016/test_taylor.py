"""The local approximation, (16) to (19): Taylor series, optimality, the mode of the projected posterior."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr

from reference.izmailov2016 import _prior
from reference.izmailov2016.algorithm1 import vi_taylor
from reference.izmailov2016.fit import fit_vi, gradients
from reference.izmailov2016.taylor import (
    taylor_bound,
    taylor_collapsed_bound,
    taylor_log_likelihood,
    taylor_optimal_covariance,
    taylor_optimal_mean,
    taylor_phi,
    taylor_psi,
    taylor_v,
    taylor_xi,
    taylor_xi_derivative,
)
from validation.ledger.numbers import assert_recorded

LIKELIHOODS = [
    ("logit", lambda z: -np.logaddexp(0.0, -z), lambda z: -mpmath.log1p(mpmath.exp(-z))),
    ("probit", log_ndtr, lambda z: mpmath.log(mpmath.ncdf(z))),
]


def derivatives(log_p, xi, y):
    """First derivative and half of the negative second of log p(y f) at ξ, by mpmath."""
    pairs = list(zip(map(float, xi), map(float, y), strict=True))
    with mpmath.workdps(40):
        first = np.array([float(mpmath.diff(lambda f, b=b: log_p(b * f), a)) for a, b in pairs])
        second = np.array([float(mpmath.diff(lambda f, b=b: log_p(b * f), a, 2)) for a, b in pairs])
    return first, -0.5 * second


@pytest.mark.verifies("izmailov2016", "16", route="derivatives of log p by mpmath")
@pytest.mark.parametrize(("likelihood", "log_p", "exact"), LIKELIHOODS)
def test_the_expansion_is_taylors(model, likelihood, log_p, exact):
    s = model
    first, halved = derivatives(exact, s.xi, s.y)
    wanted = log_p(s.y * s.xi) + first * (s.f - s.xi) - halved * (s.f - s.xi) ** 2
    # sums of three terms
    np.testing.assert_allclose(taylor_log_likelihood(s.f, s.xi, s.y, likelihood), wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.verifies(
    "izmailov2016", "u4.2-phi", "u4.2-Psi", "u4.2-v", route="derivatives by mpmath; Newton's working response"
)
def test_phi_psi_and_v_are_derivatives_and_what_they_make(model):
    s = model
    xi = np.concatenate([s.xi[:3], [0.0, 25.0, -25.0]])
    first, halved = derivatives(LIKELIHOODS[0][2], xi, s.y)
    phi, psi = taylor_phi(xi, s.y), taylor_psi(xi, s.y)
    np.testing.assert_allclose(phi, first, rtol=1e-12, atol=0)
    np.testing.assert_allclose(psi, halved, rtol=1e-12, atol=0)
    # f² and f terms of g + g'(f - ξ) + ½ g''(f - ξ)²: -ψ f² + (g' + 2ψξ) f
    zero, one = (taylor_log_likelihood(np.full(6, f), xi, s.y) for f in (0.0, 1.0))
    minus = taylor_log_likelihood(np.full(6, -1.0), xi, s.y)
    np.testing.assert_allclose(taylor_v(phi, psi, xi), 0.5 * (one - minus), rtol=0, atol=1e-12)
    np.testing.assert_allclose(psi, zero - 0.5 * (one + minus), rtol=0, atol=1e-12)
    far = np.array([1e4, -1e4])
    assert np.all(np.isfinite(taylor_phi(far, np.ones(2))) & np.isfinite(taylor_psi(far, np.ones(2))))


@pytest.mark.verifies("izmailov2016", "u4.2-approx-bound", route="quadrature of the parabolas, eigenvalues for KL")
@pytest.mark.parametrize(("likelihood", "log_p", "exact"), LIKELIHOODS)
def test_the_approximate_bound_is_the_mean_of_the_expansion_minus_the_divergence(
    model, expectation, likelihood, log_p, exact
):
    s = model

    def parabola(f, i):
        one = [np.array([a]) for a in (f, s.xi[i], s.y[i])]
        return taylor_log_likelihood(*one, likelihood)[0]

    data = sum(expectation(lambda f, i=i: parabola(f, i), s.mean[i], s.var[i]) for i in range(s.n))
    values = np.linalg.eigvals(np.linalg.solve(s.K_ZZ, s.Sigma)).real
    kl = 0.5 * (np.sum(values - np.log(values) - 1.0) + s.mu @ np.linalg.solve(s.K_ZZ, s.mu))
    # conditions below 1e4
    assert taylor_bound(s.mu, s.Sigma, s.xi, s.y, *s.K, likelihood) == pytest.approx(data - kl, rel=1e-10, abs=0)


@pytest.mark.verifies("izmailov2016", "17", "18", "19", route="differences of the approximate bound; its dense maximum")
@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_mean_covariance_and_compact_value_are_the_maximum(model, gradients_of, likelihood):
    s = model
    Sigma = taylor_optimal_covariance(s.xi, s.y, s.K_ZZ, s.K_XZ, likelihood)
    mu = taylor_optimal_mean(s.xi, s.y, s.K_ZZ, s.K_XZ, likelihood)

    def value(m=mu, S=Sigma):
        return taylor_bound(m, S, s.xi, s.y, *s.K, likelihood)

    # rounding of 1e-14 over the step
    np.testing.assert_allclose(gradients_of(lambda m: value(m=m), mu), 0.0, rtol=0, atol=1e-7)
    root = np.linalg.cholesky(Sigma)
    np.testing.assert_allclose(gradients_of(lambda L: value(S=L @ L.T), root), 0.0, rtol=0, atol=1e-6)
    got = taylor_collapsed_bound(s.xi, s.y, *s.K, likelihood)
    assert got == pytest.approx(value(), rel=1e-11, abs=0)


@pytest.mark.verifies("izmailov2016", "u4.2-xi", route="central differences of the approximate bound in ξ")
def test_the_approximate_bound_is_not_flat_where_the_expansion_points_are_the_means(model, gradients_of):
    s = model
    for xi in (s.xi, s.mean):
        derivative = gradients_of(lambda x: taylor_bound(s.mu, s.Sigma, x, s.y, *s.K), xi)
        # step² times third derivatives of size 1
        np.testing.assert_allclose(taylor_xi_derivative(xi, s.mean, s.var, s.y), derivative, rtol=0, atol=1e-8)
    assert_recorded("izmailov2016", "slip-11", derivative[np.argmax(np.abs(derivative))], 0)


@pytest.mark.verifies("izmailov2016", "u4.2-xi", route="value of the expansion at the mean, dense projection")
def test_the_rule_makes_the_expansion_touch_the_likelihood_at_the_mean(model):
    s = model
    xi = taylor_xi(s.mean)
    got = taylor_log_likelihood(s.mean, xi, s.y)
    # the remainder is of third order in m - ξ: zero, and -½ g'' (m - ξ)² would show
    np.testing.assert_allclose(got, -np.logaddexp(0.0, -s.y * s.mean), rtol=1e-13, atol=0)
    np.testing.assert_allclose(xi, s.kappa @ s.mu, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("likelihood", "log_p", "exact"), LIKELIHOODS)
@pytest.mark.parametrize("sparse", [True, False])
def test_the_fixed_point_is_the_mode_of_the_projected_posterior(model, gradients_of, likelihood, log_p, exact, sparse):
    s = model
    hyper = s.hyper if sparse else s.hyper._replace(Z=None)
    K = s.K_ZZ if sparse else s.K_XX + 0.05 * np.eye(s.n)
    kappa = s.kappa if sparse else np.eye(s.n)
    fit = fit_vi("vi-taylor", s.X, s.y, hyper, likelihood)

    def height(u):
        return -np.sum(log_p(s.y * (kappa @ u))) + 0.5 * u @ np.linalg.solve(K, u)

    optimum = minimize(height, np.zeros(len(K)), method="BFGS", options={"gtol": 1e-7})
    # the optimiser's own differences leave 1e-6
    np.testing.assert_allclose(fit.inducing_mean, optimum.x, rtol=0, atol=1e-5)
    np.testing.assert_allclose(gradients_of(height, fit.inducing_mean), 0.0, rtol=0, atol=1e-8)
    rows = [
        gradients_of(lambda u, e=e: gradients_of(height, u, 1e-4) @ e, fit.inducing_mean, 1e-4) for e in np.eye(len(K))
    ]
    # second differences: 1e-14 over step², and step² times fourth derivatives
    np.testing.assert_allclose(np.linalg.inv(fit.inducing_cov), rows, rtol=0, atol=1e-5)
    np.testing.assert_allclose(fit.xi, fit.latent_mean, rtol=0, atol=1e-9)
    assert fit.converged


def test_a_large_prior_variance_does_not_throw_newton_off(rng):
    X = rng.normal(size=(30, 1))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    for likelihood in ("logit", "probit"):
        hyper = _prior.Prior(1e4, np.array([0.7]), 0.0, 1e-3, np.linspace(-2.0, 2.0, 5)[:, None])
        fit = fit_vi("vi-taylor", X, y, hyper, likelihood)
        assert fit.converged
        assert np.isfinite(fit.elbo)


@pytest.mark.verifies(
    "izmailov2016", "vi-taylor", route="derivatives of (19) at the expansion of a separate fixed point"
)
@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_learning_ends_where_the_compact_value_is_flat_in_theta(problem, likelihood):
    p = problem
    learn = ("variance", "lengthscales")
    got = vi_taylor(p.X, p.y, p.hyper, learn, tolerance=1e-13, likelihood=likelihood, max_iterations=400)
    fit = fit_vi("vi-taylor", p.X, p.y, got.hyper, likelihood)
    derivative = gradients("vi-taylor", fit, p.X, p.y, likelihood, learn)
    # a relative change of 1e-13 in a value of 20 leaves derivatives of 1e-5
    assert abs(derivative["variance"] * got.hyper.variance) < 1e-4
    np.testing.assert_allclose(derivative["lengthscales"] * got.hyper.lengthscales, 0.0, rtol=0, atol=1e-4)
    # a slow search leaves 1e-6
    assert got.trace[-1] == pytest.approx(fit.elbo, rel=1e-7, abs=0)
    np.testing.assert_allclose(got.q.inducing_mean, fit.inducing_mean, rtol=0, atol=1e-4)
    np.testing.assert_allclose(got.q.inducing_cov, fit.inducing_cov, rtol=0, atol=1e-4)
    np.testing.assert_allclose(got.q.xi, fit.xi, rtol=0, atol=1e-4)
    assert got.converged
    assert got.residual < 1e-13
    assert got.iterations == len(got.trace)
