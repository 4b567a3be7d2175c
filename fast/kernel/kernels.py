"""The squared exponential kernel with one lengthscale per input, the Matérn kernel on the same distances, and their
vector-Jacobian products.

Distances are sums of squared differences, never |x|^2 + |z|^2 - 2 x.z: with lengthscales small against the spread
of the data the latter loses (spread / lengthscale)^2 in relative accuracy. Differences are taken before anything is
rounded: x / lengthscale - z / lengthscale would lose |x| / lengthscale units in the last place far from the origin.
Small batches near the inducing points take matrix products all the same, where a bound on the error allows it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dgemm
from scipy.spatial.distance import cdist

from fast.core.inputs import Hyper
from fast.core.types import FloatArray
from fast.kernel.matern import matern_derivative, matern_value
from fast.ledger import equation

# Distance of an input from the centre of Z, in lengthscales, up to which |t - t'|^2 may come from |t|^2 and t.t'.
_NEAR = 16.0


class KernelGradient(NamedTuple):
    """Gradient of a scalar through k(X1, X2)."""

    variance: float
    lengthscales: FloatArray  # (d,)
    X2: FloatArray  # (b, d)


class ProductSums(NamedTuple):
    """Sums over rows x of X with weights P, from which gradients follow; t in lengthscales from the centre of Z."""

    totals: FloatArray  # (m,), of P
    squares: FloatArray  # (d,), of P t^2
    inner: FloatArray  # (m, d), of P't

    def add(self, other: ProductSums) -> None:
        """Those of another block, in place."""
        for mine, its in zip(self, other, strict=True):
            mine += its


def _column_sums(left: FloatArray, right: FloatArray) -> FloatArray:
    """Sums over rows of the products of entries."""
    sums: FloatArray = (left * right).sum(axis=0)
    return sums


class PreparedKernel:
    """k(., Z) with what does not depend on its first argument computed once, for many small batches."""

    def __init__(
        self, Z: FloatArray, variance: float, lengthscales: FloatArray, smoothness: float | None = None
    ) -> None:
        self.Z, self.variance, self.lengthscales, self.smoothness = Z, variance, lengthscales, smoothness
        mantissa, exponent = np.frexp(lengthscales)
        self._shift, self._weights = -exponent, mantissa**-2.0
        self._scaled = self._scale(Z)
        self._centre: FloatArray | None = Z.mean(axis=0)
        self._t_Z = t = self._units(Z)
        if t is None:
            self._centre = None
        else:
            self._offset = np.log(variance) - 0.5 * np.vecdot(t, t)

    def _scale(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            scaled: FloatArray = np.ldexp(X, self._shift)
        if not np.isfinite(scaled).all():
            smallest = self.lengthscales.min()
            raise ValueError(f"lengthscales: found {smallest:.3g}, expected inputs / lengthscales to be finite")
        return scaled

    def cross_by_product(self, X: FloatArray) -> FloatArray:
        """k(X, Z) with distances from one matrix product, where that is as good: (b, m). Time O(b m d).

        -|t - t'|^2 / 2 = t.t' - |t|^2 / 2 - |t'|^2 / 2 in units of the lengthscales from the centre of Z. Where nothing
        is farther out than 16 of them its rounding moves k by less than 4 eps 256 d, relative; else: `cross`.
        """
        t = self._units(X) if self.smoothness is None else None
        if t is None:
            return self.cross(X)
        assert self._t_Z is not None
        k: FloatArray = t @ self._t_Z.T  # of Z with itself BLAS computes one triangle
        k -= 0.5 * np.vecdot(t, t)[:, None]
        k += self._offset
        np.exp(k, out=k)
        return k

    def _units(self, X: FloatArray) -> FloatArray | None:
        """Inputs in lengthscales from the centre of Z; None if they, or Z, reach too far."""
        if self._centre is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            t: FloatArray = X - self._centre
            t /= self.lengthscales
            near = max(t.max(), -t.min()) <= _NEAR  # False for NaN too
        return t if near else None

    def entries_vjp(self, gradient: FloatArray, X: FloatArray, K_XZ: FloatArray) -> KernelGradient:
        """From a gradient (b, m) with respect to the entries of k(X, Z), which is overwritten.

        K_XZ (b, m) is k(X, Z). The lengthscales and Z see the derivative h of the kernel,
        `fast.kernel.matern.matern_derivative`; for the squared exponential h = k. Time O(b m d).
        """
        if self.smoothness is None:
            gradient *= K_XZ
            return self.vjp(gradient, X)
        by_variance = float(np.vdot(gradient, K_XZ)) / self.variance
        gradient *= matern_derivative(self._squared(X), self.variance, self.smoothness)
        part = se_ard_vjp(gradient, X, self.Z, self.variance, self.lengthscales)
        return KernelGradient(by_variance, part.lengthscales, part.X2)

    def vjp(self, weighted: FloatArray, X: FloatArray) -> KernelGradient:
        """`se_ard_vjp` by matrix products where distances may come from one, see `cross_by_product`."""
        sums = self.sums(weighted, X)
        if sums is None:
            return se_ard_vjp(weighted, X, self.Z, self.variance, self.lengthscales)
        return self.vjp_of_sums(sums, None)

    def sums(self, weighted: FloatArray, X: FloatArray, out: FloatArray | None = None) -> ProductSums | None:
        """What `vjp_of_sums` needs of a block, P of `se_ard_vjp`; None where no product gives distances. Time O(b m d).

        Parameters
        ----------
        weighted : (b, m)    P, gradient times kernel
        X : (b, d)
        out : (m, d)         where P't is to stand; C order
        """
        t = self._units(X)
        if t is None:
            return None
        inner = np.matmul(weighted.T, t, out=out)
        of_X, of_Z = weighted.sum(axis=1), weighted.sum(axis=0)
        return ProductSums(of_Z, of_X @ np.square(t), inner)

    def vjp_of_sums(self, sums: ProductSums, among: FloatArray | None) -> KernelGradient:
        """The gradient through k(X, Z) from sums over X, and through k(Z, Z), Z moved in both arguments of it.

        With t' of Z, A = sum of P't over X, P' the weights of k(Z, Z), w' their sums, w = 2 w' + sum of P over X,

            Z:              G / lengthscales,   G = A + (2 P' - diag w) t'
            lengthscales:   (sum of P t^2 - sum over Z of t' (G + A)) / lengthscales

        Time O(m^2 d), or O(m d) without k(Z, Z).

        Parameters
        ----------
        sums               of all blocks; overwritten, and X2 of the gradient stands where P't stood
        among : (m, m)     P', symmetric, gradient times kernel; None: k(X, Z) alone
        """
        t = self._t_Z
        assert t is not None
        totals, squares, inner = sums
        total = float(totals.sum())
        by_length = squares - _column_sums(inner, t)
        if among is None:
            inner -= totals[:, None] * t
        else:
            own, turn = among.sum(axis=0), 2.0 * among
            total += float(own.sum())
            turn.flat[:: t.shape[0] + 1] -= totals + 2.0 * own
            inner = dgemm(1.0, t.T, turn.T, beta=1.0, c=inner.T, overwrite_c=1).T
        by_length -= _column_sums(inner, t)
        by_length /= self.lengthscales
        inner /= self.lengthscales
        return KernelGradient(total / self.variance, by_length, inner)

    def _squared(self, X: FloatArray) -> FloatArray:
        squared: FloatArray = cdist(self._scale(X), self._scaled, "sqeuclidean", w=self._weights)
        return squared

    def cross(self, X: FloatArray) -> FloatArray:
        """k(X, Z): (b, m). Time O(b m d)."""
        k = self._squared(X)
        if self.smoothness is not None:
            return matern_value(k, self.variance, self.smoothness)
        k *= -0.5
        np.exp(k, out=k)
        k *= self.variance
        return k


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
    return PreparedKernel(X2, variance, lengthscales).cross(X1)


def matern(X1: FloatArray, X2: FloatArray, variance: float, lengthscales: FloatArray, smoothness: float) -> FloatArray:
    """The Matérn kernel of any smoothness, see `fast.kernel.matern`. Time O(a b d), memory O(a b).

    Parameters
    ----------
    X1 : (a, d)
    X2 : (b, d)
    variance : float       amplitude squared
    lengthscales : (d,)    in the units of the inputs
    smoothness : float     nu > 0

    Returns
    -------
    (a, b)
    """
    return PreparedKernel(X2, variance, lengthscales, smoothness).cross(X1)


@equation("wenzel2019", "u5-kernel")
def gram(
    X: FloatArray,
    variance: float,
    lengthscales: FloatArray,
    noise: float,
    jitter: float,
    smoothness: float | None = None,
) -> FloatArray:
    """K = k(X, X) + (noise + jitter) I, symmetric to the last bit: wenzel2019, section 5 with the additive noise.

    Time O(n^2 d), memory n^2.

    Parameters
    ----------
    X : (n, d)
    variance, lengthscales   of the kernel: float, (d,)
    noise, jitter : float    both go to the diagonal
    smoothness : float       of a Matérn kernel; None: squared exponential

    Returns
    -------
    (n, n)
    """
    K = se_ard(X, X, variance, lengthscales) if smoothness is None else matern(X, X, variance, lengthscales, smoothness)
    K.flat[:: len(K) + 1] += noise + jitter
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


def entries_vjp(gradient: FloatArray, X1: FloatArray, X2: FloatArray, hyper: Hyper) -> KernelGradient:
    """Pull a gradient with respect to the entries of k(X1, X2) back; it is overwritten. Time O(a b d), memory O(a b).

    Parameters
    ----------
    gradient : (a, b)
    X1, X2 : (a, d), (b, d)
    hyper                      variance, lengthscales, smoothness of the kernel
    """
    if hyper.smoothness is None:
        gradient *= se_ard(X1, X2, hyper.variance, hyper.lengthscales)
        return se_ard_vjp(gradient, X1, X2, hyper.variance, hyper.lengthscales)
    kernel = PreparedKernel(X2, hyper.variance, hyper.lengthscales, hyper.smoothness)
    return kernel.entries_vjp(gradient, X1, kernel.cross(X1))
