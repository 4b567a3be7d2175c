"""Gaussian sites: q, cavities, moments, scales and gradients against dense algebra, quadrature and differences."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from fast.methods.x_gpc import XGPCOptions, prepare
from fast.one_latent.prior import FullPrior
from fast.one_latent.site_gradients import full_site_gradients, sparse_site_gradients
from fast.one_latent.sites import cavity, condition, ep_evidence, kl_from_sites, log_site_scale, match_moments
from fast.solve.site_iteration import SiteSteps, Visit, iterate_sites, site_gap
from values_given import binary


def arguments(p):
    return p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z


def random_sites(rng, n):
    return rng.uniform(0.05, 3.0, size=n), rng.normal(size=n)


@pytest.fixture
def dense(dense_sparse, dense_kernel):
    """Posterior over u (f if full) with explicit inverses."""

    def of(p, tau, nu):
        if p.Z is None:
            K = dense_kernel(p.X, p.X, p.variance, p.lengthscales) + (p.noise + p.jitter) * np.eye(len(p.X))
            projection = np.eye(len(p.X))
        else:
            result = dense_sparse(*arguments(p))
            K, projection = result.K_ZZ, result.kappa
        Sigma = np.linalg.inv(np.linalg.inv(K) + projection.T @ np.diag(tau) @ projection)
        mu = Sigma @ projection.T @ nu
        return SimpleNamespace(K=K, projection=projection, mu=mu, Sigma=Sigma)

    return of


@pytest.mark.parametrize("full", [False, True])
def test_conditioning_on_sites_is_the_dense_posterior(rng, make_problem, dense, full):
    p = make_problem(full=full)
    tau, nu = random_sites(rng, 14)
    got, expected = condition(prepare(*binary(XGPCOptions, *arguments(p))), tau, nu), dense(p, tau, nu)
    # condition of K below 1e6 in the explicit inverses
    np.testing.assert_allclose(got.proj_mean, expected.projection @ expected.mu, rtol=0, atol=1e-9)
    var = np.einsum("nm,mp,np->n", expected.projection, expected.Sigma, expected.projection)
    np.testing.assert_allclose(got.proj_var, var, rtol=1e-8)
    np.testing.assert_allclose(got.cavity_ratio, 1 - tau * var, rtol=1e-7)
    kl = 0.5 * (
        np.trace(np.linalg.solve(expected.K, expected.Sigma))
        + expected.mu @ np.linalg.solve(expected.K, expected.mu)
        - expected.mu.size
        + np.linalg.slogdet(expected.K)[1]
        - np.linalg.slogdet(expected.Sigma)[1]
    )
    np.testing.assert_allclose(kl_from_sites(got, tau), kl, rtol=1e-8)


@pytest.mark.parametrize("full", [False, True])
def test_the_integral_of_prior_times_sites_is_a_gaussian_density(rng, make_problem, dense, full):
    # exp(-tau t^2/2 + nu t) = N(nu/tau | t, 1/tau) sqrt(2 pi/tau) exp(nu^2/2 tau)
    p = make_problem(n=7, full=full)
    tau, nu = random_sites(rng, 7)
    expected = dense(p, tau, nu)
    T = expected.projection @ expected.K @ expected.projection.T
    log_integral = multivariate_normal.logpdf(nu / tau, np.zeros(7), T + np.diag(1 / tau))
    log_integral += 0.5 * np.sum(np.log(2 * np.pi / tau) + nu**2 / tau)
    scales = rng.normal(size=7)
    got = ep_evidence(condition(prepare(*binary(XGPCOptions, *arguments(p))), tau, nu), scales)
    # condition of T + 1/tau below 1e3; explicit inverses of K below 1e6
    np.testing.assert_allclose(got, log_integral + scales.sum(), rtol=0, atol=1e-8)


def test_a_full_prior_that_is_singular_is_served(make_problem):
    p = make_problem(n=6, full=True, noise=0.0, jitter=0.0)
    p.X[3] = p.X[0]
    prior = prepare(*binary(XGPCOptions, *arguments(p)))
    assert isinstance(prior, FullPrior)
    got = condition(prior, np.ones(6), np.arange(6.0))
    np.testing.assert_allclose(got.proj_mean[3], got.proj_mean[0], rtol=1e-10)  # the same latent value
    assert (got.cavity_ratio > 0).all()


def test_a_cavity_times_its_site_is_the_marginal(rng):
    m, v = rng.normal(size=20), rng.uniform(0.1, 4.0, size=20)
    tau, nu = rng.uniform(-0.2, 0.2, size=20), rng.normal(size=20)
    got = cavity(m, v, 1 - tau * v, tau, nu)
    assert got.proper.all()
    # one Gaussian times another, in natural parameters; numbers of order one
    np.testing.assert_allclose(1 / got.var + tau, 1 / v, rtol=1e-12)
    np.testing.assert_allclose(got.mean / got.var + nu, m / v, rtol=1e-11)


def test_an_improper_cavity_is_said_and_harmless():
    got = cavity(np.zeros(2), np.ones(2), np.array([0.5, -0.5]), np.array([0.5, 1.5]), np.ones(2))
    assert got.proper.tolist() == [True, False]
    assert got.var[1] == 1.0
    assert got.mean[1] == 0.0


def test_the_matched_site_gives_the_tilted_moments(rng):
    m, v = rng.normal(size=15), rng.uniform(0.1, 4.0, size=15)
    derivative, curvature = rng.normal(size=15), -rng.uniform(0.01, 0.2, size=15)
    tau, nu = match_moments(m, v, derivative, curvature)
    var = 1 / (1 / v + tau)
    # numbers of order one
    np.testing.assert_allclose(var, v + v**2 * curvature, rtol=1e-12)
    np.testing.assert_allclose(var * (m / v + nu), m + v * derivative, rtol=1e-11)


def test_a_projection_without_variance_keeps_a_finite_site():
    tau, nu = match_moments(np.zeros(1), np.zeros(1), np.array([0.8]), np.array([-0.6]))
    assert (tau[0], nu[0]) == (0.6, 0.8)


def test_a_site_with_its_scale_integrates_to_the_tilted_normaliser():
    for m, v, tau, nu in ((0.3, 0.8, 0.7, -0.4), (-1.0, 2.0, 0.0, 1.3), (0.5, 1.0, -0.3, 0.2)):

        def integrand(t, m=m, v=v, tau=tau, nu=nu):
            return np.exp(-0.5 * tau * t**2 + nu * t) * norm.pdf(t, m, np.sqrt(v))

        area = quad(integrand, -40, 40, epsabs=0, epsrel=1e-12, limit=200)[0]
        got = log_site_scale(np.array([-0.9]), *(np.array([value]) for value in (m, v, tau, nu)))
        np.testing.assert_allclose(np.exp(got[0]) * area, np.exp(-0.9), rtol=1e-11)  # quad to 1e-12


def objective(p, mu, Sigma, dense_sparse, terms):
    """sum_i F_i(m_i, v_i) - KL at fixed mu and Sigma, with linear F_i."""
    result = dense_sparse(*arguments(p))
    K = result.K_ZZ
    mean = result.kappa @ mu
    var = np.diag(result.K_tilde) + np.einsum("nm,mp,np->n", result.kappa, Sigma, result.kappa)
    kl = 0.5 * (np.trace(np.linalg.solve(K, Sigma)) + mu @ np.linalg.solve(K, mu) + np.linalg.slogdet(K)[1])
    return terms[0] @ mean - 0.5 * terms[1] @ var - kl


def test_gradients_hold_mean_and_covariance_of_u(rng, make_problem, dense_sparse):
    p = make_problem(n=9, m=4, jitter=1e-3)
    root = rng.normal(size=(4, 4))
    mu, Sigma = rng.normal(size=4), root @ root.T / 4 + 0.3 * np.eye(4)
    terms = rng.normal(size=9), rng.uniform(0.1, 2.0, size=9)
    prior = prepare(*binary(XGPCOptions, *arguments(p)))
    L = prior.chol_K
    white = np.linalg.solve(L, np.linalg.solve(L, Sigma).T)
    factor = np.asfortranarray(np.linalg.cholesky(np.linalg.inv(white)))
    got = sparse_site_gradients(prior, factor, np.linalg.solve(L, mu), *terms, terms[1])
    again = sparse_site_gradients(prior, factor, np.linalg.solve(L, mu), *terms, terms[1].copy())
    np.testing.assert_allclose(again.Z, got.Z, rtol=0, atol=1e-12)  # the same sums, one route shorter

    def derivative(field, index, h=1e-5):
        values = []
        for sign in (1, -1):
            q = SimpleNamespace(**vars(p))
            moved = np.array(getattr(p, field), dtype=float)
            moved[index] += sign * h
            setattr(q, field, moved if moved.ndim else float(moved))
            values.append(objective(q, mu, Sigma, dense_sparse, terms))
        return (values[0] - values[1]) / (2 * h)

    # central differences: h^2 = 1e-10 times a third derivative below 1e3, rounding 1e-13 / h
    np.testing.assert_allclose(got.variance, derivative("variance", ()), rtol=1e-6)
    np.testing.assert_allclose(got.noise, derivative("noise", ()), rtol=1e-6)
    np.testing.assert_allclose(got.lengthscales, [derivative("lengthscales", j) for j in range(2)], rtol=1e-6)
    numeric = [[derivative("Z", (i, j)) for j in range(2)] for i in range(4)]
    np.testing.assert_allclose(got.Z, numeric, rtol=1e-6, atol=1e-6)


def test_gradients_of_a_full_prior_are_those_of_a_gaussian_integral(rng, make_problem, dense_kernel):
    p = make_problem(n=8, full=True)
    tau, nu = random_sites(rng, 8)
    prior = prepare(*binary(XGPCOptions, *arguments(p)))
    posterior = condition(prior, tau, nu)
    got = full_site_gradients(prior, posterior.factor, posterior.weights, tau)

    def log_integral(variance, lengthscales, noise):
        K = dense_kernel(p.X, p.X, variance, lengthscales) + (noise + p.jitter) * np.eye(8)
        return multivariate_normal.logpdf(nu / tau, np.zeros(8), K + np.diag(1 / tau))

    h = 1e-5
    base = (p.variance, p.lengthscales, p.noise)
    numeric = []
    for k, step in ((0, h), (1, h * np.eye(2)[0]), (1, h * np.eye(2)[1]), (2, h)):
        up, down = list(base), list(base)
        up[k], down[k] = base[k] + step, base[k] - step
        numeric.append((log_integral(*up) - log_integral(*down)) / (2 * h))
    # central differences as above
    np.testing.assert_allclose([got.variance, *got.lengthscales, got.noise], numeric, rtol=1e-6)


def linear_map(rate, n=6):
    """A visit whose full step contracts to (1, 0) by `rate`; its objective is the negative squared distance."""

    def visit(tau, nu):
        target = 1 + rate * (tau - 1), rate * nu
        return Visit(tau, nu, *target, np.ones(n), -float((tau - 1) @ (tau - 1) + nu @ nu), 0, None)

    return visit


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.99, -0.5, -1.5])
@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("monotone", [True, False])
def test_the_iteration_stops_within_its_tolerance_of_the_fixed_point(rate, accelerate, monotone, rng):
    start = rng.uniform(0.5, 2, size=6), rng.normal(size=6)
    end = iterate_sites(linear_map(rate), start, SiteSteps(1e-8, 5000, monotone, accelerate=accelerate))
    assert end.converged
    # the distance is estimated from a Ritz value: twice the tolerance
    np.testing.assert_allclose(end.visit.site_precision, 1.0, rtol=0, atol=2e-8)


def test_a_monotone_iteration_never_lowers_its_objective(rng):
    start = rng.uniform(0.5, 2, size=6), rng.normal(size=6)
    end = iterate_sites(linear_map(-2.5), start, SiteSteps(1e-8, 500, monotone=True))
    assert (np.diff(end.trace) >= 0).all()


def test_a_gap_counts_changes_in_posterior_standard_deviations():
    gap = site_gap(np.zeros(2), np.zeros(2), np.array([0.1, 0.0]), np.array([0.0, 0.3]), np.array([4.0, 0.25]))
    np.testing.assert_allclose(gap, 0.4, rtol=1e-15)  # 0.1 times 4, against 0.3 times 0.5
