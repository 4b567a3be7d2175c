"""Section 4.3, "Predictions": the latent predictive distribution (13) and the class probability (14)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.quadrature import gaussian_integral, log_sigmoid_scalar, sigmoid_minus

Array = NDArray[np.float64]


class LatentPrediction(NamedTuple):
    """Mean and variance of f at each test point."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,)


class Probability(NamedTuple):
    """Class probability, and what the same quadrature makes of the Gaussian density alone."""

    probability: Array  # (t,)  p(y = +1)
    probability_mass: Array  # (t,)  1 up to error
    error: Array  # (t,)  stated by the quadrature, an upper estimate for both


def _zero(z: float) -> float:
    return 0.0


@equation("wenzel2019", "13")
def predict_latent(
    inducing_mean: Array, inducing_cov: Array, K_XZ: Array, k_xx: Array, K_ZZ: Array
) -> LatentPrediction:
    """Latent predictive mean and variance: wenzel2019 (13).

        p(f*|y) ≈ N(f* | μ*, σ*²)
        μ* = K_*m K_mm⁻¹ μ,   σ*² = K_** + K_*m K_mm⁻¹ (Σ K_mm⁻¹ - I) K_m*                    (13)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_XZ : (t, m)             K_*m, rows are test points
    k_xx : (t,)               K_**, prior variances, noise included
    K_ZZ : (m, m)             K_mm

    Returns
    -------
    LatentPrediction          latent_mean (t,), latent_var (t,)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", "raise jitter or remove duplicate rows of Z").inverse
    upsilon = K_XZ @ K_inverse  # K_*m K_mm⁻¹
    middle = inducing_cov @ K_inverse - np.eye(len(K_ZZ))  # Σ K_mm⁻¹ - I
    return LatentPrediction(upsilon @ inducing_mean, k_xx + np.sum((upsilon @ middle) * K_XZ, axis=1))


@equation("wenzel2019", "14")
def predict_probability(latent_mean: Array, latent_var: Array) -> Probability:
    """Probability of the label +1: wenzel2019 (14).

        p(y* = 1|y) = ∫ σ(f*) p(f*|y) df*                                                     (14)

    Adaptive quadrature, split at the kink of log σ and around the mode of the integrand. A variance of 0 is a point
    mass: p = σ(mean).

    Parameters
    ----------
    latent_mean : (t,)        μ*
    latent_var : (t,)         σ*², >= 0

    Returns
    -------
    Probability               probability (t,), probability_mass (t,), error (t,)

    Raises
    ------
    ValueError                if a variance is negative or not finite, or a mean is not finite
    QuadratureError           if the quadrature states an error above 1e-11
    """
    means, variances = np.asarray(latent_mean, dtype=float), np.asarray(latent_var, dtype=float)
    if not np.all(np.isfinite(means)):
        raise ValueError("latent_mean: found a value that is not finite, expected finite values")
    if not np.all(np.isfinite(variances) & (variances >= 0.0)):
        raise ValueError(f"latent_var: found {np.min(variances):.6g}, expected finite values >= 0")
    hits = [gaussian_integral(log_sigmoid_scalar, sigmoid_minus, m, v) for m, v in zip(means, variances, strict=True)]
    masses = [gaussian_integral(_zero, _zero, m, v) for m, v in zip(means, variances, strict=True)]
    error = np.maximum([hit.error for hit in hits], [mass.error for mass in masses])
    # σ < 1: where the integral comes out above 1 it does so within its error
    probability = np.array([min(hit.value, 1.0) for hit in hits])
    return Probability(probability, np.array([mass.value for mass in masses]), error)
