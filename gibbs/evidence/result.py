"""What an estimator of log Z returns, and how islands of particles are worked apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
