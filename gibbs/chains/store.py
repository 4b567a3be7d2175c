"""Kept draws under a budget: when it is spent, every second draw is let go and only every second one comes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = dict[str, NDArray[Any]]
_LEAST = 8  # draws per chain that any budget must hold
_ROWS = 256  # rows asked for at first


class ThinnedStore:
    """Draws of all chains, every `every`-th of those offered.

    like: one draw, arrays (r, ...); n_draws: how many may be offered; max_kept_bytes: bound on their memory, in
    which an even number of draws is held where not all fit.
    Raises ValueError if that is too little for eight draws.
    """

    def __init__(self, like: Mapping[str, NDArray[Any]], n_draws: int, max_kept_bytes: int) -> None:
        one = sum(value.nbytes for value in like.values())
        needed = one * min(_LEAST, n_draws)
        if needed > max_kept_bytes:
            raise ValueError(
                f"max_kept_bytes: found {max_kept_bytes}, expected >= {needed} for {min(_LEAST, n_draws)} draws per "
                "chain"
            )
        affordable = max_kept_bytes // max(one, 1)
        self.capacity = n_draws if n_draws <= affordable else affordable - affordable % 2
        self.every, self.count = 1, 0
        self._rows: State = {
            name: np.empty((min(self.capacity, _ROWS), *value.shape), value.dtype) for name, value in like.items()
        }

    def offer(self, number: int, draw: Mapping[str, NDArray[Any]]) -> None:
        """Take in draw `number`, counted from 1, if its turn has come."""
        if number % self.every:
            return
        if self.count == self.capacity:
            self.count //= 2
            self.every *= 2
            for rows in self._rows.values():
                for k in range(self.count):  # draws 2, 4, 6 ... of those held; in place
                    rows[k] = rows[2 * k + 1]
            return  # the count was even: this number is an odd multiple of what `every` was
        for name, rows in self._rows.items():
            if self.count == rows.shape[0]:
                larger = np.empty((min(2 * rows.shape[0], self.capacity), *rows.shape[1:]), rows.dtype)
                larger[: self.count] = rows[: self.count]
                self._rows[name] = larger
        for name, value in draw.items():
            self._rows[name][self.count] = value
        self.count += 1

    def kept(self) -> State:
        """The draws so far, each (r, s, ...)."""
        return {name: np.moveaxis(rows[: self.count], 0, 1) for name, rows in self._rows.items()}

    def arrays(self) -> State:
        """Everything needed to go on later."""
        counts = {"counts": np.array([self.capacity, self.every, self.count])}
        return counts | {f"rows.{name}": rows[: self.count] for name, rows in self._rows.items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `arrays` gave."""
        self.capacity, self.every, self.count = (int(k) for k in arrays["counts"])
        for name in self._rows:
            held = arrays[f"rows.{name}"]
            size = min(self.capacity, max(_ROWS, 2 * self.count))
            self._rows[name] = np.empty((size, *held.shape[1:]), held.dtype)
            self._rows[name][: self.count] = held
