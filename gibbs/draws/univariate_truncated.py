"""Exact draws from one-sided truncated normals, many at a time, by inversion of the survival function's logarithm.

The draw is written as bound + excess: far out the excess is of size 1/bound and would be lost in the sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtri_exp

from gibbs.core.errors import Array

_FAR = 4.0  # standard deviations above the mean from where the excess is solved for directly
_NEWTON_STEPS = 5  # from a start within 10 % of the root; each step doubles the digits, four are enough at _FAR
_SQRT_HALF = float(np.sqrt(0.5))


def truncated_excess(rng: np.random.Generator, bound: ArrayLike) -> Array:
    """Draw z - bound >= 0 for z ~ N(0, 1) given z > bound.

    With E standard exponential, z solves log Q(z) = log Q(bound) - E, Q the upper tail of the standard normal.
    rng gives exactly one standard exponential an entry. bound: any shape, in standard deviations, may be -1e300 to
    1e300. Returns that shape. Raises ValueError for NaN or infinite entries.
    """
    limits = np.asarray(bound, dtype=np.float64)
    if not np.all(np.isfinite(limits)):
        raise ValueError(f"bound: found {np.count_nonzero(~np.isfinite(limits))} entries NaN or infinite, expected 0")
    flat = limits.ravel()
    drop = rng.standard_exponential(flat.size)
    excess = np.empty(flat.size)
    far = flat > _FAR
    near = ~far
    excess[near] = _near(flat[near], drop[near])
    excess[far] = _far(flat[far], drop[far])
    return excess.reshape(limits.shape)


def _near(bound: Array, drop: Array) -> Array:
    return np.maximum(-ndtri_exp(log_ndtr(-bound) - drop) - bound, 0.0)


def _far(bound: Array, drop: Array) -> Array:
    """Newton steps on log Q(bound + x) - log Q(bound) + drop = 0: concave in x, started where it is near zero."""
    excess = drop / (0.5 * bound + np.hypot(0.5 * bound, np.sqrt(0.5 * drop)))  # Q(z) ~ exp(-z²/2)
    scaled = erfcx(bound * _SQRT_HALF)
    for _ in range(_NEWTON_STEPS):
        there = erfcx((bound + excess) * _SQRT_HALF)
        # scaled tails differ by a few parts in bound²: the logarithm of their ratio keeps its digits by log1p
        value = drop - excess * (bound + 0.5 * excess) + np.log1p((there - scaled) / scaled)
        derivative = np.sqrt(2.0 / np.pi) / there
        excess = np.maximum(excess + value / derivative, 0.0)
    return excess


def draw_above(rng: np.random.Generator, latent_mean: ArrayLike, latent_sd: ArrayLike, bound: ArrayLike) -> Array:
    """Draw N(latent_mean, latent_sd²) truncated to values >= bound, entry by entry.

    latent_mean, latent_sd > 0, bound: shapes that broadcast, finite. rng gives one standard exponential an entry.
    No draw lies below its bound. Raises ValueError for a bound that is not finite in standard deviations.
    """
    mean, sd, limit = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (latent_mean, latent_sd, bound)))
    below = (limit - mean) / sd
    excess = truncated_excess(rng, below)
    # from the nearer end: bound + excess where the bound cuts, mean + z where it is far below
    return np.maximum(np.where(below > 0.0, limit + sd * excess, mean + sd * (below + excess)), limit)


def draw_below(rng: np.random.Generator, latent_mean: ArrayLike, latent_sd: ArrayLike, bound: ArrayLike) -> Array:
    """Draw N(latent_mean, latent_sd²) truncated to values <= bound: the mirror image of `draw_above`.

    latent_mean, latent_sd > 0, bound: shapes that broadcast, finite. rng gives one standard exponential an entry.
    """
    return -draw_above(rng, -np.asarray(latent_mean), latent_sd, -np.asarray(bound))
