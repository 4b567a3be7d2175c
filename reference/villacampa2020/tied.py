r"""Sections 3.2 to 3.4: tied factors, their cavities, and one basis for q, prior and cavities.

A basis A with V = AAᵀ and K⁻¹ = A⁻ᵀ diag(σ) A⁻¹ makes the three diagonal. In it a change of natural parameters by tδ, δ
a combination of θ and θ_prior, changes g and the moments by closed forms over t that are finite at t = 0 and lose no
digits: APEP takes t = α/N along θ_prior - θ, ARPEP is its limit t = 0, and RPAPEP takes t = α along -θ/(N + 1), and
along θ_prior - θ/(N + 1) for the prior.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._gaussians import Gaussians, Natural
from reference.common.algebra import eigenvectors, inverted, solution
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.posterior import REMEDY
from reference.villacampa2020.power_likelihood import scaled_log_expected_powers
from reference.villacampa2020.sparse import latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

METHODS = ("apep", "arpep", "rpapep")


class Basis(NamedTuple):
    """Where q and the prior are diagonal."""

    A: Array  # (C, m, m) V = A Aᵀ
    inverse: Array  # (C, m, m) A⁻¹
    sigma: Array  # (C, m) K⁻¹ = A⁻ᵀ diag(σ) A⁻¹: variances of q in units of the prior's
    beta: Array  # (C, m) A⁻¹ m
    log_ratio: float  # Σ ½ log|V| - ½ log|K|


class Moved(NamedTuple):
    r"""What a change of natural parameters by tδ does, in the basis."""

    scale: Array  # (C, m) V' = A diag(scale) Aᵀ
    beta: Array  # (C, m) A⁻¹ m'
    by_mean: Array  # (C, m) A⁻¹(m' - m)/t
    by_cov: Array  # (C, m) diagonal part of A⁻¹(V' - V)A⁻ᵀ/t


class DataTerm(NamedTuple):
    r"""Σ_i (1/α) log E_{q\}[p(y_i|f_i)^α] and its derivatives, weighted for a mini-batch."""

    value: float
    log_norm: Array  # (b,) each datum's, not weighted
    d_mean: Array  # (b, C) by the means of the latent values
    d_var: Array  # (b, C) by their variances


@equation("villacampa2020", "u26-bb-alpha-parameters")
def tied_factor_parameters(posterior: Natural, prior: Natural, n: int) -> Natural:
    """(θ_post - θ_prior)/N, the natural parameters of one of N equal factors: section 4 of villacampa2020.

    Parameters
    ----------
    posterior : Natural       θ_post
    prior : Natural           θ_prior
    n : int                   N
    """
    return Natural((posterior.precision - prior.precision) / n, (posterior.shift - prior.shift) / n)


@equation("villacampa2020", "u21-apep-cavity")
def apep_cavity(theta: Natural, tied_factor: Natural, n: int, alpha: float) -> Natural:
    r"""q^{\αi} ∝ q/φ̃^{α/N}, natural parameters θ - (α/N) θ̃: section 3.2 of villacampa2020.

    Parameters
    ----------
    theta : Natural           θ of q
    tied_factor : Natural     θ̃ of φ̃ = Π_i φ̃_i
    n : int                   N
    alpha : float             α in [0, 1]
    """
    part = alpha / n
    return Natural(theta.precision - part * tied_factor.precision, theta.shift - part * tied_factor.shift)


@equation("villacampa2020", "u24-rpapep-free-gaussian")
def rpapep_cavity(theta: Natural, n: int, alpha: float) -> Natural:
    r"""q^{\αi} ∝ q^{1 - α/(N+1)}: q is N + 1 equal factors, one of them for the prior, section 3.4 of villacampa2020.

    Parameters
    ----------
    theta : Natural           θ of q, any Gaussian
    n : int                   N
    alpha : float             α in [0, 1]
    """
    remaining = 1.0 - alpha / (n + 1)
    return Natural(remaining * theta.precision, remaining * theta.shift)


def basis_of(posterior: Gaussians, K_ZZ: Array) -> Basis:
    """The basis in which q and the prior of villacampa2020 are diagonal.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    K_ZZ : (C, m, m)          prior covariances

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is no covariance
    """
    parts, log_ratio = [], 0.0
    for m, V, K in zip(*posterior, K_ZZ, strict=True):
        own, prior = factorise(V, "inducing_cov", "lower learning_rate"), factorise(K, "K_ZZ", REMEDY)
        white = solution(prior.chol, own.chol, "chol K")
        sigma, turn = eigenvectors(white.T @ white, "LᵀK⁻¹L")
        inverse = turn.T @ inverted(own.chol, "chol Σ")
        parts.append((own.chol @ turn, inverse, np.maximum(sigma, 0.0), inverse @ m))
        log_ratio += 0.5 * (own.log_det - prior.log_det)
    A, inverses, sigmas, betas = (np.array(part) for part in zip(*parts, strict=True))
    return Basis(A, inverses, sigmas, betas, log_ratio)


def log_share(scale: Array, length: float) -> float:
    """Σ log(1 + tw)/t, at t = 0 its limit Σ w, of villacampa2020's energies.

    Parameters
    ----------
    scale : (C, m)            w
    length : float            t >= 0
    """
    return float(np.sum(np.log1p(length * scale) / length if length > 0.0 else scale))


def towards_prior(basis: Basis, weight: float, length: float) -> Moved:
    """The change by t(θ_prior - weight θ): precisions 1 + t(σ - weight) in the basis of villacampa2020's q.

    Parameters
    ----------
    basis : Basis             of q and the prior
    weight : float            share of θ that goes
    length : float            t >= 0
    """
    change = basis.sigma - weight
    scale = 1.0 / (1.0 + length * change)
    # δ_b - δ_P m = -K⁻¹m whatever goes of θ
    by_mean = -scale * basis.sigma * basis.beta
    return Moved(scale, basis.beta + length * by_mean, by_mean, -change * scale)


def distribution_in(basis: Basis, change: Moved) -> Gaussians:
    """The moments of a changed distribution of villacampa2020, out of the basis.

    Parameters
    ----------
    basis : Basis             of q and the prior
    change : Moved            in it
    """
    scaled = basis.A * change.scale[:, None, :]
    return Gaussians(np.einsum("kij,kj->ki", basis.A, change.beta), scaled @ np.transpose(basis.A, (0, 2, 1)))


def data_term(
    cavity: Gaussians, y: Labels, upsilon: Array, cond_var: Array, epsilon: float, alpha: float, weight: float
) -> DataTerm:
    r"""weight Σ_i (1/α) log E_{q\}[p(y_i|f_i)^α] with derivatives; at α = 0 the expected log likelihoods.

    Parameters
    ----------
    cavity : Gaussians        q\, the same for every datum of villacampa2020's tied methods
    y : (b,)                  labels, 0..C-1
    upsilon : (C, b, m)       υ_i^k
    cond_var : (C, b)         s_i^k
    epsilon : float           ε in [0, 1)
    alpha : float             α in [0, 1]
    weight : float            N/b
    """
    result = scaled_log_expected_powers(*latent_marginal(cavity, upsilon, cond_var), y, epsilon, alpha)
    value = weight * float(np.sum(result.log_expectation))
    return DataTerm(value, result.log_expectation, weight * result.d_mean, weight * result.d_var)


def second_moments(distribution: Gaussians) -> Array:
    """V + mmᵀ of every class, (C, m, m), villacampa2020.

    Parameters
    ----------
    distribution : Gaussians           means and covariances
    """
    return distribution.cov + distribution.mean[:, :, None] * distribution.mean[:, None, :]
