"""Pólya-Gamma variables: (3), (4), (5), tilt and mean, against the density's own series."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

from reference.wenzel2019.augmentation import (
    log_joint_augmented,
    logit_pg_mixture,
    pg_laplace_transform,
    pg_log_tilt,
    pg_mean,
)

GAMMAS = np.arange(1, 200_001) - 0.5  # PG(b, 0) is the sum over k of Gamma(b, 1) / (2π² (k - ½)²)


def log_laplace_of_gammas(t, b):
    """log E[exp(-ωt)] of the infinite convolution of gammas; the tail beyond K is t/(2π² K) up to 1/K³."""
    return -b * (np.sum(np.log1p(t / (2 * np.pi**2 * GAMMAS**2))) + t / (2 * np.pi**2 * len(GAMMAS)))


@pytest.mark.verifies("wenzel2019", "3", route="quadrature over the density's alternating series")
def test_the_laplace_transform_is_the_integral_over_the_density(pg_integral):
    t = np.array([0.0, 0.01, 0.5, 3.0, 40.0])
    wanted = [pg_integral(lambda w, s=s: np.exp(-w * s)) for s in t]
    # the quadrature asks for 1e-12 in each of nine panels
    np.testing.assert_allclose(pg_laplace_transform(t, 1.0), wanted, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "3", route="infinite product of gamma transforms")
@pytest.mark.parametrize("b", [0.5, 1.0, 2.5])
def test_the_laplace_transform_is_that_of_an_infinite_convolution_of_gammas(b):
    t = np.array([0.3, 2.0, 25.0])
    wanted = [math.exp(log_laplace_of_gammas(s, b)) for s in t]
    # the neglected tail is below t²/K³ = 1e-13, summing 2e5 logarithms leaves 1e-12
    np.testing.assert_allclose(pg_laplace_transform(t, b), wanted, rtol=1e-10, atol=0)


def test_a_negative_argument_of_the_transform_is_refused():
    with pytest.raises(ValueError, match=r"t: found -1, expected >= 0"):
        pg_laplace_transform(np.array([2.0, -1.0]), 1.0)


@pytest.mark.verifies("wenzel2019", "u3.1-pg-tilt", route="tilt normalised by quadrature")
@pytest.mark.parametrize("c", [0.3, -2.0, 9.0])
def test_the_tilt_is_exponential_and_normalised(c, pg_integral):
    omega = np.array([0.01, 0.2, 1.5])
    log_mass = math.log(pg_integral(lambda w: np.exp(-0.5 * c**2 * w)))
    # the quadrature asks for 1e-12; log ratios are below 70
    np.testing.assert_allclose(pg_log_tilt(omega, 1.0, c), -0.5 * c**2 * omega - log_mass, rtol=0, atol=1e-9)


@pytest.mark.verifies("wenzel2019", "u3.1-pg-tilt", route="infinite product of gamma transforms")
def test_the_tilt_of_other_shapes_is_normalised_too():
    omega, b, c = np.array([0.3, 0.8]), 3.5, 1.7
    wanted = -0.5 * c**2 * omega - log_laplace_of_gammas(0.5 * c**2, b)
    # as for the transform
    np.testing.assert_allclose(pg_log_tilt(omega, b, c), wanted, rtol=0, atol=1e-10)


@pytest.mark.verifies("wenzel2019", "u3.1-pg-mean", route="quadrature over the density's alternating series")
def test_the_mean_is_the_first_moment_of_the_tilted_density(pg_expectation):
    c = np.array([0.0, 5e-324, 1e-3, 1.0, -3.0, 12.0])
    wanted = [pg_expectation(lambda w: w, s) for s in c]
    # two quadratures of relative accuracy 1e-12
    np.testing.assert_allclose(pg_mean(1.0, c), wanted, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "u3.1-pg-mean", route="sum of the means of the gammas")
def test_the_mean_of_any_shape_is_the_sum_of_the_gammas_means():
    b, c = 2.5, np.array([0.0, 0.7, 30.0])
    wanted = [b / (2 * np.pi**2) * (np.sum(1 / (GAMMAS**2 + (s / (2 * np.pi)) ** 2)) + 1 / len(GAMMAS)) for s in c]
    # the neglected tail is below c²/K³ = 1e-13
    np.testing.assert_allclose(pg_mean(b, c), wanted, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "4", route="quadrature over the density's alternating series")
def test_the_mixture_integral_is_the_logit_link(pg_integral):
    z = np.array([-6.0, -1.0, 0.0, 0.4, 5.0])
    mixture = [0.5 * pg_integral(lambda w, s=s: np.exp(0.5 * s - 0.5 * s**2 * w)) for s in z]
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(logit_pg_mixture(z), mixture, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "4", route="logit link in mpmath")
def test_the_mixture_is_the_logit_link_at_the_extremes():
    z = np.array([-700.0, -50.0, 1e-12, 30.0, 1000.0, 2000.0])
    with mpmath.workdps(400):
        wanted = [float(1 / (1 + mpmath.exp(-mpmath.mpf(s)))) for s in z]
    # exp of a difference of two numbers of size up to 1000, each rounded to 1e-13
    np.testing.assert_allclose(logit_pg_mixture(z), wanted, rtol=1e-12, atol=0)


@pytest.mark.verifies("wenzel2019", "5", route="marginalising ω by quadrature gives (2)")
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_integrating_out_omega_gives_the_joint_density_of_label_and_value(y, pg_integral):
    f, K = np.array([1.3]), np.array([[0.8]])
    got = pg_integral(lambda w: np.exp(log_joint_augmented(f, np.array([w]), np.array([y]), K)))
    wanted = norm.pdf(1.3, scale=math.sqrt(0.8)) / (1 + math.exp(-y * 1.3))
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "5", route="definition term by term")
def test_the_augmented_joint_density_is_prior_times_gaussian_factors(model):
    terms = [
        math.log(0.5 * math.exp(0.5 * y * f - 0.5 * w * f**2))
        for y, f, w in zip(model.y, model.f, model.omega, strict=True)
    ]
    wanted = sum(terms) + multivariate_normal.logpdf(model.f, np.zeros(model.n), model.K_XX)
    # condition of K_XX below 100
    np.testing.assert_allclose(
        log_joint_augmented(model.f, model.omega, model.y, model.K_XX), wanted, rtol=1e-11, atol=0
    )


@given(st.floats(-1e3, 1e3))
@settings(deadline=None, max_examples=100)
def test_the_mean_lies_between_zero_and_a_quarter_and_ignores_the_sign_of_the_tilt(c):
    mean = pg_mean(1.0, np.array([c, -c]))
    assert mean[0] == mean[1]
    assert 0.0 < mean[0] <= 0.25
