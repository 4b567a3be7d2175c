"""Section 3: the alpha-divergence, its limits, and its gradient, for densities of one variable by quadrature.

Densities are given by their logarithms. The range is where the caller says that the mass is, [lower, upper].
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from reference.common.ledger import equation

Array = NDArray[np.float64]
Density = Callable[[float], float]

_SPREAD = 12.0  # standard deviations beyond which a Gaussian's share is below 1e-32


class Limits(NamedTuple):
    """What the divergence tends to."""

    at_zero: float  # KL[q||p]
    at_one: float  # KL[p||q]


class Tilted(NamedTuple):
    """A normalised density, and its normaliser."""

    log_density: Density
    normaliser: float


def _integral(function: Density, lower: float, upper: float) -> float:
    """Adaptive quadrature on sixteen panels, so that no narrow peak is passed over."""
    edges = np.linspace(lower, upper, 17)
    parts = [quad(function, a, b, epsabs=0.0, epsrel=1e-11, limit=200, full_output=1)[0]
             for a, b in pairwise(edges)]  # fmt: skip
    return float(sum(parts))


def gaussian_log_density(mean: float, var: float) -> Density:
    """log N(· | mean, var), a function of one number, villacampa2020.

    Parameters
    ----------
    mean : float              mean
    var : float               variance, > 0
    """
    return lambda x: -0.5 * (x - mean) ** 2 / var - 0.5 * float(np.log(2.0 * np.pi * var))


@equation("villacampa2020", "6")
def alpha_divergence(log_p: Density, log_q: Density, alpha: float, lower: float, upper: float) -> float:
    """D_α[p||q] = (1 - ∫ p^α q^{1-α})/(α (1 - α)): (6) of villacampa2020.

    Written ∫ q [α (r - 1) - (r^α - 1)]/(α(1-α)) with r = p/q: nothing cancels where α is near 0.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of normalised densities
    alpha : float             α, neither 0 nor 1
    lower, upper : float      where the mass of both is

    Raises
    ------
    ValueError                for α = 0 or 1; `alpha_divergence_limits` has these
    """
    if alpha in (0.0, 1.0):
        raise ValueError(f"alpha: found {alpha!r}, expected a number other than 0 and 1")

    def integrand(x: float) -> float:
        first, second = log_p(x), log_q(x)
        ratio = first - second
        if ratio > 50.0:  # p is all; its ratio to q may be beyond floating point
            return float(alpha * np.exp(first) - np.exp(alpha * first + (1.0 - alpha) * second))
        return float(np.exp(second) * (alpha * np.expm1(ratio) - np.expm1(alpha * ratio)))

    return _integral(integrand, lower, upper) / (alpha * (1.0 - alpha))


@equation("villacampa2020", "u10-hellinger")
def hellinger_identity(log_p: Density, log_q: Density, lower: float, upper: float) -> float:
    """D_½[p||q] = 2 ∫ (√p - √q)², the one divergence of the family that is symmetric: section 3 of villacampa2020.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of normalised densities
    lower, upper : float      where the mass of both is
    """
    return 2.0 * _integral(lambda x: float(np.exp(0.5 * log_p(x)) - np.exp(0.5 * log_q(x))) ** 2, lower, upper)


@equation("villacampa2020", "u11-divergence-limits")
def alpha_divergence_limits(log_p: Density, log_q: Density, lower: float, upper: float) -> Limits:
    """lim_{α→0} D_α[p||q] = KL[q||p] and lim_{α→1} D_α[p||q] = KL[p||q]: section 3 of villacampa2020.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of normalised densities
    lower, upper : float      where the mass of both is
    """
    return Limits(_kl(log_q, log_p, lower, upper), _kl(log_p, log_q, lower, upper))


def _kl(log_a: Density, log_b: Density, lower: float, upper: float) -> float:
    """KL[a||b] of normalised densities."""
    return _integral(lambda x: float(np.exp(log_a(x))) * (log_a(x) - log_b(x)), lower, upper)


@equation("villacampa2020", "u14-tilted-density")
def geometric_tilted(log_p: Density, log_q: Density, alpha: float, lower: float, upper: float) -> Tilted:
    """p̃ ∝ p^α q^{1-α}, normalised, and Z_p̃ = ∫ p^α q^{1-α}: below (7) of villacampa2020.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of densities
    alpha : float             α
    lower, upper : float      where the mass of p̃ is
    """

    def log_mixture(x: float) -> float:
        return alpha * log_p(x) + (1.0 - alpha) * log_q(x)

    normaliser = _integral(lambda x: float(np.exp(log_mixture(x))), lower, upper)
    log_z = float(np.log(normaliser))
    return Tilted(lambda x: log_mixture(x) - log_z, normaliser)


@equation("villacampa2020", "7")
def alpha_divergence_gradient(
    log_p: Density, mean: float, var: float, alpha: float, lower: float, upper: float
) -> Array:
    """∇ D_α[p||q] = (Z_p̃/α)(E_q[s] - E_p̃[s]) in the natural parameters (m/v, -1/(2v)) of q = N(m, v), (2,): (7).

    The sufficient statistics are s(x) = (x, x²); villacampa2020 has them for any exponential family.

    Parameters
    ----------
    log_p : callable          logarithm of a normalised density
    mean : float              m
    var : float               v
    alpha : float             α, neither 0 nor 1
    lower, upper : float      where the mass of p̃ is
    """
    tilted = geometric_tilted(log_p, gaussian_log_density(mean, var), alpha, lower, upper)
    first = _integral(lambda x: x * float(np.exp(tilted.log_density(x))), lower, upper)
    second = _integral(lambda x: x * x * float(np.exp(tilted.log_density(x))), lower, upper)
    return tilted.normaliser / alpha * np.array([mean - first, mean**2 + var - second])


@equation("villacampa2020", "u9-vb-local")
def vb_as_reversed_divergence(
    mean: float, var: float, log_function: Density, cavity_mean: float, cavity_var: float
) -> float:
    r"""KL[q || Z_i⁻¹ φ_i q\] for q = N(mean, var), the divergence that variational Bayes minimises: section 2.3.

    villacampa2020 prints the approximate factor in place of φ_i; the divergence is then zero at any q.

    Parameters
    ----------
    mean, var : float         of q
    log_function : callable     log φ_i, finite everywhere
    cavity_mean : float       mean of q\
    cavity_var : float        its variance
    """
    log_cavity, log_q = gaussian_log_density(cavity_mean, cavity_var), gaussian_log_density(mean, var)
    away, reach = cavity_mean - mean, _SPREAD * float(np.sqrt(max(var, cavity_var)))
    lower, upper = mean + min(away, 0.0) - reach, mean + max(away, 0.0) + reach
    norm = _integral(lambda x: float(np.exp(log_function(x) + log_cavity(x))), lower, upper)
    log_tilted: Density = lambda x: log_function(x) + log_cavity(x) - float(np.log(norm))  # noqa: E731
    reach = _SPREAD * float(np.sqrt(var))
    return _kl(log_q, log_tilted, mean - reach, mean + reach)
