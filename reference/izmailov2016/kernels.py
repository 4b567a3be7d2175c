"""Section 2.3: the squared exponential and Matérn covariance functions, and their derivatives for learning."""

from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from scipy.special import gammaln, kve

from reference.common import kernels as common
from reference.common.ledger import equation

Array = NDArray[np.float64]

KERNELS = ("se", "matern")


class Profile(NamedTuple):
    """A Matérn covariance of unit variance as a function of the scaled distance s, and its derivative."""

    value: Array  # M(s)
    decline: Array  # D(s) = -2 ν M'(s)/s, so that ∂k/∂lengthscale_j = variance D Δ_j²/lengthscale_j³


@equation("izmailov2016", "u2.3-se")
def kernel_squared_exponential(X1: Array, X2: Array, amplitude: float, length: float) -> Array:
    """Squared exponential covariance: izmailov2016, section 2.3.

        k(x, x') = σ² exp(-‖x - x'‖² / l²)

    Parameters
    ----------
    X1 : (a, d)               first points
    X2 : (b, d)               second points
    amplitude : float         σ, a standard deviation although the paper calls it "variance σ"
    length : float            l; there is no ½ in the exponent, so l = √2 lengthscale in the convention of `covariance`

    Returns
    -------
    (a, b)
    """
    return amplitude**2 * np.exp(-np.sum((X1[:, None, :] - X2[None, :, :]) ** 2, axis=2) / length**2)


@equation("izmailov2016", "u2.3-matern")
def kernel_matern(X1: Array, X2: Array, smoothness: float, length: float) -> Array:
    """Matérn covariance of unit variance: izmailov2016, section 2.3, argument of the Bessel function corrected.

        k(x, x') = 2^(1-ν)/Γ(ν) · (√(2ν) ‖x - x'‖ / l)^ν · K_ν(√(2ν) ‖x - x'‖ / l),   k(x, x) = 1

    Parameters
    ----------
    X1 : (a, d)               first points
    X2 : (b, d)               second points
    smoothness : float        ν > 0
    length : float            l > 0

    Returns
    -------
    (a, b)

    Notes
    -----
    In the text as extracted, l multiplies the distance inside K_ν; see `errata.kernel_matern_as_printed`. For ν = ½,
    3/2, 5/2 the product of power and Bessel function is a polynomial times an exponential and is written so.
    """
    r = np.sqrt(np.sum((X1[:, None, :] - X2[None, :, :]) ** 2, axis=2))
    return matern_profile(np.sqrt(2.0 * smoothness) * r / length, smoothness).value


def matern_profile(z: Array, smoothness: float, shortcut: bool = True) -> Profile:
    """M(z) = 2^(1-ν)/Γ(ν) z^ν K_ν(z) and D(z) = 2^(1-ν)/Γ(ν) 2ν z^(ν-1) K_(ν-1)(z).

    M' = -2^(1-ν)/Γ(ν) z^ν K_(ν-1)(z), as (z^ν K_ν)' = -z^ν K_(ν-1). At z = 0, M = 1; D is infinite there if ν <= 1,
    but is only ever multiplied by Δ_j² = 0, and is set to 0.

    Parameters
    ----------
    z : any shape             √(2ν) times the scaled distance, >= 0
    smoothness : float        ν > 0
    shortcut : bool           closed forms for ν = ½, 3/2, 5/2 instead of Bessel functions

    Returns
    -------
    Profile                   value and decline, shapes of z
    """
    nu = smoothness
    z = np.asarray(z, dtype=float)
    apart = z > 0.0
    s = np.where(apart, z, 1.0)
    decay = np.exp(-s)
    if shortcut and nu == 0.5:
        value, decline = decay, decay / s
    elif shortcut and nu == 1.5:
        value, decline = (1.0 + s) * decay, 3.0 * decay
    elif shortcut and nu == 2.5:
        value, decline = (1.0 + s + s**2 / 3.0) * decay, 5.0 / 3.0 * (1.0 + s) * decay
    else:
        scale = (1.0 - nu) * np.log(2.0) - gammaln(nu)
        value = np.exp(scale + nu * np.log(s) + _log_bessel(nu, s))
        decline = np.exp(scale + np.log(2.0 * nu) + (nu - 1.0) * np.log(s) + _log_bessel(abs(nu - 1.0), s))
        # M <= 1, but for rounding of the logarithms
        value = np.minimum(value, 1.0)
    return Profile(np.where(apart, value, 1.0), np.where(apart, decline, 0.0))


def _log_bessel(nu: float, s: Array) -> Array:
    """log K_ν(s); where K_ν(s) is above 1e308, from leading terms at 0 (s < 1e-3) or for large ν."""
    scaled = kve(nu, s)
    over = np.isinf(scaled)
    value = np.log(np.where(over, 1.0, scaled)) - s
    if np.any(over):
        value = np.where(over, _log_bessel_large(nu, s), value)
    return value


def _log_bessel_large(nu: float, s: Array) -> Array:
    """log K_ν(s) where it overflows: for s < 1e-3 the series at 0, else Debye's expansion in 1/ν (ν is above 80 then).

    K_ν(s) = ½ Γ(ν) (2/s)^ν (1 - s²/(4(ν-1)) + ...),
    K_ν(νt) = √(π/2ν) e^(-νη) (1 + t²)^(-¼) Σ_k (-1)^k U_k(p)/ν^k,
    p = (1 + t²)^(-½), η = √(1 + t²) + log(t/(1 + √(1 + t²)))
    """
    near = gammaln(nu) - np.log(2.0) + nu * np.log(2.0 / s) + np.log1p(-(np.minimum(s, 1e-3) ** 2) / (4.0 * (nu - 1.0)))
    t = s / nu
    root = np.sqrt(1.0 + t**2)
    eta = root + np.log(t / (1.0 + root))
    total = sum((-1.0 / nu) ** k * U(1.0 / root) for k, U in enumerate(_debye(8)))
    far = 0.5 * np.log(np.pi / (2.0 * nu)) - nu * eta - 0.5 * np.log(root) + np.log(total)
    return np.where(s < 1e-3, near, far)


def _debye(count: int) -> list[Polynomial]:
    """U_0 = 1, U_(k+1)(p) = ½ p²(1 - p²) U_k'(p) + ⅛ ∫_0^p (1 - 5t²) U_k(t) dt."""
    results = [Polynomial([1.0])]
    for _ in range(count):
        last = results[-1]
        results.append(Polynomial([0, 0, 0.5, 0, -0.5]) * last.deriv() + (Polynomial([1, 0, -5]) * last).integ() / 8.0)
    return results


def _profile(X1: Array, X2: Array, lengthscales: Array, smoothness: float | None) -> Profile:
    assert smoothness is not None
    r = np.sqrt(np.sum(((X1[:, None, :] - X2[None, :, :]) / lengthscales) ** 2, axis=2))
    return matern_profile(np.sqrt(2.0 * smoothness) * r, smoothness)


def covariance(
    X1: Array, X2: Array, variance: float, lengthscales: Array, kernel: str, smoothness: float | None = None
) -> Array:
    """k(x, x') in the convention of the suite, no noise: "se" variance · exp(-½ r²), "matern" variance · M(√(2ν) r).

    r² = Σ_j (x_j - x'_j)²/lengthscales_j². The printed kernels are these at lengthscales = l/√2 ("se") and l
    ("matern").

    Parameters
    ----------
    X1 : (a, d)               first points
    X2 : (b, d)               second points
    variance : float          prior variance
    lengthscales : (d,)       one per input dimension
    kernel : str              "se" or "matern"
    smoothness : float        ν of "matern"; None for "se"

    Returns
    -------
    (a, b)
    """
    if kernel == "se":
        return common.squared_exponential(X1, X2, variance, lengthscales)
    return variance * _profile(X1, X2, lengthscales, smoothness).value


def covariance_gradients(
    X1: Array, X2: Array, variance: float, lengthscales: Array, kernel: str, smoothness: float | None = None
) -> Array:
    """∂k(x, x')/∂lengthscales_j = variance D Δ_j²/lengthscales_j³, an array (d, a, b); zero where x = x'.

    X1 (a, d), X2 (b, d), variance, lengthscales (d,), kernel "se" or "matern", smoothness ν as in `covariance`.
    """
    if kernel == "se":
        return common.derivative_lengthscales(X1, X2, variance, lengthscales)
    weight = variance * _profile(X1, X2, lengthscales, smoothness).decline
    squares = (X1[:, None, :] - X2[None, :, :]) ** 2 / lengthscales**3
    return np.moveaxis(weight[:, :, None] * squares, 2, 0)


def covariance_input_gradients(
    X1: Array, X2: Array, variance: float, lengthscales: Array, kernel: str, smoothness: float | None = None
) -> Array:
    """∂k(x, x')/∂x'_j = variance D Δ_j/lengthscales_j², an array (d, a, b).

    Zero where x = x': for ν <= ½ the covariance has a kink there and the two sides have opposite derivatives.

    X1 (a, d), X2 (b, d), variance, lengthscales (d,), kernel "se" or "matern", smoothness ν as in `covariance`.
    """
    if kernel == "se":
        return common.derivative_inputs(X1, X2, variance, lengthscales)
    weight = variance * _profile(X1, X2, lengthscales, smoothness).decline
    return np.moveaxis(weight[:, :, None] * (X1[:, None, :] - X2[None, :, :]) / lengthscales**2, 2, 0)
