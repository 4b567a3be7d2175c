"""X and y as people hand them in: what is missing, mixed or out of range is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fast.core.checks import shown
from fast.core.types import FloatArray, IntArray

_SPREAD = 1e-300, 1e300  # of a column: beyond them 1/l and x/l leave the range of floats
_TEXT, _NUMBERS = "text", "numbers"


def _is_missing(value: Any) -> bool:
    """Whether it stands for no value: None, NaN, NaT, or what compares to neither True nor False, as pandas.NA."""
    if value is None:
        return True
    differs = value != value
    if isinstance(differs, np.ndarray):  # a list or an array in the place of a value
        return False
    try:
        return bool(differs)
    except TypeError:
        return True


def _first_missing(values: np.ndarray[Any, Any]) -> int:
    """Place of the first missing one of objects, -1 if there is none."""
    return next((i for i, value in enumerate(values.flat) if _is_missing(value)), -1)


def _kind(value: Any) -> str:
    """What sort of label it is; a label of another sort goes by the name of its type."""
    if isinstance(value, str):
        return _TEXT
    if isinstance(value, (bool, np.bool_)):
        return "flags"
    return _NUMBERS if isinstance(value, (int, float, np.integer, np.floating)) else f"type {type(value).__name__}"


def labels(name: str, given: Any) -> Any:
    """Labels of one sort, none of them missing, as an array where they came as a list or as objects.

    Parameters
    ----------
    name : str    of the argument
    given         (n,) or (n, 1) of any kind; None and what is no list stay as they are, scikit-learn refuses them
    """
    if given is None or isinstance(given, str) or not hasattr(given, "__len__"):
        return given
    if np.ma.is_masked(given):
        raise ValueError(f"{name}: found masked labels, expected a label for every row")
    plain = isinstance(given, (list, tuple))
    try:
        # NumPy would turn a list of numbers and text into text
        array = np.array(given, dtype=object) if plain else np.asarray(given)
    except ValueError:  # sequences of some shapes in a list
        array = np.empty(len(given), dtype=object)
        array[:] = list(given)
    kind = array.dtype.kind
    if kind == "c":
        raise ValueError(f"{name}: found complex numbers, expected labels of one sort: Complex data not supported")
    if array.size == 0 or array.ndim == 0 or kind not in "fMOT":
        return given
    if kind in "OT":
        array = array.astype(object)
        place = _first_missing(array)
    else:
        missing = np.isnan(array) if kind == "f" else np.isnat(array)
        place = int(np.argmax(missing)) if missing.any() else -1
    if place >= 0:
        raise ValueError(
            f"{name}: found a missing label ({array.flat[place]}) in row {place}, expected a label for every row"
        )
    return given if array.dtype != object else _of_one_sort(name, array)


def _of_one_sort(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Objects, none of them missing, as an array of text, of numbers or of flags; rows of lists stay objects."""
    kinds = list(dict.fromkeys(map(_kind, array.flat)))
    expected = "expected labels of one sort: text, numbers or flags"
    if len(kinds) > 1:
        raise ValueError(f"{name}: found {' and '.join(kinds)}, {expected}")
    if kinds[0].startswith("type "):
        raise ValueError(f"{name}: found labels of {kinds[0]}, such as {shown(array.flat[0])}, {expected}")
    if kinds[0] == _TEXT:
        return array
    result = np.array(array.tolist())
    if result.dtype == object:
        raise ValueError(f"{name}: found integers beyond 64 bits, {expected}")
    return result


@contextmanager
def of_y() -> Iterator[None]:
    """Errors of scikit-learn's checks of labels inside are ValueErrors that name y."""
    try:
        yield
    except (ValueError, TypeError) as error:
        text = str(error)
        raise ValueError(text if text.startswith("y") else f"y: {text}") from error


@contextmanager
def of_X(X: Any) -> Iterator[None]:
    """Errors of scikit-learn's checks of X, or of X and y, inside name it where they do not by themselves.

    Column names of a table that appear twice are refused before.
    """
    names = getattr(X, "columns", None)
    if names is not None:
        listed = list(names)
        doubled = [name for name in dict.fromkeys(listed) if listed.count(name) > 1]
        if doubled:
            raise ValueError(f"X: found several columns of the names {doubled}, expected a name for each column")
    if np.ma.is_masked(X):
        raise ValueError("X: found masked values, expected a value in every row and column")
    try:
        yield
    except ValueError as error:
        text = str(error)
        if text.startswith("Complex data not supported"):  # scikit-learn asks for these words
            raise ValueError("X: found complex numbers, expected real ones: Complex data not supported") from error
        if re.search(r"\b[Xy]\b", text):
            raise
        raise ValueError(f"X{', y' if 'inconsistent' in text else ''}: {text}") from error
    except OverflowError as error:
        raise ValueError("X: found an integer beyond the range of floats, expected numbers up to 1e300") from error
    except TypeError as error:
        array = np.asarray(X, dtype=object)
        place = _first_missing(array) if array.ndim == 2 else -1
        if place < 0:
            raise
        at = " column ".join(map(str, np.unravel_index(place, array.shape)))
        raise ValueError(f"X: found a missing value in row {at}, expected numbers") from error


def check_spread(lengthscales: FloatArray, columns: IntArray) -> FloatArray:
    """Typical lengthscales of X, refused where the arithmetic of kernels would leave the range of floats.

    Parameters
    ----------
    lengthscales : (k,)    median distances of rows
    columns : (k,)         of X, that these are of
    """
    outside = ~((lengthscales >= _SPREAD[0]) & (lengthscales <= _SPREAD[1]))
    if outside.any():
        j = int(np.argmax(outside))
        raise ValueError(
            f"X: found rows some {lengthscales[j]:.3g} apart in column {columns[j]}, expected {_SPREAD[0]:g} to "
            f"{_SPREAD[1]:g}: scale the column"
        )
    return lengthscales
