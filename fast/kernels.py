"""The squared exponential kernel with one lengthscale per input, and its vector-Jacobian product.

Distances are sums of squared differences, never |x|^2 + |z|^2 - 2 x.z: with lengthscales small against the spread
of the data the latter loses (spread / lengthscale)^2 in relative accuracy. Differences are taken before anything is
rounded: x / lengthscale - z / lengthscale would lose |x| / lengthscale units in the last place far from the origin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from fast._types import FloatArray
from fast.ledger import equation


class KernelGradient(NamedTuple):
    """Gradient of a scalar through k(X1, X2)."""

    variance: float
    lengthscales: FloatArray  # (d,)
    X2: FloatArray  # (b, d)


@equation("wenzel2019", "u5-kernel")
def se_ard(X1: FloatArray, X2: FloatArray, variance: float, lengthscales: FloatArray) -> FloatArray:
    """k(x, x') = variance exp(-1/2 sum_j (x_j - x'_j)^2 / lengthscales_j^2): wenzel2019, section 5.

    Each lengthscale is a power of two, by which inputs are scaled exactly, times a number in [1/2, 1), which weighs
    the squared differences: no weight overflows, whatever the lengthscale. Time O(a b d), memory O(a b). Equal rows
    give exactly the variance.

    Parameters
    ----------
    X1 : (a, d)
    X2 : (b, d)
    variance : float       amplitude squared
    lengthscales : (d,)    in the units of the inputs

    Returns
    -------
    (a, b)

    Raises
    ------
    ValueError   if inputs / lengthscales overflows
    """
    mantissa, exponent = np.frexp(lengthscales)
    with np.errstate(over="ignore"):
        scaled_1, scaled_2 = np.ldexp(X1, -exponent), np.ldexp(X2, -exponent)
    if not (np.isfinite(scaled_1).all() and np.isfinite(scaled_2).all()):
        raise ValueError(f"lengthscales: found {lengthscales.min():.3g}, expected inputs / lengthscales to be finite")
    k = cdist(scaled_1, scaled_2, "sqeuclidean", w=mantissa**-2.0)
    k *= -0.5
    np.exp(k, out=k)
    k *= variance
    return k


@equation("wenzel2019", "u5-kernel")
def gram(X: FloatArray, variance: float, lengthscales: FloatArray, noise: float, jitter: float) -> FloatArray:
    """K = k(X, X) + (noise + jitter) I, symmetric to the last bit: wenzel2019, section 5 with the additive noise.

    Time O(n^2 d), memory n^2.

    Parameters
    ----------
    X : (n, d)
    variance, lengthscales   of the kernel: float, (d,)
    noise, jitter : float    both go to the diagonal

    Returns
    -------
    (n, n)
    """
    K = se_ard(X, X, variance, lengthscales)
    K.flat[:: K.shape[0] + 1] += noise + jitter
    return K


def se_ard_vjp(
    weighted: FloatArray, X1: FloatArray, X2: FloatArray, variance: float, lengthscales: FloatArray
) -> KernelGradient:
    """Pull a gradient with respect to the entries of k(X1, X2) back to variance, lengthscales and X2.

    With P = G o k (entry by entry) and t = (x_j - x'_j) / lengthscales_j,

        d/d variance = sum P / variance,   d/d lengthscales_j = sum P t^2 / lengthscales_j,
        d/d x'_j     = sum over X1 of P t / lengthscales_j.

    (P t) t in this order: P is 0 long before t^2 overflows. Time O(a b d), memory O(a b).

    Parameters
    ----------
    weighted : (a, b)        P, gradient times kernel
    X1, X2 : (a, d), (b, d)
    variance, lengthscales   of the kernel: float, (d,)
    """
    d = X1.shape[1]
    by_length, by_input = np.empty(d), np.empty_like(X2)
    step, product = np.empty_like(weighted), np.empty_like(weighted)
    for j in range(d):
        np.subtract.outer(X1[:, j], X2[:, j], out=step)
        step /= lengthscales[j]
        np.multiply(weighted, step, out=product)
        by_input[:, j] = product.sum(axis=0) / lengthscales[j]
        by_length[j] = np.einsum("ab,ab->", product, step) / lengthscales[j]
    return KernelGradient(float(weighted.sum() / variance), by_length, by_input)
