"""Adaptive quadrature against a Gaussian density, robust for any mean and for variances from 1e-12 to 1e8."""

from collections.abc import Callable
from itertools import pairwise
from math import exp, inf, log, log1p, pi, sqrt
from typing import NamedTuple

from scipy.integrate import quad
from scipy.optimize import brentq

_LIMIT = 1e-11
_HALF_WIDTH = 10.0  # exp(-10²/2) = 2e-22: what lies outside is far below rounding


class QuadratureError(ArithmeticError, ValueError):
    """A quadrature that states a larger error than its user can take: the arguments ask for too much."""


class Integral(NamedTuple):
    """An integral and the error its quadrature states."""

    value: float
    error: float


def log_sigmoid_scalar(z: float) -> float:
    """log σ(z) of one number z, finite for any finite z."""
    return -log1p(exp(-z)) if z >= 0.0 else z - log1p(exp(z))


def sigmoid_minus(z: float) -> float:
    """σ(-z) of one number z: the derivative of log σ at z."""
    return exp(log_sigmoid_scalar(-z))


def _panels(centre: float, kink: float, scale: float) -> list[float]:
    """Break points on [centre - 10, centre + 10]: around the centre, and around the kink in units of 1/scale."""
    low, high = centre - _HALF_WIDTH, centre + _HALF_WIDTH
    points = [centre + step for step in (-6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0)]
    points += [kink + step / scale for step in (-40.0, -10.0, -3.0, 0.0, 3.0, 10.0, 40.0)]
    return [low, *sorted({point for point in points if low < point < high}), high]


def _sum_of_panels(function: Callable[[float], float], points: list[float], absolute: float) -> Integral:
    value = error = 0.0
    for low, high in pairwise(points):
        # full_output keeps QUADPACK's complaints out of the warnings: the stated error is checked by the caller
        part = quad(function, low, high, epsabs=absolute, epsrel=1e-13, limit=200, full_output=1)
        value, error = value + part[0], error + part[1]
    return Integral(value, error)


def _deviation(latent_var: float) -> float:
    """√latent_var, or an error that names it."""
    if not 0.0 <= latent_var < inf:
        raise ValueError(f"latent_var: found {latent_var:.6g}, expected a finite value >= 0")
    return sqrt(latent_var)


def gaussian_integral(
    log_function: Callable[[float], float],
    derivative: Callable[[float], float],
    latent_mean: float,
    latent_var: float,
) -> Integral:
    """∫ exp(log_function(f)) N(f | latent_mean, latent_var) df for a concave log_function with a bend at f = 0.

    With f = mean + √var t the log integrand h(t) = log_function(f) - t²/2 - ½ log 2π falls at least as fast as
    -(t - t₀)²/2 from its mode t₀, so [t₀ - 10, t₀ + 10] holds everything. exp(h(t) - h(t₀)) is integrated: the
    accuracy is relative, also where the integral itself is far below 1.

    Parameters
    ----------
    log_function : callable   logarithm of the integrand's first factor, concave
    derivative : callable          its derivative, of size at most 1
    latent_mean : float       mean of the Gaussian
    latent_var : float        its variance, >= 0; 0 is a point mass

    Returns
    -------
    Integral                  value and error (stated by the quadrature, at most 1e-11 of the value)

    Raises
    ------
    ValueError                if latent_var is negative or not finite
    QuadratureError           if the stated error is above 1e-11 of the value
    """
    mean, sd = float(latent_mean), _deviation(latent_var)
    if sd == 0.0:
        return Integral(exp(log_function(mean)), 0.0)
    # |derivative| <= 1 puts the zero of sd · derivative(f) - t inside [-sd, sd]
    mode = brentq(lambda t: sd * derivative(mean + sd * t) - t, -sd, sd, xtol=1e-12 * min(1.0, sd), rtol=1e-12)
    top = log_function(mean + sd * mode) - 0.5 * mode * mode

    def scaled(t: float) -> float:
        return exp(log_function(mean + sd * t) - 0.5 * t * t - top)

    part = _sum_of_panels(scaled, _panels(mode, -mean / sd, sd), absolute=1e-18)
    if not part.error <= _LIMIT * part.value:
        raise QuadratureError(
            f"latent_var: found {latent_var:.6g} at mean {mean:.6g}, where quadrature has an "
            f"error {part.error:.3g} on {part.value:.3g}, expected at most 1e-11 of it"
        )
    factor = exp(top - 0.5 * log(2.0 * pi))
    return Integral(factor * part.value, factor * part.error)


def gaussian_expectation(function: Callable[[float], float], latent_mean: float, latent_var: float) -> Integral:
    """E[function(f)] for f ~ N(latent_mean, latent_var); function grows no faster than f² and may bend at f = 0.

    Parameters
    ----------
    function : callable       one number to one number
    latent_mean : float       mean of the Gaussian
    latent_var : float        its variance, >= 0; 0 is a point mass

    Returns
    -------
    Integral                  value and error (stated by the quadrature)

    Raises
    ------
    ValueError                if latent_var is negative or not finite
    QuadratureError           if the stated error is above 1e-11 of the integral of |function|
    """
    mean, sd = float(latent_mean), _deviation(latent_var)
    if sd == 0.0:
        return Integral(function(mean), 0.0)

    def weighted(t: float) -> float:
        return function(mean + sd * t) * exp(-0.5 * t * t) / sqrt(2.0 * pi)

    points = _panels(0.0, -mean / sd, sd)
    part = _sum_of_panels(weighted, points, absolute=1e-16)
    size = _sum_of_panels(lambda t: abs(weighted(t)), points, absolute=1e-16).value
    if not part.error <= _LIMIT * max(size, 1.0):
        raise QuadratureError(
            f"latent_var: found {latent_var:.6g} at mean {mean:.6g}, where quadrature has an "
            f"error {part.error:.3g}, expected at most 1e-11 of {size:.3g}"
        )
    return part
