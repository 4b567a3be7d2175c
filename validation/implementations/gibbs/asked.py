"""A sampler as `solve` calls it, by keywords, from a function of a problem and a value of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

from gibbs.core.options import Options
from validation.problem import Problem
from validation.solution import Solution


def by_keywords(options: type[Options]) -> Callable[[Callable[[Problem, Any], Solution]], Callable[..., Solution]]:
    """run(problem, options) as answer(problem, **keywords), with the keywords and defaults of that class."""

    def decorate(run: Callable[[Problem, Any], Solution]) -> Callable[..., Solution]:
        @wraps(run)
        def answer(problem: Problem, **given: Any) -> Solution:
            return run(problem, options(**given))

        answer.__signature__ = signature(options)  # type: ignore[attr-defined]
        return answer

    return decorate


def signature(*classes: type[Options]) -> inspect.Signature:
    """A problem, and the fields of the classes as keywords; where two have one name, the last counts."""
    rows: dict[str, Any] = {}
    for options in classes:
        rows |= {field.name: options.row[field.name].default for field in fields(options)}
    asked = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in rows.items()]
    return inspect.Signature([inspect.Parameter("problem", inspect.Parameter.POSITIONAL_OR_KEYWORD), *asked])
