"""How things are timed: interleaved repetitions, the best of each, so that a busy machine disturbs both sides alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

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


def step_seconds(programs: Sequence[Callable[[int], object]], few: int, many: int, repeats: int) -> list[float]:
    """Seconds of a step of each program, which makes as many as it is told: a run of many beyond one of few steps."""
    best = best_of([partial(program, count) for program in programs for count in (few, many)], repeats)
    return [(long - short) / (many - few) for short, long in zip(best[::2], best[1::2], strict=True)]


def again(action: Callable[[], object]) -> Callable[[int], None]:
    """A program whose step is an action."""

    def program(count: int) -> None:
        for _ in range(count):
            action()

    return program


class Clock:
    """A callback of a fit that notes the time of each of its steps."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, progress: Any) -> None:
        """A step is made."""
        self.times.append(time.perf_counter())

    def best(self, count: int, skip: int) -> float:
        """Seconds of a step in the shortest stretch of `count` steps, the first `skip` left out."""
        marks = self.times[skip::count]
        return min(end - begin for begin, end in pairwise(marks)) / count
