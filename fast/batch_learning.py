"""Parameters of the prior by L-BFGS-B on an objective whose inner fixed point is converged at every evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from fast._inputs import Hyper
from fast._types import FloatArray
from fast.errors import NotPositiveDefiniteError
from fast.hyper import Gradients
from fast.optim import Packing

# Logarithms may move this far from where they start: a factor of e^20 either way is no longer a kernel for the data.
_LARGEST_LOG_MOVE = 20.0
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
    start = packing.vector(packing.hyper, packing.Z)
    best_value, best_vector, best_slope = -np.inf, start, np.zeros(start.size)
    worst, n_evaluations, n_refused = np.inf, 0, 0
    trace: list[float] = []

    def objective(vector: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best_value, best_vector, best_slope, worst, n_evaluations, n_refused
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

    limits = np.full(start.size, np.inf)
    for name, part in packing.parts.items():
        if name != "Z":
            limits[part] = _LARGEST_LOG_MOVE
    end = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(start - limits, start + limits, strict=True)),
        callback=lambda _: trace.append(best_value),
        options={"maxiter": max_iterations, "gtol": tolerance, "ftol": 1e-13, "maxls": 40, "maxfun": max_evaluations},
    )
    hyper, Z = packing.parameters(best_vector, packing.hyper, packing.Z)
    # a line search that finds no rise ends as a success too: beside a singular prior, say, where slopes are rounding
    free = np.clip(best_vector + best_slope, start - limits, start + limits) - best_vector
    flat = float(np.abs(free).max()) <= _FLAT * (1.0 + abs(best_value))
    reason = str(end.message) if flat or not end.success else "no step raises the objective, whose slope is not zero"
    return Learned(hyper, Z, np.array(trace), bool(end.success) and flat, reason, n_evaluations, n_refused)
