"""Steps uphill of hyper-parameters: Adam, or a rule that gives each its own rate; the prior that a step leads to."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import every_row, first_row, row_gradients
from reference.common._learning import coordinates, log_derivatives, moved
from reference.common.ledger import equation
from reference.common.priors import Prior

Array = NDArray[np.float64]


class AdamState(NamedTuple):
    """What Adam remembers."""

    first: Array  # (h,) running average of gradients
    second: Array  # (h,) and of their squares
    steps: int


@equation("villacampa2017", "u29-adam")
@equation("villacampa2020", "u34-adam")
def adam_step(where: Array, gradient: Array, state: AdamState, learning_rate: float = 0.001) -> tuple[Array, AdamState]:
    """Parameters (h,) after one step of Adam uphill, and what it remembers.

    Section G of villacampa2017, sections 5 and A.7 of villacampa2020: both take it from Kingma and Ba (2015), whose
    default constants are 0.9, 0.999 and 1e-8.

    Parameters
    ----------
    where : (h,)              parameters
    gradient : (h,)           of what is maximised
    state : AdamState         zero averages and no steps at first
    learning_rate : float     step size
    """
    steps = state.steps + 1
    first = 0.9 * state.first + 0.1 * gradient
    second = 0.999 * state.second + 0.001 * gradient**2
    step = (first / (1.0 - 0.9**steps)) / (np.sqrt(second / (1.0 - 0.999**steps)) + 1e-8)
    return where + learning_rate * step, AdamState(first, second, steps)


class Rule(NamedTuple):
    """A rule for steps, and what it remembers."""

    adaptive: Callable[[Array, Array, Array], Array] | None  # gradient, the last one, rates (h,) to rates; None: Adam
    rate: float
    rates: Array  # (h,) adaptive: of the last step
    previous: Array | None  # (h,) adaptive: its gradient
    adam: AdamState

    @classmethod
    def start(cls, size: int, rate: float, adaptive: Callable[[Array, Array, Array], Array] | None = None) -> "Rule":
        """Before the first step of `size` parameters."""
        return cls(adaptive, rate, np.full(size, rate), None, AdamState(np.zeros(size), np.zeros(size), 0))

    def step(self, where: Array, gradient: Array) -> tuple[Array, "Rule"]:
        """Parameters (h,) after a step uphill, and the rule that takes the next."""
        if self.adaptive is None:
            new, adam = adam_step(where, gradient, self.adam, self.rate)
            return new, self._replace(adam=adam)
        rates = self.rates
        if self.previous is not None:
            rates = self.adaptive(gradient, self.previous, rates)
        return where + rates * gradient, self._replace(rates=rates, previous=gradient)


class Learned(NamedTuple):
    """The hyper-parameters that a run learns, and how they lie in one vector of coordinates."""

    fields: Sequence[str]  # none: the prior is held
    shared: bool  # one vector for all classes

    def vector(self, prior: Prior) -> Array:
        """Coordinates (h,) of a prior."""
        return coordinates(self._row(prior), self.fields)

    def gradient(self, prior: Prior, gradients: dict[str, Array]) -> Array:
        """Derivatives (h,) in the coordinates from those in the fields, shapes as in the prior."""
        return log_derivatives(self._row(prior), self.fields, row_gradients(gradients, self.shared))

    def prior(self, prior: Prior, where: Array) -> Prior:
        """The prior with other coordinates; ValueError if they leave the range of numbers."""
        return every_row(cast(Prior, moved(self._row(prior), self.fields, where)), prior)

    def rule(self, prior: Prior, rate: float, adaptive: Callable[[Array, Array, Array], Array] | None = None) -> Rule:
        """The rule that takes the first step."""
        return Rule.start(len(self.vector(prior)), rate, adaptive)

    def uphill(self, prior: Prior, gradients: dict[str, Array], rule: Rule) -> tuple[Prior, Rule]:
        """The prior after one step of the rule, and the rule that takes the next."""
        where, rule = rule.step(self.vector(prior), self.gradient(prior, gradients))
        return self.prior(prior, where), rule

    def _row(self, prior: Prior) -> Any:
        return first_row(prior, self.shared)
