"""Appendix B: approximate factors, and the posterior approximation that they and the prior make."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._gaussians import Gaussians
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2017.model import REMEDY, inducing_prior

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Site(NamedTuple):
    """The approximate factor φ̃_i^k: scale, and natural parameters for the class of the label and for class k."""

    log_scale: float
    precision_label: Array  # (m, m)
    shift_label: Array  # (m,)
    precision_other: Array  # (m, m)
    shift_other: Array  # (m,)


class Coefficients(NamedTuple):
    """Natural parameters of all factors along υ, each (n, C), row i, column k; columns of the labels are zero."""

    c1_label: Array
    c2_label: Array
    c1_other: Array
    c2_other: Array


class Natural(NamedTuple):
    """Precision and precision times mean of one Gaussian."""

    precision: Array  # (m, m)
    shift: Array  # (m,)


@equation("villacampa2017", "20", "21")
def factor_precision(c1: float, upsilon: Array) -> Array:
    """Ṽ = C¹ υυᵀ, a matrix (m, m): (20) of villacampa2017 for the label's class, (21) for class k.

    Parameters
    ----------
    c1 : float                C¹_{i,k} of this class
    upsilon : (m,)            υ_i of this class
    """
    return c1 * np.outer(upsilon, upsilon)


@equation("villacampa2017", "50")
def factor_precisions(
    c1_label: float, c1_other: float, upsilon_label: Array, upsilon_other: Array
) -> tuple[Array, Array]:
    """Ṽ^y and Ṽ of one factor, each (m, m): (50) of villacampa2017.

    Parameters
    ----------
    c1_label : float          C^{1,y}_{i,k}
    c1_other : float          C¹_{i,k}
    upsilon_label : (m,)      υ_i^y
    upsilon_other : (m,)      υ_i^k
    """
    return factor_precision(c1_label, upsilon_label), factor_precision(c1_other, upsilon_other)


@equation("villacampa2017", "22", "23", "54", "55")
def factor_linear(c2: float, upsilon: Array) -> Array:
    """m̃ = C² υ, a vector (m,): (22) and (54) of villacampa2017 for the label's class, (23) and (55) for class k.

    Parameters
    ----------
    c2 : float                C²_{i,k} of this class
    upsilon : (m,)            υ_i of this class
    """
    return c2 * upsilon


@equation("villacampa2017", "8", "18")
def approximate_factor(site: Site, values_label: Array, values_other: Array) -> float:
    """φ̃_i^k = s̃ exp{-½ f̄_yᵀ Ṽ^y f̄_y + f̄_yᵀ m̃^y} exp{-½ f̄_kᵀ Ṽ f̄_k + f̄_kᵀ m̃}: (8), (18) of villacampa2017.

    Parameters
    ----------
    site : Site               log s̃, Ṽ^y, m̃^y, Ṽ, m̃
    values_label : (m,)       f̄ of the label's class
    values_other : (m,)       f̄ of class k
    """
    of_label = -0.5 * values_label @ site.precision_label @ values_label + values_label @ site.shift_label
    of_other = -0.5 * values_other @ site.precision_other @ values_other + values_other @ site.shift_other
    return float(np.exp(site.log_scale + of_label + of_other))


@equation("villacampa2017", "24")
def posterior_approximation(
    inducing_values: Array, sites: Sequence[tuple[int, int, Site]], K_ZZ: Array, log_evidence: float
) -> float:
    """log q(f̄) = -log Z_q + Σ_i Σ_{k≠y_i} log φ̃_i^k(f̄) + Σ_k log p(f̄^k): (24) of villacampa2017.

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    sites : sequence          (y_i, k, Site) of every factor
    K_ZZ : (C, m, m)          prior covariances
    log_evidence : float      log Z_q
    """
    total = inducing_prior(inducing_values, K_ZZ) - log_evidence
    for label, k, site in sites:
        f_y, f_k = inducing_values[label], inducing_values[k]
        total += site.log_scale
        total += float(-0.5 * f_y @ site.precision_label @ f_y + f_y @ site.shift_label)
        total += float(-0.5 * f_k @ site.precision_other @ f_k + f_k @ site.shift_other)
    return total


@equation("villacampa2017", "26")
def aggregate_precision_coefficients(c1_label: Array, c1_other: Array, y: Labels) -> Array:
    """Δ_ii^k = C¹_{i,k} 1(k ≠ y_i) + (Σ_{k'≠y_i} C^{1,y}_{i,k'}) 1(k = y_i), an array (C, n): (26) of villacampa2017.

    Parameters
    ----------
    c1_label : (n, C)         C^{1,y}_{i,k}; what stands in the label's column is not read
    c1_other : (n, C)         C¹_{i,k}; what stands in the label's column is not read
    y : (n,)                  labels, 0..C-1
    """
    other = np.arange(c1_label.shape[1]) != y[:, None]  # 1(k ≠ y_i)
    of_label = np.sum(np.where(other, c1_label, 0.0), axis=1)
    return np.asarray(np.where(other, c1_other, of_label[:, None]).T)


@equation("villacampa2017", "27")
def aggregate_linear_coefficients(c2_label: Array, c2_other: Array, y: Labels) -> Array:
    """μ̃_i^k = C²_{i,k} 1(k ≠ y_i) + (Σ_{k'≠y_i} C^{2,y}_{i,k'}) 1(k = y_i), an array (C, n): (27) of villacampa2017.

    Parameters
    ----------
    c2_label : (n, C)         C^{2,y}_{i,k}; what stands in the label's column is not read
    c2_other : (n, C)         C²_{i,k}; what stands in the label's column is not read
    y : (n,)                  labels, 0..C-1
    """
    other = np.arange(c2_label.shape[1]) != y[:, None]  # 1(k ≠ y_i)
    of_label = np.sum(np.where(other, c2_label, 0.0), axis=1)
    return np.asarray(np.where(other, c2_other, of_label[:, None]).T)


def per_class(of_label: Array, of_other: Array, y: Labels) -> Array:
    """What the factors of villacampa2017 bring to each class, (C, n): a datum's own class gets a sum, others one term.

    Parameters
    ----------
    of_label : (n, C)         part of factor (i, k) for the label's class; the label's column is not read
    of_other : (n, C)         part of factor (i, k) for class k; the label's column is not read
    y : (n,)                  labels, 0..C-1
    """
    own = np.arange(of_label.shape[1]) == y[:, None]
    total: Array = np.where(own, np.sum(np.where(own, 0.0, of_label), axis=1)[:, None], of_other).T
    return total


@equation("villacampa2017", "25")
def posterior_moments(delta: Array, mu_tilde: Array, upsilon: Array, K_ZZ: Array) -> Gaussians:
    """V_k = [K_ZZ⁻¹ + Υ_k Δ_k Υ_kᵀ]⁻¹ and m_k = V_k Υ_k μ̃_k of every class: (25) of villacampa2017.

    Parameters
    ----------
    delta : (C, n)            diagonals of Δ_k
    mu_tilde : (C, n)         μ̃_k
    upsilon : (C, n, m)       rows υ_i^k; Υ_k has them as columns
    K_ZZ : (C, m, m)          prior covariances

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    mean, cov = [], []
    for k in range(len(K_ZZ)):
        precision = factorise(K_ZZ[k], "K_ZZ", REMEDY).inverse + (upsilon[k].T * delta[k]) @ upsilon[k]
        V = factorise(0.5 * (precision + precision.T), f"posterior precision of class {k}", "lower damping").inverse
        cov.append(V)
        mean.append(V @ (upsilon[k].T @ mu_tilde[k]))
    return Gaussians(np.array(mean), np.array(cov))


@equation("villacampa2017", "u24-natural-sum")
def natural_parameter_sum(prior: Natural, sites: Sequence[Natural]) -> Natural:
    """θ = θ_prior + Σ θ_i^c of one class: below (62) of villacampa2017.

    Parameters
    ----------
    prior : Natural           precision K_ZZ⁻¹ and shift 0
    sites : sequence          Natural of every factor that touches the class
    """
    precision, shift = prior.precision.copy(), prior.shift.copy()
    for site in sites:
        precision = precision + site.precision
        shift = shift + site.shift
    return Natural(precision, shift)
