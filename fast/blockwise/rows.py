"""Training data in leaves of consecutive rows: lists of arrays or memory maps, dask.array, dask.dataframe.

The leaves decide the digits, not who adds them. A memory map is known to workers by its file, never by its content.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core import inputs

LEAF = 8192  # rows of a leaf that is cut from an array or a memory map


@dataclass(frozen=True)
class Mapped:
    """Consecutive rows of a memory map, by its file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    start: int
    stop: int

    @classmethod
    def of(cls, name: str, array: np.memmap[Any, Any], start: int, stop: int) -> Mapped:
        """Rows of a whole map.

        Parameters
        ----------
        name : str           of the argument, for the message
        array : memmap       C order, and no part of another map
        start, stop : int    rows

        Raises
        ------
        ValueError           for a part of a map, or one in Fortran order
        """
        if not isinstance(array.base, mmap.mmap) or not array.flags.c_contiguous or array.filename is None:
            raise ValueError(f"{name}: found a part of a memory map, expected whole ones in C order")
        return cls(str(array.filename), array.dtype.str, array.shape, int(array.offset), start, stop)

    def read(self) -> np.ndarray[Any, Any]:
        """The rows, as a view of a map that is opened for it.

        Raises
        ------
        OSError    naming the file
        """
        try:
            whole = np.memmap(self.file, dtype=self.dtype, mode="r", shape=self.shape, offset=self.offset)
        except (OSError, ValueError) as error:
            raise OSError(f"{self.file}: found {error}, expected the memory map as the coordinator has it") from error
        return whole[self.start : self.stop]


@dataclass(frozen=True, eq=False)
class Leaf:
    """Consecutive rows: arrays, `Mapped`, or one chunk of a Dask array."""

    first: int  # number of the first row among all
    size: int
    X: Any
    y: Any

    def inputs(self) -> np.ndarray[Any, Any]:
        """Inputs (b, d), where they are."""
        return _read(self.X)

    def labels(self) -> np.ndarray[Any, Any]:
        """Labels (b,)."""
        return _read(self.y)


def _read(part: Any) -> np.ndarray[Any, Any]:
    if isinstance(part, Mapped):
        return part.read()
    return np.asarray(part.compute(scheduler="sync") if hasattr(part, "compute") else part)


@dataclass(frozen=True, eq=False)
class Rows:
    """Data of a batch method; labels may be missing where only inputs are asked for."""

    leaves: tuple[Leaf, ...]
    n: int
    d: int


def rows_of(X: Any, y: Any = None, *, leaf: int = LEAF) -> Rows:
    """Leaves of the data.

    Parameters
    ----------
    X            (n, d): an array, a memory map, a list of them; a dask.array or dask.dataframe, whose chunks are leaves
    y            (n,): of the same kind, cut alike; None: inputs alone
    leaf : int   rows of a leaf that is cut from an array or a map

    Raises
    ------
    ValueError   bad input, by name
    """
    leaf = inputs.count("leaf", leaf)
    if is_dask(X):
        return _of_dask(X, y)
    parts = list(X) if isinstance(X, (list, tuple)) else [X]
    labels: Sequence[Any] = [None] * len(parts)
    if y is not None:
        labels = list(y) if isinstance(y, (list, tuple)) and isinstance(X, (list, tuple)) else [y]
    if not parts or len(labels) != len(parts):
        raise ValueError(f"y: found {len(labels)} parts, expected as many as X has: {len(parts)}, at least one")
    leaves: list[Leaf] = []
    n, columns = 0, None
    for k, (part, mine) in enumerate(zip(parts, labels, strict=True)):
        name = f"X[{k}]" if len(parts) > 1 else "X"
        array = inputs.real_array(name, part, 2)
        columns = array.shape[1] if columns is None else columns
        if array.shape[1] != columns or array.shape[1] == 0:
            raise ValueError(f"{name}: found {array.shape[1]} columns, expected {columns or 'at least one'}")
        if mine is not None and np.shape(mine) != (array.shape[0],):
            raise ValueError(f"y: found shape {np.shape(mine)} beside {name}, expected ({array.shape[0]},)")
        for start in range(0, array.shape[0], leaf):
            stop = min(start + leaf, array.shape[0])
            piece = _piece(name, array, start, stop)
            label = None if mine is None else _piece("y", mine, start, stop)
            leaves.append(Leaf(n + start, stop - start, piece, label))
        n += array.shape[0]
    if not leaves:
        raise ValueError("X: found no row, expected at least one")
    assert columns is not None
    return Rows(tuple(leaves), n, columns)


def _piece(name: str, array: Any, start: int, stop: int) -> Any:
    if isinstance(array, np.memmap):
        return Mapped.of(name, array, start, stop)
    return np.asarray(array)[start:stop]


def is_dask(value: Any) -> bool:
    """Whether it is a collection of Dask, asked without importing Dask.

    Parameters
    ----------
    value    anything
    """
    return hasattr(value, "__dask_graph__") and type(value).__module__.partition(".")[0] in ("dask", "dask_expr")


def _of_dask(X: Any, y: Any) -> Rows:
    X = _array(X)
    if X.ndim != 2 or X.shape[1] == 0:
        raise ValueError(f"X: found shape {X.shape}, expected (n, d)")
    sizes = [int(size) for size in X.chunks[0]]
    X = X.rechunk({1: X.shape[1]})
    blocks = X.to_delayed().ravel().tolist()
    labels: list[Any] = [None] * len(sizes)
    if y is not None:
        if not is_dask(y):
            raise ValueError(f"y: found {type(y).__name__}, expected a collection of Dask as X is")
        y = _array(y)
        if y.shape != (X.shape[0],):
            raise ValueError(f"y: found shape {y.shape}, expected ({X.shape[0]},)")
        labels = y.rechunk((tuple(sizes),)).to_delayed().ravel().tolist()
    firsts = np.concatenate([[0], np.cumsum(sizes)])
    leaves = [
        Leaf(int(first), size, block, label)
        for first, size, block, label in zip(firsts[:-1], sizes, blocks, labels, strict=True)
        if size > 0
    ]
    if not leaves:
        raise ValueError("X: found no row, expected at least one")
    return Rows(tuple(leaves), int(firsts[-1]), int(X.shape[1]))


def _array(value: Any) -> Any:
    """A dask.array with known chunks: of a dataframe, lengths have to be counted first."""
    if hasattr(value, "to_dask_array"):
        return value.to_dask_array(lengths=True)
    if any(math.isnan(size) for axis in value.chunks for size in axis):
        return value.compute_chunk_sizes()
    return value
