"""GPflow's natural-gradient steps as benches take them: the rate rises, and a run that leaves the finite numbers starts
again with half the rate. Nothing is copied for that inside a step: its clock measures GPflow alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

RAMP = 100  # steps in which the rate rises geometrically, from a thousandth of it
MOST_HALVED = 20  # more than that is no matter of the rate


class NotFiniteError(FloatingPointError):
    """A step left the finite numbers."""


class NaturalSteps:
    """Steps that move q.

    gamma    variable of their rate
    rate     once it has risen
    """

    def __init__(self, gamma: Any, rate: float) -> None:
        self.gamma, self.rate = gamma, rate
        self.made = 0
        self._left = importlib.import_module("tensorflow").errors.InvalidArgumentError

    def make(self, step: Callable[[], object]) -> None:
        """Make a step. Raises NotFiniteError where it leaves the finite numbers."""
        if self.made <= RAMP:
            self.gamma.assign(self.rate * 10.0 ** (-3.0 * (1.0 - self.made / RAMP)))
        try:
            step()
        except self._left as error:
            raise NotFiniteError(f"GPflow: found step {self.made} outside the finite numbers") from error
        self.made += 1


def at_finite_rate(run: Callable[[float], T], rate: float) -> tuple[T, int]:
    """What a run returns at the rate, halved until no step leaves the finite numbers, and how often it was halved.

    Raises NotFiniteError where that takes more than `MOST_HALVED` times.
    """
    for halved in range(MOST_HALVED):
        try:
            return run(rate * 0.5**halved), halved
        except NotFiniteError:
            continue
    return run(rate * 0.5**MOST_HALVED), MOST_HALVED
