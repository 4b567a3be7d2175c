"""Where this package factorises matrices, and the only place where it does.

A failure that LAPACK reports, or does not (its info is 0 for a matrix with NaN), becomes a flag of that matrix or a
`NotPositiveDefiniteError` that names it. A stack is (..., n, n); a failure of one matrix is none of its neighbours'.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from gibbs.core.errors import Array, NotPositiveDefiniteError

Flags = NDArray[np.bool_]
REMEDY = "raise noise or jitter, or remove duplicate rows of X (of Z)"


def _lower(stack: Array, good: Flags) -> Array:
    """Factors of stack (k, n, n); where there is none good (k,) becomes False. A half that fails is halved again."""
    try:
        return np.linalg.cholesky(stack).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:  # at least one has none: find out which
        if len(stack) == 1:
            good[0] = False
            return np.full_like(stack, np.nan)
    middle = len(stack) // 2
    return np.concatenate([_lower(stack[part], good[part]) for part in (slice(middle), slice(middle, None))])


def factor(matrix: Array) -> tuple[Array, Flags]:
    """Lower Cholesky factors of matrix (..., n, n) and flags (...,): False, and an identity, where there is none.

    What a matrix is given does not hang on its neighbours. Time O(n³) each, and O(log k) calls per failure among k.
    """
    n = matrix.shape[-1]
    flat = matrix.reshape(math.prod(matrix.shape[:-2]), n, n)
    good: Flags = np.asarray(np.isfinite(flat).all(axis=(1, 2)))
    chol = _lower(flat if good.all() else np.where(good[:, None, None], flat, np.eye(n)), good)
    good &= np.isfinite(np.einsum("kii->ki", chol)).all(axis=1)
    chol[~good] = np.eye(n)
    return chol.reshape(matrix.shape), good.reshape(matrix.shape[:-2])


def cholesky(name: str, matrix: Array, remedy: str) -> Array:
    """Lower Cholesky factors of matrix (..., n, n), all of them.

    Raises NotPositiveDefiniteError with name, place in the stack, size, smallest eigenvalue and the remedy: the
    parameter that would help. ValueError for an entry that is not finite.
    """
    try:
        chol = np.linalg.cholesky(matrix).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        chol = None
    if chol is not None and np.isfinite(np.einsum("...ii->...i", chol)).all():
        return chol
    good = factor(matrix)[1]
    place = tuple(int(i) for i in np.argwhere(~good)[0])
    label = f"{name}[{', '.join(map(str, place))}]" if place else name
    raise _without_factor(label, matrix[place], remedy)


def _without_factor(name: str, matrix: Array, remedy: str) -> ValueError:
    _finite(name, matrix)
    size = float(np.max(np.abs(matrix))) or 1.0  # LAPACK finds no spectrum of entries near the largest float64
    smallest = size * float(np.linalg.eigvalsh(0.5 * (matrix / size + matrix.T / size))[0])
    return NotPositiveDefiniteError(
        f"{name} {matrix.shape}: found smallest eigenvalue {smallest:.3g}, expected > 0; {remedy}"
    )


def _finite(name: str, matrix: Array) -> None:
    bad = np.count_nonzero(~np.isfinite(matrix))
    if bad:
        raise ValueError(f"{name} {matrix.shape}: found {bad} entries NaN or infinite, expected 0")


def factor_over(name: str, matrix: Array, remedy: str) -> Array:
    """Lower Cholesky factor of matrix (n, n), Fortran order, written over its lower triangle: the upper one stays.

    Raises NotPositiveDefiniteError with name and remedy as `cholesky` does.
    """
    diagonal = np.diagonal(matrix).copy()
    chol: Array
    chol, info = dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
    if info != 0 or not np.isfinite(np.diagonal(chol).sum()):
        whole = np.triu(matrix, 1)  # what has not been written to
        raise _without_factor(name, whole + whole.T + np.diag(diagonal), remedy)
    return chol


def solve_factored(chol: Array, rhs: Array) -> Array:
    """(L Lᵀ)⁻¹ rhs for one lower factor chol L (n, n), rhs (n,) or (n, k); the upper triangle is not read."""
    if rhs.size == 0:
        return rhs.copy()
    return np.asarray(dpotrs(chol, rhs, lower=1)[0], dtype=np.float64)  # info speaks of arguments only


def substitute(chol: Array, rhs: Array) -> Array:
    """L⁻¹ rhs for one lower factor chol L (n, n), rhs (n, k); the upper triangle is not read.

    Raises NotPositiveDefiniteError if L has a zero on its diagonal.
    """
    solved, info = dtrtrs(chol, rhs, lower=1)
    if info != 0:
        raise NotPositiveDefiniteError(
            f"Cholesky factor {chol.shape}: found 0 on its diagonal at row {info - 1}, expected pivots > 0; a variance "
            "has underflowed"
        )
    return np.asarray(solved, dtype=np.float64)


def solve(name: str, matrix: Array, rhs: Array, remedy: str) -> Array:
    """matrix⁻¹ rhs by LU: matrix (..., n, n), rhs (..., n, k) or, for one matrix, (n,).

    Raises NotPositiveDefiniteError with the name and the remedy if a matrix is singular.
    """
    try:
        return np.linalg.solve(matrix, rhs).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            f"{name} {matrix.shape}: found a zero pivot, expected a matrix that can be inverted; {remedy}"
        ) from None


def solve_triangles(chol: Array, rhs: Array) -> Array:
    """chol⁻¹ rhs for stacks of triangles with diagonals > 0: chol (..., n, n), rhs (..., n, k)."""
    return solve("Cholesky factors", chol, rhs, "a variance has underflowed")


def invert_triangles(chol: Array) -> Array:
    """chol⁻¹ for stacks of triangles (..., n, n) with diagonals > 0, of matrices with eigenvalues not far below 1.

    Raises NotPositiveDefiniteError if one has a zero on its diagonal.
    """
    try:
        return np.linalg.inv(chol).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            f"Cholesky factors {chol.shape}: found 0 on a diagonal, expected pivots > 0; a variance has underflowed"
        ) from None


def spectrum(name: str, matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues (..., n), ascending, and eigenvectors (..., n, n) as columns of symmetric matrix (..., n, n).

    name: what an error calls it. Raises ValueError for an entry that is not finite, NotPositiveDefiniteError if
    LAPACK's iteration does not settle.
    """
    _finite(name, matrix)
    try:
        values, vectors = np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            f"{name} {matrix.shape}: found no eigenvalues within LAPACK's iterations, expected n; lower variance"
        ) from None
    return values, vectors


def smallest_and_largest(name: str, matrix: Array) -> tuple[float, float]:
    """Extreme eigenvalues of one symmetric matrix (n, n), called name in errors. Raises as `spectrum`."""
    _finite(name, matrix)
    try:
        values = np.linalg.eigvalsh(matrix)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            f"{name} {matrix.shape}: found no eigenvalues within LAPACK's iterations, expected n; lower variance"
        ) from None
    return float(values[0]), float(values[-1])


def contrasts(n_classes: int) -> Array:
    """Orthonormal rows (C - 1, C), each with sum zero. n_classes: C."""
    return np.asarray(scipy.linalg.null_space(np.ones((1, n_classes))).T, dtype=np.float64)
