"""Covariance functions of section 2.3: integrals, mpmath, differences."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma

from reference.izmailov2016.errata import kernel_matern_as_printed
from reference.izmailov2016.kernels import (
    covariance,
    covariance_gradients,
    covariance_input_gradients,
    kernel_matern,
    kernel_squared_exponential,
    matern_profile,
)
from validation.ledger.numbers import assert_recorded


@pytest.mark.verifies("izmailov2016", "u2.3-se", route="product of one-dimensional factors")
def test_the_printed_squared_exponential_has_no_half(rng):
    A, B = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    wanted = 1.7**2 * np.prod(np.exp(-(((A[:, None] - B[None]) / 0.8) ** 2)), axis=2)
    np.testing.assert_allclose(kernel_squared_exponential(A, B, 1.7, 0.8), wanted, rtol=1e-13, atol=0)
    suite = covariance(A, B, 1.7**2, np.full(2, 0.8 / np.sqrt(2)), "se")
    np.testing.assert_allclose(suite, wanted, rtol=1e-13, atol=0)


def mixture(s, nu):
    """The Matérn correlation as a gamma mixture of squared exponentials: (1/Γ(ν)) ∫ t^(ν-1) exp(-t - s²/4t) dt."""
    parts = [quad(lambda t: t ** (nu - 1) * np.exp(-t - s**2 / (4 * t)), *ends, epsabs=1e-14, epsrel=1e-12)[0]
             for ends in ((0, 0.1), (0.1, 2), (2, 60))]  # fmt: skip
    return sum(parts) / gamma(nu)


@pytest.mark.verifies("izmailov2016", "u2.3-matern", route="gamma mixture of squared exponentials", printed=True)
@pytest.mark.parametrize("nu", [0.5, 0.8, 1.5, 2.5, 3.7])
def test_the_matern_covariance_is_a_mixture_of_squared_exponentials(rng, nu):
    A, B = rng.normal(size=(3, 2)), rng.normal(size=(2, 2))
    distance = np.linalg.norm(A[:, None] - B[None], axis=2)
    wanted = np.vectorize(lambda r: mixture(np.sqrt(2 * nu) * r / 1.4, nu))(distance)
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(kernel_matern(A, B, nu, 1.4), wanted, rtol=1e-9, atol=0)
    printed = kernel_matern_as_printed(A, B, nu, 1.4)
    assert np.max(np.abs(printed - wanted)) > 1e-2
    if nu == 1.5:
        assert_recorded("izmailov2016", "u2.3-matern", wanted[0, 0], printed[0, 0])
    near = A + 1e-9
    np.testing.assert_allclose(np.diag(kernel_matern(A, near, nu, 2.0)), 1.0, rtol=0, atol=1e-8)
    np.testing.assert_allclose(np.diag(kernel_matern_as_printed(A, near, nu, 2.0)), 4.0**-nu, rtol=1e-6, atol=0)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_half_integer_shortcuts_are_the_bessel_functions(nu):
    s = np.array([0.0, 1e-9, 1e-3, 0.4, 3.0, 50.0, 600.0])
    short, long = matern_profile(s, nu), matern_profile(s, nu, shortcut=False)
    # logarithms up to 600 in size are exponentiated
    np.testing.assert_allclose(short.value, long.value, rtol=1e-12, atol=0)
    np.testing.assert_allclose(short.decline, long.decline, rtol=1e-12, atol=0)


@pytest.mark.parametrize("nu", [0.3, 1.0, 7.7, 60.0, 150.0, 1000.0])
def test_any_smoothness_agrees_with_mpmath_and_never_overflows(nu):
    s = np.array([1e-12, 1e-4, 0.02, 0.5, 5.0, 60.0])
    with mpmath.workdps(30):
        scale = mpmath.mpf(2) ** (1 - mpmath.mpf(nu)) / mpmath.gamma(nu)
        value = [float(scale * mpmath.mpf(x) ** nu * mpmath.besselk(nu, x)) for x in s]
        decline = [float(2 * nu * scale * mpmath.mpf(x) ** (nu - 1) * mpmath.besselk(nu - 1, x)) for x in s]
    got = matern_profile(s, nu)
    # sums of logarithms up to 1e4 in size
    np.testing.assert_allclose(got.value, value, rtol=2e-11, atol=0)
    np.testing.assert_allclose(got.decline, decline, rtol=2e-11, atol=0)


@pytest.mark.parametrize(
    ("kernel", "nu"), [("se", None), ("matern", 0.5), ("matern", 0.8), ("matern", 2.5), ("matern", 4.2)]
)
def test_derivatives_are_differences(rng, gradients_of, kernel, nu):
    A, B, scales = rng.normal(size=(4, 2)), rng.normal(size=(3, 2)), np.array([0.7, 1.9])
    got = covariance_gradients(A, B, 1.3, scales, kernel, nu)
    by_input = covariance_input_gradients(A, B, 1.3, scales, kernel, nu)
    for i in range(4):
        for p in range(3):

            def k(z, scales=scales, i=i):
                return covariance(A[i : i + 1], z[None], 1.3, scales, kernel, nu)[0, 0]

            # step² of size 1e-11
            wanted = gradients_of(lambda scales, p=p, k=k: k(B[p], scales), scales)
            np.testing.assert_allclose(got[:, i, p], wanted, rtol=0, atol=1e-8)
            np.testing.assert_allclose(by_input[:, i, p], gradients_of(k, B[p]), rtol=0, atol=1e-8)
    assert np.all(np.isfinite(covariance_gradients(A, A, 1.3, scales, kernel, nu)))
