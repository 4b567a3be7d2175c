"""Section 4.2: the local quadratic approximation, (16) to (19), for the logit and, as section 6 says, others."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.logistic import log_sigmoid
from reference.common.probit import mills_derivative
from reference.izmailov2016._prior import Derivatives
from reference.izmailov2016.bound import kl_gaussian
from reference.izmailov2016.jaakkola_jordan import collapsed
from reference.izmailov2016.model import REMEDY_Z

Array = NDArray[np.float64]


class Expansion(NamedTuple):
    """log p(y_i|f_i) at ξ_i: value, first derivative, half of the negative second."""

    value: Array  # (n,)
    phi: Array  # (n,)
    psi: Array  # (n,)


def expansion(xi: Array, y_sign: Array, likelihood: str = "logit") -> Expansion:
    """Value and derivatives of log p(y_i|f_i) at f_i = ξ_i; xi, y_sign (n,), likelihood "logit" or "probit"."""
    z = y_sign * xi
    if likelihood == "logit":
        return Expansion(log_sigmoid(z), taylor_phi(xi, y_sign), taylor_psi(xi, y_sign))
    first, second = mills_derivative(z)
    return Expansion(log_ndtr(z), y_sign * first, -0.5 * second)


@equation("izmailov2016", "16")
def taylor_log_likelihood(latent_values: Array, xi: Array, y_sign: Array, likelihood: str = "logit") -> Array:
    """Second-order expansion of the log-likelihood: izmailov2016 (16).

        log p(y_i|f_i) ≈ -log(1 + exp(-y_i ξ_i)) + y_i/(1 + exp(y_i ξ_i)) (f_i - ξ_i)
                         - y_i² exp(y_i ξ_i)/(2 (1 + exp(y_i ξ_i))²) (f_i - ξ_i)²             (16)

    Parameters
    ----------
    latent_values : (n,)      f
    xi : (n,)                 ξ, where it is expanded
    y_sign : (n,)             y, labels -1 or +1
    likelihood : str          "logit"; for "probit" the derivatives of log Φ(y_i f_i) stand in their places

    Returns
    -------
    (n,)
    """
    at = expansion(xi, y_sign, likelihood)
    gap = latent_values - xi
    return at.value + at.phi * gap - at.psi * gap**2


@equation("izmailov2016", "u4.2-approx-bound")
def taylor_bound(
    inducing_mean: Array,
    inducing_cov: Array,
    xi: Array,
    y_sign: Array,
    K_ZZ: Array,
    K_XZ: Array,
    k_xx: Array,
    likelihood: str = "logit",
) -> float:
    """The bound (11) with the expansion inserted: izmailov2016, section 4.2. An approximation, not a bound.

        - Σ_i log(1 + exp(-y_i ξ_i)) + φ(ξ)ᵀ(K_nm K_mm⁻¹μ - ξ)
        - tr(Ψ(ξ)(K_nn + K_nm K_mm⁻¹(Σ - K_mm)K_mm⁻¹K_mn))
        - (K_nm K_mm⁻¹μ - ξ)ᵀΨ(ξ)(K_nm K_mm⁻¹μ - ξ)
        - ½ (log(|K_mm|/|Σ|) - m + tr(K_mm⁻¹Σ) + μᵀK_mm⁻¹μ)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn
    likelihood : str          "logit" or "probit"

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ or inducing_cov is singular
    """
    at = expansion(xi, y_sign, likelihood)
    kappa = K_XZ @ factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    gap = kappa @ inducing_mean - xi
    of_q_f = k_xx + np.sum((kappa @ (inducing_cov - K_ZZ)) * kappa, axis=1)
    data = np.sum(at.value) + at.phi @ gap - at.psi @ of_q_f - at.psi @ gap**2
    return float(data - kl_gaussian(inducing_mean, inducing_cov, K_ZZ))


@equation("izmailov2016", "u4.2-Psi")
def taylor_psi(xi: Array, y_sign: Array) -> Array:
    """Diagonal of Ψ: izmailov2016, section 4.2.

        ψ(ξ_i) = y_i² exp(y_i ξ_i) / (2 (1 + exp(y_i ξ_i))²)

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1

    Returns
    -------
    (n,), in the log domain: ½ σ(y_i ξ_i) σ(-y_i ξ_i)
    """
    z = y_sign * xi
    return 0.5 * y_sign**2 * np.exp(log_sigmoid(z) + log_sigmoid(-z))


@equation("izmailov2016", "u4.2-phi")
def taylor_phi(xi: Array, y_sign: Array) -> Array:
    """First derivatives of the log-likelihood: izmailov2016, section 4.2.

        φ(ξ)_i = y_i / (1 + exp(y_i ξ_i))

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1

    Returns
    -------
    (n,), in the log domain: y_i σ(-y_i ξ_i)
    """
    return y_sign * np.exp(log_sigmoid(-y_sign * xi))


@equation("izmailov2016", "u4.2-v")
def taylor_v(phi: Array, psi: Array, xi: Array) -> Array:
    """Working response of the expansion: izmailov2016, section 4.2.

        v(ξ) = φ(ξ) + 2 Ψ(ξ) ξ

    Parameters
    ----------
    phi : (n,)                φ(ξ)
    psi : (n,)                diagonal of Ψ(ξ)
    xi : (n,)                 ξ
    """
    return phi + 2.0 * psi * xi


@equation("izmailov2016", "17")
def taylor_optimal_covariance(xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, likelihood: str = "logit") -> Array:
    """Covariance of the inducing values for the expansion: izmailov2016 (17).

        Σ̂(ξ) = (2 K_mm⁻¹K_mn Ψ(ξ) K_nm K_mm⁻¹ + K_mm⁻¹)⁻¹                                    (17)

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    likelihood : str          "logit" or "probit"

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    kappa = K_XZ @ K_inverse  # K_nm K_mm⁻¹
    precision = 2.0 * (kappa.T * expansion(xi, y_sign, likelihood).psi) @ kappa + K_inverse
    return factorise(0.5 * (precision + precision.T), "precision of q(u)", REMEDY_Z).inverse


@equation("izmailov2016", "18")
def taylor_optimal_mean(xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, likelihood: str = "logit") -> Array:
    """Mean of the inducing values for the expansion: izmailov2016 (18).

        μ̂(ξ) = Σ̂(ξ) K_mm⁻¹K_mn v(ξ)                                                          (18)

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    likelihood : str          "logit" or "probit"

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    at = expansion(xi, y_sign, likelihood)
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    Sigma = taylor_optimal_covariance(xi, y_sign, K_ZZ, K_XZ, likelihood)
    return Sigma @ K_inverse @ (K_XZ.T @ taylor_v(at.phi, at.psi, xi))


@equation("izmailov2016", "u4.2-xi")
def taylor_xi(latent_mean: Array) -> Array:
    """Rule for the expansion points: izmailov2016, section 4.2.

        ξ_i = m_i

    Parameters
    ----------
    latent_mean : (n,)        m_i of (10)

    Notes
    -----
    The paper says that this makes the derivative of the approximate bound in ξ zero. It does not: see
    `taylor_xi_derivative`. It is Newton's method: at its fixed point μ is the mode of p(u) Π_i p(y_i|κ_i u), Σ the
    inverse Hessian there.
    """
    return np.array(latent_mean, dtype=float)


@equation("izmailov2016", "u4.2-xi")
def taylor_xi_derivative(xi: Array, latent_mean: Array, latent_var: Array, y_sign: Array) -> Array:
    """Derivative of the approximate bound in ξ, logit: what section 4.2 of izmailov2016 sets to zero, derived.

        ∂/∂ξ_i = ½ g'''(ξ_i) ((m_i - ξ_i)² + S_i²),   g(f) = log σ(y_i f)

    with g'''(ξ_i) = y_i σ(z)σ(-z)(2σ(z) - 1), z = y_i ξ_i. At ξ_i = m_i it is ½ g'''(m_i) S_i², zero only for m_i = 0
    or S_i² = 0.

    Parameters
    ----------
    xi : (n,)                 ξ
    latent_mean : (n,)        m_i
    latent_var : (n,)         S_i²
    y_sign : (n,)             y, labels -1 or +1
    """
    z = y_sign * xi
    third = y_sign * 2.0 * taylor_psi(xi, y_sign) * np.tanh(0.5 * z)  # 2σ(z) - 1 = tanh(z/2)
    return 0.5 * third * ((latent_mean - xi) ** 2 + latent_var)


@equation("izmailov2016", "19")
def taylor_collapsed_bound(
    xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array, likelihood: str = "logit"
) -> float:
    """Compact approximate bound, μ and Σ eliminated, at fixed ξ: izmailov2016 (19) with every constant.

        J̃_ξ = ½ v(ξ)ᵀK_nm B⁻¹K_mn v(ξ) + ½ log|K_mm| - ½ log|B| - tr(Ψ(ξ)K̃)
              + Σ_i (log p(y_i|ξ_i) - φ_i ξ_i - ψ_i ξ_i²),
        B = 2 K_mn Ψ(ξ) K_nm + K_mm                                                           (19)

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn
    likelihood : str          "logit" or "probit"

    Returns
    -------
    Max over μ and Σ of the approximate bound; no lower bound on log p(y)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular

    Notes
    -----
    The second line does not depend on θ; the paper omits it, and says so. K_nm B⁻¹K_mn is worked out as κΣ̂κᵀ with
    Σ̂ = K_mm B⁻¹K_mm of (17), which is better conditioned than B.
    """
    at = expansion(xi, y_sign, likelihood)
    v = taylor_v(at.phi, at.psi, xi)
    K = factorise(K_ZZ, "K_ZZ", REMEDY_Z)
    B = factorise(2.0 * K_XZ.T @ (at.psi[:, None] * K_XZ) + K_ZZ, "B", REMEDY_Z)
    kappa = K_XZ @ K.inverse
    K_tilde = k_xx - np.sum(kappa * K_XZ, axis=1)  # diagonal of K̃
    quadratic = v @ (kappa @ (taylor_optimal_covariance(xi, y_sign, K_ZZ, K_XZ, likelihood) @ (kappa.T @ v)))
    constant = float(np.sum(at.value - at.phi * xi - at.psi * xi**2))
    return float(0.5 * quadratic + 0.5 * K.log_det - 0.5 * B.log_det - at.psi @ K_tilde + constant)


def taylor_collapsed_gradient(
    xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array, likelihood: str = "logit"
) -> Derivatives:
    """Derivatives of (19) of izmailov2016 in the entries of the prior's matrices, ξ held; by hand in `collapsed`.

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn
    likelihood : str          "logit" or "probit"
    """
    at = expansion(xi, y_sign, likelihood)
    Sigma = taylor_optimal_covariance(xi, y_sign, K_ZZ, K_XZ, likelihood)
    return collapsed(Sigma, at.psi, taylor_v(at.phi, at.psi, xi), K_ZZ, K_XZ, k_xx).derivatives
