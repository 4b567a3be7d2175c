"""Coordinate ascent to its fixed point: plain sweeps, or the same fixed point by guarded Anderson mixing.

A sweep maps x = log c to g(x) and never lowers the bound. It contracts linearly, and slowly where the prior variance
is large, so the last step says little about the distance left: with contraction rho that is about
step / (1 - rho). rho is estimated from the successive changes and the iteration stops on the distance. Once steps
are of the size of rounding, so are the changes: the last rho seen before is kept, or a lucky step would end it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fast.core.ending import ended
from fast.core.linalg import largest_ritz_value, least_squares
from fast.core.types import FloatArray
from fast.likelihood.polya_gamma import update_local
from fast.one_latent.prior import Evaluation

_MEMORY = 8  # past differences that the mixing looks at
_PATIENCE = 50  # sweeps without a smaller step, after which rounding is what is left
_ROUNDED = 1e-9  # below this step, differences of successive points may show rounding rather than contraction
_EPS = float(np.finfo(np.float64).eps)

#: Moments of q(f_i) to the local parameters that maximise the bound.
Update = Callable[[FloatArray, FloatArray], FloatArray]


class Progress(NamedTuple):
    """What a callback sees after every sweep."""

    iteration: int
    elbo: float
    step: float  # largest relative change of c in one plain sweep
    residual: float  # estimated largest relative distance of c from the fixed point
    c: FloatArray


class FixedPoint(NamedTuple):
    """Where the iteration stopped."""

    c: FloatArray
    evaluation: Evaluation
    trace: FloatArray
    residual: float
    converged: bool


class _Point(NamedTuple):
    x: FloatArray  # log c
    change: FloatArray  # g(x) - x
    step: float  # its largest entry
    state: Evaluation


def _visit(evaluate: Callable[[FloatArray], Evaluation], x: FloatArray, update: Update | None) -> _Point:
    """One sweep from x."""
    state = evaluate(np.exp(x))
    updated = (update or update_local)(state.latent_mean, state.latent_var)
    usable = np.isfinite(updated) & (updated > 0.0)
    if not usable.all():
        row = int(np.argmin(usable))
        raise ValueError(f"c: found {updated[row]} at row {row}, expected a finite number > 0; rescale variance")
    change = np.log(updated) - x
    return _Point(x, change, float(np.abs(change).max()), state)


def _distance(step: float, rates: list[float]) -> float:
    """Estimated distance from the fixed point; unknown before the first rate, 0 where a sweep changes nothing."""
    if step == 0.0:
        return 0.0
    return step / (1.0 - min(max(0.0, *rates[-5:]), 1.0 - 1e-9)) if rates else np.inf


def ascend(
    evaluate: Callable[[FloatArray], Evaluation],
    initial_c: FloatArray,
    tolerance: float,
    max_iterations: int,
    accelerate: bool,
    callback: Callable[[Progress], None] | None,
    update: Update | None = None,
) -> FixedPoint:
    """Iterate c <- g(c) until c is within the tolerance of the fixed point.

    With acceleration the next point minimises the linear model of the residual over the last 8 differences (Anderson
    1965, type II, on log c). It is kept only if the bound does not fall, or, once rounding hides the bound, if the
    step does not grow fourfold; else the plain sweep from the last good point is taken. An iteration is one sweep.

    Parameters
    ----------
    evaluate : callable      c -> Evaluation
    initial_c : (n,)         > 0
    tolerance : float        largest relative distance of c from the fixed point
    max_iterations : int
    accelerate : bool        False: plain sweeps
    callback : callable      called with a Progress after every sweep
    update : callable        moments of q(f_i) to c; default: `fast.likelihood.polya_gamma.update_local`

    Raises
    ------
    ValueError    if a local parameter overflows or underflows

    Returns
    -------
    FixedPoint    converged is True if the estimated distance, residual, is within the tolerance; a step that rounding
                  keeps from shrinking ends the iteration with converged False and the residual that was reached
    """
    n = initial_c.size
    x = np.log(initial_c)
    good: _Point | None = None  # the last point kept
    moved: list[FloatArray] = []
    changed: list[FloatArray] = []
    rates: list[float] = []
    trace: list[float] = []
    best_step, since_best = np.inf, 0
    while True:
        point = _visit(evaluate, x, update)
        slack = 64.0 * _EPS * (n + abs(point.state.elbo))  # rounding of a sum of n terms of size one
        if point.state.elbo > slack:
            raise ValueError(f"elbo: found {point.state.elbo:.6g}, expected <= 0 up to rounding; lower variance")
        kept = True
        if good is not None and accelerate and moved:
            gain = point.state.elbo - good.state.elbo
            kept = gain > slack or (gain >= -slack and point.step <= 4.0 * good.step)
        if not kept:
            moved.clear()
            changed.clear()
        elif good is not None:
            moved.append(x - good.x)
            changed.append(point.change - good.change)
            del moved[:-_MEMORY], changed[:-_MEMORY]
            # a rate of 1 or more is none of a contraction: not to be kept
            if point.step > _ROUNDED or not rates or max(rates[-5:]) >= 1.0:
                rates.append(largest_ritz_value(np.column_stack(moved), np.column_stack(changed)))
        if kept:
            good = point
        assert good is not None
        trace.append(point.state.elbo)
        since_best = 0 if point.step < best_step else since_best + 1
        best_step = min(best_step, point.step)
        # Contraction makes plain steps shrink for ever; only rounding stops that.
        stalled = since_best >= _PATIENCE and point.step <= _ROUNDED
        residual = _distance(good.step, rates)
        if callback is not None:
            callback(Progress(len(trace), point.state.elbo, point.step, residual, np.exp(good.x)))
        converged = residual <= tolerance
        if converged or stalled or len(trace) >= max_iterations or ended():
            return FixedPoint(np.exp(good.x), good.state, np.array(trace), residual, converged)
        x = good.x + good.change  # a plain sweep
        if accelerate and moved:
            D = np.column_stack(changed)
            x -= (np.column_stack(moved) + D) @ least_squares(D, good.change, 1e-10)
