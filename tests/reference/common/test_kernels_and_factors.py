"""Kernel derivatives, factorisations and their errors, log σ and log cosh at the extremes."""

import re

import mpmath
import numpy as np
import pytest

from reference.common.errors import NotPositiveDefiniteError, cholesky, factorise
from reference.common.kernels import (
    derivative_inputs,
    derivative_lengthscales,
    derivative_variance,
    squared_exponential,
)
from reference.common.logistic import log_cosh, log_sigmoid

STEP = 6e-6  # about eps^(1/3): central differences keep ten digits


def points(rng):
    return rng.normal(size=(4, 3)), rng.normal(size=(5, 3)), 1.7, np.array([0.6, 1.1, 2.3])


def test_the_variance_derivative_is_the_central_difference(rng):
    X1, X2, variance, lengthscales = points(rng)
    above = squared_exponential(X1, X2, variance + STEP, lengthscales)
    below = squared_exponential(X1, X2, variance - STEP, lengthscales)
    # rounding / step = 1e-16 / 1e-5 leaves 1e-11, and the kernel is linear in the variance
    np.testing.assert_allclose(
        derivative_variance(X1, X2, variance, lengthscales), (above - below) / (2 * STEP), rtol=0, atol=1e-9
    )


def test_each_lengthscale_derivative_is_the_central_difference(rng):
    X1, X2, variance, lengthscales = points(rng)
    got = derivative_lengthscales(X1, X2, variance, lengthscales)
    for j in range(3):
        move = STEP * np.eye(3)[j]
        above = squared_exponential(X1, X2, variance, lengthscales + move)
        below = squared_exponential(X1, X2, variance, lengthscales - move)
        # truncation step² · third derivative (< 1e2) and rounding / step both stay below 1e-8
        np.testing.assert_allclose(got[j], (above - below) / (2 * STEP), rtol=0, atol=1e-8)


def test_each_input_derivative_is_the_central_difference_in_the_second_argument(rng):
    X1, X2, variance, lengthscales = points(rng)
    got = derivative_inputs(X1, X2, variance, lengthscales)
    for j in range(3):
        move = STEP * np.eye(3)[j]
        above = squared_exponential(X1, X2 + move, variance, lengthscales)
        below = squared_exponential(X1, X2 - move, variance, lengthscales)
        # as for the lengthscales
        np.testing.assert_allclose(got[j], (above - below) / (2 * STEP), rtol=0, atol=1e-8)


def test_a_factor_holds_cholesky_inverse_and_log_determinant(rng):
    A = rng.normal(size=(5, 5))
    A = A @ A.T + np.eye(5)
    factor = factorise(A, "A", "none")
    # condition below 100: rounding leaves 1e-14
    np.testing.assert_allclose(factor.chol @ factor.chol.T, A, rtol=0, atol=1e-12)
    np.testing.assert_allclose(factor.inverse @ A, np.eye(5), rtol=0, atol=1e-12)
    assert factor.log_det == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-13, abs=0)


def test_a_singular_matrix_is_named_with_size_eigenvalue_and_remedy():
    singular = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-3]])
    with pytest.raises(
        NotPositiveDefiniteError, match=r"K_ZZ \(2, 2\): found smallest eigenvalue -0.0005.*expected > 0; raise"
    ):
        cholesky(singular, "K_ZZ", "raise jitter or remove duplicate rows of Z")
    assert issubclass(NotPositiveDefiniteError, np.linalg.LinAlgError)


@pytest.mark.parametrize(("large", "small"), [(1.7e308, -1.5e308), (3e-300, -2e-300), (0.0, -1e5), (2.0, -1e-3)])
def test_an_error_names_the_eigenvalue_of_a_matrix_of_any_size(large, small):
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    matrix = turn @ np.diag([large / 4.0, small / 4.0]) @ turn.T
    told = re.escape(f"found smallest eigenvalue {small / 4.0:.3g},")
    with np.errstate(over="ignore"), pytest.raises(NotPositiveDefiniteError, match=told):
        factorise(0.5 * matrix + 0.5 * matrix.T, "K", "none")


@pytest.mark.parametrize("z", [0.0, 1e-9, 1e-4, 0.3, 0.499, 0.501, 3.0, 40.0, 1e3, 1e6])
def test_log_cosh_and_log_sigmoid_hold_their_digits_at_any_size(z):
    with mpmath.workdps(60):
        wanted_cosh = float(mpmath.log(mpmath.cosh(mpmath.mpf(z))))
        wanted = [float(-mpmath.log1p(mpmath.exp(mpmath.mpf(-x)))) for x in (z, -z)]
    # a few roundings each; relative, so also where log cosh z = z²/2 is 1e-18
    np.testing.assert_allclose(log_cosh(np.array([z, -z])), wanted_cosh, rtol=1e-14, atol=0)
    np.testing.assert_allclose(log_sigmoid(np.array([z, -z])), wanted, rtol=1e-14, atol=0)
