r"""Sections 3.2 to 3.4 and 4: the energies that are optimised directly, and their derivatives.

All have a Gaussian q a class. g is the log normaliser of (A.25); constants cancel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._gaussians import Gaussians, Natural, along, moments_of, natural_parameters
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.cavity import power_cavity
from reference.villacampa2020.evidence import log_normaliser_of, site_log_normaliser
from reference.villacampa2020.hyper import Matrices
from reference.villacampa2020.pep import TiltedDistribution, pep_include, pep_project
from reference.villacampa2020.posterior import natural_prior
from reference.villacampa2020.power_likelihood import scaled_log_expected_powers
from reference.villacampa2020.refinement import dlogz_dcov, dlogz_dmean
from reference.villacampa2020.sparse import latent_marginal
from reference.villacampa2020.tied import DataTerm, apep_cavity, rpapep_cavity, second_moments, tied_factor_parameters
from reference.villacampa2020.variational import kl_to_prior, variational_elbo

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Energy(NamedTuple):
    """An objective at q, and what its derivatives need."""

    value: float
    cavity: Gaussians  # the distribution under which the likelihood's powers are averaged
    data: DataTerm
    direction: Natural  # natural gradient: what would be added to θ
    by_mean: Array  # (C, m) derivative by the means, covariances held
    by_cov: Array  # (C, m, m) derivative by the covariances, all entries free
    second: Array  # (C, m, m) M₂ of (dL/dK)-terms: derivative by K⁻¹ is -½ M₂ + ½ K


@equation("villacampa2020", "9")
def arpep_objective(
    posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float, n: int | None = None
) -> float:
    """(1/α) Σ_i log E_{q(f_i)}[p(y_i|f_i)^α] - KL[q(f̄)||p(f̄)]: (9) of villacampa2020; (5) at α = 0.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (b,)                  labels, 0..C-1
    K : Matrices              of the prior and these data
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]
    n : int or None           N where the b data are a mini-batch, whose sum is weighted N/b; None: b

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    weight = 1.0 if n is None else n / len(y)
    if alpha == 0.0 and weight == 1.0:
        return variational_elbo(posterior, y, K.upsilon, K.cond_var, K.K_ZZ, epsilon)  # (5)
    marginal = latent_marginal(posterior, K.upsilon, K.cond_var)  # q(f_i)
    data = scaled_log_expected_powers(*marginal, y, epsilon, alpha).log_expectation  # (1/α) log E[p(y_i|f_i)^α]
    return weight * float(np.sum(data)) - kl_to_prior(posterior, K.K_ZZ)


@equation("villacampa2020", "10")
def rpapep_objective(
    posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float, n: int | None = None
) -> float:
    """log Z_q = g(θ_post) + (1/α) Σ_{i=1}^{N+1} log Z̃_i: (10) of villacampa2020; (5) at α = 0.

    log Z̃_i = log E_q[(φ_i/φ̃)^α] with φ̃ = q^{1/(N+1)} up to its scale; φ_{N+1} is the prior.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (b,)                  labels, 0..C-1
    K : Matrices              of the prior and these data
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]
    n : int or None           N where the b data are a mini-batch, whose sum is weighted N/b; None: b

    Raises
    ------
    NotPositiveDefiniteError  if one of the distributions is none
    """
    if alpha == 0.0:
        return arpep_objective(posterior, y, K, epsilon, 0.0, n)
    N = len(y) if n is None else n
    theta, prior = natural_parameters(posterior), natural_prior(K.K_ZZ)
    cavity = rpapep_cavity(theta, N, alpha)  # θ\ = θ - α θ/(N + 1)
    data = [
        site_log_normaliser(distribution.log_norm, cavity, theta)
        for distribution in _tilted(cavity, y, K, epsilon, alpha)
    ]  # (A.24)
    # E_q\[p(f̄)^α] is an integral of Gaussians: g(θ\ + α θ_prior) - α g(θ_prior) - g(θ\)
    both = log_normaliser_of(along(cavity, prior, alpha))
    of_prior = both - alpha * log_normaliser_of(prior) - log_normaliser_of(theta)
    return log_normaliser_of(theta) + (N / len(y) * float(np.sum(data)) + of_prior) / alpha  # (10)


@equation("villacampa2020", "11")
def bb_alpha_energy(
    posterior: Gaussians, K_ZZ: Array, n: int, log_expectations: Callable[[Natural], Array], alpha: float
) -> float:
    """E = g(θ_prior) - g(θ_post) - (1/α) Σ_i log E_q[(p(y_i|f_i)/φ̃)^α]: (11) of villacampa2020.

    φ̃ has the natural parameters (θ_post - θ_prior)/N and scale one. Which way expectations are taken is the caller's:
    by draws, or exactly (`tied_log_norms`).

    Parameters
    ----------
    posterior : Gaussians           q(f̄)
    K_ZZ : (C, m, m)                prior covariances
    n : int                         N
    log_expectations : callable     natural parameters of φ̃ to log E_q[(p(y_i|f_i)/φ̃)^α], (n,)
    alpha : float                   α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError        if one of the distributions is none
    """
    theta, prior = natural_parameters(posterior), natural_prior(K_ZZ)
    log_norm = log_expectations(tied_factor_parameters(theta, prior, n))
    return log_normaliser_of(prior) - log_normaliser_of(theta) - float(np.sum(log_norm)) / alpha


def tied_log_norms(
    factor: Natural, posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float
) -> Array:
    r"""log E_q[(p(y_i|f_i)/φ̃)^α], (n,), exactly: q φ̃^-α is the cavity, up to what (A.24) of villacampa2020 has.

    Parameters
    ----------
    factor : Natural          natural parameters of φ̃, of scale one
    posterior : Gaussians     q(f̄)
    y : (n,)                  labels, 0..C-1
    K : Matrices              of the prior and these data
    epsilon : float           ε in [0, 1)
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if the cavity is not a distribution
    """
    theta = natural_parameters(posterior)
    cavity = power_cavity(theta, factor, alpha)  # (A.7)
    return np.array(
        [
            site_log_normaliser(distribution.log_norm, cavity, theta)
            for distribution in _tilted(cavity, y, K, epsilon, alpha)
        ]
    )


@equation("villacampa2020", "u22-apep-objective")
def apep_objective(
    posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float, n: int | None = None
) -> float:
    r"""log Z_q of (8) with every factor φ̃^{1/N}, a function of q ∝ φ̃ p(f̄): section 3.2 of villacampa2020.

        g(θ) - g(θ_prior) + (1/α) Σ_i {log E_{q\}[p(y_i|f_i)^α] + g(θ\) - g(θ)};   (5) at α = 0

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (b,)                  labels, 0..C-1
    K : Matrices              of the prior and these data
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]
    n : int or None           N where the b data are a mini-batch, whose sum is weighted N/b; None: b

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    if alpha == 0.0:
        return arpep_objective(posterior, y, K, epsilon, 0.0, n)
    N = len(y) if n is None else n
    theta, prior = natural_parameters(posterior), natural_prior(K.K_ZZ)
    cavity = apep_cavity(theta, along(theta, prior, -1.0), N, alpha)  # θ\ = θ - (α/N) θ̃, θ̃ = θ - θ_prior
    data = [
        site_log_normaliser(distribution.log_norm, cavity, theta)
        for distribution in _tilted(cavity, y, K, epsilon, alpha)
    ]  # (A.24)
    return log_normaliser_of(theta) - log_normaliser_of(prior) + N / len(y) * float(np.sum(data)) / alpha  # (8)


def _tilted(cavity: Natural, y: Labels, K: Matrices, epsilon: float, alpha: float) -> list[TiltedDistribution]:
    r"""p̂ of every datum where all have one cavity: step two of section 3.1."""
    distribution = moments_of(cavity, "cavity precision")
    return pep_include([distribution] * len(y), y, K.k_xx, K.upsilon, K.K_ZZ, epsilon, alpha)


def energy(
    method: str, posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float, n: int | None = None
) -> Energy:
    r"""The objective of a method by (9), (10), (11) or section 3.2, with its derivatives by moments.

    A tied objective has the derivative ρ Σ_i (η̂_i - η) in θ, ρ = (1 - share)/α with share α/N (APEP) or α/(N + 1)
    (RPAPEP, whose prior is one more i): η̂_i are the moments that step three of section 3.1 projects p̂_i to. It is zero
    where PEP's updates, averaged, rest. That of (9) follows from (A.12) and (A.13) at q.

    Parameters
    ----------
    method : str              "apep", "arpep", "rpapep" or "bb-alpha" of villacampa2020
    posterior : Gaussians     q(f̄)
    y : (b,)                  labels, 0..C-1
    K : Matrices              of the prior and these data
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]
    n : int or None           N where the b data are a mini-batch, whose data term is weighted N/b; None: b

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance, or a cavity no distribution
    """
    N = len(y) if n is None else n
    weight = N / len(y)
    theta, prior = natural_parameters(posterior), natural_prior(K.K_ZZ)
    if method == "arpep" or alpha == 0.0:
        value = arpep_objective(posterior, y, K, epsilon, alpha, n)  # (9)
        z = scaled_log_expected_powers(*latent_marginal(posterior, K.upsilon, K.cond_var), y, epsilon, alpha)
        by_mean, by_cov = np.zeros_like(posterior.mean), np.zeros_like(posterior.cov)
        for i, k in np.ndindex(*z.d_mean.shape):
            by_mean[k] += weight * dlogz_dmean(float(z.d_mean[i, k]), K.upsilon[k, i])  # (A.12)
            by_cov[k] += weight * dlogz_dcov(float(z.d_var[i, k]), K.upsilon[k, i])  # (A.13)
        # the natural gradient of -KL[q||p] is θ_prior - θ
        dP = prior.precision - theta.precision - 2.0 * by_cov
        by_mean = by_mean - np.einsum("kml,kl->km", prior.precision, posterior.mean)
        data = DataTerm(
            weight * float(np.sum(z.log_expectation)), z.log_expectation, weight * z.d_mean, weight * z.d_var
        )
        return _energy_of(value, posterior, data, dP, by_mean, posterior, second_moments(posterior))
    if method == "rpapep":
        value, share = rpapep_objective(posterior, y, K, epsilon, alpha, n), alpha / (N + 1)  # (10)
        cavity = rpapep_cavity(theta, N, alpha)
        refined = moments_of(along(cavity, prior, alpha), "tilted precision")  # p̂ of the prior
        total = _Moments(posterior).add(refined, 1.0)
    else:
        share = alpha / N
        if method == "bb-alpha" and weight == 1.0:  # (11), which is of all data

            def log_expectations(factor: Natural) -> Array:
                return tied_log_norms(factor, posterior, y, K, epsilon, alpha)

            value = -bb_alpha_energy(posterior, K.K_ZZ, N, log_expectations, alpha)
        else:
            value = apep_objective(posterior, y, K, epsilon, alpha, n)  # section 3.2
        cavity = apep_cavity(theta, along(theta, prior, -1.0), N, alpha)
        total = _Moments(posterior)
    distributions, mean_second = _tilted(cavity, y, K, epsilon, alpha), np.zeros_like(posterior.cov)
    for distribution in distributions:
        new = pep_project(distribution)  # (A.14), (A.15)
        total.add(new, weight)
        mean_second += second_moments(new) / len(y)
    dP, by_mean = total.derivatives((1.0 - share) / alpha)
    log_norm = np.array([distribution.log_norm for distribution in distributions]) / alpha
    scale = weight / alpha
    d_mean, d_var = (
        scale * np.array([getattr(distribution, name) for distribution in distributions])
        for name in ("d_mean", "d_var")
    )
    data = DataTerm(weight * float(np.sum(log_norm)), log_norm, d_mean, d_var)
    second = second_moments(refined) if method == "rpapep" else mean_second
    return _energy_of(value, distributions[0].cavity, data, dP, by_mean, posterior, second)


class _Moments:
    """Σ (η̂ - η) about q, kept centred so that nothing cancels but what must."""

    def __init__(self, posterior: Gaussians) -> None:
        self.q = posterior
        self.mean, self.cov = np.zeros_like(posterior.mean), np.zeros_like(posterior.cov)

    def add(self, distribution: Gaussians, weight: float) -> "_Moments":
        """One more distribution, weighted."""
        away = distribution.mean - self.q.mean
        self.mean += weight * away
        self.cov += weight * (distribution.cov - self.q.cov + away[:, :, None] * away[:, None, :])
        return self

    def derivatives(self, rate: float) -> tuple[Array, Array]:
        """Natural gradient of precisions, and derivative in the means, where the gradient in θ is rate Σ (η̂ - η)."""
        P = np.stack([factorise(V, "inducing_cov", "lower learning_rate").inverse for V in self.q.cov])
        return -rate * P @ self.cov @ P, rate * np.einsum("kml,kl->km", P, self.mean)


def _energy_of(
    value: float, cavity: Gaussians, data: DataTerm, dP: Array, by_mean: Array, posterior: Gaussians, second: Array
) -> Energy:
    dP = 0.5 * (dP + np.transpose(dP, (0, 2, 1)))
    db = by_mean + np.einsum("kml,kl->km", dP, posterior.mean)
    return Energy(value, cavity, data, Natural(dP, db), by_mean, -0.5 * dP, second)


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
    alpha : float             α in (0, 1]
    n : float                 N >= 1, of which log normalisers lose n/α; the sum is over the b data that are given

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    theta, prior, length = natural_parameters(posterior), natural_prior(K_ZZ), alpha / n
    cavity = along(theta, along(theta, prior, -1.0), -length)  # θ\ = θ - (α/n) θ̃, θ̃ = θ - θ_prior
    marginal = latent_marginal(moments_of(cavity, "cavity precision"), upsilon, cond_var)
    data = scaled_log_expected_powers(*marginal, y, epsilon, alpha).log_expectation
    gap = (log_normaliser_of(cavity) - log_normaliser_of(theta)) / length
    return log_normaliser_of(theta) - log_normaliser_of(prior) + gap + float(np.sum(data))
