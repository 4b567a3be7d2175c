"""Inverses, solutions and spectra as the papers print them; an error says of which matrix one does not exist."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import NotPositiveDefiniteError

Array = NDArray[np.float64]
REMEDY = "lower variance, or raise noise or jitter"


@contextmanager
def _named(matrix: Array, name: str, what: str) -> Iterator[None]:
    try:
        yield
    except np.linalg.LinAlgError:
        size = f"{name} {np.shape(matrix)}"
        bad = int(np.count_nonzero(~np.isfinite(matrix)))
        if bad:
            raise NotPositiveDefiniteError(
                f"{size}: found {bad} entries not finite, expected {what}; {REMEDY}"
            ) from None
        least = np.min(np.linalg.svd(matrix, compute_uv=False))
        raise NotPositiveDefiniteError(
            f"{size}: found smallest singular value {least:.3g}, expected {what}; {REMEDY}"
        ) from None


def inverted(matrix: Array, name: str) -> Array:
    """M⁻¹ of a matrix (..., m, m).

    Parameters
    ----------
    matrix : (..., m, m)
    name : str      what an error calls it

    Raises
    ------
    NotPositiveDefiniteError    singular: name, size, smallest singular value
    """
    with _named(matrix, name, "a matrix with an inverse"):
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def solution(matrix: Array, rhs: Array, name: str) -> Array:
    """M⁻¹ rhs of a matrix (..., m, m).

    Parameters
    ----------
    matrix : (..., m, m)
    rhs : (m,) or (..., m, k)
    name : str      what an error calls the matrix

    Raises
    ------
    NotPositiveDefiniteError    singular: name, size, smallest singular value
    """
    with _named(matrix, name, "a matrix with an inverse"):
        return np.asarray(np.linalg.solve(matrix, rhs), dtype=np.float64)


def eigenvalues(matrix: Array, name: str) -> Array:
    """Eigenvalues of a symmetric matrix (m, m), ascending.

    Parameters
    ----------
    matrix : (m, m)
    name : str      what an error calls it

    Raises
    ------
    NotPositiveDefiniteError    LAPACK found none: name, size; of a matrix with NaN they may be NaN instead
    """
    with _named(matrix, name, "eigenvalues"):
        return np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)


def eigenvectors(matrix: Array, name: str) -> tuple[Array, Array]:
    """Eigenvalues (m,), ascending, and eigenvectors (m, m), as columns, of a symmetric matrix.

    Parameters
    ----------
    matrix : (m, m)
    name : str      what an error calls it

    Raises
    ------
    NotPositiveDefiniteError    LAPACK found none: name, size; of a matrix with NaN they may be NaN instead
    """
    with _named(matrix, name, "eigenvalues"):
        values, vectors = np.linalg.eigh(matrix)
    return values, vectors
