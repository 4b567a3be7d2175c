"""Where the iteration stops, and that mixing changes only how soon."""

import numpy as np
import pytest

from fast.core.values import Data, Prior
from fast.methods import x_gpc
from fast.one_latent.fixed_point import ascend
from fast.one_latent.prior import Evaluation
from values_given import model_values


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("log_variance", [0.0, 4.0, 8.0])
def test_the_distance_from_the_fixed_point_is_within_the_tolerance(make_problem, full, log_variance):
    p = make_problem(n=25, m=8, variance=np.exp(log_variance), full=full)
    # plain sweeps to the limit of rounding: a step of 1e-13 over 1 - rho of 1e-3 at worst
    exact = x_gpc.fit(*model_values(p), x_gpc.XGPCOptions(tolerance=1e-14, accelerate=False, max_iterations=20_000))
    for accelerate in (True, False):
        got = x_gpc.fit(*model_values(p), x_gpc.XGPCOptions(accelerate=accelerate))
        assert got.converged
        assert got.residual <= 1e-10
        # the distance is estimated, from a rate that is still settling: three times the tolerance
        np.testing.assert_allclose(got.c, exact.c, rtol=3e-10, atol=0)
        # stationary: the bound is off by the square of that
        np.testing.assert_allclose(got.elbo, exact.elbo, rtol=1e-12, atol=0)


def test_mixing_takes_fewer_sweeps_where_the_prior_variance_is_large(make_problem):
    p = make_problem(n=25, m=8, variance=np.exp(8.0))
    plain = x_gpc.fit(*model_values(p), x_gpc.XGPCOptions(accelerate=False))
    assert 3 * x_gpc.fit(*model_values(p)).iterations < plain.iterations


@pytest.mark.parametrize("full", [False, True])
def test_plain_sweeps_never_lower_the_bound(make_problem, full):
    p = make_problem(n=25, m=8, variance=np.exp(6.0), full=full)
    trace = x_gpc.fit(*model_values(p), x_gpc.XGPCOptions(accelerate=False)).trace
    # a sum of 25 terms of size one to ten
    assert (np.diff(trace) >= -1e-12).all()


def test_the_last_step_of_plain_sweeps_is_not_taken_for_the_distance(make_problem):
    p = make_problem(n=25, m=8, variance=np.exp(8.0))
    visited = []
    got = x_gpc.fit(*model_values(p), x_gpc.XGPCOptions(accelerate=False, callback=visited.append))
    # slow contraction: the step must be far below the tolerance when the distance meets it
    assert visited[-1].step < 0.2 * visited[-1].residual <= 0.2e-10
    assert [state.iteration for state in visited] == list(range(1, got.iterations + 1))
    np.testing.assert_array_equal([state.elbo for state in visited], got.trace)


def test_giving_up_is_said(make_problem):
    got = x_gpc.fit(*model_values(make_problem()), x_gpc.XGPCOptions(max_iterations=2))
    assert got.converged is False
    assert got.iterations == 2


def test_a_start_elsewhere_ends_at_the_same_point(make_problem):
    p = make_problem(variance=np.exp(4.0))
    one = x_gpc.fit(*model_values(p))
    for start in (1e-6, 1.0, 1e6):
        got = x_gpc.fit(*model_values(p), x_gpc.XGPCOptions(initial_c=np.full(len(p.y), start)))
        # both within 1e-10 of it, with the factor of three above
        np.testing.assert_allclose(got.c, one.c, rtol=6e-10, atol=0)


def test_a_step_that_rounding_keeps_from_shrinking_ends_the_iteration():
    rng = np.random.default_rng(0)

    def noisy(c):
        mean = np.exp(1e-11 * rng.normal(size=3))  # fixed point 1, every sweep off by 1e-11
        return Evaluation(np.eye(3), np.zeros(3), mean, np.zeros(3), -1.0)

    got = ascend(noisy, np.ones(3), 1e-15, 10_000, False, None)
    assert got.converged is False
    assert got.trace.size < 2000


@pytest.mark.parametrize("seed", [5, 8, 31])
def test_a_lucky_step_among_rounding_is_not_taken_for_convergence(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 1))
    y = (X[:, 0] + 0.5 * rng.normal(size=30) > 0).astype(int)
    # a prior deviation of 1000: contraction 0.999, and sweeps that rounding moves by 1e-11
    got = x_gpc.fit(Data(X, y), Prior(1e6, np.ones(1), 0.0, 1.0))
    x, identity = np.log(got.c), np.eye(30)

    def change(x):
        return np.log(x_gpc.sweep(got.prior, np.exp(x)).c) - x

    derivative = np.stack([(change(x + 1e-5 * e) - change(x - 1e-5 * e)) / 2e-5 for e in identity], axis=1)
    exact = x
    for _ in range(4):  # Newton's method ends at rounding times 1 / (1 - 0.999)
        exact = exact - np.linalg.solve(derivative, change(exact))
    distance = np.abs(exact - x).max()
    assert got.converged == (got.residual <= 1e-10)
    # the distance is estimated: an order of magnitude where rounding is all that is left
    assert distance <= 10 * max(got.residual, 1e-10)


def test_a_mixed_point_that_lowers_the_bound_is_not_kept():
    calls = []

    def rough(c):
        # contraction 0.9 on log c, and a bound that calls every third point worse than all before
        calls.append(np.log(c))
        bound = -1e6 if len(calls) % 3 == 0 else -float(np.square(np.log(c)).sum())
        return Evaluation(np.eye(2), np.zeros(2), c**0.9, np.zeros(2), bound)

    got = ascend(rough, np.array([5.0, 0.1]), 1e-10, 500, True, None)
    assert got.converged
    assert got.evaluation.elbo > -1e-6
    # the fixed point is c = 1
    np.testing.assert_allclose(got.c, 1.0, rtol=1e-9, atol=0)


def test_a_bound_above_zero_is_refused():
    def absurd(c):
        return Evaluation(np.eye(1), np.zeros(1), c, np.zeros(1), 1e-3)

    # labels are discrete: log p(y) <= 0
    with pytest.raises(ValueError, match=r"elbo: found 0\.001, expected <= 0"):
        ascend(absurd, np.ones(1), 1e-10, 10, True, None)


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_a_local_parameter_out_of_range_is_named(value):
    def broken(c):
        return Evaluation(np.eye(2), np.zeros(2), np.array([1.0, value]), np.zeros(2), -1.0)

    with pytest.raises(ValueError, match=r"c: found .* at row 1, expected a finite number > 0"):
        ascend(broken, np.ones(2), 1e-10, 10, True, None)


def test_a_callback_may_interrupt(make_problem):
    def stop(state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        x_gpc.fit(*model_values(make_problem()), x_gpc.XGPCOptions(callback=stop))
