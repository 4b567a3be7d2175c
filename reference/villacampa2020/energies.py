r"""Sections 3.2 to 3.4 and 4: the energies that are optimised directly, as printed, and in a form good at any α.

All have a Gaussian q a class. g is the log normaliser of (A.25); constants cancel.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.ledger import equation
from reference.villacampa2020.evidence import log_normaliser_of
from reference.villacampa2020.posterior import Gaussians, Natural
from reference.villacampa2020.power_likelihood import scaled_log_expected_powers
from reference.villacampa2020.sparse import latent_marginal
from reference.villacampa2020.tied import (
    Basis,
    DataTerm,
    Moved,
    basis_of,
    data_term,
    law_in,
    log_share,
    second_moments,
    towards_prior,
)
from reference.villacampa2020.variational import kl_to_prior

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Energy(NamedTuple):
    """An objective at q, and what its derivatives need."""

    value: float
    cavity: Gaussians  # the law under which the likelihood's powers are averaged
    data: DataTerm
    direction: Natural  # natural gradient: what would be added to θ
    by_mean: Array  # (C, m) derivative by the means, covariances held
    by_cov: Array  # (C, m, m) derivative by the covariances, all entries free
    second: Array  # (C, m, m) M₂ of (dL/dK)-terms: derivative by K⁻¹ is -½ M₂ + ½ K


@equation("villacampa2020", "9")
def arpep_objective(
    posterior: Gaussians, y: Labels, upsilon: Array, cond_var: Array, K_ZZ: Array, epsilon: float, alpha: float
) -> float:
    """(1/α) Σ_i log E_{q(f_i)}[p(y_i|f_i)^α] - KL[q(f̄)||p(f̄)]: (9) of villacampa2020; (5) at α = 0.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (n,)                  labels, 0..C-1
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    K_ZZ : (C, m, m)          prior covariances
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is no covariance
    """
    marginal = latent_marginal(posterior, upsilon, cond_var)
    data = scaled_log_expected_powers(*marginal, y, epsilon, alpha).log_expectation
    return float(np.sum(data)) - kl_to_prior(posterior, K_ZZ)


@equation("villacampa2020", "10")
def rpapep_objective(posterior: Natural, log_norm: Array, alpha: float) -> float:
    """log Z_q = g(θ_post) + (1/α) Σ_{i=1}^{N+1} log Z̃_i: (10) of villacampa2020.

    Parameters
    ----------
    posterior : Natural       θ_post
    log_norm : (n + 1,)       log Z̃_i = log E_q[(φ_i/φ̃)^α], the prior's last; φ̃ = q^{1/(N+1)} up to its scale
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if the law is no distribution
    """
    return log_normaliser_of(posterior) + float(np.sum(log_norm)) / alpha


@equation("villacampa2020", "11")
def bb_alpha_energy(prior: Natural, posterior: Natural, log_norm: Array, alpha: float) -> float:
    """E = g(θ_prior) - g(θ_post) - (1/α) Σ_i log E_q[(p(y_i|f_i)/φ̃)^α]: (11) of villacampa2020.

    Parameters
    ----------
    prior : Natural           θ_prior
    posterior : Natural       θ_post
    log_norm : (n,)           log E_q[(p(y_i|f_i)/φ̃)^α], φ̃ of natural parameters (θ_post - θ_prior)/N and scale one
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if one of the laws is no distribution
    """
    return log_normaliser_of(prior) - log_normaliser_of(posterior) - float(np.sum(log_norm)) / alpha


@equation("villacampa2020", "u22-apep-objective")
def apep_objective(
    posterior: Gaussians, y: Labels, upsilon: Array, cond_var: Array, K_ZZ: Array, epsilon: float, alpha: float
) -> float:
    r"""log Z_q of (8) with every factor φ̃^{1/N}, a function of q ∝ φ̃ p(f̄): section 3.2 of villacampa2020.

        g(θ) - g(θ_prior) + (N/α)[g(θ\) - g(θ)] + (1/α) Σ_i log E_{q\}[p(y_i|f_i)^α]

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (n,)                  labels, 0..C-1
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    K_ZZ : (C, m, m)          prior covariances
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is no covariance
    """
    return energy("apep", posterior, y, upsilon, cond_var, K_ZZ, epsilon, alpha).value


@equation("villacampa2020", "u23-arpep-limit")
def arpep_limit(
    posterior: Gaussians,
    y: Labels,
    upsilon: Array,
    cond_var: Array,
    K_ZZ: Array,
    epsilon: float,
    alpha: float,
    n: float,
) -> float:
    """The objective of APEP with the cavity's power α/n for any n, which tends to (9) as α/n -> 0: section 3.3.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (b,)                  labels, 0..C-1
    upsilon : (C, b, m)       υ_i^k
    cond_var : (C, b)         s_i^k
    K_ZZ : (C, m, m)          prior covariances of villacampa2020
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]
    n : float                 N >= 1; the sum is over the b data that are given

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is no covariance
    """
    basis, length = basis_of(posterior, K_ZZ), alpha / n
    moved = towards_prior(basis, 1.0, length)
    data = data_term(law_in(basis, moved), y, upsilon, cond_var, epsilon, alpha, 1.0)
    return _tied_value(basis, moved, length) + data.value


def _tied_value(basis: Basis, moved: Moved, length: float) -> float:
    """g(θ) - g(θ_prior) + [g(θ + t(θ_prior - θ)) - g(θ)]/t; minus the divergence from the prior at t = 0."""
    squares = (1.0 - length) * np.sum(moved.scale * basis.sigma * basis.beta**2)
    return basis.log_ratio - 0.5 * log_share(basis.sigma - 1.0, length) - 0.5 * float(squares)


def energy(
    method: str,
    posterior: Gaussians,
    y: Labels,
    upsilon: Array,
    cond_var: Array,
    K_ZZ: Array,
    epsilon: float,
    alpha: float,
    n: int | None = None,
) -> Energy:
    r"""The objective of APEP, ARPEP or RPAPEP at q, with its natural gradient, for any α in [0, 1].

    With σ and β of the basis, r the share of q's natural parameters that the cavity keeps, and c the scales of the laws
    that are moved towards the prior, the value without the data term is

        APEP     Σ ½ log σ - ½ log(1 + t(σ-1))/t - ½ r c σβ²,   t = α/N, r = 1 - t;  ARPEP: t = 0
        RPAPEP   Σ ½ log σ - ½ N log(r)/α - ½ log(1 + α(σ-s))/α - ½ r c σβ²,   s = 1/(N+1), r = 1 - αs

    and its derivative by θ is r Σ x, with x the changes of the moments that the cavity, the tilted law of the prior and
    the likelihoods make.

    Parameters
    ----------
    method : str              "apep", "arpep" or "rpapep" of villacampa2020
    posterior : Gaussians     q(f̄)
    y : (b,)                  labels, 0..C-1
    upsilon : (C, b, m)       υ_i^k
    cond_var : (C, b)         s_i^k
    K_ZZ : (C, m, m)          prior covariances
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]
    n : int or None           N where the b data are a mini-batch, whose data term is weighted N/b; None: b

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is no covariance, or a cavity no distribution
    """
    n = len(y) if n is None else n
    basis = basis_of(posterior, K_ZZ)
    if method == "rpapep":
        share = 1.0 / (n + 1)
        left, length = 1.0 - alpha * share, alpha
        refined = towards_prior(basis, share, alpha)  # the prior's tilted law
        same = np.full_like(basis.sigma, 1.0 / left)
        at, by_mean, by_cov = Moved(same, basis.beta, 0.0 * same, share * same), refined.by_mean, refined.by_cov
        logs = n * log_share(np.full_like(same, -share), alpha) + log_share(basis.sigma - share, alpha)
        squares = left * float(np.sum(refined.scale * basis.sigma * basis.beta**2))
        value, by_cov = basis.log_ratio - 0.5 * (logs + squares), by_cov + n * at.by_cov
    else:
        length = alpha / n if method == "apep" else 0.0
        left, at = 1.0 - length, towards_prior(basis, 1.0, length)
        value, by_mean, by_cov = _tied_value(basis, at, length), at.by_mean, at.by_cov
    cavity = law_in(basis, at)
    data = data_term(cavity, y, upsilon, cond_var, epsilon, alpha, n / len(y))
    second = second_moments(law_in(basis, refined) if method == "rpapep" else cavity)
    parts = []
    for k, (A, inverse) in enumerate(zip(basis.A, basis.inverse, strict=True)):
        gain = at.scale[k][:, None] * (A.T @ upsilon[k].T)  # A⁻¹ V\ Υ
        pull = gain @ data.d_mean[:, k]
        mixed = np.outer(at.beta[k] - basis.beta[k], pull)
        pull_cov = 2.0 * (gain * data.d_var[:, k]) @ gain.T + mixed + mixed.T
        if method != "rpapep" and length > 0.0:  # K⁻¹ is in the cavity: what the likelihoods make of it
            outer = np.outer(basis.beta[k], pull)
            second[k] += length * A @ (pull_cov + outer + outer.T) @ A.T
        x = left * (by_mean[k] + pull)
        x_cov = left * (np.diag(by_cov[k]) + length * np.outer(by_mean[k], by_mean[k]) + pull_cov)
        slope = inverse.T @ x
        precision = -inverse.T @ (0.5 * (x_cov + x_cov.T)) @ inverse
        parts.append((precision, slope + precision @ posterior.mean[k], slope))
    dP, db, by_m = (np.array(part) for part in zip(*parts, strict=True))
    return Energy(value + data.value, cavity, data, Natural(dP, db), by_m, -0.5 * dP, second)
