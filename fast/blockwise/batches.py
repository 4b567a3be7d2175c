"""Data for methods on batches whose rows live with workers: batches are asked for by the numbers of their rows.

What `fit` of a method on batches is given are arrays to it: the rows of a batch come in the order of its list, whatever
the leaves are, so its digits are those of the array path. A step moves b (d + 1) numbers, and is made by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fast.blockwise.classes import checked_leaf
from fast.blockwise.engines import Spread, engine
from fast.blockwise.rows import Leaf, Rows
from fast.core import inputs
from fast.core.by_rows import ByRows
from fast.core.checks import shown
from fast.core.types import IntArray
from fast.core.values import Data


class _Rows(NamedTuple):
    """Some rows in the order in which they were asked for."""

    X: Any  # (b, d)
    y: Any  # (b,)


class _Asked:
    """Rows from wherever they live; a batch is asked for once, for its inputs and for its labels."""

    def __init__(self, leaves: Spread, rows: Rows) -> None:
        self.leaves, self.n, self.d = leaves, rows.n, rows.d
        self._last: tuple[IntArray, _Rows] | None = None

    def numbers(self, rows: Any) -> IntArray:
        """Numbers of rows."""
        if isinstance(rows, slice):
            return np.arange(*rows.indices(self.n))
        wanted = np.asarray(rows)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            raise TypeError(f"rows: found {shown(rows)}, expected a slice or a list of numbers")
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < self.n):
            raise IndexError(f"rows: found {wanted.min()} to {wanted.max()}, expected 0 to {self.n - 1}")
        return wanted.astype(np.int64)

    def both(self, wanted: IntArray) -> _Rows:
        """Inputs and labels."""
        if self._last is None or not np.array_equal(self._last[0], wanted):
            X, y = np.empty((wanted.size, self.d)), np.empty(wanted.size, dtype=np.int64)
            for at, (some_X, some_y) in self.leaves.taken(wanted) if wanted.size else ():
                X[at], y[at] = some_X, some_y
            self._last = wanted, _Rows(X, y)
        return self._last[1]


class _Inputs(ByRows):
    def __init__(self, asked: _Asked) -> None:
        super().__init__((asked.n, asked.d), np.float64)
        self._asked = asked

    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        return np.array(self._asked.both(self._asked.numbers(rows)).X)


class _Labels(ByRows):
    def __init__(self, asked: _Asked) -> None:
        super().__init__((asked.n,), np.int64)
        self._asked = asked

    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        wanted = self._asked.numbers(rows)
        if isinstance(rows, slice):  # all labels may be read in turn, and their inputs need not come with them
            y = np.empty(wanted.size, dtype=np.int64)
            for at, some in self._asked.leaves.taken(wanted, labels=True) if wanted.size else ():
                y[at] = some
            return y
        return np.array(self._asked.both(wanted).y)


def _look(leaf: Leaf, *, n_classes: int) -> Leaf:
    X, y = checked_leaf(leaf, n_classes)
    return Leaf(leaf.first, leaf.size, X, y)


@contextmanager
def batches_from(rows: Rows, n_classes: int = 2, *, client: Any = None) -> Iterator[Data]:
    """Data for a method on batches; rows are looked at once, where they live, and stay there.

    Parameters
    ----------
    rows : Rows        from `fast.blockwise.rows.rows_of`, labels 0 .. C - 1
    n_classes : int    C
    client             a dask.distributed.Client; None: this process. The digits are the same

    Raises
    ------
    ValueError            bad input, by name and row
    ClusterLostError      the scheduler is lost
    """
    C = inputs.count("n_classes", n_classes)
    leaves = engine(rows, partial(_look, n_classes=C), client)
    leaves.check()  # a bad row is said now, not in the step that meets it
    asked = _Asked(leaves, rows)
    yield Data(_Inputs(asked), _Labels(asked), C)
