r"""Sections 3.1 and A.6: the estimate log Z_q of the log marginal likelihood of power expectation propagation.

log Z̃_i = log E_q[(p(y_i|f_i)/φ̃_i)^α], with φ̃_i of scale one, equals log E_{q\}[p(y_i|f_i)^α] + g(θ\) - g(θ): the
expectation on the right is under the cavity. (A.22) and (A.24) leave that of the left in its place, and so does (A.27),
whose other terms cancel.
"""

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.posterior import REMEDY, SITES_REMEDY, Coefficients, Gaussians, Natural

Array = NDArray[np.float64]


@equation("villacampa2020", "A.25")
def gaussian_log_normaliser(mean: Array, cov: Array) -> float:
    """g = D/2 log 2π + ½ log|Σ| + ½ μᵀΣ⁻¹μ: (A.25) of villacampa2020.

    Parameters
    ----------
    mean : (m,)               μ
    cov : (m, m)              Σ

    Raises
    ------
    NotPositiveDefiniteError  if cov is not a covariance
    """
    factor = factorise(cov, "cov", REMEDY)
    return float(0.5 * len(mean) * np.log(2.0 * np.pi) + 0.5 * factor.log_det + 0.5 * mean @ factor.inverse @ mean)


def log_normaliser_of(theta: Natural) -> float:
    """g(θ) = Σ_k D/2 log 2π - ½ log|P_k| + ½ b_kᵀP_k⁻¹b_k of independent Gaussians, villacampa2020.

    Parameters
    ----------
    theta : Natural           precisions P (C, m, m) and shifts b (C, m)

    Raises
    ------
    NotPositiveDefiniteError  if one of the precisions is none
    """
    total = 0.0
    for precision, shift in zip(theta.precision, theta.shift, strict=True):
        factor = factorise(0.5 * (precision + precision.T), "precision", SITES_REMEDY)
        total += 0.5 * float(len(shift) * np.log(2.0 * np.pi) - factor.log_det + shift @ factor.inverse @ shift)
    return total


@equation("villacampa2020", "A.22", "A.24")
def site_log_normaliser(log_tilted_norm: float, cavity: Natural, posterior: Natural) -> float:
    r"""log Z̃_i = log E_{q\}[p(y_i|f_i)^α] + g(θ\) - g(θ): (A.22) and (A.24) of villacampa2020, corrected.

    Parameters
    ----------
    log_tilted_norm : float   log E[p(y_i|f_i)^α] under the cavity
    cavity : Natural          θ\
    posterior : Natural       θ

    Raises
    ------
    NotPositiveDefiniteError  if one of the distributions is not a distribution
    """
    return log_tilted_norm + log_normaliser_of(cavity) - log_normaliser_of(posterior)


@equation("villacampa2020", "A.26")
def pep_log_evidence_from_moments(posterior: Gaussians, K_ZZ: Array, log_norm: Array, alpha: float) -> float:
    """Σ_k {½ log|V_k| + ½ m_kᵀV_k⁻¹m_k - ½ log|K_k|} + (1/α) Σ_i log Z̃_i: (A.26) of villacampa2020, corrected.

    (A.26) prints the last determinant without its logarithm.

    Parameters
    ----------
    posterior : Gaussians     m (C, m) and V (C, m, m)
    K_ZZ : (C, m, m)          prior covariances K_k
    log_norm : (n,)           log Z̃_i
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    return _prior_part(posterior, K_ZZ) + float(np.sum(log_norm)) / alpha


def _prior_part(posterior: Gaussians, K_ZZ: Array) -> float:
    """g(θ) - g(θ_prior)."""
    total = 0.0
    for m, V, K in zip(posterior.mean, posterior.cov, K_ZZ, strict=True):
        factor = factorise(V, "inducing_cov", SITES_REMEDY)
        total += 0.5 * (factor.log_det + float(m @ factor.inverse @ m) - factorise(K, "K_ZZ", REMEDY).log_det)
    return total


@equation("villacampa2020", "A.27")
def site_log_normaliser_from_moments(log_tilted_norm: float, cavity: Gaussians, posterior: Gaussians) -> float:
    r"""log Z̃_i = log E_{q\}[p^α] + Σ_k {½ log|V\| + ½ m\ᵀV\⁻¹m\ - ½ log|V| - ½ mᵀV⁻¹m}: (A.27), corrected.

    (A.24) of villacampa2020 by (A.25). (A.27) keeps the expectation under q, has the class of the label alone and
    subtracts the cavity's terms from themselves: what is left is (8) again.

    Parameters
    ----------
    log_tilted_norm : float   log E[p(y_i|f_i)^α] under the cavity
    cavity : Gaussians        moments of q\
    posterior : Gaussians     moments of q

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    total = log_tilted_norm
    for sign, distributions in ((1.0, cavity), (-1.0, posterior)):
        for m, V in zip(distributions.mean, distributions.cov, strict=True):
            factor = factorise(V, "inducing_cov", SITES_REMEDY)
            total += sign * 0.5 * (factor.log_det + float(m @ factor.inverse @ m))
    return total


@equation("villacampa2020", "u30-efficient-scale")
def site_log_normaliser_rank_one(
    log_tilted_norm: Array, coefficients: Coefficients, posterior: Gaussians, upsilon: Array, alpha: float
) -> Array:
    r"""log Z̃_i of all data by the determinant lemma and Woodbury's identity, (n,): below (A.27) of villacampa2020.

    With p = υᵀm and q = υᵀVυ of q(f̄) every class contributes

        g(θ\) - g(θ) = -½ log(1 - αC¹q) + ½ [αC¹p² - 2αC²p + (αC²)²q]/(1 - αC¹q)

    Parameters
    ----------
    log_tilted_norm : (n,)        log E[p(y_i|f_i)^α] under the cavities
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    upsilon : (C, n, m)           υ_i^k
    alpha : float                 α in (0, 1]

    Raises
    ------
    ValueError                    if a cavity is not a distribution
    """
    c1, c2 = coefficients
    p = np.einsum("kim,km->ik", upsilon, posterior.mean)
    q = np.einsum("kim,kml,kil->ik", upsilon, posterior.cov, upsilon)
    remaining = 1.0 - alpha * c1 * q
    if np.any(remaining <= 0.0):
        i, k = np.argwhere(remaining <= 0.0)[0]
        raise ValueError(
            f"coefficients: found C¹ {c1[i, k]:.6g} of datum {i}, expected < {1.0 / (alpha * q[i, k]):.6g}"
        )
    log_det = np.log1p(-alpha * c1 * q) / alpha
    each = np.sum(-0.5 * log_det + 0.5 * (c1 * p**2 - 2.0 * c2 * p + alpha * c2**2 * q) / remaining, axis=1)
    return log_tilted_norm + alpha * each


@equation("villacampa2020", "u52-pep-limit")
def pep_log_evidence_limit(
    posterior: Gaussians, K_ZZ: Array, log_tilted_norm: Array, coefficients: Coefficients, upsilon: Array
) -> float:
    """lim_{α→0} log Z_q = g(θ) - g(θ_prior) + Σ_i E_q[log p(y_i|f_i) - log φ̃_i], the bound (5): section 3.1.

    φ̃_i of scale one, -E_q[log φ̃_i] = Σ_k {½ C¹(υᵀVυ + (υᵀm)²) - C² υᵀm}; villacampa2020 has it in words, below (8).

    Parameters
    ----------
    posterior : Gaussians         q(f̄), the moments that belong to the factors
    K_ZZ : (C, m, m)              prior covariances K_k
    log_tilted_norm : (n,)        E_q[log p(y_i|f_i)], the limit of (1/α) log E_q\\[p(y_i|f_i)^α]
    coefficients : Coefficients   of all factors, each (n, C)
    upsilon : (C, n, m)           υ_i^k

    Raises
    ------
    NotPositiveDefiniteError      if one of the matrices is not a covariance
    """
    c1, c2 = coefficients
    p = np.einsum("kim,km->ik", upsilon, posterior.mean)
    q = np.einsum("kim,kml,kil->ik", upsilon, posterior.cov, upsilon)
    each = log_tilted_norm + np.sum(0.5 * c1 * (q + p**2) - c2 * p, axis=1)
    return _prior_part(posterior, K_ZZ) + float(np.sum(each))
