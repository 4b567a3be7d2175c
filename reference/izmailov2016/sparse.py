"""Section 3: inducing inputs, (7), (8), the variational family (9) and its marginals, (10)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.logistic import log_sigmoid
from reference.izmailov2016.model import REMEDY_Z, LatentDistribution, log_gaussian

Array = NDArray[np.float64]


class Conditional(NamedTuple):
    """p(f|u) = N(mean, cov)."""

    mean: Array  # (n,)
    cov: Array  # (n, n)  K̃


class Marginal(NamedTuple):
    """q(f) = N(mean, cov)."""

    mean: Array  # (n,)
    cov: Array  # (n, n)


@equation("izmailov2016", "7")
def log_joint_augmented(
    latent_values: Array, inducing_values: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, K_XX: Array
) -> float:
    """Log joint density of labels, latent values and inducing values: izmailov2016 (7).

        p(y, f, u|X, Z) = p(y|f) p(f, u|X, Z) = Π_i p(y_i|f_i) p(f, u|X, Z)                   (7)

    Parameters
    ----------
    latent_values : (n,)      f
    inducing_values : (m,)    u
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Raises
    ------
    NotPositiveDefiniteError  if the joint covariance of f and u is singular
    """
    prior = joint_prior_covariance(K_ZZ, K_XZ, K_XX)
    both = np.concatenate([latent_values, inducing_values])
    log_prior = log_gaussian(both, prior, "K([X, Z], [X, Z])", REMEDY_Z)
    return log_prior + float(np.sum(log_sigmoid(y_sign * latent_values)))


@equation("izmailov2016", "u3.1-joint-prior")
def joint_prior_covariance(K_ZZ: Array, K_XZ: Array, K_XX: Array) -> Array:
    """Covariance of training values and inducing values: izmailov2016, section 3.1.

        p(f, u|X, Z) = N([f, u] | [0, 0], K([X, Z], [X, Z]))

    Parameters
    ----------
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Returns
    -------
    (n + m, n + m)
    """
    return np.block([[K_XX, K_XZ], [K_XZ.T, K_ZZ]])


@equation("izmailov2016", "u3.1-prior-u")
def log_prior_inducing(inducing_values: Array, K_ZZ: Array) -> float:
    """Log prior density of the inducing values: izmailov2016, section 3.1.

        p(u|Z) = N(u | 0, K_mm)

    Parameters
    ----------
    inducing_values : (m,)    u
    K_ZZ : (m, m)             K_mm

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    return log_gaussian(inducing_values, K_ZZ, "K_ZZ", REMEDY_Z)


@equation("izmailov2016", "8")
def conditional_f_given_u(inducing_values: Array, K_ZZ: Array, K_XZ: Array, K_XX: Array) -> Conditional:
    """Distribution of the training values given the inducing values: izmailov2016 (8).

        p(f|u, X, Z) = N(f | K_nm K_mm⁻¹ u, K̃),   K̃ = K_nn - K_nm K_mm⁻¹ K_mn                 (8)

    Parameters
    ----------
    inducing_values : (m,)    u
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Returns
    -------
    Conditional               mean (n,), cov (n, n)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    return Conditional(K_XZ @ K_inverse @ inducing_values, K_XX - K_XZ @ K_inverse @ K_XZ.T)


@equation("izmailov2016", "u3.1-elbo-generic")
def elbo_generic(log_joint: Array, log_density: Array, weights: Array) -> float:
    """Evidence lower bound for any distribution of inducing and training values: izmailov2016, section 3.1.

        log p(y) >= E_{q(u,f)}[ log p(y, u, f) - log q(u, f) ]

    The expectation is a sum over points (u, f) with weights, those of a quadrature under q. It meets log p(y) for
    q(u, f) = p(u, f|y), where the bracket is log p(y) at every point.

    Parameters
    ----------
    log_joint : (q,)          log p(y, u, f) at the points
    log_density : (q,)        log q(u, f) at the points
    weights : (q,)            masses of q at the points, of sum 1
    """
    return float(np.sum(weights * (log_joint - log_density)))


@equation("izmailov2016", "9")
def variational_family(
    latent_values: Array,
    inducing_values: Array,
    inducing_mean: Array,
    inducing_cov: Array,
    K_ZZ: Array,
    K_XZ: Array,
    K_XX: Array,
) -> float:
    """Log density of the variational family: izmailov2016 (9).

        q(u, f) = p(f|u) q(u),   q(u) = N(u | μ, Σ)                                           (9)

    Parameters
    ----------
    latent_values : (n,)      f
    inducing_values : (m,)    u
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ, inducing_cov or K̃ is singular; p(f|u) has a density only where u fixes no f_i
    """
    given = conditional_f_given_u(inducing_values, K_ZZ, K_XZ, K_XX)
    log_f = log_gaussian(latent_values - given.mean, given.cov, "K_tilde", "raise noise")
    gap = inducing_values - inducing_mean
    return log_f + log_gaussian(gap, inducing_cov, "inducing_cov", "pass a positive definite inducing_cov")


@equation("izmailov2016", "u3.1-qf")
def marginal_q_f(inducing_mean: Array, inducing_cov: Array, K_ZZ: Array, K_XZ: Array, K_XX: Array) -> Marginal:
    """Marginal of the variational family over the training values: izmailov2016, section 3.1.

        q(f) = N(f | K_nm K_mm⁻¹ μ, K_nn + K_nm K_mm⁻¹ (Σ - K_mm) K_mm⁻¹ K_mn)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Returns
    -------
    Marginal                  mean (n,), cov (n, n)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    kappa = K_XZ @ factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    return Marginal(kappa @ inducing_mean, K_XX + kappa @ (inducing_cov - K_ZZ) @ kappa.T)


@equation("izmailov2016", "10")
def marginal_moments(
    inducing_mean: Array, inducing_cov: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array
) -> LatentDistribution:
    """Mean and variance of each training value under the variational family: izmailov2016 (10).

        q(f_i) = N(f_i | k_iᵀK_mm⁻¹μ, K_ii + k_iᵀK_mm⁻¹(Σ - K_mm)K_mm⁻¹k_i) = N(f_i | m_i, S_i²)     (10)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm, rows k_iᵀ
    k_xx : (n,)               K_ii, noise included

    Returns
    -------
    LatentDistribution                 latent_mean (n,) m_i, latent_var (n,) S_i²

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    kappa = K_XZ @ factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    return LatentDistribution(kappa @ inducing_mean, k_xx + np.sum((kappa @ (inducing_cov - K_ZZ)) * kappa, axis=1))


@equation("izmailov2016", "u3.1-predict")
def predict_latent(
    inducing_mean: Array, inducing_cov: Array, K_ZZ: Array, K_TZ: Array, k_tt: Array
) -> LatentDistribution:
    """Latent distribution at new points from the distribution of the inducing values: izmailov2016, section 3.1, end.

        p(f*|y) ≈ ∫ p(f*|u) q(u) du

    The integral of two normal distributions: p(f*|u) has mean k*ᵀK_mm⁻¹u and variance k** - k*ᵀK_mm⁻¹k*, and the first
    varies with u by k*ᵀK_mm⁻¹ΣK_mm⁻¹k*.

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_ZZ : (m, m)             K_mm
    K_TZ : (t, m)             K_*m
    k_tt : (t,)               k**, noise included

    Returns
    -------
    LatentDistribution                 latent_mean (t,), latent_var (t,)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    kappa = K_TZ @ factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    given_u = k_tt - np.sum(kappa * K_TZ, axis=1)
    return LatentDistribution(kappa @ inducing_mean, given_u + np.sum((kappa @ inducing_cov) * kappa, axis=1))
