"""Appendix A.2: approximate factors, and the posterior approximation that they and the prior make."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._gaussians import Gaussians, Natural
from reference.common.errors import factorise
from reference.common.ledger import equation

Array = NDArray[np.float64]

REMEDY = "raise jitter or remove duplicate rows of Z"
SITES_REMEDY = "lower damping"


class Site(NamedTuple):
    """The approximate factor φ̃_i: scale, and natural parameters for every class."""

    log_scale: float
    precision: Array  # (C, m, m) Ṽ_{i,k}
    shift: Array  # (C, m) m̃_{i,k}


class Coefficients(NamedTuple):
    """Natural parameters of all factors along υ."""

    c1: Array  # (n, C) C¹_{i,k}
    c2: Array  # (n, C) C²_{i,k}


@equation("villacampa2020", "A.1")
def log_approximate_factor(site: Site, inducing_values: Array) -> float:
    """log s̃_i and the exponents of (A.1) of villacampa2020, added up.

    Parameters
    ----------
    site : Site               log s̃_i, Ṽ_i and m̃_i
    inducing_values : (C, m)  f̄
    """
    exponent = site.log_scale
    for u, precision, shift in zip(inducing_values, site.precision, site.shift, strict=True):
        exponent += float(-0.5 * u @ precision @ u + u @ shift)
    return float(exponent)


@equation("villacampa2020", "A.1")
def approximate_factor(site: Site, inducing_values: Array) -> float:
    """φ̃_i(f̄) = s̃_i Π_k exp{-½ f̄_kᵀ Ṽ_{i,k} f̄_k + f̄_kᵀ m̃_{i,k}}: (A.1) of villacampa2020.

    The scale s̃_i is Z̃_i^{1/α} in the notation of (8); (A.1) prints Z̃_i.

    Parameters
    ----------
    site : Site               log s̃_i, Ṽ_i and m̃_i
    inducing_values : (C, m)  f̄
    """
    return float(np.exp(log_approximate_factor(site, inducing_values)))


@equation("villacampa2020", "A.2", "A.18")
def factor_precision(c1: float, upsilon: Array) -> Array:
    """Ṽ_{i,k} = C¹_{i,k} υυᵀ, a matrix (m, m): (A.2) and (A.18) of villacampa2020.

    Parameters
    ----------
    c1 : float                C¹_{i,k}
    upsilon : (m,)            υ_i of the class
    """
    return c1 * np.outer(upsilon, upsilon)


@equation("villacampa2020", "A.3", "A.21")
def factor_linear(c2: float, upsilon: Array) -> Array:
    """m̃_{i,k} = C²_{i,k} υ, a vector (m,): (A.3) and (A.21) of villacampa2020.

    Parameters
    ----------
    c2 : float                C²_{i,k}
    upsilon : (m,)            υ_i of the class
    """
    return c2 * upsilon


@equation("villacampa2020", "A.4")
def inducing_prior(inducing_values: Array, K_ZZ: Array) -> float:
    """log p(f̄) = Σ_k log N(f̄_k | 0, K_k), the logarithm of (A.4) of villacampa2020.

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    K_ZZ : (C, m, m)          prior covariances K_k

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    total = 0.0
    for u, K in zip(inducing_values, K_ZZ, strict=True):
        factor = factorise(K, "K_ZZ", REMEDY)
        total += -0.5 * float(u @ factor.inverse @ u) - 0.5 * factor.log_det - 0.5 * len(u) * float(np.log(2.0 * np.pi))
    return total


@equation("villacampa2020", "A.5")
def posterior_approximation(inducing_values: Array, sites: Sequence[Site], K_ZZ: Array, log_evidence: float) -> float:
    """log q(f̄) = -log Z_q + Σ_i log φ̃_i(f̄) + log p(f̄), the logarithm of (A.5) of villacampa2020.

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    sites : sequence          Site of every datum
    K_ZZ : (C, m, m)          prior covariances
    log_evidence : float      log Z_q

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    factors = sum(log_approximate_factor(site, inducing_values) for site in sites)
    return inducing_prior(inducing_values, K_ZZ) + factors - log_evidence


@equation("villacampa2020", "A.6")
def posterior_moments(c1: Array, c2: Array, upsilon: Array, K_ZZ: Array) -> Gaussians:
    """V_k = [K_k⁻¹ + Υ_k Δ_k Υ_kᵀ]⁻¹ and m_k = V_k Υ_k μ̃_k of every class: (A.6) of villacampa2020.

    Parameters
    ----------
    c1 : (n, C)               diagonals of Δ_k as columns
    c2 : (n, C)               μ̃_k as columns
    upsilon : (C, n, m)       rows υ_i^k; Υ_k has them as columns
    K_ZZ : (C, m, m)          prior covariances K_k

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    mean, cov = [], []
    for k in range(len(K_ZZ)):
        precision = factorise(K_ZZ[k], "K_ZZ", REMEDY).inverse + (upsilon[k].T * c1[:, k]) @ upsilon[k]
        precision = 0.5 * (precision + precision.T)
        V = factorise(precision, f"posterior precision of class {k}", SITES_REMEDY).inverse
        cov.append(V)
        mean.append(V @ (upsilon[k].T @ c2[:, k]))
    return Gaussians(np.array(mean), np.array(cov))


@equation("villacampa2020", "u31-natural-sum")
def natural_parameter_sum(prior: Natural, sites: Sequence[Natural]) -> Natural:
    """θ = θ_prior + Σ_i θ_i: below (A.28) of villacampa2020.

    Parameters
    ----------
    prior : Natural           K_k⁻¹ (C, m, m) and 0 (C, m)
    sites : sequence          Natural of every factor
    """
    precision, shift = prior.precision.copy(), prior.shift.copy()
    for site in sites:
        precision += site.precision
        shift += site.shift
    return Natural(precision, shift)


def natural_prior(K_ZZ: Array) -> Natural:
    """Natural parameters of p(f̄): K_k⁻¹ and 0, villacampa2020.

    Parameters
    ----------
    K_ZZ : (C, m, m)          prior covariances K_k

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    inverse = np.stack([factorise(K, "K_ZZ", REMEDY).inverse for K in K_ZZ])
    return Natural(inverse, np.zeros(K_ZZ.shape[:2]))
