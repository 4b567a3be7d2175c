"""When has a run forgotten its start: the chains of successive windows are compared, and the warm-up doubled until
they agree (split R-hat of Gelman et al. 2013; drift between windows in the manner of Geweke 1992).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from gibbs.core.errors import Array

FIRST = 100  # sweeps before the first look; doubled from there
R_HAT = 1.05
DRIFT_LEVEL = 1e-3  # of a look, over all quantities: a false alarm costs a doubling


def _split_r_hat(means: Array, variances: Array, length: int) -> Array:
    """R-hat of equally long pieces of chains: √((length - 1)/length + Var(means)/E[variances]).

    means, variances (pieces, ...); length: draws in a piece. 1 for what never moves and is the same everywhere.
    """
    within, between = variances.mean(axis=0), means.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((within == 0.0) & (between == 0.0), 1.0 / length, between / within)
    return np.sqrt((length - 1.0) / length + ratio)


def _drift_t(first: Array, second: Array) -> Array:
    """Student's t of the change from window to window: first, second (r, ...) are means of each chain in each."""
    change = second - first
    mean, error = change.mean(axis=0), change.std(axis=0, ddof=1) / np.sqrt(change.shape[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((mean == 0.0) & (error == 0.0), 0.0, mean / error)


class Watch:
    """Running sums of what is watched over the third and the last quarter of the warm-up so far.

    After 100, 200, 400 ... sweeps, at most max_warmup, the two quarters are compared: split R-hat of every quantity
    within 1.05, and (four chains or more) no drift at a level of 1e-3. `passed` says how it ended.
    """

    def __init__(self, max_warmup: int) -> None:
        self.max_warmup = max_warmup
        self.end = FIRST
        self.passed = False
        self.sums: dict[str, Array] = {}  # each (2 windows, 2 powers, r, ...)

    def add(self, sweep: int, values: Mapping[str, NDArray[np.generic]]) -> bool:
        """Take in the values (r, ...) after a sweep; True when the warm-up ends with it."""
        if 2 * sweep > self.end:
            window = int(4 * sweep > 3 * self.end)
            for name, value in values.items():
                if name not in self.sums:
                    self.sums[name] = np.zeros((2, 2, *value.shape))
                self.sums[name][window, 0] += value
                self.sums[name][window, 1] += np.square(value)
        if sweep < self.end:
            return False
        self.passed = self._agree(self.end // 4)
        if self.passed or 2 * self.end > self.max_warmup:
            return True
        self.end *= 2
        self.sums = {}
        return False

    def _agree(self, length: int) -> bool:
        columns = max(sum(math.prod(s.shape[3:]) for s in self.sums.values()), 1)  # 0: quantities without entries
        for sums in self.sums.values():
            means = sums[:, 0] / length
            variances = np.maximum(sums[:, 1] / length - np.square(means), 0.0) * (length / (length - 1.0))
            pieces = (2 * means.shape[1], *means.shape[2:])
            # asked so that NaN is no agreement
            if not np.all(_split_r_hat(means.reshape(pieces), variances.reshape(pieces), length) <= R_HAT):
                return False
            r = means.shape[1]
            limit = -stdtrit(r - 1, DRIFT_LEVEL / (2 * columns))
            if r >= 4 and not np.all(np.abs(_drift_t(means[0], means[1])) <= limit):
                return False
        return True

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Everything needed to go on later."""
        marks = {"marks": np.array([self.max_warmup, self.end, int(self.passed)])}
        return marks | {f"sums.{name}": value for name, value in self.sums.items()}

    def load(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `arrays` gave."""
        self.max_warmup, self.end, passed = (int(k) for k in arrays["marks"])
        self.passed = bool(passed)
        self.sums = {name[5:]: np.array(v, dtype=np.float64) for name, v in arrays.items() if name.startswith("sums.")}
