"""GPflow's natural-gradient steps as benches take them: the rate rises, and a step that leaves the finite numbers is
taken back, the rate halved for the rest of the run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

RAMP = 100  # steps in which the rate rises geometrically, from a thousandth of it
MOST_HALVED = 20  # more than that is no matter of the rate


class NaturalSteps:
    """Attempts at steps that move q; counted are those that were made, and those that were taken back (`halved`).

    q        variables that natural gradients move
    gamma    variable of their rate
    rate     once it has risen
    """

    def __init__(self, q: Sequence[Any], gamma: Any, rate: float) -> None:
        self.q, self.gamma, self.rate = q, gamma, rate
        self.made = self.halved = 0

    def attempt(self, step: Callable[[], object]) -> bool:
        """Make a step, or put q back; whether it was made."""
        tf = importlib.import_module("tensorflow")
        self.gamma.assign(self.rate * 0.5**self.halved * 10.0 ** (-3.0 * max(0.0, 1.0 - self.made / RAMP)))
        before = [part.numpy() for part in self.q]
        try:
            step()
        except tf.errors.InvalidArgumentError:
            self.halved += 1
            for part, value in zip(self.q, before, strict=True):
                part.assign(value)
            return False
        self.made += 1
        return True

    @property
    def hopeless(self) -> bool:
        """Whether more steps were taken back than a rate can explain."""
        return self.halved > MOST_HALVED
