"""Holm's step-down procedure on two-sided z statistics: one level for a whole run, whatever the number of checks.

Holm (1979), A simple sequentially rejective multiple test procedure. The chance that a run without any true
difference turns red is at most the level, under any dependence between the statistics (those of one chain are
strongly dependent).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from validation.door.quoting import shown

# One run in ten thousand turns red by chance; with 10 000 statistics the largest |z| must stay below 5.7.
FAMILY_LEVEL = 1e-4


class Decision(NamedTuple):
    """rejected: flags in the order of the statistics; critical: the |z| above which a statistic is rejected."""

    rejected: NDArray[np.bool_]
    critical: float


def critical_values(count: int, level: float = FAMILY_LEVEL) -> NDArray[np.float64]:
    """(count,) |z| that the largest, second largest, ... statistic must exceed: level/count, level/(count - 1), ..."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level: found {shown(level)}, expected a number in (0, 1)")
    return norm.isf(0.5 * level / np.arange(count, 0, -1))


def holm(z: ArrayLike, level: float = FAMILY_LEVEL) -> Decision:
    """Which statistics differ from a standard normal, family-wise at `level`.

    The largest |z| is rejected if its two-sided p is below level/N, then the next at level/(N - 1), and so on until
    one is not; that one and all smaller ones stand. NaN counts as infinitely large: it is rejected, and first.

    After k rejections every other statistic was held against level/(N - k), so this one |z| separates the two
    groups, and it is what `critical` gives. Without statistics it is infinite.
    """
    size = np.abs(np.asarray(z, dtype=np.float64)).ravel()
    if not size.size:
        return Decision(np.zeros(0, dtype=bool), float("inf"))
    size = np.where(np.isnan(size), np.inf, size)
    thresholds = critical_values(size.size, level)
    above = np.sort(size)[::-1] > thresholds
    count = size.size if above.all() else int(np.argmin(above))  # index of the first that is not above
    critical = float(thresholds[min(count, size.size - 1)])
    return Decision(size > critical, critical)
