"""Anderson's mixing (1965) of a fixed-point iteration: the combination of its last steps that moves least."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from reference.common.algebra import least_squares

Array = NDArray[np.float64]


class Mixing:
    """Places x and the moves r(x) that a plain step would make there; proposals need a guard."""

    def __init__(self, memory: int, cutoff: float) -> None:
        """How many places are kept, and the relative size below which directions of the least squares are dropped."""
        self._memory, self._cutoff = memory, cutoff
        self._places: list[Array] = []
        self._moves: list[Array] = []

    def learn(self, place: Array, move: Array) -> None:
        """Take in one more place (p,) and the move (p,) there."""
        self._places.append(place)
        self._moves.append(move)
        self.forget(self._memory)

    def forget(self, kept: int) -> None:
        """Keep so many of the last places, at least one."""
        del self._places[:-kept], self._moves[:-kept]

    def propose(self, rate: float = 1.0, measure: Callable[[Array], Array] = lambda move: move) -> Array | None:
        """Where the combination of places, each with `rate` of its move, leads; None before the second place.

        Parameters
        ----------
        rate : float            of the moves, in (0, 1]
        measure : callable      move (p,) to coordinates in which its length means something; linear
        """
        if len(self._places) < 2:
            return None
        by_place, by_move = np.diff(self._places, axis=0), np.diff(self._moves, axis=0)
        table = np.array([measure(each) for each in by_move]).T
        weights = least_squares(table, measure(self._moves[-1]), self._cutoff, "differences of moves")
        return self._places[-1] + rate * self._moves[-1] - weights @ (by_place + rate * by_move)
