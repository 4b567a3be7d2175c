"""AdaDelta (Zeiler 2012): steps in units of the running size of steps over that of gradients. izmailov2016, 5.1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fast.core.types import FloatArray
from fast.ledger import equation

_DECAY, _EPSILON = 0.95, 1e-6


class AdaDeltaState(NamedTuple):
    """Running means."""

    gradients: FloatArray  # (p,), of squared gradients
    steps: FloatArray  # (p,), of squared steps, before the rate

    @classmethod
    def start(cls, size: int) -> AdaDeltaState:
        """Nothing seen."""
        return cls(np.zeros(size), np.zeros(size))


class AdaDeltaStep(NamedTuple):
    """What to add to the parameters, and the state after."""

    step: FloatArray  # (p,)
    state: AdaDeltaState


@equation("izmailov2016", "u5.1-adadelta")
def ada_delta_step(gradient: FloatArray, state: AdaDeltaState, rate: float) -> AdaDeltaStep:
    """One step uphill: rate sqrt(E_s + 1e-6) / sqrt(E_g + 1e-6) g, decay 0.95, E_g with g in it, E_s without this step.

    Parameters
    ----------
    gradient : (p,)    of what is maximised
    state              running means
    rate : float       factor on the step; 1 is Zeiler's
    """
    squares = _DECAY * state.gradients + (1.0 - _DECAY) * gradient * gradient
    bare = np.sqrt(state.steps + _EPSILON) / np.sqrt(squares + _EPSILON) * gradient
    return AdaDeltaStep(rate * bare, AdaDeltaState(squares, _DECAY * state.steps + (1.0 - _DECAY) * bare * bare))
