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
        self.moved: list[FloatArray] = []
        self.changed: list[FloatArray] = []

    def clear(self) -> None:
        """Forget what was seen."""
        self.moved.clear()
        self.changed.clear()

    def learn(self, moved: FloatArray, changed: FloatArray) -> None:
        """Take in one step.

        Parameters
        ----------
        moved : (p,)      difference of two points
        changed : (p,)    difference of G there
        """
        self.moved.append(moved)
        self.changed.append(changed)
        del self.moved[: -self.memory], self.changed[: -self.memory]

    def tables(self, measure: Callable[[FloatArray], FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Differences of points and of G as columns, each as it is measured.

        Parameters
        ----------
        measure : callable    (p,) to coordinates in which least squares means something; linear
        """
        moved, changed = (np.column_stack([measure(part) for part in parts]) for parts in (self.moved, self.changed))
        return moved, changed

    def rate(self, measure: Callable[[FloatArray], FloatArray]) -> float:
        """Largest Ritz value of x + G(x) on the steps that are remembered: the slowest contraction seen; 0 before two.

        Parameters
        ----------
        measure : callable    (p,) to coordinates in which least squares means something; linear
        """
        if len(self.moved) < 2:
            return 0.0
        return max(0.0, largest_ritz_value(*self.tables(measure)))

    def step(
        self,
        gap: FloatArray,
        measure: Callable[[FloatArray], FloatArray],
        damping: float = 1.0,
        point: FloatArray | float = 0.0,
    ) -> FloatArray | None:
        """What to add to the point: damping G less the part that past differences explain; None before the first.

        Parameters
        ----------
        gap : (p,)            G
        measure : callable    (p,) to coordinates in which least squares means something; linear
        damping : float       in (0, 1]
        point : (p,)          where it is known, the point that the step leads to is returned
        """
        if not self.moved:
            return None
        mix = least_squares(self.tables(measure)[1], measure(gap), 1e-10)
        step = point + damping * gap
        for weight, moved, changed in zip(mix, self.moved, self.changed, strict=True):
            step -= weight * (moved + damping * changed)
        return step
