"""The Matérn kernel of any smoothness in squared scaled distances, and its derivative. izmailov2016, 2.3.

With x = sqrt(2 nu) r and r^2 = sum_j (x_j - x'_j)^2 / lengthscales_j^2,

    k = variance M_nu(x),    M_nu(x) = 2^(1 - nu) / Gamma(nu) x^nu K_nu(x),    M_nu(0) = 1,
    -2 dk / d(r^2) = variance 2^(2 - nu) nu / Gamma(nu) x^(nu - 1) K_(nu - 1)(x),

since (x^nu K_nu)' = -x^nu K_(nu - 1). The paper prints the argument of K_nu as sqrt(2 nu) / |x - x'| l, with l and the
distance exchanged. Half-integers take their polynomial times e^-x, with positive coefficients; other values SciPy's
scaled Bessel function, in logarithms. Where that overflows, x^2 is small against nu and
M_nu = sum_k Gamma(nu - k) / (Gamma(nu) k!) (-x^2/4)^k up to (x/2)^(2 nu), far below rounding.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, kve

from fast.core.types import FloatArray
from fast.ledger import equation

_LARGEST_POLYNOMIAL = 12  # nu - 1/2 up to which half-integers take their polynomial
_SERIES_TERMS = 48  # K_500 overflows up to x^2/(4 nu) = 6.2: the largest term is 80, the first one left out 1e-23
_LOG_2 = math.log(2.0)


def _polynomial_degree(order: float) -> int | None:
    degree = order - 0.5
    return int(degree) if degree == int(degree) and 0.0 <= degree <= _LARGEST_POLYNOMIAL else None


def _half_integer(x: FloatArray, degree: int) -> FloatArray:
    """M_(p + 1/2) = e^-x sum_i p! / (2 p)! (p + i)! / (i! (p - i)!) (2 x)^(p - i), by Horner's rule in x."""
    value = np.zeros(x.shape)
    norm = math.factorial(degree) / math.factorial(2 * degree)
    for i in range(degree + 1):  # highest power first
        value *= x
        value += (
            norm * math.factorial(degree + i) / (math.factorial(i) * math.factorial(degree - i)) * 2 ** (degree - i)
        )
    value *= np.exp(-x)
    return value


def _power_times_bessel(x: FloatArray, power: float, order: float, log_factor: float) -> FloatArray:
    """exp(log_factor) x^power K_order(x) for x > 0; not finite where K_order overflows."""
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        return np.asarray(np.exp(log_factor + power * np.log(x) + np.log(kve(order, x)) - x), dtype=np.float64)


def _vanishing(order: float) -> float:
    """Beyond this x the kernel is 0 in float64; SciPy's function would give NaN from 1e9 on."""
    return 2000.0 + 4.0 * order


def _near_zero(x: FloatArray, order: float) -> FloatArray:
    """The ascending series of M_order, its terms below order."""
    total, term = np.ones_like(x), np.ones_like(x)
    for k in range(1, min(_SERIES_TERMS, math.ceil(order) - 1) + 1):
        term = term * (-0.25 * x * x / (k * (order - k)))
        total += term
    return total


def correlation(x: FloatArray, order: float) -> FloatArray:
    """M_order(x) = 2^(1 - order) / Gamma(order) x^order K_order(x), 1 at x = 0; order > 0.

    Parameters
    ----------
    x : (a, b)       >= 0
    order : float    > 0

    Returns
    -------
    (a, b)           in [0, 1]
    """
    degree = _polynomial_degree(order)
    if degree is not None:
        return _half_integer(x, degree)
    safe = np.where(x == 0.0, 1.0, np.minimum(x, _vanishing(order)))
    value = _power_times_bessel(safe, order, order, (1.0 - order) * _LOG_2 - float(gammaln(order)))
    steep = ~(np.isfinite(value) | np.isnan(x))  # NaN stays NaN
    if steep.any():
        value[steep] = _near_zero(safe[steep], order)
    value[x == 0.0] = 1.0
    return np.minimum(value, 1.0)


@equation("izmailov2016", "u2.3-matern")
def matern_value(squared: FloatArray, variance: float, smoothness: float) -> FloatArray:
    """k = variance M_nu(sqrt(2 nu) r): izmailov2016, section 2.3, with its argument of K_nu put right. Time O(a b).

    Parameters
    ----------
    squared : (a, b)       r^2, squared distances in lengthscales
    variance : float       amplitude squared
    smoothness : float     nu > 0

    Returns
    -------
    (a, b)
    """
    value = correlation(np.sqrt(2.0 * smoothness * squared), smoothness)
    value *= variance
    return value


def matern_derivative(squared: FloatArray, variance: float, smoothness: float) -> FloatArray:
    """h = -2 dk / d(r^2): dk / d lengthscales_j = h t_j^2 / lengthscales_j, dk / dx'_j = h t_j / lengthscales_j.

    For smoothness above 1 h = variance nu / (nu - 1) M_(nu - 1)(x). At or below 1 it is infinite at r = 0, where 0 is
    returned: there h t_j^2 = 0, and so is h t_j above 1/2 (below, k has no derivative in its inputs there).

    Parameters
    ----------
    squared : (a, b)       r^2
    variance : float
    smoothness : float     nu > 0

    Returns
    -------
    (a, b)
    """
    x = np.sqrt(2.0 * smoothness * squared)
    if smoothness > 1.0:
        value = correlation(x, smoothness - 1.0)
        value *= variance * smoothness / (smoothness - 1.0)
        return value
    safe = np.where(x == 0.0, 1.0, np.minimum(x, _vanishing(smoothness)))
    log_factor = (1.0 - smoothness) * _LOG_2 - float(gammaln(smoothness)) + math.log(2.0 * smoothness)
    # K_-a = K_a
    value = _power_times_bessel(safe, smoothness - 1.0, abs(smoothness - 1.0), log_factor)
    value[x == 0.0] = 0.0
    value *= variance
    return value
