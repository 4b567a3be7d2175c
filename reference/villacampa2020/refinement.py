r"""Appendices A.4 and A.5: an approximate factor from its cavity, equation by equation, and damping.

q\ is the cavity, Z_i the normaliser of p(y_i|f_i)^α under it. The latent value f^k(x_i) has mean a_k and variance b_k
under the cavity; derivatives of log Z_i by these two numbers are called d_mean and d_var.
"""

import numpy as np
from numpy.typing import NDArray

from reference.common._options import shown
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.posterior import SITES_REMEDY

Array = NDArray[np.float64]


@equation("villacampa2020", "A.10")
def cavity_latent_mean(upsilon: Array, cavity_mean: Array) -> float:
    r"""a = υᵀ m\, the mean of f(x_i) under the cavity: (A.10) of villacampa2020.

    Parameters
    ----------
    upsilon : (m,)            υ_i of the class
    cavity_mean : (m,)        m\ of the class
    """
    return float(upsilon @ cavity_mean)


@equation("villacampa2020", "A.11")
def cavity_latent_variance(k_xx: float, upsilon: Array, K_ZZ: Array, cavity_cov: Array) -> float:
    r"""b = κ - υᵀ K υ + υᵀ V\ υ, the variance of f(x_i) under the cavity: (A.11) of villacampa2020.

    υᵀKυ is k_xZᵀK⁻¹k_xZ; (A.11) prints K⁻¹ between the two υ.

    Parameters
    ----------
    k_xx : float              κ, prior variance of f(x_i), noise included
    upsilon : (m,)            υ_i of the class
    K_ZZ : (m, m)             prior covariance of its inducing values
    cavity_cov : (m, m)       V\ of the class
    """
    return float(k_xx - upsilon @ K_ZZ @ upsilon + upsilon @ cavity_cov @ upsilon)


@equation("villacampa2020", "A.12")
def dlogz_dmean(d_mean: float, upsilon: Array) -> Array:
    r"""∂ log Z_i/∂m\ = ∂ log Z_i/∂a υ, a vector (m,): (A.12) of villacampa2020.

    Parameters
    ----------
    d_mean : float            ∂ log Z_i/∂a
    upsilon : (m,)            υ_i of the class
    """
    return d_mean * upsilon


@equation("villacampa2020", "A.13")
def dlogz_dcov(d_var: float, upsilon: Array) -> Array:
    r"""∂ log Z_i/∂V\ = ∂ log Z_i/∂b υυᵀ, (m, m), all m² entries of V\ free: (A.13) of villacampa2020.

    Parameters
    ----------
    d_var : float             ∂ log Z_i/∂b
    upsilon : (m,)            υ_i of the class
    """
    return d_var * np.outer(upsilon, upsilon)


@equation("villacampa2020", "A.14")
def tilted_mean(cavity_mean: Array, cavity_cov: Array, d_mean: float, upsilon: Array) -> Array:
    r"""m̂ = m\ + V\ υ ∂ log Z_i/∂a, a vector (m,): (A.14) of villacampa2020.

    Parameters
    ----------
    cavity_mean : (m,)        m\ of the class
    cavity_cov : (m, m)       V\ of the class
    d_mean : float            ∂ log Z_i/∂a
    upsilon : (m,)            υ_i of the class
    """
    return cavity_mean + cavity_cov @ dlogz_dmean(d_mean, upsilon)


@equation("villacampa2020", "A.15")
def tilted_covariance(cavity_cov: Array, d_mean: float, d_var: float, upsilon: Array) -> Array:
    r"""V̂ = V\ - V\ (g gᵀ - 2 ∂ log Z_i/∂V\) V\, g = ∂ log Z_i/∂m\, a matrix (m, m): (A.15) of villacampa2020.

    Parameters
    ----------
    cavity_cov : (m, m)       V\ of the class
    d_mean : float            ∂ log Z_i/∂a
    d_var : float             ∂ log Z_i/∂b
    upsilon : (m,)            υ_i of the class
    """
    g = dlogz_dmean(d_mean, upsilon)
    return cavity_cov - cavity_cov @ (np.outer(g, g) - 2.0 * dlogz_dcov(d_var, upsilon)) @ cavity_cov


@equation("villacampa2020", "A.16")
def factor_precision_from_moments(tilted_cov: Array, cavity_cov: Array) -> Array:
    r"""α Ṽ = V̂⁻¹ - V\⁻¹, a matrix (m, m): first line of (A.16) of villacampa2020.

    Parameters
    ----------
    tilted_cov : (m, m)       V̂
    cavity_cov : (m, m)       V\

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is not a covariance
    """
    tilted = factorise(tilted_cov, "tilted_cov", SITES_REMEDY).inverse
    return tilted - factorise(cavity_cov, "cavity_cov", SITES_REMEDY).inverse


@equation("villacampa2020", "A.16")
def factor_precision_from_derivatives(d_mean: float, d_var: float, upsilon: Array, cavity_cov: Array) -> Array:
    r"""α Ṽ = υ (h⁻¹ - υᵀV\υ)⁻¹ υᵀ, a matrix (m, m): last line of (A.16) of villacampa2020, h as in (A.17).

    Parameters
    ----------
    d_mean : float            ∂ log Z_i/∂a
    d_var : float             ∂ log Z_i/∂b
    upsilon : (m,)            υ_i of the class
    cavity_cov : (m, m)       V\ of the class
    """
    return update_c1(d_mean, d_var, upsilon, cavity_cov, 1.0) * np.outer(upsilon, upsilon)


@equation("villacampa2020", "A.17")
def update_c1(d_mean: float, d_var: float, upsilon: Array, cavity_cov: Array, alpha: float) -> float:
    r"""C¹ = (1/α) (h⁻¹ - υᵀV\υ)⁻¹, h = (∂ log Z_i/∂a)² - 2 ∂ log Z_i/∂b: (A.17) of villacampa2020.

    Parameters
    ----------
    d_mean : float            ∂ log Z_i/∂a
    d_var : float             ∂ log Z_i/∂b
    upsilon : (m,)            υ_i of the class
    cavity_cov : (m, m)       V\ of the class
    alpha : float             α in (0, 1]

    Notes
    -----
    [h⁻¹ - v]⁻¹ is written h/(1 - h v): h vanishes where the label is certain.
    """
    h = d_mean**2 - 2.0 * d_var
    return h / (1.0 - h * float(upsilon @ cavity_cov @ upsilon)) / alpha


@equation("villacampa2020", "A.19")
def factor_linear_from_moments(tilted_mean: Array, tilted_cov: Array, cavity_mean: Array, cavity_cov: Array) -> Array:
    r"""α m̃ = V̂⁻¹ m̂ - V\⁻¹ m\, a vector (m,): first line of (A.19) of villacampa2020.

    Parameters
    ----------
    tilted_mean : (m,)        m̂
    tilted_cov : (m, m)       V̂
    cavity_mean : (m,)        m\
    cavity_cov : (m, m)       V\

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is not a covariance
    """
    tilted = factorise(tilted_cov, "tilted_cov", SITES_REMEDY).inverse
    return tilted @ tilted_mean - factorise(cavity_cov, "cavity_cov", SITES_REMEDY).inverse @ cavity_mean


@equation("villacampa2020", "A.19")
def factor_linear_from_derivatives(
    d_mean: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array, alpha: float
) -> Array:
    r"""α m̃ = [g + α C¹ υᵀm\ + g α C¹ υᵀV\υ] υ, a vector (m,): last line of (A.19) of villacampa2020, corrected.

    The line has C¹ for α C¹, after (A.17) has divided it by α; up to its third line from the end (A.19) has Ṽ of
    (A.16), which is α C¹ υυᵀ, and is right for every class.

    Parameters
    ----------
    d_mean : float            g = ∂ log Z_i/∂a
    c1 : float                C¹ of (A.17)
    upsilon : (m,)            υ_i of the class
    cavity_mean : (m,)        m\ of the class
    cavity_cov : (m, m)       V\ of the class
    alpha : float             α in (0, 1]
    """
    power_c1 = alpha * c1
    bracket = d_mean + power_c1 * (upsilon @ cavity_mean) + d_mean * power_c1 * (upsilon @ cavity_cov @ upsilon)
    return bracket * upsilon


@equation("villacampa2020", "A.20")
def update_c2(d_mean: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array, alpha: float) -> float:
    r"""C² = (1/α) [g + α C¹ υᵀm\ + g α C¹ υᵀV\υ], g = ∂ log Z_i/∂a: (A.20) of villacampa2020, corrected.

    α C¹ υυᵀ is what (A.16) gives; the last two lines of (A.19), and (A.20), print C¹, which (A.17) has divided by α.

    Parameters
    ----------
    d_mean : float            g
    c1 : float                C¹ of (A.17)
    upsilon : (m,)            υ_i of the class
    cavity_mean : (m,)        m\ of the class
    cavity_cov : (m, m)       V\ of the class
    alpha : float             α in (0, 1]
    """
    at_mean, at_cov = float(upsilon @ cavity_mean), float(upsilon @ cavity_cov @ upsilon)
    return (d_mean + alpha * c1 * at_mean + d_mean * alpha * c1 * at_cov) / alpha


@equation("villacampa2020", "u28-damping")
def damped_update(new: Array, old: Array, damping: float) -> Array:
    """ρ new + (1 - ρ) old, shape as both: appendix A.5 of villacampa2020.

    Parameters
    ----------
    new : (n, C)              refined coefficients
    old : (n, C)              present ones
    damping : float           ρ in [0, 1]: 0 is no update, 1 the whole one

    Raises
    ------
    ValueError                for another damping
    """
    if not 0.0 <= damping <= 1.0:
        raise ValueError(f"damping: found {shown(damping)}, expected a number in [0, 1]")
    return damping * new + (1.0 - damping) * old
