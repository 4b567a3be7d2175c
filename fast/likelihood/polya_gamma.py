"""What CAVI needs of PG(1, c): its mean, its divergence from PG(1, 0), the local update. wenzel2019, 3.1, 4.2, A.2."""

from __future__ import annotations

import numpy as np

from fast.core.types import FloatArray
from fast.ledger import equation


@equation("wenzel2019", "u3.1-pg-mean", "u4.2-theta")
def pg_mean(c: FloatArray) -> FloatArray:
    """theta = E[omega] = tanh(c/2) / (2c) under PG(1, c), 1/4 at c = 0: wenzel2019, section 3.1 and below (10).

    tanh(x)/x is good to some units in the last place for every x but 0, so only 0 is treated apart.

    Parameters
    ----------
    c : (n,)   tilt, any real number

    Returns
    -------
    (n,)       in (0, 1/4]
    """
    half_c = 0.5 * np.abs(c)
    ratio = np.ones_like(half_c)
    np.divide(np.tanh(half_c), half_c, out=ratio, where=half_c != 0.0)  # NaN stays NaN
    return 0.25 * ratio


def log_cosh(z: FloatArray) -> FloatArray:
    """log cosh z without overflow, relative accuracy kept near 0.

    log1p(2 sinh^2(z/2)) for |z| < 1, |z| + log1p(exp(-2|z|)) - log 2 beyond.

    Parameters
    ----------
    z : (k,)
    """
    size = np.abs(z)
    small = np.log1p(2.0 * np.sinh(0.5 * np.minimum(size, 1.0)) ** 2)
    return np.where(size < 1.0, small, size + np.log1p(np.exp(-2.0 * size)) - np.log(2.0))


@equation("wenzel2019", "A.2-kl-pg")
def kl_polya_gamma(c: FloatArray) -> FloatArray:
    """KL(PG(1, c) || PG(1, 0)) = log cosh(c/2) - c tanh(c/2) / 4, point by point: wenzel2019, A.2.

    Absolute error below 4 eps (1 + |c|).

    Parameters
    ----------
    c : (n,)
    """
    half_c = 0.5 * np.abs(c)
    return log_cosh(half_c) - 0.5 * half_c * np.tanh(half_c)


@equation("wenzel2019", "11")
def update_local(latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
    """c_i = sqrt(E_q[f_i^2]), the maximum of the bound over the local parameters: wenzel2019 (11).

    K_tilde_ii + kappa_i Sigma kappa_i' is the variance of f_i under q, kappa_i mu its mean.

    Parameters
    ----------
    latent_mean : (n,)
    latent_var : (n,)   >= 0

    Returns
    -------
    (n,)
    """
    return np.hypot(latent_mean, np.sqrt(latent_var))
