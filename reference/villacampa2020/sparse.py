"""Sections 2.1 to 2.3: latent values given inducing values, the factors that they leave, and marginals under q.

Labels count from 0. Arrays over classes and data have the class first, (C, n, ...), but coefficients of factors are
(n, C). Each class has inducing inputs of its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.common.ledger import equation
from reference.villacampa2020.posterior import (
    REMEDY,
    Coefficients,
    Gaussians,
    Natural,
    Site,
    inducing_prior,
    log_approximate_factor,
)
from reference.villacampa2020.power_likelihood import expected_power_likelihood

Array = NDArray[np.float64]

_ROUNDING = 1e-6  # of κ: what a condition of 1e9 to 1e10 leaves, where K_k⁻¹ has half of its digits


class Conditional(NamedTuple):
    """Latent values given inducing values: independent Gaussians."""

    mean: Array  # (C, n) υᵀf̄
    var: Array  # (C, n) s
    upsilon: Array  # (C, n, m) rows υ_i^k, what the means are linear by


class Marginal(NamedTuple):
    """Latent values under q: independent Gaussians."""

    mean: Array  # (n, C)
    var: Array  # (n, C)


@equation("villacampa2020", "u51-projection-vector")
def projection_vectors(K_XZ: Array, K_ZZ: Array) -> Array:
    """υ_i^k = K_k⁻¹ k_Zx, rows of an array (C, n, m): below (A.3) of villacampa2020.

    Parameters
    ----------
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    return np.stack([cross @ factorise(K, "K_ZZ", REMEDY).inverse for cross, K in zip(K_XZ, K_ZZ, strict=True)])


@equation("villacampa2020", "u3-fitc-prior")
def conditional_variances(k_xx: Array, K_XZ: Array, upsilon: Array) -> Array:
    """s_i^k = κ - k_xZᵀ K_k⁻¹ k_Zx, an array (C, n) or (n,), below zero by rounding only and then zero: villacampa2020.

    Parameters
    ----------
    k_xx : (C, n)             κ, prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    upsilon : (C, n, m)       υ_i^k

    Raises
    ------
    NotPositiveDefiniteError  if rounding, which grows with the condition of K_k, leaves less than -1e-6 κ
    """
    rest = k_xx - np.sum(K_XZ * upsilon, axis=-1)
    share = rest / k_xx
    if np.any(share < -_ROUNDING):
        raise NotPositiveDefiniteError(
            f"K_ZZ: found variances of f given f̄ down to {np.min(share):.3g} of the prior's, expected >= 0 but for "
            f"rounding; {REMEDY}"
        )
    return np.maximum(rest, 0.0)


@equation("villacampa2020", "u3-fitc-prior")
def fitc_conditional(inducing_values: Array, k_xx: Array, K_XZ: Array, K_ZZ: Array) -> Conditional:
    """Π_i p(f^k(x_i)|f̄^k) in place of p(f^k|f̄^k), Gaussians of mean υᵀf̄ and variance s: section 2.1 of villacampa2020.

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Returns
    -------
    Conditional               means and variances, each (C, n), and υ (C, n, m)

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    upsilon = projection_vectors(K_XZ, K_ZZ)
    mean = np.einsum("kim,km->ki", upsilon, inducing_values)
    return Conditional(mean, conditional_variances(k_xx, K_XZ, upsilon), upsilon)


def fitc_covariance(upsilon: Array, cond_var: Array, K_ZZ: Array) -> Array:
    """Q_k + diag(s^k), Q = K_XZ K_ZZ⁻¹ K_ZX, dense, (C, n, n): p_FITC(f^k) of section 2.1 of villacampa2020.

    Parameters
    ----------
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    """
    return np.stack([u @ K @ u.T + np.diag(s) for u, s, K in zip(upsilon, cond_var, K_ZZ, strict=True)])


@equation("villacampa2020", "u4-likelihood-factor")
def exact_site_factor(cond_mean: Array, cond_var: Array, y_i: int, epsilon: float) -> float:
    """φ_i(f̄) = ∫ p(y_i|f_i) Π_k N(f_k | m_i^k, s_i^k) df_i: section 2.2 of villacampa2020.

    Parameters
    ----------
    cond_mean : (C,)          m_i = υᵀf̄, one a class
    cond_var : (C,)           s_i
    y_i : int                 label, 0..C-1
    epsilon : float           label-error probability
    """
    return expected_power_likelihood(cond_mean, cond_var, y_i, epsilon, 1.0)


@equation("villacampa2020", "u6-sep-tied")
def sep_tied_factor(coefficients: Coefficients, upsilon: Array) -> Natural:
    """φ̃ = Π_i φ̃_i, all that is stored: a precision (m, m) and a shift (m,) a class, section 2.2 of villacampa2020.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    upsilon : (C, n, m)           υ_i^k
    """
    C, _, m = upsilon.shape
    precision, shift = np.zeros((C, m, m)), np.zeros((C, m))
    for k in range(C):
        for u, c1, c2 in zip(upsilon[k], coefficients.c1[:, k], coefficients.c2[:, k], strict=True):
            precision[k] += c1 * np.outer(u, u)
            shift[k] += c2 * u
    return Natural(precision, shift)


@equation("villacampa2020", "u7-joint-posterior-view", "u19-pep-posterior")
def joint_posterior_approximation(
    latent_values: Array, inducing_values: Array, sites: Sequence[Site], K_XX: Array, K_XZ: Array, K_ZZ: Array
) -> float:
    """log p(f|f̄) + Σ_i log φ̃_i(f̄) + log p(f̄), which q(f, f̄) is proportional to: sections 2.2, 3.1 of villacampa2020.

    p(f|f̄) = Π_k p(f^k|f̄^k) is the whole conditional Gaussian, N(K_XZ K⁻¹ f̄^k, K_XX - K_XZ K⁻¹ K_ZX), not FITC's product
    over data. The factors do not touch it: q(f|f̄) = p(f|f̄), and of it q(f_i) sees the diagonal of the covariance alone.

    Parameters
    ----------
    latent_values : (n, C)    f, noise included
    inducing_values : (C, m)  f̄
    sites : sequence          Site of every datum
    K_XX : (C, n, n)          prior covariances of f, noise on the diagonals
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ or of the conditional covariances is singular, as at Z = X without noise
    """
    total = inducing_prior(inducing_values, K_ZZ)
    total += sum(log_approximate_factor(site, inducing_values) for site in sites)
    for k, upsilon in enumerate(projection_vectors(K_XZ, K_ZZ)):
        given = factorise(K_XX[k] - upsilon @ K_XZ[k].T, "covariance of f given f̄", "raise noise")
        away = latent_values[:, k] - upsilon @ inducing_values[k]
        total -= 0.5 * float(away @ given.inverse @ away + given.log_det + len(away) * np.log(2.0 * np.pi))
    return total


@equation("villacampa2020", "u8-latent-marginal")
def latent_marginal(posterior: Gaussians, upsilon: Array, cond_var: Array) -> Marginal:
    """q(f_i) = Π_k N(f^k(x_i) | υᵀm_k, s_i^k + υᵀV_kυ), each (n, C): section 2.3 of villacampa2020.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    """
    mean = np.einsum("kim,km->ik", upsilon, posterior.mean)
    return Marginal(mean, cond_var.T + np.einsum("kim,kml,kil->ik", upsilon, posterior.cov, upsilon))
