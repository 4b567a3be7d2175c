"""Section 3: the variational rival with the robust likelihood, and the record of what Jensen's inequality costs it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._largest import log_largest
from reference.common.errors import cholesky, factorise
from reference.common.ledger import equation
from reference.villacampa2017.model import REMEDY, fitc_conditional, hard_max_likelihood
from reference.villacampa2017.posterior import Gaussians

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Marginal(NamedTuple):
    """Independent Gaussians of the latent values."""

    mean: Array  # (n, C)
    var: Array  # (n, C)


class Record(NamedTuple):
    """Two averages over test data."""

    log_expected: float  # of log E[p(y|f)]
    expected_log: float  # of E[log p(y|f)]


@equation("villacampa2017", "13")
def robust_likelihood(f_i: Array, y_i: int, epsilon: float) -> float:
    """p(y_i|f_i) = (1 - ε) Π_{k≠y} Θ(f_y - f_k) + ε/C: (13) of villacampa2017.

    Parameters
    ----------
    f_i : (C,)                latent values of one observation
    y_i : int                 its label, 0..C-1
    epsilon : float           ε, probability of a label drawn at random
    """
    return (1.0 - epsilon) * hard_max_likelihood(f_i, y_i) + epsilon / len(f_i)


def kl_to_prior(posterior: Gaussians, K_ZZ: Array) -> float:
    """KL[q(f̄)||p(f̄)] of independent Gaussians, in (14) of villacampa2017.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    K_ZZ : (C, m, m)          prior covariances

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    total = 0.0
    for m, S, K in zip(posterior.mean, posterior.cov, K_ZZ, strict=True):
        prior, own = factorise(K, "K_ZZ", REMEDY), factorise(S, "inducing_cov", "lower rate")
        trace = np.sum(prior.inverse * S)
        total += 0.5 * float(trace + m @ prior.inverse @ m - len(m) + prior.log_det - own.log_det)
    return total


@equation("villacampa2017", "14")
def vi_outer_bound(
    posterior: Gaussians, log_likelihood: Callable[[Array], float], K_ZZ: Array, nodes: int = 20
) -> float:
    """E_q[log p(y|f̄)] - KL[q(f̄)||p(f̄)], a lower bound on log p(y): (14) of villacampa2017, for few inducing values.

    Parameters
    ----------
    posterior : Gaussians        q(f̄)
    log_likelihood : callable    f̄ (C, m) to log p(y|f̄)
    K_ZZ : (C, m, m)             prior covariances
    nodes : int                  of the Gauss-Hermite product rule, in each of the C m dimensions

    Raises
    ------
    NotPositiveDefiniteError     if one of the matrices is not a covariance
    ValueError                   for more than 1e6 points
    """
    C, m = posterior.mean.shape
    if nodes ** (C * m) > 1e6:
        raise ValueError(f"nodes: found {nodes} in {C * m} dimensions, expected at most 1e6 points")
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    roots = [cholesky(S, "inducing_cov", "lower rate") for S in posterior.cov]
    total = 0.0
    for place in np.ndindex(*(nodes,) * (C * m)):
        white = x[list(place)].reshape(C, m)
        values = np.stack([posterior.mean[k] + roots[k] @ white[k] for k in range(C)])
        total += float(np.prod(w[list(place)] / np.sqrt(2.0 * np.pi))) * log_likelihood(values)
    return total - kl_to_prior(posterior, K_ZZ)


@equation("villacampa2017", "16")
def vi_marginal_mean(k_xZ: Array, K_ZZ: Array, inducing_mean: Array) -> float:
    """m̂_i^k = k_xZᵀ K_ZZ⁻¹ m^k: (16) of villacampa2017.

    Parameters
    ----------
    k_xZ : (m,)               covariances of f^k(x_i) and f̄^k
    K_ZZ : (m, m)             prior covariance of f̄^k
    inducing_mean : (m,)      m^k

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    return float(k_xZ @ factorise(K_ZZ, "K_ZZ", REMEDY).inverse @ inducing_mean)


@equation("villacampa2017", "17")
def vi_marginal_variance(k_xx: float, k_xZ: Array, K_ZZ: Array, inducing_cov: Array) -> float:
    """ŝ_i^k = κ - k_xZᵀK_ZZ⁻¹k_xZ + k_xZᵀK_ZZ⁻¹ S^k K_ZZ⁻¹k_xZ: (17) of villacampa2017.

    Parameters
    ----------
    k_xx : float              κ, prior variance of f^k(x_i), noise included
    k_xZ : (m,)               covariances of f^k(x_i) and f̄^k
    K_ZZ : (m, m)             prior covariance of f̄^k
    inducing_cov : (m, m)     S^k

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    upsilon = factorise(K_ZZ, "K_ZZ", REMEDY).inverse @ k_xZ
    return max(float(k_xx - k_xZ @ upsilon), 0.0) + float(upsilon @ inducing_cov @ upsilon)


@equation("villacampa2017", "u22-vi-latent-marginal")
def vi_latent_marginal(posterior: Gaussians, k_xx: Array, K_XZ: Array, K_ZZ: Array) -> Marginal:
    """q(f_i) = Π_k N(f^k(x_i) | m̂_i^k, ŝ_i^k), each (n, C): below (15) of villacampa2017.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    C, n = k_xx.shape
    mean = [[vi_marginal_mean(K_XZ[k, i], K_ZZ[k], posterior.mean[k]) for k in range(C)] for i in range(n)]
    var = [
        [vi_marginal_variance(float(k_xx[k, i]), K_XZ[k, i], K_ZZ[k], posterior.cov[k]) for k in range(C)]
        for i in range(n)
    ]
    return Marginal(np.array(mean), np.array(var))


def expected_log_likelihood(latent_mean: Array, latent_var: Array, y: Labels, epsilon: float) -> Array:
    """E_{q(f_i)}[log p(y_i|f_i)], (n,): the likelihood (13) of villacampa2017 takes two values only.

    Parameters
    ----------
    latent_mean : (n, C)      m̂
    latent_var : (n, C)       ŝ
    y : (n,)                  labels, 0..C-1
    epsilon : float           ε > 0
    """
    C = latent_mean.shape[1]
    wins = np.exp(log_largest(latent_mean, latent_var, y))
    low, high = np.log(epsilon) - np.log(C), np.log(1.0 - epsilon + epsilon / C)
    return low + (high - low) * wins


@equation("villacampa2017", "u45-inner-bound")
def vi_inner_bound(inducing_values: Array, y: Labels, k_xx: Array, K_XZ: Array, K_ZZ: Array, epsilon: float) -> float:
    """E_{p(f|f̄)}[log p(y|f)] <= log p(y|f̄): between (13) and (14) of villacampa2017, equal where f̄ determines f.

    The expectation needs the marginals of each f_i given f̄ alone, (4) and (5).

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    y : (n,)                  labels, 0..C-1
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    epsilon : float           ε > 0; the bound is minus infinity without it

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    given = fitc_conditional(inducing_values, k_xx, K_XZ, K_ZZ)  # (4), (5)
    wins = np.exp(log_largest(given.mean.T, given.var.T, y))
    C = len(K_ZZ)
    # the two values of log (13)
    low, high = np.log(epsilon) - np.log(C), np.log(1.0 - epsilon + epsilon / C)
    return float(np.sum(low + (high - low) * wins))


@equation("villacampa2017", "15")
def variational_elbo(posterior: Gaussians, y: Labels, k_xx: Array, K_XZ: Array, K_ZZ: Array, epsilon: float) -> float:
    """Σ_i E_{q(f_i)}[log p(y_i|f_i)] - KL[q(f̄)||p(f̄)]: the last line of (15) of villacampa2017.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (n,)                  labels, 0..C-1
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    epsilon : float           ε > 0; the bound is minus infinity without it

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    marginal = vi_latent_marginal(posterior, k_xx, K_XZ, K_ZZ)  # (16), (17)
    wins = np.exp(log_largest(marginal.mean, marginal.var, y))
    C = len(K_ZZ)
    # the two values of log (13)
    low, high = np.log(epsilon) - np.log(C), np.log(1.0 - epsilon + epsilon / C)
    total = float(np.sum(low + (high - low) * wins))
    for m, S, K in zip(posterior.mean, posterior.cov, K_ZZ, strict=True):
        prior, own = factorise(K, "K_ZZ", REMEDY), factorise(S, "inducing_cov", "lower rate")
        trace = np.sum(prior.inverse * S)
        total -= 0.5 * float(trace + m @ prior.inverse @ m - len(m) + prior.log_det - own.log_det)
    return total


@equation("villacampa2017", "u41-jensen-record")
def record_jensen_gap(latent_mean: Array, latent_var: Array, y: Labels, epsilon: float) -> Record:
    """Averages over test data of log E[p(y|f)] and of E[log p(y|f)]: sections 4.1 and I of villacampa2017.

    Parameters
    ----------
    latent_mean : (t, C)      means at the test inputs
    latent_var : (t, C)       variances there
    y : (t,)                  labels, 0..C-1
    epsilon : float           ε > 0
    """
    C = latent_mean.shape[1]
    wins = np.exp(log_largest(latent_mean, latent_var, y))
    outside = np.log((1.0 - epsilon) * wins + epsilon / C)
    return Record(float(np.mean(outside)), float(np.mean(expected_log_likelihood(latent_mean, latent_var, y, epsilon))))
