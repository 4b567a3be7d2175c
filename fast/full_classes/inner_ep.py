"""Inner EP: Gaussian approximations of tilted distributions N(g) prod_j Phi(g_j), for all data at once.

riihimaki2013, appendix A, on g = B~'w alone (C - 1 numbers, not C + 1): each probit factor sees the scalar g_j, so
mean and covariance of g are all that the scalar updates read, and a rank-one refresh keeps them. Scalar sites stay
within 0 <= alpha_j <= 1. With t = r (r + z), r = phi/Phi at z = m_-/sqrt(1 + v_-), the new site is

    alpha = t / (1 + v_- (1 - t)),   beta = (r sqrt(1 + v_-) + m_- t) / (1 + v_- (1 - t)),

the moment match of steps 1 to 3 without a difference of inverse variances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from fast.core.ending import ended
from fast.core.linalg import positive_factors, solve_stack
from fast.core.results import Differences
from fast.core.types import FloatArray
from fast.ledger import equation
from fast.likelihood.probit import hazard
from fast.solve.site_iteration import standardised_change

_SWEEPS = 1000  # after which an inner run is what it is
_INNER_TOLERANCE = 1e-12
_ROUNDED = 1e-9  # a sum of changes below this that stops falling is rounding
_PATIENCE = 6


class ScalarCavity(NamedTuple):
    """g_j without its own inner site."""

    mean: FloatArray
    var: FloatArray
    cavity_ratio: FloatArray  # 1 - alpha v, > 0 where the cavity is a distribution


class InnerSites(NamedTuple):
    """Inner sites, the distribution of g with them, and how far they were from their fixed point."""

    alpha_tilde: FloatArray  # (n, D)
    beta_tilde: FloatArray  # (n, D)
    mean: FloatArray  # (n, D)
    cov: FloatArray  # (n, D, D)
    change: FloatArray  # (n,) last sweep: sum over j of the standardised change
    largest: FloatArray  # (n,) last sweep: largest standardised change
    sweeps: int


@equation("riihimaki2013", "A-step1")
def scalar_cavity(mean: FloatArray, var: FloatArray, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> ScalarCavity:
    """v_- = (1/v - alpha)^-1, m_- = v_- (m/v - beta): riihimaki2013, appendix A, step 1.

    Parameters
    ----------
    mean, var      of g_j under q, any shape
    alpha_tilde, beta_tilde    its inner site
    """
    cavity_ratio = 1.0 - alpha_tilde * var
    safe = np.where(cavity_ratio > 0.0, cavity_ratio, 1.0)
    return ScalarCavity((mean - var * beta_tilde) / safe, var / safe, cavity_ratio)


@equation("riihimaki2013", "A-step2", "A-step3")
def matched_site(cavity_mean: FloatArray, cavity_var: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The site (alpha, beta) with which the scalar cavity has the tilted moments: appendix A, steps 2 and 3, undamped.

    Parameters
    ----------
    cavity_mean, cavity_var    m_-, v_-, any shape
    """
    scale = np.sqrt(1.0 + cavity_var)
    r, excess = hazard(cavity_mean / scale)
    t = np.minimum(r * excess, 1.0)
    narrowed = 1.0 + cavity_var * (1.0 - t)
    return t / narrowed, (r * scale + cavity_mean * t) / narrowed


@equation("riihimaki2013", "A-step4")
def rank_one(
    mean: FloatArray, cov: FloatArray, index: int, precision_change: FloatArray, shift_change: FloatArray
) -> Differences:
    """Distribution of g after inner site `index` changed: riihimaki2013, appendix A, step 4, on g. Time O(n D^2).

    Parameters
    ----------
    mean : (n, D)
    cov : (n, D, D)                           overwritten, as is the mean
    index : int                               j
    precision_change, shift_change : (n,)     of the site
    """
    phi = cov[:, :, index].copy()
    v, m = phi[:, index], mean[:, index].copy()
    weight = 1.0 / (1.0 + precision_change * v)
    scaled = phi * (precision_change * weight)[:, None]
    cov -= scaled[:, :, None] * phi[:, None, :]
    mean += phi * (weight * (shift_change - precision_change * m))[:, None]
    return Differences(mean, cov)


@equation("riihimaki2013", "A-parallel")
def parallel_refresh(cavity: Differences, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> Differences:
    """Distribution of g, cavity and all inner sites at once: riihimaki2013, appendix A, last remark. Time O(n D^3).

    G - G T^1/2 (I + T^1/2 G T^1/2)^-1 T^1/2 G: eigenvalues of what is factorised are at least 1.

    Parameters
    ----------
    cavity                  distribution of g without inner sites
    alpha_tilde, beta_tilde : (n, D)    inner sites
    """
    a = np.sqrt(alpha_tilde)
    inner = cavity.cov * a[:, :, None] * a[:, None, :]
    index = np.arange(alpha_tilde.shape[1])
    inner[:, index, index] += 1.0
    factor, _ = positive_factors(inner)
    whitened = solve_stack(factor, cavity.cov * a[:, :, None])
    cov = cavity.cov - whitened.transpose(0, 2, 1) @ whitened
    score = beta_tilde - alpha_tilde * cavity.mean
    return Differences(cavity.mean + np.einsum("nij,nj->ni", cov, score), cov)


def sweep(
    alpha_tilde: FloatArray,
    beta_tilde: FloatArray,
    distribution: Differences,
    *,
    schedule: str,
    damping: float,
    cavity: Differences | None = None,
) -> InnerSites:
    """Every inner site of every datum once. Sequential: time O(n D^3), n D^2 numbers moved D times.

    A scalar cavity that is no distribution (rounding; sites are never negative) leaves its site as it is.

    Parameters
    ----------
    alpha_tilde, beta_tilde : (n, D)    inner sites, not changed
    distribution  of g with the sites in it; overwritten
    schedule : str          "sequential": j ascending with a refresh after each; "parallel": all from one distribution
    damping : float         share of the new site, 1 = undamped
    cavity                  distribution of g without sites, for "parallel"
    """
    alpha_tilde, beta_tilde, (mean, cov) = alpha_tilde.copy(), beta_tilde.copy(), distribution
    n, D = alpha_tilde.shape
    total, largest = np.zeros(n), np.zeros(n)
    one_by_one = schedule == "sequential"
    columns: list[Any] = list(range(D)) if one_by_one else [slice(None)]
    index = np.arange(D)
    for j in columns:
        v, m = (cov[:, j, j], mean[:, j]) if one_by_one else (cov[:, index, index], mean)
        result = scalar_cavity(m, v, alpha_tilde[:, j], beta_tilde[:, j])
        new_alpha, new_beta = matched_site(result.mean, np.maximum(result.var, 0.0))
        good = (result.cavity_ratio > 0.0) & np.isfinite(new_alpha) & np.isfinite(new_beta)
        d_alpha = np.where(good, damping * (new_alpha - alpha_tilde[:, j]), 0.0)
        d_beta = np.where(good, damping * (new_beta - beta_tilde[:, j]), 0.0)
        change = standardised_change(m, v, d_alpha, d_beta)
        total += change if change.ndim == 1 else change.sum(axis=1)
        np.maximum(largest, change if change.ndim == 1 else change.max(axis=1, initial=0.0), out=largest)
        alpha_tilde[:, j] += d_alpha
        beta_tilde[:, j] += d_beta
        if one_by_one:
            mean, cov = rank_one(mean, cov, j, d_alpha, d_beta)
    if not one_by_one:
        assert cavity is not None
        mean, cov = parallel_refresh(cavity, alpha_tilde, beta_tilde)
    return InnerSites(alpha_tilde, beta_tilde, mean, cov, total, largest, 1)


def run(
    alpha_tilde: FloatArray,
    beta_tilde: FloatArray,
    distribution: Differences,
    *,
    inner: str = "converged",
    schedule: str = "sequential",
    damping: float = 1.0,
    cavity: Differences | None = None,
) -> InnerSites:
    """Sweeps until each datum's sum of changes is at most 1e-12, or one sweep.

    A datum whose changes have stopped falling below 1e-9 is at rounding and rests too; 1000 sweeps at most.

    Parameters
    ----------
    alpha_tilde, beta_tilde : (n, D)    inner sites to start from, not changed
    distribution  of g with the sites in it, not changed
    inner : str             "converged" or "incremental" (one sweep)
    schedule, damping       see `sweep`
    cavity                  distribution of g without sites, for "parallel"
    """
    at = sweep(
        alpha_tilde,
        beta_tilde,
        Differences(distribution.mean.copy(), distribution.cov.copy()),
        schedule=schedule,
        damping=damping,
        cavity=cavity,
    )
    if inner == "incremental":
        return at
    out = InnerSites(
        at.alpha_tilde.copy(),
        at.beta_tilde.copy(),
        at.mean.copy(),
        at.cov.copy(),
        at.change.copy(),
        at.largest.copy(),
        1,
    )
    rows = np.arange(alpha_tilde.shape[0])
    best, stale = at.change.copy(), np.zeros(rows.size, dtype=np.int64)
    sweeps = 1
    while sweeps < _SWEEPS:
        going = (at.change > _INNER_TOLERANCE) & ~((stale >= _PATIENCE) & (best < _ROUNDED))
        if not going.any() or ended():
            break
        rows, best, stale = rows[going], best[going], stale[going]
        part = None if cavity is None else Differences(cavity.mean[rows], cavity.cov[rows])
        at = sweep(
            at.alpha_tilde[going],
            at.beta_tilde[going],
            Differences(at.mean[going], at.cov[going]),
            schedule=schedule,
            damping=damping,
            cavity=part,
        )
        sweeps += 1
        for target, source in zip(out[:6], at[:6], strict=True):
            target[rows] = source
        stale = np.where(at.change < best, 0, stale + 1)
        best = np.minimum(best, at.change)
    return out._replace(sweeps=sweeps)


def log_site_integral(mean: FloatArray, var: FloatArray, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> FloatArray:
    """Log of the integral of exp(beta g - alpha g^2/2) over the scalar cavity of g, any shape.

    Parameters
    ----------
    mean, var      of g under q, the site included
    alpha_tilde, beta_tilde    the site
    """
    cavity = scalar_cavity(mean, var, alpha_tilde, beta_tilde)
    m, v = cavity.mean, np.maximum(cavity.var, 0.0)
    score = beta_tilde - alpha_tilde * m
    return m * (beta_tilde - 0.5 * alpha_tilde * m) + 0.5 * score * score * var - 0.5 * np.log1p(alpha_tilde * v)


def log_site_ratios(mean: FloatArray, var: FloatArray, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> FloatArray:
    """log Phi(z_j) - J_j, J_j = log of the integral of exp(beta g - alpha g^2/2) over the scalar cavity.

    Parameters
    ----------
    mean, var      of g_j under q, sites included, any shape
    alpha_tilde, beta_tilde    inner sites
    """
    cavity = scalar_cavity(mean, var, alpha_tilde, beta_tilde)
    z = cavity.mean / np.sqrt(1.0 + np.maximum(cavity.var, 0.0))
    return log_ndtr(z) - log_site_integral(mean, var, alpha_tilde, beta_tilde)


@equation("riihimaki2013", "A-logz")
def log_normaliser(
    cavity: Differences, distribution: Differences, alpha_tilde: FloatArray, beta_tilde: FloatArray
) -> FloatArray:
    """log Z_q of the inner approximation, (n,): riihimaki2013, appendix A, in terms of g. Time O(n D^3).

    Parameters
    ----------
    cavity                  distribution of g without inner sites
    distribution  of g with them
    alpha_tilde, beta_tilde : (n, D)    inner sites
    """
    index = np.arange(alpha_tilde.shape[1])
    a = np.sqrt(alpha_tilde)
    inner = cavity.cov * a[:, :, None] * a[:, None, :]
    inner[:, index, index] += 1.0
    factor, _ = positive_factors(inner)
    score = beta_tilde - alpha_tilde * cavity.mean
    joint = np.einsum("ni,ni->n", cavity.mean, beta_tilde - 0.5 * alpha_tilde * cavity.mean)
    joint += 0.5 * np.einsum("ni,nij,nj->n", score, distribution.cov, score)
    joint -= np.log(factor[:, index, index]).sum(axis=1)
    return joint + log_site_ratios(distribution.mean, distribution.cov[:, index, index], alpha_tilde, beta_tilde).sum(
        axis=1
    )


def distribution_with(cavity: Differences) -> Differences:
    """g = h + u 1 for h without sites: 11' is added to the covariance.

    Parameters
    ----------
    cavity    distribution of h
    """
    return Differences(cavity.mean, cavity.cov + 1.0)
