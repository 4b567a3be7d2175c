"""u27: the expected power of the robust likelihood against adaptive quadrature, mpmath and numerical derivatives."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from reference.villacampa2020.power_likelihood import (
    expected_power_likelihood,
    log_expected_power,
    log_expected_powers,
    log_largest_probability,
    scaled_log_expected_power,
    scaled_log_expected_powers,
)

MEAN, VAR = np.array([0.3, -0.4, 0.9, 0.1]), np.array([0.8, 1.7, 0.4, 2.5])


def by_definition(mean, var, label, epsilon, alpha):
    """E[p^α] with the label's latent value integrated numerically and the others in closed form."""
    C, sd = len(mean), np.sqrt(var)
    others = [k for k in range(C) if k != label]
    high, low = (1.0 - epsilon + epsilon / C) ** alpha, (epsilon / C) ** alpha

    def integrand(t):
        below = np.prod([norm.cdf(t, mean[k], sd[k]) for k in others])
        return norm.pdf(t, mean[label], sd[label]) * (low + (high - low) * below)

    reach = mean[label] - 12.0 * sd[label], mean[label] + 12.0 * sd[label]
    return quad(integrand, *reach, epsabs=1e-14, epsrel=1e-13, limit=400, points=[mean[label], *mean[others]])[0]


@pytest.mark.verifies("villacampa2020", "u27-power-expectation", route="adaptive quadrature of the definition")
@pytest.mark.parametrize(("epsilon", "alpha"), [(0.0, 1.0), (0.0, 0.5), (0.1, 0.3), (0.02, 1.0), (0.2, 1e-3)])
def test_the_expected_power_is_its_integral(epsilon, alpha):
    for C in (2, 3, 4):
        wanted = by_definition(MEAN[:C], VAR[:C], C - 1, epsilon, alpha)
        got = expected_power_likelihood(MEAN[:C], VAR[:C], C - 1, epsilon, alpha)
        assert got == pytest.approx(wanted, rel=1e-12, abs=0)  # what quad states
        many = scaled_log_expected_powers(MEAN[None, :C], VAR[None, :C], np.array([C - 1]), epsilon, alpha)
        # a relative error of E is an absolute one of its logarithm
        assert many.log_expectation[0] == pytest.approx(np.log(wanted) / alpha, rel=0, abs=1e-12 / alpha)


@pytest.mark.parametrize(
    ("variances", "gap"), [((1e-8, 1e8, 1.0), 5.0), ((1e8, 1e-8, 1e-8), 0.7), ((1e-8, 1e-8, 1e8), -3.0)]
)
def test_probability_and_complement_are_right_at_any_ratio_of_variances(variances, gap):
    with mpmath.workdps(20):
        sd = [mpmath.sqrt(mpmath.mpf(v)) for v in variances]
        mean = [mpmath.mpf(gap) * sd[0], mpmath.mpf(0), -sd[1] / 2]

        def below(t, k):
            return mpmath.ncdf((t - mean[k]) / sd[k])

        points = {mean[k] + step * sd[k] for k in range(3) for step in range(-12, 13, 3)}
        points = sorted(t for t in points if abs(t - mean[0]) <= 12 * sd[0])

        def both(t):
            return mpmath.npdf(t, mean[0], sd[0]) * below(t, 1) * below(t, 2)

        def rest(t):
            one, two = below(t, 1), mpmath.ncdf((mean[2] - t) / sd[2])
            return mpmath.npdf(t, mean[0], sd[0]) * (mpmath.ncdf((mean[1] - t) / sd[1]) + one * two)

        wanted = [float(mpmath.log(mpmath.quad(f, points))) for f in (both, rest)]
        arguments = np.array([[float(m) for m in mean]]), np.array([variances]), np.array([0])
    for got, log_value in zip(log_largest_probability(*arguments), wanted, strict=True):
        # relative 1e-12 of a probability is absolute in its logarithm; rounding of mean enters where it is sharp
        np.testing.assert_allclose(got[0], log_value, rtol=1e-12, atol=1e-12)


def test_two_classes_are_a_probit_far_into_both_tails():
    for margin in (-37.0, -20.0, 20.0, 37.0):
        got = log_expected_power(np.array([margin, 0.0]), np.array([0.5, 0.5]), 0, 0.0, 1.0)
        with mpmath.workdps(400):  # 1 - 1e-300 has so many digits
            wanted = mpmath.log(mpmath.ncdf(margin))
            first = mpmath.npdf(margin) / mpmath.ncdf(margin)
        assert got.log_expectation == pytest.approx(float(wanted), rel=1e-12, abs=0)
        np.testing.assert_allclose(got.d_mean, [float(first), -float(first)], rtol=1e-11)


@pytest.mark.parametrize(("epsilon", "alpha"), [(0.0, 1.0), (0.0, 0.4), (0.1, 0.5), (1e-3, 1e-8), (0.2, 0.0)])
@pytest.mark.parametrize("C", [2, 3, 4])
def test_the_derivatives_are_those_of_the_value(C, epsilon, alpha):
    mean, var, label, h = MEAN[:C], VAR[:C], 1, 1e-5
    got = scaled_log_expected_power(mean, var, label, epsilon, alpha)

    def at(mean, var):
        return scaled_log_expected_power(mean, var, label, epsilon, alpha)

    for k in range(C):
        e = h * np.eye(C)[k]
        up, down = at(mean + e, var), at(mean - e, var)
        by_var = (at(mean, var + e).log_expectation - at(mean, var - e).log_expectation) / (2 * h)
        close = {"rel": 1e-7, "abs": 1e-9}  # central differences: h² and rounding over h
        assert got.d_mean[k] == pytest.approx((up.log_expectation - down.log_expectation) / (2 * h), **close)
        assert got.d_var[k] == pytest.approx(by_var, **close)
        assert got.d2_mean[k] == pytest.approx((up.d_mean[k] - down.d_mean[k]) / (2 * h), **close)
        # the heat equation ties the three
        heat = 0.5 * (got.d2_mean[k] + alpha * got.d_mean[k] ** 2)
        assert got.d_var[k] == pytest.approx(heat, rel=1e-10, abs=1e-14)


def test_a_small_power_tends_to_the_expected_logarithm():
    C, epsilon = 3, 0.05
    P = by_definition(MEAN[:C], VAR[:C], 0, 0.0, 1.0)
    gap = np.log(1.0 - epsilon + epsilon / C) - np.log(epsilon / C)
    mean_log, var_log = np.log(epsilon / C) + gap * P, gap**2 * P * (1.0 - P)
    assert scaled_log_expected_power(MEAN[:C], VAR[:C], 0, epsilon, 0.0).log_expectation == pytest.approx(
        mean_log, rel=1e-12, abs=0
    )
    for alpha in (1e-300, 1e-12, 1e-8, 1e-5):
        got = scaled_log_expected_power(MEAN[:C], VAR[:C], 0, epsilon, alpha).log_expectation
        # the next term is α²/6 times the third cumulant, of order one
        assert got == pytest.approx(mean_log + 0.5 * alpha * var_log, rel=1e-13, abs=10.0 * alpha**2)


def test_fifty_classes_share_one_likelihood_and_extreme_arguments_stay_finite():
    C = 50
    same = np.zeros((C, C)), np.ones((C, C)), np.arange(C)
    np.testing.assert_allclose(log_largest_probability(*same)[0], -np.log(C), rtol=1e-13)
    for mean, var in (
        ([0.0, 1.0, -1.0], [1e-8, 1e8, 1e-8]),
        ([-37.0, 0.0, 0.0], [1.0, 1e-8, 1e-8]),
        ([1e6, 0.0, 0.0], [1e-8, 1e-8, 1e-8]),
        ([-1e3, 0.0, 5.0], [1e-8, 1.0, 1e8]),
    ):
        for epsilon, alpha in ((0.0, 1.0), (0.5, 1e-8), (1e-300, 0.5), (0.3, 0.0)):
            got = scaled_log_expected_power(np.array(mean), np.array(var), 0, epsilon, alpha)
            assert all(np.all(np.isfinite(part)) for part in got)


def test_variances_of_zero_are_point_masses_and_equal_ones_share():
    got = expected_power_likelihood(np.array([0.5, 0.2, -1.0]), np.array([0.0, 0.0, 4.0]), 0, 0.0, 1.0)
    assert got == pytest.approx(norm.cdf(0.75), rel=1e-13, abs=0)
    got = expected_power_likelihood(np.array([0.5, 0.2, -1.0]), np.array([1.0, 0.0, 0.0]), 0, 0.0, 1.0)
    assert got == pytest.approx(norm.cdf(0.3), rel=1e-13, abs=0)
    assert expected_power_likelihood(np.zeros(3), np.zeros(3), 2, 0.0, 1.0) == pytest.approx(1 / 3, rel=1e-15, abs=0)
    assert expected_power_likelihood(np.array([0.0, 1.0]), np.zeros(2), 0, 0.0, 1.0) == 0.0
    # derivatives with a point mass among the others: that of the limit
    var = np.array([0.8, 1.7, 0.0])
    got, near = (log_expected_power(MEAN[:3], v, 0, 0.1, 0.5) for v in (var, np.maximum(var, 1e-12)))
    for one, other in zip(got, near, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)  # 1e-12 away


def test_bad_arguments_are_refused_by_name():
    good = MEAN[:2], VAR[:2], 0
    for epsilon, alpha, name in ((0.1, 1.1, "alpha"), (0.1, np.nan, "alpha"), (1.0, 0.5, "epsilon"), (0.0, 0.0, "eps")):
        with pytest.raises(ValueError, match=name):
            log_expected_power(*good, epsilon, alpha)
    with pytest.raises(ValueError, match="latent_var"):
        log_expected_power(MEAN[:2], -VAR[:2], 0, 0.1, 0.5)
    with pytest.raises(ValueError, match="latent_mean"):
        log_expected_power(np.array([np.nan, 0.0]), VAR[:2], 0, 0.1, 0.5)
    with pytest.raises(ValueError, match="y_i"):
        log_expected_power(MEAN[:2], VAR[:2], 2, 0.1, 0.5)


def test_many_observations_are_each_alone():
    mean, var, y = np.stack([MEAN, MEAN[::-1], -MEAN]), np.stack([VAR, VAR, VAR[::-1]]), np.array([2, 0, 3])
    many = log_expected_powers(mean, var, y, 0.05, 0.7)
    for i in range(3):
        for one, all_ in zip(log_expected_power(mean[i], var[i], int(y[i]), 0.05, 0.7), many, strict=True):
            np.testing.assert_allclose(one, all_[i], rtol=1e-14)
