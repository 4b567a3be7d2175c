"""Section 3: the alpha-divergence, its limits, and its gradient, for densities of one variable by quadrature.

Densities are given by their logarithms. The range is where the caller says that the mass is, [lower, upper]: densities
that do not integrate to one there, by too short a range or a peak too narrow to be seen, are refused.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from reference.common._options import shown
from reference.common.ledger import equation

Array = NDArray[np.float64]
Density = Callable[[float], float]

_SPREAD = 12.0  # standard deviations beyond which a Gaussian's share is below 1e-32
_MASS = 1e-8  # what may be missing of a mass of one: divergences of order one then keep eight digits
_ENDS = (
    1e-6  # of what is left at an end times the range; the tail beyond is a small part of it, and a divergent one more
)
_STEEP = 50.0  # log ratios beyond this are exponentiated with their density: e^50 is far from overflow


class Limits(NamedTuple):
    """What the divergence tends to."""

    at_zero: float  # KL[q||p]
    at_one: float  # KL[p||q]


class Tilted(NamedTuple):
    """A normalised density, and its normaliser."""

    log_density: Density
    normaliser: float


def _adaptive(function: Density, edges: Array) -> tuple[float, Array]:
    """Adaptive quadrature on panels, and the panels that it came to."""
    total, results = 0.0, [edges]
    for a, b in pairwise(edges):
        value, _, info = quad(function, a, b, epsabs=0.0, epsrel=1e-11, limit=200, full_output=1)[:3]
        total += value
        results += [info["alist"][: info["last"]], info["blist"][: info["last"]]]
    return float(total), np.unique(np.concatenate(results))


def _panels(lower: float, upper: float) -> Array:
    return np.linspace(lower, upper, 17)


def _integral(function: Density, edges: Array) -> float:
    return _adaptive(function, edges)[0]


def _seen(lower: float, upper: float, **log_densities: Density) -> Array:
    """Panels fine enough for all of some normalised densities.

    A narrow peak is nothing beside a broad one to a rule that asks for relative accuracy of their sum: each is
    integrated alone, and what is asked of both is integrated on the panels of both.
    """
    edges = [_panels(lower, upper)]
    for name, log_density in log_densities.items():
        mass, result = _adaptive(lambda x, log_density=log_density: float(np.exp(log_density(x))), edges[0])  # type: ignore[misc]
        if not abs(mass - 1.0) <= _MASS:
            raise ValueError(
                f"{name}: found mass {mass:.9g} on [{lower:g}, {upper:g}], expected 1; choose lower and upper to hold "
                "all of it, and not many thousand times as far apart as it is wide"
            )
        edges.append(result)
    return np.unique(np.concatenate(edges))


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

    Written ∫ q [α (r - 1) - (r^α - 1)]/(α(1-α)) with r = p/q: nothing cancels where α is near 0. Where r or r^α
    is beyond e^±50 the terms are α p + (1 - α) q - p^α q^{1-α}, each the exponential of a sum of logarithms.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of normalised densities
    alpha : float             α, neither 0 nor 1
    lower, upper : float      where the mass of both is

    Raises
    ------
    ValueError                for α = 0 or 1, which `alpha_divergence_limits` has; for densities that do not integrate
                              to one from lower to upper; where p^α q^{1-α}, for α below 0 or above 1, has not vanished
                              at lower and upper
    """
    if alpha in (0.0, 1.0):
        raise ValueError(f"alpha: found {shown(alpha)}, expected a number other than 0 and 1")

    edges = _seen(lower, upper, log_p=log_p, log_q=log_q)
    for end in (lower, upper):
        mixed = float(np.exp(alpha * log_p(end) + (1.0 - alpha) * log_q(end)))
        if not mixed * (upper - lower) <= _ENDS:
            raise ValueError(
                f"alpha: found p^alpha q^(1-alpha) = {mixed:.3g} at {end:g}, expected nothing left: its integral is "
                "not finite, or the range is too short"
            )

    def integrand(x: float) -> float:
        first, second = log_p(x), log_q(x)
        ratio = first - second
        if ratio > _STEEP or abs(alpha * ratio) > _STEEP:
            mixed = np.exp(alpha * first + (1.0 - alpha) * second)
            return float(alpha * np.exp(first) + (1.0 - alpha) * np.exp(second) - mixed)
        return float(np.exp(second) * (alpha * np.expm1(ratio) - np.expm1(alpha * ratio)))

    return _integral(integrand, edges) / (alpha * (1.0 - alpha))


@equation("villacampa2020", "u10-hellinger")
def hellinger_identity(log_p: Density, log_q: Density, lower: float, upper: float) -> float:
    """D_½[p||q] = 2 ∫ (√p - √q)², the one divergence of the family that is symmetric: section 3 of villacampa2020.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of normalised densities
    lower, upper : float      where the mass of both is

    Raises
    ------
    ValueError                for densities that do not integrate to one from lower to upper
    """
    edges = _seen(lower, upper, log_p=log_p, log_q=log_q)
    return 2.0 * _integral(lambda x: float(np.exp(0.5 * log_p(x)) - np.exp(0.5 * log_q(x))) ** 2, edges)


@equation("villacampa2020", "u11-divergence-limits")
def alpha_divergence_limits(log_p: Density, log_q: Density, lower: float, upper: float) -> Limits:
    """lim_{α→0} D_α[p||q] = KL[q||p] and lim_{α→1} D_α[p||q] = KL[p||q]: section 3 of villacampa2020.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of normalised densities
    lower, upper : float      where the mass of both is

    Raises
    ------
    ValueError                for densities that do not integrate to one from lower to upper
    """
    edges = _seen(lower, upper, log_p=log_p, log_q=log_q)
    return Limits(_kl(log_q, log_p, edges), _kl(log_p, log_q, edges))


@equation("villacampa2020", "u11-divergence-limits")
def _kl(log_a: Density, log_b: Density, edges: Array) -> float:
    """KL[a||b] of normalised densities."""
    return _integral(lambda x: float(np.exp(log_a(x))) * (log_a(x) - log_b(x)), edges)


@equation("villacampa2020", "u14-tilted-density")
def geometric_tilted(log_p: Density, log_q: Density, alpha: float, lower: float, upper: float) -> Tilted:
    """p̃ ∝ p^α q^{1-α}, normalised, and Z_p̃ = ∫ p^α q^{1-α}: below (7) of villacampa2020.

    Parameters
    ----------
    log_p, log_q : callable   logarithms of densities
    alpha : float             α
    lower, upper : float      where the mass of p̃ is

    Raises
    ------
    ValueError                where no mass is found from lower to upper
    """

    def log_mixture(x: float) -> float:
        return alpha * log_p(x) + (1.0 - alpha) * log_q(x)

    normaliser = _integral(lambda x: float(np.exp(log_mixture(x))), _panels(lower, upper))
    if not 0.0 < normaliser < np.inf:
        raise ValueError(
            f"lower, upper: found mass {normaliser:g} on [{lower:g}, {upper:g}], expected that of p^alpha q^(1-alpha)"
        )
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

    Raises
    ------
    ValueError                where no mass is found from lower to upper
    """
    tilted = geometric_tilted(log_p, gaussian_log_density(mean, var), alpha, lower, upper)
    edges = _seen(lower, upper, tilted=tilted.log_density)
    first = _integral(lambda x: x * float(np.exp(tilted.log_density(x))), edges)
    second = _integral(lambda x: x * x * float(np.exp(tilted.log_density(x))), edges)
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

    Raises
    ------
    ValueError                where no mass of φ_i q\ is found within twelve deviations of both means
    """
    log_cavity, log_q = gaussian_log_density(cavity_mean, cavity_var), gaussian_log_density(mean, var)
    away, reach = cavity_mean - mean, _SPREAD * float(np.sqrt(max(var, cavity_var)))
    lower, upper = mean + min(away, 0.0) - reach, mean + max(away, 0.0) + reach
    norm = _integral(lambda x: float(np.exp(log_function(x) + log_cavity(x))), _panels(lower, upper))
    if not 0.0 < norm < np.inf:
        raise ValueError(
            f"log_function: found mass {norm:g} under the cavity on [{lower:g}, {upper:g}], expected a number > 0"
        )
    log_tilted: Density = lambda x: log_function(x) + log_cavity(x) - float(np.log(norm))  # noqa: E731
    reach = _SPREAD * float(np.sqrt(var))
    return _kl(log_q, log_tilted, _seen(mean - reach, mean + reach, q=log_q))
