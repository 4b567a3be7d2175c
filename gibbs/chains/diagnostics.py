"""How far a chain can be trusted: effective sample sizes, rank R-hat, Monte Carlo standard errors.

All come from arviz-stats (Vehtari et al. 2021), one column at a time on plain arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import ArrayLike, NDArray

from gibbs.core.errors import Array, _count, _numbers


class Convergence(NamedTuple):
    """Per column of the draws; a column that never moves has NaN throughout and is not trusted."""

    ess_bulk: Array
    ess_tail: Array
    r_hat: Array
    autocorrelation_time: Array  # sweeps per independent draw: r · s · thin / ess_bulk

    def gate(self) -> bool:
        """R-hat <= 1.005, bulk and tail effective size >= 10 000 everywhere (NaN does not pass)."""
        return bool(np.all(self.r_hat <= 1.005) and np.all(self.ess_bulk >= 1e4) and np.all(self.ess_tail >= 1e4))


def _chains(draws: ArrayLike) -> Array:
    # what the samplers hand over may be gigabytes, and needs no copy
    plain = type(draws) is np.ndarray and draws.dtype == np.float64
    array: Array = np.asarray(draws) if plain else _numbers("draws", draws)
    if array.ndim < 2 or array.shape[0] < 1 or array.shape[1] < 4:
        raise ValueError(f"draws: found shape {array.shape}, expected (chains, >= 4 draws, ...)")
    if not np.all(np.isfinite(array)):
        raise ValueError("draws: found NaN or infinite entries, expected 0")
    return array


def convergence(draws: ArrayLike, thin: int = 1) -> Convergence:
    """Bulk and tail effective sample size, rank R-hat and autocorrelation time of draws (r, s, ...).

    thin: sweeps per draw, for the autocorrelation time. Each field has the trailing shape of draws. One chain is split
    in halves by R-hat, which is infinite where no half moves. Raises ValueError for fewer than 4 draws or entries that
    are not finite.
    """
    array, thin = _chains(draws), _count("thin", thin, 1)
    flat = np.ascontiguousarray(np.moveaxis(array.reshape(*array.shape[:2], -1), 2, 0))
    result = np.full((3, flat.shape[0]), np.nan)
    for k, column in enumerate(flat):
        if np.ptp(column) > 0.0:
            result[0, k] = array_stats.ess(column, chain_axis=0, draw_axis=1, method="bulk")
            result[1, k] = array_stats.ess(column, chain_axis=0, draw_axis=1, method="tail", prob=(0.05, 0.95))
            r_hat = array_stats.rhat(column, chain_axis=0, draw_axis=1, method="rank")
            # halves that stand still at different values have no variance within to divide by
            result[2, k] = np.inf if np.isnan(r_hat) else r_hat
    shape = array.shape[2:]
    bulk, tail, r_hat = (row.reshape(shape) for row in result)
    return Convergence(bulk, tail, r_hat, array.shape[0] * array.shape[1] * thin / bulk)


def standard_error(draws: ArrayLike) -> Array:
    """Monte Carlo standard error of the mean of draws (r, s, ...): standard deviation over √effective size.

    Zero for a column that never moves. Raises ValueError as `convergence` does.
    """
    array = _chains(draws)
    flat = np.ascontiguousarray(np.moveaxis(array.reshape(*array.shape[:2], -1), 2, 0))
    error = np.zeros(flat.shape[0])
    for k, column in enumerate(flat):
        if np.ptp(column) > 0.0:
            # squares of large draws overflow: in units of a power of two nothing is rounded
            unit = np.ldexp(1.0, int(np.frexp(np.abs(column).max())[1]) - 1)
            error[k] = unit * array_stats.mcse(column / unit, chain_axis=0, draw_axis=1, method="mean")
    return error.reshape(array.shape[2:])


def variance_influence(draws: ArrayLike, cond_var: ArrayLike) -> NDArray[np.float64]:
    """Terms whose mean is the Rao-Blackwellised variance E[Var(f|ω)] + Var(E[f|ω]).

    draws: conditional means (r, s, ...), or means of batches of them; cond_var: conditional variances, or the total
    variances within the batches, same shape. Each term is cond_var + (draws - grand mean)², so the standard error of
    their mean is that of the variance: the error of the grand mean enters in second order only.
    """
    means = np.asarray(draws, dtype=np.float64)
    return np.asarray(cond_var, dtype=np.float64) + np.square(means - means.mean(axis=(0, 1)))


def chain_movement(draws: ArrayLike) -> Array:
    """(r,) least share, over the entries, of steps between draws (r, s, ...) in which the entry changes."""
    return np.array([np.mean(np.diff(chain, axis=0) != 0.0, axis=0).min() for chain in np.asarray(draws)])


def least_ess(diagnostics: Mapping[str, Convergence]) -> float:
    """The smallest bulk or tail effective size of all diagnostics; 0 where one never moves."""
    least = float(np.min([[q.ess_bulk.min(), q.ess_tail.min()] for q in diagnostics.values()]))  # NaN if one is
    return least if np.isfinite(least) else 0.0


def slowest_time(diagnostics: Mapping[str, Convergence]) -> float:
    """The longest autocorrelation time of all diagnostics, NaN where one never moves."""
    return max((float(np.max(q.autocorrelation_time)) for q in diagnostics.values()), key=lambda t: (np.isnan(t), t))


def long_enough(diagnostics: Mapping[str, Convergence], n_sweeps: int) -> bool:
    """Whether n_sweeps sweeps of each chain are 100 autocorrelation times of all diagnostics."""
    return all(bool(np.all(n_sweeps >= 100.0 * q.autocorrelation_time)) for q in diagnostics.values())
