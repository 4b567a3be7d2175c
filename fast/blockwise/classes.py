"""Leaves of data of several classes: checked where they live, projected tile by tile; q on its way as triangles.

Sums of (m, m) statistics and q travel as C (m (m + 1) / 2 + m) numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fast.blockwise.engines import Visit
from fast.blockwise.rows import Leaf
from fast.core import inputs
from fast.core.blocks import block_edges
from fast.core.types import FloatArray, IntArray
from fast.core.values import Prior
from fast.sparse_classes.data import Chunk
from fast.sparse_classes.inference import inducing_classes
from fast.sparse_classes.projections import ClassDistribution, InducingClasses

_TILE = 1024  # rows that are projected at a time


class Seen(NamedTuple):
    """A leaf where it lives: its rows are read, or read again, tile by tile."""

    leaf: Leaf
    X: Any  # (b, d), as the leaf gives it
    y: IntArray  # (b,)
    points: InducingClasses
    sites: FloatArray  # (n_sites, b, C): what visits keep, zero at the start
    target: FloatArray  # likewise, of a step whose length is not known yet

    def tiles(self) -> Iterator[Chunk]:
        """Rows of the leaf, projections and labels. Time O(b m (m + d)) for each distinct kernel."""
        for start, stop in block_edges(self.leaf.size, _TILE):
            part = slice(start, stop)
            view = self.points.view(inputs.finite_rows("X", self.X[part], self.leaf.first + start))
            yield Chunk(part, view, self.y[part])


class StandsFor(NamedTuple):
    """The data of all leaves, as the caller knows them."""

    counts: IntArray  # (C,) data of each class
    n: int
    d: int

    @property
    def n_classes(self) -> int:
        """C."""
        return int(self.counts.size)


class Natural(NamedTuple):
    """Natural parameters of q(v) on their way: lower triangles, row by row, and shifts."""

    packed: FloatArray  # (C, m (m + 1) / 2)
    shift: FloatArray  # (C, m)

    @classmethod
    def of(cls, precision: FloatArray, shift: FloatArray) -> Natural:
        """From symmetric matrices (C, m, m) and shifts (C, m)."""
        return cls(np.array([packed(matrix) for matrix in precision]), shift)

    def matrices(self) -> FloatArray:
        """(C, m, m), symmetric."""
        lower = np.array([unpacked(triangle, self.shift.shape[1]) for triangle in self.packed])
        full: FloatArray = lower + np.tril(lower, -1).transpose(0, 2, 1)
        return np.ascontiguousarray(full)

    def distribution(self) -> ClassDistribution:
        """Factorised. Time C m^3 / 3."""
        return ClassDistribution.of(self.matrices(), self.shift)


def packed(matrix: FloatArray) -> FloatArray:
    """The lower triangle, row by row: (m (m + 1) / 2,).

    Parameters
    ----------
    matrix : (m, m)
    """
    return matrix[_triangle(len(matrix))]


@lru_cache(maxsize=8)  # asked for by every leaf in every sweep
def _triangle(m: int) -> tuple[IntArray, IntArray]:
    return np.tril_indices(m)


def unpacked(triangle: FloatArray, m: int) -> FloatArray:
    """A lower triangle as a matrix, zero above: (m, m).

    Parameters
    ----------
    triangle : (m (m + 1) / 2,)    from `packed`
    m : int                        rows
    """
    matrix = np.zeros((m, m), order="F")
    matrix[_triangle(m)] = triangle
    return matrix


def checked_leaf(leaf: Leaf, n_classes: int) -> tuple[Any, IntArray]:
    """Inputs as the leaf gives them, finite, and labels 0 .. C - 1.

    Parameters
    ----------
    leaf               of the data
    n_classes : int    C

    Raises
    ------
    ValueError    by name, with the number of the row among all
    """
    X, y = leaf.inputs(), leaf.labels()
    if X.shape[0] != leaf.size or y.shape != (leaf.size,):
        raise ValueError(f"X: found {X.shape[0]} rows and {y.shape} labels from row {leaf.first}, expected {leaf.size}")
    if y.dtype.kind not in "iub":
        raise ValueError(f"y: found dtype {y.dtype} from row {leaf.first}, expected integers 0 to {n_classes - 1}")
    codes = np.asarray(y).astype(np.int64)
    wrong = (codes < 0) | (codes >= n_classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"y: found {codes[row]} in row {leaf.first + row}, expected integers 0 to {n_classes - 1}")
    for start, stop in block_edges(leaf.size, _TILE):
        inputs.finite_rows("X", X[start:stop], leaf.first + start)
    return X, codes


def look(leaf: Leaf, *, points: InducingClasses, n_sites: int = 0) -> Seen:
    """A leaf checked, with sites at zero.

    Parameters
    ----------
    leaf             of the data
    points           inducing points
    n_sites : int    numbers that are kept for each datum and class

    Raises
    ------
    ValueError    by name, with the number of the row among all
    """
    X, y = checked_leaf(leaf, points.n_classes)
    sites = np.zeros((n_sites, leaf.size, points.n_classes))
    return Seen(leaf, X, y, points, sites, np.zeros_like(sites))


def count_labels(leaf_data: Seen, ready: object) -> tuple[FloatArray]:
    """Data of each class in a leaf: (C,).

    Parameters
    ----------
    leaf_data    the leaf
    ready        nothing is needed
    """
    return (np.bincount(leaf_data.y, minlength=leaf_data.points.n_classes).astype(np.float64),)


def nothing(state: object) -> None:
    """What labels are counted with.

    Parameters
    ----------
    state    none
    """


COUNT = Visit(nothing, count_labels)


class _Shape(NamedTuple):
    """What the check of a prior asks of data."""

    n_classes: int
    d: int


def checked_points(n_classes: int, n_columns: int, prior: Prior) -> InducingClasses:
    """The prior of C classes checked, and K_ZZ factorised.

    Parameters
    ----------
    n_classes : int    C >= 2
    n_columns : int    inputs, d
    prior : Prior      of C latent functions, with inducing points

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    C = inputs.count("n_classes", n_classes)
    if C < 2:
        raise ValueError(f"n_classes: found {C}, expected at least 2")
    shape: Any = _Shape(C, n_columns)
    return inducing_classes(shape, prior)
