"""Problems at the edge of what float64 decides, drawn from a seed: the cells of
`validation.checks.witnesses.hard_cases`.

A cell is one problem for one method. Every scenario is drawn once for each seed, and the same inputs, labels and scales
serve all methods that can take them, so that a cell which one method fails can be asked of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.door import catalogue
from validation.door.problem import Problem
from validation.door.quoting import shown

Array = NDArray[np.float64]

SEED = 20130101
OFFSET = 1e6  # where the inputs of a far cell lie: a million units of their spread from the origin
N_STEPS = 20  # of a method that takes steps: enough for every datum to come up


class Family(NamedTuple):
    """What kind of problem a method takes.

    likelihoods   one, or the two links of a method with one latent
    inducing      "needed", "refused" or "allowed"
    epsilon       labelling errors
    steps         True for a method that has no fixed point to converge to: it is asked for steps on given batches
    """

    likelihoods: tuple[str, ...]
    inducing: str
    epsilon: float = 0.0
    steps: bool = False


_POINTS = {catalogue.INDUCING: "needed", catalogue.ALL_ROWS: "refused", catalogue.EITHER: "allowed"}
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        entry.method: Family(
            entry.likelihoods,
            _POINTS[entry.points],
            epsilon=0.05 if entry.errors else 0.0,
            steps=entry.method == "x-gpc-svi",
        )
        for entry in catalogue.METHODS
    }
)


class Scenario(NamedTuple):
    """Ranges from which a problem is drawn; scales are relative to a spread of inputs of about one.

    n                data; None: one row a class
    n_classes        C, of methods with several classes
    log_variance     smallest and largest
    log_lengthscale  log10, smallest and largest
    inputs           "spread" over [-2, 2]; "pairs" nearly equal, "repeated" equal, both within a spread;
                     "far" (spread, at an offset) and "far-cluster" (within some lengthscales, at an offset)
    noise, jitter    values to choose from, relative to the variance
    """

    name: str
    n: int | None = 6
    n_classes: int = 3
    log_variance: tuple[float, float] = (-1.0, 2.0)
    log_lengthscale: tuple[float, float] = (-0.3, 0.3)
    inputs: str = "spread"
    noise: tuple[float, ...] = (0.0, 0.01, 0.3)
    jitter: tuple[float, ...] = (0.0, 1e-8, 1e-4)


SCENARIOS = (
    Scenario("harmless", n=3, jitter=(0.0,)),
    Scenario("shallow", log_variance=(-8.0, -5.0)),
    Scenario("steep", log_variance=(6.0, 8.0)),
    Scenario("steep-many", n=10, n_classes=4, log_variance=(5.0, 8.0), noise=(0.0, 0.01)),
    Scenario("short", log_lengthscale=(-3.0, -1.5)),
    Scenario("long", log_lengthscale=(1.0, 2.0), jitter=(1e-8, 1e-4)),
    Scenario("longest", log_lengthscale=(2.5, 3.0), log_variance=(0.0, 8.0), jitter=(0.0, 1e-8)),
    Scenario("nearly-equal", n=8, inputs="pairs", log_variance=(-2.0, 8.0), noise=(0.0, 1e-4)),
    Scenario("repeated", n=8, inputs="repeated", log_variance=(0.0, 6.0), noise=(0.0, 1e-3)),
    Scenario("far", inputs="far", log_variance=(-2.0, 6.0)),
    Scenario("far-short", inputs="far", log_lengthscale=(-3.0, -2.0), log_variance=(0.0, 8.0)),
    Scenario("far-cluster", inputs="far-cluster", log_lengthscale=(-3.0, -1.0), log_variance=(-2.0, 8.0)),
    Scenario("row-a-class", n=None, n_classes=5, log_variance=(0.0, 8.0)),
    Scenario("thirty-classes", n=None, n_classes=30, log_variance=(-2.0, 4.0), noise=(0.01, 0.3), jitter=(1e-4,)),
    Scenario("any", n=7, n_classes=4, log_variance=(-8.0, 8.0), log_lengthscale=(-3.0, 3.0)),
    Scenario("any-pairs", n=8, inputs="pairs", log_variance=(-8.0, 8.0), log_lengthscale=(-3.0, 3.0)),
    Scenario("slow", n=3, log_variance=(6.2, 6.2), log_lengthscale=(0.75, 0.75), noise=(1e-4,), jitter=(0.0,)),
)

# Sweeps that shrink by a few per cent each: a rule that takes the last change for the distance is wrong by a factor of
# tens. At this tolerance that is beyond the limit of 1e-8, and an honest distance within it.
SLOW, SLOW_TOLERANCE = ("nested-ep", "nested-iep", "qep", "qiep"), 1e-9
# The same of damped sweeps, by method: the cell in which they shrink slowest and still arrive. With a trace none of
# `fast` are mixed before.
SWEPT: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "ep": ("slow", {"tolerance": 1e-9, "trace": True, "max_iterations": 5000}),
        "gfitc": ("slow", {"tolerance": 1e-9, "max_iterations": 5000}),
    }
)


class Cell(NamedTuple):
    """One question of the grid."""

    method: str
    problem: Problem
    options: Mapping[str, Any]


def cells(method: str, seed: int = SEED, names: tuple[str, ...] = ()) -> Iterator[Cell]:
    """The cells of a method: one for each scenario (or of those named), drawn from `seed`.

    Raises
    ------
    ValueError   for a method or a scenario that is not there
    """
    if method not in FAMILIES:
        raise ValueError(f"method: found {shown(method)}, expected one of {', '.join(FAMILIES)}")
    known = [scenario.name for scenario in SCENARIOS]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"cell: found {shown(unknown[0])}, expected one of {', '.join(known)}")
    for index, scenario in enumerate(SCENARIOS):
        if names and scenario.name not in names:
            continue
        rng = np.random.default_rng((seed, index))
        problem = _drawn(rng, scenario, FAMILIES[method])
        options: dict[str, Any] = {}
        if FAMILIES[method].steps:
            # never all of them: where steps have arrived, an adaptive rate is a ratio of two roundings
            options["batches"] = [rng.choice(problem.n, max(1, problem.n // 2), replace=False) for _ in range(N_STEPS)]
        if scenario.name == "slow" and method in SLOW:
            options["tolerance"] = SLOW_TOLERANCE
        if method in SWEPT and scenario.name == SWEPT[method][0]:
            options |= SWEPT[method][1]
        yield Cell(method, problem, options)


def _drawn(rng: np.random.Generator, scenario: Scenario, family: Family) -> Problem:
    """The problem of a scenario for a family; methods of one family draw the same numbers."""
    binary = family.likelihoods[0] in ("logit", "probit")
    n_classes = 2 if binary else scenario.n_classes
    n = scenario.n or n_classes
    d = int(rng.integers(1, 3))
    variance = float(np.exp(rng.uniform(*scenario.log_variance)))
    lengthscale = float(10.0 ** rng.uniform(*scenario.log_lengthscale))
    X = _inputs(rng, scenario.inputs, n, d, lengthscale)
    y = rng.integers(0, n_classes, n) if scenario.n else rng.permutation(n_classes)
    y[:2] = rng.permutation(n_classes)[:2]  # at least two classes to tell apart
    if scenario.n is None:
        y = rng.permutation(n_classes)
    noise = variance * float(rng.choice(scenario.noise))
    jitter = variance * float(rng.choice(scenario.jitter))
    rows = rng.permutation(n)[: max(1, min(n, 5) - 1)]
    offset = rng.uniform(-0.3, 0.3, (len(rows), d)) * min(lengthscale, 1.0)
    likelihood = family.likelihoods[int(rng.integers(len(family.likelihoods)))]
    sparse = bool(rng.integers(2)) if family.inducing == "allowed" else family.inducing == "needed"
    return Problem(
        name=f"hard-{scenario.name}",
        X=X,
        y=y,
        n_classes=n_classes,
        likelihood=likelihood,
        variance=variance,
        lengthscales=lengthscale * rng.uniform(0.7, 1.4, d),
        noise=noise,
        jitter=jitter,
        Z=X[rows] + offset if sparse else None,
        shared=True,
        prior_model="fitc" if sparse else "full",
        epsilon=family.epsilon,
        X_test=np.vstack([X[:1], X[1:2] + 0.5 * min(lengthscale, 1.0), X[:1] + 3.0 * lengthscale]),
    )


def _inputs(rng: np.random.Generator, inputs: str, n: int, d: int, lengthscale: float) -> Array:
    X = rng.uniform(-2.0, 2.0, (n, d))
    middle = n // 2
    if inputs == "pairs":
        distance = lengthscale * 10.0 ** rng.uniform(-9.0, -4.0, (middle, 1))
        X[middle : 2 * middle] = X[:middle] + distance * rng.choice([-1.0, 1.0], d)
    elif inputs == "repeated":
        X[middle : 2 * middle] = X[:middle]
    elif inputs == "far":
        X += OFFSET * rng.choice([-1.0, 1.0], d)
    elif inputs == "far-cluster":
        X = lengthscale * X + OFFSET * rng.choice([-1.0, 1.0], d)
    return X
