"""Truths that ship with the package: small files of moments, made and made again by `make truths`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from validation import problems
from validation.door.problem import Problem, digest
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.truth.make import Listener, Truth, make_truth

SEED = 20251019


class Recipe(NamedTuple):
    """How a stored truth is made.

    method, target_ess    the route, and its effective draws
    second                the second route; None: the best there is
    first_draws, thin     where it is known that chains need them: draws per chain to begin with, sweeps per draw
    options               of the first sampler, in place of those of its route
    """

    method: str
    target_ess: float
    second: str | None = None
    first_draws: int | None = None
    thin: int = 1
    options: Mapping[str, Any] = MappingProxyType({})


_EXACT = Recipe("exact-probit", 20_000)
_STEEP = Recipe("exact-probit", 10_000)
# labelling errors leave no exact draws: chains of exact HMC, held against chains with coordinate draws too;
# log Z from their draws and by particles, the surer of the two kept
_ERRORS = Recipe("gibbs-threshold", 10_000, options=MappingProxyType({"evidence": "all", "target_error": 0.02}))
# log Z by three routes is part of the file; Pólya-Gamma sweeps without further moves are the second route
_LOGIT = Recipe("gibbs-logit", 10_000)


def _longer(thin: int, target_ess: float = 10_000, first_draws: int = 1500) -> Recipe:
    """Beyond some forty data annealed particles take minutes: log Z from the draws, by two routes."""
    options = MappingProxyType({"evidence": "chains"})
    return Recipe("gibbs-logit", target_ess, None, first_draws, thin, options)


# log Z by bridge sampling is part of the file; elliptical slices alone are the second route
_SOFTMAX = Recipe("mh-softmax", 10_000)

# A problem's name (with "-probit" for the probit link in place of the logistic one) and how its truth is made.
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "toy": _LOGIT,
        "toy-steep": _LOGIT,
        "toy-sparse": _longer(4),
        "iris": _longer(2),
        "wine": _longer(2),
        "digits": _longer(3),
        "breast-cancer": _longer(3),
        "breast-cancer-full": _longer(2),
        "toy-probit": _EXACT,
        "toy-steep-probit": _EXACT,
        "toy-sparse-probit": _EXACT,
        "iris-probit": _EXACT,
        "toy-3-softmax": _SOFTMAX,
        "toy-4-steep-softmax": _SOFTMAX,
        "iris-3-softmax": _SOFTMAX,
        "toy-3-sparse-softmax": _SOFTMAX,
        "toy-3": _EXACT,
        "toy-3-threshold": _EXACT,
        "toy-3-errors": _ERRORS,
        "toy-3-sparse-errors": _ERRORS,
        "toy-4-steep": _STEEP,
        "toy-4-steep-threshold": _STEEP,
        "toy-3-sparse": _EXACT,
        "toy-3-sparse-threshold": _EXACT,
        "toy-2-sparse-threshold": _EXACT,
        "toy-4-sparse-steep-threshold": _STEEP,
        "iris-3": _STEEP,
        "iris-3-threshold": _STEEP,
    }
)


def question(name: str) -> Problem:
    """The problem whose truth is stored under that name, from its current recipe.

    Raises
    ------
    KeyError    with the near misses, if none is stored
    """
    if name not in RECIPES:
        close = get_close_matches(name, list(RECIPES), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise KeyError(f"stored: found {shown(name)}, expected one of {', '.join(RECIPES)}{hint}")
    if name in problems.names():
        return problems.get(name)
    return problems.get(name.removesuffix("-probit")).replace(name=name, likelihood="probit")


def names() -> tuple[str, ...]:
    """Names of all stored truths."""
    return tuple(RECIPES)


def folder() -> Path:
    """Where the files are."""
    return Path(str(resources.files("validation.truth"))) / "stored"


@cache
def load(name: str) -> Truth:
    """A stored truth with its card.

    Raises
    ------
    KeyError                  if no truth is stored under that name
    FileNotFoundError         if its files are missing: `make truths NAME=NAME` makes them
    """
    question(name)
    return Truth.load(folder() / f"{name}.npz")


def stored_truth(problem: Problem) -> Solution | None:
    """The stored answer to a problem, looked up by its name; None where there is none, or it is of another question."""
    if problem.name not in RECIPES or not (folder() / f"{problem.name}.npz").is_file():
        return None
    value = load(problem.name).solution
    return value if same_question(value.problem, problem) else None


def made(name: str, *, listen: Listener | None = None, callback: Any = None) -> Truth:
    """A stored truth recomputed from its recipe, in memory."""
    problem, recipe = question(name), RECIPES[name]
    return make_truth(
        problem,
        recipe.method,
        target_ess=recipe.target_ess,
        seed=SEED,
        second=recipe.second,
        first_draws=recipe.first_draws,
        thin=recipe.thin,
        options=recipe.options,
        listen=listen,
        callback=callback,
    )


def same_question(left: Problem, right: Problem) -> bool:
    """Equal fingerprints, or equal up to what another machine's sums leave of standardised data: 1e-9."""
    if digest(left) == digest(right):
        return True
    a, b = left.to_arrays(), right.to_arrays()
    if a.keys() != b.keys():
        return False
    return all(
        np.shape(a[key]) == np.shape(b[key])
        and (
            np.allclose(a[key], b[key], rtol=1e-9, atol=1e-12)
            if np.asarray(a[key]).dtype.kind == "f"
            else np.array_equal(a[key], b[key])
        )
        for key in a
    )
