"""Runs of `fast` from the ordinary start, against recorded numbers: how it stops, mixes, damps, searches, tells.

A coarse tolerance leaves an answer where the stopping rule found it, three sweeps leave it where mixing and damping
have brought it, and a listener is told of each: none of this is seen at a fixed point. A steep prior makes steps fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from validation.checks import learning
from validation.checks.core import NO_PROBLEM, Context, Outcome, check
from validation.checks.learning import ALL, BATCHES, HYPER, PAPER, tiny
from validation.checks.recorded_runs import Way, outcomes
from validation.problem import Problem
from validation.solution import Solution

STEEP = 300.0  # times the variance: cavities turn improper, steps fail and are taken back
_COARSE, _FINE = 1e-3, 1e-10
_DEEP = ("trace", "residual", "iterations")  # rounding once the run is at its end


@cache
def asked(kind: str) -> Problem:
    """`tiny`, with the word "steep" for a variance that is STEEP times as large."""
    words = kind.split()
    plain = tiny(" ".join(word for word in words if word != "steep"))
    return replace(plain, name=kind, variance=STEEP * plain.variance) if "steep" in words else plain


def numbers(solution: Solution, apart: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """What a solution says, and how it was come by."""
    result = dict(learning.numbers(solution, apart))
    if solution.trace is not None and "trace" in apart:
        result["trace begins"] = solution.trace[:4]
    return result


def solved(
    method: str, kind: str, options: Mapping[str, Any], ends: bool, witness: str = "fast"
) -> Callable[[Context], Any]:
    """A run of a witness on `asked(kind)`: its answer, what a listener was told, and how often.

    method, kind, options : of `solve`
    ends : bool               a run to the end, of which the way is kept by its number of iterations alone
    witness : str
    """

    def run(context: Context) -> Any:
        told: list[Any] = []
        solution = context.solve(witness, method, asked(kind), callback=told.append, **options)
        if not ends:
            return {"answer": numbers(solution), "told": told[:4] + told[-1:], "rows": len(told)}
        return {
            "answer": numbers(solution, _DEEP),
            "told": told[:4],
            "rows": len(told),
            "iterations": solution.iterations,
        }

    return run


def _stops(method: str, *kinds: str, **options: Any) -> tuple[Way, ...]:
    """Where a coarse tolerance stops."""
    return tuple(
        Way(
            method,
            "fast",
            f"tolerance {_COARSE:g}, {kind}",
            solved(method, kind, {"tolerance": _COARSE} | options, False),
        )
        for kind in kinds
    )


def _ends(method: str, *kinds: str, **options: Any) -> tuple[Way, ...]:
    """To the end, by number of iterations."""
    return tuple(
        Way(method, "fast", f"to the end, {kind}", solved(method, kind, options, True), ("rows", "iterations"))
        for kind in kinds
    )


def _begins(method: str, *kinds: str, sweeps: int = 5, **options: Any) -> tuple[Way, ...]:
    """The first sweeps."""
    return tuple(
        Way(
            method,
            "fast",
            f"{sweeps} sweeps, {kind}",
            solved(method, kind, {"max_iterations": sweeps} | options, False),
        )
        for kind in kinds
    )


def _run(method: str, label: str, kind: str, **options: Any) -> tuple[Way, ...]:
    return (Way(method, "fast", label, solved(method, kind, options, False)),)


def _searched(method: str, kind: str, **options: Any) -> tuple[Way, ...]:
    """A search of the parameters that stops early, by its tolerance."""
    return _run(method, f"search, {kind}", kind, learn=HYPER, **options)


_DISTRIBUTIONS: Mapping[str, Any] = {"learn": HYPER, "learn_tolerance": 0.05}
_FULL, _SOFT = "multinomial-probit full", "softmax full"

WAYS: tuple[Way, ...] = (
    *(
        way
        for method, kinds in (
            ("x-gpc", ("logit", "logit full", "logit steep")),
            ("svgpc", ("probit", "probit full steep")),
            ("epgpc", ("probit", "probit full", "probit steep")),
        )
        for way in (
            *_stops(method, *kinds),
            *_ends(method, *kinds),
            *_begins(method, kinds[0], kinds[2 if len(kinds) > 2 else 1]),
        )
    ),
    *_run("x-gpc", "search", "logit", learn=ALL, learning_iterations=6, tolerance=_COARSE),
    *_run("svgpc", "search", "probit", learn=ALL, max_iterations=6),
    *_run("epgpc", "search", "probit", learn=ALL, max_iterations=6),
    *_run("epgpc", "until it stops", "probit", batches=BATCHES * 12, window=2, stop=0.2, trace=True),
    *_run("epgpc", "in order", "probit steep", batches=BATCHES, parallel=False, learn=HYPER, trace=True),
    *_run("epgpc", "side by side", "probit steep", batches=BATCHES, damping=0.9, learn=ALL, rebuild_every=2,
          trace=True),
    *_run("x-gpc-svi", "batches drawn", "logit", batch_size=3, n_steps=9, learn=ALL, trace=True, seed=2),
    *_run("x-gpc-svi", "until it stops", "logit", batches=BATCHES * 12, window=2, stop=0.05, trace=True),
    *_run("svgpc", "batches drawn", "probit", batch_size=3, n_steps=9, learn=ALL, trace=True, seed=2),
    *_run("svgpc", "until it stops", "probit", batches=BATCHES * 12, window=2, stop=0.05, trace=True, rate=0.3),
    *(
        way
        for method in ("vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")
        for way in (
            *_stops(method, "logit", "logit full", "logit steep"),
            *_ends(method, "logit steep"),
            *_searched(method, "logit", max_iterations=5),
        )
    ),
    *_stops("vi-taylor", "probit"),
    *_stops("laplace-binary", "logit full", "probit full", "logit full steep"),
    *_ends("laplace-binary", "probit full steep"),
    *_begins("laplace-binary", "logit full steep", sweeps=2),
    *_run("laplace-binary", "search", "logit full", learn=HYPER, learning_iterations=3, tolerance=_COARSE),
    *_begins("vi-jj", "logit", "logit full"),
    *_stops("svi", "logit", "probit", "logit steep"),
    *_ends("svi", "logit"),
    *_run("svi", "batches drawn", "probit", batch_size=3, n_steps=6, learn=HYPER, rate=0.5, seed=2),
    *_stops("ep", "threshold", "threshold steep", damping=0.7),
    *_ends("ep", "threshold", "threshold steep", damping=0.7),
    *_run("ep", "sites of data", "threshold steep", factors="datum", damping=0.9, max_iterations=6, trace=True),
    *_run("ep", "in order", "threshold steep", schedule="sequential", damping=0.9, max_iterations=6, trace=True),
    *_run("ep", "search", "threshold", learn=HYPER, optimizer="lbfgs", n_steps=3, tolerance=1e-6),
    *_run("ep", "rates", "threshold steep", learn=ALL, optimizer="adaptive", n_steps=4, rate=0.05, trace=True),
    *_stops("sep", "threshold", "threshold steep", damping=0.7),
    *_ends("sep", "threshold", damping=0.7),
    *_run("sep", "rates", "threshold", learn=ALL, optimizer="adaptive", n_steps=4, rate=0.05, trace=True),
    *_stops("gfitc", "threshold", "threshold steep", damping=0.7),
    *_ends("gfitc", "threshold", damping=0.7),
    *_searched("gfitc", "threshold", n_steps=3),
    *_stops("vi-robust", "threshold errors", "threshold errors steep"),
    *_ends("vi-robust", "threshold errors"),
    *_run("vi-robust", "in turn", "threshold errors", learn=ALL, n_steps=4, optimizer="adam", rate=0.05, trace=True),
    *_searched("vi-robust", "threshold errors", n_steps=2, optimizer="lbfgs"),
    *_stops("pep", "threshold errors", damping=0.7, alpha=0.7),
    *_run("pep", "undamped", "threshold errors steep", damping=1.0, alpha=0.9, max_iterations=4, trace=True),
    *_run("pep", "undamped batches", "threshold errors steep", damping=1.0, alpha=0.9, batches=BATCHES, trace=True),
    *(
        way
        for method in ("apep", "arpep", "rpapep")
        for way in (
            # of rpapep it takes half a second
            *(way._replace(full=method == "rpapep") for way in _stops(method, "threshold errors", alpha=0.7)),
            *_begins(method, "threshold errors", "threshold errors steep", alpha=0.7, trace=True),
        )
    ),
    *_ends("apep", "threshold errors steep", alpha=0.7),
    *_ends("arpep", "threshold errors steep", alpha=0.7),
    *_stops("bb-alpha", "threshold errors", alpha=0.7),
    *_run("bb-alpha", "draws", "threshold errors", alpha=0.7, expectation="monte-carlo", n_draws=50, max_iterations=4),
    *_searched("label-regression", "threshold errors", n_steps=4, optimizer="lbfgs"),
    *_stops("nested-ep", _FULL, f"{_FULL} steep", trace=True),
    *_ends("nested-ep", _FULL, f"{_FULL} steep"),
    *_stops("nested-iep", _FULL, f"{_FULL} steep", trace=True),
    *_ends("nested-iep", _FULL, f"{_FULL} steep"),
    *_run("nested-ep", "product rule", _FULL, prediction="quadrature", prediction_nodes=6, max_iterations=3),
    *_run("nested-ep", "converged, in order", f"{_FULL} steep", schedule="sequential", max_iterations=5, trace=True),
    *_run("qiep", "in order", f"{_FULL} steep", nodes=5, prediction_nodes=5, schedule="sequential",
          max_iterations=4, trace=True),
    *_run("laplace", "product rule", _SOFT, prediction_nodes=6),
    *_run("laplace-sparse", "product rule", "softmax", prediction_nodes=6),
    *_run("nested-ep", "incremental, in order", f"{_FULL} steep", inner="incremental", schedule="sequential",
          inner_schedule="parallel", inner_damping=0.7, max_iterations=5, trace=True),
    *_searched("nested-ep", f"{_FULL} distributions", max_iterations=3, learn_tolerance=0.05),
    *_stops("qep", _FULL, f"{_FULL} steep", nodes=5, prediction_nodes=5, trace=True),
    *_stops("qiep", _FULL, f"{_FULL} steep", nodes=5, prediction_nodes=5, trace=True),
    *_run("qep", "in order", f"{_FULL} steep", nodes=5, schedule="sequential", lambda_="full",
          prediction_nodes=5, max_iterations=4, trace=True),
    *_stops("laplace", _SOFT, f"{_SOFT} steep"),
    *_ends("laplace", _SOFT, f"{_SOFT} steep"),
    *_searched("laplace", f"{_SOFT} distributions", learn_tolerance=0.05),
    *_stops("laplace-tkp", _SOFT),
    *_stops("laplace-sparse", "softmax", "softmax steep"),
    *_stops("vb-probit", _FULL, f"{_FULL} steep", trace=True),
    *_ends("vb-probit", _FULL, f"{_FULL} steep"),
    *_searched("vb-probit", _FULL, max_iterations=3, learn_tolerance=0.05),
    *_run("vb-probit", "in turn", _FULL, learn=HYPER, optimizer="em", max_iterations=2),
)  # fmt: skip


def _register(method: str) -> None:
    rows = tuple(way for way in WAYS if way.method == method)

    @check(
        f"discrepancy/{method}/recorded",
        paper=PAPER[method],
        question="Does `fast` stop, mix, damp, search and tell as recorded?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(outcomes(context, rows))


for _method in dict.fromkeys(way.method for way in WAYS):
    _register(_method)
