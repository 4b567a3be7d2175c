"""A sampler as `solve` calls it, by keywords, from a function of a problem and a value of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import wraps
from typing import Any

from gibbs.core.checks import Option
from gibbs.core.declare import Options
from gibbs.core.values import Data, Prior
from validation.door.problem import Problem
from validation.door.solution import Solution


def by_keywords(options: type[Options]) -> Callable[[Callable[[Problem, Any], Solution]], Callable[..., Solution]]:
    """run(problem, options) as answer(problem, **keywords), with the keywords and defaults of that class."""

    def decorate(run: Callable[[Problem, Any], Solution]) -> Callable[..., Solution]:
        @wraps(run)
        def answer(problem: Problem, **given: Any) -> Solution:
            return run(problem, options(**given))

        answer.__signature__ = signature(options.declared())  # type: ignore[attr-defined]
        return answer

    return decorate


def signature(row: Mapping[str, Option]) -> inspect.Signature:
    """A problem, and the options of a row as keywords."""
    asked = [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=one.default) for k, one in row.items()]
    return inspect.Signature([inspect.Parameter("problem", inspect.Parameter.POSITIONAL_OR_KEYWORD), *asked])


def values(problem: Problem) -> tuple[Data, Prior]:
    """A problem's data and prior, for models of all its latent functions."""
    data, prior = ({one.name: getattr(problem, one.name) for one in fields(cls)} for cls in (Data, Prior))
    return Data(**data), Prior(**prior)


def one_latent(problem: Problem) -> tuple[Data, Prior]:
    """Data and prior of the one latent function."""
    data, prior = values(problem)
    own = {name: getattr(problem, name)[0] for name in ("variance", "lengthscales", "noise", "jitter")}
    own |= {name: None if getattr(problem, name) is None else getattr(problem, name)[0] for name in ("Z", "smoothness")}
    return data, replace(prior, **own)


def moments_of(chains: Any, problem: Problem) -> dict[str, Any]:
    """Moments and predictions of a solution that chains over several latent functions have, with their errors."""
    names = ["latent_mean", "latent_cov"]
    if problem.prior_model == "fitc":
        names += ["inducing_mean", "inducing_cov"]
    if problem.X_test is not None:
        names += ["test_latent_mean", "test_latent_cov", "probabilities"]
    results = {key: getattr(chains, key) for name in names for key in (name, f"{name}_se") if hasattr(chains, key)}
    return results if problem.X_test is None else {**results, "probability_mass": chains.probability_mass}
