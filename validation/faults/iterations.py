"""Faults that end at the right answer by another way: only the number of iterations tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from validation.selftest import Fault


def _fault(
    method: str, witness: str, name: str, description: str, target: str, make: Callable[[Any], Any], problem: str
) -> Fault:
    checks = (f"discrepancy/{method}/iterations",)
    return Fault(f"{method}/{name}", witness, method, description, (target,), make, (problem,), checks)


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


FAULTS: tuple[Fault, ...] = (
    _fault(
        "laplace",
        "reference",
        "half-newton-steps",
        "Newton's method goes half of each step, and still finds the mode",
        "reference.riihimaki2013.laplace:laplace_newton_step",
        _half_a_step,
        "toy-3-softmax",
    ),
    _fault(
        "gfitc",
        "fast",
        "steps-not-mixed",
        "plain sweeps where steps should be mixed",
        "fast.mixing:Mixing.step",
        _nothing_mixed,
        "toy-3-sparse-threshold",
    ),
    _fault(
        "nested-ep",
        "fast",
        "last-visit-only",
        "the mixing of sites remembers its last visit only",
        "fast.site_iteration:_Mixer.learn",
        _only_the_last,
        "toy-3",
    ),
    _fault(
        "ep",
        "reference",
        "slowest-factor-one",
        "the slowest factor of the moves is always next to 1, so that no distance is ever small",
        "reference.common._sweeps:_slowest",
        _never_slow,
        "toy-3-sparse-threshold",
    ),
)
