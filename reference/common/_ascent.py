"""The maximum of an objective over a Gaussian a class: natural-gradient steps, and L-BFGS where these are slow."""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from reference.common._gaussians import (
    Gaussians,
    Natural,
    along,
    mapped,
    moments_of,
    natural_parameters,
    pack,
    packed_gradient,
    unpack,
)
from reference.common._search import Limits, maximise
from reference.common.algebra import eigenvalues, inverted, solution
from reference.common.errors import NotPositiveDefiniteError, cholesky

Array = NDArray[np.float64]
Told = Callable[[float, float], None]
"""Told objective and residual after every step."""

FINITE = "finite"
NOT_REACHED = "not reached"
PATIENCE = 40  # steps before L-BFGS takes over
_FAR = 1e6  # largest variance over the prior's, and whitened mean, of a q that still is an answer
_SMALLEST_RATE = 2.0**-40  # below it a step along the gradient changes nothing but rounding
_NEAR = 1e-3  # residual from which on the objective is a parabola, whose rounding hides a step that leads away
_LEAST_CEILING = 2.0**-7
_MOST = 100.0  # times the residual that is taken for the distance
_STALLED = 200  # such steps, none half as long as the best before: only rounding makes them
_REMEDY = "raise jitter or remove duplicate rows of Z"


class Value(Protocol):
    """An objective at q."""

    @property
    def value(self) -> float:
        """The objective."""

    @property
    def direction(self) -> Natural:
        """Its natural gradient: what would be added to θ."""

    @property
    def by_mean(self) -> Array:
        """(C, m) derivative by the means, covariances held."""

    @property
    def by_cov(self) -> Array:
        """(C, m, m) derivative by the covariances, all entries free."""


P = TypeVar("P", bound=Value)
Objective = Callable[[Gaussians], P]


class Goal(NamedTuple):
    """When an ascent ends."""

    tolerance: float  # distance at which it has arrived
    iterations: int  # steps after which it gives up
    patience: int = PATIENCE  # natural-gradient steps before L-BFGS takes over


class Place(NamedTuple, Generic[P]):
    """Where steps have led."""

    q: Gaussians
    at: P
    residual: float  # natural gradient in the metric of q
    distance: float  # that further steps would go


class Summit(NamedTuple, Generic[P]):
    """Where an ascent ended."""

    q: Gaussians
    at: P
    optimum: str  # "finite", "not reached", or "none: ..." with what grows without bound
    values: Array  # objective after each step
    residual: float  # natural gradient in the metric of q
    converged: bool


def step_length(direction: Natural, q: Gaussians) -> tuple[float, float]:
    """How far a change of θ would move q in its own metric: the residual, and the length that a contraction shortens.

    With dT and dt the changes of precision and shift and r = dt - dT m, the residual is the largest of √tr(V dT V dT)
    and √(rᵀV r) over classes, and the length √Σ_k [½ tr(V dT V dT) + rᵀV r].
    """
    squares = []
    for dT, dt, m, V in zip(*direction, *q, strict=True):
        r = dt - dT @ m
        squares.append((max(float(np.sum((V @ dT) * (V @ dT).T)), 0.0), max(float(r @ V @ r), 0.0)))
    length = np.sqrt(sum(0.5 * by_cov + by_mean for by_cov, by_mean in squares))
    return float(np.sqrt(max(map(max, squares)))), float(length)


def unbounded(q: Gaussians, K_ZZ: Array) -> str | None:
    """What of q grows without bound, None if nothing does: variances or means far beyond the prior's (C, m, m)."""
    for k, (m, V, K) in enumerate(zip(*q, K_ZZ, strict=True)):
        root = cholesky(K, "K_ZZ", _REMEDY)
        white = solution(root, solution(root, V, "chol K_ZZ").T, "chol K_ZZ")
        if not eigenvalues(0.5 * (white + white.T), "whitened covariance")[-1] <= _FAR:
            return f"none: the variance of class {k} grows without bound"
        if not np.linalg.norm(solution(root, m, "chol K_ZZ")) <= _FAR:
            return f"none: the mean of class {k} grows without bound"
    return None


def ascend(objective: Objective[P], K_ZZ: Array, start: Gaussians | None, goal: Goal, told: Told) -> Summit[P]:
    """The maximum that natural-gradient steps reach; if not soon, with L-BFGS, which is better on long ridges.

    Parameters
    ----------
    objective : callable      q to the objective there; NotPositiveDefiniteError where it has none
    K_ZZ : (C, m, m)          prior covariances, the units of q
    start : Gaussians         q at first; None: the prior
    goal : Goal               when it ends
    told : callable           told objective and residual (NaN of a step of L-BFGS) after every step
    """
    q = Gaussians(np.zeros(K_ZZ.shape[:2]), K_ZZ) if start is None else start
    values: list[float] = []

    def note(value: float, residual: float) -> None:
        values.append(value)
        told(value, residual)

    def steps(q: Gaussians) -> Place[P]:
        left = goal.iterations - len(values)
        return natural_steps(objective, K_ZZ, q, goal._replace(iterations=min(goal.patience, left)), note)

    here = steps(q)
    while here.distance > goal.tolerance and unbounded(here.q, K_ZZ) is None and len(values) < goal.iterations:
        before = here.residual
        here = steps(quasi_newton(objective, K_ZZ, here.q, goal.iterations - len(values), note))
        if not here.residual < 0.5 * before:
            break  # neither leads any further
    gone = unbounded(here.q, K_ZZ)
    converged = gone is None and here.distance <= goal.tolerance
    optimum = gone or (FINITE if converged else NOT_REACHED)
    return Summit(here.q, here.at, optimum, np.array(values), here.residual, converged)


def natural_steps(objective: Objective[P], K_ZZ: Array, q: Gaussians, goal: Goal, told: Told) -> Place[P]:
    """Natural-gradient steps θ + r ∇, none of which may lower the objective: r is halved until it does not.

    r begins at 1 and is doubled after each step, up to a ceiling that falls where near the maximum steps overshoot.
    They end where the distance that further ones would go is below the tolerance: the residual times ρ/(1 - ρ), with ρ
    its last ratio; at least once and at most a hundred times the residual, for near rounding ratios mean nothing.
    Arguments as of `ascend`.
    """
    theta, at = natural_parameters(q), objective(q)
    residual, length = step_length(at.direction, q)
    distance, rate, ceiling, best, best_number = _MOST * residual, 1.0, 1.0, np.inf, 0

    def tried(there: Natural) -> tuple[Natural, Gaussians, P] | None:
        """The objective there, None if it is lower than here."""
        try:
            new = moments_of(there, "precision of q")
            result = objective(new)
        except NotPositiveDefiniteError:
            return None
        return (there, new, result) if result.value >= at.value - 1e-12 * (1.0 + abs(at.value)) else None

    for number in range(goal.iterations):
        if distance <= goal.tolerance or unbounded(q, K_ZZ) is not None:
            break
        step = None
        while step is None and rate >= _SMALLEST_RATE:
            step = tried(along(theta, at.direction, rate))
            rate *= 1.0 if step else 0.5
        if step is None:
            break  # no step along the gradient leads up
        before, shorter = residual, length
        theta, q, at = step
        residual, length = step_length(at.direction, q)
        rho = residual / before if before > 0.0 else 0.0
        distance = residual * (min(_MOST, max(1.0, rho / (1.0 - rho))) if rho < 1.0 else _MOST)
        if residual < _NEAR and length > shorter:
            ceiling = max(0.5 * ceiling, _LEAST_CEILING)
        told(at.value, residual)
        rate = min(ceiling, 2.0 * rate)
        if residual <= 0.5 * best:
            best, best_number = residual, number
        if best < _NEAR and number - best_number >= _STALLED:
            break
    return Place(q, at, residual, distance)


def quasi_newton(objective: Objective[P], K_ZZ: Array, q: Gaussians, max_iterations: int, told: Told) -> Gaussians:
    """L-BFGS over the numbers of `pack` in units of the prior, until rounding stops it or q runs away."""
    roots = np.stack([cholesky(each, "K_ZZ", _REMEDY) for each in K_ZZ])
    inverses: Array = np.asarray(inverted(roots, "chol Σ"), dtype=np.float64)

    def distribution(where: Array) -> tuple[Gaussians, Array]:
        white, factors = unpack(where, *q.mean.shape)
        return mapped(white, roots), factors

    def in_units(where: Array) -> tuple[float, Array]:
        here, factors = distribution(where)
        at = objective(here)
        by_mean = np.einsum("kji,kj->ki", roots, at.by_mean)
        by_cov = np.transpose(roots, (0, 2, 1)) @ at.by_cov @ roots
        return at.value, packed_gradient(by_mean, by_cov, factors)

    def runs_away(where: Array, value: float) -> bool:
        told(value, float("nan"))
        return unbounded(distribution(where)[0], K_ZZ) is not None

    limits = Limits(1e-9, 1e-16, max_iterations, 20 * max_iterations, memory=50)
    return distribution(maximise(in_units, pack(mapped(q, inverses)), limits, after=runs_away).where)[0]
