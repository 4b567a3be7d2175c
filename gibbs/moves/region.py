"""Exact HMC for a Gaussian truncated by the constraints h_y >= h_j of its labels: riihimaki2013 section 4.2.2 as
the reason, Pakman & Paninski (2013, 2014) as the method.

Hamiltonian dynamics of a Gaussian are rotations, known in closed form, and so are the times at which a rotation meets
a plane through the origin, where the velocity is reflected; where labels may be wrong the plane is a step of finite
height in the potential, which the path climbs if its velocity suffices. A quarter of a turn forgets an unconstrained
Gaussian altogether, whatever its scale, which is what conditionals of unit width cannot do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gibbs.core.errors import Array

Labels = NDArray[np.int64]
QUARTER_TURN = 0.5 * np.pi


class Bounce(NamedTuple):
    """Where the paths end."""

    auxiliary: Array  # (r, L, n)
    moved: NDArray[np.bool_]  # (r,) False: the path met more constraints than allowed, the state is the old one
    events: NDArray[np.int64]  # (r,) constraints met


def log_step(epsilon: float, n_classes: int) -> float:
    """Height of a constraint: log p(y | inside) - log p(y | outside), villacampa2017 section 5's robust likelihood.

    epsilon: probability of a labelling error, in [0, 1); n_classes C. Infinite for epsilon = 0.
    """
    if epsilon == 0.0:
        return np.inf
    return float(np.log1p((1.0 - epsilon) * n_classes / epsilon))


def margins(auxiliary: Array, y: Labels) -> Array:
    """h_y - h_j of every datum and class: auxiliary (r, L, n), y (n,); the row of the label itself is zero."""
    own: Array = auxiliary[:, y, np.arange(y.size)]
    return own[:, None, :] - auxiliary


def inside(auxiliary: Array, y: Labels) -> NDArray[np.bool_]:
    """Where the label y (n,) is the class of the largest value: auxiliary (r, L, n) -> (r, n)."""
    result: NDArray[np.bool_] = np.all(margins(auxiliary, y) >= 0.0, axis=1)
    return result


def swap_to_label(auxiliary: Array, y: Labels) -> Array:
    """Exchange, datum by datum, the largest value with that of the label: a state inside every constraint.

    auxiliary (r, L, n), y (n,). Returns a new array.
    """
    out = auxiliary.copy()
    top = out.argmax(axis=1)[:, None, :]
    label = np.broadcast_to(y, top.shape)
    largest, own = np.take_along_axis(out, top, axis=1), np.take_along_axis(out, label, axis=1)
    np.put_along_axis(out, top, own, axis=1)
    np.put_along_axis(out, label, largest, axis=1)
    return out


def bounce_move(
    rng: np.random.Generator,
    auxiliary: Array,
    cov: Array,
    chol_cov: Array,
    y: Labels,
    *,
    log_height: float = np.inf,
    max_events: int | None = None,
) -> Bounce:
    """Move h so that N(h; 0, cov) Π_i exp(-log_height · [label y_i is not the largest]) stays its distribution.

    One Hamiltonian path of a quarter turn per chain from a fresh velocity. With normal a of a plane and S = cov the
    velocity w changes along S a only: two blocks of n numbers a constraint.

    auxiliary h (r, L, n), classes independent under the prior; cov (L, n, n), or (r, L, n, n) where chains have their
    own, and lower factors chol_cov of the same shape with chol chol' = cov, one of the blocks may be zero; y (n,);
    log_height > 0, infinite for hard constraints (h is then inside them). A path that meets more than max_events planes
    (default 100 + 50 n (L - 1)) is taken back: as many are met on the way back, so the move stays exact. rng gives
    exactly r L n normals. Time O(r L n) a constraint.

    Raises ValueError for a cov or chol_cov of another shape.
    """
    r, L, n = auxiliary.shape
    if cov.shape not in ((L, n, n), (r, L, n, n)) or chol_cov.shape != cov.shape:
        raise ValueError(
            f"cov: found shapes {cov.shape} and {chol_cov.shape}, expected {(L, n, n)} or {(r, L, n, n)} of both"
        )
    shared = cov.ndim == 3
    limit = 100 + 50 * n * (L - 1) if max_events is None else max_events
    data, var_of = np.arange(n), np.einsum("...ii->...i", cov)
    w = np.matmul(chol_cov, rng.standard_normal(auxiliary.shape)[..., None])[..., 0]
    h = auxiliary.copy()
    sign = np.where(margins(h, y) >= 0.0, 1.0, -1.0)
    is_label = np.zeros((L, n), dtype=bool)
    is_label[y, data] = True
    rest = np.full(r, QUARTER_TURN)
    ids = np.arange(r)
    out, events = auxiliary.copy(), np.zeros(r, dtype=np.int64)
    moved = np.zeros(r, dtype=bool)
    soft = np.isfinite(log_height)
    while ids.size:
        # sign · margin(t) = M cos t + Q sin t, M >= 0: it vanishes at t = arctan(Q/M) + π/2, the least Q/M comes first
        M = np.maximum(sign * (h[:, y, data][:, None, :] - h), 1e-300)
        Q = sign * (w[:, y, data][:, None, :] - w)
        with np.errstate(over="ignore"):
            ratio = Q / M
        ratio[:, is_label] = np.inf  # the label's own margin, zero throughout, is no constraint
        flat = ratio.reshape(ids.size, -1)
        constraint, k = flat.argmin(axis=1), np.arange(ids.size)
        time = np.arctan(flat[k, constraint]) + QUARTER_TURN
        last = time >= rest
        time = np.minimum(time, rest)
        cos, sin = np.cos(time)[:, None, None], np.sin(time)[:, None, None]
        h, w = cos * h + sin * w, cos * w - sin * h
        rest = rest - time
        events[ids] += ~last
        out[ids[last]], moved[ids[last]] = h[last], True
        go = ~last & (events[ids] <= limit)
        if not go.all():
            h, w, sign, rest, ids, constraint = h[go], w[go], sign[go], rest[go], ids[go], constraint[go]
            k = np.arange(ids.size)
        j, i = np.divmod(constraint, n)
        label = y[i]
        speed = w[k, label, i] - w[k, j, i]
        of_label, of_j = ((label, i), (j, i)) if shared else ((ids, label, i), (ids, j, i))
        variance = var_of[of_label] + var_of[of_j]  # aᵀSa
        target = -speed
        if soft:
            others = sign[k, :, i]
            others[k, j] = 1.0
            decides = np.all(others > 0.0, axis=1)  # only then does this constraint part inside from outside
            square = np.square(speed)
            leaves = sign[k, j, i] > 0.0
            energy = np.where(leaves, square - 2.0 * variance * log_height, square + 2.0 * variance * log_height)
            crossing = np.copysign(np.sqrt(np.maximum(energy, 0.0)), speed)
            crosses = ~decides | (energy > 0.0)
            target = np.where(decides, np.where(crosses, crossing, -speed), speed)
            sign[k[crosses], j[crosses], i[crosses]] *= -1.0
        change = ((target - speed) / variance)[:, None]
        w[k, label] += change * cov[of_label]
        w[k, j] -= change * cov[of_j]
    if not soft:
        # rounding may leave a path that ends on a constraint a hair outside it: it stays where it was
        strayed = moved & ~np.all(inside(out, y), axis=1)
        out[strayed], moved[strayed] = auxiliary[strayed], False
    return Bounce(out, moved, events)
