"""One-sided truncated normals: the inversion against mpmath, the draws against closed-form moments."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr
from scipy.stats import kstest

from gibbs.draws.univariate_truncated import draw_above, draw_below, truncated_excess


class FixedDrops:
    """A generator whose exponentials are given: the inversion without the randomness."""

    def __init__(self, drop):
        self.drop = drop

    def standard_exponential(self, size):
        return np.full(size, self.drop)


def log_upper_tail(z):
    return mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2)


@pytest.mark.parametrize("bound", [-38.0, -8.0, -1.0, 0.0, 0.5, 3.99, 4.01, 8.0, 37.0, 1e3, 1e6])
@pytest.mark.parametrize("drop", [1e-12, 1e-3, 0.7, 5.0, 36.0, 700.0])
def test_the_excess_solves_the_tail_equation(bound, drop):
    x = float(truncated_excess(FixedDrops(drop), np.array([bound]))[0])
    with mpmath.workdps(60):
        z = mpmath.mpf(bound) + mpmath.mpf(x)
        gap = log_upper_tail(z) - log_upper_tail(mpmath.mpf(bound)) + mpmath.mpf(drop)
        hazard = mpmath.exp(-z * z / 2) / mpmath.sqrt(2 * mpmath.pi) / mpmath.exp(log_upper_tail(z))
        error = float(gap / hazard)  # Newton's step: how far x is from the root
    # below the switch the excess is a difference of two numbers of the size of the bound; beyond it keeps twelve
    # digits, down to the rounding of the scaled tail, 4 eps of a logarithm, that is 4 eps/bound of an excess
    assert abs(error) <= (1e-13 * max(abs(bound), 10.0) if bound <= 4.0 else 1e-12 * x + 1e-15 / bound)


@pytest.mark.parametrize("bound", [-30.0, -2.0, 0.0, 1.0, 3.0, 6.0, 40.0])
def test_the_draws_have_the_distribution_of_a_truncated_normal(rng, bound):
    draws = truncated_excess(rng, np.full(40_000, bound)) + bound

    def cdf(z):
        return -np.expm1(log_ndtr(-z) - log_ndtr(-bound))

    # seven bounds; one in 100 000 by chance for each. 40 000 draws see a gap of 1 % in the distribution function
    assert kstest(draws, cdf).pvalue > 1e-5


def test_far_out_the_excess_is_exponential_with_the_rate_of_the_bound(rng, assert_z):
    x = truncated_excess(rng, np.full(100_000, 1e9)) * 1e9
    # relative corrections are of order 1e-18; an exponential has mean 1, second moment 2
    assert_z([(x.mean() - 1) / np.sqrt(1 / x.size), (np.square(x).mean() - 2) / np.sqrt(20 / x.size)])


def test_mean_and_scale_enter_as_they_should_above_and_below(rng, assert_z):
    mean, sd, cut = np.array([1.0, -2.0, 5.0]), np.array([0.5, 3.0, 10.0]), np.array([1.5, -9.0, 40.0])
    high = draw_above(rng, np.tile(mean, (60_000, 1)), sd, cut)
    low = draw_below(rng, np.tile(-mean, (60_000, 1)), sd, -cut)
    a = (cut - mean) / sd
    hazard = np.exp(-0.5 * a**2 - log_ndtr(-a)) / np.sqrt(2 * np.pi)
    truth = mean + sd * hazard
    var = sd**2 * (1 + a * hazard - hazard**2)
    for draws in (high, -low):
        error = draws.std(axis=0) / np.sqrt(len(draws))
        assert_z((draws.mean(axis=0) - truth) / error)
        square = (draws - truth) ** 2
        assert_z((square.mean(axis=0) - var) / (square.std(axis=0) / np.sqrt(len(draws))))


@settings(deadline=None, max_examples=200)
@given(st.floats(-1e100, 1e100), st.floats(1e-6, 1e6), st.floats(-1e100, 1e100), st.integers(0, 2**32))
def test_no_draw_is_ever_on_the_wrong_side_or_not_finite(mean, sd, cut, seed):
    high = draw_above(np.random.default_rng(seed), mean, sd, cut)
    low = draw_below(np.random.default_rng(seed), mean, sd, cut)
    assert np.isfinite(high)
    assert np.isfinite(low)
    assert high >= cut
    assert low <= cut


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bound_that_is_not_finite_is_refused(rng, bad):
    with pytest.raises(ValueError, match=r"bound: found 1 entries NaN or infinite, expected 0"):
        truncated_excess(rng, np.array([0.0, bad]))


def test_one_exponential_is_used_for_each_entry():
    used, same = np.random.default_rng(3), np.random.default_rng(3)
    truncated_excess(used, np.array([[-3.0, 5.0], [0.0, 100.0]]))
    same.standard_exponential(4)
    assert used.bit_generator.state == same.bit_generator.state
