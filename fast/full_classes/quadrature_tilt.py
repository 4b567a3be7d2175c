"""Tilted moments of the multinomial probit by Gauss-Hermite rules, as sites. riihimaki2013, sections 3.3 and 5.1.

In coordinates x with g = mu_g + L x, L L' = Sigma_g, a rule for N(0, I) gives mean and covariance (c, V) of x, and

    Lambda = Sigma_hat_g^-1 - Sigma_g^-1 = L^-T (V^-1 - I) L^-1,   xi = Lambda~ mu_hat_g + L^-T c,

so that no precisions of different size are subtracted. L is no Cholesky factor: it does not depend on the order of the
other classes (`fast.core.linalg.correlation_roots`), so neither do the moments of a rule that is not exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from fast.core.linalg import correlation_roots, eigenvalues, positive_factors, solve_stack
from fast.core.results import Differences
from fast.core.types import BoolArray, FloatArray, IntArray
from fast.ledger import equation
from fast.likelihood.probit import hazard
from fast.likelihood.product_rule import hermite_rule, product_rule

_CELLS = 2**21
_SLIGHTLY_NEGATIVE = -1e-9
_SMALLEST_PIVOT = 1e-150


class WhiteMoments(NamedTuple):
    """What a rule says of x under prod Phi(g_j)."""

    log_norm: FloatArray  # (n,) log Z_hat
    mean: FloatArray  # (n, D) c
    cov: FloatArray  # (n, D, D) V
    root: FloatArray  # (n, D, D) L


class GSites(NamedTuple):
    """Sites on g."""

    precision: FloatArray  # (n, D, D) Lambda, diagonal if asked for
    location: FloatArray  # (n, D) xi
    good: BoolArray  # (n,) False where refused


class QuadratureSites(NamedTuple):
    """Scalar sites of independent classes."""

    precision: FloatArray  # (n, C) tau
    location: FloatArray  # (n, C) nu
    good: BoolArray  # (n,)
    log_norm: FloatArray  # (n,) log Z_hat of the one-dimensional rule


@equation("riihimaki2013", "u3.3-quadrature")
def white_moments(cavity: Differences, nodes: int) -> WhiteMoments:
    """Normaliser and moments of N(g) prod_j Phi(g_j) by a product rule: riihimaki2013, section 3.3.

    Weights are kept in logarithms. Time O(n D nodes^D), memory bounded.

    Parameters
    ----------
    cavity         distribution of g without its site
    nodes : int    in each of the D dimensions
    """
    n, D = cavity.mean.shape
    points, weights = product_rule(D, nodes)
    log_weights = np.log(weights)
    root, _ = correlation_roots(cavity.cov, "covariance of g")
    log_norm, mean, cov = np.empty(n), np.empty((n, D)), np.empty((n, D, D))
    size = max(1, _CELLS // points.size)
    for start in range(0, n, size):
        part = slice(start, start + size)
        g = points @ root[part].transpose(0, 2, 1)
        g += cavity.mean[part, None, :]
        log_terms = log_ndtr(g).sum(axis=2)
        log_terms += log_weights
        top = log_terms.max(axis=1)
        seen = np.isfinite(top)  # False where every node is so far off that its Phi underflows even as a logarithm
        terms = np.exp(log_terms - np.where(seen, top, 0.0)[:, None])
        mass = np.where(seen, terms.sum(axis=1), 1.0)
        terms /= mass[:, None]
        log_norm[part] = top + np.log(mass)
        centre = terms @ points
        mean[part] = centre
        for i, row in enumerate(terms):
            away = points - centre[i]
            cov[start + i] = (away * row[:, None]).T @ away
    return WhiteMoments(log_norm, mean, cov, root)


@equation("riihimaki2013", "19", "21", "u3.3-diagonal")
def g_sites(cavity: Differences, tilted: WhiteMoments, *, full: bool = False) -> GSites:
    """Lambda and xi that give g the tilted moments: riihimaki2013 (19), (21), with Sigma_g^-1 in (19).

    Diagonal: only diag Lambda is kept, and the mean matched with it. Refused where some Lambda_jj Sigma_g,jj is below
    -1e-9 (full: the smallest eigenvalue of Lambda in those units), or the moments are no Gaussian's.

    Parameters
    ----------
    cavity          distribution of g without its site
    tilted         `white_moments` of it
    full : bool     keep all of Lambda
    """
    n, D = cavity.mean.shape
    index = np.arange(D)
    factor, good = positive_factors(tilted.cov)
    # where one node has all the weight V vanishes, and V^-1 would overflow
    good = good & np.isfinite(tilted.log_norm) & (factor[:, index, index].min(axis=1) > _SMALLEST_PIVOT)
    factor = np.where(good[:, None, None], factor, np.eye(D))
    inverse = solve_stack(factor, np.broadcast_to(np.eye(D), factor.shape))
    gap = inverse.transpose(0, 2, 1) @ inverse  # V^-1
    gap[:, index, index] -= 1.0
    white = solve_stack(tilted.root, np.broadcast_to(np.eye(D), factor.shape))  # L^-1
    Lambda = white.transpose(0, 2, 1) @ gap @ white
    scale = np.sqrt(cavity.cov[:, index, index])
    g_mean = cavity.mean + np.einsum("nij,nj->ni", tilted.root, tilted.mean)
    whitened_mean = np.einsum("nji,nj->ni", white, tilted.mean)
    if full:
        Lambda = 0.5 * (Lambda + Lambda.transpose(0, 2, 1))
        scaled = Lambda * scale[:, :, None] * scale[:, None, :]
        safe = np.where(np.isfinite(scaled).all(axis=(1, 2), keepdims=True), scaled, -np.eye(D))
        good = good & (eigenvalues(safe, "Lambda, scaled")[:, 0] >= _SLIGHTLY_NEGATIVE)
        return GSites(Lambda, np.einsum("nij,nj->ni", Lambda, g_mean) + whitened_mean, good)
    kept = Lambda[:, index, index]
    good = good & np.isfinite(kept).all(axis=1) & (kept * scale**2 >= _SLIGHTLY_NEGATIVE).all(axis=1)
    kept = np.maximum(kept, 0.0)
    diagonal = np.zeros((n, D, D))
    diagonal[:, index, index] = kept
    return GSites(diagonal, kept * g_mean + whitened_mean, good)


@equation("riihimaki2013", "u5.1-qiep")
def independent_tilt(
    cavity_mean: FloatArray, cavity_var: FloatArray, y: IntArray, others: IntArray, nodes: int
) -> QuadratureSites:
    """Scalar sites from 2 C - 1 one-dimensional and 2 two-dimensional rules a datum: riihimaki2013, 5.1, and
    Seeger et al. (2006).

    s = f_y + u; the other classes' moments are derivatives of log Z_hat, read off one table of Phi(z_j(s)); mean and
    variance of f_y are sums over a product rule in (f_y, u). Time O(n C nodes + n C nodes^2).

    Parameters
    ----------
    cavity_mean, cavity_var : (n, C)    m, v
    y : (n,)                            labels
    others : (n, C - 1)                 the other classes, ascending
    nodes : int                         in each dimension
    """
    n, C = cavity_mean.shape
    rows = np.arange(n)
    x, w = hermite_rule(nodes)
    m, v = np.take_along_axis(cavity_mean, others, axis=1), np.take_along_axis(cavity_var, others, axis=1)
    m_y, v_y = cavity_mean[rows, y], cavity_var[rows, y]
    scale = np.sqrt(1.0 + v)
    s = m_y[:, None] + np.sqrt(1.0 + v_y)[:, None] * x
    z = (s[:, :, None] - m[:, None, :]) / scale[:, None, :]
    log_terms = log_ndtr(z).sum(axis=2) + np.log(w)
    top = log_terms.max(axis=1)
    terms = np.exp(log_terms - top[:, None])
    mass = terms.sum(axis=1)
    log_norm = top + np.log(mass)
    terms /= mass[:, None]
    r = hazard(z).ratio
    rho = np.einsum("nq,nqj->nj", terms, r) / scale
    gamma = rho * rho + np.einsum("nq,nqj->nj", terms, r * z) / (1.0 + v)
    var_ratio = 1.0 - v * gamma
    tau, nu = np.zeros((n, C)), np.zeros((n, C))
    good: BoolArray = np.logical_and.reduce(var_ratio > 0.0, axis=1)
    safe_ratio = np.where(var_ratio > 0.0, var_ratio, 1.0)
    np.put_along_axis(tau, others, gamma / safe_ratio, axis=1)
    np.put_along_axis(nu, others, (m * gamma - rho) / safe_ratio, axis=1)

    sd = np.sqrt(v_y)
    points = (m_y[:, None] + sd[:, None] * x)[:, :, None] + x  # (n, f_y, u)
    log_table = np.log(w)[:, None] + np.log(w) + np.zeros((n, 1, 1))
    for j in range(C - 1):
        log_table += log_ndtr((points - m[:, j, None, None]) / scale[:, j, None, None])
    table = np.exp(log_table - log_table.max(axis=(1, 2))[:, None, None]).sum(axis=2)
    table /= table.sum(axis=1)[:, None]
    x_mean = table @ x
    x_var = np.einsum("nq,nq->n", table, (x - x_mean[:, None]) ** 2)
    good = good & (x_var > 0.0)
    safe_var = np.where(x_var > 0.0, x_var, 1.0)
    tau[rows, y] = (1.0 / safe_var - 1.0) / v_y
    nu[rows, y] = tau[rows, y] * m_y + x_mean / (sd * safe_var)
    good = good & (tau * cavity_var >= _SLIGHTLY_NEGATIVE).all(axis=1) & np.isfinite(tau + nu).all(axis=1)
    good = good & np.isfinite(log_norm)  # a site without a normaliser would make log Z NaN
    return QuadratureSites(np.where(tau < 0.0, 0.0, tau), nu, good, log_norm)
