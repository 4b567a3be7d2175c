"""Algorithm 1 and its variants: fixed points, ascent, separate searches, misprints."""

import numpy as np
import pytest
from scipy.optimize import minimize

from reference.izmailov2016 import _prior
from reference.izmailov2016.algorithm1 import (
    vi_jj,
    vi_jj_full,
    vi_jj_hybrid,
    vi_jj_init,
    vi_jj_stage_one,
    vi_jj_stage_two,
)
from reference.izmailov2016.errata import vi_jj_stage_one_as_printed, vi_jj_stage_two_as_printed
from reference.izmailov2016.fit import fit_vi
from reference.izmailov2016.jaakkola_jordan import jj_bound, jj_collapsed_bound, jj_collapsed_gradient
from validation.ledger.numbers import assert_recorded, told_apart

LEARN = ("variance", "lengthscales")


@pytest.mark.verifies("izmailov2016", "alg1-init", route="the printed values")
def test_the_start_is_zero_and_the_identity():
    mu, Sigma = vi_jj_init(3)
    np.testing.assert_array_equal(mu, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(Sigma, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


@pytest.mark.verifies(
    "izmailov2016", "alg1-stage1", route="dense updates; stationarity of (14) where it ends", printed=True
)
def test_the_first_stage_climbs_to_where_the_compact_bound_is_flat_and_the_printed_one_does_not(model, gradients_of):
    s = model
    mu, Sigma = np.zeros(s.m), np.eye(s.m)
    for _ in range(3):
        var = s.k_xx - np.sum(s.kappa * s.K_XZ, axis=1) + np.sum(s.kappa @ Sigma * s.kappa, axis=1)
        xi = np.sqrt((s.kappa @ mu) ** 2 + var)
        weights = np.tanh(xi / 2) / (2 * xi)
        Sigma = np.linalg.inv(np.linalg.inv(s.K_ZZ) + (s.kappa.T * weights) @ s.kappa)
        mu = 0.5 * Sigma @ s.kappa.T @ s.y
    got = vi_jj_stage_one(*vi_jj_init(s.m), s.y, *s.K, 3)
    # conditions below 1e4
    for value, wanted in zip(got, (mu, Sigma, xi), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-11)
    bounds = []
    q = (*vi_jj_init(s.m), None)
    for _ in range(60):
        q = vi_jj_stage_one(*q[:2], s.y, *s.K, 1)
        bounds.append(jj_bound(*q, s.y, *s.K))
    assert np.min(np.diff(bounds)) > -1e-12  # rounding
    flat = np.max(np.abs(gradients_of(lambda x: jj_collapsed_bound(x, s.y, *s.K), q.xi)))
    assert flat < 1e-8
    printed = vi_jj_stage_one_as_printed(*vi_jj_init(s.m), s.y, *s.K, 60)
    assert np.max(np.abs(gradients_of(lambda x: jj_collapsed_bound(x, s.y, *s.K), printed.xi))) > 1e-3
    assert jj_collapsed_bound(printed.xi, s.y, *s.K) < bounds[-1] - 1e-4
    told_apart("izmailov2016", "alg1-stage1", printed.xi, q.xi)
    assert_recorded("izmailov2016", "alg1-stage1", bounds[-1], jj_collapsed_bound(printed.xi, s.y, *s.K))


@pytest.mark.verifies(
    "izmailov2016", "alg1-stage2", route="a search without derivatives, and the bound at its end", printed=True
)
def test_the_second_stage_maximises_the_bound_and_the_printed_one_minimises_it(problem):
    p = problem
    xi = fit_vi("vi-jj", p.X, p.y, p.hyper).xi

    def loss(where):
        return -jj_collapsed_bound(xi, p.y, *_prior.matrices(p.X, _prior.moved(p.hyper, LEARN, where)))

    start = _prior.coordinates(p.hyper, LEARN)
    optimum = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 400})
    got = vi_jj_stage_two(p.X, p.y, p.hyper, xi, LEARN, 60)
    # a maximum is flat: 1e-12 in the bound leaves 1e-6 in its place
    np.testing.assert_allclose(_prior.coordinates(got.hyper, LEARN), optimum.x, rtol=0, atol=2e-5)
    assert got.bound == pytest.approx(-optimum.fun, rel=1e-9, abs=0)
    np.testing.assert_array_equal(got.xi, xi)
    few = vi_jj_stage_two(p.X, p.y, p.hyper, xi, LEARN, 5)
    assert few.evaluations == 5
    assert few.bound > -loss(start)
    printed = vi_jj_stage_two_as_printed(p.X, p.y, p.hyper, xi, LEARN, 5)
    assert printed.bound < -loss(start) - 1e-3
    told_apart("izmailov2016", "alg1-stage2", printed.bound, few.bound)
    assert_recorded("izmailov2016", "alg1-stage2", -optimum.fun, printed.bound)
    both = vi_jj_stage_two(p.X, p.y, p.hyper, xi, LEARN, 60, joint=True)
    assert both.bound > got.bound + 1e-6


def flat(p, got):
    """Largest derivative of (14) in logarithms of θ at ξ of a separate fixed point, and that fixed point."""
    fit = fit_vi("vi-jj", p.X, p.y, got.hyper)
    derivatives = jj_collapsed_gradient(fit.xi, p.y, *_prior.matrices(p.X, got.hyper)).derivatives
    result = _prior.through_kernel(derivatives, p.X, got.hyper, LEARN)
    return np.max(np.abs(_prior.log_derivatives(got.hyper, LEARN, result))), fit


def check(p, got, level):
    """The end of an algorithm is a maximum of (14) in θ and ξ, to the level of its derivatives."""
    derivative, fit = flat(p, got)
    assert derivative < level
    assert got.trace[-1] == pytest.approx(fit.elbo, rel=1e-8, abs=0)
    # errors in θ and ξ are derivatives over curvatures of size 0.1
    np.testing.assert_allclose(got.q.inducing_mean, fit.inducing_mean, rtol=0, atol=10 * level)
    np.testing.assert_allclose(got.q.inducing_cov, fit.inducing_cov, rtol=0, atol=10 * level)
    np.testing.assert_allclose(np.abs(got.q.xi), fit.xi, rtol=0, atol=10 * level)
    assert got.converged
    assert got.iterations == len(got.trace)
    assert np.min(np.diff(got.trace)) > -1e-11
    return fit.elbo


@pytest.mark.verifies("izmailov2016", "alg1", route="derivatives of (14) vanish at a separate fixed point; ascent")
def test_algorithm_1_ends_at_a_maximum_and_never_falls(problem):
    got = vi_jj(problem.X, problem.y, problem.hyper, LEARN, tolerance=1e-14)
    check(problem, got, 1e-4)
    assert 0.0 <= got.residual < 1e-14


@pytest.mark.verifies(
    "izmailov2016", "vi-jj-hybrid", route="derivatives of (14) vanish at a separate fixed point; ascent"
)
def test_the_hybrid_ends_at_a_maximum_and_never_falls(problem):
    got = vi_jj_hybrid(problem.X, problem.y, problem.hyper, LEARN, tolerance=1e-14)
    check(problem, got, 1e-4)
    assert 0.0 <= got.residual < 1e-14


@pytest.mark.verifies(
    "izmailov2016", "vi-jj-full", route="derivatives of (14) vanish at a separate fixed point; ascent"
)
def test_the_joint_search_ends_at_the_same_maximum(problem):
    got = vi_jj_full(problem.X, problem.y, problem.hyper, LEARN, tolerance=1e-14)
    best = check(problem, got, 1e-4)
    alternating = vi_jj(problem.X, problem.y, problem.hyper, LEARN, tolerance=1e-12)
    # both searches stop within 1e-9 of the top
    assert best == pytest.approx(alternating.trace[-1], rel=1e-8, abs=0)


def test_callbacks_see_every_iteration(problem):
    visited = []
    got = vi_jj(problem.X, problem.y, problem.hyper, LEARN, max_iterations=3, tolerance=1e-14, callback=visited.append)
    assert [state.iteration for state in visited] == [1, 2, 3]
    np.testing.assert_array_equal([state.elbo for state in visited], got.trace)
    assert not got.converged
