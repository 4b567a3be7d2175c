"""Inputs and labels of several classes, read by blocks or by lists of rows; arrays or memory maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.blocks import block_edges, kept_bytes, padded
from fast.core.by_rows import read_when_needed
from fast.core.checkpoint import Digest, digest
from fast.core.hyper import MOST_CLASSES, class_labels
from fast.core.types import FloatArray, IntArray
from fast.sparse_classes.projections import ClassView, InducingClasses

_LABEL_BLOCK = 2**20


class Block(NamedTuple):
    """Consecutive data."""

    part: slice
    view: ClassView
    y: IntArray


class Chunk(NamedTuple):
    """Data of a batch, or consecutive ones."""

    rows: slice | IntArray
    view: ClassView
    y: IntArray


class ClassData:
    """Training data; a memory map stays one, and so do its labels.

    X : (n, d)             real, finite
    y : (n,)               ints 0..C-1
    n_classes              C >= 2
    block_size             data handled at a time
    memory_budget          bytes: projections are kept between passes if they fit; None: an eighth of free memory
    """

    def __init__(
        self, X: Any, y: Any, n_classes: Any, *, block_size: int = 4096, memory_budget: float | None = None
    ) -> None:
        self.n_classes = inputs.count("n_classes", n_classes)
        if self.n_classes > MOST_CLASSES:
            raise ValueError(f"n_classes: found {self.n_classes}, expected at most {MOST_CLASSES}")
        if self.n_classes < 2:
            raise ValueError(f"n_classes: found {n_classes}, expected at least 2")
        self.X = inputs.inputs("X", X)
        self.n, self.d = self.X.shape
        self._mapped = read_when_needed(y)
        self.y = y if self._mapped else class_labels(y, self.n, self.n_classes)
        if self._mapped and y.shape != (self.n,):
            raise ValueError(f"y: found shape {y.shape}, expected ({self.n},)")
        self.counts = np.zeros(self.n_classes, dtype=np.int64)  # data of each class
        for start in range(0, self.n, _LABEL_BLOCK):
            part = class_labels(self.y[start : start + _LABEL_BLOCK], min(_LABEL_BLOCK, self.n - start), self.n_classes)
            self.counts += np.bincount(part, minlength=self.n_classes)
        self.block_size = inputs.count("block_size", block_size)
        if memory_budget is not None:
            memory_budget = inputs.scalar("memory_budget", memory_budget, positive=False)
        self.memory_budget = kept_bytes(memory_budget)
        self._last: tuple[InducingClasses, IntArray, ClassView] | None = None
        self._kept: dict[int, Block] = {}
        self._points: InducingClasses | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Projections can be had again: they are not pickled."""
        return {**self.__dict__, "_last": None, "_kept": {}, "_points": None}

    def labels(self, rows: Any) -> IntArray:
        """Labels of some rows.

        Parameters
        ----------
        rows    slice or indices
        """
        return np.asarray(self.y[rows]).astype(np.int64, copy=False)

    def digests(self) -> dict[str, str]:
        """Digests of all inputs and labels, read once in blocks."""
        y = Digest()
        for start in range(0, self.n, _LABEL_BLOCK):
            y.add(self.labels(slice(start, start + _LABEL_BLOCK)))
        return {"X": digest(self.X), "y": str(y)}

    def take(self, points: InducingClasses, batch: IntArray, *, with_cross: bool = False) -> ClassView:
        """Projections of listed rows, kept until the next ones. Time O(b m (m + d)) a distinct kernel, whatever n is.

        Parameters
        ----------
        points              inducing points
        batch : (b,)        indices
        with_cross : bool   keep k(X, Z)
        """
        last = self._last
        if last is None or last[0] is not points or last[1] is not batch or (with_cross and not last[2].K_XZ):
            last = points, batch, points.view(inputs.finite_rows("X", self.X[batch]), with_cross=with_cross)
            self._last = last
        return last[2]

    def forget(self) -> None:
        """Let go of the projections of the last listed rows, and of the inducing points that they are under."""
        self._last = None

    def chunks(
        self, points: InducingClasses, batch: IntArray | None = None, *, with_cross: bool = False
    ) -> Iterator[Chunk]:
        """Projections and labels of a batch at once, or of all data block by block.

        Parameters
        ----------
        points              inducing points
        batch : (b,)        indices; None: all data
        with_cross : bool   keep k(X, Z)
        """
        if batch is not None:
            yield Chunk(batch, self.take(points, batch, with_cross=with_cross), self.labels(batch))
            return
        for block in self.blocks(points, with_cross=with_cross):
            yield Chunk(*block)

    def keeps(self, points: InducingClasses, arrays: int = 1) -> bool:
        """Whether arrays of n by m numbers a distinct kernel are kept between passes. One holds the projections.

        Parameters
        ----------
        points          inducing points
        arrays : int    2: k(X, Z) is kept beside the projections
        """
        size = 8 * arrays * padded(self.n) * points.m * points.n_kinds
        return size <= self.memory_budget and not read_when_needed(self.X)

    def blocks(self, points: InducingClasses, *, with_cross: bool = False) -> Iterator[Block]:
        """Projections of all data, block by block; kept for the next pass if memory allows, and k(X, Z) if both fit.

        Parameters
        ----------
        points              inducing points
        with_cross : bool   keep k(X, Z)
        """
        keep_cross = self.keeps(points, 2)
        keep = keep_cross or (not with_cross and self.keeps(points))
        if self._points is not points:
            self._kept, self._points = {}, points
        for start, stop in block_edges(self.n, self.block_size):
            result = self._kept.get(start)
            if result is None or (with_cross and not result.view.K_XZ):
                X: FloatArray = inputs.finite_rows("X", self.X[start:stop], start)
                part = slice(start, stop)
                view = points.view(X, with_cross=with_cross or keep_cross, whole_tiles=True)
                result = Block(part, view, self.labels(part))
                if keep:
                    self._kept[start] = result
            yield result
