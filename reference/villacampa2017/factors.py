"""Appendices D and E: moments of cavity times exact factor, the factor refined from them, parallel damped updates."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common._options import shown
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.probit import mills_slope
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.posterior import (
    Coefficients,
    Gaussians,
    Natural,
    aggregate_linear_coefficients,
    aggregate_precision_coefficients,
    posterior_moments,
)
from reference.villacampa2017.scalar import (
    Cavities,
    Projected,
    Tilted,
    own_columns,
    pairwise_tilted,
    projections,
    scalar_cavities,
    site_of,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Ratio(NamedTuple):
    """α̂ and β of one factor."""

    alpha: float
    beta: float


class Refined(NamedTuple):
    """Factors after a sweep."""

    coefficients: Coefficients
    log_norm: Array  # (n, C) log Z_{i,k}, zero in the columns of the labels and for factors that were skipped
    n_improper: int  # factors left as they were because a cavity was no distribution


@equation("villacampa2017", "u23-beta-alpha-hat")
def probit_ratio(a_label: float, a_other: float, b_label: float, b_other: float) -> Ratio:
    """α̂ = (a_y - a_k)/√(b_y + b_k) and β = N(α̂|0, 1)/Φ(α̂): below (42) of villacampa2017.

    Parameters
    ----------
    a_label : float           cavity mean of f_y
    a_other : float           cavity mean of f_k
    b_label : float           cavity variance of f_y
    b_other : float           cavity variance of f_k
    """
    alpha = (a_label - a_other) / np.sqrt(b_label + b_other)
    return Ratio(float(alpha), float(mills_slope(alpha)[0]))


@equation("villacampa2017", "34")
def pairwise_log_normaliser(a_label: float, a_other: float, b_label: float, b_other: float) -> float:
    """log Z_{i,k} = log Φ((a_y - a_k)/√(b_y + b_k)): the logarithm of (34) of villacampa2017.

    Parameters
    ----------
    a_label : float           cavity mean of f_y
    a_other : float           cavity mean of f_k
    b_label : float           cavity variance of f_y
    b_other : float           cavity variance of f_k
    """
    return float(log_ndtr((a_label - a_other) / np.sqrt(b_label + b_other)))


@equation("villacampa2017", "39")
def dlogz_dmean_label(beta: float, b_sum: float, upsilon: Array) -> Array:
    r"""∂ log Z/∂m\_y = β υ_y/√(b_y + b_k), a vector (m,): (39) of villacampa2017.

    Parameters
    ----------
    beta : float              β
    b_sum : float             b_y + b_k
    upsilon : (m,)            υ of the label's class
    """
    return beta / np.sqrt(b_sum) * upsilon


@equation("villacampa2017", "40")
def dlogz_dmean_other(beta: float, b_sum: float, upsilon: Array) -> Array:
    r"""∂ log Z/∂m\_k = -β υ_k/√(b_y + b_k), a vector (m,): (40) of villacampa2017.

    Parameters
    ----------
    beta : float              β
    b_sum : float             b_y + b_k
    upsilon : (m,)            υ of class k
    """
    return -beta / np.sqrt(b_sum) * upsilon


@equation("villacampa2017", "41", "42")
def dlogz_dcov(alpha: float, beta: float, b_sum: float, upsilon: Array) -> Array:
    r"""∂ log Z/∂V\ = -½ β α̂ υυᵀ/(b_y + b_k), (m, m): end of (41) of villacampa2017, of (42) for class k.

    Entries are derivatives with all m² entries of V\ free. The middle expressions are printed without υυᵀ.

    Parameters
    ----------
    alpha : float             α̂
    beta : float              β
    b_sum : float             b_y + b_k
    upsilon : (m,)            υ of the class
    """
    return -0.5 * beta * alpha / b_sum * np.outer(upsilon, upsilon)


@equation("villacampa2017", "43", "44")
def tilted_mean(cavity_mean: Array, cavity_cov: Array, slope: Array) -> Array:
    r"""m̂ = m\ + V\ ∂ log Z/∂m\, a vector (m,): (43) of villacampa2017, and (44) for class k.

    Parameters
    ----------
    cavity_mean : (m,)        m\ of the class
    cavity_cov : (m, m)       V\ of the class
    slope : (m,)              ∂ log Z/∂m\
    """
    return cavity_mean + cavity_cov @ slope


@equation("villacampa2017", "45", "46")
def tilted_covariance(cavity_cov: Array, slope: Array, slope_cov: Array) -> Array:
    r"""V̂ = V\ - V\ (g gᵀ - 2 ∂ log Z/∂V\) V\, g = ∂ log Z/∂m\: (45) of villacampa2017, and (46) for class k.

    Parameters
    ----------
    cavity_cov : (m, m)       V\ of the class
    slope : (m,)              g
    slope_cov : (m, m)        ∂ log Z/∂V\
    """
    return cavity_cov - cavity_cov @ (np.outer(slope, slope) - 2.0 * slope_cov) @ cavity_cov


@equation("villacampa2017", "47")
def factor_precision_from_moments(tilted_cov: Array, cavity_cov: Array) -> Array:
    r"""Ṽ = V̂⁻¹ - V\⁻¹, a matrix (m, m): first line of (47) of villacampa2017.

    Parameters
    ----------
    tilted_cov : (m, m)       V̂
    cavity_cov : (m, m)       V\

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is no covariance
    """
    tilted = factorise(tilted_cov, "tilted_cov", "lower damping").inverse
    return tilted - factorise(cavity_cov, "cavity_cov", "lower damping").inverse


@equation("villacampa2017", "48", "49")
def update_c1(alpha: float, beta: float, b_sum: float, upsilon: Array, cavity_cov: Array) -> float:
    r"""C¹ = ([(β² + β α̂)/(b_y + b_k)]⁻¹ - υᵀV\υ)⁻¹: (48) of villacampa2017, and (49) for class k.

    Parameters
    ----------
    alpha : float             α̂
    beta : float              β
    b_sum : float             b_y + b_k
    upsilon : (m,)            υ of the class
    cavity_cov : (m, m)       V\ of the class

    Notes
    -----
    With h for the bracket, [h⁻¹ - v]⁻¹ is written h/(1 - h v): h vanishes where the label is certain. For α̂ < -5 the
    sum β + α̂ cancels, and β² + β α̂ is taken from the second derivative of log Φ.
    """
    h = float(_curvature(alpha, beta)) / b_sum
    v = float(upsilon @ cavity_cov @ upsilon)
    return h / (1.0 - h * v)


def _curvature(alpha: float, beta: float) -> float:
    """β² + β α̂."""
    return -float(mills_slope(alpha)[1]) if alpha < -5.0 else beta * (beta + alpha)


@equation("villacampa2017", "51")
def factor_linear_from_moments(tilted_mean: Array, tilted_cov: Array, cavity_mean: Array, cavity_cov: Array) -> Array:
    r"""m̃ = V̂⁻¹ m̂ - V\⁻¹ m\, a vector (m,): first line of (51) of villacampa2017.

    Parameters
    ----------
    tilted_mean : (m,)        m̂
    tilted_cov : (m, m)       V̂
    cavity_mean : (m,)        m\
    cavity_cov : (m, m)       V\

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is no covariance
    """
    tilted = factorise(tilted_cov, "tilted_cov", "lower damping").inverse
    return tilted @ tilted_mean - factorise(cavity_cov, "cavity_cov", "lower damping").inverse @ cavity_mean


@equation("villacampa2017", "52")
def update_c2_label(
    beta: float, b_sum: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array
) -> float:
    r"""C^{2,y} = β/√b + C^{1,y} υᵀm\ + β/√b C^{1,y} υᵀV\υ, b = b_y + b_k: (52) of villacampa2017.

    Parameters
    ----------
    beta : float              β
    b_sum : float             b_y + b_k
    c1 : float                C^{1,y}
    upsilon : (m,)            υ of the label's class
    cavity_mean : (m,)        m\ of the label's class
    cavity_cov : (m, m)       V\ of the label's class
    """
    slope = beta / np.sqrt(b_sum)
    return float(slope + c1 * (upsilon @ cavity_mean) + slope * c1 * (upsilon @ cavity_cov @ upsilon))


@equation("villacampa2017", "53")
def update_c2_other(
    beta: float, b_sum: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array
) -> float:
    r"""C² = -β/√b + C¹ υᵀm\ - β/√b C¹ υᵀV\υ, b = b_y + b_k: (53) of villacampa2017 with the signs of (40).

    Parameters
    ----------
    beta : float              β
    b_sum : float             b_y + b_k
    c1 : float                C¹
    upsilon : (m,)            υ of class k
    cavity_mean : (m,)        m\ of class k
    cavity_cov : (m, m)       V\ of class k
    """
    slope = -beta / np.sqrt(b_sum)
    return float(slope + c1 * (upsilon @ cavity_mean) + slope * c1 * (upsilon @ cavity_cov @ upsilon))


@equation("villacampa2017", "u9-factor-recovery")
def recover_factor(new: Cavity, cavity: Cavity) -> Natural:
    r"""Natural parameters of φ̃ = Z q_new/q\ for one class: below (8) of villacampa2017.

    Parameters
    ----------
    new : Cavity              moments of the tilted law, which q_new has
    cavity : Cavity           moments of q\

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is no distribution
    """
    return Natural(
        factor_precision_from_moments(new.cov, cavity.cov),
        factor_linear_from_moments(new.mean, new.cov, cavity.mean, cavity.cov),
    )


@equation("villacampa2017", "u12-damping")
def damped_update(new: Array, old: Array, damping: float) -> Array:
    """ρ new + (1 - ρ) old, shape as both: appendix E of villacampa2017.

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


@equation("villacampa2017", "u8-ep-refinement")
def ep_refine_factors(
    coefficients: Coefficients, posterior: Gaussians, y: Labels, upsilon: Array, cond_var: Array
) -> Refined:
    """Remove each factor from q, match moments with the exact factor in its place, recover the factor: section 2.2.

    All factors are refined from the one q of villacampa2017's parallel scheme.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k
    cond_var : (C, n)             s_i^k

    Returns
    -------
    Refined                       coefficients, undamped; log Z_{i,k}; number of improper cavities
    """
    label, other = pair_cavities(coefficients, projections(posterior, upsilon), y)
    own = own_columns(y, len(upsilon))
    improper = ~own & ~((label.left > 0.0) & (other.left > 0.0))
    new, tilted = refined_pairs(label, other, y, cond_var)
    kept = Coefficients(*(np.where(improper, old, part) for part, old in zip(new, coefficients, strict=True)))
    return Refined(kept, np.where(improper, 0.0, tilted.log_norm), int(np.sum(improper)))


def pair_cavities(coefficients: Coefficients, projected: Projected, y: Labels) -> tuple[Cavities, Cavities]:
    """Both cavities of all factors, each (n, C): of the label's class, and of class k.

    Parameters
    ----------
    coefficients : Coefficients   of all factors of villacampa2017, each (n, C)
    projected : Projected         moments of υᵀf̄ under q, each (n, C)
    y : (n,)                      labels, 0..C-1
    """
    at = np.arange(len(y)), y
    of_label = Projected(projected.mean[at][:, None], projected.var[at][:, None])
    return (
        scalar_cavities(of_label, coefficients.c1_label, coefficients.c2_label),
        scalar_cavities(projected, coefficients.c1_other, coefficients.c2_other),
    )


def refined_pairs(label: Cavities, other: Cavities, y: Labels, cond_var: Array) -> tuple[Coefficients, Tilted]:
    """The factors that have the tilted moments, and log Z_{i,k} with its derivatives; zero in the labels' columns.

    Parameters
    ----------
    label : Cavities          of the label's class, (n, C) or (n, 1)
    other : Cavities          of class k, (n, C)
    y : (n,)                  labels of villacampa2017, 0..C-1
    cond_var : (C, n)         s_i^k
    """
    keep = ~own_columns(y, len(cond_var))
    s_label = cond_var[y, np.arange(len(y))][:, None]
    tilted = pairwise_tilted(label.mean, label.var + s_label, other.mean, other.var + cond_var.T)
    c1_label, c2_label = site_of(tilted.slope, tilted.curvature, label)
    c1_other, c2_other = site_of(-tilted.slope, tilted.curvature, other)
    parts = (np.where(keep, part, 0.0) for part in (c1_label, c2_label, c1_other, c2_other))
    return Coefficients(*parts), Tilted(*(np.where(keep, part, 0.0) for part in tilted))


@equation("villacampa2017", "u11-parallel-updates")
def parallel_ep_sweep(
    coefficients: Coefficients, y: Labels, upsilon: Array, cond_var: Array, K_ZZ: Array, damping: float
) -> tuple[Coefficients, Gaussians]:
    """All factors refined at once, damped, and q rebuilt: sections 2.2 and E of villacampa2017.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k
    cond_var : (C, n)             s_i^k
    K_ZZ : (C, m, m)              prior covariances
    damping : float               ρ in [0, 1]

    Raises
    ------
    NotPositiveDefiniteError      if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    q = posterior_of(coefficients, y, upsilon, K_ZZ)
    refined = ep_refine_factors(coefficients, q, y, upsilon, cond_var)
    new = Coefficients(
        *(
            damped_update(after, before, damping)
            for after, before in zip(refined.coefficients, coefficients, strict=True)
        )
    )
    return new, posterior_of(new, y, upsilon, K_ZZ)


def posterior_of(coefficients: Coefficients, y: Labels, upsilon: Array, K_ZZ: Array) -> Gaussians:
    """q(f̄) from the factors: (26), (27) and (25) of villacampa2017 in turn.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k
    K_ZZ : (C, m, m)              prior covariances

    Raises
    ------
    NotPositiveDefiniteError      if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    delta = aggregate_precision_coefficients(coefficients.c1_label, coefficients.c1_other, y)
    mu_tilde = aggregate_linear_coefficients(coefficients.c2_label, coefficients.c2_other, y)
    return posterior_moments(delta, mu_tilde, upsilon, K_ZZ)
