"""Section 4.3, "On the quality of the approximation": what the augmentation costs the bound."""

import numpy as np
from numpy.typing import NDArray

from reference.common.ledger import equation
from reference.common.logistic import log_cosh
from reference.common.quadrature import gaussian_expectation
from reference.wenzel2019.augmentation import pg_mean

Array = NDArray[np.float64]


@equation("wenzel2019", "u4.3-gap")
def augmentation_gap(latent_mean: Array, latent_var: Array, c: Array) -> float:
    """Difference of the bounds of the original and of the augmented model: wenzel2019, section 4.3.

        L_orig - L_augmented = E_{q(f)}[ KL(q(ω) || p(ω|f, y)) ]

    for one Gaussian q(f). The posterior of ω_i is PG(1, f_i), so with q(ω_i) = PG(1, c_i), θ_i = E_q[ω_i] the term is

        E_{q(f_i)}[ log cosh(c_i/2) - log cosh(f_i/2) + θ_i (f_i² - c_i²)/2 ] >= 0,

    a one-dimensional adaptive quadrature for each i.

    Parameters
    ----------
    latent_mean : (n,)        means of q(f_i)
    latent_var : (n,)         variances of q(f_i), >= 0; 0 is a point mass, and no gap is left if c_i² is its square
    c : (n,)                  tilts of q(ω_i)

    Returns
    -------
    the gap, summed over the data

    Raises
    ------
    ValueError                if an entry of latent_var is negative or not finite
    QuadratureError           if a quadrature states a relative error above 1e-11

    Notes
    -----
    The labels do not enter: p(ω_i|f_i, y_i) is PG(1, y_i f_i), and PG(1, c) = PG(1, -c).
    """
    theta = pg_mean(1.0, c)
    gap = 0.0
    for mean, var, tilt, weight in zip(latent_mean, latent_var, c, theta, strict=True):
        at_tilt = float(log_cosh(0.5 * tilt))

        def divergence(f: float, at_tilt: float = at_tilt, tilt: float = tilt, weight: float = weight) -> float:
            return at_tilt - float(log_cosh(0.5 * f)) + 0.5 * weight * (f - tilt) * (f + tilt)

        gap += gaussian_expectation(divergence, mean, var).value
    return float(gap)
