"""One-dimensional integrals of a product of normal distribution functions, relative accuracy however small they are.

Z = E[prod_j Phi(a_j + b_j u)], u ~ N(0, 1), and what follows from it. The integrand is log-concave with curvature below
-1: beyond 9 from its mode nothing is left at 1e-17. Off the real axis it grows like exp(y^2 (1 + sum b^2)/2), so the
trapezoidal rule of step h errs by exp(-2 pi^2 / (h^2 (1 + sum b^2))), below 1e-17 at h = 0.7 (1 + sum b^2)^-1/2. Newton
steps to the mode start at 0, where the derivative is positive; that is convex and falls, so they never pass it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from fast.core.types import FloatArray
from fast.likelihood.probit import hazard

_REACH = 9.0
_STEP = 0.7
_CELLS = 2**19
_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))


class RegionMoments(NamedTuple):
    """log Z and E[r(t_j)] under the tilted distribution, r = phi/Phi, t_j = a_j + b_j u."""

    log_mass: FloatArray  # (n,)
    hazards: FloatArray | None  # (n, D): d log Z / d a_j
    curvature: FloatArray | None = None  # (n, D, D): -d^2 log Z / d a_j d a_l, positive semi-definite


def _mode(a: FloatArray, b: FloatArray) -> FloatArray:
    u = np.zeros(len(a))
    for _ in range(60):
        r, excess = hazard(a + b * u[:, None])
        derivative = (b * r).sum(axis=1) - u
        step = derivative / (1.0 + (b * b * r * excess).sum(axis=1))
        u += step
        if (np.abs(step) < 1e-3).all():
            break
    return u


def region_moments(a: FloatArray, b: FloatArray, *, moments: bool = False, curvature: bool = False) -> RegionMoments:
    """log E[prod_j Phi(a_j + b_j u)], relative error below 1e-13, and its gradient in a.

    Time n D nodes, nodes about 26 (1 + sum b^2)^1/2; memory bounded.

    Parameters
    ----------
    a, b : (n, D)      b > 0
    moments : bool     the gradient too
    curvature : bool   gradient and second derivatives too
    """
    n, D = a.shape
    log_mass = np.empty(n)
    hazards = np.empty((n, D)) if moments or curvature else None
    second = np.empty((n, D, D)) if curvature else None
    step = _STEP / np.sqrt(1.0 + (b * b).sum(axis=1))
    half_count = 8 * np.ceil(_REACH / step / 8.0).astype(np.int64)
    mode = _mode(a, b)
    for value in np.unique(half_count):
        members = np.flatnonzero(half_count == value)
        grid = np.arange(-value, value + 1)
        size = max(1, _CELLS // (grid.size * D))
        for start in range(0, members.size, size):
            rows = members[start : start + size]
            h = _REACH / value
            u = mode[rows, None] + h * grid
            t = a[rows, None, :] + b[rows, None, :] * u[:, :, None]
            log_terms = log_ndtr(t).sum(axis=2) - 0.5 * u * u
            top = log_terms.max(axis=1)
            weights = np.exp(log_terms - top[:, None])
            mass = weights.sum(axis=1)
            log_mass[rows] = top + np.log(mass * h) - _HALF_LOG_2PI
            if hazards is not None:
                ratio, excess = hazard(t)
                weights /= mass[:, None]
                derivative = np.einsum("nu,nuj->nj", weights, ratio)
                hazards[rows] = derivative
                if second is not None:
                    centred = ratio - derivative[:, None, :]
                    weighted = centred * weights[:, :, None]
                    part = -(weighted.transpose(0, 2, 1) @ centred)
                    part[:, np.arange(D), np.arange(D)] += np.einsum("nu,nuj->nj", weights, ratio * excess)
                    second[rows] = part
    return RegionMoments(log_mass, hazards, second)
