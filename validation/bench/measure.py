"""How things are timed: interleaved repetitions, the best of each, so that a busy machine disturbs both sides alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

MET = {None: "", True: "yes", False: "no"}  # how a row says whether its target was met


class Row(NamedTuple):
    """One measured line.

    target is what was asked for, as text; met is None where nothing was asked for.
    floor lists the calls, with shapes, that the ratio is taken to.
    """

    bench: str
    quantity: str
    value: float
    unit: str
    target: str
    met: bool | None
    floor: tuple[str, ...] = ()


def best_of(actions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Shortest time in seconds of each action; the repetitions alternate between the actions."""
    best = [float("inf")] * len(actions)
    for action in actions:
        action()  # warm: pages touched, code paths compiled by the interpreter
    for _ in range(repeats):
        for k, action in enumerate(actions):
            started = time.perf_counter()
            action()
            best[k] = min(best[k], time.perf_counter() - started)
    return best
