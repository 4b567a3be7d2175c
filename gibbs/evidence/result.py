"""What an estimator of log Z returns, and how islands of particles are worked apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from gibbs.core.options import Islands

# How islands of particles are worked: like `map`, (function of a module, parts) -> its values in their order. Each
# part has a seed of its own, so the digits depend neither on who works it nor on when.
Workers = Callable[[Callable[[Any], NDArray[np.float64]], Sequence[Any]], Iterable[NDArray[np.float64]]]


class Part(NamedTuple):
    """One island of a round: its seed, what all islands have in common, and how many particles."""

    seed: int
    common: Any
    n_particles: int


def _worked_apart(
    rng: np.random.Generator,
    island: Callable[[Part], NDArray[np.float64]],
    common: Any,
    workers: Workers,
    shape: tuple[int, int],
) -> NDArray[np.float64]:
    """What `island` gives of each of (count, particles), a row each; rng gives their seeds."""
    parts = [Part(int(seed), common, shape[1]) for seed in rng.integers(2**63, size=shape[0])]
    return np.array(list(workers(island, parts)))


class LogEvidence(NamedTuple):
    """log p(y) with every constant."""

    value: float
    standard_error: float
    mean_log: float  # mean of the logs of independent (batch) estimates: below `value` by about half their variance
    bias: float  # estimated bias of `value` itself, as the log of an average; not subtracted
    trusted: bool  # the estimator's own test of its standard error holds
    detail: dict[str, float]


def _errors(log_z: NDArray[np.float64]) -> tuple[float, float]:
    """Relative error of the average of islands, from their spread, and how far they are apart in nats: log_z (k,)."""
    relative = np.exp(log_z - log_z.max())
    error = float(relative.std(ddof=1) / np.sqrt(log_z.size) / relative.mean())
    return error, float(log_z.std(ddof=1))


def _of_islands(log_z: NDArray[np.float64], trusted: bool, detail: dict[str, float]) -> LogEvidence:
    """log of the average of islands, log_z (k,), with the jackknife's bias; trusted and detail as in `LogEvidence`."""
    k = log_z.size
    value = float(logsumexp(log_z) - np.log(k))
    left_out = [logsumexp(np.delete(log_z, i)) - np.log(k - 1) for i in range(k)]
    bias = float((k - 1) * (np.mean(left_out) - value))
    return LogEvidence(value, _errors(log_z)[0], float(log_z.mean()), bias, trusted, detail)


def _of_annealed(
    work: Callable[[int], tuple[NDArray[np.float64], float]],
    options: Islands,
    n_powers: int,
    name: str,
    *,
    least: float = 0.0,
) -> LogEvidence:
    """log Z by islands along a ladder of n_powers, their particles multiplied until the error is met.

    work(size): log Z of islands of so many particles, and a number that `detail` has under name; below least it is not
    trusted. options: n_particles of the first round, max_rounds, target_error.
    """
    size = options.n_particles
    for rounds in range(1, options.max_rounds + 1):
        log_z, value = work(size)
        error, apart = _errors(log_z)
        # the delta method needs islands within about half a nat of each other
        trusted = bool(error <= options.target_error and apart <= 0.5 and value >= least)
        if trusted or rounds == options.max_rounds:
            break
        # the error falls with the root of the particle count; a factor of at most 8 at a time
        size *= int(np.clip(np.ceil(1.3 * (error / options.target_error) ** 2), 2, 8))
    detail = {"island_spread": apart, "n_powers": n_powers - 1.0, "rounds": float(rounds)}
    return _of_islands(log_z, trusted, {**detail, "n_particles": float(size * options.n_islands), name: value})
