"""Two exact moves of a few unconstrained numbers, many chains at a time: Hamiltonian steps (Duane et al. 1987; Neal
2011) and slices along a line (Neal 2003).

Both leave the density they are given invariant where it is computable; a proposal without a finite density is refused
and counted, so a region that cannot be computed is left out of the target and the count says that it was met.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gibbs.core.errors import Array
from gibbs.core.hyperpriors import LogDensity

MAX_SHRINKS = 200  # halves of an interval: beyond, the point at which it closes is the state itself


class Moved(NamedTuple):
    """Where a move ends, and how it went."""

    position: Array
    acceptance: Array  # probability of the proposal; for a slice, 1 unless the interval closed on the state
    refused: Array  # proposals for which no density could be computed


def hamiltonian_move(
    rng: np.random.Generator,
    position: Array,
    function: Callable[[Array], LogDensity],
    step_size: Array,
    n_steps: int,
) -> Moved:
    """n_steps leapfrog steps from a fresh momentum, and a Metropolis decision: leaves exp(function) invariant.

    position (..., p), a batch of independent states; function: positions to log density (...) and gradient (..., p),
    -inf where there is none; step_size (...) > 0, multiplied by a random factor in [½, 1½] so that no path length is
    resonant. A path that leaves the computable region is refused: its reverse would be, too. rng gives p normals and
    two uniforms a state. Returns position, acceptance and refused, the latter two (...).
    """
    momentum = rng.standard_normal(position.shape)
    size = (step_size * (0.5 + rng.random(step_size.shape)))[..., None]
    log_uniform = np.log1p(-rng.random(step_size.shape))
    here = function(position)
    energy = here.value - 0.5 * np.square(momentum).sum(axis=-1)
    x, gradient = position, here.gradient
    alive = np.isfinite(here.value)
    for _ in range(n_steps):
        halved = momentum + 0.5 * size * gradient
        x = np.where(alive[..., None], x + size * halved, position)
        there = function(x)
        alive = alive & np.isfinite(there.value)
        gradient = there.gradient
        momentum = halved + 0.5 * size * gradient
    with np.errstate(over="ignore", invalid="ignore"):
        end = there.value - 0.5 * np.square(momentum).sum(axis=-1)
        drop = np.where(alive, np.minimum(end - energy, 0.0), -np.inf)
    accepted = alive & (log_uniform < drop)
    return Moved(np.where(accepted[..., None], x, position), np.exp(drop), (~alive).astype(np.float64))


def slice_move(
    rng: np.random.Generator,
    position: Array,
    direction: Array,
    function: Callable[[NDArray[np.int64], Array], Array],
    width: float,
) -> Moved:
    """One slice along a line through each state, an interval of the given width laid at random over it and shrunk.

    position, direction (k, p); function(rows, positions): log density (rows,) of states `rows`, -inf where it is zero
    and NaN where it cannot be computed. Leaves exp(function) invariant for every direction that does not depend on
    the state (Neal 2003, the interval not stepped out). rng: how many numbers it gives is not fixed.
    """
    k = position.shape[0]
    level = function(np.arange(k), position) + np.log1p(-rng.random(k))
    low: Array = np.multiply(-width, rng.random(k))
    high: Array = np.add(low, width)
    offset, refused = np.zeros(k), np.zeros(k)
    rows = np.arange(k)
    for _ in range(MAX_SHRINKS):
        trial = rng.uniform(low[rows], high[rows])
        value = function(rows, position[rows] + trial[:, None] * direction[rows])
        refused[rows] += np.isnan(value)
        hit = value > level[rows]  # False for NaN
        offset[rows[hit]] = trial[hit]
        rows, trial = rows[~hit], trial[~hit]
        if not rows.size:
            break
        low[rows] = np.where(trial < 0.0, trial, low[rows])
        high[rows] = np.where(trial < 0.0, high[rows], trial)
    closed = np.ones(k)
    closed[rows] = 0.0
    return Moved(position + offset[:, None] * direction, closed, refused)
