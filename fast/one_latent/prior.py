"""The prior in coordinates that need no inverse, and one evaluation of the bound and of q at given local parameters.

Sparse: L = chol(K_ZZ), u = L v with v ~ N(0, I), A = L^-1 K_ZX, so f_i = a_i'v + N(0, k_ii - |a_i|^2). Given c

    B = I + A Theta A' = R R',   q(v) = N(R^-T w, B^-1),   w = R^-1 A y/2,
    E_q f_i = (R^-1 a_i)'w,      Var_q f_i = (k_ii - |a_i|^2) + |R^-1 a_i|^2.

Full (Z is None): K is never factorised, so it may be singular. With S = Theta^1/2

    B = I + S K S = R R',   E_q f = K alpha,   alpha = S B^-1 S^-1 y/2,   Var_q f_i = K_ii - |R^-1 S k_i|^2.

All eigenvalues of B are >= 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from fast.core.blocks import block_edges, in_tiles, padded
from fast.core.errors import NotPositiveDefiniteError
from fast.core.inputs import Hyper, finite_rows
from fast.core.linalg import cholesky, solve_rows, solve_vector, squared_norms
from fast.core.types import FloatArray
from fast.kernel.kernels import gram, matern, se_ard
from fast.ledger import equation
from fast.likelihood.polya_gamma import pg_mean
from fast.one_latent.bound import collapsed_bound

# A block of A is scaled, multiplied and measured in turn: about 1 MiB of it stays in the second-level cache.
_CACHED_NUMBERS = 2**17


class Whitened(NamedTuple):
    """Rows of A' and what the inducing values leave open."""

    rows: FloatArray  # (b, m), row i is a_i = L^-1 k_Zi
    cond_var: FloatArray  # (b,)


class Evaluation(NamedTuple):
    """q(u) at its optimum given c, and what follows from it."""

    factor: FloatArray  # R, (m, m) or (n, n)
    weights: FloatArray  # sparse: R^-T w (m,), the mean of v; full: alpha (n,)
    latent_mean: FloatArray  # (n,)
    latent_var: FloatArray  # (n,)
    elbo: float


class Global(NamedTuple):
    """q(v) in whitened coordinates."""

    factor: FloatArray  # R, (m, m)
    shift: FloatArray  # w, (m,)


@equation("wenzel2019", "6")
def whiten(
    X: FloatArray,
    Z: FloatArray,
    chol_K: FloatArray,
    variance: float,
    lengthscales: FloatArray,
    noise: float,
    smoothness: float | None = None,
) -> Whitened:
    """Condition the latent values at X on u = L v: mean A'v, variance k_ii - |a_i|^2 + noise: wenzel2019 (6).

    |a_i|^2 may exceed the variance by rounding (a point that coincides with an inducing point): at most 0 is left
    then, before the noise is added. Time O(b m d + b m^2), memory O(b m).

    Parameters
    ----------
    X : (b, d)
    Z : (m, d)
    chol_K : (m, m)   L, lower Cholesky factor of K_ZZ
    variance, lengthscales, noise   of the prior: float, (d,), float
    smoothness : float              of a Matérn kernel; None: squared exponential

    Returns
    -------
    rows (b, m), cond_var (b,)
    """
    if smoothness is None:
        cross = se_ard(X, Z, variance, lengthscales)
    else:
        cross = matern(X, Z, variance, lengthscales, smoothness)
    rows = solve_rows(chol_K, in_tiles(cross))[: X.shape[0]]
    return Whitened(rows, np.maximum(variance - squared_norms(rows), 0.0) + noise)


@equation("wenzel2019", "18", "A.4-mu")
def update_global(precision: FloatArray, shift: FloatArray) -> Global:
    """R = chol(I + A Theta A') and w = R^-1 A y/2: wenzel2019 (18) and the mean of A.4, whitened.

    eta_2 = -1/2 L^-T R R' L^-1 and mu = L R^-T w. Time m^3/3.

    Parameters
    ----------
    precision : (m, m)   B = I + A Theta A', lower triangle
    shift : (m,)         A y/2

    Returns
    -------
    factor (m, m), shift (m,)
    """
    factor = cholesky(precision, "B = I + A Theta A'", "lower variance or raise jitter")
    return Global(factor, solve_vector(factor, shift))


class SparsePrior:
    """Training data seen through m inducing points.

    Memory O(m^2 + block m + n), and n m if A fits the budget; otherwise A is computed again, twice a sweep.
    """

    def __init__(self, X: Any, y_sign: FloatArray, Z: FloatArray, hyper: Hyper, block_size: int, budget: int) -> None:
        n, m = y_sign.size, Z.shape[0]
        self.X, self.y_sign, self.Z, self.hyper = X, y_sign, Z, hyper
        self.block_size = min(block_size, max(512, _CACHED_NUMBERS // m))
        self.chol_K = cholesky(
            gram(Z, hyper.variance, hyper.lengthscales, 0.0, hyper.jitter, hyper.smoothness),
            "K_ZZ",
            "raise jitter or remove duplicate rows of Z",
        )
        self.cached = np.empty((padded(n), m)) if 8 * padded(n) * m <= budget else None
        self.cond_var = np.empty(n)
        self.half_projection = np.zeros(m)  # A y/2
        for start, stop in block_edges(n, block_size):
            rows, cond_var = self._compute(start, stop)
            self.cond_var[start:stop] = cond_var
            self.half_projection += rows.T @ (0.5 * y_sign[start:stop])
            if self.cached is not None:
                self.cached[start:stop] = rows

    @property
    def prior_var(self) -> FloatArray:
        """k_ii, noise included: (n,)."""
        return np.full(self.y_sign.size, self.hyper.variance + self.hyper.noise)

    def _compute(self, start: int, stop: int) -> Whitened:
        block = finite_rows("X", self.X[start:stop], start)
        hyper = self.hyper
        return whiten(block, self.Z, self.chol_K, hyper.variance, hyper.lengthscales, hyper.noise, hyper.smoothness)

    def rows(self, start: int, stop: int) -> FloatArray:
        """a_i for start <= i < stop: (b, m), a view of the cache or fresh."""
        return self._compute(start, stop).rows if self.cached is None else self.cached[start:stop]

    def evaluate(self, c: FloatArray) -> Evaluation:
        """q(u) given c, the moments of f under it and the bound.

        Calls: tanh (n,); per block dsyrk (m, b), dtrsm (m, m) with (m, b); dpotrf (m, m) once. Time n m^2 for each
        of the two passes over A, m^3/3 between them.
        """
        n, m = self.y_sign.size, self.Z.shape[0]
        theta = pg_mean(c)
        root = np.sqrt(theta)
        buffer = np.empty((min(padded(n), padded(self.block_size)), m))
        B = np.eye(m, order="F")
        for start, stop in block_edges(n, self.block_size):
            scaled = np.multiply(self.rows(start, stop), root[start:stop, None], out=buffer[: stop - start])
            B = dsyrk(1.0, scaled.T, beta=1.0, c=B, lower=1, overwrite_c=1)
        factor, shift = update_global(B, self.half_projection)
        mean, var = np.empty(n), self.cond_var.copy()
        for start, stop in block_edges(n, self.block_size):
            work = solve_rows(factor, in_tiles(self.rows(start, stop), buffer))[: stop - start]
            var[start:stop] += squared_norms(work)
            mean[start:stop] = work @ shift
        log_det = 2.0 * float(np.log(factor.diagonal()).sum())
        elbo = collapsed_bound(c, theta, self.cond_var, float(shift @ shift), log_det)
        return Evaluation(factor, solve_vector(factor, shift, transposed=True), mean, var, elbo)


class FullPrior:
    """Training data with one latent value each; memory O(n^2), time O(n^3) an evaluation."""

    def __init__(self, X: Any, y_sign: FloatArray, hyper: Hyper, block_size: int) -> None:
        self.X, self.y_sign, self.hyper, self.block_size = finite_rows("X", X), y_sign, hyper, block_size
        self.K = gram(self.X, hyper.variance, hyper.lengthscales, hyper.noise, hyper.jitter, hyper.smoothness)

    @property
    def prior_var(self) -> FloatArray:
        """k_ii, noise and jitter included: (n,)."""
        return self.K.diagonal().copy()

    def evaluate(self, c: FloatArray) -> Evaluation:
        """q(f) given c and the bound.

        Calls: tanh (n,), dpotrf (n, n), dtrsm (n, n) with (n, n) in blocks, products of K with a vector. alpha is
        S B^-1 S^-1 y/2 rather than y/2 - S B^-1 S K y/2, which cancels where theta k is large.
        """
        n = self.y_sign.size
        theta = pg_mean(c)
        root = np.sqrt(theta)
        B = np.multiply(self.K, root[:, None])
        B *= root
        B.flat[:: n + 1] += 1.0
        factor = cholesky(B.T, "B = I + Theta^1/2 K Theta^1/2", "lower variance")
        whitened = solve_vector(factor, 0.5 * self.y_sign / root)
        alpha = root * solve_vector(factor, whitened, transposed=True)
        mean = self.K @ alpha
        var = self.prior_var
        prior_var = var.copy()
        for start, stop in block_edges(n, self.block_size):
            work = in_tiles(self.K[start:stop] * root)
            var[start:stop] -= squared_norms(solve_rows(factor, work)[: stop - start])
        worst = int(np.argmin(var / prior_var))
        if var[worst] < -1e-8 * prior_var[worst]:  # rounding leaves n eps theta k, far less
            raise NotPositiveDefiniteError(
                f"K_XX ({n}, {n}): found posterior variance {var[worst]:.3g} at row {worst}, expected >= 0; "
                "lower variance or raise jitter"
            )
        log_det = 2.0 * float(np.log(factor.diagonal()).sum())
        # b'(K^-1 + Theta)^-1 b = b'K alpha with b = y/2
        elbo = collapsed_bound(c, theta, np.zeros(n), 0.5 * float(self.y_sign @ mean), log_det)
        return Evaluation(factor, alpha, mean, np.maximum(var, 0.0), elbo)
