"""Cholesky factors that fail by name, and triangular solves in place.

Every right-hand side is kept as rows (b, m) in C order: its transpose is (m, b) in Fortran order, which BLAS
takes without a copy.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dtrsm, dtrsv
from scipy.linalg.lapack import dpocon, dpotrf

from fast._types import FloatArray
from fast.errors import NotPositiveDefiniteError

_EPS = float(np.finfo(np.float64).eps)


def cholesky(matrix: FloatArray, name: str, remedy: str) -> FloatArray:
    """Lower Cholesky factor of a symmetric positive definite matrix; the strict upper triangle is zero.

    Only the lower triangle of the matrix is read. A matrix whose reciprocal condition (LAPACK's estimate in the
    1-norm) is below the spacing of float64 counts as singular: rounding alone may have made its pivots positive.
    Time m^3/3, memory m^2.

    Parameters
    ----------
    matrix : (m, m)   symmetric, finite
    name : str        what an error calls it, e.g. "K_ZZ"
    remedy : str      what to change if it is not positive definite

    Raises
    ------
    NotPositiveDefiniteError   names matrix, size, smallest eigenvalue and the remedy
    """
    norm = float(np.abs(np.tril(matrix) + np.tril(matrix, -1).T).sum(axis=0).max())
    if not np.isfinite(norm):
        raise ValueError(f"{name}: found a value that is not finite, expected finite numbers")
    factor, info = dpotrf(matrix, lower=1, clean=1)
    reciprocal = dpocon(factor, norm, uplo="L")[0] if info == 0 else 0.0
    if reciprocal < _EPS:
        size = matrix.shape[0]
        smallest, largest = np.linalg.eigvalsh(matrix, UPLO="L")[[0, -1]]
        raise NotPositiveDefiniteError(
            f"{name} ({size}, {size}): found smallest eigenvalue {smallest:.3g}, "
            f"expected > {_EPS * max(largest, 0.0):.3g}; {remedy}"
        )
    return factor


def factorise(matrix: FloatArray, name: str, remedy: str) -> FloatArray:
    """`cholesky` for a matrix met in every step: its condition is not estimated, a small pivot is taken for it.

    The square of the smallest pivot is at least the smallest eigenvalue, so this refuses less than `cholesky`.
    Whatever it refuses goes to `cholesky` for the verdict and its wording. Time m^3/3.

    Parameters
    ----------
    matrix : (m, m)   symmetric; only the lower triangle is read
    name : str        what an error calls it
    remedy : str      what to change if it is not positive definite

    Raises
    ------
    NotPositiveDefiniteError   names matrix, size, smallest eigenvalue and the remedy
    """
    factor, info = dpotrf(matrix, lower=1, clean=1)
    pivots = factor.diagonal()
    if info == 0 and pivots.min() ** 2 > _EPS * pivots.max() ** 2:  # False for NaN too
        return factor
    return cholesky(matrix, name, remedy)


def solve_rows(factor: FloatArray, rhs: FloatArray, *, transposed: bool = False) -> FloatArray:
    """Solve with a lower triangular factor for every row of the right-hand side, in place.

    Row i of the result is R^-1 rhs_i, or R^-T rhs_i if transposed. Time b m^2, no memory if rhs is C-contiguous.

    Parameters
    ----------
    factor : (m, m)     lower triangular, Fortran order
    rhs : (b, m)        overwritten
    transposed : bool   solve with the transpose of the factor
    """
    return dtrsm(1.0, factor, rhs.T, side=0, lower=1, trans_a=int(transposed), overwrite_b=1).T


def solve_vector(factor: FloatArray, rhs: FloatArray, *, transposed: bool = False) -> FloatArray:
    """R^-1 rhs, or R^-T rhs if transposed, for one vector; rhs is left alone. Time m^2.

    Parameters
    ----------
    factor : (m, m)     lower triangular
    rhs : (m,)
    transposed : bool   solve with the transpose of the factor
    """
    return dtrsv(factor, rhs, lower=1, trans=int(transposed))


def squared_norms(rhs: FloatArray) -> FloatArray:
    """Squared length of every row of rhs (b, m): (b,). Time b m."""
    return np.vecdot(rhs, rhs)
