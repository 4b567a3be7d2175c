"""Jaakkola and Jordan's bound and Taylor's expansion, point by point; the sweep against dense algebra."""

import mpmath
import numpy as np
import pytest
from scipy.special import expit, log_ndtr

from fast.core.options import Storage
from fast.likelihood.quadratic_bounds import (
    jaakkola_jordan,
    jj_coefficient,
    jj_coefficient_derivative,
    jj_local,
    log_sigmoid,
    logistic,
    probit,
    taylor,
)
from fast.methods.vi_jj import Bound
from fast.methods.vi_taylor import Expanded
from fast.one_latent.links import link_of
from fast.one_latent.quadratic_search import initial_moments, prepare
from fast.one_latent.quadratic_sweep import collapsed, evaluate, factored, optimum, sweep, unit_covariance
from values_given import binary, model_values

POINTS = [0.0, 1e-9, 1e-3, 0.5, 0.999, 1.0, 1.001, 5.0, 40.0, 800.0, 1e8]


def at(q, f):
    return q.constant + q.shift * f - 0.5 * q.precision * f * f


@pytest.mark.verifies("izmailov2016", "u4.1-Lambda", route="mpmath")
def test_the_coefficient_and_its_derivative_to_the_last_digits():
    for x in POINTS:
        with mpmath.workdps(50):
            X = mpmath.mpf(x)
            value = mpmath.mpf(1) / 8 if x == 0 else mpmath.tanh(X / 2) / (4 * X)
            derivative = mpmath.mpf(0) if x == 0 else (X - mpmath.sinh(X)) / (4 * X**2 * (1 + mpmath.cosh(X)))
        # a few roundings
        np.testing.assert_allclose(jj_coefficient(np.array([x, -x])), float(value), rtol=1e-15, atol=0)
        np.testing.assert_allclose(
            jj_coefficient_derivative(np.array([x, -x])), [float(derivative), -float(derivative)], rtol=4e-15, atol=0
        )


def test_the_coefficient_as_printed_would_be_no_bound():
    # tanh(xi) in place of tanh(xi / 2): larger, and tangent to the log-logistic nowhere
    xi, t = 1.0, np.array([1.0])
    printed = np.tanh(xi) / (4 * xi)
    value = t / 2 - xi / 2 + log_sigmoid(np.array([xi])) - printed * (t**2 - xi**2)
    np.testing.assert_allclose(value, log_sigmoid(t), rtol=1e-14)  # touches ...
    inside = np.array([0.5])
    assert (
        inside / 2 - xi / 2 + log_sigmoid(np.array([xi])) - printed * (inside**2 - xi**2) > log_sigmoid(inside)
    ).all()


@pytest.mark.verifies("izmailov2016", "u4.1-jj", route="inequality and equality with the log-logistic")
def test_the_bound_lies_below_and_touches_at_both_signs():
    t = np.linspace(-30, 30, 601)
    for y in (1.0, -1.0):
        for xi in (0.0, 0.01, 1.0, -2.5, 12.0):
            q = jaakkola_jordan(np.full(t.size, y), np.full(t.size, xi))
            gap = log_sigmoid(y * t) - at(q, t)
            assert gap.min() > -1e-13  # rounding of terms up to 100
            touch = jaakkola_jordan(np.full(2, y), np.full(2, xi))
            f = np.array([xi, -xi])
            np.testing.assert_allclose(at(touch, f), log_sigmoid(y * f), rtol=0, atol=1e-14)
    # the parts, one by one, from the definition
    xi, y = np.array([0.3, 2.0, 7.0]), np.array([1.0, -1.0, 1.0])
    q, lam = jaakkola_jordan(y, xi), np.tanh(xi / 2) / (4 * xi)
    np.testing.assert_allclose(q.constant, np.log(expit(xi)) - xi / 2 + lam * xi**2, rtol=1e-14)
    np.testing.assert_allclose(q.shift, y / 2, rtol=0)
    np.testing.assert_allclose(q.precision, 2 * lam, rtol=1e-15)


def test_saturated_points_neither_overflow_nor_turn_into_nan():
    f = np.array([-1e6, -800.0, 800.0, 1e6])
    for y in (np.ones(4), -np.ones(4)):
        for q in (jaakkola_jordan(y, f), taylor(y, f, logistic), taylor(y, f, probit)):
            assert all(np.isfinite(part).all() for part in q)
            assert (q.precision >= 0).all()
    # log sigma(-800) = -800
    np.testing.assert_allclose(log_sigmoid(f), [-1e6, -800.0, 0.0, 0.0], rtol=1e-15, atol=1e-300)


@pytest.mark.verifies("izmailov2016", "15", route="maximum of the bound by a grid")
def test_the_best_local_parameter_maximises_the_expected_bound():
    mean, var = np.array([0.7, -3.0]), np.array([0.4, 2.0])
    best = jj_local(mean, var)
    for i in range(2):
        grid = np.linspace(0.5 * best[i], 1.5 * best[i], 20001)
        q = jaakkola_jordan(np.ones(grid.size), grid)
        value = q.constant + q.shift * mean[i] - 0.5 * q.precision * (mean[i] ** 2 + var[i])
        # the grid has steps of 5e-5 of the value
        np.testing.assert_allclose(grid[value.argmax()], best[i], rtol=1e-4)


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.verifies("izmailov2016", "16", "u4.2-Psi", "u4.2-phi", "u4.2-v", route="mpmath derivatives")
def test_the_expansion_has_value_derivative_and_curvature_of_the_log_likelihood(link):
    for y in (1.0, -1.0):
        for xi in (-9.0, -0.4, 0.0, 1.3, 20.0):
            with mpmath.workdps(130):
                if link == "logit":
                    g = lambda f, y=y: -mpmath.log1p(mpmath.exp(-y * f))  # noqa: E731
                else:
                    g = lambda f, y=y: mpmath.log(mpmath.ncdf(y * f))  # noqa: E731
                d = [float(mpmath.diff(g, xi, k)) for k in range(3)]
            q = taylor(np.array([y]), np.array([xi]), link_of(link).log_likelihood)
            # cancellation of xi g'' against g' at most: some hundred roundings
            np.testing.assert_allclose(q.precision, -d[2], rtol=1e-12, atol=1e-300)
            np.testing.assert_allclose(q.shift, d[1] - d[2] * xi, rtol=1e-12, atol=1e-300)
            np.testing.assert_allclose(q.constant, d[0] - d[1] * xi + 0.5 * d[2] * xi**2, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("local_quadratic", [Bound(), Expanded(logistic), Expanded(probit)])
@pytest.mark.verifies("izmailov2016", "12", "13", "14", "17", "18", "19", route="dense algebra with explicit inverses")
def test_the_collapsed_bound_and_its_q_are_those_of_the_printed_formulas(
    make_problem, dense_sparse, local_quadratic, rng
):
    p = make_problem()
    prior = prepare(*model_values(p))
    dense = dense_sparse(p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z)
    xi = rng.normal(size=14)
    q = local_quadratic.at(prior.y_sign, xi)
    end = collapsed(prior, local_quadratic, xi)
    T = np.diag(q.precision)
    inv, K_mn = dense.inverse, dense.K_XZ.T
    Sigma = np.linalg.inv(inv @ K_mn @ T @ K_mn.T @ inv + inv)
    mu = Sigma @ inv @ K_mn @ q.shift
    B = K_mn @ T @ K_mn.T + dense.K_ZZ
    value = (
        q.constant.sum()
        + 0.5 * q.shift @ K_mn.T @ np.linalg.solve(B, K_mn @ q.shift)
        + 0.5 * np.linalg.slogdet(dense.K_ZZ)[1]
        - 0.5 * np.linalg.slogdet(B)[1]
        - 0.5 * np.trace(T @ dense.K_tilde)
    )
    L = prior.chol_K
    # explicit inverses of matrices of condition about 1e3
    tight = {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(L @ end.weights, mu, **tight)
    np.testing.assert_allclose(L @ np.linalg.inv(end.factor @ end.factor.T) @ L.T, Sigma, **tight)
    np.testing.assert_allclose(end.value, value, rtol=1e-11)
    result = evaluate(prior, local_quadratic, xi)
    np.testing.assert_allclose(result.elbo, value, rtol=1e-11)
    np.testing.assert_allclose(result.latent_mean, dense.kappa @ mu, **tight)
    np.testing.assert_allclose(result.latent_var, np.diag(dense.K_tilde + dense.kappa @ Sigma @ dense.kappa.T), **tight)


def test_optimum_is_the_minimum_of_a_quadratic():
    B, h = np.array([[2.0, 0.5], [0.5, 3.0]]), np.array([1.0, -2.0])
    end = optimum(np.asfortranarray(B), h, 0.7)
    np.testing.assert_allclose(end.weights, np.linalg.solve(B, h), rtol=1e-14)
    expected = 0.7 + 0.5 * h @ np.linalg.solve(B, h) - 0.5 * np.log(np.linalg.det(B))
    np.testing.assert_allclose(end.value, expected, rtol=1e-14)


@pytest.mark.verifies("izmailov2016", "alg1-init", route="dense algebra")
def test_the_start_has_the_moments_of_a_unit_covariance(make_problem, dense_sparse):
    p = make_problem(m=4, jitter=1e-2)
    dense = dense_sparse(p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z)
    mean, var = initial_moments(prepare(*model_values(p)))
    # an error of the mean is one of order one: it is 0
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(var, np.diag(dense.K_tilde + dense.kappa @ dense.kappa.T), rtol=1e-9)


def test_a_sweep_in_blocks_without_a_cache_is_the_sweep_in_one():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1300, 3))
    y = (X.sum(axis=1) + rng.normal(size=1300) > 0).astype(int)
    p = (X, y, 2.0, np.array([1.0, 1.5, 2.0]), 0.1, 1e-6, X[:300])
    ends = []
    for settings in ({}, {"block_size": 64}, {"memory_budget": 0}):
        prior = prepare(*binary(Storage, *p, **settings))
        xi = np.empty(1300)
        first = sweep(prior, Bound(), xi, unit_covariance(prior))
        ends.append((sweep(prior, Bound(), xi, factored(first.end)).end.value, xi))
    for value, xi in ends[1:]:
        # sums of the same numbers in another order
        np.testing.assert_allclose(value, ends[0][0], rtol=1e-12)
        np.testing.assert_allclose(xi, ends[0][1], rtol=1e-10)


def test_log_phi_enters_the_expansion_far_in_the_tail():
    q = taylor(np.ones(1), np.array([-1e4]), probit)
    # log Phi(-x) = -x^2/2 - log x - log(2 pi)/2 + O(1/x^2)
    np.testing.assert_allclose(at(q, -1e4), log_ndtr(-1e4), rtol=1e-9)
