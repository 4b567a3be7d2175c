"""Gradient with respect to variance, lengthscales, noise and Z of sums over data at a fixed q(u) = N(mu, Sigma).

The objective is sum_i F_i(m_i, v_i) - KL(q(u) || p(u)), with m_i = kappa_i mu and v_i = k_ii - kappa_i (K_ZZ - Sigma)
kappa_i'. With mu = L p, Sigma = L S L', derivative dF_i/dm_i = e_i and dF_i/dv_i = -tau_i/2, the product rule gives

    dF/dk_Zi = L^-T [e_i p + (gamma_i I - tau_i S) a_i],        dF/dk_ii = -gamma_i / 2,        gamma = tau,
    dF/dK_ZZ = L^-T M L^-1,   M = -sym(A e p') - (A Gamma A' - A T A' S - S A T A')/2 - (I - S - p p')/2.

log Z_EP at its fixed point, sites held as functions of u, has the same form with e = nu - tau E[t] and gamma_i =
-(d1_i^2 + d2_i), the derivative of log Z_i in the variance that the inducing values leave open: there A e = p and
A T A' = B - I. Sums over a mini-batch enter with their weights n/s in e, tau and gamma. Full: dF/dK = (alpha alpha' -
S B^-1 S)/2 for both.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyrk

from fast.core.blocks import block_edges, in_tiles
from fast.core.inputs import finite_rows
from fast.core.linalg import solve_rows, squared_norms
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.kernel.kernels import entries_vjp
from fast.one_latent.prior import FullPrior, SparsePrior


def sparse_site_gradients(
    prior: SparsePrior,
    factor: FloatArray,
    weights: FloatArray,
    derivative_mean: FloatArray,
    site_precision: FloatArray,
    open_precision: FloatArray,
) -> Gradients:
    """Gradient at fixed mean and covariance of u. Time O(n m (m + d) + m^3), memory O(m^2 + block m).

    Parameters
    ----------
    prior                      the data that are summed over (a mini-batch, or all)
    factor : (m, m)            R with S = (R R')^-1: covariance of the whitened inducing values
    weights : (m,)             p
    derivative_mean : (n,)          e
    site_precision : (n,)      tau
    open_precision : (n,)      gamma
    """
    hyper, Z = prior.hyper, prior.Z
    m, d = Z.shape
    by_variance = by_noise = -0.5 * float(open_precision.sum())
    by_length, by_Z = np.zeros(d), np.zeros((m, d))
    projected = np.zeros(m)  # A e
    C, G = np.zeros((m, m), order="F"), np.zeros((m, m), order="F")  # A T A', A Gamma A'
    shared = open_precision is site_precision
    for start, stop in block_edges(derivative_mean.size, prior.block_size):
        rows, part = prior.rows(start, stop), slice(start, stop)
        projected += rows.T @ derivative_mean[part]
        C = add_outer(C, rows, site_precision[part])
        if not shared:
            G = add_outer(G, rows, open_precision[part])
        work = solve_rows(factor, solve_rows(factor, in_tiles(rows)), transposed=True)  # S a_i
        weighted = work[: stop - start]
        weighted *= -site_precision[part, None]
        weighted += rows * open_precision[part, None]
        weighted += np.outer(derivative_mean[part], weights)
        weighted = solve_rows(prior.chol_K, work, transposed=True)[: stop - start]
        block = finite_rows("X", prior.X[start:stop], start)
        product = entries_vjp(weighted, block, Z, hyper)
        by_variance += product.variance
        by_length += product.lengthscales
        by_Z += product.X2
    C += np.tril(C, -1).T
    G = C if shared else G + np.tril(G, -1).T
    inverse = solve_rows(factor, np.eye(m)).T  # R^-1
    S = inverse.T @ inverse
    CS = C @ S
    half_p = projected - 0.5 * weights
    M = -0.5 * (np.outer(half_p, weights) + np.outer(weights, half_p))
    M -= 0.5 * (G - CS - CS.T - S)
    M.flat[:: m + 1] -= 0.5
    whitened = np.ascontiguousarray(solve_rows(prior.chol_K, M, transposed=True).T)
    weighted = solve_rows(prior.chol_K, whitened, transposed=True)
    last = entries_vjp(0.5 * (weighted + weighted.T), Z, Z, hyper)
    # each entry of K_ZZ holds two inducing points: the vector-Jacobian product in the second argument is half of it
    return Gradients(by_variance + last.variance, by_length + last.lengthscales, by_noise, by_Z + 2.0 * last.X2)


def add_outer(total: FloatArray, rows: FloatArray, precision: FloatArray) -> FloatArray:
    """Lower triangle of total + sum_i precision_i a_i a_i', precisions of any sign. Time b m^2.

    Parameters
    ----------
    total : (m, m)         Fortran order, overwritten; only its lower triangle counts
    rows : (b, m)          row i is a_i
    precision : (b,)
    """
    for sign in (1.0, -1.0):
        chosen = sign * precision > 0.0
        if chosen.any():
            scaled = rows[chosen] * np.sqrt(sign * precision[chosen])[:, None]
            total = dsyrk(sign, scaled.T, beta=1.0, c=total, lower=1, overwrite_c=1)
    return total


def full_site_gradients(
    prior: FullPrior, factor: FloatArray, weights: FloatArray, site_precision: FloatArray
) -> Gradients:
    """Gradient for a full GP at the fixed point of the sites. Time O(n^3 + n^2 d), memory O(n^2).

    Parameters
    ----------
    prior                      the training data
    factor : (n, n)            R
    weights : (n,)             alpha
    site_precision : (n,)      tau
    """
    hyper, n = prior.hyper, weights.size
    scaled = solve_rows(factor, np.diag(np.sqrt(site_precision)))  # row i: R^-1 S e_i
    by_variance, by_length = 0.0, np.zeros(prior.X.shape[1])
    for start, stop in block_edges(n, prior.block_size):
        weighted = np.outer(weights[start:stop], weights)
        weighted -= scaled[start:stop] @ scaled.T
        weighted *= 0.5
        part = entries_vjp(weighted, prior.X[start:stop], prior.X, hyper)
        by_variance += part.variance
        by_length += part.lengthscales
    by_noise = 0.5 * (float(weights @ weights) - float(squared_norms(scaled).sum()))
    return Gradients(by_variance, by_length, by_noise, None)
