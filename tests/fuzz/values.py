"""What is put in the place of an argument: by name, so that a finding can be read, and built again for each call."""

from __future__ import annotations

import decimal
import fractions
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Maker = Callable[[], Any]


def _recursive() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def _nested(depth: int = 3000) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


SCALARS: dict[str, Maker] = {
    "nan": lambda: np.nan,
    "inf": lambda: np.inf,
    "-inf": lambda: -np.inf,
    "-0.0": lambda: -0.0,
    "0.0": lambda: 0.0,
    "5e-324": lambda: 5e-324,
    "1e-300": lambda: 1e-300,
    "1e-30": lambda: 1e-30,
    "1e-9": lambda: 1e-9,
    "0.5": lambda: 0.5,
    "1 - 1e-16": lambda: 1.0 - 1.2e-16,
    "1.0": lambda: 1.0,
    "1e30": lambda: 1e30,
    "1e308": lambda: 1e308,
    "-1.5": lambda: -1.5,
    "0": lambda: 0,
    "1": lambda: 1,
    "2": lambda: 2,
    "3": lambda: 3,
    "-1": lambda: -1,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "True": lambda: True,
    "False": lambda: False,
    "np.True_": lambda: np.True_,
    "None": lambda: None,
    "longdouble 1e-9": lambda: np.longdouble("1e-9"),
    "longdouble 1e400": lambda: np.longdouble("1e400"),
    "longdouble 1e-400": lambda: np.longdouble("1e-400"),
    "float16 0.1": lambda: np.float16(0.1),
    "float32 0.1": lambda: np.float32(0.1),
    "int8 3": lambda: np.int8(3),
    "uint64 2**63": lambda: np.uint64(2**63),
    "1j": lambda: 1j,
    "complex128": lambda: np.complex128(0.5),
    "Decimal": lambda: decimal.Decimal("0.5"),
    "Fraction": lambda: fractions.Fraction(1, 2),
    "datetime64": lambda: np.datetime64("2000-01-01"),
}

OTHERS: dict[str, Maker] = {
    "''": lambda: "",
    "'text'": lambda: "text",
    "'nan'": lambda: "nan",
    "'1'": lambda: "1",
    "'auto'": lambda: "auto",
    "'a\\0b'": lambda: "a\0b",
    "b'bytes'": lambda: b"bytes",
    "a long text": lambda: "x" * 5000,
    "'no/such/folder/f'": lambda: "no/such/folder/f",
    "'/'": lambda: "/",
    "()": lambda: (),
    "[]": list,
    "[[]]": lambda: [[]],
    "{}": dict,
    "{'a': 1}": lambda: {"a": 1},
    "set()": set,
    "[nan]": lambda: [np.nan],
    "[0.5]": lambda: [0.5],
    "[0]": lambda: [0],
    "[[0]]": lambda: [[0]],
    "[[0, 1], [0]]": lambda: [[0, 1], [0]],
    "[[0], [10**9]]": lambda: [[0], [10**9]],
    "[[-1]]": lambda: [[-1]],
    "[[0.5]]": lambda: [[0.5]],
    "[None]": lambda: [None],
    "['text']": lambda: ["text"],
    "('variance', 'variance')": lambda: ("variance", "variance"),
    "('decay', nan, 1, 1)": lambda: ("decay", np.nan, 1, 1),
    "('decay', 1, 1, 0.5)": lambda: ("decay", 1.0, 1.0, 0.5),
    "0-d array": lambda: np.array(0.5),
    "empty array": lambda: np.zeros(0),
    "(0, 1) array": lambda: np.zeros((0, 1)),
    "(1, 0) array": lambda: np.zeros((1, 0)),
    "(2, 3, 4) array": lambda: np.ones((2, 3, 4)),
    "object array": lambda: np.array([None, "a"], dtype=object),
    "text array": lambda: np.array(["a", "b"]),
    "bool array": lambda: np.array([True, False]),
    "complex array": lambda: np.array([1j, 2.0]),
    "masked array": lambda: np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    "structured array": lambda: np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]),
    "Series": lambda: pd.Series([1.0, 2.0]),
    "DataFrame": lambda: pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
    "generator": lambda: (k for k in range(3)),
    "endless iterator": itertools.count,
    "range(3)": lambda: range(3),
    "object()": object,
    "a lambda": lambda: lambda *_: None,
    "a type": lambda: str,
    "itself": _recursive,
    "deep list": _nested,
}

ANY = SCALARS | OTHERS

_INTERVAL = re.compile(r"([\[(])([^\s,]+), (\S+)([\])])")


def extremes(interval: str) -> list[float]:
    """The least and the largest numbers that an interval such as "(0, 1]" has; of floats, not of counts."""
    bounds = _INTERVAL.search(interval)
    if bounds is None or float(bounds[2]) >= 1.0:  # sizes and counts: what is large takes as long as it says
        return []
    low, high = float(bounds[2]), min(float(bounds[3]), np.finfo(np.float64).max)
    ends = [low if bounds[1] == "[" else float(np.nextafter(low, high))]
    return [*ends, high if bounds[4] == "]" or high > 1e300 else float(np.nextafter(high, low))]


_Array = NDArray[Any]


def _with(array: _Array, value: Any) -> _Array:
    changed = np.array(array, dtype=np.float64)
    if changed.size:
        changed.flat[changed.size // 2] = value
    return changed


# from an array that is right to one that is not, or that is right in another dress
ARRAYS: dict[str, Callable[[_Array], Any]] = {
    "with nan": lambda a: _with(a, np.nan),
    "with inf": lambda a: _with(a, np.inf),
    "with -0.0": lambda a: _with(a, -0.0),
    "with 5e-324": lambda a: _with(a, 5e-324),
    "with 1e308": lambda a: _with(a, 1e308),
    "with -1": lambda a: _with(a, -1.0),
    "times 1e300": lambda a: a * 1e300,
    "times 1e30": lambda a: a * 1e30,
    "times 1e-30": lambda a: a * 1e-30,
    "times 1e5": lambda a: a * 1e5,
    "plus 1e6": lambda a: a + 1e6,
    "plus 1e15": lambda a: a + 1e15,
    "constant": lambda a: np.full_like(a, a.flat[0]) if a.size else a,
    "nearly constant": lambda a: (a.flat[0] if a.size else 0.0) + 1e-12 * a,
    "zeros": np.zeros_like,
    "as list": lambda a: a.tolist(),
    "as DataFrame": lambda a: pd.DataFrame(np.atleast_2d(a)) if a.ndim < 3 else a,
    "as object": lambda a: a.astype(object),
    "as float16": lambda a: a.astype(np.float16),
    "as float32": lambda a: a.astype(np.float32),
    "as longdouble": lambda a: a.astype(np.longdouble),
    "as complex": lambda a: a.astype(np.complex128),
    "as int": lambda a: a.astype(np.int64),
    "as int8": lambda a: a.astype(np.int8),
    "as text": lambda a: a.astype(str),
    "as bool": lambda a: a.astype(bool),
    "masked": lambda a: np.ma.masked_array(a, mask=np.arange(a.size).reshape(a.shape) == 0),
    "masked nowhere": lambda a: np.ma.masked_array(a, mask=False),
    "transposed": lambda a: a.T,
    "with an axis more": lambda a: a[..., None],
    "flat": np.ravel,
    "without rows": lambda a: a[:0],
    "without columns": lambda a: a[..., :0],
    "one row": lambda a: a[:1],
    "one row less": lambda a: a[:-1],
    "twice": lambda a: np.concatenate([a, a]) if a.ndim else a,
    "backwards": lambda a: a[::-1] if a.ndim else a,
    "Fortran": np.asfortranarray,
    "big endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "ragged": lambda a: [[0.0], [0.0, 1.0]],
}

LABELS: dict[str, Callable[[_Array], Any]] = {
    "one class": np.zeros_like,
    "a gap": lambda y: np.where(y == 1, 2, y),
    "negative": lambda y: y - 1,
    "floats": lambda y: y.astype(np.float64),
    "halves": lambda y: y + 0.5,
    "bools": lambda y: y.astype(bool),
    "uint8": lambda y: y.astype(np.uint8),
    "a column": lambda y: y[:, None],
    "text": lambda y: y.astype(str),
    "one row less": lambda y: y[:-1],
    "nothing": lambda y: y[:0],
    "list": lambda y: y.tolist(),
    "object": lambda y: y.astype(object),
    "Series": pd.Series,
    "one of a class": lambda y: np.where(np.arange(len(y)) == 0, 1, 0),
    "large": lambda y: y * 10**12,
    "masked": lambda y: np.ma.masked_array(y, mask=y == 0),
}

# spread over what the float numbers have between too small and too large
HYPER = (1e-60, 1e-30, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6, 1e12, 1e30, 1e60)
