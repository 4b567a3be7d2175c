r"""The exact gradient of section 2.3 and figure 1, of which the paper prints no equation: of log Z_q, sites held.

log Z_q depends on the hyper-parameters by K_ZZ, υ and s of each class. A `Pull` holds its derivatives in these three as
if they were free; dυ = K⁻¹(dk - dK υ) and ds = dκ - 2 υᵀdk + υᵀdK υ lead back to the kernel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.probit import mills_derivative
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.gradients import Distributions, prior_term_matrix
from reference.villacampa2017.model import REMEDY
from reference.villacampa2017.posterior import Coefficients, Gaussians, per_class

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Pull(NamedTuple):
    """Derivatives in υ, s and K_ZZ of one class, as if they were free of one another."""

    upsilon: Array  # (n, m)
    cond_var: Array  # (n,)
    K_ZZ: Array  # (m, m)


class Weights(NamedTuple):
    """Derivatives of the data's terms in one projection, per factor or summed over factors."""

    mean: Array
    var: Array
    cond_var: Array


def pair_derivatives(distributions: Distributions, y: Labels) -> tuple[Array, Array]:
    """g = β/√b and h = (β² + βα̂)/b, b = b_y + b_k, of every factor of villacampa2017: (39), (41), (48); each (n, C).

    Parameters
    ----------
    distributions : Distributions    q and the cavities
    y : (n,)                  labels, 0..C-1
    """
    g, h = np.zeros((len(y), len(distributions.upsilon))), np.zeros((len(y), len(distributions.upsilon)))
    for (i, k), cavities in distributions.cavities.items():
        pair = y[i], k
        a = [distributions.upsilon[j, i] @ cavity.mean for j, cavity in zip(pair, cavities, strict=True)]
        b = sum(
            distributions.cond_var[j, i] + distributions.upsilon[j, i] @ cavity.cov @ distributions.upsilon[j, i]
            for j, cavity in zip(pair, cavities, strict=True)
        )
        beta, bend = mills_derivative((a[0] - a[1]) / np.sqrt(b))  # of log Φ; bend = -(β² + βα̂)
        g[i, k], h[i, k] = beta / np.sqrt(b), -bend / b
    return g, h


def projections(posterior: Gaussians, upsilon: Array) -> tuple[Array, Array]:
    """p = υ_iᵀm_k and q = υ_iᵀV_kυ_i of villacampa2017, each (n, C).

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    upsilon : (C, n, m)       υ_i^k
    """
    mean = np.einsum("kim,km->ik", upsilon, posterior.mean)
    return mean, np.einsum("kim,kim->ik", upsilon @ posterior.cov, upsilon)


def total_weights(derivative: Array, curvature: Array, projected: tuple[Array, Array], c1: Array, c2: Array) -> Weights:
    r"""Derivatives of log s̃ = log Z + g(θ\) - g(θ) in p = υᵀm, q = υᵀVυ and s with C¹, C² of villacampa2017 held.

    With D = 1 - C¹q and w = C¹p - C²: the cavity has e = (p - C²q)/D and v = q/D, and

        ∂/∂p = (g + w)/D,   ∂/∂q = (g w + ½(g² - h) + ½ w²)/D² + ½ C¹/D,   ∂/∂s = ½(g² - h)

    Parameters
    ----------
    derivative : array             g, with the sign of the class
    curvature : array         h
    projected : pair          p and q
    c1 : array                C¹
    c2 : array                C²
    """
    p, q = projected
    remaining = 1.0 - c1 * q
    w = c1 * p - c2
    by_var = 0.5 * (derivative**2 - curvature)
    var = (derivative * w + by_var + 0.5 * w**2) / remaining**2 + 0.5 * c1 / remaining
    return Weights((derivative + w) / remaining, var, by_var + 0.0 * remaining)


def total_pull(
    weights: Weights, delta: Array, mu_tilde: Array, mean: Array, cov: Array, upsilon: Array, K_ZZ: Array
) -> Pull:
    r"""All of log Z_q of villacampa2017 for one class, Δ and μ̃ held: through q, and through the cavities by `weights`.

    With A = VΥw_p and S = ½(A mᵀ + m Aᵀ) + VΥ diag(w_q) ΥᵀV the prior's part and the data give

        ∂/∂υ_i = (μ̃_i + w_p,i) m - Δ_i (m p_i + Vυ_i) + 2 w_q,i Vυ_i + μ̃_i A - 2 Δ_i S υ_i
        ∂/∂K   = -½ M + K⁻¹ S K⁻¹

    Parameters
    ----------
    weights : Weights         w_p, w_q and derivatives in s, each (n,)
    delta : (n,)              Δ
    mu_tilde : (n,)           μ̃
    mean : (m,)               m
    cov : (m, m)              V
    upsilon : (n, m)          υ_i
    K_ZZ : (m, m)             prior covariance
    """
    rows = upsilon @ cov
    A = weights.mean @ rows
    S = 0.5 * (np.outer(A, mean) + np.outer(mean, A)) + (rows.T * weights.var) @ rows
    by_upsilon = (
        np.outer(mu_tilde + weights.mean - delta * (upsilon @ mean), mean)
        + (2.0 * weights.var - delta)[:, None] * rows
        + np.outer(mu_tilde, A)
        - 2.0 * delta[:, None] * (upsilon @ S)
    )
    inverse = factorise(K_ZZ, "K_ZZ", REMEDY).inverse
    return Pull(by_upsilon, weights.cond_var, inverse @ S @ inverse - 0.5 * prior_term_matrix(mean, cov, K_ZZ))


def total_pulls(
    sites: Coefficients, distributions: Distributions, y: Labels, K_ZZ: Array, weights: Array
) -> list[Pull]:
    """Derivatives of log Z_q of villacampa2017's EP in υ, s and K_ZZ of every class, coefficients held.

    Parameters
    ----------
    sites : Coefficients      each (n, C)
    distributions : Distributions    q and the cavities
    y : (n,)                  labels, 0..C-1
    K_ZZ : (C, m, m)          prior covariances
    weights : (n,)            of the data's terms
    """
    (g, h), (p, q) = pair_derivatives(distributions, y), projections(distributions.posterior, distributions.upsilon)
    own = np.arange(len(y)), y
    of_label = total_weights(g, h, (p[own][:, None], q[own][:, None]), sites.c1_label, sites.c2_label)
    of_other = total_weights(-g, h, (p, q), sites.c1_other, sites.c2_other)
    by_class = [weights * per_class(a, b, y) for a, b in zip(of_label, of_other, strict=True)]
    delta = per_class(sites.c1_label, sites.c1_other, y)
    mu_tilde = per_class(sites.c2_label, sites.c2_other, y)
    each = zip(
        zip(*by_class, strict=True), delta, mu_tilde, *distributions.posterior, distributions.upsilon, K_ZZ, strict=True
    )
    return [total_pull(Weights(*of_class), *rest) for of_class, *rest in each]


def tied_pull(
    weights: Weights, distribution: Cavity, cavity: Cavity, count: float, upsilon: Array, K_ZZ: Array
) -> Pull:
    r"""One class of SEP of villacampa2017: log Z_q = P + Σ log Z_{i,k} + n [g(θ\) - g(θ)], the tied factor held.

    Parameters
    ----------
    weights : Weights         derivatives of Σ log Z_{i,k} in υᵀm\, υᵀV\υ and s, each (n,)
    distribution : Cavity     m and V of q
    cavity : Cavity           m\ and V\
    count : float             n
    upsilon : (n, m)          υ_i
    K_ZZ : (m, m)             prior covariance
    """
    (mean, cov), (cavity_mean, cavity_cov) = distribution, cavity
    rows = upsilon @ cavity_cov
    by_upsilon = np.outer(weights.mean, cavity_mean) + 2.0 * weights.var[:, None] * rows
    A = weights.mean @ rows
    S = 0.5 * (np.outer(A, cavity_mean) + np.outer(cavity_mean, A)) + (rows.T * weights.var) @ rows
    moments = cavity_cov + np.outer(cavity_mean, cavity_mean) - cov - np.outer(mean, mean)
    inverse = factorise(K_ZZ, "K_ZZ", REMEDY).inverse
    by_K = inverse @ (S + 0.5 * count * moments) @ inverse - 0.5 * prior_term_matrix(mean, cov, K_ZZ)
    return Pull(by_upsilon, weights.cond_var, by_K)


def kernel_derivative(pull: Pull, upsilon: Array, K_ZZ: Array) -> Callable[[Array, Array, Array], float]:
    """From dK_ZZ (m, m), dK_XZ (n, m) and dk (n,) of one class to the derivative of log Z_q of villacampa2017.

    Parameters
    ----------
    pull : Pull               of the class
    upsilon : (n, m)          υ_i
    K_ZZ : (m, m)             prior covariance
    """
    solved = pull.upsilon @ factorise(K_ZZ, "K_ZZ", REMEDY).inverse
    by_XZ = solved - 2.0 * pull.cond_var[:, None] * upsilon
    by_ZZ = pull.K_ZZ - solved.T @ upsilon + (upsilon.T * pull.cond_var) @ upsilon

    def derivative(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
        return float(np.sum(by_ZZ * dK_ZZ) + np.sum(by_XZ * dK_XZ) + pull.cond_var @ dk)

    return derivative
