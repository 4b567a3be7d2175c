"""Section 3: the evidence lower bound (11), its terms, and its gradient."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.logistic import log_sigmoid
from reference.common.logistic_expectation import expect_log_sigmoid
from reference.common.probit import expect_log_phi
from reference.izmailov2016._prior import Derivatives
from reference.izmailov2016.model import REMEDY_Z
from reference.izmailov2016.sparse import conditional_f_given_u, joint_prior_covariance, marginal_moments

Array = NDArray[np.float64]

_REMEDY_COV = "pass a positive definite inducing_cov"
LIKELIHOODS = ("logit", "probit")


class Expectation(NamedTuple):
    """E_q(f_i)[log p(y_i|f_i)] and its derivatives in m_i and S_i²."""

    value: Array  # (n,)
    by_mean: Array  # (n,)  E[g'(f_i)]
    by_var: Array  # (n,)   ½ E[g''(f_i)]


class ElboGradient(NamedTuple):
    """Derivatives of the bound, or of a mini-batch's estimate of it."""

    inducing_mean: Array  # (m,)
    inducing_cov: Array  # (m, m)    symmetric: the differential is tr(G dΣ)
    inducing_chol: Array  # (m, m)   in the lower triangle of L, Σ = LLᵀ
    derivatives: Derivatives  # in K_mm, K_nm and the diagonal of K_nn


def expectations(latent_mean: Array, latent_var: Array, y_sign: Array, likelihood: str = "logit") -> Expectation:
    """E[log p(y_i|f_i)] for f_i ~ N(m_i, S_i²), and derivatives in m_i and S_i², by piecewise quadrature.

    By the theorems of Bonnet and Price they are E[g'] and ½ E[g''] of g(f) = log p(y_i|f). Error about 1e-13.

    Parameters
    ----------
    latent_mean : (n,)        m_i
    latent_var : (n,)         S_i²
    y_sign : (n,)             labels
    likelihood : str          "logit", the paper's, or "probit"
    """
    # S_i² is >= 0, but for rounding where u fixes f_i
    var = np.maximum(latent_var, 0.0)
    expect = expect_log_sigmoid if likelihood == "logit" else expect_log_phi
    result = expect(y_sign * latent_mean, var)
    return Expectation(result.value, y_sign * result.first, 0.5 * result.second)


@equation("izmailov2016", "u3.1-ell-sum")
def expected_log_likelihood(latent_mean: Array, latent_var: Array, y_sign: Array, likelihood: str = "logit") -> float:
    """Expected log-likelihood as a sum of one-dimensional expectations: izmailov2016, section 3.1.

        E_{q(u,f)} log p(y|f) = E_{q(f)} log p(y|f) = Σ_i E_{q(f_i)} log p(y_i|f_i)

    Parameters
    ----------
    latent_mean : (n,)        m_i
    latent_var : (n,)         S_i²
    y_sign : (n,)             y, labels -1 or +1
    likelihood : str          "logit", the paper's, or "probit"
    """
    return float(np.sum(expectations(latent_mean, latent_var, y_sign, likelihood).value))


@equation("izmailov2016", "u3.1-kl-collapse")
def kl_joint(inducing_mean: Array, inducing_cov: Array, K_ZZ: Array, K_XZ: Array, K_XX: Array) -> float:
    """Divergence over inducing and training values together: izmailov2016, section 3.1.

        KL(q(u, f)||p(u, f)) = KL(q(u)p(f|u)||p(u)p(f|u)) = KL(q(u)||p(u))

    The left-hand side, as a divergence of two Gaussians of n + m variables; that it is the right-hand side,
    `kl_gaussian`, is what the paper claims.

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Raises
    ------
    NotPositiveDefiniteError  if the joint prior or inducing_cov is singular
    """
    kappa = K_XZ @ factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    given = conditional_f_given_u(inducing_mean, K_ZZ, K_XZ, K_XX)
    mean = np.concatenate([given.mean, inducing_mean])
    cross = kappa @ inducing_cov
    cov = np.block([[given.cov + cross @ kappa.T, cross], [cross.T, inducing_cov]])
    prior = factorise(joint_prior_covariance(K_ZZ, K_XZ, K_XX), "K([X, Z], [X, Z])", "raise noise or jitter")
    log_det = factorise(cov, "cov of q(u, f)", _REMEDY_COV).log_det
    trace, quadratic = np.sum(prior.inverse * cov), mean @ prior.inverse @ mean
    return float(0.5 * (trace + quadratic - len(mean) + prior.log_det - log_det))


@equation("izmailov2016", "u3.1-kl-gauss")
def kl_gaussian(inducing_mean: Array, inducing_cov: Array, K_ZZ: Array) -> float:
    """Divergence of q(u) from its prior: izmailov2016, sections 3.1 and 4.2.

        KL(q(u)||p(u)) = ½ ( log(|K_mm|/|Σ|) - m + tr(K_mm⁻¹Σ) + μᵀK_mm⁻¹μ )

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_ZZ : (m, m)             K_mm

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ or inducing_cov is singular
    """
    K = factorise(K_ZZ, "K_ZZ", REMEDY_Z)
    Sigma = factorise(inducing_cov, "inducing_cov", _REMEDY_COV)
    quadratic = inducing_mean @ K.inverse @ inducing_mean
    return float(0.5 * (K.log_det - Sigma.log_det - len(inducing_mean) + np.sum(K.inverse * inducing_cov) + quadratic))


@equation("izmailov2016", "11")
def elbo(
    inducing_mean: Array,
    inducing_cov: Array,
    y_sign: Array,
    K_ZZ: Array,
    K_XZ: Array,
    k_xx: Array,
    likelihood: str = "logit",
) -> float:
    """Evidence lower bound with inducing inputs: izmailov2016 (11), every constant included.

        log p(y) >= Σ_i E_{q(f_i)} log p(y_i|f_i) - KL(q(u)||p(u))                            (11)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               K_ii, noise included
    likelihood : str          "logit", the paper's, or "probit"

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ or inducing_cov is singular
    """
    q = marginal_moments(inducing_mean, inducing_cov, K_ZZ, K_XZ, k_xx)
    return expected_log_likelihood(*q, y_sign, likelihood) - kl_gaussian(inducing_mean, inducing_cov, K_ZZ)


@equation("izmailov2016", "u3.2-quadrature")
def gauss_hermite_expectation(latent_mean: Array, latent_var: Array, y_sign: Array, n_nodes: int) -> Array:
    """E_{q(f_i)} log σ(y_i f_i) by Gauss-Hermite quadrature: izmailov2016, section 3.2, after its [2].

        E ≈ π^(-½) Σ_r w_r log σ(y_i (m_i + √2 S_i x_r))

    Parameters
    ----------
    latent_mean : (n,)        m_i
    latent_var : (n,)         S_i²
    y_sign : (n,)             labels
    n_nodes : int             nodes x_r with weights w_r of ∫ e^(-x²) g(x) dx

    Returns
    -------
    (n,)

    Notes
    -----
    log σ has poles at distance π from the real axis, so the number of nodes for a given error grows as S_i²; the
    bounds of this package use `expectations`, whose error does not depend on it.
    """
    nodes, weights = np.polynomial.hermite.hermgauss(n_nodes)
    f = latent_mean[:, None] + np.sqrt(2.0 * latent_var)[:, None] * nodes
    return log_sigmoid(y_sign[:, None] * f) @ weights / np.sqrt(np.pi)


@equation("izmailov2016", "u3.2-svi-gradient")
def elbo_gradient(
    inducing_mean: Array,
    inducing_chol: Array,
    y_sign: Array,
    K_ZZ: Array,
    K_XZ: Array,
    k_xx: Array,
    weight: float = 1.0,
    likelihood: str = "logit",
) -> ElboGradient:
    """Gradient of (11) in μ, Σ, its factor L and the entries of the prior's matrices: izmailov2016, section 3.2.

    With p_i = E[g'(f_i)], s_i = ½ E[g''(f_i)], rows κ_i = k_iᵀK_mm⁻¹ and α = K_mm⁻¹μ, by hand:

        ∂/∂μ = Σ_i p_i κ_iᵀ - α,   ∂/∂Σ = Σ_i s_i κ_iᵀκ_i - ½ K_mm⁻¹ + ½ Σ⁻¹,   ∂/∂L = tril(2 ∂/∂Σ L)
        dκ = (dK_nm - κ dK_mm) K_mm⁻¹,   dm_i = dκ_i μ,
        dS_i² = dK_ii - 2 κ_i dk_i + κ_i dK_mm κ_iᵀ + 2 dκ_i Σ κ_iᵀ

    of which the matrices that multiply dK_nm and dK_mm are collected.

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_chol : (m, m)    L, lower triangular, Σ = LLᵀ
    y_sign : (n,)             labels of the data in K_XZ and k_xx: all, or a mini-batch
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               K_ii
    weight : float            n/s for a mini-batch of s data; 1 for all
    likelihood : str          "logit", the paper's, or "probit"

    Returns
    -------
    ElboGradient              inducing_mean (m,), inducing_cov, inducing_chol (m, m), derivatives

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ or LLᵀ is singular
    """
    mu, L = inducing_mean, inducing_chol
    Sigma = L @ L.T
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    Sigma_inverse = factorise(Sigma, "inducing_cov", _REMEDY_COV).inverse
    kappa = K_XZ @ K_inverse
    q = marginal_moments(mu, Sigma, K_ZZ, K_XZ, k_xx)
    data = expectations(*q, y_sign, likelihood)
    p, s = weight * data.by_mean, weight * data.by_var
    alpha = K_inverse @ mu
    by_Sigma = (kappa.T * s) @ kappa + 0.5 * (Sigma_inverse - K_inverse)
    by_kappa = (np.outer(p, mu) + 2.0 * s[:, None] * (kappa @ Sigma)) @ K_inverse
    by_prior = 0.5 * (K_inverse - K_inverse @ Sigma @ K_inverse - np.outer(alpha, alpha))  # of KL, in K_mm
    derivatives = Derivatives(
        -kappa.T @ by_kappa + (kappa.T * s) @ kappa - by_prior,
        by_kappa - 2.0 * s[:, None] * kappa,
        s,
    )
    return ElboGradient(kappa.T @ p - alpha, by_Sigma, np.tril(2.0 * by_Sigma @ L), derivatives)


def elbo_gradients_at_maximum(
    inducing_mean: Array,
    inducing_cov: Array,
    y_sign: Array,
    K_ZZ: Array,
    K_XZ: Array,
    k_xx: Array,
    likelihood: str = "logit",
) -> Derivatives:
    """`elbo_gradient`'s derivatives in the prior's matrices where q(u) maximises (11).

    There Σ⁻¹ = K_mm⁻¹ - 2 κᵀdiag(s)κ and α = κᵀp, so that of the divergence

        ∂KL/∂K_mm = ½ (K_mm⁻¹ - K_mm⁻¹ΣK_mm⁻¹ - ααᵀ) = -κᵀdiag(s)κ ΣK_mm⁻¹ - ½ κᵀp pᵀκ

    in which nothing cancels: a last step of μ or Σ is not multiplied by K_mm⁻¹ twice.

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    y_sign : (n,)             labels
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               K_ii
    likelihood : str          "logit" or "probit"

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    kappa = K_XZ @ K_inverse
    data = expectations(*marginal_moments(inducing_mean, inducing_cov, K_ZZ, K_XZ, k_xx), y_sign, likelihood)
    p, s = data.by_mean, data.by_var
    shrunk = inducing_cov @ K_inverse  # ΣK_mm⁻¹
    alpha = kappa.T @ p
    by_kappa = np.outer(p, alpha) + 2.0 * s[:, None] * (kappa @ shrunk)
    by_prior = -(kappa.T * s) @ kappa @ shrunk - 0.5 * np.outer(alpha, alpha)
    return Derivatives(
        -kappa.T @ by_kappa + (kappa.T * s) @ kappa - by_prior,
        by_kappa - 2.0 * s[:, None] * kappa,
        s,
    )
