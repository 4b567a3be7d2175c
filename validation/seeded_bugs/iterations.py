"""Bugs that end at the right answer by another way: only the number of iterations tells."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds(checks="discrepancy/{}/iterations")


def _half_a_step(original: Any) -> Any:
    def step(f: Any, *arguments: Any) -> Any:
        return f + 0.5 * (original(f, *arguments) - f)

    return step


def _nothing_mixed(_original: Any) -> Any:
    def step(self: Any, *_: Any, **__: Any) -> None:
        return None

    return step


def _only_the_last(original: Any) -> Any:
    def learn(self: Any, *visits: Any) -> None:
        original(self, *visits)
        del self.moved[:-1]
        del self.changed[:-1]

    return learn


def _never_slow(_original: Any) -> Any:
    def slowest(moves: Any) -> float:
        return float(np.nextafter(1.0, 0.0))

    return slowest


FAULTS: tuple[SeededBug, ...] = (
    _bug(
        "laplace",
        "half-newton-steps",
        "Newton's method goes half of each step, and still finds the mode",
        "reference.riihimaki2013.laplace:laplace_newton_step",
        _half_a_step,
        problems="toy-3-softmax",
    ),
    _bug(
        "gfitc",
        "steps-not-mixed",
        "plain sweeps where steps should be mixed",
        "fast.solve.mixing:Mixing.step",
        _nothing_mixed,
        problems="toy-3-sparse-threshold",
    ),
    _bug(
        "nested-ep",
        "last-visit-only",
        "the mixing of sites remembers its last visit only",
        "fast.solve.site_iteration:_Mixer.visited",
        _only_the_last,
        problems="toy-3",
    ),
    _bug(
        "ep",
        "slowest-factor-one",
        "the slowest factor of the moves is always next to 1, so that no distance is ever small",
        "reference.common._sweeps:_slowest",
        _never_slow,
        problems="toy-3-sparse-threshold",
    ),
)
