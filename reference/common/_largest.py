"""The probability that one of several independent Gaussians is the largest, its complement, and its derivatives.

Each is a one-dimensional integral of a Gaussian times several Φ (with either sign), a log-concave function. Relative
errors are about 1e-13 for standard deviations of any ratio; a variance of zero is a point mass, and equal point masses
at the top share.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from reference.common.probit import mills_derivative

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_DROP = 45.0  # exp(-45) = 3e-20 of the peak: what lies outside is below rounding
_REACH = 9.5 * 2.0 ** -np.arange(0.0, 48.0)  # the log integrand falls by at least τ²/2 at a distance τ from its mode
_EVEN = np.linspace(0.0, 1.0, 10)
_BEND = np.array([-10.0, -8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0])
_ONE = 1e3  # Φ is 1 there, its derivative 0
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)
_TOGETHER = 4  # classes from which all ties are looked at where the probability itself is
_IN_TAIL = 1e-5  # below, times a hazard, what lies outside of the nodes is no longer below rounding of a tie
_RIGHT = 5.0  # beyond, log Φ is above -3e-7, and φ/Φ would have to be divided into it
_FINE = 30.0  # ratio of scales at which the argument of Φ has lost two digits


class LineIntegral(NamedTuple):
    """∫ N(s|mean, var) Π_j Φ(±(s - offset_j)/scale_j) ds."""

    log_norm: Array  # (b,) logarithm of the integral
    derivative: Array  # (b,) derivative of the logarithm by a common shift of the offsets to the left


class Largest(NamedTuple):
    """log P(f_y is the largest) and derivatives."""

    log_p: Array  # (n,)
    first: Array  # (n, C) ∂ log P/∂mean
    second: Array  # (n, C) (∂²P/∂mean²)/P = 2 (∂P/∂var)/P
    curvature: Array  # (n, C) ∂² log P/∂mean²


def line_integral(mean: Array, var: Array, offsets: Array, scales: Array, signs: Array) -> LineIntegral:
    """∫ N(s|mean, var) Π_j Φ(sign_j (s - offset_j)/scale_j) ds for b rows; scale 0 is a step.

    Gauss-Legendre, 16 nodes on each panel. The range is where the integrand is above exp(-45) of its peak; it is cut
    evenly, and at two units of each Φ that bends within less than a panel.

    Parameters
    ----------
    mean, var : (b,)          of the Gaussian, var >= 0
    offsets, scales : (b, J)  of the Φ, scales >= 0
    signs : (b, J)            +1 or -1
    """
    if offsets.shape[1] == 0:
        return LineIntegral(*np.zeros((2, len(mean))))
    log_norm, derivative = np.full((2, len(mean)), np.nan)
    sd = np.sqrt(var)
    spread = sd > 0.0
    for i in np.flatnonzero(~spread):
        log_norm[i], derivative[i] = _at_a_point(mean[i], offsets[i], scales[i], signs[i])
    part = tuple(a[spread] for a in (mean, sd, offsets, scales, signs))
    log_norm[spread], derivative[spread] = _integrate(*part)
    return LineIntegral(log_norm, derivative)


def _at_a_point(s: float, offsets: Array, scales: Array, signs: Array) -> tuple[float, float]:
    """The product at one s, and the derivative of its logarithm in s; steps at s itself share."""
    soft = scales > 0.0
    steps = signs[~soft] * (s - offsets[~soft])
    if np.any(steps < 0.0):
        return -np.inf, 0.0
    z = signs[soft] * (s - offsets[soft]) / scales[soft]
    ratio = mills_derivative(z)[0] * signs[soft] / scales[soft]
    return float(np.sum(log_ndtr(z))) - float(np.log1p(np.sum(steps == 0.0))), float(np.sum(ratio))


class _Panels(NamedTuple):
    """Nodes of all rows whose integrand is positive somewhere, in units t = (s - mean)/sd, panel by panel."""

    open: NDArray[np.bool_]  # (b,) these rows; what follows has theirs only
    row: Labels  # (p,) of each panel, ascending
    weights: Array  # (p, 16) times the integrand, relative to its value at the mode
    hazard: Array  # (p, 16, J) φ/Φ
    rate: Array  # (rows, J) derivative of Φ's argument by t
    log_scale: Array  # (rows,) logarithm of the integrand at the mode
    edge: Array  # (rows,) the integrand at steps, signed


def _cuts(mean: Array, sd: Array, offsets: Array, scales: Array, signs: Array) -> tuple[Array, Array]:
    """The t between which no step is zero."""
    place, step = (offsets - mean[:, None]) / sd[:, None], scales == 0.0
    low = np.max(np.where(step & (signs > 0.0), place, -np.inf), axis=1)
    return low, np.min(np.where(step & (signs < 0.0), place, np.inf), axis=1)


def _panels(mean: Array, sd: Array, offsets: Array, scales: Array, signs: Array) -> _Panels:
    """Where to look at the integrand of rows with sd > 0, and what is there."""
    soft = scales > 0.0
    low_cut, high_cut = _cuts(mean, sd, offsets, scales, signs)
    rate = np.where(soft, signs * sd[:, None] / np.where(soft, scales, 1.0), 0.0)  # dz/dt
    start = np.where(soft, signs * (mean[:, None] - offsets) / np.where(soft, scales, 1.0), _ONE)  # z at t = 0
    open_ = low_cut < high_cut
    start, rate, low_cut, high_cut = start[open_], rate[open_], low_cut[open_], high_cut[open_]
    mode = np.clip(_modes(start, rate), low_cut, high_cut)
    z_mode = start + rate * mode[:, None]

    def log_density(tau: Array) -> Array:
        """Log integrand at mode + τ, relative to the mode; τ (b, q)."""
        change = _log_phi_change(z_mode[:, None, :], rate[:, None, :] * tau[:, :, None])
        return np.sum(change, axis=2) - 0.5 * tau**2 - mode[:, None] * tau

    peak = np.sum(log_ndtr(z_mode), axis=1)
    ends = []
    for side in (-1.0, 1.0):
        # the nearest of those that are far enough, by bisection: the integrand falls all the way
        far, near = np.zeros(len(mode), dtype=np.int64), np.full(len(mode), len(_REACH))
        while np.any(near - far > 1):
            middle = (far + near) // 2
            beyond = -log_density(side * _REACH[middle][:, None])[:, 0] >= _DROP
            far, near = np.where(beyond, middle, far), np.where(beyond, near, middle)
        ends.append(np.clip(side * _REACH[far], low_cut - mode, high_cut - mode))
    low, high = ends
    panel = (high - low) / (len(_EVEN) - 1)
    even = low[:, None] + (high - low)[:, None] * _EVEN
    sharp = np.abs(rate) * panel[:, None] > 2.0
    safe = np.where(sharp, rate, 1.0)
    bends = np.where(sharp[:, :, None], (_BEND - np.where(sharp, z_mode, 0.0)[:, :, None]) / safe[:, :, None], -np.inf)
    bends = np.clip(bends.reshape(len(mode), -1), low[:, None], high[:, None])
    finest = np.maximum(np.max(np.abs(rate), axis=1), 1.0 / np.maximum(panel, np.finfo(np.float64).tiny))
    edges = _thinned(np.sort(np.concatenate([even, bends], axis=1)), finest)
    width = np.diff(edges)
    row, column = np.nonzero(width > 0.0)
    half_width = 0.5 * width[row, column]
    tau = edges[row, column][:, None] + half_width[:, None] * (1.0 + _NODES)
    z_row, delta = z_mode[row][:, None, :], rate[row][:, None, :] * tau[:, :, None]
    hazard = _hazard(z_row + delta)
    log_value = np.sum(_log_phi_change(z_row, delta, hazard), axis=2) - 0.5 * tau**2 - mode[row][:, None] * tau
    weights = half_width[:, None] * _WEIGHTS * np.exp(log_value)
    # the steps' share of the derivative: the integrand at the cuts
    edge = np.zeros(len(mode))
    for side, cut in ((1.0, low_cut), (-1.0, high_cut)):
        at = np.isfinite(cut)
        value = np.exp(log_density(np.where(at, cut - mode, 0.0)[:, None])[:, 0])
        edge += np.where(at, side * value, 0.0)
    return _Panels(open_, row, weights, hazard, rate, peak - 0.5 * mode**2 - _HALF_LOG_2PI, edge)


def _thinned(edges: Array, finest: Array) -> Array:
    """Ascending edges (b, e), of those in one half unit 1/finest the first for all.

    Where many Φ bend at one place, the panels of the sharpest serve all.
    """
    cell = np.floor(2.0 * finest[:, None] * (edges - edges[:, :1]))
    keep = np.ones(edges.shape, dtype=bool)
    keep[:, 1:-1] = cell[:, 1:-1] > cell[:, :-2]  # the ends of the range stay
    return np.maximum.accumulate(np.where(keep, edges, -np.inf), axis=1)


def _integrate(mean: Array, sd: Array, offsets: Array, scales: Array, signs: Array) -> tuple[Array, Array]:
    """Logarithm and derivative for rows with sd > 0."""
    log_norm, derivative = np.full(len(mean), -np.inf), np.zeros(len(mean))
    low_cut, high_cut = _cuts(mean, sd, offsets, scales, signs)
    if not np.any(low_cut < high_cut):
        return log_norm, derivative
    at = _panels(mean, sd, offsets, scales, signs)
    ratio = np.sum(at.hazard * at.rate[at.row][:, None, :], axis=2)
    total = np.bincount(at.row, weights=np.sum(at.weights, axis=1), minlength=len(at.edge))
    moment = np.bincount(at.row, weights=np.sum(at.weights * ratio, axis=1), minlength=len(at.edge))
    log_norm[at.open] = at.log_scale + np.log(total)
    derivative[at.open] = (moment + at.edge) / total / sd[at.open]
    return log_norm, derivative


class _Ties(NamedTuple):
    """What the derivatives of log P(f_y is the largest) are made of."""

    log_p: Array  # (b,)
    log_share: Array  # (b, J) logarithm of -∂ log P/∂mean_k: density of the tie f_y = f_k above all others, over P
    derivative: Array  # (b, J) derivative of its logarithm when all others move to the left


def _ties_together(mean: Array, sd: Array, offsets: Array, scales: Array) -> _Ties:
    """Every tie at the nodes of P itself, where N(z_k) is Φ_k times φ/Φ(z_k); scales > 0.

    Share and derivative are NaN where these nodes do not serve: for a tie in the tail of P.
    """
    at = _panels(mean, sd, offsets, scales, np.ones_like(offsets))  # without steps every row is open
    first = np.searchsorted(at.row, np.arange(len(mean)))
    total = np.add.reduceat(np.sum(at.weights, axis=1), first)[:, None]
    weighted = at.weights[:, :, None] * at.hazard
    tie = np.add.reduceat(np.sum(weighted, axis=1), first)
    own = at.rate[at.row][:, None, :] * at.hazard
    moment = np.add.reduceat(np.sum(weighted * (np.sum(own, axis=2, keepdims=True) - own), axis=1), first)
    serve = tie > _IN_TAIL * total
    safe = np.where(serve, tie, 1.0)
    log_share = np.where(serve, np.log(safe / total / scales), np.nan)
    return _Ties(at.log_scale + np.log(total[:, 0]), log_share, np.where(serve, moment / safe / sd[:, None], np.nan))


def _log_phi_change(z: Array, delta: Array, hazard: Array | None = None) -> Array:
    """log Φ(z + delta) - log Φ(z), where z² does not drown the difference; hazard is φ/Φ at z + delta, if known.

    Φ = φ/r with r = φ/Φ: the difference is log r(z)/r(z + delta) - delta (z + delta/2), exact however far out to the
    left. On the right, where r is below rounding of what Φ lacks to one, both logarithms are small by themselves.
    """
    new = z + delta
    left = (z < _RIGHT) & (new < _RIGHT)
    r = _hazard(new) if hazard is None else hazard
    old = np.log(_hazard(np.minimum(z, _RIGHT)))
    change = old - np.log(np.where(left, r, 1.0)) - delta * (z + 0.5 * delta)
    change[~left] = log_ndtr(new[~left]) - np.broadcast_to(log_ndtr(z), new.shape)[~left]
    return np.asarray(change)


def _hazard(z: Array) -> Array:
    """r = φ/Φ."""
    return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0)))  # erfcx overflows to infinity where r is 0


def _derivative(start: Array, rate: Array, t: Array) -> tuple[Array, Array]:
    """Derivative of the log integrand at t, and its second derivative (roughly) with the sign changed."""
    z = start + rate * t[:, None]
    r = _hazard(z)
    far = np.maximum(-z, 5.0)
    gap = np.where(z < -5.0, 1.0 / (far + 2.0 / (far + 3.0 / far)), z + r)
    return np.sum(rate * r, axis=1) - t, 1.0 + np.sum(rate**2 * r * gap, axis=1)


def _modes(start: Array, rate: Array) -> Array:
    """Zeros of Σ_j rate_j r(start_j + rate_j t) - t, decreasing in t, to a tenth of the width of the integrand.

    A short Newton step alone does not say that a zero is near: beside a narrow Φ the curvature is large, and beyond it
    small. A point is taken when the derivative has changed its sign after two such steps.
    """
    value, curvature = _derivative(start, rate, np.zeros(len(start)))
    low, high = np.minimum(value, 0.0), np.maximum(value, 0.0)  # what is added to -t only falls
    t = np.clip(value / curvature, low, high)
    for _ in range(200):
        value, curvature = _derivative(start, rate, t)
        low, high = np.where(value > 0.0, t, low), np.where(value > 0.0, high, t)
        step = value / curvature
        result = np.abs(step) <= 0.1 / np.sqrt(curvature)
        beyond = np.clip(t + 2.0 * step, low, high)
        sign = _derivative(start, rate, beyond)[0]
        low, high = np.where(result & (sign > 0.0), beyond, low), np.where(result & (sign <= 0.0), beyond, high)
        result &= (sign > 0.0) != (value > 0.0)
        if np.all(result):
            break
        new = t + step
        t = np.where(result, t, np.where((low < new) & (new < high), new, 0.5 * (low + high)))
    return t


def _others(y: Labels, C: int) -> Labels:
    """The classes that are not the label's, (n, C-1), ascending."""
    every = np.broadcast_to(np.arange(C), (len(y), C))
    return every[every != y[:, None]].reshape(len(y), C - 1)


def log_largest(latent_mean: Array, latent_var: Array, y: Labels) -> Array:
    """log P(f_y > f_k for all k ≠ y), f_k ~ N(latent_mean_k, latent_var_k) independent, a vector (n,)."""
    rows, others = np.arange(len(y)), _others(y, latent_mean.shape[1])
    mean, sd = np.take_along_axis(latent_mean, others, 1), np.sqrt(np.take_along_axis(latent_var, others, 1))
    return line_integral(latent_mean[rows, y], latent_var[rows, y], mean, sd, np.ones_like(mean)).log_norm


def log_not_largest(latent_mean: Array, latent_var: Array, y: Labels) -> Array:
    """log P(f_y is not the largest), relative errors also where it is far below 1, a vector (n,).

    1 - Π_k Φ_k = Σ_k (1 - Φ_k) Π_{j<k} Φ_j: another class k is above f_y, and none before it. Every term is positive.
    """
    rows, others = np.arange(len(y)), _others(y, latent_mean.shape[1])
    mean, var = np.take_along_axis(latent_mean, others, 1), np.take_along_axis(latent_var, others, 1)
    centre, spread = latent_mean[rows, y], latent_var[rows, y]
    total = np.full(len(y), -np.inf)
    for k in range(mean.shape[1]):
        signs = np.ones((len(y), k + 1))
        signs[:, k] = -1.0
        part = line_integral(centre, spread, mean[:, : k + 1], np.sqrt(var[:, : k + 1]), signs)
        total = np.logaddexp(total, part.log_norm)
    return total


def _ties(m_y: Array, v_y: Array, mean: Array, var: Array) -> _Ties:
    """All ties of b rows; those that the nodes of P do not serve by integrals of their own."""
    log_p, log_share, derivative = np.full(len(m_y), np.nan), np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    together = (v_y > 0.0) & np.all(_FINE**2 * var > v_y[:, None], axis=1) & (mean.shape[1] + 1 >= _TOGETHER)
    if np.any(together):
        result = _ties_together(m_y[together], np.sqrt(v_y[together]), mean[together], np.sqrt(var[together]))
        log_p[together], log_share[together], derivative[together] = result
    left = ~together
    log_p[left] = line_integral(m_y[left], v_y[left], mean[left], np.sqrt(var[left]), np.ones_like(mean[left])).log_norm
    for k in range(mean.shape[1]):
        own = np.isnan(log_share[:, k])
        log_tie, derivative[own, k] = _tie(m_y[own], v_y[own], mean[own], var[own], k)
        possible = np.isfinite(log_p[own])
        log_share[own, k] = np.where(possible, log_tie - np.where(possible, log_p[own], 0.0), -np.inf)
    return _Ties(log_p, log_share, derivative)


def _tie(m_y: Array, v_y: Array, mean: Array, var: Array, k: int) -> tuple[Array, Array]:
    """Logarithm of the density of the tie with class k, and its derivative, by an integral of its own."""
    m_k, v_k = mean[:, k], var[:, k]
    gap, both = m_y - m_k, v_y + v_k
    soft = both > 0.0
    safe = np.where(soft, both, 1.0)
    part = np.where(v_y <= v_k, v_y, v_k) / safe  # what moves the centre off the sharper of the two
    centre = np.where(v_y <= v_k, m_y - gap * part, m_k + gap * part)
    rest_mean, rest_sd = np.delete(mean, k, axis=1), np.sqrt(np.delete(var, k, axis=1))
    tie = line_integral(centre, part * np.maximum(v_y, v_k), rest_mean, rest_sd, np.ones_like(rest_mean))
    log_density = -0.5 * gap**2 / safe - 0.5 * np.log(safe) - _HALF_LOG_2PI
    return np.where(soft, log_density + tie.log_norm, -np.inf), tie.derivative


def largest(latent_mean: Array, latent_var: Array, y: Labels) -> Largest:
    """log P(f_y > f_k for all k ≠ y) of n observations, with derivatives in every mean.

    The Gaussian of f_k at f_y = t, times that of f_y, is N(m_y - m_k | 0, v_y + v_k) N(t | c, w): ∂P/∂m_k is minus the
    density of the tie f_y = f_k times the probability that both, together at t, are above all others. Where both
    variances of a pair are zero its derivatives are zero, as they are off the tie.
    """
    n, C = latent_mean.shape
    rows, others = np.arange(n), _others(y, C)
    first, second = np.zeros((n, C)), np.zeros((n, C))
    m_y, v_y = latent_mean[rows, y], latent_var[rows, y]
    mean, var = np.take_along_axis(latent_mean, others, 1), np.take_along_axis(latent_var, others, 1)
    log_p, log_share, derivative = _ties(m_y, v_y, mean, var)
    for position in range(C - 1):
        k = others[:, position]
        gap, v_k = m_y - mean[:, position], var[:, position]
        safe = np.where(v_y + v_k > 0.0, v_y + v_k, 1.0)
        g = np.exp(log_share[:, position])
        first[rows, k] = -g
        first[rows, y] += g
        second[rows, k] = -g * (gap + v_y * derivative[:, position]) / safe
        second[rows, y] += g * (v_k * derivative[:, position] - gap) / safe
    if C == 2:  # log Φ itself: nothing cancels far out
        both = np.sum(latent_var, axis=1)
        safe = np.where(both > 0.0, both, 1.0)
        margin = (m_y - latent_mean[rows, others[:, 0]]) / np.sqrt(safe)
        curvature = np.repeat(np.where(both > 0.0, mills_derivative(margin)[1] / safe, 0.0)[:, None], 2, axis=1)
    else:
        curvature = second - first**2
    return Largest(log_p, first, second, curvature)
