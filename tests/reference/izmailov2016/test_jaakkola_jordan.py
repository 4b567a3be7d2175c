"""The global bound, (12) to (15): equality cases, optimality, differences, misprints."""

import mpmath
import numpy as np
import pytest

from reference.izmailov2016.bound import elbo
from reference.izmailov2016.errata import jaakkola_jordan_bound_as_printed, lambda_matrix_as_printed
from reference.izmailov2016.fit import fit_vi
from reference.izmailov2016.jaakkola_jordan import (
    jaakkola_jordan_bound,
    jj_bound,
    jj_collapsed_bound,
    jj_collapsed_gradient,
    jj_lambda_derivative,
    jj_optimal_covariance,
    jj_optimal_mean,
    jj_optimal_xi,
    lambda_matrix,
)
from reference.izmailov2016.model import log_evidence
from validation.ledger.numbers import assert_recorded


def log_sigmoid(f):
    return -np.logaddexp(0.0, -f)


@pytest.mark.verifies("izmailov2016", "u4.1-jj", route="a grid of arguments: never above, equal at ± ξ", printed=True)
def test_the_parabola_touches_the_log_logistic_from_below():
    t = np.linspace(-30.0, 30.0, 601)
    for xi in (1e-5, 0.4, 3.0, 25.0):
        at = np.full(601, xi)
        got = jaakkola_jordan_bound(t, at)
        # rounding of terms of size 100
        assert np.max(got.value - log_sigmoid(t)) < 1e-12
        ends = jaakkola_jordan_bound(np.array([xi, -xi]), np.array([xi, xi]))
        np.testing.assert_allclose(ends.value, log_sigmoid(np.array([xi, -xi])), rtol=1e-12, atol=0)
        # the coefficient is the derivative of log σ(t) - t/2 in t², at ξ²
        derivative = -float(
            mpmath.diff(lambda s: -mpmath.log1p(mpmath.exp(-mpmath.sqrt(s))) - mpmath.sqrt(s) / 2, xi**2)
        )
        np.testing.assert_allclose(got.lam, derivative, rtol=1e-6, atol=0)
        printed = jaakkola_jordan_bound_as_printed(t, at)
        if 0.1 < xi < 25.0:  # λ is twice too large near 0, where both are flat, and the same from 20 on
            assert np.max(printed.value - log_sigmoid(t)) > 1e-3
            assert abs(printed.lam[0] / derivative - 1) > 0.05
        if xi == 3.0:
            worst = np.argmax(printed.value - log_sigmoid(t))  # between 0 and ξ
            assert_recorded("izmailov2016", "u4.1-jj", t[worst], log_sigmoid(t[worst]), printed.value[worst])


def test_the_bound_stands_saturation_and_zero():
    t = np.array([-1e4, 0.0, 1e4, 800.0])
    np.testing.assert_array_equal(jaakkola_jordan_bound(t, t).value, log_sigmoid(t))
    np.testing.assert_array_equal(lambda_matrix(np.zeros(1)), 0.125)


@pytest.mark.verifies(
    "izmailov2016", "u4.1-Lambda", route="mpmath: half the mean of PG(1, ξ), tanh(ξ/2)/(2ξ)", printed=True
)
def test_lambda_is_half_the_polya_gamma_mean():
    xi = np.array([-2.0, 1e-9, 1e-4, 0.3, 7.0, 900.0])
    # E[PG(1, c)] = (1/2π²) Σ_k 1/((k - ½)² + c²/4π²)
    terms = [lambda k, c=c: 1 / ((k - 0.5) ** 2 + (c / (2 * mpmath.pi)) ** 2) for c in map(float, xi)]
    mean = [mpmath.nsum(term, [1, mpmath.inf]) / (2 * mpmath.pi**2) for term in terms]
    wanted = [float(value / 2) for value in mean]
    # nsum extrapolates to some ten digits
    np.testing.assert_allclose(lambda_matrix(xi), wanted, rtol=1e-7, atol=0)
    printed = lambda_matrix_as_printed(xi[:5])
    assert np.min(np.abs(printed / wanted[:5] - 1)) > 1e-3
    assert_recorded("izmailov2016", "u4.1-Lambda", wanted[3], printed[3])


def test_the_derivative_of_lambda_is_its_derivative_at_any_size():
    xi = np.array([-3.0, 1e-6, 0.05, 0.0999, 0.1001, 1.0, 40.0, 2000.0])
    with mpmath.workdps(40):
        wanted = [float(mpmath.diff(lambda x: mpmath.tanh(x / 2) / (4 * x), mpmath.mpf(x))) for x in map(float, xi)]
    # two terms cancel two digits just above the switch
    np.testing.assert_allclose(jj_lambda_derivative(xi), wanted, rtol=1e-12, atol=0)


def by_terms(s):
    """J as the mean of the parabolas minus the divergence, with moments of the model."""
    values = np.linalg.eigvals(np.linalg.solve(s.K_ZZ, s.Sigma)).real
    kl = 0.5 * (np.sum(values - np.log(values) - 1.0) + s.mu @ np.linalg.solve(s.K_ZZ, s.mu))
    square = s.mean**2 + s.var
    return np.sum(log_sigmoid(s.xi) + 0.5 * (s.y * s.mean - s.xi) - s.lam * (square - s.xi**2)) - kl


@pytest.mark.verifies("izmailov2016", "u4.1-J", route="dense moments of the parabolas, eigenvalues for KL")
def test_j_is_the_mean_of_the_parabolas_minus_the_divergence(model):
    # conditions below 1e4
    got = jj_bound(model.mu, model.Sigma, model.xi, model.y, *model.K)
    assert got == pytest.approx(by_terms(model), rel=1e-11, abs=0)
    # even in ξ, and log-domain: nothing overflows
    assert jj_bound(model.mu, model.Sigma, -model.xi, model.y, *model.K) == pytest.approx(got, rel=1e-12, abs=0)
    assert np.isfinite(jj_bound(900.0 * model.mu, model.Sigma, 1e4 * model.xi, model.y, *model.K))
    assert np.isfinite(jj_bound(model.mu, model.Sigma, 0 * model.xi, model.y, *model.K))


@pytest.mark.verifies("izmailov2016", "u4.1-J", route="the Pólya-Gamma form of the same bound")
def test_j_is_the_polya_gamma_bound_at_equal_parameters(model):
    s, c = model, model.xi
    theta = np.tanh(c / 2) / (2 * c)
    kl = 0.5 * (np.trace(np.linalg.solve(s.K_ZZ, s.Sigma)) + s.mu @ np.linalg.solve(s.K_ZZ, s.mu) - s.m
                + np.linalg.slogdet(s.K_ZZ)[1] - np.linalg.slogdet(s.Sigma)[1])  # fmt: skip
    terms = -np.log(2) + 0.5 * s.y * s.mean - 0.5 * theta * (s.var + s.mean**2) + 0.5 * c**2 * theta
    wanted = np.sum(terms - np.log(np.cosh(c / 2))) - kl
    assert jj_bound(s.mu, s.Sigma, c, s.y, *s.K) == pytest.approx(wanted, rel=1e-11, abs=0)


@pytest.mark.verifies(
    "izmailov2016", "12", "13", route="differences of J vanish at the maximum; dense normal equations"
)
def test_mean_and_covariance_maximise_j(model, gradients_of):
    s = model
    Sigma, mu = jj_optimal_covariance(s.xi, s.K_ZZ, s.K_XZ), jj_optimal_mean(s.xi, s.y, s.K_ZZ, s.K_XZ)
    by_mu = gradients_of(lambda m: jj_bound(m, Sigma, s.xi, s.y, *s.K), mu)
    root = np.linalg.cholesky(Sigma)
    by_root = gradients_of(lambda L: jj_bound(mu, L @ L.T, s.xi, s.y, *s.K), root)
    # rounding of 1e-14 over the step
    np.testing.assert_allclose(by_mu, 0.0, rtol=0, atol=1e-7)
    np.testing.assert_allclose(by_root, 0.0, rtol=0, atol=1e-6)
    # the curvature of a quadratic bound in μ is the precision
    np.testing.assert_allclose(np.linalg.inv(Sigma) @ mu, 0.5 * s.kappa.T @ s.y, rtol=0, atol=1e-10)


@pytest.mark.verifies("izmailov2016", "14", route="J at dense solutions of its normal equations")
def test_the_compact_bound_is_the_maximum_of_j_constants_included(model):
    s = model
    precision = np.linalg.inv(s.K_ZZ) + 2 * (s.kappa.T * s.lam) @ s.kappa
    s.Sigma = np.linalg.inv(precision)
    s.mu = 0.5 * s.Sigma @ s.kappa.T @ s.y
    s.mean = s.kappa @ s.mu
    s.var = s.k_xx - np.sum(s.kappa * s.K_XZ, axis=1) + np.sum(s.kappa @ s.Sigma * s.kappa, axis=1)
    # conditions below 1e4
    assert jj_collapsed_bound(s.xi, s.y, *s.K) == pytest.approx(by_terms(s), rel=1e-11, abs=0)


@pytest.mark.verifies("izmailov2016", "u4.1-Jhat-gradient", route="central differences")
def test_the_gradient_is_that_of_the_compact_bound(model, gradients_of):
    s = model
    got = jj_collapsed_gradient(s.xi, s.y, *s.K)

    def value(xi=s.xi, K_ZZ=s.K_ZZ, K_XZ=s.K_XZ, k_xx=s.k_xx):
        return jj_collapsed_bound(xi, s.y, K_ZZ, K_XZ, k_xx)

    by_mm = np.empty((s.m, s.m))
    for i, j in np.ndindex(s.m, s.m):
        move = np.zeros((s.m, s.m))
        move[i, j] = move[j, i] = 6e-6
        by_mm[i, j] = (value(K_ZZ=s.K_ZZ + move) - value(K_ZZ=s.K_ZZ - move)) / 12e-6 / (1.0 if i == j else 2.0)
    # step² times third derivatives of size 100
    np.testing.assert_allclose(got.derivatives.by_mm, by_mm, rtol=0, atol=1e-6)
    np.testing.assert_allclose(got.derivatives.by_nm, gradients_of(lambda K: value(K_XZ=K), s.K_XZ), rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        got.derivatives.by_diagonal, gradients_of(lambda k: value(k_xx=k), s.k_xx), rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(got.xi, gradients_of(lambda xi: value(xi=xi), s.xi), rtol=0, atol=1e-8)
    assert np.all(jj_collapsed_gradient(np.zeros(s.n), s.y, *s.K).xi == 0.0)


@pytest.mark.verifies("izmailov2016", "15", route="differences of J in ξ vanish, second moments by quadrature")
def test_xi_maximises_j(model, gradients_of, expectation):
    s = model
    xi = jj_optimal_xi(s.mean, s.var)
    by_xi = gradients_of(lambda x: jj_bound(s.mu, s.Sigma, x, s.y, *s.K), xi)
    # rounding of 1e-14 over the step
    np.testing.assert_allclose(by_xi, 0.0, rtol=0, atol=1e-8)
    wanted = [np.sqrt(expectation(lambda f: f**2, m, v)) for m, v in zip(s.mean, s.var, strict=True)]
    np.testing.assert_allclose(xi, wanted, rtol=1e-10, atol=0)
    np.testing.assert_array_equal(jj_optimal_xi(np.array([1e200, 0.0]), np.zeros(2)), [1e200, 0.0])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_bounds_are_ordered_and_below_the_truth(make_model, n):
    for _ in range(8):
        s = make_model(n, 2)
        best = fit_vi("svi", s.X, s.y, s.hyper).elbo
        optimum = fit_vi("vi-jj", s.X, s.y, s.hyper).elbo
        # both sides rounded at 1e-13
        assert jj_bound(s.mu, s.Sigma, s.xi, s.y, *s.K) <= elbo(s.mu, s.Sigma, s.y, *s.K) + 1e-12
        assert jj_collapsed_bound(s.xi, s.y, *s.K) <= optimum + 1e-10
        assert optimum <= best + 1e-10
        assert best <= log_evidence(s.y, s.K_XX) + 1e-10


def test_j_meets_the_truth_where_the_latent_value_is_known():
    """A prior variance of 1e-12 leaves f = 0: ξ = 0 is exact, and so is every bound."""
    K = np.full((1, 1), 1e-12)
    got = jj_collapsed_bound(np.zeros(1), np.ones(1), K, K, K[0])
    assert got == pytest.approx(np.log(0.5), rel=1e-11, abs=0)
    assert log_evidence(np.ones(1), K) == pytest.approx(got, rel=1e-11, abs=0)
