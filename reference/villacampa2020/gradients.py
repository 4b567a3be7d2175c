r"""Appendix A.7: the gradient of log Z_q in the hyper-parameters, of all data or of a mini-batch, and rules for steps.

Away from convergence it depends on what is held of the approximate factors: their natural parameters as matrices C¹υυᵀ
and vectors C²υ, as (A.28) has it, or the numbers C¹ and C². At a fixed point the two agree.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._learning import Derivative
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.hyper import Matrices
from reference.villacampa2020.pep import TiltedDistribution
from reference.villacampa2020.posterior import REMEDY, Coefficients, Gaussians
from reference.villacampa2020.sparse import latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Direction(NamedTuple):
    """Derivatives of the prior matrices of one class by one of its hyper-parameters, ξ_j^k."""

    K_ZZ: Array  # (m, m)
    K_XZ: Array  # (n, m)
    k_xx: Array  # (n,)


class Pull(NamedTuple):
    """Derivatives of an objective in υ, s and K_ZZ of one class, as if they were free of one another."""

    upsilon: Array  # (n, m)
    cond_var: Array  # (n,)
    K_ZZ: Array  # (m, m)


@equation("villacampa2020", "A.30")
def prior_term_matrix(inducing_mean: Array, inducing_cov: Array, K_ZZ: Array) -> Array:
    """M_k = K⁻¹ - K⁻¹VK⁻¹ - K⁻¹mmᵀK⁻¹, a matrix (m, m): (A.30) of villacampa2020.

    Parameters
    ----------
    inducing_mean : (m,)      m of one class
    inducing_cov : (m, m)     V of the class
    K_ZZ : (m, m)             its prior covariance K

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    inverse = factorise(K_ZZ, "K_ZZ", REMEDY).inverse
    return inverse - inverse @ (inducing_cov + np.outer(inducing_mean, inducing_mean)) @ inverse


@equation("villacampa2020", "A.29")
def prior_term_gradient(matrix: Array, dK: Array) -> float:
    """(η - η_prior)ᵀ ∂θ_prior/∂ξ = -½ trace(M_kᵀ ∂K_ZZ/∂ξ): (A.29) of villacampa2020, one class.

    Parameters
    ----------
    matrix : (m, m)           M_k
    dK : (m, m)               ∂K_ZZ/∂ξ
    """
    return float(-0.5 * np.sum(matrix * dK))


@equation("villacampa2020", "u32-trace-rotation")
def cyclic_trace(matrices: Sequence[Array]) -> float:
    """trace(ABCD) as trace(DABC): below (A.30) of villacampa2020, for any number of factors.

    Parameters
    ----------
    matrices : sequence       conformable matrices A, B, ..., D whose product is square
    """
    product = matrices[-1]
    for matrix in matrices[:-1]:
        product = product @ matrix
    return float(np.trace(product))


def kernel_derivative(pull: Pull, upsilon: Array, K_ZZ: Array) -> Derivative:
    """From dK_ZZ (m, m), dK_XZ (n, m) and dκ (n,) of one class to the derivative of an objective of villacampa2020.

    dυ = K⁻¹(dk - dK υ) and ds = dκ - 2 υᵀdk + υᵀdK υ.

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


def held_numbers_pulls(
    coefficients: Coefficients,
    posterior: Gaussians,
    powers: tuple[Array, Array],
    K: Matrices,
    alpha: float,
    weights: Array,
) -> list[Pull]:
    r"""The total derivative of log Z_q of villacampa2020 with the numbers C¹ and C² held; each class's `Pull`.

    A datum's term F + (1/α)[g(θ\) - g(θ)] has the derivatives (g + w)/D in p = υᵀm, [αgw + ∂F/∂b + ½αw²]/D² + ½C¹/D in
    q = υᵀVυ, and ∂F/∂b in s. With these as w_p, w_q, A = VΥw_p and S = ½(Amᵀ + mAᵀ) + VΥ diag(w_q) ΥᵀV

        ∂/∂υ_i = (C²_i + w_p,i) m - C¹_i (m p_i + Vυ_i) + 2 w_q,i Vυ_i + C²_i A - 2 C¹_i S υ_i
        ∂/∂K   = -½ M + K⁻¹ S K⁻¹

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    powers : pair of (n, C)       derivatives of F by the mean and variance of f_i under the cavity
    K : Matrices                  of the prior
    alpha : float                 α in [0, 1]
    weights : (n,)                of the data's terms: ones, or n/b in a mini-batch and zero elsewhere

    Returns
    -------
    list                          one a class
    """
    p, q = latent_marginal(posterior, K.upsilon, np.zeros_like(K.cond_var))
    remaining, w = 1.0 - alpha * coefficients.c1 * q, coefficients.c1 * p - coefficients.c2
    results = []
    for k, (m, V) in enumerate(zip(posterior.mean, posterior.cov, strict=True)):
        upsilon, left, away = K.upsilon[k], remaining[:, k], w[:, k]
        c1, c2 = coefficients.c1[:, k], coefficients.c2[:, k]
        g, by_var = powers[0][:, k], powers[1][:, k]
        w_p = weights * (g + away) / left
        w_q = weights * ((alpha * g * away + by_var + 0.5 * alpha * away**2) / left**2 + 0.5 * c1 / left)
        rows = upsilon @ V
        A = w_p @ rows
        S = 0.5 * (np.outer(A, m) + np.outer(m, A)) + (rows.T * w_q) @ rows
        by_upsilon = (
            np.outer(c2 + w_p - c1 * p[:, k], m)
            + (2.0 * w_q - c1)[:, None] * rows
            + np.outer(c2, A)
            - 2.0 * c1[:, None] * (upsilon @ S)
        )
        inverse = factorise(K.K_ZZ[k], "K_ZZ", REMEDY).inverse
        by_K = inverse @ S @ inverse - 0.5 * prior_term_matrix(m, V, K.K_ZZ[k])
        results.append(Pull(by_upsilon, weights * by_var, by_K))
    return results


@equation("villacampa2020", "A.28")
def pep_log_evidence_gradient(
    k: int,
    posterior: Gaussians,
    tilted: Sequence[TiltedDistribution],
    K: Matrices,
    alpha: float,
    direction: Direction,
    weight: float = 1.0,
) -> float:
    r"""∂ log Z_q/∂ξ_j^k with the factors' natural parameters held: (A.28) of villacampa2020, corrected.

        (η - η_prior)ᵀ ∂θ_prior + (1/α) Σ_i { ∂ log E_{q\}[p(y_i|f_i)^α] + (η\ - η)ᵀ ∂θ_prior }

    The derivative of log E holds its dependence on θ\, which moves as θ_prior does. (A.28) prints the expectation under
    q, and no (1/α) Σ before the last term.

    Parameters
    ----------
    k : int                   the class of ξ
    posterior : Gaussians     q(f̄)
    tilted : sequence         p̂ of each of the data, with cavity and derivatives of log Z_i
    K : Matrices              of the prior and these data
    alpha : float             α in (0, 1]
    direction : Direction     derivatives of the prior matrices by ξ
    weight : float            of the sum over data: n/b for a mini-batch

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    dK, dk, dkappa = direction
    inverse = factorise(K.K_ZZ[k], "K_ZZ", REMEDY).inverse
    upsilon, minus_d_inverse = K.upsilon[k], inverse @ dK @ inverse  # -∂K⁻¹: what θ_prior, θ and θ\ lose
    M = prior_term_matrix(posterior.mean[k], posterior.cov[k], K.K_ZZ[k])  # (A.30)
    total = 0.0
    for i, distribution in enumerate(tilted):
        m, V, u = distribution.cavity.mean[k], distribution.cavity.cov[k], upsilon[i]
        d_u = inverse @ (dk[i] - dK @ u)
        d_m, d_V = V @ minus_d_inverse @ m, V @ minus_d_inverse @ V
        d_mean = d_u @ m + u @ d_m  # ∂a of (A.10)
        d_var = dkappa[i] - 2.0 * u @ dk[i] + u @ dK @ u + 2.0 * u @ V @ d_u + u @ d_V @ u  # ∂b of (A.11)
        total += float(distribution.d_mean[k] * d_mean + distribution.d_var[k] * d_var)  # ∂ log E
        total += prior_term_gradient(prior_term_matrix(m, V, K.K_ZZ[k]) - M, dK)  # (η\ - η)ᵀ ∂θ_prior
    return prior_term_gradient(M, dK) + weight * total / alpha  # (A.28), (A.29)


def pep_limit_gradient(
    k: int,
    posterior: Gaussians,
    coefficients: Coefficients,
    powers: tuple[Array, Array],
    K: Matrices,
    direction: Direction,
    weight: float = 1.0,
) -> float:
    r"""(A.28) of villacampa2020 as α -> 0: the cavity is q, and (1/α)(η\ - η) tends to the derivative of η along -θ_i.

    With w = C¹ υᵀm - C² that is ∂m = Vυ w and ∂V = C¹ VυυᵀV. The change of θ\ that θ_prior makes is that of q.

    Parameters
    ----------
    k : int                       the class of ξ
    posterior : Gaussians         q(f̄)
    coefficients : Coefficients   of these data, each (b, C)
    powers : pair of (b, C)       derivatives of E[log p(y_i|f_i)] by the mean and variance of f_i
    K : Matrices                  of the prior and these data
    direction : Direction         derivatives of the prior matrices by ξ
    weight : float                of the sum over data: n/b for a mini-batch

    Raises
    ------
    NotPositiveDefiniteError      if K_ZZ is singular
    """
    dK, dk, dkappa = direction
    m, V = posterior.mean[k], posterior.cov[k]
    inverse = factorise(K.K_ZZ[k], "K_ZZ", REMEDY).inverse
    minus_d_inverse = inverse @ dK @ inverse
    d_m, d_V = V @ minus_d_inverse @ m, V @ minus_d_inverse @ V
    total = 0.0
    for i, u in enumerate(K.upsilon[k]):
        c1, c2, g, by_var = (float(part[i, k]) for part in (*coefficients, *powers))
        d_u = inverse @ (dk[i] - dK @ u)
        d_mean = d_u @ m + u @ d_m  # ∂a of (A.10)
        d_var = dkappa[i] - 2.0 * u @ dk[i] + u @ dK @ u + 2.0 * u @ V @ d_u + u @ d_V @ u  # ∂b of (A.11)
        V_u, w = V @ u, c1 * (u @ m) - c2
        d_second = c1 * np.outer(V_u, V_u) + w * (np.outer(V_u, m) + np.outer(m, V_u))
        total += float(g * d_mean + by_var * d_var) + 0.5 * float(np.sum(d_second * minus_d_inverse))
    M = prior_term_matrix(m, V, K.K_ZZ[k])  # (A.30)
    return prior_term_gradient(M, dK) + weight * total  # (A.29)


@equation("villacampa2020", "u33-adaptive-learning-rate")
def adaptive_learning_rate(gradient: Array, previous: Array, rates: Array) -> Array:
    """Rates (h,), two per cent up where the gradient keeps its sign, halved elsewhere: section A.7 of villacampa2020.

    Parameters
    ----------
    gradient : (h,)           of this iteration
    previous : (h,)           of the iteration before
    rates : (h,)              rates of the iteration before
    """
    return np.where(np.sign(gradient) == np.sign(previous), 1.02, 0.5) * rates
