"""Appendices D and E: moments of cavity times exact factor, the factor refined from them, parallel damped updates."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common._options import shown
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.probit import mills_derivative
from reference.villacampa2017.cavity import Cavity, cavity, cavity_latent_mean, cavity_latent_variance
from reference.villacampa2017.model import projection_vectors
from reference.villacampa2017.posterior import (
    Coefficients,
    Gaussians,
    Natural,
    aggregate_linear_coefficients,
    aggregate_precision_coefficients,
    posterior_moments,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


class Ratio(NamedTuple):
    """α̂ and β of one factor."""

    alpha: float
    beta: float


class Matched(NamedTuple):
    """One factor refined, and the tilted moments that it has with its cavity."""

    coefficients: tuple[float, float, float, float]  # in the order of Coefficients
    log_norm: float  # log Z_{i,k}
    tilted: tuple[Cavity, Cavity]  # of the label's class and of class k


class Refined(NamedTuple):
    """Factors after a sweep."""

    coefficients: Coefficients
    log_norm: Array  # (n, C) log Z_{i,k}, zero in the columns of the labels and for factors that were skipped
    n_improper: int  # factors left as they were because a cavity was no distribution
    mismatch: float = 0.0  # largest distance of q from the tilted moments of a factor, see `moment_mismatch`


class Swept(NamedTuple):
    """After one damped sweep over all factors."""

    coefficients: Coefficients
    posterior: Gaussians
    refined: Refined  # the whole move, of which the coefficients made a part


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
    return Ratio(float(alpha), float(mills_derivative(alpha)[0]))


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
def tilted_mean(cavity_mean: Array, cavity_cov: Array, derivative: Array) -> Array:
    r"""m̂ = m\ + V\ ∂ log Z/∂m\, a vector (m,): (43) of villacampa2017, and (44) for class k.

    Parameters
    ----------
    cavity_mean : (m,)        m\ of the class
    cavity_cov : (m, m)       V\ of the class
    derivative : (m,)              ∂ log Z/∂m\
    """
    return cavity_mean + cavity_cov @ derivative


@equation("villacampa2017", "45", "46")
def tilted_covariance(cavity_cov: Array, derivative: Array, derivative_cov: Array) -> Array:
    r"""V̂ = V\ - V\ (g gᵀ - 2 ∂ log Z/∂V\) V\, g = ∂ log Z/∂m\: (45) of villacampa2017, and (46) for class k.

    Parameters
    ----------
    cavity_cov : (m, m)       V\ of the class
    derivative : (m,)              g
    derivative_cov : (m, m)        ∂ log Z/∂V\
    """
    return cavity_cov - cavity_cov @ (np.outer(derivative, derivative) - 2.0 * derivative_cov) @ cavity_cov


@equation("villacampa2017", "47")
def factor_precision_from_moments(tilted_cov: Array, cavity_cov: Array) -> Array:
    r"""Ṽ = V̂⁻¹ - V\⁻¹, a matrix (m, m): first line of (47) of villacampa2017.

    Parameters
    ----------
    tilted_cov : (m, m)       V̂
    cavity_cov : (m, m)       V\

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is not a covariance
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
    bracket = beta * (beta + alpha) if alpha >= -5.0 else -float(mills_derivative(alpha)[1])
    h = bracket / b_sum
    v = float(upsilon @ cavity_cov @ upsilon)
    return h / (1.0 - h * v)


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
    NotPositiveDefiniteError  if one of the two is not a covariance
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
    derivative = beta / np.sqrt(b_sum)
    return float(derivative + c1 * (upsilon @ cavity_mean) + derivative * c1 * (upsilon @ cavity_cov @ upsilon))


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
    derivative = -beta / np.sqrt(b_sum)
    return float(derivative + c1 * (upsilon @ cavity_mean) + derivative * c1 * (upsilon @ cavity_cov @ upsilon))


@equation("villacampa2017", "u9-factor-recovery")
def recover_factor(new: Cavity, cavity: Cavity) -> Natural:
    r"""Natural parameters of φ̃ = Z q_new/q\ for one class: below (8) of villacampa2017.

    Parameters
    ----------
    new : Cavity              moments of the tilted distribution, which q_new has
    cavity : Cavity           moments of q\

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is not a distribution
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


def factor_cavities(
    coefficients: Coefficients, posterior: Gaussians, upsilon: Array, i: int, y_i: int, k: int
) -> tuple[Cavity, Cavity]:
    """q without factor (i, k), of the label's class and of class k: appendix C of villacampa2017.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    upsilon : (C, n, m)           υ_i^k
    i : int                       datum
    y_i : int                     its label, 0..C-1
    k : int                       the other class

    Raises
    ------
    ValueError                    if what remains is not a distribution
    """
    # fmt: off
    q, (c1_label, c2_label, c1_other, c2_other) = posterior, (float(part[i, k]) for part in coefficients)
    return (
        cavity(q.mean[y_i], q.cov[y_i], upsilon[y_i, i], c1_label, c2_label),                      # (29), (31)
        cavity(q.mean[k], q.cov[k], upsilon[k, i], c1_other, c2_other),                            # (30), (32)
    )
    # fmt: on


def matched_factor(cavities: tuple[Cavity, Cavity], upsilon: Array, k_xx: Array, k_xZ: Array, K_ZZ: Array) -> Matched:
    r"""The factor that has with its cavity the moments of cavity times Φ(α): appendices C and D of villacampa2017.

    Parameters
    ----------
    cavities : pair           q\ of the label's class and of class k
    upsilon : (2, m)          υ_i of both
    k_xx : (2,)               κ, prior variances of f(x_i), noise included
    k_xZ : (2, m)             covariances of f(x_i) and the inducing values
    K_ZZ : (2, m, m)          prior covariances of the inducing values
    """
    # fmt: off
    (m_y, V_y), (m_k, V_k) = cavities
    u_y, u_k = upsilon
    a_y = cavity_latent_mean(u_y, m_y)                                                             # (35)
    a_k = cavity_latent_mean(u_k, m_k)                                                             # (36)
    b_y = cavity_latent_variance(float(k_xx[0]), k_xZ[0], K_ZZ[0], V_y)                            # (37)
    b_k = cavity_latent_variance(float(k_xx[1]), k_xZ[1], K_ZZ[1], V_k)                            # (38)
    log_norm = pairwise_log_normaliser(a_y, a_k, b_y, b_k)                                         # (34)
    alpha, beta = probit_ratio(a_y, a_k, b_y, b_k)                                                 # below (42)
    b = b_y + b_k
    g_y = dlogz_dmean_label(beta, b, u_y)                                                          # (39)
    g_k = dlogz_dmean_other(beta, b, u_k)                                                          # (40)
    G_y = dlogz_dcov(alpha, beta, b, u_y)                                                          # (41)
    G_k = dlogz_dcov(alpha, beta, b, u_k)                                                          # (42)
    tilted_y = Cavity(tilted_mean(m_y, V_y, g_y), tilted_covariance(V_y, g_y, G_y))                # (43), (45)
    tilted_k = Cavity(tilted_mean(m_k, V_k, g_k), tilted_covariance(V_k, g_k, G_k))                # (44), (46)
    c1_y = update_c1(alpha, beta, b, u_y, V_y)                                                     # (47), (48)
    c1_k = update_c1(alpha, beta, b, u_k, V_k)                                                     # (49)
    c2_y = update_c2_label(beta, b, c1_y, u_y, m_y, V_y)                                           # (51), (52)
    c2_k = update_c2_other(beta, b, c1_k, u_k, m_k, V_k)                                           # (53)
    # fmt: on
    return Matched((c1_y, c2_y, c1_k, c2_k), log_norm, (tilted_y, tilted_k))


def moment_mismatch(inducing_mean: Array, inducing_cov: Array, new: Cavity, upsilon: Array) -> float:
    """How far q of one class is from the tilted moments along υ: max(|v/v̂ - 1|, |p̂ - p| √v/v̂); EP of villacampa2017.

    p, v: moments of υᵀf̄ under q, p̂, v̂: tilted. The undamped factor differs from the present one by ΔC¹ and ΔC² with
    |ΔC¹| v and |ΔC² - ΔC¹ p| √v equal to these two.

    Parameters
    ----------
    inducing_mean : (m,)      m
    inducing_cov : (m, m)     V
    new : Cavity              m̂ and V̂
    upsilon : (m,)            υ
    """
    v, v_hat = float(upsilon @ inducing_cov @ upsilon), float(upsilon @ new.cov @ upsilon)
    if not v > 0.0:  # υ = 0: the factor does not touch the inducing values
        return 0.0
    gap = float(upsilon @ new.mean) - float(upsilon @ inducing_mean)
    return max(abs(v / v_hat - 1.0), abs(gap) * np.sqrt(v) / v_hat)


def largest_mismatch(posterior: Gaussians, pair: Sequence[int], tilted: Sequence[Cavity], upsilon: Array) -> float:
    """The larger `moment_mismatch` of the two classes of a factor of villacampa2017.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    pair : two ints           the label's class and class k
    tilted : two Cavities     the tilted moments of both
    upsilon : (C, m)          υ_i of every class
    """
    q, each = posterior, zip(pair, tilted, strict=True)
    return max(moment_mismatch(q.mean[j], q.cov[j], new, upsilon[j]) for j, new in each)


def factor_indices(y: Labels, n_classes: int, batch: Iterable[int] | None = None) -> Iterator[tuple[int, int, int]]:
    """(i, y_i, k) of the factors (8) of villacampa2017, k ≠ y_i, of all data or of a batch.

    Parameters
    ----------
    y : (n,)                  labels, 0..C-1
    n_classes : int           C
    batch : (b,) or None      indices; None: all data
    """
    for i in range(len(y)) if batch is None else batch:
        for k in range(n_classes):
            if k != y[i]:
                yield int(i), int(y[i]), k


@equation("villacampa2017", "u8-ep-refinement")
def ep_refine_factors(
    coefficients: Coefficients, posterior: Gaussians, y: Labels, k_xx: Array, K_XZ: Array, K_ZZ: Array
) -> Refined:
    """Remove each factor from q, match moments with the exact factor in its place, recover the factor: section 2.2.

    All factors are refined from the one q of villacampa2017's parallel scheme.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    k_xx : (C, n)                 prior variances, noise included
    K_XZ : (C, n, m)              cross-covariances
    K_ZZ : (C, m, m)              prior covariances of the inducing values

    Returns
    -------
    Refined                       coefficients, undamped; log Z_{i,k}; number of improper cavities; mismatch of q

    Raises
    ------
    NotPositiveDefiniteError      if one of K_ZZ is singular
    """
    # fmt: off
    q, upsilon = posterior, projection_vectors(K_XZ, K_ZZ)                                         # below (8)
    new = Coefficients(*(part.copy() for part in coefficients))
    log_norm, n_improper, mismatch = np.zeros(k_xx.T.shape), 0, 0.0
    for i, y_i, k in factor_indices(y, len(K_ZZ)):
        try:
            cavities = factor_cavities(coefficients, q, upsilon, i, y_i, k)                        # (29) to (32)
        except ValueError:  # no distribution: the factor stays
            n_improper += 1
            continue
        pair = [y_i, k]
        result = matched_factor(cavities, upsilon[pair, i], k_xx[pair, i], K_XZ[pair, i], K_ZZ[pair])    # (33) to (53)
        for part, value in zip(new, result.coefficients, strict=True):
            part[i, k] = value
        log_norm[i, k] = result.log_norm
        mismatch = max(mismatch, largest_mismatch(q, pair, result.tilted, upsilon[:, i]))
    # fmt: on
    return Refined(new, log_norm, n_improper, mismatch)


@equation("villacampa2017", "u11-parallel-updates")
def parallel_ep_sweep(
    coefficients: Coefficients,
    posterior: Gaussians,
    y: Labels,
    k_xx: Array,
    K_XZ: Array,
    K_ZZ: Array,
    damping: float,
    batch: Batch | None = None,
) -> Swept:
    """All factors, or those of a mini-batch, refined at once, damped, and q rebuilt: 2.2, 2.3.2, E of villacampa2017.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄), which they and the prior make
    y : (n,)                      labels, 0..C-1
    k_xx : (C, n)                 prior variances, noise included
    K_XZ : (C, n, m)              cross-covariances
    K_ZZ : (C, m, m)              prior covariances of the inducing values
    damping : float               ρ in [0, 1]
    batch : (b,) or None          indices, each once; None: all data

    Raises
    ------
    NotPositiveDefiniteError      if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    # fmt: off
    rows = np.arange(len(y)) if batch is None else batch
    old = Coefficients(*(part[rows] for part in coefficients))
    new = Coefficients(*(part.copy() for part in coefficients))
    refined = ep_refine_factors(old, posterior, y[rows], k_xx[:, rows], K_XZ[:, rows], K_ZZ)       # (29) to (53)
    for part, after, before in zip(new, refined.coefficients, old, strict=True):
        part[rows] = damped_update(after, before, damping)                                         # appendix E
    return Swept(new, posterior_of(new, y, projection_vectors(K_XZ, K_ZZ), K_ZZ), refined)         # (25) to (27)
    # fmt: on


def sequential_ep_sweep(
    coefficients: Coefficients,
    posterior: Gaussians,
    y: Labels,
    k_xx: Array,
    K_XZ: Array,
    K_ZZ: Array,
    damping: float,
    batch: Batch,
) -> Swept:
    """One factor of a mini-batch after another, q rebuilt after each: EP as section 2.2 of villacampa2017 has it.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄), which they and the prior make
    y : (n,)                      labels, 0..C-1
    k_xx : (C, n)                 prior variances, noise included
    K_XZ : (C, n, m)              cross-covariances
    K_ZZ : (C, m, m)              prior covariances of the inducing values
    damping : float               ρ in [0, 1]
    batch : (b,)                  indices, each once

    Raises
    ------
    NotPositiveDefiniteError      if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    # fmt: off
    new, q, upsilon = Coefficients(*(part.copy() for part in coefficients)), posterior, projection_vectors(K_XZ, K_ZZ)
    log_norm, n_improper, mismatch = np.zeros(k_xx.T.shape), 0, 0.0
    for i, y_i, k in factor_indices(y, len(K_ZZ), batch):
        try:
            cavities = factor_cavities(new, q, upsilon, i, y_i, k)                                 # (29) to (32)
        except ValueError:  # no distribution: the factor stays
            n_improper += 1
            continue
        pair = [y_i, k]
        result = matched_factor(cavities, upsilon[pair, i], k_xx[pair, i], K_XZ[pair, i], K_ZZ[pair])    # (33) to (53)
        mismatch = max(mismatch, largest_mismatch(q, pair, result.tilted, upsilon[:, i]))
        log_norm[i, k] = result.log_norm
        for part, after in zip(new, result.coefficients, strict=True):
            part[i, k] = damped_update(np.array(after), part[i, k], damping)                       # appendix E
        q = posterior_of(new, y, upsilon, K_ZZ)                                                    # (25) to (27)
    return Swept(new, q, Refined(new, log_norm, n_improper, mismatch))
    # fmt: on


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
