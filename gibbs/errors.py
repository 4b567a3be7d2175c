"""Errors of this package and the checks of its inputs: argument, what was found, what was expected."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A covariance without a Cholesky factor; the text names matrix, size, smallest eigenvalue and parameter."""


def _array(name: str, value: ArrayLike, ndim: int) -> Array:
    try:
        array = np.array(value, dtype=np.float64)  # a copy: the caller's array is never written to
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: found {type(value).__name__}, expected numbers") from error
    if array.ndim != ndim:
        raise ValueError(f"{name}: found shape {array.shape}, expected {ndim} axes")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: found {np.count_nonzero(~np.isfinite(array))} entries NaN or infinite, expected 0")
    return array


def _inputs(name: str, value: ArrayLike, d: int | None = None, *, empty: bool = False) -> Array:
    array = _array(name, value, 2)
    if array.shape[1] == 0 or (array.shape[0] == 0 and not empty):
        raise ValueError(f"{name}: found shape {array.shape}, expected at least one row and one column")
    if d is not None and array.shape[1] != d:
        raise ValueError(f"{name}: found {array.shape[1]} columns, expected {d} as in X")
    return array


def _scalar(name: str, value: ArrayLike, *, positive: bool) -> float:
    number = float(_array(name, value, 0))
    if number < 0.0 or (positive and number == 0.0):
        raise ValueError(f"{name}: found {number:.6g}, expected {'> 0' if positive else '>= 0'}")
    return number


def _lengthscales(value: ArrayLike, d: int) -> Array:
    scales = np.atleast_1d(np.array(value, dtype=np.float64))
    if scales.shape != (d,):
        raise ValueError(f"lengthscales: found shape {np.shape(value)}, expected ({d},)")
    if not (np.all(np.isfinite(scales)) and np.all(scales > 0.0)):
        raise ValueError(f"lengthscales: found {scales.tolist()}, expected finite and > 0")
    return scales


def _signs(value: ArrayLike, n: int) -> Array:
    signs = _array("y_sign", value, 1)
    if signs.shape != (n,):
        raise ValueError(f"y_sign: found shape {signs.shape}, expected ({n},)")
    if not np.all(np.abs(signs) == 1.0):
        raise ValueError(f"y_sign: found values {np.unique(signs)[:5].tolist()}, expected -1 and +1 only")
    return signs


def _count(name: str, value: int, least: int) -> int:
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not integer or value < least:
        raise ValueError(f"{name}: found {value!r}, expected an integer >= {least}")
    return int(value)
