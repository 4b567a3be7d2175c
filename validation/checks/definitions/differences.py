"""Central differences of a value of a problem in its hyper-parameters, as `Problem.shared` says which of them move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from validation.door.problem import Problem
from validation.judge.compare import gradient_unit

Array = NDArray[np.float64]


def parameter_differences(value: Callable[[Problem], float], problem: Problem, name: str, step: float) -> Array:
    """Derivatives of value(problem) in a field, in the units of `gradient_unit`; shapes as in the problem.

    Where the problem is shared there is one parameter vector: all latents move together, and every row holds the
    derivative in it, which is the sum over the latents.

    Parameters
    ----------
    value : callable      a problem to a number
    problem : Problem     where
    name : str            variance, lengthscales, noise or Z
    step : float          of each central difference, in the unit
    """
    base = np.array(getattr(problem, name), dtype=np.float64)
    unit = np.broadcast_to(gradient_unit(problem, name), base.shape)
    values = np.empty_like(base)
    for index in np.ndindex(base[:1].shape if problem.shared else base.shape):
        entry = (slice(None), *index[1:]) if problem.shared else index
        ends = []
        for sign in (1.0, -1.0):
            moved = base.copy()
            moved[entry] += sign * step * unit[entry]
            ends.append(value(problem.replace(**{name: moved})))
        values[entry] = (ends[0] - ends[1]) / (2.0 * step)
    return values
