"""Gradient of a batch estimate of the bound for any Gaussian q(u), mu and Sigma held. wenzel2019, section 4.3.

Whitened (a_i = L^-1 k_Zi, S = P^-1, mu = L p); with e_i = scale dE/dm_i, t_i = -2 scale dE/dv_i of the expected log
density E of datum i under N(m_i, v_i), U with rows e_i p + t_i (a_i - S a_i):

    dL/dK_SZ = U L^-1,    dL/dk_ii = -t_i / 2,
    dL/dK_ZZ = L^-T [ (S + p p' - I + A T A') / 2 - (A U + U'A') / 2 ] L^-1.

E enters by its derivatives only: the logit bound, whose local parameters stay at their maximum, and quadratures alike.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dtrsm

from fast.core.linalg import invert_lower
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.kernel.kernels import PreparedKernel


def batch_gradients(
    kernel: PreparedKernel,
    X: FloatArray,
    K_XZ: FloatArray,
    K_ZZ: FloatArray,
    rows: FloatArray,
    slope: FloatArray,
    site_precision: FloatArray,
    chol_K: FloatArray,
    factor: FloatArray,
    weights: FloatArray,
) -> Gradients:
    """Gradient with respect to variance, lengthscales, noise and Z. Time O(b m (m + d) + m^3).

    Parameters
    ----------
    kernel                    k(., Z)
    X : (b, d)
    K_XZ : (b, m)             k(X, Z)
    K_ZZ : (m, m)             k(Z, Z), no jitter on the diagonal
    rows : (b, m)             row i is a_i
    slope : (b,)              e_i, the scale n / b in it
    site_precision : (b,)     t_i, the scale in it
    chol_K : (m, m)           L
    factor : (m, m)           R, P = R R'
    weights : (m,)            p
    """
    inverse = invert_lower(factor)  # R^-1, strict upper triangle zero like that of R
    spread = inverse.T @ inverse  # S
    return moment_gradients(kernel, X, K_XZ, K_ZZ, rows, slope, site_precision, chol_K, spread, weights)


def moment_gradients(
    kernel: PreparedKernel,
    X: FloatArray,
    K_XZ: FloatArray,
    K_ZZ: FloatArray,
    rows: FloatArray,
    slope: FloatArray,
    site_precision: FloatArray,
    chol_K: FloatArray,
    spread: FloatArray,
    weights: FloatArray,
) -> Gradients:
    """`batch_gradients` for q(v) given by its covariance S.

    Parameters
    ----------
    kernel, X, K_XZ, K_ZZ, rows, slope, site_precision, chol_K, weights    see `batch_gradients`
    spread : (m, m)           S; overwritten
    """
    inner = spread
    pull = rows - rows @ inner
    pull *= site_precision[:, None]
    pull += np.multiply.outer(slope, weights)  # U
    scaled = rows * np.sqrt(site_precision)[:, None]
    inner += scaled.T @ scaled
    inner += np.multiply.outer(weights, weights)
    inner.flat[:: weights.size + 1] -= 1.0
    cross = rows.T @ pull
    inner -= cross
    inner -= cross.T
    inner *= 0.5
    pull = dtrsm(1.0, chol_K, pull.T, side=0, lower=1, trans_a=1, overwrite_b=1).T
    part = kernel.pull_back_entries(pull, X, K_XZ)
    outer = dtrsm(1.0, chol_K, inner.T, side=0, lower=1, trans_a=1, overwrite_b=1)
    outer = dtrsm(1.0, chol_K, outer, side=1, lower=1, overwrite_b=1).T
    prior = kernel.pull_back_entries(outer, kernel.Z, K_ZZ)
    by_noise = -0.5 * float(site_precision.sum())
    # each entry of K_ZZ holds two inducing points: the pull-back to the second argument is half of it
    return Gradients(
        part.variance + prior.variance + by_noise,
        part.lengthscales + prior.lengthscales,
        by_noise,
        part.X2 + 2.0 * prior.X2,
    )
