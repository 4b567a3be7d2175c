"""Appendix A.8: latent values and labels at new inputs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.posterior import REMEDY, Gaussians
from reference.villacampa2020.power_likelihood import check_power, log_largest_probability
from reference.villacampa2020.sparse import Marginal, conditional_variances

Array = NDArray[np.float64]


class Prediction(NamedTuple):
    """Of labels."""

    probability: Array  # (t, C), rows sum to one
    probability_mass: Array  # (t,) sums before normalising


@equation("villacampa2020", "A.32")
def predictive_latent_mean(K_TZ: Array, K_ZZ: Array, inducing_mean: Array) -> Array:
    """m_k* = k_*Zᵀ K_k⁻¹ m_k, a vector (t,): (A.32) of villacampa2020.

    Parameters
    ----------
    K_TZ : (t, m)             covariances of new latent values and inducing values of one class
    K_ZZ : (m, m)             prior covariance of the inducing values
    inducing_mean : (m,)      m_k

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    return K_TZ @ factorise(K_ZZ, "K_ZZ", REMEDY).inverse @ inducing_mean


@equation("villacampa2020", "A.33")
def predictive_latent_variance(k_tt: Array, K_TZ: Array, K_ZZ: Array, inducing_cov: Array) -> Array:
    """v_k* = κ - k_*ZᵀK_k⁻¹k_*Z + k_*ZᵀK_k⁻¹ V_k K_k⁻¹k_*Z, a vector (t,): (A.33) of villacampa2020.

    Parameters
    ----------
    k_tt : (t,)               κ, prior variances, noise included
    K_TZ : (t, m)             covariances of new latent values and inducing values of one class
    K_ZZ : (m, m)             prior covariance of the inducing values
    inducing_cov : (m, m)     V_k

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular, or so near to it that the first two terms are below zero
    """
    upsilon = K_TZ @ factorise(K_ZZ, "K_ZZ", REMEDY).inverse
    return conditional_variances(k_tt, K_TZ, upsilon) + np.sum((upsilon @ inducing_cov) * upsilon, axis=1)


@equation("villacampa2020", "A.31")
def predictive_latent_distribution(posterior: Gaussians, k_tt: Array, K_TZ: Array, K_ZZ: Array) -> Marginal:
    """p(f*|y) ≈ Π_k N(f^k(x*) | m_k*, v_k*), each (t, C): (A.31) of villacampa2020.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    k_tt : (C, t)             prior variances, noise included
    K_TZ : (C, t, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    C = range(len(K_ZZ))
    mean = [predictive_latent_mean(K_TZ[k], K_ZZ[k], posterior.mean[k]) for k in C]
    var = [predictive_latent_variance(k_tt[k], K_TZ[k], K_ZZ[k], posterior.cov[k]) for k in C]
    return Marginal(np.array(mean).T, np.array(var).T)


@equation("villacampa2020", "A.34")
def predictive_class_probability_robust(latent_mean: Array, latent_var: Array, epsilon: float) -> Array:
    """∫ [(1 - ε) Π_{k≠y*} Φ((f - m_k*)/√v_k*) + ε/C] N(f | m_y*, v_y*) df, (t, C), not normalised: (A.34).

    Parameters
    ----------
    latent_mean : (t, C)      m* of villacampa2020
    latent_var : (t, C)       v*
    epsilon : float           label-error probability
    """
    check_power(1.0, epsilon)
    t, C = latent_mean.shape
    log_p = [log_largest_probability(latent_mean, latent_var, np.full(t, c))[0] for c in range(C)]
    return (1.0 - epsilon) * np.exp(np.array(log_p).reshape(C, t).T) + epsilon / C


def predict(posterior: Gaussians, k_tt: Array, K_TZ: Array, K_ZZ: Array, epsilon: float) -> Prediction:
    """p(y*|x*, y) of all classes, (t, C), and the sums that the quadrature left: (A.34) of villacampa2020.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    k_tt : (C, t)             prior variances, noise included
    K_TZ : (C, t, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    epsilon : float           label-error probability

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    raw = predictive_class_probability_robust(*predictive_latent_distribution(posterior, k_tt, K_TZ, K_ZZ), epsilon)
    mass = np.sum(raw, axis=1)
    return Prediction(raw / mass[:, None], mass)
