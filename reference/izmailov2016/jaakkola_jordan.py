"""Section 4.1: the global bound of Jaakkola and Jordan, (12) to (15), and the gradient of (14)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.logistic import log_sigmoid
from reference.izmailov2016._prior import Derivatives
from reference.izmailov2016.bound import kl_gaussian
from reference.izmailov2016.model import REMEDY_Z

Array = NDArray[np.float64]


class QuadraticBound(NamedTuple):
    """A bound and its coefficient."""

    value: Array  # (n,)
    lam: Array  # (n,)  λ(ξ)


class CollapsedGradient(NamedTuple):
    """Derivatives of the compact bound."""

    derivatives: Derivatives  # in K_mm, K_nm and the diagonal of K_nn
    xi: Array  # (n,)


def jj_lambda(xi: Array) -> Array:
    """λ(ξ) = tanh(ξ/2) / (4ξ), ⅛ at ξ = 0; xi of any shape."""
    size = np.abs(np.asarray(xi, dtype=float))
    safe = np.where(size > 1e-8, size, 1.0)  # below, tanh(ξ/2)/(4ξ) = ⅛ (1 - ξ²/12) is ⅛ to rounding
    return np.where(size > 1e-8, np.tanh(0.5 * safe) / (4.0 * safe), 0.125)


def jj_lambda_derivative(xi: Array) -> Array:
    """λ'(ξ) = (ξ/2 (1 - t²) - t) / (4ξ²), t = tanh(ξ/2), and its series about 0 where that cancels; xi of any shape."""
    xi = np.asarray(xi, dtype=float)
    far = np.abs(xi) > 0.1
    safe = np.where(far, xi, 1.0)
    t = np.tanh(0.5 * safe)
    x = 0.5 * xi
    near = (x / 8.0) * (
        -1.0 / 3.0 + 4.0 * x**2 / 15.0 - 17.0 * x**4 / 105.0 + 248.0 * x**6 / 2835.0 - 1382.0 * x**8 / 31185.0
    )
    return np.where(far, (0.5 * safe * (1.0 - t**2) - t) / (4.0 * safe**2), near)


@equation("izmailov2016", "u4.1-jj")
def jaakkola_jordan_bound(t: Array, xi: Array) -> QuadraticBound:
    """Quadratic lower bound on the log-logistic function: izmailov2016, section 4.1, with λ corrected.

        log σ(t) >= t/2 - ξ/2 + log σ(ξ) - λ(ξ)(t² - ξ²),   λ(ξ) = tanh(ξ/2) / (4ξ)

    Equal where t² = ξ².

    Parameters
    ----------
    t : (n,)                  arguments
    xi : (n,)                 ξ, parameters of the bound

    Returns
    -------
    QuadraticBound            value (n,), lam (n,)

    Notes
    -----
    The paper prints λ(ξ) = tanh(ξ)/(4ξ), with which the line crosses log σ at t² = ξ²: see `errata`.
    """
    lam = jj_lambda(xi)
    # t² - ξ² as a product: large equal arguments cancel without loss
    return QuadraticBound(0.5 * (t - xi) + log_sigmoid(xi) - lam * (t - xi) * (t + xi), lam)


@equation("izmailov2016", "u4.1-Lambda")
def lambda_matrix(xi: Array) -> Array:
    """Diagonal matrix of bound coefficients: izmailov2016, section 4.1.

        Λ(ξ) = diag(λ(ξ_1), ..., λ(ξ_n)),   λ(ξ) = tanh(ξ/2) / (4ξ)

    Parameters
    ----------
    xi : (n,)                 ξ

    Returns
    -------
    (n,), the diagonal

    Notes
    -----
    λ is the coefficient in `jaakkola_jordan_bound`, as corrected there.
    """
    return jaakkola_jordan_bound(xi, xi).lam


@equation("izmailov2016", "u4.1-J")
def jj_bound(
    inducing_mean: Array, inducing_cov: Array, xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array
) -> float:
    """Tractable lower bound for any μ, Σ, ξ: izmailov2016, section 4.1.

        J(μ, Σ, ξ, θ) = Σ_i (log σ(ξ_i) - ξ_i/2 + λ(ξ_i)ξ_i²) + ½ μᵀK_mm⁻¹K_mn y
                        - tr(Λ(ξ)(K_nn + K_nm K_mm⁻¹(Σ - K_mm)K_mm⁻¹K_mn))
                        - μᵀK_mm⁻¹K_mn Λ(ξ) K_nm K_mm⁻¹μ - KL(q(u)||p(u))

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn

    Returns
    -------
    J, a lower bound on (11) and so on log p(y)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ or inducing_cov is singular
    """
    lam = lambda_matrix(xi)
    kappa = K_XZ @ factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    projected = kappa @ inducing_mean
    of_q_f = k_xx + np.sum((kappa @ (inducing_cov - K_ZZ)) * kappa, axis=1)
    data = 0.5 * y_sign @ projected - lam @ of_q_f - lam @ projected**2
    return float(jj_constant(xi) + data - kl_gaussian(inducing_mean, inducing_cov, K_ZZ))


def jj_constant(xi: Array) -> float:
    """Σ_i (log σ(ξ_i) - ξ_i/2 + λ(ξ_i)ξ_i²), the terms that depend on xi (n,) alone: the bounds on log σ(0)."""
    return float(np.sum(jaakkola_jordan_bound(np.zeros_like(xi), np.abs(xi)).value))


@equation("izmailov2016", "12")
def jj_optimal_covariance(xi: Array, K_ZZ: Array, K_XZ: Array) -> Array:
    """Covariance of the inducing values that maximises J: izmailov2016 (12).

        Σ̂(ξ) = (2 K_mm⁻¹K_mn Λ(ξ) K_nm K_mm⁻¹ + K_mm⁻¹)⁻¹                                    (12)

    Parameters
    ----------
    xi : (n,)                 ξ
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    kappa = K_XZ @ K_inverse  # K_nm K_mm⁻¹
    precision = 2.0 * (kappa.T * lambda_matrix(xi)) @ kappa + K_inverse
    return factorise(0.5 * (precision + precision.T), "precision of q(u)", REMEDY_Z).inverse


@equation("izmailov2016", "13")
def jj_optimal_mean(xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array) -> Array:
    """Mean of the inducing values that maximises J: izmailov2016 (13).

        μ̂(ξ) = ½ Σ̂(ξ) K_mm⁻¹ K_mn y                                                          (13)

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    return 0.5 * jj_optimal_covariance(xi, K_ZZ, K_XZ) @ K_inverse @ (K_XZ.T @ y_sign)


class Collapsed(NamedTuple):
    """Derivatives of (14) or (19) in the prior's matrices, and what else is read off them."""

    derivatives: Derivatives
    second_moment: Array  # (n,)  m_i² + S_i² at the maximising μ, Σ


def collapsed(inducing_cov: Array, weights: Array, response: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array) -> Collapsed:
    """Derivatives of what (14) and (19) share, ½ rᵀK_nm B⁻¹K_mn r + ½ log|K_mm| - ½ log|B| - tr(W K̃), by hand.

    r = y/2 and W = Λ(ξ) in (14), r = v(ξ) and W = Ψ(ξ) in (19), B = 2 K_mn W K_nm + K_mm. With a = B⁻¹K_mn r

        in K_nm: r aᵀ - 2 W K_nm (a aᵀ + B⁻¹ - K_mm⁻¹)
        in K_mm: ½ (K_mm⁻¹ - B⁻¹ - a aᵀ) - K_mm⁻¹K_mn W K_nm K_mm⁻¹
        in K_ii: -W_ii

    B is worse conditioned than K_mm, and the differences cancel. So they are worked out from Σ = K_mm B⁻¹K_mm and
    κ = K_nm K_mm⁻¹: a = K_mm⁻¹Σκᵀr, K_nm B⁻¹ = κΣK_mm⁻¹, D = κ - K_nm B⁻¹ = 2 κ K_mn W K_nm B⁻¹, by which the
    derivatives are r aᵀ - 2 W (K_nm a aᵀ - D) and -½ a aᵀ - κᵀW D.

    Parameters
    ----------
    inducing_cov : (m, m)     Σ = Σ̂(ξ) of (12) or (17)
    weights : (n,)            diagonal of W
    response : (n,)           r
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    scaled = weights[:, None] * K_XZ  # W K_nm
    kappa = K_XZ @ K_inverse
    cond_var = k_xx - np.sum(kappa * K_XZ, axis=1)
    mu = inducing_cov @ (kappa.T @ response)
    latent_mean = kappa @ mu
    a = K_inverse @ mu
    past = kappa @ inducing_cov @ K_inverse  # K_nm B⁻¹
    D = 2.0 * kappa @ (scaled.T @ past)
    derivatives = Derivatives(
        -0.5 * np.outer(a, a) - (kappa.T * weights) @ D,
        np.outer(response - 2.0 * weights * latent_mean, a) + 2.0 * weights[:, None] * D,
        -weights,
    )
    spread = np.sum((kappa @ inducing_cov) * kappa, axis=1)
    return Collapsed(derivatives, latent_mean**2 + cond_var + spread)


@equation("izmailov2016", "14")
def jj_collapsed_bound(xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array) -> float:
    """Compact lower bound, μ and Σ eliminated: izmailov2016 (14).

        Ĵ(θ, ξ) = Σ_i (log σ(ξ_i) - ξ_i/2 + λ(ξ_i)ξ_i²) + ⅛ yᵀK_nm B⁻¹K_mn y
                  + ½ log|K_mm| - ½ log|B| - tr(Λ(ξ)K̃),
        K̃ = K_nn - K_nm K_mm⁻¹K_mn,   B = 2 K_mn Λ(ξ) K_nm + K_mm                             (14)

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn

    Returns
    -------
    Ĵ = max over μ and Σ of J, a lower bound on log p(y)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular

    Notes
    -----
    The paper says that terms which depend on neither θ nor ξ are omitted. There are none: -tr(ΣΣ⁻¹)/2 + m/2 cancels.
    B is worse conditioned than K_mm, so that K_nm B⁻¹K_mn is worked out as κΣ̂κᵀ with Σ̂ = K_mm B⁻¹K_mm of (12).
    """
    lam = lambda_matrix(xi)
    K = factorise(K_ZZ, "K_ZZ", REMEDY_Z)
    B = factorise(2.0 * K_XZ.T @ (lam[:, None] * K_XZ) + K_ZZ, "B", REMEDY_Z)
    kappa = K_XZ @ K.inverse
    K_tilde = k_xx - np.sum(kappa * K_XZ, axis=1)  # diagonal of K̃
    quadratic = y_sign @ (kappa @ (jj_optimal_covariance(xi, K_ZZ, K_XZ) @ (kappa.T @ y_sign)))
    return float(jj_constant(xi) + 0.125 * quadratic + 0.5 * K.log_det - 0.5 * B.log_det - lam @ K_tilde)


@equation("izmailov2016", "u4.1-Jhat-gradient")
def jj_collapsed_gradient(xi: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array) -> CollapsedGradient:
    """Gradient of the compact bound: izmailov2016, section 4.1 (in words), derived by hand.

        ∂Ĵ/∂ξ_i = λ'(ξ_i) (ξ_i² - m_i² - S_i²),

    m_i and S_i² at the maximising μ, Σ: zero where (15) holds, and at ξ_i = 0, where λ' = 0. Those in the entries of
    the prior's matrices, through which θ enters, are in `collapsed`.

    Parameters
    ----------
    xi : (n,)                 ξ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn

    Returns
    -------
    CollapsedGradient         derivatives, xi (n,)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    Sigma = jj_optimal_covariance(xi, K_ZZ, K_XZ)
    result = collapsed(Sigma, lambda_matrix(xi), 0.5 * y_sign, K_ZZ, K_XZ, k_xx)
    return CollapsedGradient(result.derivatives, jj_lambda_derivative(xi) * (xi**2 - result.second_moment))


@equation("izmailov2016", "15")
def jj_optimal_xi(latent_mean: Array, latent_var: Array) -> Array:
    """Local parameters that maximise J: izmailov2016 (15).

        ξ_i² = E_{q(f)} f_i² = m_i² + S_i²                                                    (15)

    Parameters
    ----------
    latent_mean : (n,)        m_i of (10)
    latent_var : (n,)         S_i² of (10)

    Returns
    -------
    (n,), the non-negative root
    """
    # S_i² >= 0, but for rounding where u fixes f_i
    return np.hypot(latent_mean, np.sqrt(np.maximum(latent_var, 0.0)))
