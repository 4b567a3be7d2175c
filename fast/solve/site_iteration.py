"""Sites to their fixed point: natural-gradient steps of rate 1, guarded Anderson mixing in site space.

A visit maps sites (tau, nu) to their full update. Changes are measured as a posterior sees them: |d tau| V and
|d nu| sqrt(V) with V the variance of the datum's latent value, so that sites of saturated data weigh nothing. The step
contracts linearly, with rate r the distance left is about step / (1 - r); r is the largest real part of the Ritz values
of past differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fast.core.ending import ended
from fast.core.linalg import largest_ritz_value
from fast.core.types import FloatArray
from fast.solve.mixing import Mixing

_MEMORY = 16  # past differences that the mixing looks at
_PATIENCE = 30  # visits without a smaller step, after which rounding is what is left
_ROUNDED = 1e-8  # below this step, differences of successive points may show rounding rather than contraction
_CIRCLES = 200  # visits without a smaller step at any size: no fixed point is near
_REPELS, _SURE, _NEAR = 1.05, 4, 1e-2  # rates of so many visits in a row, at steps below the last, say that it repels
_SMALLEST_RATE = 2.0**-20
_SMALLEST_SHORTENED = 0.25  # far from the fixed point steps may grow for a while: that alone goes no lower
_EPS = float(np.finfo(np.float64).eps)


class Visit(NamedTuple):
    """Sites, the q that they give, and where a full step leads."""

    site_precision: FloatArray  # (n,)
    site_shift: FloatArray  # (n,)
    target_precision: FloatArray  # (n,) after a full step
    target_shift: FloatArray  # (n,)
    latent_var: FloatArray  # (n,) the scale on which changes are measured
    objective: float  # bound, or log Z_EP
    n_improper: int
    payload: Any  # whatever the method needs afterwards


class Progress(NamedTuple):
    """What a callback sees after every visit."""

    iteration: int
    objective: float
    step: float  # largest scaled change of a site in one full step
    residual: float  # estimated scaled distance from the fixed point
    n_improper: int


class SiteSteps(NamedTuple):
    """How sites are iterated."""

    tolerance: float  # scaled distance from the fixed point
    max_iterations: int  # visits
    monotone: bool  # the objective is a bound that no step may lower
    damping: float = 1.0  # largest step, 1 = undamped
    accelerate: bool = True  # False: plain damped steps
    signed: bool = False  # site precisions may be of any sign


class Reached(NamedTuple):
    """Where the iteration stopped."""

    visit: Visit
    trace: FloatArray  # objective after each visit
    residual: float
    converged: bool
    n_improper: int  # cavities skipped in all visits


def _pack(precision: FloatArray, shift: FloatArray, latent_var: FloatArray) -> FloatArray:
    return np.concatenate([precision * latent_var, shift * np.sqrt(latent_var)])


def standardised_change(
    mean: FloatArray, var: FloatArray, precision_change: FloatArray, shift_change: FloatArray
) -> FloatArray:
    """max(|d alpha| v, |d beta - d alpha m| sqrt v): a change of a site in units of its own scalar.

    Parameters
    ----------
    mean, var                           of the scalar before the change
    precision_change, shift_change      of the site
    """
    return np.maximum(
        np.abs(precision_change) * var, np.abs(shift_change - precision_change * mean) * np.sqrt(np.maximum(var, 0.0))
    )


def site_gap(
    site_precision: FloatArray,
    site_shift: FloatArray,
    target_precision: FloatArray,
    target_shift: FloatArray,
    latent_var: FloatArray,
) -> float:
    """Largest change that a full step would make, as a posterior of variance V sees it: |d tau| V, |d nu| sqrt(V).

    Parameters
    ----------
    site_precision, site_shift : (n,)        tau, nu
    target_precision, target_shift : (n,)    after a full step
    latent_var : (n,)                        V
    """
    return float(np.abs(_pack(target_precision - site_precision, target_shift - site_shift, latent_var)).max())


class _Mixer(Mixing):
    """Mixing of sites, tau and nu one after the other, in the metric of the present posterior; what rates it saw."""

    def __init__(self) -> None:
        super().__init__(_MEMORY)
        self.rates: list[float] = []

    def visited(self, before: Visit, after: Visit) -> None:
        moved = _sites(after) - _sites(before)
        self.learn(moved, _targets(after) - _targets(before) - moved)

    def note_rate(self, latent_var: FloatArray, step: float) -> None:
        if step > _ROUNDED or not self.rates or max(self.rates[-5:]) >= 1.0:
            self.rates.append(largest_ritz_value(*self.tables(_measure(latent_var))))

    def distance(self, step: float) -> float:
        if step == 0.0:
            return 0.0
        return step / (1.0 - min(max(0.0, *self.rates[-5:]), 1.0 - 1e-9)) if self.rates else np.inf

    def propose(self, visit: Visit, rate: float, signed: bool) -> tuple[FloatArray, FloatArray]:
        sites = _sites(visit)
        mixed = self.step(_targets(visit) - sites, _measure(visit.latent_var), rate, sites)
        assert mixed is not None  # asked after a visit was taken in
        precision, shift = np.split(mixed, 2)
        if signed:
            return precision, shift
        # an extrapolation that leaves the positive numbers falls back to the full step, datum by datum
        bad = precision <= 0.1 * np.minimum(visit.target_precision, visit.site_precision)
        return np.where(bad, visit.target_precision, precision), np.where(bad, visit.target_shift, shift)


def _sites(visit: Visit) -> FloatArray:
    return np.concatenate([visit.site_precision, visit.site_shift])


def _targets(visit: Visit) -> FloatArray:
    return np.concatenate([visit.target_precision, visit.target_shift])


def _measure(latent_var: FloatArray) -> Callable[[FloatArray], FloatArray]:
    def measure(sites: FloatArray) -> FloatArray:
        precision, shift = np.split(sites, 2)
        return _pack(precision, shift, latent_var)

    return measure


def iterate_sites(
    visit: Callable[[FloatArray, FloatArray], Visit],
    start: tuple[FloatArray, FloatArray],
    steps: SiteSteps,
    callback: Callable[[Progress], None] | None = None,
) -> Reached:
    """Iterate sites <- (1 - damping) sites + damping target to the fixed point.

    A point is kept if the objective does not fall (monotone) or the step does not double (else); a point that is not
    kept is left and the damping halved. Nor is one with more improper cavities than before. Near a fixed point that
    repels (a Ritz value above 1) mixing ends. A step that
    grows shortens the next one by 0.7, one that shrinks restores 1.1. Mixed points are proposals under the same guard.

    Parameters
    ----------
    visit : callable         (tau, nu) -> Visit
    start : pair of (n,)     first tau and nu
    steps                    their lengths, and what is kept
    callback : callable      called with a Progress after every visit

    Returns
    -------
    Reached    converged False with the residual reached, if max_iterations, rounding or circles ended it
    """
    mixer, monotone, accelerate, rate, repelled = _Mixer(), steps.monotone, steps.accelerate, steps.damping, 0
    point = _finite(visit(*start))
    kept, trace, improper = point, [point.objective], point.n_improper
    last_step = best_step = site_gap(*point[:5])
    best_at = len(trace)
    while True:
        residual = mixer.distance(last_step)
        if callback is not None:
            callback(Progress(len(trace), trace[-1], last_step, residual, point.n_improper))
        converged = residual <= steps.tolerance
        stalled = len(trace) - best_at >= (_PATIENCE if best_step <= _ROUNDED else _CIRCLES)
        if converged or stalled or len(trace) >= steps.max_iterations or ended():
            return Reached(kept, np.array(trace), residual, converged, improper)
        mixed = accelerate and bool(mixer.moved)
        if mixed:
            sites = mixer.propose(kept, rate, steps.signed)
        else:
            sites = (
                kept.site_precision + rate * (kept.target_precision - kept.site_precision),
                kept.site_shift + rate * (kept.target_shift - kept.site_shift),
            )
        point = _finite(visit(*sites))
        improper += point.n_improper
        step = site_gap(*point[:5])
        if monotone:
            gain = point.objective - kept.objective
            slack = 64.0 * _EPS * (point.site_shift.size + abs(point.objective))
            # once rounding hides the bound, the step must not grow
            good = gain > slack or (gain >= -slack and step <= (2.0 if mixed else 1.0) * last_step)
        else:
            # a site whose cavity is improper stands still, which is no sign of a fixed point
            good = step <= (1.0 if mixed else 2.0) * last_step and point.n_improper <= kept.n_improper
        if good or (not mixed and rate <= _SMALLEST_RATE):
            mixer.visited(kept, point)
            mixer.note_rate(point.latent_var, step)
            repelled = repelled + 1 if step <= _NEAR and mixer.rates[-1] >= _REPELS else 0
            # mixing finds fixed points that no step of any length goes to: plain steps then, which leave them
            accelerate = accelerate and (monotone or repelled < _SURE)
            grew = not mixed and step > last_step
            rate = max(0.7 * rate, min(rate, _SMALLEST_SHORTENED)) if grew else min(steps.damping, 1.1 * rate)
            kept, last_step = point, step
        else:
            if not mixed:
                rate = max(0.5 * rate, _SMALLEST_RATE)
            mixer.clear()
        trace.append(kept.objective)
        if last_step < best_step:
            best_step, best_at = last_step, len(trace)


def _finite(point: Visit) -> Visit:
    """The point, unless its objective is no number."""
    if not np.isfinite(point.objective):
        raise ValueError(f"objective: found {point.objective}, expected a finite number; rescale variance")
    return point
