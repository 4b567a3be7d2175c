r"""Section 3.1 and appendix A.5: power expectation propagation as printed: its four steps, its sweep, log Z_q of (8).

The likelihood p(y_i|f_i) is what is raised to α; a function of f̄ alone is left when f_i has been integrated out. All
mathematics here is that of marked functions.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.cavity import power_cavity, power_cavity_covariance, power_cavity_mean
from reference.villacampa2020.evidence import gaussian_log_normaliser, log_normaliser_of, site_log_normaliser
from reference.villacampa2020.hyper import Batch, Matrices
from reference.villacampa2020.posterior import (
    SITES_REMEDY,
    Coefficients,
    Gaussians,
    Natural,
    Site,
    factor_linear,
    factor_precision,
    natural_parameter_sum,
    natural_prior,
    posterior_moments,
)
from reference.villacampa2020.power_likelihood import (
    log_expected_power,
    log_expected_powers,
    scaled_log_expected_powers,
)
from reference.villacampa2020.refinement import (
    cavity_latent_mean,
    cavity_latent_variance,
    damped_update,
    tilted_covariance,
    tilted_mean,
    update_c1,
    update_c2,
)
from reference.villacampa2020.sparse import latent_marginal, sep_tied_factor

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class TiltedDistribution(NamedTuple):
    r"""p̂ ∝ p(y_i|f_i)^α q\ of one datum, with what projects it."""

    cavity: Gaussians  # q\
    upsilon: Array  # (C, m) υ_i
    log_norm: float  # log Z_i
    d_mean: Array  # (C,) ∂ log Z_i/∂a
    d_var: Array  # (C,) ∂ log Z_i/∂b
    log_density: Callable[[Array], float]  # f̄ (C, m) to log p̂(f̄), not normalised


class Factor(NamedTuple):
    """A refined factor, by its numbers and as a density."""

    c1: Array  # (C,) C¹
    c2: Array  # (C,) C²
    site: Site  # log s̃_i, Ṽ_i and m̃_i


class Refined(NamedTuple):
    """Factors after a sweep."""

    coefficients: Coefficients
    log_norm: Array  # (n,) (1/α) log Z_i, zero for factors that were skipped
    n_improper: int  # factors left as they were because a cavity was no distribution


class Sweep(NamedTuple):
    """All that a sweep changes."""

    coefficients: Coefficients
    posterior: Gaussians
    n_improper: int


@equation("villacampa2020", "u15-pep-remove")
def pep_remove(posterior: Gaussians, c1: Array, c2: Array, upsilon: Array, alpha: float) -> Gaussians:
    r"""q^{\αi} = q/φ̃_i^α of every class, by (A.8) and (A.9): step one in section 3.1 of villacampa2020.

    Parameters
    ----------
    posterior : Gaussians     m (C, m) and V (C, m, m) of q
    c1 : (C,)                 C¹_i
    c2 : (C,)                 C²_i
    upsilon : (C, m)          υ_i of every class
    alpha : float             α in (0, 1]

    Raises
    ------
    ValueError                if what remains is not a distribution
    """
    each = list(zip(posterior.mean, posterior.cov, c1.tolist(), c2.tolist(), upsilon, strict=True))
    cov = [power_cavity_covariance(V, c1_k, u, alpha) for _, V, c1_k, _, u in each]  # (A.8)
    mean = [power_cavity_mean(m, V, c1_k, c2_k, u, alpha) for m, V, c1_k, c2_k, u in each]  # (A.9)
    return Gaussians(np.array(mean), np.array(cov))


@equation("villacampa2020", "u16-pep-include")
def pep_include(
    cavities: Sequence[Gaussians], y: Labels, k_xx: Array, upsilon: Array, K_ZZ: Array, epsilon: float, alpha: float
) -> list[TiltedDistribution]:
    r"""p̂ ∝ E[p(y_i|f_i)^α | f̄] q\(f̄) of some data, and the derivatives of log Z_i: step two in section 3.1.

    Parameters
    ----------
    cavities : sequence       moments of q\ for each of the data
    y : (b,)                  labels, 0..C-1
    k_xx : (C, b)             κ, prior variances, noise included
    upsilon : (C, b, m)       υ_i of every class
    K_ZZ : (C, m, m)          prior covariances of villacampa2020's inducing values
    epsilon : float           label-error probability
    alpha : float             α in (0, 1]
    """
    C, b = range(len(K_ZZ)), range(len(y))
    mean = [[cavity_latent_mean(upsilon[k, i], cavities[i].mean[k]) for k in C] for i in b]  # (A.10)
    var = [
        [cavity_latent_variance(float(k_xx[k, i]), upsilon[k, i], K_ZZ[k], cavities[i].cov[k]) for k in C] for i in b
    ]  # (A.11)
    z = log_expected_powers(np.reshape(mean, (-1, len(C))), np.reshape(var, (-1, len(C))), y, epsilon, alpha)
    return [
        TiltedDistribution(
            cavities[i],
            upsilon[:, i],
            float(z.log_expectation[i]),
            z.d_mean[i],
            z.d_var[i],
            _log_density(cavities[i], upsilon[:, i], k_xx[:, i], K_ZZ, int(y[i]), epsilon, alpha),
        )
        for i in b
    ]


def _log_density(
    cavity: Gaussians, upsilon: Array, k_xx: Array, K_ZZ: Array, y_i: int, epsilon: float, alpha: float
) -> Callable[[Array], float]:
    """f̄ to log E[p(y_i|f_i)^α | f̄] + log q\\(f̄)."""

    def log_tilted(inducing_values: Array) -> float:
        given = k_xx - np.einsum("km,kml,kl->k", upsilon, K_ZZ, upsilon)
        total = log_expected_power(
            np.sum(upsilon * inducing_values, axis=1), given, y_i, epsilon, alpha
        ).log_expectation
        for u, m, V in zip(inducing_values, *cavity, strict=True):
            factor, away = factorise(V, "cavity_cov", SITES_REMEDY), u - m
            total -= 0.5 * float(away @ factor.inverse @ away + factor.log_det + len(m) * np.log(2.0 * np.pi))
        return total

    return log_tilted


@equation("villacampa2020", "u17-pep-project")
def pep_project(tilted: TiltedDistribution) -> Gaussians:
    r"""argmin KL[p̂||q*] over independent Gaussians, the moments of p̂, by (A.14) and (A.15): step three in section 3.1.

    Parameters
    ----------
    tilted : TiltedDistribution        p̂ of villacampa2020
    """
    each = list(zip(*tilted.cavity, tilted.d_mean.tolist(), tilted.d_var.tolist(), tilted.upsilon, strict=True))
    return Gaussians(
        np.array([tilted_mean(m, V, g, u) for m, V, g, _, u in each]),  # (A.12), (A.14)
        np.array([tilted_covariance(V, g, by_var, u) for _, V, g, by_var, u in each]),  # (A.13), (A.15)
    )


@equation("villacampa2020", "u13-pep-factor-recovery", "u18-pep-update")
def pep_update(tilted: TiltedDistribution, new: Gaussians, alpha: float) -> Factor:
    r"""φ̃_i = (Z_i q_new/q\)^{1/α} with its scale: section 3.1 of villacampa2020, whose step four lacks Z_i.

    q_new and q\ are normalised: the scale is s̃_i with log s̃_i = [log Z_i + g(θ\) - g(θ_new)]/α.

    Parameters
    ----------
    tilted : TiltedDistribution        p̂, whose normaliser is Z_i
    new : Gaussians           moments of q_new
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is not a distribution
    """
    c1, c2 = np.empty(len(new.mean)), np.empty(len(new.mean))
    log_scale = tilted.log_norm
    for k, (u, m, V) in enumerate(zip(tilted.upsilon, *tilted.cavity, strict=True)):
        g, by_var = float(tilted.d_mean[k]), float(tilted.d_var[k])
        c1[k] = update_c1(g, by_var, u, V, alpha)  # (A.16), (A.17)
        c2[k] = update_c2(g, float(c1[k]), u, m, V, alpha)  # (A.19), (A.20)
        log_scale += gaussian_log_normaliser(m, V) - gaussian_log_normaliser(new.mean[k], new.cov[k])  # (A.25)
    return Factor(c1, c2, Site(log_scale / alpha, *natural_factor(c1, c2, tilted.upsilon)))  # (A.22)


def natural_factor(c1: Array, c2: Array, upsilon: Array) -> Natural:
    """Ṽ_i = C¹υυᵀ and m̃_i = C²υ of every class of villacampa2020: (A.2), (A.18) and (A.3), (A.21).

    Parameters
    ----------
    c1 : (C,)                 C¹_i
    c2 : (C,)                 C²_i
    upsilon : (C, m)          υ_i of every class
    """
    return Natural(
        np.array([factor_precision(c, u) for c, u in zip(c1.tolist(), upsilon, strict=True)]),
        np.array([factor_linear(c, u) for c, u in zip(c2.tolist(), upsilon, strict=True)]),
    )


def pep_refine_factors(
    coefficients: Coefficients, posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float
) -> Refined:
    """Remove, include, project, update for every factor, all from the one q of villacampa2020's parallel scheme.

    Parameters
    ----------
    coefficients : Coefficients   C¹ and C² of the factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    K : Matrices                  of the prior: κ, υ and K_ZZ
    epsilon : float               label-error probability
    alpha : float                 α in (0, 1]

    Returns
    -------
    Refined                       coefficients, undamped; (1/α) log Z_i; number of improper cavities

    Raises
    ------
    ValueError                    for alpha and epsilon that leave no likelihood
    """
    # fmt: off
    c1, c2, log_norm = coefficients.c1.copy(), coefficients.c2.copy(), np.zeros(len(y))
    cavities: dict[int, Gaussians] = {}
    for i in range(len(y)):
        with suppress(ValueError):                                                   # no distribution: the factor stays
            cavities[i] = pep_remove(posterior, c1[i], c2[i], K.upsilon[:, i], alpha)             # remove   q\ = q/φ̃^α
    at, labels = K.of(np.array(list(cavities), dtype=np.intp)), y[list(cavities)]
    data = labels, at.k_xx, at.upsilon, K.K_ZZ
    distributions = pep_include([*cavities.values()], *data, epsilon, alpha)               # include   p̂ = p^α q\
    for i, tilted in zip(cavities, distributions, strict=True):
        new = pep_project(tilted)                                                              # project   moments of p̂
        factor = pep_update(tilted, new, alpha)                                             # update   φ̃^α = Z q_new/q\
        c1[i], c2[i], log_norm[i] = factor.c1, factor.c2, tilted.log_norm / alpha
    return Refined(Coefficients(c1, c2), log_norm, len(y) - len(cavities))
    # fmt: on


def pep_limit_factors(posterior: Gaussians, y: Labels, K: Matrices, epsilon: float) -> Coefficients:
    r"""Refined factors as α -> 0, undamped: C¹ = -2 ∂F/∂b and C² = ∂F/∂a + C¹ a, the limits of (A.17) and (A.20).

    F = E[log p(y_i|f_i)] = lim (1/α) log Z_i, a and b of f_i under q, which every cavity tends to. The factors of the
    fixed point are the natural parameters of the maximum of (5): section 2.3 of villacampa2020.

    Parameters
    ----------
    posterior : Gaussians         q(f̄)
    y : (b,)                      labels, 0..C-1
    K : Matrices                  of the prior and these data
    epsilon : float               label-error probability, positive
    """
    mean, var = latent_marginal(posterior, K.upsilon, K.cond_var)  # (A.10), (A.11)
    F = scaled_log_expected_powers(mean, var, y, epsilon, 0.0)
    c1 = -2.0 * F.d_var
    return Coefficients(c1, F.d_mean + c1 * mean)


@equation("villacampa2020", "u5-ep-refinement")
def ep_refine_factors(
    coefficients: Coefficients, posterior: Gaussians, y: Labels, K: Matrices, epsilon: float
) -> Refined:
    r"""One cycle of EP: q\ ∝ q/φ̃_i, the moments of φ_i q\, φ̃_i = Z_i q_new/q\: section 2.2 of villacampa2020.

    The four steps at α = 1.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    K : Matrices                  of the prior
    epsilon : float               label-error probability
    """
    return pep_refine_factors(coefficients, posterior, y, K, epsilon, 1.0)


@equation("villacampa2020", "u29-parallel-updates")
def parallel_pep_sweep(
    coefficients: Coefficients,
    y: Labels,
    K: Matrices,
    epsilon: float,
    alpha: float,
    damping: float,
    batch: Batch | None = None,
) -> Sweep:
    """All factors, or those of a mini-batch, refined at once, damped, and q rebuilt: appendix A.5 of villacampa2020.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    y : (n,)                      labels, 0..C-1
    K : Matrices                  of the prior
    epsilon : float               label-error probability
    alpha : float                 α in (0, 1]
    damping : float               ρ in [0, 1]
    batch : (b,) or None          indices, each once; None: all data

    Raises
    ------
    NotPositiveDefiniteError      if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    # fmt: off
    rows = np.arange(len(y)) if batch is None else batch
    old, data = Coefficients(*(part[rows] for part in coefficients)), (y[rows], K.of(rows), epsilon)
    q = posterior_moments(*coefficients, K.upsilon, K.K_ZZ)                                                      # (A.6)
    refined = (                                                                               # α = 1: EP of section 2.2
        ep_refine_factors(old, q, *data) if alpha == 1.0
        else pep_refine_factors(old, q, *data, alpha)                                                  # (A.7) to (A.21)
    )
    c1, c2 = coefficients.c1.copy(), coefficients.c2.copy()
    c1[rows] = damped_update(refined.coefficients.c1, old.c1, damping)                  # C¹ = ρ C¹_new + (1 - ρ) C¹_old
    c2[rows] = damped_update(refined.coefficients.c2, old.c2, damping)                  # C² = ρ C²_new + (1 - ρ) C²_old
    return Sweep(Coefficients(c1, c2), posterior_moments(c1, c2, K.upsilon, K.K_ZZ), refined.n_improper)         # (A.6)
    # fmt: on


def tilted_distributions(
    coefficients: Coefficients,
    posterior: Gaussians,
    y: Labels,
    K: Matrices,
    epsilon: float,
    alpha: float,
    batch: Batch | None = None,
) -> list[TiltedDistribution]:
    """Steps one and two of villacampa2020 for all data, or a mini-batch: what log Z_q and its gradient are made of.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    K : Matrices                  of the prior
    epsilon : float               label-error probability
    alpha : float                 α in (0, 1]
    batch : (b,) or None          indices; None: all data

    Raises
    ------
    ValueError                    if a cavity is not a distribution
    """
    rows = np.arange(len(y)) if batch is None else batch
    at = K.of(rows)
    c1, c2 = coefficients
    cavities = [pep_remove(posterior, c1[i], c2[i], K.upsilon[:, i], alpha) for i in rows]
    return pep_include(cavities, y[rows], at.k_xx, at.upsilon, at.K_ZZ, epsilon, alpha)


@equation("villacampa2020", "8", "A.23")
def pep_log_evidence(
    coefficients: Coefficients, posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float
) -> float:
    """log Z_q = g(θ) - g(θ_prior) + (1/α) Σ_i log Z̃_i: (8) and (A.23) of villacampa2020.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄), the moments that belong to them
    y : (n,)                      labels, 0..C-1
    K : Matrices                  of the prior
    epsilon : float               label-error probability
    alpha : float                 α in (0, 1]

    Raises
    ------
    ValueError                    if a cavity is not a distribution
    NotPositiveDefiniteError      if one of the distributions is none
    """
    # fmt: off
    prior = natural_prior(K.K_ZZ)                                                                     # θ_prior of (A.4)
    theta = natural_parameter_sum(prior, [sep_tied_factor(coefficients, K.upsilon)])               # θ = θ_prior + Σ θ_i
    total = 0.0
    for i, tilted in enumerate(tilted_distributions(coefficients, posterior, y, K, epsilon, alpha)):   # log E_q\[p^α]
        site = natural_factor(coefficients.c1[i], coefficients.c2[i], K.upsilon[:, i])                  # (A.18), (A.21)
        cavity = power_cavity(theta, site, alpha)                                                                # (A.7)
        total += site_log_normaliser(tilted.log_norm, cavity, theta)                                    # (A.22), (A.24)
    return log_normaliser_of(theta) - log_normaliser_of(prior) + total / alpha                             # (8), (A.23)
    # fmt: on
