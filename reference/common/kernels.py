"""The squared exponential kernel and its derivatives, written out entry by entry."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def squared_exponential(X1: Array, X2: Array, variance: float, lengthscales: Array) -> Array:
    """k(x, x') = variance · exp(-½ Σ_j (x_j - x'_j)² / lengthscales_j²), a matrix (a, b).

    Parameters
    ----------
    X1 : (a, d)               first points
    X2 : (b, d)               second points
    variance : float          prior variance, the square of the amplitude
    lengthscales : (d,)       one lengthscale per input dimension
    """
    scaled = (X1[:, None, :] - X2[None, :, :]) / lengthscales  # differences first: exact zeros stay exact
    return variance * np.exp(-0.5 * np.sum(scaled**2, axis=2))


def derivative_variance(X1: Array, X2: Array, variance: float, lengthscales: Array) -> Array:
    """∂k(x, x')/∂variance, a matrix (a, b); X1 (a, d), X2 (b, d), variance, lengthscales (d,)."""
    return squared_exponential(X1, X2, variance, lengthscales) / variance


def derivative_lengthscales(X1: Array, X2: Array, variance: float, lengthscales: Array) -> Array:
    """∂k(x, x')/∂lengthscales_j = k (x_j - x'_j)² / lengthscales_j³, an array (d, a, b).

    X1 (a, d), X2 (b, d), variance, lengthscales (d,).
    """
    K = squared_exponential(X1, X2, variance, lengthscales)
    return np.stack(
        [K * (X1[:, None, j] - X2[None, :, j]) ** 2 / lengthscales[j] ** 3 for j in range(len(lengthscales))]
    )


def derivative_inputs(X1: Array, X2: Array, variance: float, lengthscales: Array) -> Array:
    """∂k(x, x')/∂x'_j = k (x_j - x'_j) / lengthscales_j² for the second argument, an array (d, a, b).

    X1 (a, d), X2 (b, d), variance, lengthscales (d,).
    """
    K = squared_exponential(X1, X2, variance, lengthscales)
    return np.stack([K * (X1[:, None, j] - X2[None, :, j]) / lengthscales[j] ** 2 for j in range(len(lengthscales))])
