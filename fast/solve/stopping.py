"""When a stochastic run is over: the paper's two criteria, and the sign of a run that goes nowhere. wenzel2019, 5.2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fast.ledger import equation
from fast.solve.natural import Moments

_SPAN = 20  # steps that a mean of bound estimates covers
_FALLS = 6  # falling means in a row that count as falling without end


def parameter_change(before: Moments, after: Moments) -> float:
    """Largest change of an entry of mu or Sigma in a step, each relative to max(1, its largest entry after).

    Parameters
    ----------
    before, after    moments of q(u)
    """
    changes = [
        float(np.abs(new - old).max()) / max(1.0, float(np.abs(new).max()))
        for old, new in zip(before, after, strict=True)
    ]
    return max(changes)


@equation("wenzel2019", "u5.2-stop-params")
def converged_parameters(changes: Sequence[float], window: int, stop: float) -> bool:
    """The mean change of the last `window` steps is below the threshold: wenzel2019, section 5.2.

    The paper leaves open what a change of the global parameters is, and the window: here `parameter_change`, 5.

    Parameters
    ----------
    changes : sequence    change in each step, the last ones at the end
    window : int          steps that are averaged
    stop : float          threshold
    """
    return len(changes) >= window and float(np.mean(list(changes)[-window:])) < stop


@equation("wenzel2019", "u5.2-stop-holdout")
def converged_holdout(scores: Sequence[float], window: int = 5, stop: float = 1e-3) -> bool:
    """The mean of the last `window` hold-out scores differs by less than the threshold from that of those before.

    wenzel2019, section 5.2, which leaves open what is compared with what: here two windows that do not overlap.

    Parameters
    ----------
    scores : sequence    negative log-likelihood on held-out data, one an evaluation
    window : int         scores that are averaged
    stop : float         threshold
    """
    if len(scores) < 2 * window:
        return False
    last, before = np.mean(scores[-window:]), np.mean(scores[-2 * window : -window])
    return bool(abs(last - before) < stop)


class Falling:
    """Watches estimates of the bound: means of 20 that fall six times running, to 0.35 nat a datum under the best.

    A bound that n coin tosses would beat by half of log 2 a datum and that only gets worse is no noise of batches.
    """

    def __init__(self, n: int) -> None:
        self._limit = 0.5 * n * float(np.log(2.0))
        self._sum, self._count, self._falls, self._last, self._best = 0.0, 0, 0, -np.inf, -np.inf

    def add(self, estimate: float) -> bool:
        """Take an estimate in; True if the bound has been falling without end."""
        self._sum += estimate
        self._count += 1
        if self._count < _SPAN:
            return False
        mean, self._sum, self._count = self._sum / _SPAN, 0.0, 0
        self._falls = self._falls + 1 if mean < self._last else 0
        self._last, self._best = mean, max(self._best, mean)
        return self._falls >= _FALLS and mean < self._best - self._limit

    def state(self) -> np.ndarray:
        """Numbers from which `restore` continues."""
        return np.array([self._sum, self._count, self._falls, self._last, self._best])

    def restore(self, state: np.ndarray) -> None:
        """Continue where `state` was taken."""
        self._sum, count, falls, self._last, self._best = (float(value) for value in state)
        self._count, self._falls = int(count), int(falls)
