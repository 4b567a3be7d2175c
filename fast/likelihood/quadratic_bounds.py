"""Local quadratics for log p(y | f): Jaakkola and Jordan's bound, Taylor's expansion. izmailov2016, section 4.

Either is log p(y | f) ~ constant + shift f - precision f^2 / 2 at a local xi. Bound: precision = 2 lambda(xi),
shift = y/2. Expansion of g = log p(y | .): precision = -g''(xi), shift = g'(xi) - g''(xi) xi. The paper's Psi and
Lambda are half the precision, its v is the shift.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import factorial, log_ndtr

from fast.core.types import FloatArray
from fast.ledger import equation
from fast.likelihood.probit import hazard

_SERIES_BELOW = 1.0
# (sinh z - z) / z^3 = sum_k z^(2k) / (2k + 3)!: nine terms leave 1e-19 for |z| <= 1
_SINH_SERIES = 1.0 / factorial(2 * np.arange(9) + 3)


class Quadratic(NamedTuple):
    """log p(y_i | f) ~ constant_i + shift_i f - precision_i f^2 / 2."""

    constant: FloatArray  # (b,)
    shift: FloatArray  # (b,)
    precision: FloatArray  # (b,), >= 0


class Expansion(NamedTuple):
    """g = log p(y | .) and its derivatives at a point."""

    value: FloatArray  # (b,)
    derivative: FloatArray  # (b,), g'
    curvature: FloatArray  # (b,), g'' <= 0


#: (y_sign, f) -> Expansion of the log likelihood.
LogLikelihood = Callable[[FloatArray, FloatArray], Expansion]


def log_sigmoid(z: FloatArray) -> FloatArray:
    """log sigma(z) = -log(1 + e^-z) without overflow: min(z, 0) - log1p(e^-|z|).

    Parameters
    ----------
    z : (k,)
    """
    return np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z)))


@equation("izmailov2016", "u4.1-Lambda")
def jj_coefficient(xi: FloatArray) -> FloatArray:
    """lambda(xi) = tanh(xi/2) / (4 xi), 1/8 at 0: izmailov2016, section 4.1, which prints tanh(xi) / (4 xi).

    Half the derivative of log cosh(sqrt(t)/2) in t = xi^2: half the mean of PG(1, xi), not used here. Even in xi.

    Parameters
    ----------
    xi : (b,)

    Returns
    -------
    (b,)      in (0, 1/8]
    """
    size = np.abs(xi)
    shrunk = np.exp(-size)
    with np.errstate(invalid="ignore", divide="ignore"):
        # tanh(x/2) = (1 - e^-x) / (1 + e^-x)
        value = -np.expm1(-size) / (4.0 * size * (1.0 + shrunk))
    return np.where(size > 0.0, value, 0.125)


def jj_coefficient_derivative(xi: FloatArray) -> FloatArray:
    """lambda'(xi) = (xi - sinh xi) / (4 xi^2 (1 + cosh xi)), without cancellation at 0 or overflow; odd in xi.

    Parameters
    ----------
    xi : (b,)
    """
    size = np.abs(xi)
    small = np.minimum(size, _SERIES_BELOW)
    series = np.polynomial.polynomial.polyval(small * small, _SINH_SERIES)
    near = -small * series / (4.0 * (1.0 + np.cosh(small)))
    large = np.maximum(size, _SERIES_BELOW)
    shrunk = np.exp(-large)
    # numerator and denominator times 2 e^-x
    far = (2.0 * large * shrunk - 1.0 + shrunk * shrunk) / (4.0 * large * large * (1.0 + shrunk) ** 2)
    return np.sign(xi) * np.where(size < _SERIES_BELOW, near, far)


@equation("izmailov2016", "u4.1-jj")
def jaakkola_jordan(y_sign: FloatArray, xi: FloatArray) -> Quadratic:
    """log sigma(y f) >= log sigma(xi) - xi/2 + lambda xi^2 + y f/2 - lambda f^2, equal at f = +-xi. izmailov2016, 4.1.

    The constant is log sigma(xi) - xi/2 = -log(2 cosh(xi/2)) in a form even in xi and free of overflow.

    Parameters
    ----------
    y_sign : (b,)    -1, +1
    xi : (b,)        any real numbers
    """
    size = np.abs(xi)
    coefficient = jj_coefficient(xi)
    constant = coefficient * size * size
    constant -= 0.5 * size
    constant -= np.log1p(np.exp(-size))
    coefficient *= 2.0
    return Quadratic(constant, 0.5 * y_sign, coefficient)


@equation("izmailov2016", "15")
def jj_local(latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
    """xi_i = sqrt(m_i^2 + S_i^2): izmailov2016 (15), S_i^2 the variance of q(f_i). Algorithm 1 squares it once more.

    Parameters
    ----------
    latent_mean : (b,)
    latent_var : (b,)     >= 0
    """
    return np.hypot(latent_mean, np.sqrt(latent_var))


def logistic(y_sign: FloatArray, latent_values: FloatArray) -> Expansion:
    """log sigma(y f): derivative y sigma(-y f), curvature -sigma(f) sigma(-f), by e^-|f| alone.

    Parameters
    ----------
    y_sign : (b,)
    latent_values : (b,)
    """
    z = y_sign * latent_values
    shrunk = np.exp(-np.abs(z))
    inverse = 1.0 / (1.0 + shrunk)
    share = np.where(z > 0.0, shrunk, 1.0) * inverse  # sigma(-z)
    return Expansion(log_sigmoid(z), y_sign * share, -shrunk * inverse * inverse)


def probit(y_sign: FloatArray, latent_values: FloatArray) -> Expansion:
    """log Phi(y f): derivative y r, curvature -r (r + y f) with r = phi/Phi, to any |f|.

    Parameters
    ----------
    y_sign : (b,)
    latent_values : (b,)
    """
    z = y_sign * latent_values
    ratio, excess = hazard(z)
    return Expansion(log_ndtr(z), y_sign * ratio, -ratio * excess)


@equation("izmailov2016", "16", "u4.2-Psi", "u4.2-phi", "u4.2-v")
def taylor(y_sign: FloatArray, xi: FloatArray, log_likelihood: LogLikelihood = logistic) -> Quadratic:
    """Second-order expansion of log p(y | f) at xi, in powers of f: izmailov2016 (16). No bound.

    constant = g - g' xi + g'' xi^2 / 2, shift = g' - g'' xi (the paper's v = phi + 2 Psi xi), precision = -g'' (2 Psi).

    Parameters
    ----------
    y_sign : (b,)
    xi : (b,)
    log_likelihood : callable    (y_sign, f) -> Expansion; log-concave
    """
    g = log_likelihood(y_sign, xi)
    shift = g.derivative - g.curvature * xi
    return Quadratic(g.value - 0.5 * (g.derivative + shift) * xi, shift, -g.curvature)
