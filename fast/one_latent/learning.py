"""Parameters of the prior by L-BFGS-B on an objective whose inner fixed point is converged at every evaluation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from fast.core.errors import NotPositiveDefiniteError
from fast.core.inputs import Hyper
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.solve.adam import Packing

# Logarithms may move this far from where they start: a factor of e^20 either way is no longer a kernel for the data.
_LARGEST_LOG_MOVE = 20.0
# How far logarithms may move in the first of two rounds, and how carefully that one ends. L-BFGS-B starts without
# curvature: a first step across several lengthscales may land where the kernel is a constant, from which no slope leads
# back. The round that follows starts nearer, and with slopes of its own size.
_FIRST_ROUND = 2.0
_FIRST_ITERATIONS, _FIRST_SLOPE, _FIRST_CHANGE = 15, 1e-2, 1e-6
# Two rounds that gain less than this of the objective's size end the search, flat or not.
_GAIN = 1e-8
# Slope over 1 + |objective| up to which an end counts as a maximum: far above what the search's own criteria leave.
_FLAT = 1e-3


class Learned(NamedTuple):
    """Where the search ended."""

    hyper: Hyper
    Z: FloatArray | None
    trace: FloatArray  # objective after each iteration of L-BFGS-B
    converged: bool
    reason: str
    n_evaluations: int
    n_refused: int  # parameters at which the prior could not be factorised, or a number overflowed


def maximise(
    evaluate: Callable[[Hyper, FloatArray | None], tuple[float, Gradients]],
    packing: Packing,
    *,
    max_iterations: int,
    tolerance: float,
    max_evaluations: int = 15_000,
) -> Learned:
    """Maximise over log variance, log lengthscales, log noise and Z, whichever the packing holds.

    A search starts in a box of two units of the logarithms around its start and goes on in one of twenty; where it ends
    on a slope it is begun again, as long as that raises the objective.
    Parameters that the prior refuses count as worse than all seen, so the line search turns back; the best evaluation
    is what is returned.

    Parameters
    ----------
    evaluate : callable      parameters -> objective and its gradient
    packing                  which parameters, and their start
    max_iterations : int     of L-BFGS-B
    tolerance : float        on the largest entry of the gradient in these coordinates
    max_evaluations : int    of the objective; the step in which they run out is finished

    Raises
    ------
    ValueError, NotPositiveDefiniteError    if the start itself is refused
    """
    from scipy.optimize import minimize  # here: only some runs need what takes long to load

    start = packing.vector(packing.hyper, packing.Z)
    best_value, best_vector, best_slope = -np.inf, start, np.zeros(start.size)
    worst, n_evaluations, n_refused = np.inf, 0, 0
    trace: list[float] = []

    def objective(vector: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best_value, best_vector, best_slope, worst, n_evaluations, n_refused
        if n_evaluations and np.array_equal(vector, best_vector):
            return -best_value, -best_slope  # where a round begins
        n_evaluations += 1
        try:
            hyper, Z = packing.parameters(vector, packing.hyper, packing.Z)
            value, found = evaluate(hyper, Z)
            slope = packing.slope(found, hyper)
            refused = not (np.isfinite(value) and np.isfinite(slope).all())
        except (ValueError, NotPositiveDefiniteError):
            if n_evaluations == 1:
                raise
            refused = True
        if refused:
            n_refused += 1
            return -worst + 1e3 * (1.0 + abs(worst)), np.zeros(vector.size)
        worst = min(worst, value)
        if value > best_value:
            best_value, best_vector, best_slope = value, vector.copy(), slope.copy()
        return -value, -slope

    def in_units(unit: float, vector: FloatArray) -> tuple[float, FloatArray]:
        value, slope = objective(vector)
        return value / unit, slope / unit

    box = np.full(start.size, np.inf)
    for name, part in packing.parts.items():
        if name != "Z":
            box[part] = 1.0
    lowest, highest = start - _LARGEST_LOG_MOVE * box, start + _LARGEST_LOG_MOVE * box

    objective(start)
    radius, before = _FIRST_ROUND, best_value
    while True:
        first = radius == _FIRST_ROUND
        left = max_iterations - len(trace)
        size = max(1.0, abs(best_value))
        if first:
            before = best_value
        # a first step takes the whole slope, as far as the box allows: in these units no entry of it is above one
        unit = max(1.0, float(np.abs(best_slope).max()))
        lower = np.maximum(best_vector - radius * box, lowest)
        upper = np.minimum(best_vector + radius * box, highest)
        end = minimize(
            partial(in_units, unit),
            best_vector,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(lower, upper, strict=True)),
            callback=lambda _: trace.append(best_value),
            options={
                "maxiter": min(_FIRST_ITERATIONS, left) if first else left,
                "gtol": (max(tolerance, _FIRST_SLOPE) if first else tolerance) / unit,
                "ftol": (_FIRST_CHANGE if first else 1e-13) * min(1.0, size / unit),
                "maxls": 40,
                "maxfun": max_evaluations - n_evaluations,
            },
        )
        spent = len(trace) >= max_iterations or n_evaluations >= max_evaluations
        free = np.clip(best_vector + best_slope, lowest, highest) - best_vector
        flat = float(np.abs(free).max()) <= _FLAT * size
        if spent or (not first and (flat or best_value - before <= _GAIN * size)):
            break
        radius = _LARGEST_LOG_MOVE if first else _FIRST_ROUND
    hyper, Z = packing.parameters(best_vector, packing.hyper, packing.Z)
    # a line search that finds no rise ends as a success too: beside a singular prior, say, where slopes are rounding
    reason = str(end.message) if flat or not end.success else "no step raises the objective, whose slope is not zero"
    return Learned(hyper, Z, np.array(trace), bool(end.success) and flat, reason, n_evaluations, n_refused)
