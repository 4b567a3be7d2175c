"""Running sums in batches: averages over chains and their errors in a memory that does not grow with the draws.

Each chain has a fixed number of batches; when all are full, neighbours are added together and the batches are twice as
wide from then on. At the end batches are joined until they are many autocorrelation times long, and then taken for
independent: Glynn & Whitt (1991), Flegal & Jones (2010).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from gibbs.core.errors import Array

Sums = dict[str, Array]
_IN_ALL = 256  # batches of all chains together are at least half as many once the chains are long enough
_FEWEST = 16  # per chain
_TIMES = 20.0  # autocorrelation times in a batch: batch means then miss at most a twentieth of a variance
_FEW = 8  # batches in all that are used even if they are shorter than that
_LEVEL = 5e-6  # one-sided level at which a Student t of the batches is read as a normal


class Batches(NamedTuple):
    """Sums over consecutive draws."""

    sums: Sums  # each (r, b, ...)
    widths: Array  # (b,) draws in each batch of one chain

    def means(self, name: str) -> Array:
        """Batch means (r, b, ...) of one quantity; name: which."""
        sums = self.sums[name]
        return sums / self.widths.reshape(1, -1, *(1,) * (sums.ndim - 2))

    def joined(self, n_batches: int) -> Batches:
        """Neighbours added together until n_batches per chain are left, as equal as they can be."""
        starts = np.linspace(0, self.widths.size, min(n_batches, self.widths.size) + 1).astype(int)[:-1]
        sums = {name: np.add.reduceat(value, starts, axis=1) for name, value in self.sums.items()}
        return Batches(sums, np.add.reduceat(self.widths, starts))


class Estimate(NamedTuple):
    """An average and its Monte Carlo standard error."""

    mean: Array
    se: Array


class BatchSums:
    """Sums of draws in batches per chain; the number of batches is fixed, their width doubles when all are full."""

    def __init__(self, n_chains: int) -> None:
        self.capacity = max(_FEWEST, 2 * -(-_IN_ALL // (2 * n_chains)))
        self.width, self.count, self.open_count = 1, 0, 0
        self.full: Sums = {}  # each (capacity, r, ...)
        self.open: Sums = {}  # the batch that is being filled

    @property
    def room(self) -> int:
        """Draws until the open batch is full."""
        return self.width - self.open_count

    def add(self, sums: Mapping[str, Array], n_draws: int) -> None:
        """Add sums (r, ...) over the next n_draws draws, at most `room` of them."""
        if not self.open:
            self.open = {name: np.zeros_like(value) for name, value in sums.items()}
            self.full = {name: np.empty((self.capacity, *value.shape)) for name, value in sums.items()}
        for name, value in sums.items():
            self.open[name] += value
        self.open_count += n_draws
        if self.room > 0:
            return
        for name, value in self.open.items():
            self.full[name][self.count] = value
            value[...] = 0.0
        self.open_count, self.count = 0, self.count + 1
        if self.count == self.capacity:
            middle = self.count // 2
            for value in self.full.values():
                value[:middle] = value[0::2] + value[1::2]
            self.count, self.width = middle, 2 * self.width

    def batches(self, pending: Mapping[str, Array] | None = None, n_pending: int = 0) -> Batches:
        """All sums so far; pending: sums (r, ...) over n_pending further draws. What fills no batch joins the last."""
        names = list(self.open) or list(pending or {})
        sums: Sums = {}
        for name in names:
            rest = self.open.get(name, np.float64(0.0))
            if pending is not None:
                rest = rest + pending[name]
            if self.count:
                sums[name] = np.moveaxis(self.full[name][: self.count], 0, 1).copy()
                sums[name][:, -1] += rest
            else:
                sums[name] = np.asarray(rest, dtype=np.float64)[:, None].copy()
        widths = np.full(max(self.count, 1), float(self.width if self.count else 0))
        widths[-1] += self.open_count + n_pending
        return Batches(sums, widths)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Everything needed to go on later."""
        counts = {"counts": np.array([self.capacity, self.width, self.count, self.open_count])}
        full = {f"full.{name}": value[: self.count] for name, value in self.full.items()}
        return counts | full | {f"open.{name}": value for name, value in self.open.items()}

    def load(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `arrays` gave."""
        self.capacity, self.width, self.count, self.open_count = (int(k) for k in arrays["counts"])
        self.open = {name[5:]: np.array(v, dtype=np.float64) for name, v in arrays.items() if name.startswith("open.")}
        self.full = {name: np.empty((self.capacity, *value.shape)) for name, value in self.open.items()}
        for name, value in self.full.items():
            value[: self.count] = arrays[f"full.{name}"]


def widening(n_batches: int) -> float:
    """By how much an error from n_batches batches is widened so that z reads as normal at a level of 1e-5.

    The quantile of Student's t with one degree of freedom less than batches over the normal one: 1.03 for 128
    batches, 1.2 for 32. Differences of ordinary size then look a little smaller than they are, never larger.
    """
    degrees = max(n_batches - 1, 1)
    return float(-stdtrit(degrees, _LEVEL) / -ndtri(_LEVEL))


def batches_per_chain(n_chains: int, n_draws: int, autocorrelation_time: float) -> int:
    """How many batches to make of each chain so that they pass for independent, as many as that allows.

    n_chains chains of n_draws draws each; autocorrelation_time: in draws, of the slowest quantity. A batch has 20 of
    them, but 8 batches there are in all, whatever the chains.
    """
    least = -(-_FEW // n_chains)
    most = n_draws / (_TIMES * autocorrelation_time) if np.isfinite(autocorrelation_time) else 0.0
    return int(max(least, most))


def batch_average(terms: Array, widths: Array) -> Estimate:
    """Average of terms over chains and batches, and its error from their spread.

    terms (r, b, ...): one mean per batch; widths (b,): draws in each batch. The spread between chains is part of
    that between batches. The error is widened for the number of batches (`widening`).
    """
    r, b = terms.shape[:2]
    w = widths.reshape(1, -1, *(1,) * (terms.ndim - 2)) / (r * widths.sum())
    mean = (w * terms).sum(axis=(0, 1))
    squares = (np.square(w * (terms - mean))).sum(axis=(0, 1))
    se = np.sqrt(squares * (r * b / max(r * b - 1, 1))) * widening(r * b)
    return Estimate(mean, se)


def batch_covariance(means: Array, second_moments: Array, cond_cov: Array, widths: Array) -> Estimate:
    """E[Cov] + Cov[E] from batches, by the law of total covariance.

    means (r, b, ..., p): batch means of conditional means; second_moments (r, b, ..., p, p): of their outer products;
    cond_cov: conditional covariances, constant or batch means, broadcast against second_moments; widths (b,). Each
    batch gives cond_cov + its own second moment about the grand mean; that mean's error enters in second order.
    """
    grand = batch_average(means, widths).mean
    centred = means - grand
    inner = cond_cov + second_moments - means[..., :, None] * means[..., None, :]
    return batch_average(inner + centred[..., :, None] * centred[..., None, :], widths)
