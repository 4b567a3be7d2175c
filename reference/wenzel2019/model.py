"""Sections 3 and 5: the model, (1), (2), and the covariance function of the experiments."""

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.kernels import squared_exponential
from reference.common.ledger import equation
from reference.common.logistic import log_sigmoid

Array = NDArray[np.float64]


@equation("wenzel2019", "1")
def log_likelihood_logit(latent_values: Array, y_sign: Array) -> float:
    """Log-likelihood of labels through the logit link: wenzel2019 (1).

        log p(y|f) = Σ_i log σ(y_i f(x_i)),   σ(z) = (1 + e⁻ᶻ)⁻¹                              (1)

    Parameters
    ----------
    latent_values : (n,)      f
    y_sign : (n,)             y, labels -1 or +1
    """
    return float(np.sum(log_sigmoid(y_sign * latent_values)))


@equation("wenzel2019", "2")
def log_joint(latent_values: Array, y_sign: Array, K_XX: Array) -> float:
    """Log joint density of labels and latent values: wenzel2019 (2).

        log p(y, f|X) = log p(y|f) + log N(f | 0, K_nn)                                       (2)

    Parameters
    ----------
    latent_values : (n,)      f
    y_sign : (n,)             y, labels -1 or +1
    K_XX : (n, n)             K_nn

    Raises
    ------
    NotPositiveDefiniteError  if K_XX is singular
    """
    return log_likelihood_logit(latent_values, y_sign) + log_gaussian(latent_values, K_XX, "K_XX")


def log_gaussian(latent_values: Array, matrix: Array, name: str) -> float:
    """Log density log N(f | 0, matrix) of latent_values (n,) with covariance matrix (n, n), called name in errors.

    Raises NotPositiveDefiniteError if the covariance is singular.
    """
    factor = factorise(matrix, name, "raise noise or jitter, or remove duplicate rows")
    quadratic = latent_values @ factor.inverse @ latent_values
    return float(-0.5 * (len(latent_values) * np.log(2.0 * np.pi) + factor.log_det + quadratic))


@equation("wenzel2019", "u5-kernel")
def kernel_se_ard_noise(X1: Array, X2: Array | None, variance: float, lengthscales: Array, noise: float) -> Array:
    """Squared exponential covariance with amplitude and additive noise: wenzel2019, section 5 (in words).

        K_ab = variance · exp(-½ Σ_j (x_aj - x_bj)² / lengthscales_j²) + noise · 1[a and b are one point]

    Parameters
    ----------
    X1 : (a, d)               points
    X2 : (b, d) or None       other points; None stands for X1 itself, and only then is there noise to add: two
                              latent values at equal inputs have independent noise
    variance : float          squared amplitude
    lengthscales : (d,)       one length per dimension
    noise : float             variance of the additive noise, >= 0

    Returns
    -------
    (a, b), or (a, a) if X2 is None

    Notes
    -----
    "A common length scale parameter for each dimension" may mean one for all dimensions or one for each; lengthscales
    (d,) serve both readings. The paper prints no formula; the ½ is the convention of this project.
    """
    if X2 is None:
        return squared_exponential(X1, X1, variance, lengthscales) + noise * np.eye(len(X1))
    return squared_exponential(X1, X2, variance, lengthscales)
