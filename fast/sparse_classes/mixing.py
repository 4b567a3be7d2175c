"""A faster route to the fixed point of EP for several classes: guarded Anderson mixing of parallel sweeps.

Damped sweeps contract slowly where factors compete, by 2 % a sweep and less. `fast.solve.site_iteration.iterate_sites`
mixes them; plain sweeps then certify where it ends, so nothing of the result rests on the mixing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fast.core.errors import NotPositiveDefiniteError
from fast.core.types import FloatArray
from fast.solve.site_iteration import SiteSteps, Visit, iterate_sites, site_gap
from fast.sparse_classes.ep import SiteRun

# Numbers in all sites up to which mixing is worth its memory: it keeps 64 times as many.
_LARGEST = 2**18
_PLAIN = 50  # sweeps up to which a run follows the printed order


class Mixed(NamedTuple):
    """How the mixing ended."""

    iterations: int
    n_improper: int
    rate: float = 0.0  # largest eigenvalue of an undamped sweep that was seen, by the ratio of step and distance
    why: str = ""  # nothing was mixed: the matrix that had no factor


def worth_mixing(run: object, max_iterations: int) -> bool:
    """Whether the run has sites to mix, few enough, and sweeps enough are allowed.

    Parameters
    ----------
    run                      factors and q
    max_iterations : int     sweeps allowed
    """
    if not isinstance(run, SiteRun) or not run.may_mix or isinstance(run.sites, np.memmap):
        return False
    return max_iterations > _PLAIN and run.sites.size <= _LARGEST


def mix(run: SiteRun, *, tolerance: float, max_iterations: int) -> Mixed:
    """Move the sites of a run near their fixed point; a matrix without a factor leaves them where they were.

    Parameters
    ----------
    run                     sites in memory; changed. Its damping is the largest share of a plain step
    tolerance : float       on the estimated distance from the fixed point
    max_iterations : int    visits
    """
    shape = run.sites[::2].shape  # precisions, shifts alternate

    count: int | None = None  # fewest improper cavities of a point

    def visit(precision: FloatArray, shift: FloatArray) -> Visit:
        nonlocal count
        run.sites[::2], run.sites[1::2] = precision.reshape(shape), shift.reshape(shape)
        try:
            run.rebuild()
        except NotPositiveDefiniteError:
            if count is None:
                raise
            # no distribution belongs to these sites: one improper cavity more than before has the point refused
            return Visit(precision, shift, precision, shift, np.ones(precision.size), 0.0, count + 1, None)
        target, var = np.empty_like(run.sites), np.empty(shape)
        improper = 0
        for block in run.data.blocks(run.points):
            moments = run.q.project(block.view)
            result = run.factors.visit(block.y, moments, block.view.cond_var, run.of(block.part))
            for table, part in zip(target, result.target, strict=True):
                table[block.part] = part
            scales = run.factors.scales(block.y, moments.var)
            for table, part in zip(var, scales, strict=True):
                table[block.part] = part
            improper += result.n_improper
        count = improper if count is None else min(count, improper)
        return Visit(
            precision, shift, target[::2].ravel(), target[1::2].ravel(), var.ravel(), 0.0, improper, None
        )  # fmt: skip

    start = run.sites[::2].flatten(), run.sites[1::2].flatten()  # copies: visits write to the sites
    try:
        end = iterate_sites(
            visit,
            start,
            SiteSteps(tolerance, max_iterations, monotone=False, damping=run.damping, signed=run.factors.signed),
        )
    except NotPositiveDefiniteError as error:
        run.sites[::2], run.sites[1::2] = start[0].reshape(shape), start[1].reshape(shape)
        run.rebuild()
        return Mixed(0, 0, why=str(error))
    run.sites[::2] = end.visit.site_precision.reshape(shape)
    run.sites[1::2] = end.visit.site_shift.reshape(shape)
    run.rebuild()
    step = site_gap(*end.visit[:5])
    rate = 1.0 - step / end.residual if np.isfinite(end.residual) and end.residual > 0.0 else 0.0
    return Mixed(end.trace.size, end.n_improper, max(0.0, rate))
