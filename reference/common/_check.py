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
    found = _regular(value, name, f"{ndim} regular axes")
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{name}: found dtype {found.dtype}, expected real numbers")
    with np.errstate(over="ignore"):  # a long double beyond float64 is infinite, and refused below
        found = found.astype(np.float64)
    if found.ndim != ndim:
        raise ValueError(f"{name}: found shape {found.shape}, expected {ndim} axes")
    if not np.all(np.isfinite(found)):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise ValueError(f"{name}: found {found[where]} at {where}, expected finite values")
    if found.size and np.max(np.abs(found)) > _LARGEST**2:
        raise ValueError(f"{name}: found {np.max(np.abs(found)):.6g}, expected at most {_LARGEST**2:g} in size")
    return found


def integers(value: Any, name: str) -> NDArray[Any]:
    """An array of whole numbers with any axes."""
    found = _regular(value, name, "whole numbers")
    if found.dtype.kind not in "iu":
        raise ValueError(f"{name}: found dtype {found.dtype}, expected whole numbers")
    return found


def points(value: Any, name: str, d: int | None = None, allow_empty: bool = False) -> Array:
    """A matrix (any, d) of finite values."""
    found = array(value, name, 2)
    if found.shape[1] == 0 or (found.shape[0] == 0 and not allow_empty):
        raise ValueError(f"{name}: found shape {found.shape}, expected at least one row and one column")
    if d is not None and found.shape[1] != d:
        raise ValueError(f"{name}: found {found.shape[1]} columns, expected {d} as in X")
    return found


def labels(value: Any, n: int) -> Array:
    """Labels (n,), each -1 or +1; one class alone is allowed."""
    found = array(value, "y_sign", 1)
    if found.shape != (n,):
        raise ValueError(f"y_sign: found shape {found.shape}, expected ({n},)")
    if not np.all(np.abs(found) == 1.0):
        wrong = found[np.abs(found) != 1.0][0]
        raise ValueError(f"y_sign: found {wrong:.6g}, expected only -1 and +1")
    return found


def scalar(value: Any, name: str, zero_allowed: bool) -> float:
    """A finite number, positive, or >= 0 where zero is allowed."""
    found = float(array(value, name, 0))
    if found < 0.0 or (found == 0.0 and not zero_allowed):
        raise ValueError(f"{name}: found {found:.6g}, expected {'>= 0' if zero_allowed else '> 0'}")
    return found


def positive_vector(value: Any, name: str, d: int) -> Array:
    """A vector (d,) of positive finite numbers."""
    found = array(value, name, 1)
    if found.shape != (d,):
        raise ValueError(f"{name}: found shape {found.shape}, expected ({d},)")
    if not np.all(found > 0.0):
        raise ValueError(f"{name}: found {np.min(found):.6g}, expected > 0")
    within_range(found, name)
    return found


def within_range(found: Array, name: str) -> None:
    """Refuse a scale whose square, or whose square's inverse, leaves float64 once it meets another one."""
    if not (np.min(found) >= 1.0 / _LARGEST and np.max(found) <= _LARGEST):
        worst = np.max(found) if np.max(found) > _LARGEST else np.min(found)
        raise ValueError(f"{name}: found {worst:.6g}, expected {1.0 / _LARGEST:g} to {_LARGEST:g}")


def count(value: Any, name: str) -> int:
    """A whole number, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 2**63:
        raise ValueError(f"{name}: found {shown(value)}, expected a whole number >= 1")
    return int(value)
