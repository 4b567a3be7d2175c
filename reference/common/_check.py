"""Checks of what enters at the entry points: argument, what was found, what was expected."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._options import shown

Array = NDArray[np.float64]
_LARGEST = 1e50  # of scales and their inverses: squares of ratios of inputs to them stay in float64


def _regular(value: Any, name: str, expected: str) -> NDArray[Any]:
    """An array of any kind."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RecursionError) as error:  # ragged nested lists, objects that refuse
        raise ValueError(f"{name}: found rows of different lengths, expected {expected}") from error


def array(value: Any, name: str, ndim: int) -> Array:
    """A finite float64 array of the given number of axes, or a ValueError."""
    result = _regular(value, name, f"{ndim} regular axes")
    if result.dtype.kind not in "fiub":
        raise ValueError(f"{name}: found dtype {result.dtype}, expected real numbers")
    with np.errstate(over="ignore"):  # a long double beyond float64 is infinite, and refused below
        result = result.astype(np.float64)
    if result.ndim != ndim:
        raise ValueError(f"{name}: found shape {result.shape}, expected {ndim} axes")
    if not np.all(np.isfinite(result)):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(result))[0])
        raise ValueError(f"{name}: found {result[where]} at {where}, expected finite values")
    if result.size and np.max(np.abs(result)) > _LARGEST**2:
        raise ValueError(f"{name}: found {np.max(np.abs(result)):.6g}, expected at most {_LARGEST**2:g} in size")
    return result


def integers(value: Any, name: str) -> NDArray[Any]:
    """An array of whole numbers with any axes."""
    result = _regular(value, name, "whole numbers")
    if result.dtype.kind not in "iu":
        raise ValueError(f"{name}: found dtype {result.dtype}, expected whole numbers")
    return result


def points(value: Any, name: str, d: int | None = None, allow_empty: bool = False) -> Array:
    """A matrix (any, d) of finite values."""
    result = array(value, name, 2)
    if result.shape[1] == 0 or (result.shape[0] == 0 and not allow_empty):
        raise ValueError(f"{name}: found shape {result.shape}, expected at least one row and one column")
    if d is not None and result.shape[1] != d:
        raise ValueError(f"{name}: found {result.shape[1]} columns, expected {d} as in X")
    return result


def labels(value: Any, n: int) -> Array:
    """Labels (n,), each -1 or +1; one class alone is allowed."""
    result = array(value, "y_sign", 1)
    if result.shape != (n,):
        raise ValueError(f"y_sign: found shape {result.shape}, expected ({n},)")
    if not np.all(np.abs(result) == 1.0):
        wrong = result[np.abs(result) != 1.0][0]
        raise ValueError(f"y_sign: found {wrong:.6g}, expected only -1 and +1")
    return result


def scalar(value: Any, name: str, zero_allowed: bool) -> float:
    """A finite number, positive, or >= 0 where zero is allowed."""
    result = float(array(value, name, 0))
    if result < 0.0 or (result == 0.0 and not zero_allowed):
        raise ValueError(f"{name}: found {result:.6g}, expected {'>= 0' if zero_allowed else '> 0'}")
    return result


def positive_vector(value: Any, name: str, d: int) -> Array:
    """A vector (d,) of positive finite numbers."""
    result = array(value, name, 1)
    if result.shape != (d,):
        raise ValueError(f"{name}: found shape {result.shape}, expected ({d},)")
    if not np.all(result > 0.0):
        raise ValueError(f"{name}: found {np.min(result):.6g}, expected > 0")
    within_range(result, name)
    return result


def within_range(value: Array, name: str) -> None:
    """Refuse a scale whose square, or whose square's inverse, leaves float64 once it meets another one."""
    if not (np.min(value) >= 1.0 / _LARGEST and np.max(value) <= _LARGEST):
        worst = np.max(value) if np.max(value) > _LARGEST else np.min(value)
        raise ValueError(f"{name}: found {worst:.6g}, expected {1.0 / _LARGEST:g} to {_LARGEST:g}")


def count(value: Any, name: str) -> int:
    """A whole number, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 2**63:
        raise ValueError(f"{name}: found {shown(value)}, expected a whole number >= 1")
    return int(value)
