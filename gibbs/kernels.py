"""Squared exponential kernel with one lengthscale per input: wenzel2019, section 5."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gibbs.errors import Array, _inputs, _lengthscales, _scalar


def squared_exponential(X1: ArrayLike, X2: ArrayLike, variance: float, lengthscales: ArrayLike) -> Array:
    """k(x, x') = variance · exp(-½ Σ_j (x_j - x'_j)² / lengthscales_j²), without noise or jitter.

    X1 (a, d), X2 (b, d), variance > 0, lengthscales (d,) > 0. Returns (a, b). The differences are formed input by
    input, so k(x, x) = variance exactly and equal rows give equal columns. Raises ValueError on bad input.
    """
    left = _inputs("X1", X1, empty=True)
    right = _inputs("X2", X2, left.shape[1], empty=True)
    scales = _lengthscales(lengthscales, left.shape[1])
    amplitude = _scalar("variance", variance, positive=True)
    distance = np.zeros((left.shape[0], right.shape[0]))
    for j, scale in enumerate(scales):
        distance += np.square(np.subtract.outer(left[:, j], right[:, j]) / scale)
    return amplitude * np.exp(-0.5 * distance)
