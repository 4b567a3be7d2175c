"""The Pólya-Gamma sampler against closed forms, the density's own series and another implementation."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import cumulative_simpson
from scipy.stats import ks_1samp, ks_2samp, kstwo

from gibbs.draws.polya_gamma import _NODES, _right_mass, _series_accepts, sample_polya_gamma

TILTS = [0.0, 0.1, 1.0, 3.0, 3.2, 10.0, 100.0, 1000.0]  # the proposal switches at c = 2/0.64 = 3.125


def closed_mean(c):
    return 0.25 if c == 0 else float(mpmath.tanh(mpmath.mpf(c) / 2) / (2 * mpmath.mpf(c)))


def closed_variance(c):
    if c == 0:
        return 1 / 24
    c = mpmath.mpf(c)
    return float((mpmath.sinh(c) - c) / (4 * c**3 * mpmath.cosh(c / 2) ** 2))


def log_laplace(t, c):
    """log E exp(-ω t) = log cosh(c/2) - log cosh(sqrt((c²/2 + t)/2)), Polson, Scott & Windle (2013)."""
    with mpmath.workdps(50):
        c, t = mpmath.mpf(float(c)), mpmath.mpf(float(t))
        return float(mpmath.log(mpmath.cosh(c / 2)) - mpmath.log(mpmath.cosh(mpmath.sqrt((c * c / 2 + t) / 2))))


def cdf_by_series(c):
    """Distribution function of PG(1, c): the density's series, integrated on a grid over all but 1e-14 of the mass."""
    centre, spread = closed_mean(c), np.sqrt(closed_variance(c))
    grid = np.linspace(1e-4 * centre, centre + 25 * spread, 40001)
    n = np.arange(60)[:, None]
    log_terms = (
        np.log(2 * n + 1) - 0.5 * np.log(2 * np.pi * grid**3) - (2 * n + 1) ** 2 / (8 * grid) - 0.5 * c * c * grid
    )
    log_cosh = 0.5 * c + np.log1p(np.exp(-c)) - np.log(2)
    density = np.sum((-1.0) ** n * np.exp(log_terms + log_cosh), axis=0)
    cumulated = cumulative_simpson(density, x=grid, initial=0.0)
    assert abs(cumulated[-1] - 1.0) < 1e-7  # the grid resolves the density
    return lambda x: np.interp(x, grid, cumulated)


@pytest.mark.verifies("wenzel2019", "u3.1-pg-sampler", route="closed-form mean and variance, Monte Carlo")
def test_mean_and_variance_are_the_closed_forms_on_both_sides_of_the_switch(rng, assert_z):
    size = 200_000
    draws = sample_polya_gamma(rng, np.tile(TILTS, (size, 1)))
    mean = np.array([closed_mean(c) for c in TILTS])
    var = np.array([closed_variance(c) for c in TILTS])
    gap = draws - mean
    fourth = np.mean(gap**4, axis=0)
    assert_z(gap.mean(axis=0) / np.sqrt(var / size))
    assert_z((np.mean(gap**2, axis=0) - var) / np.sqrt((fourth - var**2) / size))


@pytest.mark.verifies(
    "wenzel2019", "u3.1-pg-sampler", route="closed-form Laplace transform, Monte Carlo", resolves=0.05
)
def test_laplace_transform_is_the_ratio_of_hyperbolic_cosines(rng, assert_z):
    tilts = np.array([0.0, 1.0, 3.2, 10.0])
    draws = sample_polya_gamma(rng, np.tile(tilts, (200_000, 1)))
    for t in (0.5, 4.0, 30.0):
        values = np.exp(-t * draws)
        expected = np.exp([log_laplace(t, c) for c in tilts])
        assert_z((values.mean(axis=0) - expected) / (values.std(axis=0) / np.sqrt(len(draws))))


@pytest.mark.verifies("wenzel2019", "u3.1-pg-sampler", route="KS against the integrated series", resolves=0.05)
@pytest.mark.parametrize("c", [0.0, 1.0, -3.0, 3.3, 12.0, 100.0])
def test_draws_follow_the_distribution_function_of_the_series(rng, c):
    draws = sample_polya_gamma(rng, np.full(100_000, c))
    result = ks_1samp(draws, cdf_by_series(abs(c)))
    assert result.pvalue > 1e-6  # six cases: by chance once in 160 000 runs


@pytest.mark.verifies("wenzel2019", "u3.1-pg-sampler", route="the package polyagamma, two-sample KS", resolves=0.05)
@pytest.mark.parametrize("c", [0.0, 2.0, 5.0])
def test_draws_look_like_those_of_another_implementation(rng, c):
    other = pytest.importorskip("polyagamma").random_polyagamma(1.0, c, size=100_000, random_state=7)
    assert ks_2samp(sample_polya_gamma(rng, np.full(100_000, c)), other).pvalue > 1e-6


@pytest.mark.verifies("wenzel2019", "u3.1-pg-sampler", route="closed-form moments of a sum, Monte Carlo", resolves=0.05)
def test_integer_shapes_are_sums(rng, assert_z):
    size = 100_000
    shapes, tilts = np.array([2, 5, 2, 5]), np.array([0.0, 0.0, 4.0, 4.0])
    draws = sample_polya_gamma(rng, np.tile(tilts, (size, 1)), b=shapes)
    mean = shapes * [closed_mean(c) for c in tilts]
    var = shapes * [closed_variance(c) for c in tilts]
    gap = draws - mean
    assert_z(gap.mean(axis=0) / np.sqrt(var / size))
    assert_z((np.mean(gap**2, axis=0) - var) / np.sqrt((np.mean(gap**4, axis=0) - var**2) / size))


def test_the_right_mass_falls_and_agrees_with_mpmath():
    assert np.all(np.diff(_NODES) < 0)
    t = mpmath.mpf("0.64")
    with mpmath.workdps(60):  # the normal tails reach 1e-240 at z = 40
        for z in (0.0, 0.3, 1.5625, 7.0, 40.0):
            rate = mpmath.pi**2 / 8 + mpmath.mpf(z) ** 2 / 2
            right = mpmath.pi / 2 * mpmath.exp(-rate * t) / rate

            def left_piece(x, z=z):  # the first term of the series below t, tilted
                power = -1 / (2 * x) - mpmath.mpf(z) ** 2 * x / 2
                return 2 / mpmath.sqrt(2 * mpmath.pi * x**3) * mpmath.exp(power)

            left = mpmath.quad(left_piece, [0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, t])
            expected = float(right / (right + left))
            # ndtr and exp are good to a few ulp; the exponents reach 500, which costs three digits
            np.testing.assert_allclose(_right_mass(np.array([z])), [expected], rtol=1e-11)


def test_the_alternating_series_accepts_with_the_exact_ratio_of_densities():
    x = np.array([0.05, 0.3, 0.6399, 0.6401, 1.5])
    with mpmath.workdps(40):
        ratio = []
        for v in map(mpmath.mpf, x):
            decay = 2 / v if v <= 0.64 else mpmath.pi**2 * v / 2
            ratio.append(float(sum((-1) ** n * (2 * n + 1) * mpmath.exp(-decay * (n * n + n)) for n in range(40))))
    ratio = np.array(ratio)
    below, above = ratio * (1 - 1e-12), np.minimum(ratio * (1 + 1e-12), 1.0)
    assert np.all(_series_accepts(x, below))
    clear = above < 1.0  # where the ratio rounds to one nothing is ever refused
    assert clear.sum() >= 3
    assert not np.any(_series_accepts(x[clear], above[clear]))


def test_the_two_forms_of_the_series_meet_at_the_truncation_point():
    # the density of J*(1, 0) written both ways, just where the sampler changes over: a wrong constant shows as a jump
    t, n = 0.64, np.arange(30)
    left = np.pi * (n + 0.5) * (2 / (np.pi * t)) ** 1.5 * np.exp(-2 * (n + 0.5) ** 2 / t)
    right = np.pi * (n + 0.5) * np.exp(-((n + 0.5) ** 2) * np.pi**2 * t / 2)
    # both are the same theta function; sums of order one leave a few ulp
    np.testing.assert_allclose(np.sum((-1.0) ** n * left), np.sum((-1.0) ** n * right), rtol=1e-14)


@pytest.mark.parametrize("c", [1e4, 1e6, 1e12, 1e15])
def test_huge_tilts_keep_relative_accuracy(rng, assert_z, c):
    size = 20_000
    draws = 2 * c * sample_polya_gamma(rng, np.full(size, c))
    assert np.all(draws > 0)
    # scaled to mean one, the variance is 2/c: (sinh c - c)/cosh² (c/2) -> 2
    assert_z((draws.mean() - 1.0) / np.sqrt(2.0 / c / size + 1e-30))


def test_the_sign_of_the_tilt_does_not_matter_and_a_seed_fixes_the_draws():
    c = np.linspace(-20, 20, 1001)
    first = sample_polya_gamma(np.random.default_rng(5), c)
    np.testing.assert_array_equal(first, sample_polya_gamma(np.random.default_rng(5), -c))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1e8, 1e8), max_size=20), st.integers(0, 2**32))
def test_every_finite_tilt_gives_a_positive_draw_of_its_shape(tilts, seed):
    draws = sample_polya_gamma(np.random.default_rng(seed), tilts)
    assert draws.shape == (len(tilts),)
    assert np.all((draws > 0) & np.isfinite(draws))


def test_bad_tilts_and_shapes_are_refused(rng):
    with pytest.raises(ValueError, match=r"c: found 2 entries NaN or infinite, expected 0"):
        sample_polya_gamma(rng, [1.0, np.nan, np.inf])
    for b in (0, 1.5, -2):
        with pytest.raises(ValueError, match=r"b: found .*, expected integers >= 1"):
            sample_polya_gamma(rng, [1.0], b=b)


def test_a_distribution_that_is_two_percent_off_is_seen(rng):
    draws = 1.02 * sample_polya_gamma(rng, np.full(100_000, 1.0))
    # the power of the KS tests above: 2 % in scale at 100 000 draws
    assert ks_1samp(draws, cdf_by_series(1.0)).pvalue < 1e-6
    assert kstwo.isf(1e-6, 100_000) < 0.009
