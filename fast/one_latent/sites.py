"""One Gaussian site a datum: q(u) from all sites, a site from its cavity, scales. Scalars, no (m, m) cavity.

Site i is exp(-tau_i t^2/2 + nu_i t) in the projection t_i = upsilon_i'u, upsilon_i = K_ZZ^-1 k_Zi; f_i = t_i plus
independent noise of variance cond_var_i. In whitened coordinates (see `fast.one_latent.prior`) t_i = a_i'v and

    B = I + A T A' = R R',  q(v) = N(p, B^-1),  p = R^-T w,  w = R^-1 A nu.

A variational q with optimal natural parameters has this form too, with tau = -E[g''], nu = E[g'] + tau m. Full GP:
t = f, B = I + T^1/2 K T^1/2, and K is never factorised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from fast.core.blocks import block_edges, in_tiles, padded
from fast.core.errors import NotPositiveDefiniteError
from fast.core.linalg import cholesky, solve_rows, solve_vector, squared_norms
from fast.core.types import FloatArray
from fast.one_latent.prior import FullPrior, SparsePrior

# A precision this small changes nothing in float64; the full GP divides by its square root.
SMALLEST_PRECISION = 1e-280


class SitePosterior(NamedTuple):
    """q given the sites."""

    factor: FloatArray  # R, (m, m) or (n, n)
    weights: FloatArray  # sparse: p (m,), mean of v; full: alpha (n,), mean = K alpha
    proj_mean: FloatArray  # (n,) mean of t
    proj_var: FloatArray  # (n,) variance of t
    cavity_ratio: FloatArray  # (n,) 1 - tau proj_var: share of the cavity's precision, in (0, 1]
    prior_norm: float  # m'K^-1 m of the inducing mean
    site_norm: float  # nu' times the mean of t
    log_det: float  # log|B|


class Cavity(NamedTuple):
    """t_i without site i."""

    mean: FloatArray  # (n,)
    var: FloatArray  # (n,)
    proper: NDArray[np.bool_]  # (n,); mean 0 and variance 1 stand where it is False


def condition(prior: SparsePrior | FullPrior, site_precision: FloatArray, site_shift: FloatArray) -> SitePosterior:
    """q given all sites, and the moments of every projection.

    Sparse: two passes over A, time 2 n m^2 + m^3/3, memory O(m^2 + block m + n). Full: time 5 n^3/3, memory n^2.

    Parameters
    ----------
    prior                     training inputs and prior
    site_precision : (n,)     tau >= 0
    site_shift : (n,)         nu
    """
    if isinstance(prior, FullPrior):
        return _condition_full(prior, np.maximum(site_precision, SMALLEST_PRECISION), site_shift)
    n, m = site_shift.size, prior.Z.shape[0]
    root = np.sqrt(site_precision)
    buffer = np.empty((min(padded(n), padded(prior.block_size)), m))
    B, projected = np.eye(m, order="F"), np.zeros(m)
    for start, stop in block_edges(n, prior.block_size):
        rows = prior.rows(start, stop)
        scaled = np.multiply(rows, root[start:stop, None], out=buffer[: stop - start])
        B = dsyrk(1.0, scaled.T, beta=1.0, c=B, lower=1, overwrite_c=1)
        projected += rows.T @ site_shift[start:stop]
    factor = cholesky(B, "B = I + A T A'", "lower variance or raise jitter")
    shift = solve_vector(factor, projected)
    mean, var = np.empty(n), np.empty(n)
    for start, stop in block_edges(n, prior.block_size):
        work = solve_rows(factor, in_tiles(prior.rows(start, stop), buffer))[: stop - start]
        var[start:stop] = squared_norms(work)
        mean[start:stop] = work @ shift
    weights = solve_vector(factor, shift, transposed=True)
    log_det = 2.0 * float(np.log(factor.diagonal()).sum())
    return SitePosterior(
        factor,
        weights,
        mean,
        var,
        1.0 - site_precision * var,
        float(weights @ weights),
        float(shift @ shift),
        log_det,
    )


def _condition_full(prior: FullPrior, site_precision: FloatArray, site_shift: FloatArray) -> SitePosterior:
    """left_i = (B^-1)_ii is positive and accurate however large tau K is, and so is (1 - left)/tau unless small."""
    n = site_shift.size
    root = np.sqrt(site_precision)
    B = np.multiply(prior.K, root[:, None])
    B *= root
    B.flat[:: n + 1] += 1.0
    factor = cholesky(B.T, "B = I + T^1/2 K T^1/2", "lower variance")
    alpha = root * solve_vector(factor, solve_vector(factor, site_shift / root), transposed=True)
    mean = prior.K @ alpha
    cavity_ratio = np.einsum("nm,nm->m", *([solve_rows(factor, np.eye(n)).T] * 2))  # squared columns of R^-1
    prior_var = prior.K.diagonal()
    var = np.empty(n)
    for start, stop in block_edges(n, prior.block_size):
        work = in_tiles(prior.K[start:stop] * root)
        var[start:stop] = prior_var[start:stop] - squared_norms(solve_rows(factor, work)[: stop - start])
    observed = 1.0 - cavity_ratio > 0.1
    var[observed] = (1.0 - cavity_ratio[observed]) / site_precision[observed]
    worst = int(np.argmin(var / prior_var))
    if var[worst] < -1e-8 * prior_var[worst]:  # rounding leaves n eps tau k, far less
        raise NotPositiveDefiniteError(
            f"K_XX ({n}, {n}): found posterior variance {var[worst]:.3g} at row {worst}, expected >= 0; "
            "lower variance or raise jitter"
        )
    log_det = 2.0 * float(np.log(factor.diagonal()).sum())
    norms = float(alpha @ mean), float(site_shift @ mean)
    return SitePosterior(factor, alpha, mean, np.maximum(var, 0.0), cavity_ratio, *norms, log_det)


def kl_from_sites(posterior: SitePosterior, site_precision: FloatArray) -> float:
    """KL(q(u) || p(u)) = (log|B| - sum_i tau_i Var[t_i] + m'K^-1 m) / 2, since m - tr B^-1 = sum_i tau_i Var[t_i].

    Time O(n): no inverse, no trace.

    Parameters
    ----------
    posterior                from `condition`
    site_precision : (n,)    tau of the same call
    """
    explained = float(site_precision @ posterior.proj_var)
    return 0.5 * (posterior.log_det - explained + posterior.prior_norm)


def cavity(
    proj_mean: FloatArray,
    proj_var: FloatArray,
    cavity_ratio: FloatArray,
    site_precision: FloatArray,
    site_shift: FloatArray,
) -> Cavity:
    """Divide q(t_i) by site i: variance v/(1 - tau v), mean (m - nu v)/(1 - tau v). Time O(n).

    Parameters
    ----------
    proj_mean, proj_var : (n,)           m, v: moments of t under q
    cavity_ratio : (n,)                  1 - tau v
    site_precision, site_shift : (n,)    tau, nu

    Returns
    -------
    mean, var, proper (n,)               proper is False where 1 - tau v <= 0: nothing is left that is a distribution
    """
    proper = cavity_ratio > 0.0
    safe = np.where(proper, cavity_ratio, 1.0)
    mean = np.where(proper, (proj_mean - site_shift * proj_var) / safe, 0.0)
    return Cavity(mean, np.where(proper, proj_var / safe, 1.0), proper)


def match_moments(
    cavity_mean: FloatArray, cavity_var: FloatArray, derivative: FloatArray, curvature: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The site that gives t_i its tilted moments: tau = -d2/(1 + v d2), nu = (d1 - m d2)/(1 + v d2).

    The tilted t has mean m + v d1 and variance v + v^2 d2 (d1, d2: derivatives of log Z_i in m). No division by v: a
    projection of variance 0 is served. Time O(n).

    Parameters
    ----------
    cavity_mean, cavity_var : (n,)    m, v
    derivative, curvature : (n,)           d1, d2; 1 + v d2 > 0 for a probit factor

    Returns
    -------
    site_precision, site_shift (n,)
    """
    shrink = 1.0 + cavity_var * curvature
    return -curvature / shrink, (derivative - cavity_mean * curvature) / shrink


def log_site_scale(
    log_tilted_norm: FloatArray,
    cavity_mean: FloatArray,
    cavity_var: FloatArray,
    site_precision: FloatArray,
    site_shift: FloatArray,
) -> FloatArray:
    """log s_i = log Z_i - log of the integral of cavity times exp(-tau t^2/2 + nu t). Time O(n).

    With m, v of the cavity the integral is (1 + tau v)^(-1/2) exp[(v nu^2 + 2 m nu - tau m^2) / (2 (1 + tau v))].

    Parameters
    ----------
    log_tilted_norm : (n,)               log Z_i
    cavity_mean, cavity_var : (n,)       m, v
    site_precision, site_shift : (n,)    tau, nu
    """
    stretch = 1.0 + site_precision * cavity_var
    exponent = cavity_var * site_shift**2 + 2.0 * cavity_mean * site_shift - site_precision * cavity_mean**2
    return log_tilted_norm + 0.5 * np.log(stretch) - 0.5 * exponent / stretch


def ep_evidence(posterior: SitePosterior, log_scales: FloatArray) -> float:
    """log Z_EP = sum_i log s_i - log|B|/2 + nu'E[t]/2: the integral of the prior times all sites.

    Parameters
    ----------
    posterior              from `condition`
    log_scales : (n,)      log s_i
    """
    return float(log_scales.sum()) + 0.5 * (posterior.site_norm - posterior.log_det)
