"""Appendix A.3: the posterior approximation without the power α of one approximate factor."""

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.posterior import SITES_REMEDY, Natural

Array = NDArray[np.float64]


@equation("villacampa2020", "A.7", "u12-pep-cavity")
def power_cavity(posterior: Natural, site: Natural, alpha: float) -> Natural:
    r"""q^{\αi} ∝ q/φ̃_i^α, natural parameters θ\ = θ - α θ_i of every class: (A.7) and section 3.1 of villacampa2020.

    Parameters
    ----------
    posterior : Natural       θ of q
    site : Natural            θ_i: Ṽ_i (C, m, m) and m̃_i (C, m) of the factor
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if what remains is not a distribution
    """
    left = Natural(posterior.precision - alpha * site.precision, posterior.shift - alpha * site.shift)
    for precision in left.precision:
        factorise(0.5 * (precision + precision.T), "cavity precision", SITES_REMEDY)
    return left


@equation("villacampa2020", "A.8")
def power_cavity_covariance(inducing_cov: Array, c1: float, upsilon: Array, alpha: float) -> Array:
    r"""V\ = (V⁻¹ - α C¹ υυᵀ)⁻¹ = V + V υ [(α C¹)⁻¹ - υᵀVυ]⁻¹ υᵀV, a matrix (m, m): (A.8) of villacampa2020.

    Parameters
    ----------
    inducing_cov : (m, m)     V of the class
    c1 : float                C¹_{i,k}
    upsilon : (m,)            υ_i of the class
    alpha : float             α in (0, 1]

    Raises
    ------
    ValueError                if α C¹ υᵀVυ >= 1: what remains is not a distribution

    Notes
    -----
    As printed but for 1/(α C¹): the first sweep has C¹ = 0, so [1/(α C¹) - q]⁻¹ is written α C¹/(1 - α C¹ q).
    """
    V_upsilon = inducing_cov @ upsilon
    return inducing_cov + _gain(c1, float(upsilon @ V_upsilon), alpha) * np.outer(V_upsilon, V_upsilon)


@equation("villacampa2020", "A.9")
def power_cavity_mean(
    inducing_mean: Array, inducing_cov: Array, c1: float, c2: float, upsilon: Array, alpha: float
) -> Array:
    r"""m\ = m + V υ [(α C¹)⁻¹ - υᵀVυ]⁻¹ υᵀm - V\ υ α C², a vector (m,): (A.9) of villacampa2020.

    Parameters
    ----------
    inducing_mean : (m,)      m of the class
    inducing_cov : (m, m)     V of the class
    c1 : float                C¹_{i,k}
    c2 : float                C²_{i,k}
    upsilon : (m,)            υ_i of the class
    alpha : float             α in (0, 1]

    Raises
    ------
    ValueError                if α C¹ υᵀVυ >= 1: what remains is not a distribution
    """
    V_upsilon = inducing_cov @ upsilon
    q = float(upsilon @ V_upsilon)
    gain = _gain(c1, q, alpha)
    cavity_V_upsilon = V_upsilon * (1.0 + gain * q)
    return inducing_mean + V_upsilon * (gain * float(upsilon @ inducing_mean)) - cavity_V_upsilon * (alpha * c2)


def _gain(c1: float, q: float, alpha: float) -> float:
    """[(α C¹)⁻¹ - q]⁻¹."""
    remaining = 1.0 - alpha * c1 * q
    if remaining <= 0.0:
        raise ValueError(f"c1: found {c1:.6g}, expected < {1.0 / (alpha * q):.6g}")
    return alpha * c1 / remaining
