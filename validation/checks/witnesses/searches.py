"""Where searches end: the other witness's gradient there.

A search that stops early, or on the gradient of something else, reports an optimum that is none. At its end the other
witness is asked for the gradient, distributions of the parameters differentiated by the judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.witnesses.learning import DISTRIBUTIONS, PAPER, WITNESSES
from validation.door.problem import Problem

Array = NDArray[np.float64]
_LEARN = ("variance", "lengthscales")


@cache
def line(kind: str) -> Problem:
    """Twelve data on a line whose evidence has a maximum inside: one label on the wrong side.

    kind : str    the likelihood, then "full", "errors", "distributions" as in
    `validation.checks.witnesses.learning.tiny`
    """
    likelihood, *words = kind.split()
    X = np.linspace(-2.2, 2.2, 12)[:, None] + 0.05 * np.cos(np.arange(12.0))[:, None]
    binary = likelihood in ("logit", "probit")
    return Problem(
        name=f"line {kind}",
        X=X,
        y=np.array([0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1] if binary else [0, 0, 1, 0, 1, 1, 1, 2, 2, 1, 2, 2]),
        n_classes=2 if binary else 3,
        likelihood=likelihood,
        variance=1.2,
        lengthscales=0.9,
        noise=0.05,
        jitter=1e-3,
        Z=None if "full" in words else np.array([-1.8, -0.9, 0.0, 0.8, 1.7])[:, None],
        prior_model="full" if "full" in words else "fitc",
        shared=not binary,
        epsilon=0.05 if "errors" in words else 0.0,
        hyperprior={name: DISTRIBUTIONS[name] for name in _LEARN} if "distributions" in words else None,
    )


class Search(NamedTuple):
    """A search, and who else is asked for the derivative where it ends.

    derivative : float     entry of the gradient in logarithms up to which an end is one
    why : str         why not less
    witnesses         whose searches are asked; those of the other kind take too long
    full : bool       asked by a full run only: it takes long
    """

    method: str
    kind: str
    options: Mapping[str, Any] = MappingProxyType({})
    derivative: float = 1e-4
    why: str = (
        "a search ends at derivatives of 1e-5, or where its objective gains 1e-13 of itself: 1e-6 at curvatures near 1"
    )
    witnesses: tuple[str, ...] = WITNESSES
    full: bool = False


_FAST = ("fast",)
_BY_VALUE = "these searches end where their objective gains less than 1e-10 of itself, which leaves derivatives of 1e-4"
SEARCHES = (
    Search("x-gpc", "logit"),
    Search("x-gpc", "logit full"),
    Search("svgpc", "probit", witnesses=_FAST),
    Search("epgpc", "probit"),
    Search("epgpc", "probit full"),
    Search("svi", "logit", witnesses=_FAST),
    Search("vi-jj", "logit", derivative=1e-3, why=_BY_VALUE),
    Search("vi-jj-full", "logit full"),
    Search("vi-jj-hybrid", "logit", derivative=1e-3, why=_BY_VALUE),
    Search("vi-taylor", "logit full", derivative=1e-3, why=_BY_VALUE),
    Search("vi-taylor", "probit", derivative=1e-3, why=_BY_VALUE),
    Search("ep", "threshold", {"optimizer": "lbfgs"}, witnesses=_FAST),
    Search("gfitc", "threshold", witnesses=_FAST),
    Search("vi-robust", "threshold errors", {"optimizer": "lbfgs"}, witnesses=_FAST, full=True),
    Search("pep", "threshold errors", {"optimizer": "lbfgs", "alpha": 0.7}, witnesses=_FAST, full=True),
    Search("apep", "threshold errors", {"optimizer": "lbfgs", "alpha": 0.7}, witnesses=_FAST, full=True),
    Search("label-regression", "threshold errors"),
    Search("laplace-binary", "logit full"),
    Search("laplace-binary", "probit full"),
    Search("laplace", "softmax full"),
    Search("laplace", "softmax full distributions"),
    Search("laplace", "softmax full distributions", {"prior_on": "root", "map_density": "log"}),
    Search("nested-ep", "multinomial-probit full", witnesses=_FAST),
    Search("nested-iep", "multinomial-probit full distributions", witnesses=_FAST),
)


def distribution_derivative(problem: Problem, name: str, prior_on: str, map_density: str) -> Array:
    """d log p(parameter) / d log parameter of the problem's distributions, one entry for each; by their densities.

    half-student-t: p(x) ~ (1 + (x/scale)²/df)^(-(df + 1)/2); log-normal: log x ~ N(log scale, df²). Where a
    distribution sits on the root x = √θ, as it may of variance and noise, its density is that of the root; "log" takes
    the density of log x, which is x p(x).
    """
    distributions = problem.hyperprior or {}
    value = getattr(problem, name)[:1] if problem.shared else getattr(problem, name)
    if name not in distributions:
        return np.zeros(value.shape)
    family, df, scale = distributions[name]

    def log_density(theta: Array) -> Array:
        x = np.sqrt(theta) if prior_on == "root" and name != "lengthscales" else theta
        if family == "half-student-t":
            result = -0.5 * (df + 1.0) * np.log1p((x / scale) ** 2 / df)
        else:
            result = -np.log(x) - 0.5 * (np.log(x / scale) / df) ** 2
        return result + np.log(x) if map_density == "log" else result

    step = 1e-5
    return (log_density(value * np.exp(step)) - log_density(value * np.exp(-step))) / (2.0 * step)


def derivative_of(context: Context, witness: str, method: str, problem: Problem, options: Mapping[str, Any]) -> Array:
    """The gradient in the learned logarithms at the problem's own parameters, one row if they are shared."""
    held = {name: value for name, value in options.items() if name == "alpha"}
    result = context.solve(witness, method, problem, **held).gradients
    assert result is not None
    rows = slice(0, 1) if problem.shared else slice(None)
    parts = [np.asarray(result[name])[rows] * getattr(problem, name)[rows] for name in _LEARN]
    distributions = [
        distribution_derivative(problem, name, options.get("prior_on", "field"), options.get("map_density", "value"))
        for name in _LEARN
    ]
    return np.concatenate(
        [np.ravel(part + distribution) for part, distribution in zip(parts, distributions, strict=True)]
    )


def ends(context: Context, searches: Iterable[Search]) -> Iterable[Outcome]:
    """The other witness's derivative at the end of a search, and at its start for comparison."""
    for search in searches:
        if search.full and context.quick:
            continue
        problem = line(search.kind)
        for witness in search.witnesses:
            other = WITNESSES[1 - WITNESSES.index(witness)]
            solution = context.solve(witness, search.method, problem, learn=_LEARN, **search.options)
            derivatives = derivative_of(context, other, search.method, solution.problem, search.options)
            yield Compared(
                float(np.abs(derivatives).max()) if solution.converged else np.inf,
                search.derivative,
                f"{search.kind}: {search.why}; converged {solution.converged}, variance "
                f"{solution.problem.variance[0]:.3g}, lengthscale {solution.problem.lengthscales[0, 0]:.3g}",
                witness,
                other,
                "largest entry of the gradient in a logarithm, nat",
            )


def _register(method: str, searches: tuple[Search, ...]) -> None:
    late = all(search.full for search in searches)

    @check(
        f"limit/{method}/search_end",
        paper=PAPER[method],
        question="Where the search of one witness ends, the gradient of the other is zero.",
        problems=() if late else (NO_PROBLEM,),
        full=(NO_PROBLEM,) if late else (),
    )
    def search_end(context: Context, problem: Problem) -> list[Outcome]:
        return list(ends(context, searches))


def _by_method() -> dict[str, tuple[Search, ...]]:
    return {
        method: tuple(search for search in SEARCHES if search.method == method)
        for method in dict.fromkeys(search.method for search in SEARCHES)
    }


for _method, _searches in _by_method().items():
    _register(_method, _searches)
