"""Kernels with one lengthscale per input: squared exponential (wenzel2019, section 5) and Matérn of any smoothness.

Both are functions of r² = Σ_j (x_j - x'_j)²/lengthscales_j², formed input by input. The Matérn kernel of smoothness ν
(Rasmussen & Williams 2006, (4.14)) is variance · M_ν(√(2ν) r), M_ν(s) = 2 (s/2)^ν K_ν(s)/Γ(ν), and tends to the squared
exponential as ν grows.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike
from scipy.special import gamma, kv

from gibbs.core.errors import Array, _inputs, _lengthscales, _scalar

# above it K_ν may overflow where M_ν is not yet 1; there Debye's expansion with ten terms is right to some 1e-14
_LARGE = 25.0
_TERMS = 10


def squared_exponential(X1: ArrayLike, X2: ArrayLike, variance: float, lengthscales: ArrayLike) -> Array:
    """k(x, x') = variance · exp(-½ Σ_j (x_j - x'_j)² / lengthscales_j²), without noise or jitter.

    X1 (a, d), X2 (b, d), variance > 0, lengthscales (d,) > 0. Returns (a, b). The differences are formed input by
    input, so k(x, x) = variance exactly and equal rows give equal columns. Raises ValueError on bad input.
    """
    distance, amplitude = _distance(X1, X2, variance, lengthscales)
    return amplitude * np.exp(-0.5 * distance)


def matern(X1: ArrayLike, X2: ArrayLike, variance: float, lengthscales: ArrayLike, smoothness: float) -> Array:
    """k(x, x') = variance · M_ν(√(2ν) r), the Matérn kernel of any smoothness ν > 0, without noise or jitter.

    X1 (a, d), X2 (b, d), variance > 0, lengthscales (d,) > 0, smoothness ν > 0. Returns (a, b), k(x, x) = variance
    exactly; relative error about 1e-14. Closed forms for ν = 1/2, 3/2, 5/2, Debye's expansion above 25.
    Raises ValueError on bad input.
    """
    order = _scalar("smoothness", smoothness, positive=True)
    distance, amplitude = _distance(X1, X2, variance, lengthscales)
    return amplitude * np.minimum(_matern(order, distance), 1.0)


def covariance(
    X1: ArrayLike, X2: ArrayLike, variance: float, lengthscales: ArrayLike, smoothness: float | None = None
) -> Array:
    """`matern` of the given smoothness, or `squared_exponential` for None: X1, X2, variance, lengthscales as there."""
    if smoothness is None:
        return squared_exponential(X1, X2, variance, lengthscales)
    return matern(X1, X2, variance, lengthscales, smoothness)


def _distance(X1: ArrayLike, X2: ArrayLike, variance: float, lengthscales: ArrayLike) -> tuple[Array, float]:
    """r² (a, b), and the checked variance."""
    first = _inputs("X1", X1, empty=True)
    second = _inputs("X2", X2, first.shape[1], empty=True)
    scales = _lengthscales(lengthscales, first.shape[1])
    amplitude = _scalar("variance", variance, positive=True)
    distance = np.zeros((first.shape[0], second.shape[0]))
    for j, scale in enumerate(scales):
        with np.errstate(over="ignore"):  # farther apart than float64 reaches: infinitely far, a covariance of 0
            distance += np.square(np.subtract.outer(first[:, j], second[:, j]) / scale)
    return distance, amplitude


def _matern(order: float, distance: Array) -> Array:
    """M_ν(√(2ν) r) of r²; beyond the distances at which it is taken, M is zero in float64."""
    if order > _LARGE:
        return _debye(order, np.minimum(distance, 1e6))
    s = np.minimum(np.sqrt(2.0 * order * distance), 1e3)
    if order in (0.5, 1.5, 2.5):
        factor = {0.5: 1.0, 1.5: 1.0 + s, 2.5: 1.0 + s + np.square(s) / 3.0}[order]
        return np.asarray(factor * np.exp(-s))
    with np.errstate(under="ignore"):
        power = (0.5 * s) ** order
        near = power < 1e-290  # there 1 - M is below 1e-20, and K_ν may overflow
        return np.asarray(np.where(near, 1.0, 2.0 / gamma(order) * power * kv(order, np.where(near, 1.0, s))))


def _debye_polynomials() -> list[Polynomial]:
    """u_0 .. u_10 of Debye's expansion of K_ν(νz), functions of t = 1/√(1 + z²): DLMF 10.41.9."""
    squared, results = Polynomial([0.0, 0.0, 1.0]), [Polynomial([1.0])]
    for _ in range(_TERMS):
        last = results[-1]
        results.append(0.5 * squared * (1.0 - squared) * last.deriv() + (0.125 * (1.0 - 5.0 * squared) * last).integ())
    return results


_DEBYE = _debye_polynomials()


def _debye(order: float, distance: Array) -> Array:
    """M_ν from the uniform expansion of K_ν(νz) (DLMF 10.41.4) over its own limit z -> 0, where M is one.

    z² = 2r²/ν and w = √(1 + z²): z^ν exp(-νη) is exp(-ν[(w - 1) - log((1 + w)/2)]) up to a constant, without
    cancellation if w - 1 is z²/(1 + w); for ν -> ∞ the exponent is -½r².
    """
    square = 2.0 * distance / order
    w = np.sqrt(1.0 + square)
    rise = square / (1.0 + w)

    def series(t: Array) -> Array:
        total = _DEBYE[_TERMS](t)
        for k in range(_TERMS - 1, -1, -1):
            total = _DEBYE[k](t) - total / order
        return total

    with np.errstate(under="ignore"):
        body = np.exp(-order * (rise - np.log1p(0.5 * rise)) - 0.25 * np.log1p(square))
        return np.asarray(body * series(1.0 / w) / series(np.ones(1)))
