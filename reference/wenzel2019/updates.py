"""Section 4.3 and appendices A.3, A.4: local and global updates, (11), (12), (15)-(18).

The functions that need K_mm⁻¹ take it as the papers write it, formed once by the caller.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._options import shown
from reference.common.algebra import eigenvalues, solution
from reference.common.errors import factorise
from reference.common.ledger import equation

Array = NDArray[np.float64]


class Gaussian(NamedTuple):
    """Mean and covariance of q(u)."""

    inducing_mean: Array  # (m,)
    inducing_cov: Array  # (m, m)


class Natural(NamedTuple):
    """Natural parameters of q(u), or a direction in their space."""

    eta_1: Array  # (m,)
    eta_2: Array  # (m, m)


@equation("wenzel2019", "11")
def update_local(inducing_mean: Array, inducing_cov: Array, upsilon: Array, cond_var: Array) -> Array:
    """Coordinate ascent in the local parameters: wenzel2019 (11).

        c_i = √(K̃_ii + κ_i Σ κ_iᵀ + μᵀκ_iᵀκ_i μ)                                              (11)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    upsilon : (n, m)          rows κ_i, of all data or of a mini-batch
    cond_var : (n,)           diagonal of K̃

    Returns
    -------
    c (n,), the maximum of (10) for given μ, Σ; unique up to sign, and PG(1, c) = PG(1, -c)

    Raises
    ------
    ValueError                if an entry of cond_var is so negative that no square root exists
    """
    projected, spread = upsilon @ inducing_mean, np.sum((upsilon @ inducing_cov) * upsilon, axis=1)
    second = cond_var + spread + projected**2  # E[f_i²]
    if not np.all(second >= 0.0):
        raise ValueError(f"cond_var: found E[f_i^2] = {np.min(second):.6g}, expected >= 0")
    return np.sqrt(second)


@equation("wenzel2019", "12")
def natural_gradient_minibatch(
    eta_1: Array, eta_2: Array, batch: NDArray[np.intp], y_sign: Array, theta: Array, upsilon: Array, K_ZZ_inv: Array
) -> Natural:
    """Natural gradients from a mini-batch S of s of the n data: wenzel2019 (12).

        ∇̃_η₁ = n/(2s) κ_Sᵀ y_S - η₁
        ∇̃_η₂ = -½ (K_mm⁻¹ + (n/s) κ_Sᵀ Θ_S κ_S) - η₂                                          (12)

    Parameters
    ----------
    eta_1 : (m,)              η₁
    eta_2 : (m, m)            η₂
    batch : (b,)              S, indices into the data
    y_sign : (n,)             labels of all data
    theta : (n,)              θ of all data; only θ_S is read
    upsilon : (n, m)          rows κ_i of all data; only κ_S is read
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Returns
    -------
    Natural                   eta_1 (m,), eta_2 (m, m): the gradient's two parts
    """
    scale = len(y_sign) / len(batch)  # n/s
    kappa, Theta = upsilon[batch], np.diag(theta[batch])
    return Natural(
        0.5 * scale * kappa.T @ y_sign[batch] - eta_1,
        -0.5 * (K_ZZ_inv + scale * kappa.T @ Theta @ kappa) - eta_2,
    )


@equation("wenzel2019", "u4.3-natural-params")
def to_natural(inducing_mean: Array, inducing_cov: Array) -> Natural:
    """Natural parameters of a Gaussian: wenzel2019, section 4.3.

        η₁ = Σ⁻¹μ,   η₂ = -½ Σ⁻¹

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov is singular
    """
    precision = factorise(inducing_cov, "inducing_cov", "pass a positive definite inducing_cov").inverse
    return Natural(precision @ inducing_mean, -0.5 * precision)


@equation("wenzel2019", "u4.3-natural-params")
def from_natural(eta_1: Array, eta_2: Array) -> Gaussian:
    """Mean and covariance from natural parameters: wenzel2019, section 4.3.

        Σ = (-2η₂)⁻¹,   μ = Ση₁

    Parameters
    ----------
    eta_1 : (m,)              η₁
    eta_2 : (m, m)            η₂

    Raises
    ------
    NotPositiveDefiniteError  if -2 eta_2 is singular
    """
    cov = factorise(-2.0 * eta_2, "-2 eta_2", "pass a negative definite eta_2").inverse
    return Gaussian(cov @ eta_1, cov)


@equation("wenzel2019", "u4.3-step")
def natural_gradient_step(eta_1: Array, eta_2: Array, grad_1: Array, grad_2: Array, rate: float) -> Natural:
    """One step of natural-gradient ascent: wenzel2019, section 4.3 (in words).

        η₁ ← η₁ + ρ ∇̃_η₁,   η₂ ← η₂ + ρ ∇̃_η₂

    Parameters
    ----------
    eta_1 : (m,)              η₁
    eta_2 : (m, m)            η₂
    grad_1 : (m,)             ∇̃_η₁
    grad_2 : (m, m)           ∇̃_η₂
    rate : float              ρ in (0, 1]

    Raises
    ------
    ValueError                if rate is outside (0, 1], where Σ need not stay positive definite
    """
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"rate: found {shown(rate)}, expected a number in (0, 1]")
    return Natural(eta_1 + rate * grad_1, eta_2 + rate * grad_2)


@equation("wenzel2019", "u4.3-posdef")
def check_positive_definite(
    eta_2: Array, batch: NDArray[np.intp], theta: Array, upsilon: Array, K_ZZ_inv: Array, rate: float
) -> float:
    """Smallest eigenvalue of Σ after a step: wenzel2019, section 4.3 and its footnote 2.

        Σ⁻¹ ← (1 - ρ) Σ⁻¹ + ρ (K_mm⁻¹ + (n/s) κ_Sᵀ Θ_S κ_S)

    a convex combination of positive definite matrices for 0 < ρ <= 1, so Σ stays positive definite. The paper does not
    say that this needs ρ <= 1.

    Parameters
    ----------
    eta_2 : (m, m)            η₂ = -½ Σ⁻¹ before the step
    batch : (b,)              S, indices into the data
    theta : (n,)              θ of all data, positive
    upsilon : (n, m)          rows κ_i of all data
    K_ZZ_inv : (m, m)         K_mm⁻¹
    rate : float              ρ in (0, 1]

    Returns
    -------
    the smallest eigenvalue of the new Σ, which is 1 over the largest of the new Σ⁻¹

    Raises
    ------
    ValueError                if rate is outside (0, 1]
    NotPositiveDefiniteError  if the new Σ⁻¹ has an eigenvalue <= 0: some input was not what it should be
    """
    n = len(theta)
    # The labels do not enter the second natural parameter: any will do.
    gradient = natural_gradient_minibatch(np.zeros(len(eta_2)), eta_2, batch, np.ones(n), theta, upsilon, K_ZZ_inv)
    stepped = natural_gradient_step(np.zeros(len(eta_2)), eta_2, gradient.eta_1, gradient.eta_2, rate)
    precision = -2.0 * stepped.eta_2
    factorise(precision, "-2 eta_2", "pass a negative definite eta_2 and positive theta")
    return float(1.0 / eigenvalues(precision, "precision")[-1])


def _theta_derivatives(c: Array) -> tuple[Array, Array]:
    """θ'(c) and θ''(c), each (n,).

    θ' = S/(4c) - T/(2c²) and θ'' = -TS/(4c) - S/(2c²) + T/c³ with T = tanh(c/2), S = 1 - T². Below |c| = 0.3 the
    differences lose digits and the Taylor series of tanh serves: its radius is π, eight terms leave 1e-17.
    """
    large = np.where(np.abs(c) < 0.3, 1.0, c)
    T = np.tanh(0.5 * large)
    S = 1.0 / np.cosh(np.minimum(0.5 * np.abs(large), 300.0)) ** 2  # 1 - T² without cancellation
    x = 1.0 / large  # powers of c overflow where those of 1/c vanish
    first = S * x / 4.0 - T * x**2 / 2.0
    second = -T * S * x / 4.0 - S * x**2 / 2.0 + T * x**3
    # tanh(x) = Σ a_k x^{2k+1}, so θ(c) = Σ (a_k / 4) (c/2)^{2k}
    taylor = [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875]
    series = np.polynomial.Polynomial(
        [a / 4.0 ** (k + 1) if even else 0.0 for k, a in enumerate(taylor) for even in (1, 0)]
    )
    small = np.where(np.abs(c) < 0.3, c, 0.0)
    near = np.abs(c) < 0.3
    return np.where(near, series.deriv(1)(small), first), np.where(near, series.deriv(2)(small), second)


@equation("wenzel2019", "A.3-local-gradient")
def local_gradient(c: Array, inducing_mean: Array, inducing_cov: Array, upsilon: Array, cond_var: Array) -> Array:
    """Derivative of the bound in the local parameters: wenzel2019, A.3.

        ∂L/∂c_i = ½ (A_i/c_i - c_i) (θ_i + c_i² θ_i² - ¼) = ½ θ'(c_i) (c_i² - A_i)
        A_i = K̃_ii + κ_i Σ κ_iᵀ + μᵀκ_iᵀκ_i μ

    Its zeros are c_i = √A_i and c_i = 0.

    Parameters
    ----------
    c : (n,)                  where the derivative is taken
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Returns
    -------
    ∂L/∂c (n,)

    Notes
    -----
    The display is lost in the extracted text but for "½ d/dc_i [...", U(c_i) and "- ¼"; the first form above is the
    product that fits these remains. The second form is computed: the first is 0/0 at c_i = 0.
    """
    A = cond_var + np.sum((upsilon @ inducing_cov) * upsilon, axis=1) + (upsilon @ inducing_mean) ** 2
    return 0.5 * _theta_derivatives(c)[0] * (c**2 - A)


@equation("wenzel2019", "A.3-local-curvature")
def local_curvature(c: Array, inducing_mean: Array, inducing_cov: Array, upsilon: Array, cond_var: Array) -> Array:
    """Second derivative of the bound in the local parameters: wenzel2019, A.3 (in words).

        ∂²L/∂c_i² = ½ θ''(c_i) (c_i² - A_i) + c_i θ'(c_i)

    At c_i = √A_i it is c_i θ'(c_i) < 0, a maximum; at c_i = 0 it is A_i/48 > 0, a minimum.

    Parameters
    ----------
    c : (n,)                  where the derivative is taken
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Notes
    -----
    "Always" a maximum and a minimum needs A_i > 0: at A_i = 0 the two zeros fall together into one maximum whose
    second derivative is 0. "κ, Σ and K̃ are positive definite" is meant for Σ, and K̃ only needs a diagonal >= 0.
    """
    A = cond_var + np.sum((upsilon @ inducing_cov) * upsilon, axis=1) + (upsilon @ inducing_mean) ** 2
    first, second = _theta_derivatives(c)
    return 0.5 * second * (c**2 - A) + c * first


@equation("wenzel2019", "15")
def gradient_sigma(inducing_cov: Array, theta: Array, upsilon: Array, K_ZZ_inv: Array) -> Array:
    """Euclidean gradient of the bound in Σ: wenzel2019 (15).

        ∇_Σ L = ½ (Σ⁻¹ - K_mm⁻¹ - κᵀΘκ)                                                       (15)

    Parameters
    ----------
    inducing_cov : (m, m)     Σ
    theta : (n,)              diagonal of Θ
    upsilon : (n, m)          κ
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Returns
    -------
    (m, m), symmetric: dL = tr(∇_Σ L dΣ)

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov is singular

    Notes
    -----
    The display is lost in the extracted text; (17) and (18), which use it, leave no other form.
    """
    precision = factorise(inducing_cov, "inducing_cov", "pass a positive definite inducing_cov").inverse
    return 0.5 * (precision - K_ZZ_inv - upsilon.T @ np.diag(theta) @ upsilon)


@equation("wenzel2019", "16")
def gradient_mu(inducing_mean: Array, theta: Array, upsilon: Array, y_sign: Array, K_ZZ_inv: Array) -> Array:
    """Euclidean gradient of the bound in μ: wenzel2019 (16).

        ∇_μ L = ½ κᵀy - (K_mm⁻¹ + κᵀΘκ) μ                                                     (16)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    theta : (n,)              diagonal of Θ
    upsilon : (n, m)          κ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Notes
    -----
    The display is lost in the extracted text; A.4, which sets it to zero, leaves no other form.
    """
    return 0.5 * upsilon.T @ y_sign - (K_ZZ_inv + upsilon.T @ np.diag(theta) @ upsilon) @ inducing_mean


@equation("wenzel2019", "17")
def natural_from_euclidean(grad_mean: Array, grad_cov: Array, inducing_mean: Array) -> Natural:
    """Natural gradient in η from Euclidean gradients in μ and Σ: wenzel2019 (17).

        ∇̃_(η₁,η₂) L(η) = (∇_μ L - 2 ∇_Σ L μ, ∇_Σ L)                                           (17)

    Parameters
    ----------
    grad_mean : (m,)          ∇_μ L
    grad_cov : (m, m)         ∇_Σ L, symmetric
    inducing_mean : (m,)      μ
    """
    return Natural(grad_mean - 2.0 * grad_cov @ inducing_mean, grad_cov)


@equation("wenzel2019", "A.3-natural")
def natural_gradient(
    eta_1: Array, eta_2: Array, theta: Array, upsilon: Array, y_sign: Array, K_ZZ_inv: Array
) -> Natural:
    """Natural gradients from all data: wenzel2019, A.3, last display.

        ∇̃_η₁ L = ½ κᵀy - η₁,   ∇̃_η₂ L = -½ (K_mm⁻¹ + κᵀΘκ) - η₂

    Parameters
    ----------
    eta_1 : (m,)              η₁
    eta_2 : (m, m)            η₂
    theta : (n,)              diagonal of Θ
    upsilon : (n, m)          κ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Notes
    -----
    The display is lost in the extracted text; it is (12) with S = {1, ..., n}.
    """
    return Natural(
        0.5 * upsilon.T @ y_sign - eta_1,
        -0.5 * (K_ZZ_inv + upsilon.T @ np.diag(theta) @ upsilon) - eta_2,
    )


@equation("wenzel2019", "18")
def update_eta2(theta: Array, upsilon: Array, K_ZZ_inv: Array) -> Array:
    """Coordinate-ascent value of η₂: wenzel2019 (18).

        η₂ = -½ Σ⁻¹ = -½ (K_mm⁻¹ + κᵀΘκ)                                                      (18)

    Parameters
    ----------
    theta : (n,)              diagonal of Θ
    upsilon : (n, m)          κ
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Returns
    -------
    η₂ (m, m)
    """
    return -0.5 * (K_ZZ_inv + (upsilon.T * theta) @ upsilon)


@equation("wenzel2019", "A.4-mu")
def update_mu(theta: Array, upsilon: Array, y_sign: Array, K_ZZ_inv: Array) -> Array:
    """Coordinate-ascent value of μ: wenzel2019, A.4.

        μ = ½ (K_mm⁻¹ + κᵀΘκ)⁻¹ κᵀy

    Parameters
    ----------
    theta : (n,)              diagonal of Θ
    upsilon : (n, m)          κ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Returns
    -------
    μ (m,)
    """
    precision = K_ZZ_inv + (upsilon.T * theta) @ upsilon
    return np.asarray(0.5 * solution(precision, upsilon.T @ y_sign, "precision"), dtype=np.float64)


@equation("wenzel2019", "A.4-eta1")
def update_eta1(upsilon: Array, y_sign: Array) -> Array:
    """Coordinate-ascent value of η₁: wenzel2019, A.4.

        η₁ = ½ κᵀy

    Together with (18) it is where a natural-gradient step of rate one on all data ends.

    Parameters
    ----------
    upsilon : (n, m)          κ
    y_sign : (n,)             y, labels -1 or +1

    Returns
    -------
    η₁ (m,)
    """
    return 0.5 * upsilon.T @ y_sign
