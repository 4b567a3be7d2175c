"""What the judge's quadratures share: the kernel, and how fine a trapezoidal rule must be."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from validation.door.problem import Problem

Array = NDArray[np.float64]


def spacing(strip: float, stretch: float, digits: float) -> float:
    """Spacing in units of white that leaves 10^-digits, where f = stretch * white.

    The error is about 20 exp(a²/2 - 2π a/spacing) for a strip of half-width a: the Gaussian grows off the axis, and 20
    is what moments add. 4/digits is fine enough for the prior alone, and differs with digits: two rules that coincide
    would state no error.
    """
    widest = 4.0 / digits
    if stretch == 0.0:
        return widest
    needed = np.log(20.0) + digits * np.log(10.0)
    half_width = min(strip / stretch, np.sqrt(2.0 * needed))
    return float(min(widest, 2.0 * np.pi * half_width / (needed + 0.5 * half_width**2)))


def kernel(problem: Problem, latent: int, A: Array, B: Array) -> Array:
    """k(A, B) of one latent function, (a, b), without noise or jitter."""
    square = (((A[:, None] - B[None]) / problem.lengthscales[latent]) ** 2).sum(-1)
    if problem.smoothness is None:
        return np.asarray(problem.variance[latent] * np.exp(-0.5 * square))
    order = float(problem.smoothness[latent])
    values, where = np.unique(square, return_inverse=True)
    correlation = np.array([matern_correlation(order, math.sqrt(2.0 * order * r2)) for r2 in values])
    return np.asarray(problem.variance[latent] * correlation[where].reshape(square.shape))


def matern_correlation(order: float, s: float) -> float:
    """2 (s/2)^ν K_ν(s)/Γ(ν) with K_ν(s) = ∫_0^∞ exp(-s cosh t) cosh(νt) dt (DLMF 10.32.9), ν = order.

    The integrand falls double-exponentially and is analytic for |Im t| < π/2, so that the trapezoidal rule of spacing
    h leaves about exp(-π²/h). Terms are summed as logarithms: neither factor overflows, the product is at most one.
    """
    if s == 0.0:
        return 1.0
    if s > 750.0 + 12.0 * order:  # exp(-s) outweighs (s/2)^ν
        return 0.0
    # beyond `end` s cosh t exceeds νt by 800: everything is zero there; large orders make the peak narrow
    end = math.log(2.0 * (800.0 + 40.0 * order) / s + 2.0) + 1.0
    h = 0.1 / math.sqrt(1.0 + 0.1 * order)
    t = h * np.arange(int(end / h) + 2)
    log_term = (
        order * (t + math.log(0.5 * s)) - s * np.cosh(t) + np.log1p(np.exp(-2.0 * order * t)) - math.lgamma(order)
    )
    term = np.exp(log_term)
    return float(h * (term.sum() - 0.5 * term[0]))
