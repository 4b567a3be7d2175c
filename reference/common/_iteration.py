"""When an iteration that converges linearly has arrived: distances from changes and their ratios."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def change(new: Array, old: Array, floor: float = 0.0) -> float:
    """Largest change of an entry, relative to the largest entry of the array or to the floor."""
    scale = max(float(np.max(np.abs(new))), floor)
    return float(np.max(np.abs(new - old))) / scale if scale > 0.0 else 0.0


class Arrival:
    """Estimates the distance to a fixed point as r max(1, ρ/(1 - ρ)), r the last change and ρ the contraction.

    ρ is the largest ratio of successive changes within the last five, held once changes are below 1e-9 or no longer
    fall, where rounding would blur it.
    """

    def __init__(self, tolerance: float) -> None:
        """Nothing seen yet."""
        self.tolerance = tolerance
        self.changes: list[float] = []
        self.rho = self.residual = np.inf

    @property
    def converged(self) -> bool:
        """Whether the distance is below the tolerance."""
        return bool(self.residual < self.tolerance)

    @property
    def stalled(self) -> bool:
        """Whether 200 iterations brought no smaller change: only rounding moves the iterates."""
        observed = self.changes
        return len(observed) > 200 and min(observed[-200:]) >= min(observed[:-200])

    def reason(self, iterations: int) -> str:
        """Why it has not converged after this number of iterations."""
        if self.stalled:
            return f"200 iterations brought no change below {min(self.changes):.1e}, expected less: take shorter steps"
        if np.isinf(self.residual):
            return f"no contraction in {iterations} iterations, so that the distance is unknown: raise max_iterations"
        return (
            f"the distance is {self.residual:.1e} after {iterations} iterations, expected below {self.tolerance:.0e}: "
            "raise max_iterations"
        )

    def see(self, moved: float) -> None:
        """Take in the change of one more iteration."""
        self.changes.append(moved)
        self.rho = self._contraction()
        if moved == 0.0:
            self.residual = 0.0
        else:
            self.residual = moved * max(1.0, self.rho / (1.0 - self.rho)) if self.rho < 1.0 else np.inf

    def _contraction(self) -> float:
        observed = self.changes
        if len(observed) < 3:
            return np.inf
        if observed[-1] == 0.0:
            return 0.0
        if max(observed[-3:]) < 1e-14:
            return 0.5  # there at once: what moves is rounding and says nothing of a contraction
        largest = max(after / before for before, after in pairwise(observed[-6:]) if before > 0.0)
        if largest >= 1.0 and not self.rho < 1.0 and max(observed[-3:]) < 1e-12:
            return 0.5  # the same where a mean is measured against a share of what it might be
        return self.rho if self.rho < 1.0 and (observed[-1] < 1e-9 or largest >= 1.0) else largest
