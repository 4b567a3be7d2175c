"""One-dimensional Gaussian integrals of products of Φ: panels around the mode and around each bend."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

from reference.common.probit import mills_derivative

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_HALF_WIDTH = 10.0  # the integrand falls at least as fast as exp(-(t - mode)²/2): 2e-22 at the ends
_BEND = np.array([-16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0])


class Line(NamedTuple):
    """A discrete measure that stands for N(s|mean, var) Π_j Φ((s - offset_j)/scale_j), normalised."""

    log_norm: float  # logarithm of the integral
    s: Array  # (q,) nodes
    weights: Array  # (q,) summing to one
    z: Array  # (q, J) arguments of the Φ


def probit_line(mean: float, var: float, offsets: Array, scales: Array) -> Line:
    """The measure N(s|mean, var) Π_j Φ((s - offset_j)/scale_j) ds, with 24 Gauss-Legendre nodes on each panel.

    In t = (s - mean)/√var the logarithm of the integrand is concave, with curvature below -1.
    """
    sd = float(np.sqrt(var))

    def arguments(t: Array) -> Array:
        return (mean + sd * t[:, None] - offsets) / scales

    mode = _mode(mean, sd, offsets, scales)
    spread = 1.0 / np.sqrt(1.0 + np.sum((sd / scales) ** 2))
    steps = spread * 2.0 ** np.arange(0.0, np.log2(_HALF_WIDTH / spread))
    bends = ((offsets - mean)[:, None] + scales[:, None] * _BEND) / sd
    points = np.concatenate([mode - steps, [mode], mode + steps, bends.ravel(), mode + np.arange(-9.0, 10.0)])
    low, high = mode - _HALF_WIDTH, mode + _HALF_WIDTH
    if not low < mode < high:
        raise ValueError(
            f"mean: found an integrand with its mode {abs(mode):.3g} standard deviations away, expected at most 1e16: "
            "beyond, no two numbers tell its width; lower variance"
        )
    edges = np.unique(np.concatenate([[low], points[(points > low) & (points < high)], [high]]))
    half_width = 0.5 * np.diff(edges)
    t = (edges[:-1, None] + half_width[:, None] * (1.0 + _NODES)).ravel()
    z = arguments(t)
    log_density = np.sum(log_ndtr(z), axis=1) - 0.5 * t**2 - 0.5 * np.log(2.0 * np.pi)
    top = float(np.max(log_density))
    weights = (half_width[:, None] * _WEIGHTS).ravel() * np.exp(log_density - top)
    total = float(np.sum(weights))
    return Line(top + float(np.log(total)), mean + sd * t, weights / total, z)


def _mode(mean: float, sd: float, offsets: Array, scales: Array) -> float:
    """The zero of Σ_j (sd/scale_j) r(z_j(t)) - t, a decreasing function of t."""

    def derivative(t: float) -> float:
        return float(np.sum(sd / scales * mills_derivative((mean + sd * t - offsets) / scales)[0])) - t

    low, high = 0.0, 1.0
    while derivative(high) > 0.0:
        low, high = high, 2.0 * high
    # the panels only need to know roughly where the mode is
    return float(brentq(derivative, low, high, xtol=1e-7, rtol=1e-7))
