"""Truncated normals: one variable against mpmath, several against closed forms, SciPy's c.d.f. and quadrature."""

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest, multivariate_normal, truncnorm

from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.draws.truncated_normal import (
    _tail_excess,
    draw_interval,
    draw_truncated,
    interval,
    log_probability,
    propose,
    tilt,
)

INF = np.inf
ONE_SIDED = [-INF, -60.0, -9.0, -1.0, 0.0, 2.0, 4.99, 5.01, 8.0, 37.0, 1e3, 1e6]
TWO_SIDED = [(-1.0, 1.0), (-8.0, 1e-3), (0.0, 0.3), (3.0, 3.5), (7.0, 7.2), (40.0, 41.0), (-41.0, -40.0), (-INF, -6.0),
             (-0.05, 0.04), (5.5, 30.0), (1e4, 1e4 + 2e-4)]  # fmt: skip


def mp_interval(a, b):
    """log probability, mean and variance with as many digits as the cancellations need."""
    if b < 0:
        log_p, mean, var = mp_interval(-b, -a)
        return log_p, -mean, var
    with mpmath.workdps(60):
        a, b = mpmath.mpf(a), mpmath.mpf(b)
        if a > 100 and b == mpmath.inf:  # 60 terms of the continued fraction of the Mills ratio: 60 digits at 100
            t = a
            for k in range(60, 0, -1):
                t = a + k / t
            s = t
            log_p = -a * a / 2 - mpmath.log(mpmath.sqrt(2 * mpmath.pi) * s)
            return float(log_p), float(s), float(1 - s * (s - a))
        p = (mpmath.erfc(a / mpmath.sqrt(2)) - mpmath.erfc(b / mpmath.sqrt(2))) / 2
        da, db = mpmath.npdf(a), mpmath.npdf(b)
        mean = (da - db) / p
        edge = (a * da if mpmath.isfinite(a) else 0) - (b * db if mpmath.isfinite(b) else 0)
        return float(mpmath.log(p)), float(mean), float(1 + edge / p - mean**2)


@pytest.mark.parametrize("a", ONE_SIDED)
def test_a_one_sided_interval_has_the_moments_of_mpmath_however_far_out(a):
    truth = mp_interval(a, INF)
    for got, sign in ((interval(a, INF), 1.0), (interval(-INF, -a), -1.0)):
        # log_ndtr is good to 2e-12 (test_shared_calls); the variance by 1 - s(s - a) loses a factor 1/var < 40 below 5
        np.testing.assert_allclose(got.log_probability, truth[0], rtol=2e-12, atol=1e-15)
        np.testing.assert_allclose(sign * got.mean, truth[1], rtol=1e-13, atol=1e-100)
        np.testing.assert_allclose(got.var, truth[2], rtol=1e-12, atol=0)


@pytest.mark.parametrize(("a", "b"), TWO_SIDED)
def test_a_two_sided_interval_has_the_moments_of_mpmath(a, b):
    truth, got = mp_interval(a, b), interval(a, b)
    # widths of 0.2 and more: differences of numbers up to 41² leave 1e-12 of the moments
    np.testing.assert_allclose(got.log_probability, truth[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(got.mean, truth[1], rtol=1e-11, atol=1e-13)
    # narrow and far out the ends themselves are rounded, in units of their distance
    rounded = 16.0 * np.finfo(float).eps * abs(b) / (b - a)
    np.testing.assert_allclose(got.var, truth[2], rtol=max(1e-8, rounded), atol=0)


@pytest.mark.parametrize(("a", "b"), [*((a, INF) for a in ONE_SIDED), *TWO_SIDED])
def test_univariate_draws_follow_the_truncated_distribution(rng, assert_z, a, b):
    x = draw_interval(rng, np.full(20000, a), np.full(20000, b))
    assert np.all(np.isfinite(x))
    assert np.all((x >= a) & (x <= b))
    _, mean, var = mp_interval(a, b)
    u = x - mean
    assert_z([u.mean() / np.sqrt(var / x.size), (u * u - var).mean() / (u * u).std() * np.sqrt(x.size)])


@pytest.mark.parametrize("a", [1e3, 1e8, 1e100])
def test_the_excess_over_a_far_limit_is_exponential(rng, a):
    u = rng.random(5000)
    excess = _tail_excess(np.full(5000, a), np.log(u))
    # log Q(a + δ)/Q(a) = -aδ (1 + O(1/a²)): at 1e3 that is 1e-5 for the largest draws
    np.testing.assert_allclose(a * excess, -np.log(u), rtol=2e-5, atol=0)


@pytest.mark.parametrize("a", [5.001, 6.0, 20.0])
@pytest.mark.parametrize("u", [1e-15, 1e-3, 0.5, 0.999])
def test_the_inversion_in_the_tail_is_that_of_mpmath(a, u):
    delta = float(_tail_excess(np.array([a]), np.array([np.log(u)]))[0])
    with mpmath.workdps(40):
        root = mpmath.sqrt(2)
        left = mpmath.log(mpmath.erfc((a + mpmath.mpf(delta)) / root) / mpmath.erfc(mpmath.mpf(a) / root))
        # eps of the logarithm, up to its size of 35, and of the ratio of two erfcx
        assert abs(left - mpmath.log(u)) <= 1e-14


def random_box(rng, size):
    root = rng.standard_normal((size, size + 1))
    lower = rng.standard_normal(size) - 0.5
    upper = lower + rng.exponential(2.0, size)
    upper[::2] = INF
    lower[1::3] = -INF
    return root @ root.T, lower, upper


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_log_probability_is_that_of_scipy(rng, assert_z, size):
    z = []
    for k in range(3):
        S, lower, upper = random_box(rng, size)
        if k == 0:
            lower, upper = np.zeros(size), np.full(size, INF)
        got = log_probability(rng, tilt(S, lower, upper), target_error=0.002)
        distribution = multivariate_normal(np.zeros(size), S, maxpts=100_000 * size, abseps=1e-12, releps=1e-4, seed=1)
        truth = np.log(distribution.cdf(upper, lower_limit=lower))
        z.append((got.value - truth) / np.hypot(got.standard_error, 1e-4))
        assert got.value <= got.log_bound
    assert_z(z)


@pytest.mark.parametrize("size", [1, 4, 40, 150])
def test_equicorrelated_orthants_have_probability_one_over_dimension_plus_one(rng, assert_z, size):
    S = 0.5 * (np.eye(size) + 1.0)
    got = log_probability(rng, tilt(S, 0.0, INF), target_error=0.01)
    if size == 1:
        # one variable: every weight is the probability
        np.testing.assert_allclose(got.value, -np.log(2.0), rtol=1e-14)
        assert got.standard_error == 0.0
    else:
        assert_z((got.value + np.log(size + 1.0)) / got.standard_error)
        assert got.standard_error <= 0.01


@pytest.mark.parametrize("gap", [0.5, 1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_two_variables_of_extreme_correlation_meet_the_arcsine_law(rng, assert_z, gap, sign):
    rho = sign * (1.0 - gap)
    with mpmath.workdps(40):
        truth = float(mpmath.log(mpmath.acos(-mpmath.mpf(rho)) / (2 * mpmath.pi)))
    # Σ in other units: variances e^8 and e^-8
    scale = np.exp([4.0, -4.0])
    got = log_probability(rng, tilt(np.outer(scale, scale) * [[1.0, rho], [rho, 1.0]], 0.0, INF))
    # 1 - rho² is formed by rounding: relative error 1e-16/gap of the width of the wedge
    assert_z((got.value - truth) / np.hypot(got.standard_error, 1e-16 / gap))


@pytest.mark.parametrize("scale", [np.exp(-8.0), 1.0, np.exp(8.0)])
def test_an_orthant_does_not_know_the_units_of_its_variables(scale):
    S = random_box(np.random.default_rng(4), 6)[0]
    first, second = (tilt(A, 0.0, INF) for A in (S, scale * S))
    np.testing.assert_array_equal(first.order, second.order)
    # two sequences of roundings in six variables
    np.testing.assert_allclose(first.log_bound, second.log_bound, rtol=1e-11)


def psi(tilting, white, mean):
    """ψ from its definition, coordinate by coordinate."""
    total = 0.0
    for k in range(white.size):
        diagonal = tilting.factor[k, k]
        before = tilting.factor[k, :k] @ white[:k]
        limits = [(side[k] - before) / diagonal - mean[k] for side in (tilting.lower, tilting.upper)]
        total += 0.5 * mean[k] ** 2 - white[k] * mean[k] + mp_interval(*limits)[0]
    return total


def test_the_saddle_point_is_a_maximum_in_the_draw_and_a_minimum_in_the_tilt(rng):
    S, lower, upper = random_box(rng, 6)
    got = tilt(S, lower, upper)
    np.testing.assert_allclose(psi(got, got.saddle, got.mean), got.log_bound, rtol=1e-11)
    for _ in range(10):
        step = np.append(0.05 * rng.standard_normal(5), 0.0)  # the last of each is not free
        assert psi(got, got.saddle + step, got.mean) < got.log_bound < psi(got, got.saddle, got.mean + step)
    # central differences at step eps^(1/3): error 1e-10 of second derivatives of order 1 to 10
    h = 6e-6
    for k in range(5):
        e = h * np.eye(6)[k]
        assert abs(psi(got, got.saddle + e, got.mean) - psi(got, got.saddle - e, got.mean)) / (2 * h) < 1e-7
        assert abs(psi(got, got.saddle, got.mean + e) - psi(got, got.saddle, got.mean - e)) / (2 * h) < 1e-7


def test_weights_are_those_of_the_definition_and_below_their_bound(rng):
    S, lower, upper = random_box(rng, 5)
    got = tilt(S, lower, upper)
    white, log_weight = propose(rng, got, 500)
    assert log_weight.max() <= got.log_bound + 1e-9
    x = (got.factor @ white).T
    assert np.all((x >= lower[got.order] - 1e-12) & (x <= upper[got.order] + 1e-12))
    np.testing.assert_allclose(log_weight[:5], [psi(got, w, got.mean) for w in white[:, :5].T], rtol=1e-9)


def test_draws_in_two_dimensions_have_the_moments_of_rosenbaum(rng, assert_z):
    rho = 0.6
    got = tilt([[1.0, rho], [rho, 1.0]], 0.0, INF)
    drawn = draw_truncated(rng, got, 20000)
    x = drawn.white @ got.factor.T
    p = 0.25 + np.arcsin(rho) / (2 * np.pi)
    mean = (1 + rho) / (2 * np.sqrt(2 * np.pi) * p)
    square = 1.0 + rho * np.sqrt(1 - rho**2) / (2 * np.pi * p)
    product = rho + np.sqrt(1 - rho**2) / (2 * np.pi * p)
    terms = np.stack([x[:, 0] - mean, x[:, 1] - mean, x[:, 0] ** 2 - square, x[:, 0] * x[:, 1] - product])
    assert_z(terms.mean(axis=1) / terms.std(axis=1) * np.sqrt(x.shape[0]))
    assert_z(np.sum(terms[:, 1:] * terms[:, :-1], axis=1) / np.square(terms).sum(axis=1) * np.sqrt(x.shape[0]))


def test_draws_of_independent_variables_follow_each_their_own_distribution(rng):
    lower, upper = np.array([-0.5, 2.0, -INF, 6.0]), np.array([1.0, INF, -1.0, 6.5])
    sd = np.array([1.0, 3.0, 0.1, 1.0])
    got = tilt(np.diag(sd**2), lower, upper)
    x = np.empty((4000, 4))
    x[:, got.order] = draw_truncated(rng, got, 4000).white @ got.factor.T
    for k in range(4):
        distribution = truncnorm(lower[k] / sd[k], upper[k] / sd[k], scale=sd[k])
        assert kstest(x[:, k], distribution.cdf).pvalue > 1e-5  # four tests at Holm's share of 1e-4 over the run
    assert abs(got.log_bound - interval(lower / sd, upper / sd).log_probability.sum()) < 1e-12  # nothing to tilt


def test_a_first_variable_has_the_density_of_the_joint_distribution(rng):
    # equicorrelation 1/2: x_k = (a + b_k)/√2, so p(x_1 | all > 0) follows by quadrature over a
    size = 6
    got = tilt(0.5 * (np.eye(size) + 1.0), 0.0, INF)
    x = np.empty((4000, size))
    x[:, got.order] = draw_truncated(rng, got, 4000).white @ got.factor.T
    a = np.linspace(-9, 9, 1801)[:, None]
    grid = np.linspace(0, 8, 801)
    weight = np.exp(-0.5 * a**2) * ndtr(a) ** (size - 1)  # P(the others > 0 | a)
    density = (weight * np.exp(-0.5 * (np.sqrt(2) * grid - a) ** 2)).sum(axis=0)
    cdf = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    for k in range(size):
        assert kstest(x[:, k], lambda v: np.interp(v, grid, cdf / cdf[-1])).pvalue > 1e-5


def test_the_same_seed_gives_the_same_draws_and_all_are_inside():
    S = random_box(np.random.default_rng(2), 10)[0]
    got = tilt(S, 0.0, INF)
    first, second = (draw_truncated(np.random.default_rng(3), got, 3000) for _ in range(2))
    np.testing.assert_array_equal(first.white, second.white)
    assert first.probability == second.probability
    assert (first.white @ got.factor.T).min() >= -1e-12


def test_a_longer_run_begins_with_the_draws_of_a_shorter_one():
    got = tilt([[1.0, -0.9], [-0.9, 1.0]], 0.0, INF)
    short, long = (draw_truncated(np.random.default_rng(3), got, s).white for s in (50, 5000))
    np.testing.assert_array_equal(short, long[:50])


def test_progress_is_reported_block_by_block(rng):
    visited = []
    draw_truncated(rng, tilt(np.eye(3), 0.0, INF), 5000, callback=visited.append)
    assert [s.n_proposals for s in visited] == [2048, 4096, 6144]
    assert visited[-1].n_draws == 5000


def alternating(size):
    """Neighbours that must both be positive and are pulled apart: an acceptance that falls with the dimension."""
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    sign = (-1.0) ** np.arange(size)
    return np.outer(sign, sign) * (np.exp(-0.5 * (distance / 3.0) ** 2) * 3000.0) + np.eye(size)


def test_what_is_out_of_reach_is_refused_with_acceptance_and_dimension(rng):
    got = tilt(alternating(120), 0.0, INF)
    with pytest.raises(ValueError, match=r"max_proposals: found \d+ proposals at an acceptance of .* in dimension 120"):
        draw_truncated(rng, got, 10000, max_proposals=100_000)
    with pytest.raises(ValueError, match=r"acceptance of .* in dimension 120"):
        log_probability(rng, got, max_proposals=50_000)


def test_bad_input_is_named(rng):
    for wrong in ([[1.0, 2.0]], [[1.0, np.nan], [np.nan, 1.0]], [[1.0, 0.5], [0.1, 1.0]], np.zeros((0, 0))):
        with pytest.raises(ValueError, match="covariance: found"):
            tilt(wrong, 0.0, INF)
    with pytest.raises(ValueError, match="dimension 801"):
        tilt(np.eye(801), 0.0, INF)
    for lower, upper in ((1.0, 1.0), (np.nan, 1.0), ([0.0, 2.0], [1.0, 1.0])):
        with pytest.raises(ValueError, match="lower: found"):
            tilt(np.eye(2), lower, upper)
        with pytest.raises(ValueError, match="lower: found"):
            interval(lower, upper)
        with pytest.raises(ValueError, match="lower: found"):
            draw_interval(rng, lower, upper)
    with pytest.raises(NotPositiveDefiniteError, match=r"covariance \(2, 2\): found smallest eigenvalue .* noise"):
        tilt(np.ones((2, 2)), 0.0, INF, remedy="raise noise")
    good = tilt(np.eye(2), 0.0, INF)
    for call in (
        lambda: draw_truncated(rng, good, 0),
        lambda: draw_truncated(rng, good, 5, max_proposals=0),
        lambda: log_probability(rng, good, target_error=0.0),
        lambda: propose(rng, good, -1),
    ):
        with pytest.raises(ValueError, match="found"):
            call()


@pytest.mark.parametrize("size", [3, 5, 8, 12, 20])
def test_a_covariance_that_is_singular_to_rounding_is_refused_at_any_size(rng, size):
    for _ in range(4):
        root = rng.standard_normal((size - 1, size - 1))
        # one variable is minus twice another: a few roundings are left of its variance
        double = np.vstack([np.eye(size - 1), -2.0 * np.eye(size - 1)[rng.integers(size - 1)]])
        with pytest.raises(
            NotPositiveDefiniteError, match=rf"covariance \({size}, {size}\): found smallest eigenvalue"
        ):
            tilt(double @ (root @ root.T + 0.3 * np.eye(size - 1)) @ double.T, -rng.random(size), INF)
