"""The Gaussian mean of the logistic against mpmath and SciPy, up to the extremes that are promised."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit

from fast.likelihood.quadrature import QUADRATURE_ERROR, log_class_probabilities
from in_every_run import others_slow


def log_probability(mean, var):
    """log E[sigma(f)] by Gauss-Legendre panels around the mode of the integrand, 25 digits."""
    with mpmath.workdps(25):
        mu, v = mpmath.mpf(mean), mpmath.mpf(var)
        if v == 0:
            return float(-mpmath.log1p(mpmath.exp(-mu)))

        def log_integrand(f):
            return -((f - mu) ** 2) / (2 * v) - mpmath.log1p(mpmath.exp(-f))

        low, high = mu, mu + v  # the derivative (mu - f)/v + sigma(-f) changes sign between them
        for _ in range(110):
            middle = (low + high) / 2
            if (mu - middle) / v + 1 / (1 + mpmath.exp(middle)) > 0:
                low = middle
            else:
                high = middle
        mode, top = low, log_integrand(low)
        width = 1 / mpmath.sqrt(1 / v + 1 / ((1 + mpmath.exp(mode)) * (1 + mpmath.exp(-mode))))
        steps = [0, *(s * k for s in (-1, 1) for k in (1, 2, 4, 7, 11, 16))]
        breaks = [mode + k * w for k in steps for w in (width, mpmath.sqrt(v))] + [
            5 * mpmath.mpf(k) for k in range(-16, 17)
        ]
        breaks = sorted({b for b in breaks if log_integrand(b) - top > -70})
        ends = []
        for direction, edge in ((-1, breaks[0]), (1, breaks[-1])):
            step = width
            while log_integrand(edge + direction * step) - top > -70:
                step *= 2
            ends.append(edge + direction * step)
        total = mpmath.quad(
            lambda f: mpmath.exp(log_integrand(f) - top), [ends[0], *breaks, ends[1]], method="gauss-legendre"
        )
        return float(top + mpmath.log(total) - mpmath.log(2 * mpmath.pi * v) / 2)


@pytest.mark.verifies("wenzel2019", "14", route="mpmath quadrature around the mode")
@pytest.mark.parametrize(
    "var",
    # mpmath takes its time; the ends, and what lies on either side of one
    others_slow(
        [0.0, 1e-29, 1e-12, 1e-4, 0.3, 2.0, 25.0, 600.0, 1e4, 1e8], lambda var: var in (0.0, 1e-29, 0.3, 25.0, 1e8)
    ),
)
def test_probabilities_are_right_to_the_stated_relative_error(var):
    means = np.array([0.0, 1e-5, -0.7, 4.0, -35.0, -690.0, 1000.0])
    got = log_class_probabilities(means, np.full(means.size, var))
    expected = np.array([[log_probability(-mean, var), log_probability(mean, var)] for mean in means])
    # the stated error; an absolute error of a log-probability is the relative error of the probability.
    # Rounding of the mpmath result to float64 is eps |log p| < 3e-13 on top at log p = -1000.
    limit = QUADRATURE_ERROR * (1.0 + np.abs(means) / 100.0)[:, None]
    assert (np.abs(got - expected) <= limit).all()


@pytest.mark.verifies("wenzel2019", "14", route="scipy.integrate.quad of the definition")
@pytest.mark.parametrize(("mean", "var"), [(0.4, 0.9), (-1.5, 4.0), (3.0, 0.1)])
def test_probabilities_are_the_integral_as_printed(mean, var):
    expected, _ = quad(
        lambda f: expit(f) * np.exp(-0.5 * (f - mean) ** 2 / var) / np.sqrt(2 * np.pi * var),
        mean - 12 * np.sqrt(var),
        mean + 12 * np.sqrt(var),
        epsabs=1e-13,
        epsrel=1e-13,
        limit=200,
    )
    got = np.exp(log_class_probabilities(np.array([mean]), np.array([var])))[0]
    # quad asked for 1e-13, tails cut at 12 standard deviations
    np.testing.assert_allclose(got, [1 - expected, expected], rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=200)
@given(st.floats(-1e3, 1e3), st.floats(0.0, 1e8))
def test_both_classes_sum_to_one_and_swap_with_the_sign_of_the_mean(mean, var):
    means, variances = np.array([mean, -mean]), np.array([var, var])
    log_p = log_class_probabilities(means, variances)
    # the larger of the two carries the sum: the stated error twice
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0, rtol=0, atol=2.2e-11)
    np.testing.assert_array_equal(log_p[0], log_p[1, ::-1])


@settings(deadline=None, max_examples=100)
@given(st.floats(-900.0, 900.0), st.floats(1e-3, 50.0), st.floats(-12.0, 12.0))
def test_the_probability_grows_with_the_mean(mean, step, log_var):
    variances = np.full(2, np.exp(log_var))
    log_p = log_class_probabilities(np.array([mean, mean + step]), variances)[:, 1]
    # equal to the stated error where both round to one
    assert log_p[1] >= log_p[0] - 1e-11


def test_no_test_points_give_no_probabilities():
    assert log_class_probabilities(np.empty(0), np.empty(0)).shape == (0, 2)
