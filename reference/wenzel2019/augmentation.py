"""Section 3.1: Pólya-Gamma variables, (3), (4), their tilt and mean, and the augmented joint density (5)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.common.ledger import equation
from reference.common.logistic import log_cosh
from reference.wenzel2019.model import log_gaussian

Array = NDArray[np.float64]


@equation("wenzel2019", "3")
def _log_laplace(t: ArrayLike, b: ArrayLike) -> Array:
    """log E[exp(-ωt)] = -b log cosh √(t/2), the logarithm of (3) of wenzel2019, finite where (3) itself underflows."""
    return -np.asarray(b, dtype=float) * log_cosh(np.sqrt(0.5 * np.asarray(t, dtype=float)))


@equation("wenzel2019", "3")
def pg_laplace_transform(t: ArrayLike, b: ArrayLike) -> Array:
    """Laplace transform that defines ω ~ PG(b, 0): wenzel2019 (3).

        E[exp(-ωt)] = 1 / cosh^b(√(t/2))                                                      (3)

    Parameters
    ----------
    t : (k,)                  argument, t >= 0
    b : () or (k,)            shape parameter, b > 0

    Raises
    ------
    ValueError                if an entry of t is negative

    Notes
    -----
    The paper calls it a moment generating function; with exp(-ωt) it is the Laplace transform.
    """
    if np.any(np.asarray(t) < 0.0):
        raise ValueError(f"t: found {np.min(t):.6g}, expected >= 0")
    return np.exp(_log_laplace(t, b))


@equation("wenzel2019", "u3.1-pg-tilt")
def pg_log_tilt(omega: ArrayLike, b: ArrayLike, c: ArrayLike) -> Array:
    """Log density ratio of PG(b, c) to PG(b, 0): wenzel2019, section 3.1.

        PG(ω|b, c) ∝ exp(-c²ω/2) PG(ω|b, 0)

    and (3) at t = c²/2 gives the normaliser: log PG(ω|b, c) - log PG(ω|b, 0) = b log cosh(c/2) - c²ω/2.

    Parameters
    ----------
    omega : (k,)              where the ratio is taken
    b : () or (k,)            shape parameter
    c : () or (k,)            tilt
    """
    tilt = np.asarray(c, dtype=float)
    return -_log_laplace(0.5 * tilt**2, b) - 0.5 * tilt**2 * np.asarray(omega)


@equation("wenzel2019", "u3.1-pg-mean")
def pg_mean(b: ArrayLike, c: ArrayLike) -> Array:
    """Mean of PG(b, c): wenzel2019, section 3.1.

        E[ω] = b/(2c) tanh(c/2),  b/4 at c = 0

    Parameters
    ----------
    b : () or (n,)            shape parameter
    c : (n,)                  tilt; its sign does not matter
    """
    half_c = 0.5 * np.abs(np.asarray(c, dtype=float))
    at_zero = half_c == 0.0
    # tanh(x)/x is accurate to rounding for every x > 0, however small; only 0/0 needs its limit
    ratio = np.where(at_zero, 1.0, np.tanh(half_c) / np.where(at_zero, 1.0, half_c))
    return 0.25 * np.asarray(b, dtype=float) * ratio


@equation("wenzel2019", "4")
def logit_pg_mixture(z: ArrayLike) -> Array:
    """The logit link as a scale mixture of Gaussians: wenzel2019 (4).

        σ(z) = e^{z/2} / (2 cosh(z/2)) = ½ ∫ exp(z/2 - z²ω/2) PG(ω|1, 0) dω                   (4)

    The integral over ω is (3) at t = z²/2.

    Parameters
    ----------
    z : (k,)                  argument of the link

    Returns
    -------
    (k,) σ(z); each factor is kept as a logarithm, so that |z| of 10³ and more does no harm
    """
    z = np.asarray(z, dtype=float)
    return np.exp(0.5 * z + _log_laplace(0.5 * z**2, 1.0) - np.log(2.0))


@equation("wenzel2019", "5")
def log_joint_augmented(latent_values: Array, omega: Array, y_sign: Array, K_XX: Array) -> float:
    """Log joint density of the augmented model without log p(ω): wenzel2019 (5).

        p(y, ω, f) ∝ exp(½ yᵀf - ½ fᵀΩf) p(f) p(ω)                                            (5)

    Parameters
    ----------
    latent_values : (n,)      f
    omega : (n,)              diagonal of Ω
    y_sign : (n,)             y, labels -1 or +1
    K_XX : (n, n)             K_nn

    Returns
    -------
    log p(y, ω, f) - log p(ω), with the constant -n log 2 that (4) has and ∝ hides

    Raises
    ------
    NotPositiveDefiniteError  if K_XX is singular

    Notes
    -----
    (4) at z_i = y_i f_i has z_i² = f_i², so the labels stand in the linear term only.
    """
    f = latent_values
    exponent = 0.5 * y_sign @ f - 0.5 * f @ np.diag(omega) @ f
    return float(-len(f) * np.log(2.0) + exponent) + log_gaussian(f, K_XX, "K_XX")
