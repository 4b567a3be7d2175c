r"""The probability that one of several independent Gaussian latent values is the largest, in logarithms.

With its derivatives. villacampa2017 (3) and (68): with f_j ~ N(m_j, v_j) independent and t = f_y

    P = E_{t ~ N(m_y, v_y)} prod_{k != y} Phi((t - m_k)/s_k),        s_k = sqrt(v_k).

In u = (t - m_y)/s_y the integrand is log-concave with curvature at most -1, so its mode comes from Newton steps that
never pass it, and the points where it has fallen by e^-40 from Newton steps that close in from outside; what is left
out is below e^-40 of P, whatever P is. As |Phi(x + iy)| <= e^(y^2/2) Phi(x), the integrand grows off the real axis by
e^(W y^2/2) at most, W = 1 + sum b_k^2 over the classes k whose step, of width 1/b_k = s_k/s_y, is in sight. Hence

- trapezoidal rule of step 0.75 W^(-1/2): error 2 e^(-2 pi^2/0.75^2) = 1e-15 of P. Ordinary rows.
- otherwise panels of 16 Gauss-Legendre nodes, their width 4.5 W^(-1/2) with the W at their left end (1e-14), and at
  most twice the distance from every step passed already: there Phi is 1 in the sector |y| < x, and the rule errs by
  8^-16 = 4e-15. Positions are offsets from the nearest mean, so that a step of width 1e-8 is met exactly.

Derivatives are taken under the integral, with rho_k = phi/Phi(z_k)/s_k, rho_y = -u/s_y and S = sum of all rho:

    d log P/dm_k = -E[rho_k],   d log P/dm_y = sum_k E[rho_k],   d log P/dv_j = (g_j^2 + h_j)/2   (heat equation),
    h_k = Var[rho_k] - E[r_k (r_k + z_k)]/v_k = -Cov[rho_k, S - rho_k];

the first form of h cancels where the step is narrow, the second where it is wide: each is used where it does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import log_ndtr

from fast.core.types import FloatArray, IntArray
from fast.ledger import equation
from fast.likelihood.probit import hazard

_DROP = 40.0  # logarithm by which the integrand has fallen where the rule ends
_STEP = 0.75
_MOST_EQUAL = 160  # nodes of the trapezoidal rule above which panels take over
_PANEL_WIDTH, _GROWTH, _OUT_OF_SIGHT = 4.5, 2.0, 8.5
_NODES, _WEIGHTS = leggauss(16)
_CELLS = 2**17  # numbers in one table of (rows, nodes, classes)
_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
_FLOOR = 1e-20  # of the smallest variance of a row: a point mass moves log P by 1e-17 there


class ArgmaxMoments(NamedTuple):
    """log P and its derivatives; a gradient of exactly 0 everywhere belongs to log P = -inf."""

    log_mass: FloatArray  # (n,) log P
    derivative: FloatArray  # (n, C) g_j = d log P/d m_j, > 0 for the label's class, < 0 for the others
    curvature: FloatArray  # (n, C) h_j = d^2 log P/d m_j^2, <= 0

    @property
    def by_variance(self) -> FloatArray:
        """(n, C): d log P/d v_j."""
        return 0.5 * (self.derivative**2 + self.curvature)


class _Rows(NamedTuple):
    """Rows in units of s_y about m_y, with the classes other than the label."""

    a: FloatArray  # (n, C - 1) (m_y - m_k)/s_k
    b: FloatArray  # (n, C - 1) s_y/s_k
    left: FloatArray  # (n,) where the integrand has fallen by e^-40
    right: FloatArray
    top: FloatArray  # (n,) log of the integrand at its mode


def _mode(a: FloatArray, b: FloatArray, W: FloatArray) -> FloatArray:
    """Newton steps from 0, where the derivative is positive; it is convex and falls, so they never pass the mode."""
    u = np.zeros(len(a))
    live = np.arange(u.size)
    for _ in range(200):
        a_live, b_live = a[live], b[live]
        r, excess = hazard(a_live + b_live * u[live, None])
        gradient = b_live * r
        step = (gradient.sum(axis=1) - u[live]) / (1.0 + (b_live * gradient * excess).sum(axis=1))
        u[live] += step
        live = live[np.abs(step) * np.sqrt(W[live]) > 0.1]
        if live.size == 0:
            break
    return u


def _log_integrand(a: FloatArray, b: FloatArray, u: FloatArray) -> FloatArray:
    return log_ndtr(a + b * u[:, None]).sum(axis=1) - 0.5 * u * u


def _end(a: FloatArray, b: FloatArray, u: FloatArray, mode: FloatArray, target: FloatArray) -> FloatArray:
    """Newton steps from outside to where the log-concave integrand is exp(target); every one stays outside."""
    u, live = u.copy(), np.arange(u.size)
    for _ in range(60):
        a_live, b_live, at = a[live], b[live], u[live]
        z = a_live + b_live * at[:, None]
        short = log_ndtr(z).sum(axis=1) - 0.5 * at * at - target[live]
        derivative = (b_live * hazard(z).ratio).sum(axis=1) - at
        step = np.where(short < 0.0, short / np.where(derivative == 0.0, 1.0, derivative), 0.0)
        u[live] = at - step
        live = live[np.abs(step) > 0.05 * np.abs(u[live] - mode[live])]
        if live.size == 0:
            break
    return u


def _prepared(a: FloatArray, b: FloatArray) -> _Rows:
    mode = _mode(a, b, 1.0 + (b * b).sum(axis=1))
    top = _log_integrand(a, b, mode)
    target = top - _DROP
    reach = np.sqrt(2.0 * _DROP)
    right = _end(a, b, mode + reach + 0.2, mode, target)
    # log Phi(z) <= -z^2/2 left of a step: no class lets the integrand live beyond this
    constraints = (-a - np.sqrt(-2.0 * target)[:, None]) / b
    left = _end(a, b, np.maximum(mode - reach - 0.2, constraints.max(axis=1)), mode, target)
    return _Rows(a, b, left, right, top)


class _Sums:
    """Results of some rows, filled a table of nodes at a time."""

    def __init__(self, n: int, C: int, moments: bool) -> None:
        self.moments = moments
        # a row that no table reaches is NaN, not what memory held
        self.log_mass = np.full(n, np.nan)
        self.derivative: FloatArray | None = np.full((n, C), np.nan) if moments else None
        self.curvature: FloatArray | None = np.full((n, C), np.nan) if moments else None

    def add(self, rows: IntArray, z: FloatArray, u: FloatArray, log_weights: FloatArray, b: FloatArray) -> None:
        """z (n, q, C - 1), u and log_weights (n, q). Derivatives in units of s_y, the label's in the last column."""
        log_terms = log_ndtr(z).sum(axis=2)
        log_terms -= 0.5 * u * u
        log_terms += log_weights
        top = log_terms.max(axis=1)
        weights = np.exp(log_terms - top[:, None], out=log_terms)
        mass = weights.sum(axis=1)
        self.log_mass[rows] = top + np.log(mass) - _HALF_LOG_2PI
        if self.derivative is None or self.curvature is None:
            return
        weights /= mass[:, None]
        r, excess = hazard(z)
        mean_r = (weights[:, None, :] @ r)[:, 0]
        excess *= r
        bend = (weights[:, None, :] @ excess)[:, 0]  # E[r (r + z)]
        r -= mean_r[:, None, :]
        var_r = (weights[:, None, :] @ (r * r))[:, 0]
        derivative = b * mean_r
        deviation = (r @ b[:, :, None])[:, :, 0]  # R - E[R], R = sum_k b_k r_k
        bend_total = (b * b * bend).sum(axis=1)
        var_total = np.einsum("nq,nq->n", weights, deviation * deviation)
        centred = u - np.einsum("nq,nq->n", weights, u)[:, None]
        h = b * b * (var_r - bend)
        narrow = var_r > 0.5 * bend
        if narrow.any():
            some = np.flatnonzero(narrow.any(axis=1))
            apart = b[some, :, None] * (1.0 - np.eye(b.shape[1]))
            rest = r[some] @ apart - centred[some][:, :, None]  # S less rho_k: nothing large is taken off again
            other = -b[some] * np.einsum("nq,nqk,nqk->nk", weights[some], r[some], rest)
            h[some] = np.where(narrow[some], other, h[some])
        mixed = np.einsum("nq,nq,nq->n", weights, centred, deviation)
        h_y = np.where(var_total > 0.5 * bend_total, mixed, var_total - bend_total)
        self.derivative[rows, :-1], self.derivative[rows, -1] = -derivative, derivative.sum(axis=1)
        self.curvature[rows, :-1], self.curvature[rows, -1] = np.minimum(h, 0.0), np.minimum(h_y, 0.0)


def _equal_steps(value: _Rows, rows: IntArray, nodes: IntArray, out: _Sums) -> None:
    for q in np.unique(nodes):
        members = rows[nodes == q]
        grid = np.linspace(0.0, 1.0, int(q))
        size = max(1, _CELLS // (int(q) * value.a.shape[1]))
        for start in range(0, members.size, size):
            part = members[start : start + size]
            length = value.right[part] - value.left[part]
            u = value.left[part, None] + length[:, None] * grid
            z = value.a[part, None, :] + value.b[part, None, :] * u[:, :, None]
            log_weights = np.broadcast_to(np.log(length / (q - 1))[:, None], u.shape)
            out.add(part, z, u, log_weights, value.b[part])


def _panels(value: _Rows, rows: IntArray, out: _Sums, m: FloatArray, s: FloatArray) -> None:
    """Panels from left to right, all rows at once. m, s (n, C): the label's in the last column."""
    b, m, s = value.b[rows], m[rows], s[rows]
    n, index = rows.size, np.arange(rows.size)
    s_y = s[:, -1:]
    origin = np.zeros(n, dtype=np.int64)  # a position is an offset from the mean of this class, in units of s_y
    offset = value.left[rows] - (m[:, 0] - m[:, -1]) / s_y[:, 0]
    origins, offsets, lengths = [], [], []
    while True:
        distance = (m[index, origin][:, None] - m) / s_y + offset[:, None]  # from the mean of every class
        nearest = np.abs(distance).argmin(axis=1)
        moved = nearest != origin
        origin, offset = nearest, np.where(moved, distance[index, nearest], offset)
        left_over = value.right[rows] - distance[:, -1]
        if not (left_over > 0.0).any():  # False for NaN: such a row has no end to wait for, and stays NaN
            break
        z = (m[index, origin][:, None] - m[:, :-1]) / s[:, :-1] + b * offset[:, None]
        ahead = z < _OUT_OF_SIGHT
        W = 1.0 + np.where(ahead, b * b, 0.0).sum(axis=1)
        passed = _GROWTH * np.where(ahead, np.inf, distance[:, :-1]).min(axis=1)
        length = np.clip(np.minimum(_PANEL_WIDTH / np.sqrt(W), passed), 0.0, np.maximum(left_over, 0.0))
        origins.append(origin)
        offsets.append(offset + 0.5 * length)
        lengths.append(length)
        offset = offset + length
    if not lengths:
        return
    spare = [np.zeros(n)] * (-len(lengths) % 4)  # by fours, so that a row's sums do not depend on its neighbours
    half_width, middle = 0.5 * np.stack(lengths + spare, axis=1), np.stack(offsets + spare, axis=1)
    place = np.stack(origins + [origin] * len(spare), axis=1)
    counts = 4 * (((half_width > 0.0).sum(axis=1) + 3) // 4)
    for P in np.unique(counts[counts > 0]):
        members = np.flatnonzero(counts == P)
        size = max(1, _CELLS // (16 * P * m.shape[1]))
        for first in range(0, members.size, size):
            part = members[first : first + size]
            local = middle[part, :P, None] + half_width[part, :P, None] * _NODES  # (r, P, 16)
            centre = np.take_along_axis(m[part], place[part, :P], axis=1)  # (r, P)
            base = (centre[:, :, None] - m[part, None, :-1]) / s[part, None, :-1]  # (r, P, C - 1)
            z = base[:, :, None, :] + b[part, None, None, :] * local[..., None]
            u = ((centre - m[part, -1:]) / s_y[part])[:, :, None] + local
            with np.errstate(divide="ignore"):  # a row that has fewer panels: weight zero
                log_weights = np.log(half_width[part, :P, None]) + np.log(_WEIGHTS)
            r = part.size
            out.add(rows[part], z.reshape(r, -1, b.shape[1]), u.reshape(r, -1), log_weights.reshape(r, -1), b[part])


def _smooth(mean: FloatArray, var: FloatArray, y: IntArray, moments: bool) -> ArgmaxMoments:
    """All variances positive."""
    n, C = mean.shape
    index = np.arange(n)
    others = np.arange(C - 1) + (np.arange(C - 1) >= y[:, None])
    order = np.concatenate([others, y[:, None]], axis=1)
    m, s = mean[index[:, None], order], np.sqrt(var[index[:, None], order])
    a, b = (m[:, -1:] - m[:, :-1]) / s[:, :-1], s[:, -1:] / s[:, :-1]
    result = _prepared(a, b)
    in_sight = a + b * result.left[:, None] < _OUT_OF_SIGHT
    W = 1.0 + np.where(in_sight, b * b, 0.0).sum(axis=1)
    needed = (result.right - result.left) * np.sqrt(W) / _STEP
    out = _Sums(n, C, moments)
    easy = needed <= _MOST_EQUAL
    rows, hard = np.flatnonzero(easy), np.flatnonzero(~easy)
    _equal_steps(result, rows, 8 * np.ceil((needed[rows] + 1.0) / 8.0).astype(np.int64), out)
    if hard.size:
        _panels(result, hard, out, m, s)
    if out.derivative is None or out.curvature is None:
        return ArgmaxMoments(out.log_mass, np.empty((n, 0)), np.empty((n, 0)))
    derivative, curvature = np.empty((n, C)), np.empty((n, C))
    np.put_along_axis(derivative, order, out.derivative / s[:, -1:], axis=1)
    np.put_along_axis(curvature, order, out.curvature / s[:, -1:] / s[:, -1:], axis=1)
    return ArgmaxMoments(out.log_mass, derivative, curvature)


def _positive(var: FloatArray, y: IntArray) -> FloatArray:
    """Point masses as Gaussians so narrow that nobody sees it."""
    smallest = np.where(var > 0.0, var, np.inf).min(axis=1, keepdims=True)
    own = np.take_along_axis(var, y[:, None], axis=1)
    floor = np.where(np.isfinite(smallest), np.maximum(_FLOOR * smallest, 1e-6 * _FLOOR * own), 1.0)
    return np.where(var > 0.0, var, floor)


@equation("villacampa2017", "3")
def argmax_moments(mean: FloatArray, var: FloatArray, y: IntArray, *, moments: bool = True) -> ArgmaxMoments:
    """log P(f_y is the largest) and its derivatives in every mean and variance: villacampa2017 (3).

    Relative error of P below 1e-12 for variances from 1e-8 to 1e8 in any ratio, however small P is: to log P = -700,
    and below it 2e-15 |log P|. Derivatives: 1e-11 relative, or 1e-15 in units of the row's standard deviations. A
    variance of 0 is a point mass; two of them are compared, and equal ones share. Where log P = -inf the derivatives
    are set to 0. Time O(n C nodes), about 40 to 80 nodes in ordinary rows and some hundred where standard deviations
    differ by orders of magnitude; memory bounded. A row's numbers depend on nothing but the row.

    Parameters
    ----------
    mean, var : (n, C)    of independent Gaussian latent values; var >= 0
    y : (n,)              labels, 0 .. C - 1
    moments : bool        False: log P alone, the derivatives are left empty (n, 0)
    """
    index = np.arange(mean.shape[0])
    exact = var == 0.0
    if not exact.any():
        return _smooth(mean, var, y, moments)
    # a label that is a point mass is compared with the other ones; those then leave the integral, far below
    own = mean[index, y][:, None]
    pair = exact & exact[index, y][:, None]
    pair[index, y] = False
    beaten = (pair & (mean > own)).any(axis=1)
    ties = (pair & (mean == own)).sum(axis=1)
    below = own - 1e3 * np.sqrt(1.0 + var.max(axis=1, keepdims=True))
    widened = _positive(np.where(pair, 1.0, var), y)
    result = _smooth(np.where(pair, below, mean), widened, y, moments)
    if moments:
        decided = pair | beaten[:, None]
        result.derivative[decided] = result.curvature[decided] = 0.0
    return result._replace(log_mass=np.where(beaten, -np.inf, result.log_mass - np.log1p(ties)))


def losing_probability(mean: FloatArray, var: FloatArray, y: IntArray) -> FloatArray:
    """1 - P of `argmax_moments`, the sum of the other classes' probabilities: (n,). Relative error 1e-12.

    Where P is near 1 its complement has lost the digits that P does not show. Time C - 1 times that of log P.

    Parameters
    ----------
    mean, var : (n, C)    of independent Gaussian latent values; var >= 0
    y : (n,)              labels, 0 .. C - 1
    """
    C = mean.shape[1]
    values = np.zeros(y.size)
    for apart in range(1, C):
        values += np.exp(argmax_moments(mean, var, (y + apart) % C, moments=False).log_mass)
    return values


def log_class_probabilities(mean: FloatArray, var: FloatArray) -> FloatArray:
    """log P(f_k is the largest) for every class k, each by its own integral: (t, C). Memory O(t C).

    Parameters
    ----------
    mean, var : (t, C)    of independent Gaussian latent values; var >= 0
    """
    t, C = mean.shape
    out = np.empty((t, C))
    for k in range(C):
        out[:, k] = argmax_moments(mean, var, np.full(t, k, dtype=np.int64), moments=False).log_mass
    return out


@equation("villacampa2017", "11", "68")
def class_probabilities(mean: FloatArray, var: FloatArray) -> FloatArray:
    """P(f_k is the largest) for every class: (t, C), not normalised: villacampa2017 (11), (68). Relative error 1e-12.

    Parameters
    ----------
    mean, var : (t, C)    of the latent values at test points, noise included
    """
    return np.exp(log_class_probabilities(mean, var))
