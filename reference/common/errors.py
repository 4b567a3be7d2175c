"""Factorisations that either succeed or say which matrix failed and which parameter is responsible."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri

Array = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A matrix that must be positive definite is not; names matrix, size, smallest eigenvalue, parameter."""


class Factor(NamedTuple):
    """Lower Cholesky factor of a matrix, and what is read off it."""

    chol: Array
    inverse: Array
    log_det: float


def cholesky(matrix: Array, name: str, remedy: str) -> Array:
    """Lower Cholesky factor (m, m) of a symmetric positive definite matrix; nothing is added to its diagonal.

    Parameters
    ----------
    matrix : (m, m)       symmetric; its lower triangle is read
    name : str            what the matrix is called in the error, e.g. "K_ZZ"
    remedy : str          what the caller can do, e.g. "raise jitter or remove duplicate rows of Z"

    Raises
    ------
    NotPositiveDefiniteError     with name, size, smallest eigenvalue and remedy
    """
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        smallest = _smallest_eigenvalue(matrix)
    raise NotPositiveDefiniteError(
        f"{name} {matrix.shape}: found smallest eigenvalue {smallest:.3g}, expected > 0; {remedy}"
    )


def factorise(matrix: Array, name: str, remedy: str) -> Factor:
    """Cholesky factor (m, m), inverse (m, m) and log-determinant of a symmetric positive definite matrix.

    The papers write inverses, so the reference forms them, symmetric to the last bit. A matrix is singular to
    float64 if m eps times its condition number, here |M|₁ |M⁻¹|₁, reaches 1: whether its Cholesky factor exists is
    then a matter of rounding, as for equal rows of Z without jitter.

    Parameters
    ----------
    matrix : (m, m)       symmetric
    name : str            what the matrix is called in an error
    remedy : str          what the caller can do about a failure

    Raises
    ------
    NotPositiveDefiniteError     as `cholesky`, and if the matrix is singular to float64
    """
    chol = cholesky(matrix, name, remedy)
    lower, info = dpotri(chol, lower=1)  # M⁻¹ = L⁻ᵀ L⁻¹, its lower triangle; above it stand the factor's zeros
    if info != 0:
        raise NotPositiveDefiniteError(f"{name} {matrix.shape}: found a zero on the factor's diagonal; {remedy}")
    diagonal = lower.diagonal().copy()
    lower.flat[:: len(matrix) + 1] = 0.0
    inverse = lower + lower.T
    inverse.flat[:: len(matrix) + 1] = diagonal
    condition = _norm(matrix) * _norm(inverse)
    largest = 1.0 / (len(matrix) * _EPS)
    if not condition < largest:
        smallest = _smallest_eigenvalue(matrix)
        raise NotPositiveDefiniteError(
            f"{name} {matrix.shape}: found smallest eigenvalue {smallest:.3g} and condition number {condition:.1e}, "
            f"expected one below {largest:.1e}; {remedy}"
        )
    return Factor(chol, inverse, 2.0 * float(np.log(chol.diagonal()).sum()))


def _smallest_eigenvalue(matrix: Array) -> float:
    """That of M / max|M|, scaled back: LAPACK finds none near the largest float64. NaN if M is not finite."""
    size = float(np.max(np.abs(matrix))) or 1.0
    if not np.isfinite(size):
        return np.nan
    return size * float(np.linalg.eigvalsh(matrix / size)[0])


def _norm(matrix: Array) -> float:
    """The largest sum of absolute values in a column."""
    return float(np.abs(matrix).sum(axis=0).max())
