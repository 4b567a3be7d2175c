"""Pólya-Gamma quantities against mpmath and against the definitions they come from."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fast.likelihood.polya_gamma import kl_polya_gamma, log_cosh, pg_mean, update_local
from fast.one_latent.bound import elbo_terms

EXTREMES = np.array([1e-300, 1e-20, 1e-8, 1e-4, 0.1, 1.0, 3.0, 40.0, 800.0, 1e6])


def tilted_laplace(t, c):
    """E[exp(-omega t)] under PG(1, c), from the transform of PG(1, 0) and the tilt exp(-c^2 omega / 2)."""
    return mpmath.cosh(c / 2) / mpmath.cosh(mpmath.sqrt((c**2 / 2 + t) / 2))


@pytest.mark.verifies("wenzel2019", "u3.1-pg-mean", "u4.2-theta", route="mpmath derivative of the Laplace transform")
def test_the_mean_is_minus_the_derivative_of_the_laplace_transform():
    c = np.array([0.05, 0.7, 2.0, 9.0])
    with mpmath.workdps(40):
        expected = [float(-mpmath.diff(lambda t, x=x: tilted_laplace(t, x), 0)) for x in map(mpmath.mpf, c)]
    # some roundings of numbers of size one
    np.testing.assert_allclose(pg_mean(c), expected, rtol=1e-14, atol=0)


@pytest.mark.verifies("wenzel2019", "u3.1-pg-mean", "u4.2-theta", route="mpmath at the extremes")
def test_the_mean_keeps_its_digits_from_zero_to_a_million():
    with mpmath.workdps(40):
        expected = [float(mpmath.tanh(mpmath.mpf(x) / 2) / (2 * mpmath.mpf(x))) for x in EXTREMES]
    # tanh and a division, an ulp or two each
    np.testing.assert_allclose(pg_mean(EXTREMES), expected, rtol=1e-15, atol=0)
    np.testing.assert_allclose(pg_mean(-EXTREMES), expected, rtol=1e-15, atol=0)
    assert pg_mean(np.zeros(1))[0] == 0.25


def test_the_mean_of_a_tilt_that_is_no_number_is_none():
    np.testing.assert_array_equal(pg_mean(np.array([0.0, np.nan, np.inf])), [0.25, np.nan, 0.0])


def test_log_cosh_keeps_its_relative_digits_near_zero_and_far_out():
    with mpmath.workdps(700):
        expected = [float(mpmath.log(mpmath.cosh(mpmath.mpf(x)))) for x in EXTREMES[1:]]
    # worst at |z| = 1, where |z| - log 2 loses one digit
    np.testing.assert_allclose(log_cosh(EXTREMES[1:]), expected, rtol=1e-14, atol=0)
    np.testing.assert_allclose(log_cosh(-EXTREMES[1:]), expected, rtol=1e-14, atol=0)
    assert log_cosh(np.zeros(1))[0] == 0.0


@pytest.mark.verifies("wenzel2019", "A.2-kl-pg", route="E_q of the log density ratio, mean from the Laplace transform")
def test_the_divergence_is_the_expected_log_tilt():
    c = np.array([0.05, 0.7, 2.0, 9.0, 300.0])
    expected = []
    with mpmath.workdps(60):
        for x in map(mpmath.mpf, c):
            mean = -mpmath.diff(lambda t, x=x: tilted_laplace(t, x), 0)
            # q / p = exp(-c^2 omega / 2) / E_p[exp(-c^2 omega / 2)]
            expected.append(float(-(x**2) / 2 * mean + mpmath.log(mpmath.cosh(x / 2))))
    # stated: 4 eps (1 + |c|)
    np.testing.assert_allclose(kl_polya_gamma(c), expected, rtol=0, atol=4 * 2.3e-16 * 301)
    np.testing.assert_allclose(kl_polya_gamma(c[:2]), expected[:2], rtol=0, atol=4 * 2.3e-16 * 2)


@pytest.mark.verifies("wenzel2019", "11", route="numerical maximum of the bound over one local parameter")
@pytest.mark.parametrize(("mean", "var"), [(0.3, 0.2), (-2.0, 1.5), (5.0, 0.0), (0.0, 30.0)])
def test_the_local_update_maximises_the_bound(mean, var):
    one, m, v = np.ones(1), np.array([mean]), np.array([var])
    best = minimize_scalar(
        lambda c: -elbo_terms(one, m, v, np.array([c]), 0.0),
        bounds=(1e-3, 20.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    # a maximum is located to the square root of eps times the flatness of the bound
    np.testing.assert_allclose(update_local(m, v), best.x, rtol=1e-5, atol=0)


def test_the_local_update_does_not_underflow():
    # one rounding
    np.testing.assert_allclose(update_local(np.array([3e-200]), np.array([0.0])), 3e-200, rtol=1e-15, atol=0)
