"""Cholesky factors that fail by name, and triangular solves in place.

Every right-hand side is kept as rows (b, m) in C order: its transpose is (m, b) in Fortran order, which BLAS
takes without a copy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm, dtrsv
from scipy.linalg.lapack import dpocon, dpotrf

from fast._types import BoolArray, FloatArray
from fast.errors import NotPositiveDefiniteError

_EPS = float(np.finfo(np.float64).eps)
_BLOCK = 16  # matrices of a stack with a failure that are tried together before each is tried alone


class Factors(NamedTuple):
    """Lower Cholesky factors of a stack of matrices."""

    lower: FloatArray  # (..., m, m) NaN where the matrix has no factor
    good: BoolArray  # (...) which matrices have one


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


def stacked_cholesky(matrices: FloatArray) -> Factors:
    """Lower Cholesky factor of every matrix of a stack, and which have one; a factor depends on its matrix alone.

    Whether a matrix near singular has a factor is for its own factorisation to find: the sign of a computed
    eigenvalue does not foretell it, and LAPACK's failure on one matrix must not reach its neighbours. The stack is
    factorised at once; if a matrix fails, blocks of 16, and within a block that fails each matrix alone, by the same
    routine. Time O(n m^3); with failures at most one further call per matrix, 4 to 8 us each for m <= 11.

    Parameters
    ----------
    matrices : (..., m, m)   symmetric; a matrix with an entry that is not finite has no factor
    """
    m = matrices.shape[-1]
    flat = matrices.reshape(math.prod(matrices.shape[:-2]), m, m)
    good: BoolArray = np.asarray(np.isfinite(flat).all(axis=(1, 2)))
    if not good.all():
        flat = np.where(good[:, None, None], flat, np.eye(m))
    lower = _together(flat)
    if lower is None:
        lower = np.empty(flat.shape)
        for start in range(0, len(flat), _BLOCK):
            block = _together(flat[start : start + _BLOCK])
            if block is not None:
                lower[start : start + _BLOCK] = block
                continue
            for i in range(start, min(start + _BLOCK, len(flat))):
                alone = _together(flat[i])
                if alone is None:
                    good[i] = False
                else:
                    lower[i] = alone
    good &= np.isfinite(lower.diagonal(axis1=1, axis2=2)).all(axis=1)  # a factor that overflowed is none
    lower[~good] = np.nan
    return Factors(lower.reshape(matrices.shape), good.reshape(matrices.shape[:-2]))


def _together(matrices: FloatArray) -> FloatArray | None:
    """Factors of all matrices of a stack, None if one has none: NumPy does not report which."""
    try:
        return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def positive_factors(matrices: FloatArray) -> tuple[FloatArray, BoolArray]:
    """`stacked_cholesky` for sums over many sites, some improper: matrices without a factor get the identity.

    Parameters
    ----------
    matrices : (..., m, m)    symmetric
    """
    lower, good = stacked_cholesky(matrices)
    if not good.all():
        lower[~good] = np.eye(matrices.shape[-1])
    return lower, good


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
