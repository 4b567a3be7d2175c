"""The bound of Gibbs and MacKay and its equality with the augmented bound: wenzel2019, A.5."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.wenzel2019.gibbs_mackay import bounds_equal, gibbs_mackay_bound, pg_pointwise_bound


def gibbs_mackay_in_mpmath(z, c):
    with mpmath.workdps(60):
        z, c = mpmath.mpf(z), mpmath.mpf(c)
        link = 1 / (1 + mpmath.exp(-c))
        return float(mpmath.log(link) + (z - c) / 2 - (link - mpmath.mpf(1) / 2) / (2 * c) * (z**2 - c**2))


def augmented_by_quadrature(y, f, c, pg_integral, pg_expectation):
    """E_q[log p(y|f, ω)] - KL(q||p) of one datum, with q = PG(1, c) tilted numerically."""
    mass = pg_integral(lambda w: math.exp(-0.5 * c**2 * w))
    loglik = pg_expectation(lambda w: math.log(0.5) + 0.5 * y * f - 0.5 * f**2 * w, c)
    return loglik - pg_expectation(lambda w: -0.5 * c**2 * w - math.log(mass), c)


F = np.array([0.3, -2.0, 4.0])
C = np.array([1.0, 0.2, 4.0])
Y = np.array([1.0, 1.0, -1.0])


@pytest.mark.verifies("wenzel2019", "A.5-augmented", route="quadrature over the density's alternating series")
def test_the_augmented_bound_is_expected_log_likelihood_less_divergence(pg_integral, pg_expectation):
    wanted = sum(augmented_by_quadrature(*case, pg_integral, pg_expectation) for case in zip(Y, F, C, strict=True))
    # quadratures of relative accuracy 1e-12 on terms below 10
    np.testing.assert_allclose(pg_pointwise_bound(F, C, Y), wanted, rtol=1e-9, atol=0)


@pytest.mark.verifies("wenzel2019", "A.5-augmented", route="equality with the log-likelihood at c = |f|")
def test_the_augmented_bound_touches_the_log_likelihood_at_the_contact_points():
    wanted = -np.sum(np.log1p(np.exp(-Y * F)))
    # sums of some ten terms below 10
    np.testing.assert_allclose(pg_pointwise_bound(F, np.abs(F), Y), wanted, rtol=1e-13, atol=0)


@pytest.mark.verifies("wenzel2019", "A.5-gibbs-mackay", route="definition in mpmath, with and without contact")
def test_the_exponential_quadratic_bound_is_its_definition():
    z = np.array([0.5, -3.0, 2.0, 2.0, -2.0, 900.0])
    c = np.array([1.5, 1e-3, 2.0, -2.0, 2.0, -20.0])
    wanted = [gibbs_mackay_in_mpmath(*case) for case in zip(z, c, strict=True)]
    # terms up to 1e4 against results of size 1: only the last case is that large, and so is its result
    np.testing.assert_allclose(gibbs_mackay_bound(z, c), wanted, rtol=1e-12, atol=0)


@pytest.mark.verifies("wenzel2019", "A.5-gibbs-mackay", route="equality with the link at z = c and z = -c")
def test_the_exponential_quadratic_bound_touches_the_link_twice():
    c = np.array([0.0, 5e-324, 1e-8, 0.7, 5.0, -5.0, 30.0])
    for z in (c, -c):
        # terms up to 30, rounded a few times; the smallest result is e⁻³⁰
        np.testing.assert_allclose(gibbs_mackay_bound(z, c), -np.log1p(np.exp(-z)), rtol=1e-12, atol=1e-14)


def test_the_smallest_contact_point_is_that_of_zero():
    tiny = gibbs_mackay_bound(np.array([1.0]), np.array([5e-324]))
    np.testing.assert_array_equal(tiny, gibbs_mackay_bound(np.array([1.0]), np.array([0.0])))
    both = bounds_equal(np.array([1.0]), np.array([5e-324]), np.array([1.0]))
    # a handful of terms of size 1
    np.testing.assert_allclose(both.augmented, tiny, rtol=1e-15, atol=1e-15)


@given(z=st.floats(-1e3, 1e3), c=st.floats(-1e3, 1e3))
@settings(deadline=None, max_examples=300)
def test_the_exponential_quadratic_bound_is_a_lower_bound(z, c):
    link = -np.logaddexp(0.0, -z)
    # a few roundings of the terms: (z - c)/2, log σ(c), and z² - c² times a gradient of at most 1/8 and 1/(4|c|)
    slack = 4e-16 * (1.0 + abs(z) + abs(c) + (z**2 + c**2) * min(0.125, 0.25 / max(abs(c), 1.0)))
    assert gibbs_mackay_bound(z, c) <= link + slack


@pytest.mark.verifies("wenzel2019", "A.5-equality", route="one side in mpmath, the other by quadrature")
def test_both_bounds_are_one(pg_integral, pg_expectation):
    got = bounds_equal(F, C, Y)
    by_definition = [gibbs_mackay_in_mpmath(y * f, c) for y, f, c in zip(Y, F, C, strict=True)]
    by_quadrature = [augmented_by_quadrature(*case, pg_integral, pg_expectation) for case in zip(Y, F, C, strict=True)]
    # mpmath is exact, the quadrature good to 1e-12 on terms below 10
    np.testing.assert_allclose(got.gibbs_mackay, by_definition, rtol=1e-12, atol=0)
    np.testing.assert_allclose(got.augmented, by_quadrature, rtol=1e-9, atol=0)
    np.testing.assert_allclose(got.augmented, got.gibbs_mackay, rtol=1e-12, atol=0)


def test_both_bounds_stay_finite_and_equal_for_large_latent_values():
    f, c, y = np.array([1e3, -1e3, 1e3, 0.0]), np.array([1e3, 500.0, 0.0, 1e3]), np.array([1.0, 1.0, -1.0, 1.0])
    got = bounds_equal(f, c, y)
    # terms up to 1e5
    np.testing.assert_allclose(got.augmented, got.gibbs_mackay, rtol=1e-12, atol=1e-10)
    assert np.all(np.isfinite(got.augmented))
