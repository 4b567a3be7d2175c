"""Appendix B: EP's estimate of the log marginal likelihood, and its gradient."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.riihimaki2013.sites import CAVITY

Array = NDArray[np.float64]


@equation("riihimaki2013", "28")
def ep_log_marginal(
    location: Array,
    mean: Array,
    log_det: float,
    log_tilted_norm: Array,
    cavity_mean: Array,
    cavity_cov: Array,
    latent_mean: Array,
    latent_cov: Array,
) -> float:
    """log Z_EP of (28) of riihimaki2013, with every constant.

        ½ν'μ - ½log|I + KT| + Σ log Z_q̂ + ½Σ(μ_{-i}'Σ_{-i}⁻¹μ_{-i} + log|Σ_{-i}|) - ½Σ(μ_i'Σ_i⁻¹μ_i + log|Σ_i|)

    Parameters
    ----------
    location : (cn,)          ν, class-major
    mean : (cn,)              μ, class-major
    log_det : float           log|I + KT|
    log_tilted_norm : (n,)    log Z_q̂ of each datum
    cavity_mean : (n, c)      μ_{-i}
    cavity_cov : (n, c, c)    Σ_{-i}
    latent_mean : (n, c)      μ_i
    latent_cov : (n, c, c)    Σ_i

    Raises
    ------
    NotPositiveDefiniteError  if a covariance is singular
    """
    total = 0.5 * float(np.vdot(location, mean)) - 0.5 * log_det + float(np.sum(log_tilted_norm))
    for i in range(len(cavity_mean)):
        without = factorise(cavity_cov[i], f"cavity_cov of datum {i}", CAVITY)
        full = factorise(latent_cov[i], f"latent_cov of datum {i}", CAVITY)
        total += 0.5 * (cavity_mean[i] @ without.inverse @ cavity_mean[i] + without.log_det)
        total -= 0.5 * (latent_mean[i] @ full.inverse @ latent_mean[i] + full.log_det)
    return float(total)


@equation("riihimaki2013", "B-gradient")
def ep_gradient(location: Array, M: Array, K: Array, dK: Iterable[Array]) -> Array:
    """∂log Z_EP/∂θ = ½b'(∂K)b - ½tr(M∂K), b = K⁻¹μ = ν - MKν: end of appendix B of riihimaki2013.

    The explicit derivatives of the first two terms of (28): the others cancel where outer and inner EP have converged.

    Parameters
    ----------
    location : (cn,)          ν, class-major
    M : (cn, cn)              T(I + KT)⁻¹
    K : (cn, cn)              prior covariance
    dK : p matrices (cn, cn)  its derivatives

    Returns
    -------
    (p,)
    """
    b = location - M @ (K @ location)
    return np.array([0.5 * b @ one @ b - 0.5 * np.sum(M * one) for one in dK])
