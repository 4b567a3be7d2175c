r"""Expectations of log Phi(y f) and of Phi(y f) under a Gaussian f, and their derivatives: the probit link.

Variational: with s^2 = v, the three integrals

    E[g(f)], E[g'(f)], E[g''(f)],   g = log Phi,   f ~ N(y m, s^2),   y in {-1, +1}

are sums of a trapezoidal rule. g < 0, g' > 0, g'' < 0 everywhere, so no sum cancels and the error is relative. The rule
converges like exp(-2 pi a / h) where a is the half-width of the strip in which the integrand is analytic: the zeros of
Phi nearest to the real axis are 1.92 +- 2.82 i, and a Gaussian of width w allows h = 0.7 w at 1e-16.

- s <= 3, or y m < -12 s (the bend at 0 is out of sight): equal steps in x = (f - y m)/s.
- s > 3: equal steps in t with f = t - e^-t. Right of 0 g decays like a Gaussian of width one, left of 0 it is
  f^2/2 + log|f| + const: logarithmic steps there serve every s. An envelope c^2 sin^2 a / (2 cos 2a), c = -y m / s, of
  the Gaussian on the strip |Im t| = a < pi/4 gives 1/h = 7.5 + max(c, 0).

Where y m > 0, g(f) ~ exp(-f^2/2) moves the mass to y m / (1 + v), narrower by 1/sqrt(1 + v): the range follows.
The error, truncation of range included, is below 1e-12 relative as long as the value exceeds 1e-280.

Expectation propagation: E[Phi(y f)] = Phi(z), z = y m / sqrt(1 + v), in logarithms to |z| = 1e6 and beyond.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr, wrightomega

from fast.core.types import FloatArray

_CELLS = 2**16  # numbers in one table of (points, nodes)
_SPLIT = 3.0  # standard deviation above which steps left of 0 are logarithmic
_FAR = 12.0  # standard deviations from 0 at which the bend is out of sight
_REACH = 9.0  # standard deviations (of what remains of the Gaussian) that are summed
_DROP = 45.0  # logarithm by which the Gaussian has fallen where the rule ends
_TINY = 1e-140  # below this standard deviation a Gaussian is a point mass
_ROOT_2_OVER_PI = float(np.sqrt(2.0 / np.pi))
_ROOT_HALF = float(np.sqrt(0.5))
_ROOT_2PI = float(np.sqrt(2.0 * np.pi))


class Hazard(NamedTuple):
    """r(z) = phi(z)/Phi(z) and r(z) + z, both > 0."""

    ratio: FloatArray
    excess: FloatArray


class LinkMoments(NamedTuple):
    """What q(f_i) = N(m, v) says of one label."""

    value: FloatArray  # (n,) log-likelihood: its expectation, or the log of the expected likelihood
    derivative: FloatArray  # (n,) derivative in m
    curvature: FloatArray  # (n,) second derivative in m, < 0


def hazard(z: FloatArray) -> Hazard:
    """r = phi/Phi and r + z without cancellation: (log Phi)' = r, (log Phi)'' = -r (r + z).

    r = sqrt(2/pi) / erfcx(-z/sqrt 2). Left of -8, r + z = 1/(x + 2/(x + 3/(x + ...))), x = -z (Laplace's continued
    fraction of Mills' ratio, 40 levels: exact to rounding there); r + z itself loses x^2 eps, at most 64 eps, before.

    Parameters
    ----------
    z : any shape    any real numbers

    Returns
    -------
    ratio, excess    of the same shape
    """
    with np.errstate(over="ignore"):  # Phi(z) = 1 beyond 38: r = 0
        ratio = _ROOT_2_OVER_PI / erfcx(-_ROOT_HALF * z)
    excess = ratio + z
    left = z < -8.0
    if left.any():
        x = -z[left]
        tail = x.copy()
        for level in range(40, 1, -1):
            np.divide(level, tail, out=tail)
            tail += x
        excess[left] = 1.0 / tail
    return Hazard(ratio, excess)


def _sum_rule(f: FloatArray, weights: FloatArray) -> LinkMoments:
    """Weighted sums of log Phi and its derivatives at nodes f (points, nodes)."""
    r, excess = hazard(f)
    value = np.einsum("bq,bq->b", weights, log_ndtr(f))
    weighted = np.multiply(weights, r, out=weights)
    return LinkMoments(value, weighted.sum(axis=1), -np.einsum("bq,bq->b", weighted, excess))


def _ranges(mean: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends, in standard deviations from the mean, of what the integrals need."""
    centre = mean / scale
    narrow = np.sqrt(1.0 + scale * scale)
    shift = -np.maximum(mean, 0.0) * (scale / narrow) / narrow  # where the mass sits: mean / (1 + v)
    right = np.where(mean > 0.0, shift + _REACH / narrow, np.minimum(_REACH, _REACH / scale - centre))
    reaches_bend = np.maximum(mean, 0.0) + scale * (shift - _REACH / narrow) <= 0.0
    # left of the bend the Gaussian alone decays: exp(-x^2/2) falls by e^-45 from its value at the bend
    bend = np.hypot(np.maximum(centre, 0.0), np.sqrt(2.0 * _DROP))
    left = np.where((mean > 0.0) & ~reaches_bend, shift - _REACH / narrow, -bend)
    return left, right


def _plain(mean: FloatArray, scale: FloatArray, left: FloatArray, right: FloatArray, nodes: int) -> LinkMoments:
    x = left[:, None] + (right - left)[:, None] * np.linspace(0.0, 1.0, nodes)
    weights = np.exp(-0.5 * x * x) * ((right - left) / ((nodes - 1) * _ROOT_2PI))[:, None]
    return _sum_rule(mean[:, None] + scale[:, None] * x, weights)


def _unbend(f: FloatArray) -> FloatArray:
    """t with t - e^-t = f: e^-t is Wright's omega of -f."""
    stretch = wrightomega(-f)
    with np.errstate(divide="ignore"):  # e^-t underflows far to the right
        return np.where(f > 0.0, f + stretch, -np.log(stretch))


def _bent(mean: FloatArray, scale: FloatArray, left: FloatArray, right: FloatArray, nodes: int) -> LinkMoments:
    t = left[:, None] + (right - left)[:, None] * np.linspace(0.0, 1.0, nodes)
    stretch = np.exp(-t)
    f = t - stretch
    x = (f - mean[:, None]) / scale[:, None]
    weights = np.exp(-0.5 * x * x) * (1.0 + stretch) * ((right - left) / ((nodes - 1) * _ROOT_2PI * scale))[:, None]
    return _sum_rule(f, weights)


def expected_log_probit(y_sign: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> LinkMoments:
    """E[log Phi(y f)] for f ~ N(m, v), and its first and second derivative in m (twice the derivative in v).

    Relative error below 1e-12 for 0 <= v <= 1e8 and |m| <= 1e4, as long as the value exceeds 1e-280 (the standing
    test). A point's sums depend on nothing but its own arguments. Time about 30 to 350 evaluations of erfcx and
    log_ndtr a point, memory bounded.

    Parameters
    ----------
    y_sign : (n,)         -1, +1
    latent_mean : (n,)    m, finite
    latent_var : (n,)     v >= 0, finite

    Returns
    -------
    value, derivative, curvature (n,); the curvature is negative
    """
    mean, scale = y_sign * latent_mean, np.sqrt(latent_var)
    out = LinkMoments(*(np.empty(mean.size) for _ in range(3)))
    # a point mass, or a value below 1e-325: phi(y m / sqrt(1 + v)) bounds all three
    point = (scale <= _TINY) | ((mean > 0.0) & (mean * mean > 1500.0 * (1.0 + latent_var)))
    safe = np.where(point, 1.0, scale)
    bent = (safe > _SPLIT) & (mean >= -_FAR * safe)
    left, right = _ranges(mean, safe)
    step = 1.0 / np.sqrt(1.0 / 0.7**2 + (safe / 0.45) ** 2)  # of x: the Gaussian, and the zeros of Phi
    step = np.where(mean < -_FAR * safe - 8.0, 0.7, step)
    if bent.any():
        ends = [mean[bent] + safe[bent] * end[bent] for end in (left, right)]
        left[bent], right[bent] = (_unbend(end) for end in ends)
        step[bent] = 1.0 / (7.5 + np.maximum(-mean[bent] / safe[bent], 0.0))
    # Nodes by sixteens: points with the same number go together, and which points those are changes nothing.
    nodes = 16 * np.ceil((right - left) / step / 16.0).astype(np.int64) + 1
    kind = np.where(point, 0, 2 * nodes + bent)
    for value in np.unique(kind):
        members = np.flatnonzero(kind == value)
        size = int(value) // 2
        for start in range(0, members.size, max(1, _CELLS // max(size, 1))):
            rows = members[start : start + max(1, _CELLS // max(size, 1))]
            if value == 0:
                part = _sum_rule(mean[rows, None], np.ones((rows.size, 1)))
            else:
                rule = _bent if value % 2 else _plain
                part = rule(mean[rows], safe[rows], left[rows], right[rows], size)
            for target, source in zip(out, part, strict=True):
                target[rows] = source
    np.multiply(out.derivative, y_sign, out=out.derivative)
    return out


def log_expected_probit(y_sign: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> LinkMoments:
    """log E[Phi(y f)] = log Phi(z), z = y m / sqrt(1 + v), and its first and second derivative in m.

    The tilted distribution of expectation propagation: mean m + v derivative, variance v + v^2 curvature. In logarithms
    throughout: relative accuracy for every z to -1e6 and beyond.

    Parameters
    ----------
    y_sign : (n,)         -1, +1
    latent_mean : (n,)    m of the cavity
    latent_var : (n,)     v of the cavity, >= 0

    Returns
    -------
    value, derivative, curvature (n,); the curvature is in [-1/(1 + v), 0]
    """
    width = np.sqrt(1.0 + latent_var)
    z = y_sign * latent_mean / width
    r, excess = hazard(z)
    return LinkMoments(log_ndtr(z), y_sign * r / width, -(r / width) * (excess / width))


def class_probabilities(latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
    """P(y = 0), P(y = 1) = Phi(-+ m / sqrt(1 + v)), each by its own tail.

    Parameters
    ----------
    latent_mean : (t,)
    latent_var : (t,)    >= 0

    Returns
    -------
    (t, 2)
    """
    z = latent_mean / np.sqrt(1.0 + latent_var)
    return np.exp(np.stack([log_ndtr(-z), log_ndtr(z)], axis=1))
