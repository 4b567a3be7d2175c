"""Anderson mixing (1965, type II) of a fixed-point iteration x <- x + G(x): proposals, guarded by who takes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fast.core.linalg import largest_ritz_value, least_squares
from fast.core.types import FloatArray


class Mixing:
    """The last differences of points and of G, all as vectors. Memory 2 memory p."""

    def __init__(self, memory: int = 8) -> None:
        self.memory = memory
        self._moved: list[FloatArray] = []
        self._changed: list[FloatArray] = []

    def clear(self) -> None:
        """Forget what was seen."""
        self._moved.clear()
        self._changed.clear()

    def learn(self, moved: FloatArray, changed: FloatArray) -> None:
        """Take in one step.

        Parameters
        ----------
        moved : (p,)      difference of two points
        changed : (p,)    difference of G there
        """
        self._moved.append(moved)
        self._changed.append(changed)
        del self._moved[: -self.memory], self._changed[: -self.memory]

    def rate(self, measure: Callable[[FloatArray], FloatArray]) -> float:
        """Largest Ritz value of x + G(x) on the steps that are remembered: the slowest contraction seen; 0 before two.

        Parameters
        ----------
        measure : callable    (p,) to coordinates in which least squares means something; linear
        """
        if len(self._moved) < 2:
            return 0.0
        tables = [np.column_stack([measure(part) for part in parts]) for parts in (self._moved, self._changed)]
        return max(0.0, largest_ritz_value(*tables))

    def step(
        self, gap: FloatArray, measure: Callable[[FloatArray], FloatArray], damping: float = 1.0
    ) -> FloatArray | None:
        """What to add to the point: damping G less the part that past differences explain; None before the first.

        Parameters
        ----------
        gap : (p,)            G
        measure : callable    (p,) to coordinates in which least squares means something; linear
        damping : float       in (0, 1]
        """
        if not self._moved:
            return None
        table = np.column_stack([measure(part) for part in self._changed])
        mix = least_squares(table, measure(gap), 1e-10)
        step = damping * gap
        for weight, moved, changed in zip(mix, self._moved, self._changed, strict=True):
            step -= weight * (moved + damping * changed)
        return step
