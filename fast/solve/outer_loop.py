"""The outer iteration of every EP method with several classes: damped steps in order, or a faster way to their end.

riihimaki2013, sections 3.1 and 3.2.3. A method gives `state_of` (sites to a state: posterior, marginals, log Z) and
`propose` (a state to the sites that it wants). Plain steps follow the printed order one by one. With acceleration,
guarded Anderson mixing (`fast.solve.site_iteration`) comes first and plain steps only certify its end; a run that is
allowed few iterations takes plain steps throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core.ending import ended
from fast.core.options import Accelerated, Damped, Iteration, Scheduling, Watched
from fast.core.types import FloatArray
from fast.ledger import equation
from fast.solve.site_iteration import SiteSteps, Visit, iterate_sites, site_gap, standardised_change

_PLAIN = 50  # iterations up to which a run follows the printed order
_PATIENCE = 30  # certifying steps without a smaller step, after which rounding is what is left
_ROUNDED = 1e-7
_CIRCLES = 200  # steps without a smaller one at any size: no fixed point is near
_BLURRED = 1e-9  # below this size rounding may own the ratio of two steps
_LOOK_BACK = 5  # ratios of which the largest counts

Pair = tuple[FloatArray, FloatArray]


class Proposal(NamedTuple):
    """Sites that a state wants, and how a change of each is measured."""

    target: Pair  # arrays of the shape of the sites; where a site was skipped, the site itself
    mean: FloatArray  # of the scalar that the site sees, of that shape
    var: FloatArray
    n_improper: int
    extra: float = 0.0  # largest change of what a state keeps beside its sites


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterOptions(Iteration, Watched, Damped, Accelerated, Scheduling):
    """How sites are iterated."""

    max_iterations: int = 1000
    damping: float = 0.8


class OuterProgress(NamedTuple):
    """What a callback sees after every iteration."""

    iteration: int
    objective: float  # log Z of the new sites, or NaN
    residual: float  # estimated standardised distance of a site from the fixed point; infinite while unknown
    n_improper: int


class Outcome(NamedTuple):
    """Where the iteration stopped."""

    sites: Pair
    state: Any
    residual: float
    converged: bool
    n_improper: int  # over all iterations
    iterations: int
    trace: FloatArray  # log Z after each iteration


@equation("riihimaki2013", "u3.2.3-damping")
def damp(old: Pair, target: Pair, damping: float) -> Pair:
    """Convex combination (1 - delta) old + delta proposal of natural parameters: riihimaki2013, section 3.2.3.

    Parameters
    ----------
    old, target        pairs of arrays
    damping : float    delta in (0, 1]
    """
    first = (1.0 - damping) * old[0] + damping * target[0]
    second = (1.0 - damping) * old[1] + damping * target[1]
    return (first, second) if damping < 1.0 else (target[0].copy(), target[1].copy())


def residual_of(old: Pair, proposal: Proposal) -> float:
    """Largest standardised change that an undamped step makes.

    Parameters
    ----------
    old      sites
    proposal  what they want
    """
    change = standardised_change(proposal.mean, proposal.var, proposal.target[0] - old[0], proposal.target[1] - old[1])
    return max(float(change.max()), proposal.extra)


class _Remaining:
    """How far the fixed point is, from the sizes of undamped steps: s/(1 - r), r the slowest rate of the map.

    Damped by d, a map of rate r shrinks steps by q = 1 - d (1 - r), so that 1/(1 - r) is d/(1 - q): q is the largest
    of the last ratios. What mixed steps know of r, from more directions than one, is a lower bound.
    """

    def __init__(self, damping: float, factor: float | None) -> None:
        self.damping, self.factor = damping, factor  # 1/(1 - r) of mixed steps
        self.ratios: list[float] = []
        self.slowest: float | None = None  # q, held where rounding would blur it, or where steps grow
        self.last: float | None = None

    def after(self, step: float) -> float:
        """The distance after one more step, infinite while no rate is known."""
        if self.last:
            self.ratios.append(step / self.last)
            largest = max(self.ratios[-_LOOK_BACK:])
            if largest < 1.0 and (step > _BLURRED or self.slowest is None):
                self.slowest = largest
        self.last = step
        if step == 0.0:
            return 0.0
        factors = [] if self.factor is None else [self.factor]
        if self.slowest is not None:
            factors.append(self.damping / (1.0 - self.slowest))
        return step * max(1.0, *factors) if factors else np.inf


def iterate(
    state_of: Callable[[Pair], Any],
    propose: Callable[[Any, Pair], Proposal],
    start: Pair,
    options: OuterOptions,
    *,
    objective: Callable[[Any], float],
    accelerated_propose: Callable[[Any, Pair], Proposal] | None = None,
    sequential: Callable[[Pair], tuple[Pair, float, int]] | None = None,
    gap: Callable[[Pair, Proposal], float] = residual_of,
) -> Outcome:
    """Iterate sites to their fixed point.

    Parameters
    ----------
    state_of : callable               sites -> state
    propose : callable                (state, sites) -> Proposal
    start                             pair of arrays
    options                           tolerance on the standardised distance from the fixed point, as estimated; mixed
                                      first where more than 50 iterations are allowed; the callback is given an
                                      OuterProgress after every iteration
    objective : callable              state -> log Z, NaN where there is none
    accelerated_propose : callable    cheaper proposals with the same fixed point
    sequential : callable             a whole sequential pass instead: sites -> (sites, residual, improper)
    gap : callable                    (sites, Proposal) -> residual
    """
    tolerance, max_iterations, damping = options.tolerance, options.max_iterations, options.damping
    callback = options.callback
    sites, improper, used = start, 0, 0
    trace: list[float] = []
    factor: float | None = None
    if options.accelerate and sequential is None and max_iterations > _PLAIN:
        end = _mixed(state_of, accelerated_propose or propose, start, options, objective)
        sites, improper, used, factor = end.sites, end.n_improper, end.trace.size, end.factor
        trace = list(end.trace)
    state = state_of(sites) if sequential is None else None
    best, best_at = np.inf, used
    accelerated, remaining = used > 0, _Remaining(damping, factor)
    while True:  # mixed steps leave at least one of the iterations
        if sequential is not None:
            sites, step, skipped = sequential(sites)
        else:
            result = propose(state, sites)
            step, skipped = gap(sites, result), result.n_improper
            sites = damp(sites, result.target, damping)
        state = state_of(sites)
        improper += skipped
        used += 1
        trace.append(objective(state))
        residual = remaining.after(step)
        if callback is not None:
            callback(OuterProgress(used, trace[-1], residual, skipped))
        converged = residual <= tolerance and skipped == 0
        if step < best:
            best, best_at = step, used
        stalled = used - best_at >= _CIRCLES or (accelerated and used - best_at >= _PATIENCE and best <= _ROUNDED)
        if converged or stalled or used >= max_iterations or not np.isfinite(step) or ended():
            return Outcome(sites, state, residual, converged, improper, used, np.array(trace))


class _Mixed(NamedTuple):
    sites: Pair
    n_improper: int
    trace: FloatArray
    factor: float | None  # 1/(1 - r), r the rate of the undamped map


def _mixed(
    state_of: Callable[[Pair], Any],
    propose: Callable[[Any, Pair], Proposal],
    start: Pair,
    options: OuterOptions,
    objective: Callable[[Any], float],
) -> _Mixed:
    shape, callback = start[0].shape, options.callback

    def visit(first: FloatArray, second: FloatArray) -> Visit:
        pair = (first.reshape(shape), second.reshape(shape))
        state = state_of(pair)
        result = propose(state, pair)
        value = objective(state)
        return Visit(
            first,
            second,
            result.target[0].ravel(),
            result.target[1].ravel(),
            result.var.ravel(),
            value if np.isfinite(value) else 0.0,
            result.n_improper,
            None,
        )

    def report(progress: Any) -> None:
        if callback is not None:
            callback(OuterProgress(progress.iteration, progress.objective, progress.residual, progress.n_improper))

    steps = SiteSteps(
        options.tolerance, options.max_iterations - 1, monotone=False, damping=options.damping
    )  # fmt: skip
    end = iterate_sites(visit, (start[0].ravel(), start[1].ravel()), steps, report)
    pair = (end.visit.site_precision.reshape(shape), end.visit.site_shift.reshape(shape))
    # the distance is its last step times 1/(1 - r); not to be had from a run that knows no rate
    step = site_gap(*end.visit[:5])
    factor = end.residual / step if step > 0.0 and np.isfinite(end.residual) else None
    return _Mixed(pair, end.n_improper, end.trace, factor)
