"""Columns of inputs that data can distinguish: training skips those that do not vary, and copies of others.

A copy is an affine function of another column, a x + b with a of either sign, in every row. Both properties hold up to
rounding of the type that the inputs have. Looking for them takes O(n d) time in blocks of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fast.core.by_rows import ByRows
from fast.core.hyperprior import Hyperprior
from fast.core.types import FloatArray, IntArray

_BLOCK = 4096  # rows
_SAMPLE = 1000  # rows by which columns are first compared
_CONSTANT = 1e-12  # half the range of a column over its largest entry, up to which it does not vary
_UNITS = 4.0  # units in the last place by which rounding may move an entry
_SUMS = 1e-12  # rounding of a mean of numbers up to 1
_COARSE = 1e-3  # of the range: columns known no better than this are copies only where they are equal


class Columns(NamedTuple):
    """Which columns count, and how the others follow from them in the rows that were looked at.

    In all these rows x_j = origin_j + slope_j (x_i - origin_i), i the first column of the group of j.
    """

    first: IntArray  # (k,) the first column of each group, ascending
    group: IntArray  # (d,) group of each column, -1 where it does not vary
    slope: FloatArray  # (d,) 0 where a column does not vary, 1 for the first of a group
    origin: FloatArray  # (d,) a row

    @property
    def all_count(self) -> bool:
        """Whether each column varies and none is a copy."""
        return self.first.size == self.group.size

    def chosen(self, rows: Any, *, by_rows: bool = False) -> Any:
        """The columns that count of rows (..., d) in which copies are known to agree, a column of zeros if none does.

        by_rows: read rows when they are needed, for a memory map.
        """
        if self.all_count:
            return rows
        if self.first.size == 0:
            return np.zeros((*rows.shape[:-1], 1))
        return _Chosen(rows, self.first) if by_rows else np.asarray(rows)[..., self.first]

    def of(self, rows: FloatArray) -> FloatArray:
        """The same of any rows (t, d): the mean of copies, in the units of the first, where they may differ."""
        if self.all_count:
            return rows
        result = np.array(self.chosen(rows), dtype=np.float64)
        if self.first.size == 0:
            return result
        first, sizes = result.copy(), self._sizes()
        for j in self._copies():
            g = self.group[j]
            own = self.origin[self.first[g]] + (rows[:, j] - self.origin[j]) / self.slope[j]
            result[:, g] += (own - first[:, g]) / sizes[g]
        return result

    def points(self, chosen: FloatArray) -> FloatArray:
        """All columns of points (..., k) of which those that count are given: (..., d)."""
        if self.all_count:
            return chosen
        result = np.array(np.broadcast_to(self.origin, (*chosen.shape[:-1], self.origin.size)))
        varies = np.flatnonzero(self.group >= 0)
        g = self.group[varies]
        result[..., varies] += self.slope[varies] * (chosen[..., g] - self.origin[self.first[g]])
        result[..., self.first] = chosen[..., : self.first.size]
        return result

    def lengthscales(self, chosen: FloatArray) -> FloatArray:
        """Lengthscales of all columns, (..., d): k copies share 1/l^2, and what does not vary has an infinite one."""
        if self.all_count:
            return chosen
        result = np.full((*chosen.shape[:-1], self.group.size), np.inf)
        varies = np.flatnonzero(self.group >= 0)
        g = self.group[varies]
        result[..., varies] = chosen[..., g] * np.abs(self.slope[varies]) * np.sqrt(self._sizes()[g])
        return result

    def own(self, lengthscales: FloatArray) -> FloatArray:
        """The lengthscales that give those of all columns, (..., d): (..., k)."""
        if self.all_count:
            return lengthscales
        if self.first.size == 0:
            return np.ones((*lengthscales.shape[:-1], 1))
        result: FloatArray = lengthscales[..., self.first] / np.sqrt(self._sizes())
        return result

    def carried(self, lengthscales: FloatArray, to: Columns) -> FloatArray:
        """Lengthscales (..., k) in other columns, of more rows; infinite for one that did not vary before.

        Copies that have parted share the 1/l^2 of their group alike, so that the kernel is what it was in rows in which
        they agree.
        """
        group = self.group[to.first]
        known = group >= 0
        parts = np.bincount(group[known], minlength=max(self.first.size, 1))
        result = np.full((*lengthscales.shape[:-1], to.first.size), np.inf)
        g = group[known]
        result[..., known] = lengthscales[..., g] * np.abs(self.slope[to.first[known]]) * np.sqrt(parts[g])
        return result

    def starts(self, given: FloatArray) -> FloatArray:
        """Lengthscales (d,) that training starts from, of the columns that count: of copies that of the first."""
        if self.all_count:
            return given
        return given[self.first] if self.first.size else np.ones(1)

    def hyperprior(self, given: Hyperprior) -> Hyperprior:
        """A density of all columns' lengthscales as one of those that count."""
        family, df, scale = given.densities.get("lengthscales", ("", 0.0, 1.0))
        if self.all_count or np.ndim(scale) == 0:
            return given
        chosen = tuple(np.asarray(scale)[self.first].tolist()) or 1.0
        return replace(given, densities={**given.densities, "lengthscales": (family, df, chosen)})

    def with_rows(self, rows: FloatArray) -> Columns:
        """Columns of the rows so far and of more of them, (b, d): itself where these tell nothing new."""
        if self.all_count:
            return self
        # entries of a copy are known to the last place of both columns
        first = self.first[self.group] if self.first.size else np.zeros(self.group.size, dtype=np.int64)
        still, eps = self.group < 0, _eps(rows)
        with np.errstate(over="ignore", invalid="ignore"):  # no copy where differences leave the range of floats
            own = self.points(np.asarray(self.chosen(rows), dtype=np.float64))
            size = np.maximum(np.abs(rows).max(axis=0), np.abs(self.origin))
            limit = 2.0 * _UNITS * eps * (size + np.abs(self.slope) * size[first])
            limit[still] = np.maximum(2.0 * _CONSTANT, _UNITS * eps) * size[still]
            same = np.abs(rows - own) <= limit
        same[:, self.first] = True
        if same.all():
            return self
        return _columns_of(np.concatenate([self._basis(), rows]), None, eps)

    def _basis(self) -> FloatArray:
        """Rows (k + 1, d), of which those so far are affine combinations: the origin, and one step of each group."""
        steps = np.zeros((self.first.size + 1, self.group.size))
        varies = np.flatnonzero(self.group >= 0)
        unit = np.maximum(np.abs(self.origin[self.first]), 1.0)
        steps[1 + self.group[varies], varies] = self.slope[varies] * unit[self.group[varies]]
        return self.origin + steps

    def _sizes(self) -> IntArray:
        return np.bincount(self.group[self.group >= 0], minlength=self.first.size)

    def _copies(self) -> IntArray:
        leads = np.zeros(self.group.size, dtype=bool)
        leads[self.first] = True
        return np.flatnonzero((self.group >= 0) & ~leads)


def every_column(n_columns: int) -> Columns:
    """Each column is a group of its own.

    Parameters
    ----------
    n_columns : int
    """
    each = np.arange(n_columns)
    return Columns(each, each, np.ones(n_columns), np.zeros(n_columns))


class _Chosen(ByRows):
    """Columns of rows that are read when they are needed."""

    def __init__(self, array: Any, columns: IntArray) -> None:
        super().__init__((array.shape[0], columns.size), array.dtype)
        self._array, self._columns = array, columns

    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        return np.asarray(self._array[rows])[:, self._columns]


def columns_of(X: Any, Z: FloatArray | None = None) -> Columns:
    """Columns that vary in the rows of X, one of each set of copies. Time O(n d), memory O(d) blocks of rows.

    Parameters
    ----------
    X : (n, d)    real, finite; may be a numpy.memmap
    Z : (m, d)    rows beside them: inducing points that the caller gave
    """
    return _columns_of(X, Z, _eps(X))


def _columns_of(X: Any, more: FloatArray | None, eps: float) -> Columns:
    low, high, ends = _range(X, more)
    size = np.maximum(np.abs(low), np.abs(high))
    reach = 0.5 * high - 0.5 * low  # half the range: the whole may overflow
    varies = reach > np.maximum(_CONSTANT, _UNITS * eps) * size
    reach[~varies] = 1.0
    scale = _Scale(low, reach, _UNITS * eps * size / reach)
    sample = _sample(X, more, ends[varies])
    columns = np.flatnonzero(varies)
    left, lead = columns, np.full(size.size, -1)  # the first column of the group that a column is in
    while left.size:
        # of columns that agree in the sample and not everywhere the first stays, the others are compared again
        found = _everywhere(X, more, _alike(sample, left, scale), scale)
        settled = found[left] >= 0
        lead[left[settled]] = found[left[settled]]
        left = left[~settled]
    first = np.flatnonzero(lead == np.arange(lead.size))
    group, slope = np.full(lead.size, -1), np.zeros(lead.size)
    group[columns] = np.searchsorted(first, lead[columns])
    slope[columns] = _signs(sample, columns, lead, scale) * (reach[columns] / reach[lead[columns]])
    slope[first] = 1.0
    return Columns(first, group, slope, np.asarray(X[0], dtype=np.float64))


class _Scale(NamedTuple):
    """Columns from -1 to 1: (x - low) / reach - 1."""

    low: FloatArray  # (d,)
    reach: FloatArray  # (d,) half the range
    rounding: FloatArray  # (d,) of an entry in these units

    def of(self, rows: FloatArray, columns: IntArray) -> FloatArray:
        """Some columns of rows (b, d)."""
        part = np.asarray(rows[:, columns], dtype=np.float64)
        low, reach = self.low[columns], self.reach[columns]
        return (0.5 * part - 0.5 * low) / (0.5 * reach) - 1.0

    def limit(self, one: Any, other: Any) -> Any:
        """By how much entries of two columns that are copies may differ."""
        limit = self.rounding[one] + self.rounding[other]
        return np.where(limit <= _COARSE, limit, 0.0)


def _eps(X: Any) -> float:
    return float(np.finfo(X.dtype).eps) if X.dtype.kind == "f" else float(np.finfo(np.float64).eps)


def _blocks(X: Any, more: FloatArray | None) -> Iterator[FloatArray]:
    for start in range(0, X.shape[0], _BLOCK):
        yield np.asarray(X[start : start + _BLOCK])
    if more is not None:
        yield more


def _range(X: Any, more: FloatArray | None) -> tuple[FloatArray, FloatArray, IntArray]:
    """Smallest and largest entry of each column, (d,), and their rows, (d, 2)."""
    d = X.shape[1]
    low, high, ends = np.full(d, np.inf), np.full(d, -np.inf), np.zeros((d, 2), dtype=np.int64)
    start = 0
    for block in _blocks(X, more):
        least, most = block.min(axis=0), block.max(axis=0)
        smaller, larger = least < low, most > high
        ends[smaller, 0] = start + block[:, smaller].argmin(axis=0)
        ends[larger, 1] = start + block[:, larger].argmax(axis=0)
        low[smaller], high[larger] = least[smaller], most[larger]
        start += len(block)
    return low, high, ends


def _sample(X: Any, more: FloatArray | None, ends: IntArray) -> FloatArray:
    """Rows at equal distances, those beside them, and those in which columns are smallest and largest."""
    n = X.shape[0]
    even = np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64)
    part = np.asarray(X[np.unique(np.concatenate([even, ends[ends < n]]))], dtype=np.float64)
    return part if more is None else np.concatenate([part, more])


def _alike(sample: FloatArray, left: IntArray, scale: _Scale) -> IntArray:
    """(d,) the first of the columns that each of them agrees with up to sign in the sample.

    One number of each column, a mean of its entries with random weights, says which columns are worth a look.
    """
    found = np.full(scale.low.size, -1)
    entries = scale.of(sample, left)
    weights = np.random.default_rng(0).normal(size=len(entries))
    values = np.abs((weights / np.abs(weights).sum()) @ entries)
    near: list[int] = []  # groups whose number is that of the present column up to rounding
    for k in np.argsort(values, kind="stable"):
        wide = scale.rounding[left[k]] + _SUMS
        near = [i for i in near if values[k] - values[i] <= wide + scale.rounding[left[i]]]
        for i in near:
            gap = min(np.abs(entries[:, k] - entries[:, i]).max(), np.abs(entries[:, k] + entries[:, i]).max())
            if gap <= scale.limit(left[k], left[i]):
                found[left[k]] = left[i]
                break
        else:
            near.append(int(k))
            found[left[k]] = left[k]
    # groups are named by the first of their columns
    for lead in np.unique(found[left]):
        members = left[found[left] == lead]
        found[members] = members.min()
    return found


def _signs(sample: FloatArray, columns: IntArray, lead: IntArray, scale: _Scale) -> FloatArray:
    """1 or -1 for columns that rise or fall with the first of their group."""
    one, other = scale.of(sample, columns), scale.of(sample, lead[columns])
    same, opposite = np.abs(one - other).max(axis=0), np.abs(one + other).max(axis=0)
    return np.where(same <= opposite, 1.0, -1.0)


def _everywhere(X: Any, more: FloatArray | None, found: IntArray, scale: _Scale) -> IntArray:
    """The same with -1 for columns that leave the first of their group in other rows."""
    copies = np.flatnonzero((found >= 0) & (found != np.arange(found.size)))
    if copies.size == 0:
        return found
    limit = scale.limit(copies, found[copies])
    gap = np.zeros((2, copies.size))
    for block in _blocks(X, more):
        one, other = scale.of(block, copies), scale.of(block, found[copies])
        np.maximum(gap[0], np.abs(one - other).max(axis=0), out=gap[0])
        np.maximum(gap[1], np.abs(one + other).max(axis=0), out=gap[1])
    found = found.copy()
    found[copies[gap.min(axis=0) > limit]] = -1
    return found
