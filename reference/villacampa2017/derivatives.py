r"""Derivatives of log Z_q in the whole prior at once: section G, and the exact ones away from convergence.

log Z_q depends on the hyper-parameters by K_ZZ, υ and s of each class. A `Pull` holds its derivatives in these three as
if they were free; dυ = K⁻¹(dk - dK υ) and ds = dκ - 2 υᵀdk + υᵀdK υ lead back to the kernel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.gradients import prior_term_matrix
from reference.villacampa2017.model import REMEDY
from reference.villacampa2017.scalar import Projected

Array = NDArray[np.float64]


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


def held_cavity_weights(derivative: Array, curvature: Array, projected: Projected, c1: Array, c2: Array) -> Weights:
    r"""Direct dependence of log Z alone, below (10) of villacampa2017: the coefficients of m and Vυ in d log Z/dυ.

    With m\ and V\ held it is g m\ + (g² - h) V\υ, where m\ = m + Vυ (C¹p - C²)/D, V\υ = Vυ/D and D = 1 - C¹q.

    Parameters
    ----------
    derivative : array             g, with the sign of the class
    curvature : array         h
    projected : Projected     p and q
    c1 : array                C¹
    c2 : array                C²
    """
    remaining = 1.0 - c1 * projected.var
    mean = derivative * (c1 * projected.mean - c2) / remaining
    excess = derivative**2 - curvature
    return Weights(derivative + 0.0 * remaining, mean + excess / remaining, 0.5 * excess + 0.0 * remaining)


def total_weights(derivative: Array, curvature: Array, projected: Projected, c1: Array, c2: Array) -> Weights:
    r"""Derivatives of log s̃ = log Z + g(θ\) - g(θ) in p = υᵀm, q = υᵀVυ and s with C¹, C² of villacampa2017 held.

    With D = 1 - C¹q and w = C¹p - C²: the cavity has e = (p - C²q)/D and v = q/D, and

        ∂/∂p = (g + w)/D,   ∂/∂q = (g w + ½(g² - h) + ½ w²)/D² + ½ C¹/D,   ∂/∂s = ½(g² - h)

    Parameters
    ----------
    derivative : array             g, with the sign of the class
    curvature : array         h
    projected : Projected     p and q
    c1 : array                C¹
    c2 : array                C²
    """
    remaining = 1.0 - c1 * projected.var
    w = c1 * projected.mean - c2
    by_var = 0.5 * (derivative**2 - curvature)
    var = (derivative * w + by_var + 0.5 * w**2) / remaining**2 + 0.5 * c1 / remaining
    return Weights((derivative + w) / remaining, var, by_var + 0.0 * remaining)


def held_pull(weights: Weights, mean: Array, cov: Array, upsilon: Array, K_ZZ: Array) -> Pull:
    """(10) of villacampa2017 for one class: the prior's part by (63), (64), and `held_cavity_weights` of its factors.

    Parameters
    ----------
    weights : Weights         each (n,)
    mean : (m,)               m
    cov : (m, m)              V
    upsilon : (n, m)          υ_i
    K_ZZ : (m, m)             prior covariance
    """
    by_upsilon = weights.mean[:, None] * mean + weights.var[:, None] * (upsilon @ cov)
    return Pull(by_upsilon, weights.cond_var, -0.5 * prior_term_matrix(mean, cov, K_ZZ))


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


def tied_pull(
    weights: Weights, distribution: Cavity, cavity: Cavity, count: float, upsilon: Array, K_ZZ: Array, exact: bool
) -> Pull:
    r"""One class of SEP of villacampa2017, the tied factor held.

    `exact`: the derivative of log Z_q = P + Σ log Z_{i,k} + n [g(θ\) - g(θ)]; else formula (10), which leaves out what
    comes through the cavity, and the last bracket.

    Parameters
    ----------
    weights : Weights         derivatives of Σ log Z_{i,k} in υᵀm\, υᵀV\υ and s, each (n,)
    distribution : Cavity              m and V of q
    cavity : Cavity           m\ and V\
    count : float             n
    upsilon : (n, m)          υ_i
    K_ZZ : (m, m)             prior covariance
    exact : bool              which of the two
    """
    (mean, cov), (cavity_mean, cavity_cov) = distribution, cavity
    rows = upsilon @ cavity_cov
    by_upsilon = np.outer(weights.mean, cavity_mean) + 2.0 * weights.var[:, None] * rows
    by_K = -0.5 * prior_term_matrix(mean, cov, K_ZZ)
    if exact:
        A = weights.mean @ rows
        S = 0.5 * (np.outer(A, cavity_mean) + np.outer(cavity_mean, A)) + (rows.T * weights.var) @ rows
        moments = cavity_cov + np.outer(cavity_mean, cavity_mean) - cov - np.outer(mean, mean)
        inverse = factorise(K_ZZ, "K_ZZ", REMEDY).inverse
        by_K = by_K + inverse @ (S + 0.5 * count * moments) @ inverse
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
