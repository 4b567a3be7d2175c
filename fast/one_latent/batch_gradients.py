"""Gradient of a batch estimate of the bound for any Gaussian q(u), mu and Sigma held. wenzel2019, section 4.3.

Whitened (a_i = L^-1 k_Zi, S = P^-1, mu = L p); with e_i = scale dE/dm_i, t_i = -2 scale dE/dv_i of the expected log
density E of datum i under N(m_i, v_i), U with rows e_i p + t_i (a_i - S a_i):

    dL/dK_SZ = U L^-1,    dL/dk_ii = -t_i / 2,
    dL/dK_ZZ = L^-T [ (S + p p' - I + A T A') / 2 - (A U + U'A') / 2 ] L^-1.

E enters by its derivatives only: the logit bound, whose local parameters stay at their maximum, and quadratures alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm

from fast.core.linalg import invert_lower
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.kernel.kernels import PreparedKernel


class Projected(NamedTuple):
    """A batch under the prior at Z."""

    kernel: PreparedKernel  # k(., Z)
    X: FloatArray  # (b, d)
    K_XZ: FloatArray  # (b, m) k(X, Z)
    K_ZZ: FloatArray  # (m, m) k(Z, Z), no jitter on the diagonal
    chol_K: FloatArray  # noqa: N815 - (m, m) L
    rows: FloatArray  # (b, m) row i is a_i


def batch_gradients(
    projected: Projected, derivative: FloatArray, site_precision: FloatArray, factor: FloatArray, weights: FloatArray
) -> Gradients:
    """Gradient with respect to variance, lengthscales, noise and Z. Time O(b m (m + d) + m^3).

    Parameters
    ----------
    projected                 a batch on the inducing points
    derivative : (b,)         e_i, the scale n / b in it
    site_precision : (b,)     t_i, the scale in it
    factor : (m, m)           R, P = R R'
    weights : (m,)            p
    """
    inverse = invert_lower(factor)  # R^-1, strict upper triangle zero like that of R
    return moment_gradients(projected, derivative, site_precision, inverse.T @ inverse, weights)


def moment_gradients(
    projected: Projected,
    derivative: FloatArray,
    site_precision: FloatArray,
    covariance: FloatArray,
    weights: FloatArray,
) -> Gradients:
    """`batch_gradients` for q(v) given by its covariance S.

    Parameters
    ----------
    projected, derivative, site_precision, weights    see `batch_gradients`
    covariance : (m, m)                               S; overwritten
    """
    kernel, rows, chol_K = projected.kernel, projected.rows, projected.chol_K
    inner = covariance
    by_rows = rows - rows @ inner
    by_rows *= site_precision[:, None]
    by_rows += np.multiply.outer(derivative, weights)  # U
    scaled = rows * np.sqrt(site_precision)[:, None]
    inner += scaled.T @ scaled
    inner += np.multiply.outer(weights, weights)
    inner.flat[:: weights.size + 1] -= 1.0
    cross = rows.T @ by_rows
    inner -= cross
    inner -= cross.T
    inner *= 0.5
    by_rows = dtrsm(1.0, chol_K, by_rows.T, side=0, lower=1, trans_a=1, overwrite_b=1).T
    part = kernel.entries_vjp(by_rows, projected.X, projected.K_XZ)
    outer = dtrsm(1.0, chol_K, inner.T, side=0, lower=1, trans_a=1, overwrite_b=1)
    outer = dtrsm(1.0, chol_K, outer, side=1, lower=1, overwrite_b=1).T
    prior = kernel.entries_vjp(outer, kernel.Z, projected.K_ZZ)
    by_noise = -0.5 * float(site_precision.sum())
    # each entry of K_ZZ holds two inducing points: the derivative in the second argument is half of it
    return Gradients(
        part.variance + prior.variance + by_noise,
        part.lengthscales + prior.lengthscales,
        by_noise,
        part.X2 + 2.0 * prior.X2,
    )
