"""Gradient of the collapsed bound with respect to variance, lengthscales, noise and Z, by hand.

At the fixed point the bound is stationary in c and in q(u), so only its explicit dependence on the kernel counts.
Whitened (p = R^-T w the mean of v, r = y/2 - theta o A'p):

    dL/dK_ZX = L^-T [(I - B^-1) A Theta + p r'],
    dL/dK_ZZ = -1/2 L^-T Q L^-1,   Q = B - 2 I + B^-1 + p p'   (symmetric: the derivative of L itself drops out),
    dL/dk_ii = -theta_i / 2.

Full: dL/dK = (alpha alpha' - S B^-1 S) / 2.
"""

from __future__ import annotations

import numpy as np

from fast.core.blocks import block_edges, in_tiles
from fast.core.inputs import finite_rows
from fast.core.linalg import solve_rows, squared_norms
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.kernel.kernels import PreparedKernel, entries_vjp
from fast.likelihood.polya_gamma import pg_mean
from fast.one_latent.prior import FullPrior, SparsePrior


def sparse_gradients(
    prior: SparsePrior, c: FloatArray, factor: FloatArray, weights: FloatArray, latent_mean: FloatArray
) -> Gradients:
    """Gradient of the collapsed bound of a sparse GP. Time O(n m (m + d) + m^3), memory O(m^2 + block m).

    Parameters
    ----------
    prior                 the training data
    c : (n,)              local parameters at the fixed point
    factor : (m, m)       R
    weights : (m,)        p
    latent_mean : (n,)    A'p
    """
    return quadratic_gradients(prior, pg_mean(c), 0.5 * prior.y_sign, factor, weights, latent_mean)


def quadratic_gradients(
    prior: SparsePrior,
    site_precision: FloatArray,
    site_shift: FloatArray,
    factor: FloatArray,
    weights: FloatArray,
    latent_mean: FloatArray | None = None,
) -> Gradients:
    """Gradient of a collapsed bound whose data terms are site_shift f - site_precision f^2 / 2 + constants.

    Parameters
    ----------
    prior                       the training data
    site_precision : (n,)       theta for the Pólya-Gamma bound
    site_shift : (n,)           y/2 for it
    factor : (m, m)             R
    weights : (m,)              p
    latent_mean : (n,)          A'p; None: computed along the way
    """
    hyper, Z = prior.hyper, prior.Z
    m, d = Z.shape
    by_variance = by_noise = -0.5 * float(site_precision.sum())
    by_length, by_Z = np.zeros(d), np.zeros((m, d))
    kernel = PreparedKernel(Z, hyper.variance, hyper.lengthscales, hyper.smoothness)
    for start, stop in block_edges(site_precision.size, prior.block_size):
        rows, theta = prior.rows(start, stop), site_precision[start:stop]
        mean = rows @ weights if latent_mean is None else latent_mean[start:stop]
        work = solve_rows(factor, solve_rows(factor, in_tiles(rows)), transposed=True)  # B^-1 a_i
        weighted = work[: stop - start]
        np.subtract(rows, weighted, out=weighted)
        weighted *= theta[:, None]
        weighted += np.multiply.outer(site_shift[start:stop] - theta * mean, weights)
        weighted = solve_rows(prior.chol_K, work, transposed=True)[: stop - start]
        block = finite_rows("X", prior.X[start:stop], start)
        part = kernel.entries_vjp(weighted, block, kernel.cross_by_product(block))
        by_variance += part.variance
        by_length += part.lengthscales
        by_Z += part.X2
    inverse = solve_rows(factor, np.eye(m)).T  # row i of the transpose is column i: R^-1
    Q = factor @ factor.T + inverse.T @ inverse + np.outer(weights, weights)
    Q.flat[:: m + 1] -= 2.0
    # L^-T Q L^-1: rows of Q to rows of Q L^-1 (solve with L'), transpose, again
    whitened = np.ascontiguousarray(solve_rows(prior.chol_K, Q, transposed=True).T)
    weighted = -0.5 * solve_rows(prior.chol_K, whitened, transposed=True)
    part = entries_vjp(0.5 * (weighted + weighted.T), Z, Z, hyper)
    # each entry of K_ZZ holds two inducing points: the vector-Jacobian product in the second argument is half of it
    return Gradients(by_variance + part.variance, by_length + part.lengthscales, by_noise, by_Z + 2.0 * part.X2)


def full_gradients(prior: FullPrior, c: FloatArray, factor: FloatArray, weights: FloatArray) -> Gradients:
    """Gradient of the collapsed bound of a full GP. Time O(n^3 + n^2 d), memory O(n^2).

    Parameters
    ----------
    prior                 the training data
    c : (n,)              local parameters at the fixed point
    factor : (n, n)       R
    weights : (n,)        alpha
    """
    hyper, n = prior.hyper, c.size
    scaled = solve_rows(factor, np.diag(np.sqrt(pg_mean(c))))  # row i: R^-1 S e_i
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
