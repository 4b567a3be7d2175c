"""Appendix C: the posterior approximation without one approximate factor, and what it says of the latent values."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2017.model import REMEDY

Array = NDArray[np.float64]


class Cavity(NamedTuple):
    """Moments of q(f̄^k) without one factor."""

    mean: Array  # (m,)
    cov: Array  # (m, m)


@equation("villacampa2017", "28")
def cavity_distribution(inducing_mean: Array, inducing_cov: Array, precision: Array, shift: Array) -> Cavity:
    r"""q^{\i,k} ∝ q/φ̃_i^k for one class of the factor, from natural parameters: (28) of villacampa2017.

        V\ = (V⁻¹ - Ṽ)⁻¹,   m\ = V\ (V⁻¹m - m̃)

    Parameters
    ----------
    inducing_mean : (m,)      m
    inducing_cov : (m, m)     V
    precision : (m, m)        Ṽ of the factor
    shift : (m,)              m̃ of the factor

    Raises
    ------
    NotPositiveDefiniteError  if what remains is not a distribution
    """
    V_inv = factorise(inducing_cov, "inducing_cov", "lower damping").inverse
    cov = factorise(V_inv - precision, "cavity precision", "lower damping").inverse
    return Cavity(cov @ (V_inv @ inducing_mean - shift), cov)


@equation("villacampa2017", "29", "30", "31", "32")
def cavity(inducing_mean: Array, inducing_cov: Array, upsilon: Array, c1: float, c2: float) -> Cavity:
    r"""Remove the factor (i, k) from q(f̄^k), or from q(f̄^y): appendix C of villacampa2017.

        V\ = V + V υ [1/C¹ - υᵀVυ]⁻¹ υᵀV                        (29), (30)
        m\ = m + V υ [1/C¹ - υᵀVυ]⁻¹ υᵀm - V\ υ C²              (31), (32), last two terms joined

    Parameters
    ----------
    inducing_mean : (m,)      m of the class
    inducing_cov : (m, m)     V of the class
    upsilon : (m,)            υ_i of the class
    c1 : float                C¹; the factor's precision matrix is C¹ υυᵀ
    c2 : float                C²; the factor's linear part is C² υ

    Raises
    ------
    ValueError                if C¹ υᵀVυ >= 1: what remains is not a distribution

    Notes
    -----
    As printed but for 1/C¹: the first sweep has C¹ = 0, so [1/C¹ - q]⁻¹ is written C¹/(1 - C¹q).
    """
    V_upsilon = inducing_cov @ upsilon
    q = float(upsilon @ V_upsilon)
    if c1 * q >= 1.0:
        raise ValueError(f"c1: found {c1:.6g}, expected < {1.0 / q:.6g}")
    gain = c1 / (1.0 - c1 * q)
    cov = inducing_cov + gain * np.outer(V_upsilon, V_upsilon)
    mean = inducing_mean + gain * V_upsilon * (upsilon @ inducing_mean)
    return Cavity(mean - cov @ upsilon * c2, cov)


@equation("villacampa2017", "35", "36")
def cavity_latent_mean(upsilon: Array, cavity_mean: Array) -> float:
    r"""a_i = υ_iᵀ m\, the mean of f(x_i) under the cavity: (35) of villacampa2017, and (36) for class k.

    Parameters
    ----------
    upsilon : (m,)            υ_i of the class
    cavity_mean : (m,)        m\ of the class
    """
    return float(upsilon @ cavity_mean)


@equation("villacampa2017", "37", "38")
def cavity_latent_variance(k_xx: float, k_xZ: Array, K_ZZ: Array, cavity_cov: Array) -> float:
    r"""b_i = κ - k_xZᵀK_ZZ⁻¹k_xZ + k_xZᵀK_ZZ⁻¹ V\ K_ZZ⁻¹k_xZ: (37) of villacampa2017, and (38) for class k.

    Parameters
    ----------
    k_xx : float              κ, prior variance of f(x_i), noise included
    k_xZ : (m,)               covariances of f(x_i) and the inducing values
    K_ZZ : (m, m)             prior covariance of the inducing values
    cavity_cov : (m, m)       V\ of the class

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    upsilon = factorise(K_ZZ, "K_ZZ", REMEDY).inverse @ k_xZ
    return float(k_xx - k_xZ @ upsilon + upsilon @ cavity_cov @ upsilon)
