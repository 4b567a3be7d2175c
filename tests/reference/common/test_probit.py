"""log Φ, its derivatives and their Gaussian means against mpmath."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from reference.common.logistic_expectation import expect_log_sigmoid
from reference.common.probit import expect_log_phi, mills_derivative, probit_probability

ARGUMENTS = [-1e8, -1e4, -60.0, -5.01, -4.99, -1.0, 0.0, 1e-3, 2.0, 8.0, 30.0]


def exact_derivatives(z):
    """(log Φ)', (log Φ)'' with enough digits for the cancellation of z + r."""
    with mpmath.workdps(60):
        z = mpmath.mpf(z)
        r = mpmath.npdf(z) / (mpmath.erfc(-z / mpmath.sqrt(2)) / 2)
        return float(r), float(-r * (z + r))


@pytest.mark.parametrize("z", ARGUMENTS)
def test_derivatives_of_log_phi_are_right_at_every_argument(z):
    # erfcx is good to 1e-13; just above -5 the sum z + r cancels a factor of 27
    np.testing.assert_allclose(mills_derivative(z), exact_derivatives(z), rtol=1e-12, atol=1e-300)


CASES = [
    (0.0, 1.0),
    (-30.0, 4.0),
    (3.0, 1e4),
    (-200.0, 1e-6),
    (2.0, 100.0),
    (5.0, 0.01),
    (-3.0, 1e6),
    (6.0, 1.0),
    (1.0, 0.0),
]


@pytest.mark.parametrize(("mean", "var"), CASES)
def test_gaussian_means_of_log_phi_and_its_derivatives_are_right(mean, var):
    got = expect_log_phi(np.array([mean]), np.array([var]))
    with mpmath.workdps(30):
        sd = mpmath.sqrt(mpmath.mpf(var))
        cdf = lambda z: mpmath.erfc(-z / mpmath.sqrt(2)) / 2  # noqa: E731
        ratio = lambda z: mpmath.npdf(z) / cdf(z)  # noqa: E731
        functions = [lambda z: mpmath.log(cdf(z)), ratio, lambda z: -ratio(z) * (z + ratio(z))]
        if var == 0.0:
            wanted = [float(function(mpmath.mpf(mean))) for function in functions]
        else:
            cuts = {float(mpmath.mpf(b - mean) / sd) for b in (-40, -12, -6, -3, 0, 3, 6, 12)}
            points = sorted({-16.0, -12.0, -8.0, -4.0, 0.0, 4.0, 8.0, 12.0} | {t for t in cuts if -16 < t < 12})
            wanted = [
                float(mpmath.quad(lambda t, f=f: f(mean + sd * t) * mpmath.npdf(t), points, maxdegree=5))
                for f in functions
            ]
    # 1e-13 of the largest part of each integral; log Φ(6) itself is known to 1e-12 of 1e-9
    np.testing.assert_allclose([part[0] for part in got], wanted, rtol=2e-12, atol=0)


@pytest.mark.parametrize(("mean", "sd"), [(26.0, 1.0), (60.0, 2.0), (14.0, 0.5)])
def test_the_mean_of_log_phi_of_a_sure_label_is_that_of_its_tail(mean, sd):
    # log Φ(f) = -Φ(-f) to rounding where f > 9; nearly all of the mean comes from mean / (1 + sd²), far below
    got = expect_log_phi(np.array([mean]), np.array([sd**2])).value[0]
    exact = -mpmath.ncdf(-mean / mpmath.sqrt(1 + mpmath.mpf(sd) ** 2))
    assert got == pytest.approx(float(exact), rel=1e-11, abs=0)


@pytest.mark.parametrize(("mean", "var"), [(400.0, 169.0), (90.0, 9.0)])
def test_the_mean_of_log_sigma_of_a_sure_label_is_that_of_an_exponential(mean, var):
    # log σ(f) = -e^-f to rounding where f > 40
    got = expect_log_sigmoid(np.array([mean]), np.array([var])).value[0]
    assert got == pytest.approx(-np.exp(0.5 * var - mean), rel=1e-11, abs=0)


@pytest.mark.parametrize(("mean", "sd"), [(-20.0, 60.0), (10.0, 130.0), (40.0, 300.0)])
def test_the_mean_of_log_sigma_of_a_wide_value_is_a_ramp_and_a_bend(mean, sd):
    got = expect_log_sigmoid(np.array([mean]), np.array([sd**2])).value[0]
    ramp = mean * ndtr(-mean / sd) - sd * norm.pdf(mean / sd)  # E[min(f, 0)]
    bend = quad(lambda f: np.log1p(np.exp(-abs(f))) * norm.pdf(f, mean, sd), -60.0, 60.0, points=[0.0], epsrel=1e-12)[0]
    # beyond 60 the bend is 1e-26
    assert got == pytest.approx(ramp - bend, rel=1e-12, abs=0)


def test_what_is_no_variance_is_refused():
    with pytest.raises(ValueError, match=r"latent_var: found -1"):
        expect_log_phi(np.zeros(2), np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"latent_mean: found a value that is not finite"):
        expect_log_phi(np.array([np.nan]), np.ones(1))


def test_probabilities_are_means_of_phi():
    got = probit_probability(np.array([0.7, -40.0]), np.array([0.4, 3.0]))
    with mpmath.workdps(30):
        halved = mpmath.quad(
            lambda f: mpmath.ncdf(f) * mpmath.npdf(f, mpmath.mpf("0.7"), mpmath.sqrt(mpmath.mpf("0.4"))),
            [-6, 0, 0.7, 2, 7],
        )
        tail = float(mpmath.ncdf(-20))
    # the quadrature in mpmath covers ten standard deviations
    assert got[0, 1] == pytest.approx(float(halved), rel=1e-12, abs=0)
    assert got[1, 1] == pytest.approx(tail, rel=1e-12, abs=0)
    np.testing.assert_allclose(np.sum(got, axis=1), 1.0, rtol=1e-15, atol=0)
