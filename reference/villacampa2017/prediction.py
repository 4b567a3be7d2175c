"""Section 2.2, (11), and appendix H: latent values and labels at new inputs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._largest import log_largest
from reference.common.errors import factorise
from reference.common.kernels import squared_exponential
from reference.common.ledger import equation
from reference.common.priors import Prior
from reference.villacampa2017.model import REMEDY, add_latent_noise, inducing_covariances
from reference.villacampa2017.posterior import Gaussians

Array = NDArray[np.float64]


class Latents(NamedTuple):
    """Independent Gaussians of latent values, class last."""

    mean: Array  # (t, C)
    var: Array  # (t, C)


class Prediction(NamedTuple):
    """Of labels."""

    probability: Array  # (t, C), rows sum to one
    probability_mass: Array  # (t,) sums before normalising


class BaselinePrediction(NamedTuple):
    """At new inputs."""

    latent_mean: Array  # (t, C)
    latent_var: Array  # (t, C)  noise included
    probability: Array  # (t, C)  rows sum to one
    probability_mass: Array  # (t,)  their sums before


@equation("villacampa2017", "66")
def predictive_latent_mean(K_TZ: Array, K_ZZ: Array, inducing_mean: Array) -> Array:
    """m_k* = k_*Zᵀ K_ZZ⁻¹ m_k, a vector (t,): (66) of villacampa2017.

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


@equation("villacampa2017", "67")
def predictive_latent_variance(k_tt: Array, K_TZ: Array, K_ZZ: Array, inducing_cov: Array) -> Array:
    """v_k* = κ - k_*ZᵀK_ZZ⁻¹k_*Z + k_*ZᵀK_ZZ⁻¹ V_k K_ZZ⁻¹k_*Z, a vector (t,): (67) of villacampa2017.

    Parameters
    ----------
    k_tt : (t,)               κ, prior variances, noise included
    K_TZ : (t, m)             covariances of new latent values and inducing values of one class
    K_ZZ : (m, m)             prior covariance of the inducing values
    inducing_cov : (m, m)     V_k

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    upsilon = K_TZ @ factorise(K_ZZ, "K_ZZ", REMEDY).inverse
    open_part = np.maximum(k_tt - np.sum(K_TZ * upsilon, axis=1), 0.0)  # below zero by rounding only
    return open_part + np.sum((upsilon @ inducing_cov) * upsilon, axis=1)


@equation("villacampa2017", "65")
def predictive_latent_distribution(posterior: Gaussians, k_tt: Array, K_TZ: Array, K_ZZ: Array) -> Latents:
    """p(f*|y) ≈ Π_k N(f^k(x*) | m_k*, v_k*), each (t, C): (65) of villacampa2017.

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
    return Latents(np.array(mean).T, np.array(var).T)


@equation("villacampa2017", "68")
def predictive_class_probability(latent_mean: Array, latent_var: Array) -> Array:
    """∫ Π_{k≠y*} Φ((f - m_k*)/√v_k*) N(f | m_y*, v_y*) df, an array (t, C), not normalised: (68) of villacampa2017.

    Parameters
    ----------
    latent_mean : (t, C)      m*
    latent_var : (t, C)       v*
    """
    t, C = latent_mean.shape
    raw = [np.exp(log_largest(latent_mean, latent_var, np.full(t, c))) for c in range(C)]
    return np.stack(raw, axis=1)


@equation("villacampa2017", "11")
def predictive_distribution(posterior: Gaussians, k_tt: Array, K_TZ: Array, K_ZZ: Array) -> Prediction:
    """p(y*|x*, y) = ∫ p(y*|f*) p(f*|f̄) q(f̄) df̄ df* of all classes, (t, C): (11) of villacampa2017.

    Printed without p(f*|f̄), and with f for f̄. The integral over f* given f̄ has the form of (3); q(f̄) is taken first, as
    (65) has it, which leaves (68). The sums over the classes before normalising are `probability_mass`.

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
    raw = predictive_class_probability(*predictive_latent_distribution(posterior, k_tt, K_TZ, K_ZZ))
    mass = np.sum(raw, axis=1)
    return Prediction(raw / mass[:, None], mass)


def predict(posterior: Gaussians, X_test: Array, prior: Prior, epsilon: float = 0.0) -> BaselinePrediction:
    """Latent values by (65) to (67) and labels by (11) of villacampa2017 at new inputs, normalised.

    With labelling errors labels are (68), of which each sum keeps 1 - ε.

    Parameters
    ----------
    posterior : Gaussians     q of the inducing values
    X_test : (t, d)           new inputs, perhaps none
    prior : Prior             hyper-parameters of all classes, as learned
    epsilon : float           probability of a label drawn at random: each sum gets its share of it, as in (13)

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X_test = _check.points(X_test, "X_test", prior.Z.shape[2], allow_empty=True)
    K_ZZ = inducing_covariances(prior.Z, prior.variance, prior.lengthscales, prior.jitter)
    K_TZ = np.stack(
        [squared_exponential(X_test, prior.Z[k], prior.variance[k], prior.lengthscales[k]) for k in range(len(K_ZZ))]
    )
    k_tt = add_latent_noise(np.repeat(prior.variance[:, None], len(X_test), axis=1), prior.noise)
    latents = predictive_latent_distribution(posterior, k_tt, K_TZ, K_ZZ)  # (65) to (67)
    if epsilon == 0.0:
        prediction = predictive_distribution(posterior, k_tt, K_TZ, K_ZZ)  # (11)
        return BaselinePrediction(latents.mean, latents.var, prediction.probability, prediction.probability_mass)
    raw = (1.0 - epsilon) * predictive_class_probability(*latents) + epsilon / len(K_ZZ)
    mass = np.sum(raw, axis=1)
    return BaselinePrediction(latents.mean, latents.var, raw / mass[:, None], mass)
