"""Expectations under the probit link: against adaptive quadrature, mpmath, closed limits and finite differences."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr

from fast.likelihood.probit import class_probabilities, expected_log_probit, hazard, log_expected_probit

ONE = np.ones(1)


def panels(mean, var):
    """Ends of panels fine enough for Gauss-Legendre, on the scales of the Gaussian, moved mass and bend."""
    sd = np.sqrt(var)
    centre = mean / (1 + var) if mean > 0 else mean
    width = sd / np.sqrt(1 + var) if mean > 0 else sd
    lowest = mean - np.hypot(max(mean, 0.0), 13 * sd)
    cuts = [mean + sd * np.arange(-14, 14.1, 0.5), centre + width * np.arange(-40, 14.1, 0.5)]
    cuts += [np.arange(-12, 12, 0.5), 2.0 ** np.arange(-3, 24), -(2.0 ** np.arange(-3, 24)), [lowest]]
    if mean > 0:
        cuts.append(-np.arange(1, 40) * sd * min(1.0, sd / mean))
    cuts = np.unique(np.concatenate(cuts))
    return cuts[(cuts >= lowest) & (cuts <= max(mean, centre) + 14 * sd)]


def by_panels(mean, var):
    """The three integrals from their definition with 40 Gauss-Legendre points a panel."""
    ends = panels(mean, var)
    x, w = np.polynomial.legendre.leggauss(40)
    half_width, middle = np.diff(ends)[:, None] / 2, (ends[1:] + ends[:-1])[:, None] / 2
    f, w = (middle + half_width * x).ravel(), (half_width * w).ravel()
    w = w * np.exp(-0.5 * ((f - mean) / np.sqrt(var)) ** 2) / np.sqrt(2 * np.pi * var)
    ratio, excess = hazard(f)
    return np.array([w @ log_ndtr(f), w @ ratio, -(w * ratio) @ excess])


def wide_cases():
    rng = np.random.default_rng(11)
    cases = []
    for _ in range(400):
        var = 10 ** (rng.uniform(-4, 8) if rng.random() < 0.4 else rng.uniform(-2, 3))
        size = rng.choice([10 ** rng.uniform(-3, 4), np.sqrt(var) * rng.uniform(0, 14), rng.uniform(0, 6)])
        cases.append((rng.choice([-1, 1]) * size, var))
    # beyond 1e3 standard deviations the comparison's own f - mean is rounded; the limit v -> 0 is tested below
    return [(mean, var) for mean, var in cases if abs(mean) < 1e3 * np.sqrt(var)]


def test_expectations_agree_with_panels_of_gauss_legendre_over_the_whole_range():
    cases = wide_cases()
    mean, var = np.array(cases).T
    got = np.array(expected_log_probit(np.ones(mean.size), mean, var)).T
    exact = np.array([by_panels(*case) for case in cases])
    counted = np.abs(exact) > 1e-280  # the stated range: below it, products of subnormal numbers
    assert counted.sum() > 900
    # the module states 1e-12
    np.testing.assert_allclose(got[counted], exact[counted], rtol=1e-12)


@pytest.mark.parametrize(
    ("mean", "var"), [(0.3, 0.04), (-1.0, 1.0), (2.0, 9.5), (5.0, 100.0), (-40.0, 30.0), (0.0, 1e8), (30.0, 1.0)]
)
@pytest.mark.parametrize("k", [0, 1, 2])
def test_expectations_agree_with_adaptive_quadrature(mean, var, k):
    sd = np.sqrt(var)

    def integrand(f):
        ratio, excess = hazard(np.array([f]))
        value = (log_ndtr(f), ratio[0], -ratio[0] * excess[0])[k]
        return value * np.exp(-0.5 * ((f - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))

    ends = panels(mean, var)[::4]
    parts = [quad(integrand, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in pairwise(ends)]
    exact = sum(parts)
    # quad's own stated error is 1e-11 of each part, all of one sign
    np.testing.assert_allclose(expected_log_probit(ONE, ONE * mean, ONE * var)[k], exact, rtol=3e-11)


def test_expectations_agree_with_mpmath_at_thirty_digits():
    for mean, var in ((0.7, 0.5), (-3.0, 4.0), (2.5, 1e-4)):
        with mpmath.workdps(30):
            m, v = mpmath.mpf(mean), mpmath.mpf(var)
            sd = mpmath.sqrt(v)
            ends = [m + k * sd for k in range(-14, 15, 2)]
            exact = mpmath.quad(lambda f: mpmath.log(mpmath.ncdf(f)) * mpmath.npdf(f, m, sd), ends)  # noqa: B023
        # the module states 1e-12
        np.testing.assert_allclose(expected_log_probit(ONE, ONE * mean, ONE * var).value, float(exact), rtol=1e-12)


@pytest.mark.parametrize("var", [0.0, 1e-300, 1e-20, 1e-10])
def test_a_tiny_variance_gives_the_link_itself(var):
    mean = np.array([-1e4, -30.0, -1.0, 0.0, 2.0, 10.0])
    got = expected_log_probit(np.ones(6), mean, np.full(6, var))
    ratio, excess = hazard(mean)
    # second order in the standard deviation: v g''/2 is at most 1e-10/2 of g there, times m^2 where g ~ exp(-m^2/2)
    np.testing.assert_allclose(got.value, log_ndtr(mean), rtol=1e-10 * 60 + 1e-13)
    np.testing.assert_allclose(got.derivative, ratio, rtol=1e-10 * 60 + 1e-13)
    np.testing.assert_allclose(got.curvature, -ratio * excess, rtol=1e-10 * 60 + 1e-13)


def test_a_huge_variance_gives_the_moments_of_a_halved_square():
    # g(f) -> -f^2/2 for f < 0, so E[g] -> -v/4, E[g'] -> sqrt(v / 2 pi), E[g''] -> -1/2 with mean 0
    var = 1e8
    got = expected_log_probit(ONE, np.zeros(1), ONE * var)
    # what is dropped is log|f| of f^2/2: log(1e4) / 2.5e7 of the value; slower in the derivatives
    np.testing.assert_allclose(
        [got.value[0], got.derivative[0], got.curvature[0]], [-var / 4, 3989.42, -0.5], rtol=1e-3
    )


def test_derivatives_are_those_of_the_value_in_mean_and_variance(rng):
    mean, var = rng.normal(size=40) * 3, 10 ** rng.uniform(-1, 2, size=40)
    y = rng.choice([-1.0, 1.0], size=40)
    got, h = expected_log_probit(y, mean, var), 1e-4
    up, down = expected_log_probit(y, mean + h, var), expected_log_probit(y, mean - h, var)
    # central differences: h^2 / 6 of a third derivative of order one, rounding 1e-12 / h
    np.testing.assert_allclose((up.value - down.value) / (2 * h), got.derivative, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose((up.derivative - down.derivative) / (2 * h), got.curvature, rtol=1e-6, atol=1e-7)
    wide, narrow = expected_log_probit(y, mean, var * (1 + h)), expected_log_probit(y, mean, var * (1 - h))
    by_var = (wide.value - narrow.value) / (2 * h * var)
    np.testing.assert_allclose(by_var, 0.5 * got.curvature, rtol=1e-6, atol=1e-7)


def test_what_surrounds_a_point_does_not_change_its_last_bit(rng):
    mean, var = rng.normal(size=300) * 20, 10 ** rng.uniform(-6, 6, size=300)
    y = rng.choice([-1.0, 1.0], size=300)
    together = np.array(expected_log_probit(y, mean, var))
    apart = np.hstack([expected_log_probit(y[k : k + 7], mean[k : k + 7], var[k : k + 7]) for k in range(0, 300, 7)])
    # the nodes are the same; sums over them may be ordered by the shape of the table
    np.testing.assert_allclose(together, apart, rtol=1e-14)


def test_expectations_stay_finite_and_signed_at_the_ends():
    mean = np.repeat([-1e8, -1e4, -1.0, 0.0, 1.0, 60.0, 1e4, 1e8], 6)
    var = np.tile([0.0, 1e-12, 1.0, 9.0001, 1e6, 1e12], 8)
    got = expected_log_probit(np.ones(48), mean, var)
    assert np.isfinite(np.array(got)).all()
    assert (got.value <= 0).all()
    assert (got.derivative >= 0).all()
    assert (got.curvature <= 0).all()
    assert (got.curvature >= -1 - 1e-12).all()  # g'' is in (-1, 0)


def test_no_point_gives_no_numbers():
    assert expected_log_probit(np.empty(0), np.empty(0), np.empty(0)).value.shape == (0,)


@pytest.mark.parametrize("z", [-1e6, -1e3, -50.0, -8.001, -7.999, -1.0, 0.0, 1.0, 8.0, 30.0, 36.0])
def test_the_hazard_and_its_excess_agree_with_mpmath(z):
    with mpmath.workdps(60):
        x = mpmath.mpf(z)
        ratio = mpmath.npdf(x) / (mpmath.erfc(-x / mpmath.sqrt(2)) / 2)
        exact = float(ratio), float(ratio + x)
    got = hazard(np.array([z]))
    # erfcx: some units in the last place, times |z|^2 where exp(-z^2/2) is formed; z + r loses 64 eps before -8
    np.testing.assert_allclose([got.ratio[0], got.excess[0]], exact, rtol=4e-13 if z > 8 else 4e-14)


@pytest.mark.parametrize("z", [-1e6, -1e3, -3.0, 0.0, 3.0, 30.0])
@pytest.mark.parametrize("var", [0.0, 0.7, 1e6])
def test_tilted_moments_agree_with_mpmath_in_the_far_tail(z, var):
    mean = z * np.sqrt(1 + var)
    got = log_expected_probit(ONE, ONE * mean, ONE * var)
    with mpmath.workdps(300):
        m, v = mpmath.mpf(float(mean)), mpmath.mpf(var)

        def log_z(x):
            return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2 * (1 + v))) / 2)

        exact = [float(log_z(m)), float(mpmath.diff(log_z, m)), float(mpmath.diff(log_z, m, 2))]
    # 1 - Phi(30) is 1e-198: 300 digits; rounding of z = m / sqrt(1 + v) is worth z^2 eps where Phi -> 1
    np.testing.assert_allclose([got.value[0], got.derivative[0], got.curvature[0]], exact, rtol=1e-12)


def test_tilted_moments_are_the_definition_by_quadrature():
    for y, mean, var in ((1.0, 0.4, 0.6), (-1.0, 1.5, 3.0)):
        sd = np.sqrt(var)
        moments = [
            quad(
                lambda f, k=k: f**k * np.exp(log_ndtr(y * f)) * np.exp(-0.5 * ((f - mean) / sd) ** 2) / sd,  # noqa: B023
                mean - 12 * sd,
                mean + 12 * sd,
                epsabs=1e-14,
                epsrel=1e-13,
            )[0]
            for k in range(3)
        ]
        got = log_expected_probit(ONE * y, ONE * mean, ONE * var)
        first = moments[1] / moments[0]
        # quad to 1e-13; the variance is a difference of numbers of order ten
        np.testing.assert_allclose(got.value[0], np.log(moments[0] / np.sqrt(2 * np.pi)), rtol=1e-11)
        np.testing.assert_allclose(mean + var * got.derivative[0], first, rtol=1e-11)
        np.testing.assert_allclose(var + var**2 * got.curvature[0], moments[2] / moments[0] - first**2, rtol=1e-10)


def test_class_probabilities_sum_to_one_and_keep_small_tails():
    mean, var = np.array([-30.0, -1.0, 0.0, 2.0]), np.array([0.0, 1.0, 5.0, 3.0])
    got = class_probabilities(mean, var)
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=0, atol=4e-16)  # each to half a unit in the last place
    np.testing.assert_allclose(got[0, 1], float(mpmath.ncdf(-30)), rtol=1e-12)  # z^2 eps = 2e-13
    np.testing.assert_allclose(got[3, 1], float(mpmath.ncdf(1)), rtol=1e-15)
