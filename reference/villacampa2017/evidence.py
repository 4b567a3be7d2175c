"""Sections 2.2 and F: the estimate log Z_q of the log marginal likelihood, and the scales of approximate factors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.model import REMEDY
from reference.villacampa2017.posterior import Coefficients, Gaussians, Natural

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@equation("villacampa2017", "59")
def gaussian_log_normaliser(mean: Array, cov: Array) -> float:
    """g = D/2 log 2π + ½ log|Σ| + ½ μᵀΣ⁻¹μ: (59) of villacampa2017.

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


@equation("villacampa2017", "9", "57")
def ep_log_evidence(posterior: Sequence[Natural], prior: Sequence[Natural], log_scales: Array) -> float:
    """log Z_q = g(θ) - g(θ_prior) + Σ_i Σ_{k≠y_i} log s̃_{i,k}: (9) and (57) of villacampa2017.

    Parameters
    ----------
    posterior : sequence      natural parameters of q(f̄^k), one a class
    prior : sequence          natural parameters of p(f̄^k), one a class
    log_scales : (n, C)       log s̃_{i,k}, zero in the columns of the labels

    Raises
    ------
    NotPositiveDefiniteError  if one of the distributions is not a distribution
    """
    total = float(np.sum(log_scales))
    for sign, distributions in ((1.0, posterior), (-1.0, prior)):
        for theta in distributions:
            cov = factorise(theta.precision, "precision", "lower damping").inverse
            total += sign * gaussian_log_normaliser(cov @ theta.shift, cov)  # (59)
    return total


@equation("villacampa2017", "56", "58", "u10-log-scale-inline")
def factor_log_scale(log_tilted_norm: float, cavities: Sequence[Natural], posterior: Sequence[Natural]) -> float:
    r"""log s̃_{i,k} = log Z_{i,k} + g(θ\) - g(θ): (58) of villacampa2017, (56) with its logarithm, and below (9).

    Classes that the factor does not touch have the same distribution in both and may be left out.

    Parameters
    ----------
    log_tilted_norm : float   log Z_{i,k}
    cavities : sequence       natural parameters θ\, one a class
    posterior : sequence      natural parameters θ of the same classes

    Raises
    ------
    NotPositiveDefiniteError  if one of the distributions is not a distribution
    """
    total = log_tilted_norm
    for sign, distributions in ((1.0, cavities), (-1.0, posterior)):
        for theta in distributions:
            cov = factorise(theta.precision, "precision", "lower damping").inverse
            total += sign * gaussian_log_normaliser(cov @ theta.shift, cov)  # (59)
    return total


@equation("villacampa2017", "60")
def ep_log_evidence_from_moments(posterior: Gaussians, K_ZZ: Array, log_scales: Array) -> float:
    """log Z_q = Σ_k {½ log|V_k| + ½ m_kᵀV_k⁻¹m_k - ½ log|K_k|} + Σ_i Σ_{k≠y_i} log s̃_{i,k}: (60) of villacampa2017.

    Parameters
    ----------
    posterior : Gaussians     m (C, m) and V (C, m, m)
    K_ZZ : (C, m, m)          prior covariances K_k
    log_scales : (n, C)       log s̃_{i,k}, zero in the columns of the labels

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    total = float(np.sum(log_scales))
    for m, V, K in zip(posterior.mean, posterior.cov, K_ZZ, strict=True):
        factor = factorise(V, "inducing_cov", "lower damping")
        total += 0.5 * factor.log_det + 0.5 * float(m @ factor.inverse @ m) - 0.5 * factorise(K, "K_ZZ", REMEDY).log_det
    return total


@equation("villacampa2017", "61")
def factor_log_scale_from_moments(
    log_tilted_norm: float, cavities: Sequence[Cavity], posterior: Sequence[Cavity]
) -> float:
    r"""log s̃ = log Z + Σ {½ log|V\| + ½ m\ᵀV\⁻¹m\ - ½ log|V| - ½ mᵀV⁻¹m}: (61) of villacampa2017.

    The sum is over the two classes of the factor; V and m are those of q.

    Parameters
    ----------
    log_tilted_norm : float   log Z_{i,k}
    cavities : sequence       moments of the two classes without the factor
    posterior : sequence      moments of the two classes under q

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    total = log_tilted_norm
    for sign, distributions in ((1.0, cavities), (-1.0, posterior)):
        for distribution in distributions:
            factor = factorise(distribution.cov, "inducing_cov", "lower damping")
            total += sign * (0.5 * factor.log_det + 0.5 * float(distribution.mean @ factor.inverse @ distribution.mean))
    return total


@equation("villacampa2017", "u26-efficient-scale")
def factor_log_scale_rank_one(
    log_tilted_norm: Array, coefficients: Coefficients, posterior: Gaussians, y: Labels, upsilon: Array
) -> Array:
    r"""log s̃ of all factors by the determinant lemma and Woodbury's identity, an array (n, C): below (61).

    With p = υᵀm and q = υᵀVυ of q(f̄) each of the two classes of a factor contributes

        g(θ\) - g(θ) = -½ log(1 - C¹q) + ½ [C¹p² - 2 C²p + (C²)²q]/(1 - C¹q)

    Parameters
    ----------
    log_tilted_norm : (n, C)      log Z_{i,k} of villacampa2017, zero in the columns of the labels
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k

    Raises
    ------
    ValueError                    if a cavity is not a distribution
    """
    result = log_tilted_norm.copy()
    for i, label in enumerate(y):
        for k in np.delete(np.arange(result.shape[1]), label):
            for j, c1, c2 in (
                (label, coefficients.c1_label[i, k], coefficients.c2_label[i, k]),
                (k, coefficients.c1_other[i, k], coefficients.c2_other[i, k]),
            ):
                p, q = upsilon[j, i] @ posterior.mean[j], upsilon[j, i] @ posterior.cov[j] @ upsilon[j, i]
                remaining = 1.0 - c1 * q
                if remaining <= 0.0:
                    raise ValueError(
                        f"coefficients: found the precision {c1:.6g} of datum {i}, expected < {1.0 / q:.6g}"
                    )
                result[i, k] += -0.5 * np.log(remaining) + 0.5 * (c1 * p**2 - 2.0 * c2 * p + c2**2 * q) / remaining
    return result
