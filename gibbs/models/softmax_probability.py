"""E[softmax(f)] under independent Gaussians, for any number of classes, by one-dimensional quadrature.

softmax_c(f) is the probability that f_c + G_c is the largest, G independent standard Gumbel. So with P_c(x), p_c(x) the
distribution function and density of f_c + G_c, a Gaussian and a Gumbel variable,

    E[softmax_c(f)] = ∫ p_c(x) Π_{j≠c} P_j(x) dx,   P_c(x) = E exp(-exp(f_c - x)).

Rows share the variances, so each P_c is one function of x - mean_c: tabulated once, read off by cubic interpolation.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from scipy.special import ndtr

from gibbs.core.errors import Array, _reachable

# Absolute error of each probability, the sum of: nodes <= 2e-11 (the integrand is bounded in the strip |Im x| < π/2, so
# the trapezoid rule leaves exp(-π²/0.4); with broad Gaussians the step grows to 0.85 sd/√C and leaves exp(-27/2)²),
# tail above exp(-21) = 8e-10, table 1e-10.
QUADRATURE_ERROR = 1e-9
_STEP = 0.4
_FINE = 0.00625  # spacing of the tables where sd <= 1, in units of sd beyond: the cubic leaves 0.04 of its fourth power
_BROAD = 1.6
_RANGE = 7.0  # standard deviations, leaves out 3e-12
_LEFT, _RIGHT = 3.5, 21.0  # Gumbel tails: exp(-exp(3.5)) = 4e-15 below, exp(-21) = 8e-10 above
_BLOCK = 500_000  # entries of one block of the integrand
_MOST_NODES = 20_000


def _smoothed_gumbel(t: Array, sd: float) -> tuple[Array, Array]:
    """P(s + G <= t) and its density for s ~ N(0, sd²), by a trapezoid rule in s, or in G where s is broad.

    In s: exp(-e^{-x}) is bounded by one in |Im x| < π/2, steps of 0.4 leave exp(-π²/0.4) = 2e-11 and steps of 0.5 sd
    suffice for the Gaussian. In G: the Gumbel density has the same strip, in which Φ grows by exp(π²/(8 sd²)) at most.
    """
    value, density = np.zeros_like(t), np.zeros_like(t)
    if sd > _BROAD:
        g = _STEP * np.arange(-int(_LEFT / _STEP) - 1, int((_RIGHT + 3.0) / _STEP) + 1)
        gumbel = np.exp(-g - np.exp(-g))
        for at, w in zip(g, gumbel / gumbel.sum(), strict=True):
            scaled = (t - at) / sd
            value += w * ndtr(scaled)
            density += w * np.exp(-0.5 * np.square(scaled)) / (sd * np.sqrt(2.0 * np.pi))
        return value, density
    spacing = min(_STEP, 0.5 * sd)
    half_count = int(np.ceil(_RANGE * sd / spacing)) if sd > 0.0 else 0
    s = spacing * np.arange(-half_count, half_count + 1)
    weight = np.exp(-0.5 * np.square(s / sd)) if sd > 0.0 else np.ones(1)
    for at, w in zip(s, weight / weight.sum(), strict=True):
        e = np.exp(np.minimum(at - t, 50.0))
        part = w * np.exp(-e)
        value += part
        density += part * e
    return value, density


def softmax_probability(latent_mean: ArrayLike, latent_var: ArrayLike) -> Array:
    """E[exp f_c / Σ_j exp f_j] for independent f_j ~ N(m_j, v_j), the expectation of riihimaki2013 (1).

    latent_mean (k, C); latent_var (C,) >= 0, one for all rows. Returns (k, C), not normalised: each entry is right to
    QUADRATURE_ERROR. Time O(k C q) with q about 70 + 35 sd nodes, at most a few hundred where the variances are
    alike. Raises ValueError for entries that are not finite, negative variances, and for standard deviations that
    differ so much that the rule would need more than 20 000 nodes.
    """
    mean, var = _reachable("latent_mean", latent_mean, 2), _reachable("latent_var", latent_var, 1)
    if var.shape != mean.shape[1:] or np.any(var < 0.0):
        raise ValueError(f"latent_var: found shape {var.shape}, expected ({mean.shape[1]},) with entries >= 0")
    C, sd = mean.shape[1], np.sqrt(var)
    h = max(_STEP, 0.85 * sd.min() / np.sqrt(C))
    nodes = int(np.ceil((2.0 * _RANGE * sd.max() + _LEFT + _RIGHT + np.log(C)) / h)) + 2
    if nodes > _MOST_NODES:
        raise ValueError(f"latent_var: found {var.min():.3g} to {var.max():.3g}, expected variances that differ less")
    tables = {s: _table(s, h, nodes) for s in set(sd.tolist())}
    first = np.max(mean - _RANGE * sd, axis=1) - _LEFT  # below it the largest of all f_c + G_c is hardly ever
    out = np.empty_like(mean)
    rows = max(1, _BLOCK // nodes)
    for begin in range(0, len(mean), rows):
        part = slice(begin, begin + rows)
        read = [_read(tables[sd[c]], first[part] - mean[part, c], sd[c], h) for c in range(C)]
        before = [np.ones_like(read[0][0])]  # products over the classes before and after c
        for value, _ in read[:-1]:
            before.append(before[-1] * value)
        after = np.ones_like(read[0][0])
        for c in range(C - 1, -1, -1):
            out[part, c] = h * np.einsum("kq,kq,kq->k", read[c][1], before[c], after)
            after = after * read[c][0]
    return np.clip(out, 0.0, 1.0)


@lru_cache(maxsize=256)  # a run asks for the same ones in every block of draws; 100 kB each, more for broad ones
def _table(sd: float, h: float, nodes: int) -> tuple[Array, Array]:
    """Windows (fine, starts, nodes) on P and p at spacing h/fine, from -(7 sd + 3.5) - h on; beyond the table P = 1."""
    low, fine = -(_RANGE * sd + _LEFT) - h, int(np.ceil(h / (_FINE * max(1.0, sd))))
    coarse = int(np.ceil((2.0 * _RANGE * sd + _LEFT + _RIGHT + 3.0) / h)) + 3
    t = np.asarray(low + h / fine * np.arange(coarse * fine), dtype=np.float64)
    value, density = _smoothed_gumbel(t, sd)
    out = []
    for table, end in ((value, 1.0), (density, 0.0)):
        padded = np.concatenate([table.reshape(coarse, fine).T, np.full((fine, nodes), end)], axis=1)
        out.append(sliding_window_view(padded, nodes, axis=1))
    return out[0], out[1]


def _read(windows: tuple[Array, Array], start: Array, sd: float, h: float) -> tuple[Array, Array]:
    """P and p at start + h · (0, 1, ...), (k, q), by cubic Lagrange interpolation."""
    fine, starts = windows[0].shape[:2]
    position = (start + _RANGE * sd + _LEFT + h) / h * fine
    position = np.clip(position, 1.0, (starts - 1) * fine - 3.0)
    index = np.floor(position).astype(np.intp)
    a = (position - index)[:, None]
    weights = (
        -a * (a - 1.0) * (a - 2.0) / 6.0,
        (a + 1.0) * (a - 1.0) * (a - 2.0) / 2.0,
        -(a + 1.0) * a * (a - 2.0) / 2.0,
        (a + 1.0) * a * (a - 1.0) / 6.0,
    )
    value = density = np.zeros((1, 1))
    for offset, weight in zip((-1, 0, 1, 2), weights, strict=True):
        column, phase = np.divmod(index + offset, fine)
        value = value + weight * windows[0][phase, column]
        density = density + weight * windows[1][phase, column]
    return value, density
