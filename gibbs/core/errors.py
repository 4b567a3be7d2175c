"""Errors of this package and the checks of its inputs: argument, what was found, what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gibbs.core.checks import shown

Array = NDArray[np.float64]
_LARGEST = 1e50
_REACH = 1e100  # products of three such numbers are finite


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A covariance without a Cholesky factor; the text names matrix, size, smallest eigenvalue and parameter."""


def _numbers(name: str, value: ArrayLike) -> Array:
    """Real numbers as float64, of any shape."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RecursionError) as error:  # ragged rows, objects that refuse to be arrays
        raise ValueError(f"{name}: found {type(value).__name__}, expected numbers") from error
    if array.dtype.kind not in "fiub":  # text would be read as numbers, complex numbers would lose a part
        raise ValueError(f"{name}: found {type(value).__name__} of dtype {array.dtype}, expected real numbers")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name}: found a masked array with entries missing, expected all of them")
    with np.errstate(over="ignore"):  # a long double beyond float64 is infinite, and refused below
        return np.array(array, dtype=np.float64, subok=False)  # a copy: the caller's array is never written to


def _in_reach(name: str, array: Array) -> Array:
    """The array itself, if squares and products of its entries stay finite."""
    largest = float(np.abs(array).max(initial=0.0))
    if largest > _REACH:
        raise ValueError(f"{name}: found an entry of size {largest:.3g}, expected at most {_REACH:g}")
    return array


def _array(name: str, value: ArrayLike, ndim: int | None) -> Array:
    """Finite numbers with so many axes; None: with any."""
    array = _numbers(name, value)
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name}: found shape {array.shape}, expected {ndim} axes")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: found {np.count_nonzero(~np.isfinite(array))} entries NaN or infinite, expected 0")
    return array


def _reachable(name: str, value: ArrayLike, ndim: int | None) -> Array:
    """Finite numbers with so many axes (None: any), squares and products of which stay finite."""
    return _in_reach(name, _array(name, value, ndim))


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
    _in_range(name, np.array(number))
    return number


def _in_range(name: str, array: Array) -> None:
    """Refuse scales whose squares or ratios leave float64."""
    size = np.abs(array[array != 0.0])
    if size.size and not (size.min() >= 1.0 / _LARGEST and size.max() <= _LARGEST):
        worst = size.max() if size.max() > _LARGEST else size.min()
        raise ValueError(f"{name}: found {worst:.6g}, expected {1.0 / _LARGEST:g} to {_LARGEST:g}")


def _lengthscales(value: ArrayLike, d: int) -> Array:
    scales = np.atleast_1d(_array("lengthscales", value, None))
    _in_range("lengthscales", scales)
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


def _plain(name: str, value: Any) -> NDArray[Any]:
    """The value as an array, whatever its axes; lists in lists of different lengths, or too deep, are refused."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{name}: found rows of different lengths, expected integer labels") from error


def _labels(y: ArrayLike, n: int, n_classes: int) -> NDArray[np.int64]:
    labels = _plain("y", y)
    if labels.shape != (n,):
        raise ValueError(f"y: found shape {labels.shape}, expected ({n},)")
    if not np.issubdtype(labels.dtype, np.integer):  # its extremes are not asked for: text has none
        raise ValueError(f"y: found dtype {labels.dtype}, expected integers 0 to {n_classes - 1}")
    if labels.size and (labels.min() < 0 or labels.max() >= n_classes):
        raise ValueError(f"y: found labels {labels.min()} to {labels.max()}, expected 0 to {n_classes - 1}")
    return labels.astype(np.int64)


def _count(name: str, value: int, least: int) -> int:
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < 2**63
    if not integer or value < least:
        raise ValueError(f"{name}: found {shown(value)}, expected an integer >= {least}")
    return int(value)
