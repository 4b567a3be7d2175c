"""Everything that enters from outside is looked at here, once: argument, what was found, what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fast.core.by_rows import ByRows, read_when_needed
from fast.core.checks import shown
from fast.core.types import FloatArray

_REAL_KINDS = "fiub"  # float, int, unsigned, bool
# theta falls as 1 / sqrt(variance): rounding costs eps sqrt(variance) relative, a standard deviation of a million on
# the scale of the logit leaves nine digits
_LARGEST_PRIOR_VARIANCE = 1e12
_SMALLEST_PRIOR_VARIANCE = 1e-100  # derivatives of log Z divide by it, twice
# rougher is white noise for any two numbers of float64, smoother cannot be told from the squared exponential
_SMOOTHNESS = (1e-2, 500.0)


class Hyper(NamedTuple):
    """Checked parameters of the prior."""

    variance: float
    lengthscales: FloatArray
    noise: float
    jitter: float
    smoothness: float | None = None  # of a Matérn kernel; None: squared exponential


def real_numbers(name: str, value: Any) -> np.ndarray[Any, Any]:
    """An array of real numbers with any axes, not copied (a memmap stays one); long doubles as float64, no memmap's.

    Blocks of a memmap become float64 where they are read, in `finite_rows`.

    Parameters
    ----------
    name : str    of the argument, for the message
    value         what was given
    """
    if hasattr(value, "__dask_graph__"):  # NumPy would load all of it without a word
        raise ValueError(
            f"{name}: found a collection of Dask ({type(value).__name__}), expected an array or a numpy.memmap; "
            "fast.blockwise takes one, for the methods that sum over data"
        )
    try:
        array: Any = value if isinstance(value, (np.ndarray, ByRows)) else np.asarray(value)
    except (ValueError, TypeError, RecursionError) as error:  # rows of different lengths, objects that refuse
        raise ValueError(f"{name}: found no array ({error}), expected real numbers") from error
    if array.dtype.kind not in _REAL_KINDS:
        raise ValueError(f"{name}: found dtype {array.dtype}, expected real numbers")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8 and not read_when_needed(array):
        with np.errstate(over="ignore"):  # a long double beyond float64: infinite, and refused as such
            array = array.astype(np.float64)
    result: np.ndarray[Any, Any] = array  # or what behaves like one
    return result


def real_array(name: str, value: Any, n_axes: int) -> np.ndarray[Any, Any]:
    """An array of real numbers with `n_axes` axes, not copied (a memmap stays one).

    Parameters
    ----------
    name : str      of the argument, for the message
    value           what was given
    n_axes : int    axes it must have
    """
    array = real_numbers(name, value)
    if array.ndim != n_axes:
        raise ValueError(f"{name}: found {array.ndim} axes (shape {array.shape}), expected {n_axes}")
    return array


def finite_rows(name: str, rows: np.ndarray[Any, Any], first: int = 0) -> FloatArray:
    """The rows as a plain float64 array, all finite.

    Parameters
    ----------
    name : str         of the argument, for the message
    rows : (b, ...)    some rows of a larger array
    first : int        number of the first of them there
    """
    with np.errstate(over="ignore"):  # a long double beyond float64: infinite, and refused as such
        block = np.array(rows, dtype=np.float64, order="C", copy=None, subok=False)
    if not np.isfinite(block).all():
        row = first + int(np.argmin(np.isfinite(block).reshape(block.shape[0], -1).all(axis=1)))
        raise ValueError(f"{name}: found a value that is not finite in row {row}, expected finite numbers")
    return block


def inputs(name: str, value: Any, n_columns: int | None = None, *, allow_empty: bool = False) -> np.ndarray[Any, Any]:
    """Inputs (rows, d), finite in every block; returned as float64 unless they are a memmap.

    Parameters
    ----------
    name : str            of the argument, for the message
    value                 what was given
    n_columns : int       how many there must be, d; None: any
    allow_empty : bool    whether there may be no row
    """
    array: Any = real_array(name, value, 2)
    if n_columns is not None and array.shape[1] != n_columns:
        raise ValueError(f"{name}: found {array.shape[1]} columns, expected {n_columns}")
    if array.shape[1] == 0 or (array.shape[0] == 0 and not allow_empty):
        raise ValueError(f"{name}: found shape {array.shape}, expected at least one row and one column")
    if isinstance(array, np.memmap):
        for start in range(0, array.shape[0], 65536):
            finite_rows(name, array[start : start + 65536], start)
    # rows that are elsewhere were found finite by those who have them
    kept: np.ndarray[Any, Any] = array if read_when_needed(array) else finite_rows(name, array)
    return kept


def scalar(name: str, value: Any, *, positive: bool) -> float:
    """A finite number, > 0 or >= 0.

    Parameters
    ----------
    name : str         of the argument, for the message
    value              what was given
    positive : bool    whether zero is refused
    """
    try:
        array = np.asarray(value)
    except (ValueError, RecursionError):  # rows of different lengths
        array = np.empty(0)
    limit = "a finite number > 0" if positive else "a finite number >= 0"
    if array.dtype.kind not in _REAL_KINDS or array.size != 1:
        raise ValueError(f"{name}: found {shown(value)}, expected {limit}")
    number = float(array.reshape(()))
    if not np.isfinite(number) or number < 0.0 or (positive and number == 0.0):
        raise ValueError(f"{name}: found {shown(number)}, expected {limit}")
    return number


def _integer(value: Any) -> bool:
    """Whether it is an integer that an int64 holds, and no flag."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    return whole and abs(int(value)) < 2**63


def count(name: str, value: Any) -> int:
    """An integer >= 1.

    Parameters
    ----------
    name : str    of the argument, for the message
    value         what was given
    """
    if not _integer(value) or value < 1:
        raise ValueError(f"{name}: found {shown(value)}, expected an integer >= 1")
    return int(value)


def whole(name: str, value: Any) -> int:
    """An integer >= 0.

    Parameters
    ----------
    name : str    of the argument, for the message
    value         what was given
    """
    if not _integer(value) or value < 0:
        raise ValueError(f"{name}: found {shown(value)}, expected an integer >= 0")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that Python would take for one of them.

    Parameters
    ----------
    name : str    of the argument, for the message
    value         what was given
    """
    known = isinstance(value, (bool, np.bool_))
    if not known:
        raise ValueError(f"{name}: found {shown(value)}, expected True or False")
    return bool(value)


def share(name: str, value: Any) -> float:
    """A number from 0 to 1: no array of one, no flag.

    Parameters
    ----------
    name : str    of the argument, for the message
    value         what was given
    """
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    if not (number and 0.0 <= value <= 1.0):
        raise ValueError(f"{name}: found {shown(value)}, expected a number from 0 to 1")
    return float(value)


def names(name: str, value: Any) -> tuple[str, ...]:
    """Names as a tuple; one alone stands for itself.

    Parameters
    ----------
    name : str    of the argument, for the message
    value         what was given
    """
    chosen = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(one, str) for one in chosen):
        raise ValueError(f"{name}: found {shown(value)}, expected a name or a tuple of names")
    return chosen


def calls_back(name: str, value: Any) -> Callable[..., Any] | None:
    """Something to call, or None.

    Parameters
    ----------
    name : str    of the argument, for the message
    value         what was given
    """
    if value is not None and not callable(value):
        raise ValueError(f"{name}: found {shown(value)}, expected something to call, or None")
    return value


def hyper(variance: Any, lengthscales: Any, noise: Any, jitter: Any, n_columns: int, smoothness: Any = None) -> Hyper:
    """The parameters of the prior over functions of d inputs, checked.

    Parameters
    ----------
    variance, noise, jitter : float    of the prior
    lengthscales : (d,)                one for each input
    n_columns : int                    inputs, d
    smoothness : float                 order of the Matérn kernel; None: squared exponential
    """
    lengths = real_array("lengthscales", lengthscales, 1)
    if lengths.shape != (n_columns,):
        raise ValueError(f"lengthscales: found shape {lengths.shape}, expected ({n_columns},)")
    lengths = np.array(lengths, dtype=np.float64)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError(f"lengthscales: found {lengths}, expected finite numbers > 0")
    checked = Hyper(
        scalar("variance", variance, positive=True),
        lengths,
        scalar("noise", noise, positive=False),
        scalar("jitter", jitter, positive=False),
        None if smoothness is None else scalar("smoothness", smoothness, positive=True),
    )
    if checked.smoothness is not None and not _SMOOTHNESS[0] <= checked.smoothness <= _SMOOTHNESS[1]:
        raise ValueError(
            f"smoothness: found {shown(checked.smoothness)}, expected {_SMOOTHNESS[0]:g} to {_SMOOTHNESS[1]:g}"
        )
    if checked.variance < _SMALLEST_PRIOR_VARIANCE:
        result = shown(checked.variance)
        raise ValueError(f"variance: found {result}, expected at least {_SMALLEST_PRIOR_VARIANCE:g}")
    for name in ("variance", "noise", "jitter"):
        if getattr(checked, name) > _LARGEST_PRIOR_VARIANCE:
            raise ValueError(
                f"{name}: found {shown(getattr(checked, name))}, expected at most {_LARGEST_PRIOR_VARIANCE:g}"
            )
    return checked


def labels(y: Any, n: int) -> FloatArray:
    """Labels 0, 1 as signs -1.0, +1.0.

    Parameters
    ----------
    y : (n,)    integers 0 and 1
    n : int     how many there must be
    """
    array = real_array("y", y, 1)
    if array.shape != (n,):
        raise ValueError(f"y: found shape {array.shape}, expected ({n},)")
    if array.dtype.kind == "f":
        raise ValueError(f"y: found dtype {array.dtype}, expected integers 0 and 1")
    array = array[:] if isinstance(array, ByRows) else array
    values = np.unique(array)
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"y: found labels {values[:6].tolist()}, expected only 0 and 1")
    return np.where(np.asarray(array) == 1, 1.0, -1.0)


def local(c: Any, n: int, name: str = "initial_c") -> FloatArray:
    """Local parameters: n finite numbers > 0 (the bound is even in c, and 0 is a minimum of it).

    Parameters
    ----------
    c : (n,)      what was given
    n : int       how many there must be
    name : str    of the argument, for the message
    """
    array = real_array(name, c, 1)
    if array.shape != (n,):
        raise ValueError(f"{name}: found shape {array.shape}, expected ({n},)")
    array = np.array(array, dtype=np.float64)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(f"{name}: found a value that is not finite or not positive, expected finite numbers > 0")
    return array


def one_of(name: str, value: object, names: tuple[str, ...]) -> None:
    """Refuse a word that is not among the names.

    Parameters
    ----------
    name : str               of the argument
    value : object           what was given
    names : tuple of str     what may be chosen
    """
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name}: found {shown(value)}, expected one of {', '.join(map(repr, names))}")
