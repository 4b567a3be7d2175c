"""The one place of this package where matrices are factorised: factors that fail by name, solves with them.

Whatever LAPACK reports, of one matrix or of each in a stack, is read here and becomes a `NotPositiveDefiniteError`.
Every right-hand side is kept as rows (b, m) in C order: its transpose is (m, b) in Fortran order, which BLAS
takes without a copy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm, dtrsv
from scipy.linalg.lapack import dlauum, dpocon, dpotrf, dtrcon, dtrtri

from fast.core.errors import NotPositiveDefiniteError
from fast.core.types import BoolArray, FloatArray

_EPS = float(np.finfo(np.float64).eps)
_BLOCK = 16  # matrices of a stack with a failure that are tried together before each is tried alone


class Factors(NamedTuple):
    """Lower Cholesky factors of a stack of matrices."""

    lower: FloatArray  # (..., m, m) NaN where the matrix has no factor
    good: BoolArray  # (...) which matrices have one


def _ends(matrix: FloatArray) -> tuple[float, float]:
    """Smallest and largest eigenvalue, of the lower triangle; scaled: LAPACK finds none near 1e308."""
    size = float(np.abs(np.tril(matrix)).max()) or 1.0
    values = np.linalg.eigvalsh(matrix / size, UPLO="L")
    return size * float(values[0]), size * float(values[-1])


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
    factor, info = dpotrf(matrix, lower=True)
    if info != 0 or dpocon(factor, norm, uplo="L")[0] < _EPS:
        size = len(matrix)
        smallest, largest = _ends(matrix)
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
    factor, info = dpotrf(matrix, lower=True)
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
            else:
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
    lower[~good] = np.eye(matrices.shape[-1])
    return lower, good


def correlation_roots(matrices: FloatArray, name: str) -> tuple[FloatArray, BoolArray]:
    """D S for every covariance of a stack, D its standard deviations and S the symmetric root of its correlations.

    Unlike a Cholesky factor it is the same for every order of the coordinates, rows and columns exchanged. Dividing by
    the standard deviations first keeps small variances beside large ones. A matrix that is not positive definite, False
    in the second array, gets the identity. Time about 9 n m^3.

    Parameters
    ----------
    matrices : (..., m, m)    symmetric
    name : str                what an error calls them

    Raises
    ------
    NotPositiveDefiniteError   LAPACK's iteration did not converge
    """
    m = matrices.shape[-1]
    variances = matrices.diagonal(axis1=-2, axis2=-1)
    good: BoolArray = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)) & (variances > 0.0).all(axis=-1))
    sd = np.sqrt(np.where(good[..., None], variances, 1.0))
    safe = np.where(good[..., None, None], matrices, np.eye(m))
    values, vectors = spectrum(safe / (sd[..., :, None] * sd[..., None, :]), name)
    good &= values[..., 0] > 0.0
    half = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    roots = sd[..., :, None] * (half @ np.swapaxes(vectors, -1, -2))
    roots[~good] = np.eye(m)
    return roots, good


def cholesky_of_all(matrices: FloatArray, name: str, remedy: str) -> FloatArray:
    """`stacked_cholesky` where every matrix must have a factor: the error names the first that has none.

    Parameters
    ----------
    matrices : (..., m, m)   symmetric, finite
    name : str               what an error calls them
    remedy : str             what to change if one is not positive definite

    Raises
    ------
    NotPositiveDefiniteError   names matrix, place in the stack, size, smallest eigenvalue and the remedy
    """
    lower, good = stacked_cholesky(matrices)
    if not good.all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        label = f"{name}[{', '.join(map(str, place))}]" if place else name
        one = matrices[place]
        _check_finite(one, label)
        size = one.shape[0]
        raise NotPositiveDefiniteError(
            f"{label} ({size}, {size}): found smallest eigenvalue {_ends(one)[0]:.3g} and no Cholesky "
            f"factor, expected a positive definite matrix; {remedy}"
        )
    return lower


def factorise_any(matrix: FloatArray, name: str, remedy: str) -> FloatArray:
    """`cholesky` for a matrix whose eigenvalues have a lower bound in theory: any factor that exists is taken.

    Its condition is not looked at. Time m^3/3.

    Parameters
    ----------
    matrix : (m, m)   symmetric; only the lower triangle is read
    name : str        what an error calls it
    remedy : str      what to change if it has no factor

    Raises
    ------
    NotPositiveDefiniteError   names matrix, size, smallest eigenvalue and the remedy
    """
    factor, info = dpotrf(matrix, lower=True)
    return factor if _succeeded(factor, info) else cholesky(matrix, name, remedy)


def factorise_in_place(matrix: FloatArray) -> FloatArray | None:
    """Lower Cholesky factor, written over the matrix. None if there is no factor.

    What is left of the matrix then is of no use: build it again and let `cholesky` word the error. Time m^3/3.

    Parameters
    ----------
    matrix : (m, m)   symmetric, Fortran order
    """
    factor, info = dpotrf(matrix, lower=True, overwrite_a=True)
    return factor if _succeeded(factor, info) else None


def _succeeded(factor: FloatArray, info: int) -> bool:
    """LAPACK's info is 0 for a matrix with NaN in it, too."""
    return info == 0 and math.isfinite(factor.diagonal().sum())


def reciprocal_condition(factor: FloatArray) -> float:
    """LAPACK's estimate of 1 / (|R|_1 |R^-1|_1); 0 for a singular one. Time m^2.

    Parameters
    ----------
    factor : (m, m)     R, lower triangular
    """
    return float(dtrcon(factor, uplo="L")[0])


def invert_lower(factor: FloatArray, *, overwrite: bool = False) -> FloatArray:
    """R^-1, lower triangular like R. Time m^3/3.

    Parameters
    ----------
    factor : (m, m)     lower triangular
    overwrite : bool    write over the factor, which must be in Fortran order

    Raises
    ------
    NotPositiveDefiniteError   a zero on the diagonal
    """
    inverse, info = dtrtri(factor, lower=True, overwrite_c=overwrite)
    if info != 0:
        size = len(factor)
        raise NotPositiveDefiniteError(
            f"Cholesky factor ({size}, {size}): found 0 on its diagonal at row {info - 1}, expected pivots > 0; the "
            "variances have underflowed"
        )
    return inverse


def invert_in_place(factor: FloatArray) -> FloatArray:
    """(R R')^-1 = R^-T R^-1, its lower triangle written over that of R. Time 2 m^3/3, no memory.

    Parameters
    ----------
    factor : (m, m)   lower triangular, Fortran order

    Raises
    ------
    NotPositiveDefiniteError   a zero on the diagonal
    """
    # dlauum's info speaks of arguments only
    return dlauum(invert_lower(factor, overwrite=True), lower=True, overwrite_c=True)[0]


def solve_stack(factors: FloatArray, rhs: FloatArray) -> FloatArray:
    """R^-1 rhs for every matrix of a stack of small factors. Time O(n m^2 (m + k)).

    Parameters
    ----------
    factors : (..., m, m)   lower triangular with a diagonal that is not 0, as Cholesky factors have
    rhs : (..., m, k)

    Raises
    ------
    NotPositiveDefiniteError   a factor is singular
    """
    return solve_square(factors, rhs, "Cholesky factors", "the variances have underflowed")


def solve_square(matrices: FloatArray, rhs: FloatArray, name: str, remedy: str) -> FloatArray:
    """M^-1 rhs for square matrices without symmetry, by LU. Time O(n m^2 (m + k)).

    Parameters
    ----------
    matrices : (..., m, m)
    rhs : (..., m, k)
    name : str        what an error calls the matrices
    remedy : str      what to change if one is singular

    Raises
    ------
    NotPositiveDefiniteError   a matrix is singular
    """
    try:
        return np.asarray(np.linalg.solve(matrices, rhs), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            f"{name} {matrices.shape}: found a zero pivot, expected none; {remedy}"
        ) from None


class Spectrum(NamedTuple):
    """Eigenvalues, ascending, and eigenvectors as columns."""

    values: FloatArray  # (..., m)
    vectors: FloatArray  # (..., m, m)


def spectrum(matrices: FloatArray, name: str) -> Spectrum:
    """Eigenvalues and eigenvectors of symmetric matrices. Time about 9 n m^3.

    Parameters
    ----------
    matrices : (..., m, m)   symmetric, finite; only the lower triangles are read
    name : str               what an error calls them

    Raises
    ------
    ValueError                 a value is not finite
    NotPositiveDefiniteError   LAPACK's iteration did not converge
    """
    _check_finite(matrices, name)
    try:
        result = np.linalg.eigh(matrices)
    except np.linalg.LinAlgError:
        raise _unsettled(matrices, name) from None
    return Spectrum(*result)


def eigenvalues(matrices: FloatArray, name: str) -> FloatArray:
    """Eigenvalues of symmetric matrices, ascending: (..., m). Time about 4 n m^3/3.

    Parameters
    ----------
    matrices : (..., m, m)   symmetric, finite; only the lower triangles are read
    name : str               what an error calls them

    Raises
    ------
    ValueError                 a value is not finite
    NotPositiveDefiniteError   LAPACK's iteration did not converge
    """
    _check_finite(matrices, name)
    try:
        return np.asarray(np.linalg.eigvalsh(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise _unsettled(matrices, name) from None


def least_squares(table: FloatArray, wanted: FloatArray, rcond: float) -> FloatArray:
    """x of least length among those that make |table x - wanted| smallest: (k,) or (k, j). Time O(p k^2).

    Parameters
    ----------
    table : (p, k)
    wanted : (p,) or (p, j)
    rcond : float             singular values below this share of the largest count as 0

    Raises
    ------
    ValueError                 a value is not finite
    NotPositiveDefiniteError   LAPACK's iteration did not converge
    """
    _check_finite(table, "differences of past steps")
    _check_finite(wanted, "step")
    try:
        return np.asarray(np.linalg.lstsq(table, wanted, rcond=rcond)[0], dtype=np.float64)
    except np.linalg.LinAlgError:
        raise _unsettled(table, "differences of past steps") from None


def largest_ritz_value(moved: FloatArray, changed: FloatArray) -> float:
    """Largest real part of the Ritz values of a map's Jacobian, which takes the differences `moved` to moved + changed.

    Parameters
    ----------
    moved, changed : (p, k)   differences of points, and of the map's steps there

    Raises
    ------
    ValueError                 a value is not finite
    NotPositiveDefiniteError   LAPACK's iteration did not converge
    """
    images = least_squares(moved, moved + changed, 1e-8)
    try:
        return float(np.linalg.eigvals(images).real.max())
    except np.linalg.LinAlgError:
        raise _unsettled(images, "Jacobian on past steps") from None


def _check_finite(values: FloatArray, name: str) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: found a value that is not finite, expected finite numbers")


def _unsettled(matrices: FloatArray, name: str) -> NotPositiveDefiniteError:
    return NotPositiveDefiniteError(
        f"{name} {matrices.shape}: found no eigenvalues or singular values within LAPACK's iterations, expected them; "
        "rescale the inputs or the variance"
    )


def solve_rows(factor: FloatArray, rhs: FloatArray, *, transposed: bool = False) -> FloatArray:
    """Solve with a lower triangular factor for every row of the right-hand side, in place.

    Row i of the result is R^-1 rhs_i, or R^-T rhs_i if transposed. Time b m^2, no memory if rhs is C-contiguous.

    Parameters
    ----------
    factor : (m, m)     lower triangular, Fortran order
    rhs : (b, m)        overwritten
    transposed : bool   solve with the transpose of the factor
    """
    return dtrsm(1.0, factor, rhs.T, side=0, lower=True, trans_a=transposed, overwrite_b=True).T


def solve_vector(factor: FloatArray, rhs: FloatArray, *, transposed: bool = False) -> FloatArray:
    """R^-1 rhs, or R^-T rhs if transposed, for one vector; rhs is left alone. Time m^2.

    Parameters
    ----------
    factor : (m, m)     lower triangular
    rhs : (m,)
    transposed : bool   solve with the transpose of the factor
    """
    return dtrsv(factor, rhs, lower=True, trans=transposed)


def squared_norms(rhs: FloatArray) -> FloatArray:
    """Squared length of every row of rhs (b, m): (b,). Time b m."""
    return np.vecdot(rhs, rhs)
