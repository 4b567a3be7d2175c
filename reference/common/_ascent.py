"""The maximum of an objective over a Gaussian a class: natural-gradient steps, mixed; L-BFGS where these are slow."""

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
from reference.common._mixing import Mixing
from reference.common._search import Limits, maximise
from reference.common.algebra import eigenvalues, inverted, solution
from reference.common.errors import NotPositiveDefiniteError, cholesky

Array = NDArray[np.float64]
Told = Callable[[float, float], None]
"""Told objective and residual after every step."""

FINITE = "finite"
NOT_REACHED = "not reached"
PATIENCE = 40  # mixed steps before L-BFGS takes over
_FAR = 1e6  # largest variance over the prior's, and whitened mean, of a q that still is an answer
_SMALLEST_RATE = 2.0**-40  # below it a step along the gradient changes nothing but rounding
_NEAR = 1e-3  # residual from which on the objective is a parabola, whose rounding hides a step that leads away
_LEAST_CEILING = 2.0**-7
_STALLED = 200  # such steps, none half as long as the best before: only rounding makes them
_MEMORY = 12  # steps that are mixed
_REMEDY = "raise jitter or remove duplicate rows of Z"


class Place(Protocol):
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


P = TypeVar("P", bound=Place)
Objective = Callable[[Gaussians], P]


class Goal(NamedTuple):
    """When an ascent ends, and how bold it is on the way."""

    tolerance: float  # residual at which it has arrived
    iterations: int  # steps after which it gives up
    patience: int = PATIENCE  # mixed steps before L-BFGS takes over
    mixed_below: float = np.inf  # residual from which on steps are mixed: earlier they may leap to another maximum


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


class _Units:
    """Natural parameters as one vector, in the prior's units."""

    def __init__(self, K_ZZ: Array) -> None:
        """Those of the prior with covariances K_ZZ."""
        self.roots = np.stack([cholesky(K, "K_ZZ", _REMEDY) for K in K_ZZ])

    def vector(self, theta: Natural) -> Array:
        """Numbers of θ, or of a change of it."""
        back = np.transpose(self.roots, (0, 2, 1))
        return np.concatenate([np.ravel(back @ theta.precision @ self.roots), np.ravel(back @ theta.shift[:, :, None])])

    def natural(self, vector: Array) -> Natural:
        """The θ of a vector."""
        C, m = self.roots.shape[:2]
        cut = C * m * m
        inverse = inverted(self.roots, "chol Σ")
        precision = np.transpose(inverse, (0, 2, 1)) @ vector[:cut].reshape(C, m, m) @ inverse
        shift = np.transpose(inverse, (0, 2, 1)) @ vector[cut:].reshape(C, m, 1)
        return Natural(0.5 * (precision + np.transpose(precision, (0, 2, 1))), shift[:, :, 0])


def ascend(objective: Objective[P], K_ZZ: Array, start: Gaussians | None, goal: Goal, told: Told) -> Summit[P]:
    """The maximum that mixed natural-gradient steps reach; if not soon, with L-BFGS, which is better on long ridges.

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

    def left() -> int:
        return goal.iterations - len(values)

    def mixed(q: Gaussians) -> tuple[Gaussians, P]:
        return mixed_steps(objective, K_ZZ, q, goal._replace(iterations=min(goal.patience, left())), note)

    def note(value: float, residual: float) -> None:
        values.append(value)
        told(value, residual)

    q, at = mixed(q)
    while not _ended(at, q, K_ZZ, goal.tolerance) and left() > 0:
        before = step_length(at.direction, q)[0]
        q = quasi_newton(objective, K_ZZ, q, left(), note)
        q, at = mixed(q) if left() > 0 else (q, objective(q))
        if not step_length(at.direction, q)[0] < 0.5 * before:
            break  # neither leads any further
    residual, _ = step_length(at.direction, q)
    gone = unbounded(q, K_ZZ)
    converged = gone is None and residual <= goal.tolerance
    return Summit(q, at, gone or (FINITE if converged else NOT_REACHED), np.array(values), residual, converged)


def _ended(at: Place, q: Gaussians, K_ZZ: Array, tolerance: float) -> bool:
    """Whether q has arrived, or runs away."""
    return step_length(at.direction, q)[0] <= tolerance or unbounded(q, K_ZZ) is not None


def mixed_steps(objective: Objective[P], K_ZZ: Array, q: Gaussians, goal: Goal, told: Told) -> tuple[Gaussians, P]:
    """Natural-gradient steps, mixed with those before; none may lower the objective. Arguments as of `ascend`.

    Where the mixed step would, or leaves no distribution, a plain step is halved until it does not.
    """
    theta, at = natural_parameters(q), objective(q)
    residual, length = step_length(at.direction, q)
    units, mixing = _Units(K_ZZ), Mixing(_MEMORY, 1e-12)
    rate, ceiling, best = 1.0, 1.0, np.inf

    def tried(there: Natural) -> tuple[Natural, Gaussians, P] | None:
        """The objective there, None if it is lower than here."""
        try:
            new = moments_of(there, "precision of q")
            result = objective(new)
        except NotPositiveDefiniteError:
            return None
        return (there, new, result) if result.value >= at.value - 1e-12 * (1.0 + abs(at.value)) else None

    for step_number in range(goal.iterations):
        if _ended(at, q, K_ZZ, goal.tolerance):
            break
        step = None
        if residual < goal.mixed_below:  # elsewhere what was learned is of other places: its proposals lead back
            mixing.learn(units.vector(theta), units.vector(at.direction))
            mixed = mixing.propose()
            step = None if mixed is None else tried(units.natural(mixed))
        if step is None:
            mixing.forget(kept=1)
            while step is None and rate >= _SMALLEST_RATE:
                step = tried(along(theta, at.direction, rate))
                rate *= 1.0 if step else 0.5
            if step is None:
                break  # no step along the gradient leads up
        before = length
        theta, q, at = step
        residual, length = step_length(at.direction, q)
        if residual < _NEAR and length > before:
            ceiling = max(0.5 * ceiling, _LEAST_CEILING)
        told(at.value, residual)
        rate = min(ceiling, 2.0 * rate)
        if residual <= 0.5 * best:
            best, best_number = residual, step_number
        if best < _NEAR and step_number - best_number >= _STALLED:
            break
    return q, at


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
