"""Chains and routes to log Z from a fixed seed, against recorded numbers: what adapts, is tuned, counted or told.

A kernel of a chain leaves its target alone whatever its step, its reference or the order of its moves: averages cannot
show that one of them has changed. Seeds are fixed, so the draws themselves can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from validation.checks.core import NO_PROBLEM, Context, Outcome, check
from validation.checks.few_data import Few
from validation.checks.recorded_runs import Way, outcomes
from validation.checks.standard_errors import DISTRIBUTIONS, PAPER, ROUTES, Route, Sampler, sampled
from validation.problem import Problem

_SHORT = {"n_chains": 4, "n_draws": 12, "n_warmup": 20}
_TUNED = {"n_chains": 4, "n_draws": 10, "n_warmup": 60}
_AUTO = {"n_chains": 4, "n_draws": 20, "n_warmup": "auto", "max_warmup": 400, "target_ess": 60.0, "max_draws": 60}
_LEARNT = {"hyperprior": DISTRIBUTIONS, "n_steps": 3, "n_chains": 4, "n_draws": 8, "n_warmup": 20}
_HALF_T = {"variance": ("half-student-t", 4.0, 2.0), "lengthscales": ("half-student-t", 4.0, 1.5)}
_ALL = ("variance", "lengthscales", "noise")

CHAINS: tuple[tuple[str, Sampler], ...] = tuple(
    (f"chain: {label}", Sampler(method, few, options))
    for label, method, few, options in (
        ("all moves", "gibbs-logit", Few("logit"), _SHORT | {"moves": ("scale", "ellipse"), "thin": 2}),
        ("all moves, FITC", "gibbs-logit", Few("logit", fitc=True), _SHORT | {"moves": ("scale", "ellipse")}),
        ("warm-up by itself", "gibbs-logit", Few("logit"), _AUTO),
        ("warm-up by itself, FITC", "gibbs-logit", Few("logit", fitc=True), _AUTO | {"max_kept_bytes": 2000}),
        ("parameters", "gibbs-logit", Few("logit"), _LEARNT | {"learn": _ALL}),
        ("parameters, FITC", "gibbs-logit", Few("logit", fitc=True), _LEARNT | {"learn": _ALL}),
        ("several classes", "gibbs-probit", Few("multinomial-probit"), _SHORT),
        ("two classes, FITC", "gibbs-probit", Few("probit", fitc=True), _SHORT),
        ("warm-up by itself", "gibbs-probit", Few("multinomial-probit"), _AUTO),
        ("parameters", "gibbs-probit", Few("probit"), _LEARNT | {"learn": _ALL, "prior_on": "root"}),
        ("parameters, several classes, FITC", "gibbs-probit", Few("multinomial-probit", fitc=True),
         _LEARNT | {"learn": ("variance", "lengthscales"), "hyperprior": _HALF_T}),
        ("errors", "gibbs-threshold", Few("threshold", 0.3), _SHORT),
        ("none, FITC", "gibbs-threshold", Few("threshold", 0.0, True), _SHORT),
        ("both moves", "gibbs-threshold", Few("threshold", 0.3), _SHORT | {"moves": ("components", "bounce")}),
        ("parameters", "gibbs-threshold", Few("threshold", 0.3), _LEARNT | {"learn": _ALL}),
        ("all moves", "mh-softmax", Few("softmax"), _TUNED | {"moves": ("scaled", "ellipse", "flow")}),
        ("paths, FITC", "mh-softmax", Few("softmax", fitc=True), _TUNED),
        ("warm-up by itself", "mh-softmax", Few("softmax"), _AUTO | {"max_warmup": 500, "moves": ("scaled",)}),
        ("parameters", "mh-softmax", Few("softmax"), _LEARNT | {"learn": _ALL}),
        ("pairs", "gibbs-pairwise", Few("threshold"), _SHORT | {"n_warmup": 60}),
        ("pairs, FITC", "gibbs-pairwise", Few("threshold", fitc=True), _SHORT | {"n_warmup": 60}),
        ("several classes", "exact-probit", Few("multinomial-probit"), {"n_draws": 40, "target_error": 0.02}),
        ("two classes, FITC", "exact-probit", Few("probit", fitc=True), {"n_draws": 40}),
        ("threshold, FITC", "exact-probit", Few("threshold", 0.0, True), {"n_draws": 40, "target_error": 0.05}),
    )
)  # fmt: skip


def _chain(entry: Sampler) -> Callable[[Context], Any]:
    def run(context: Context) -> Any:
        told: list[Any] = []
        result = sampled(entry, 5, callback=told.append)
        # the first and the last sweeps as a listener sees them; what the answer says is in fields
        return {"answer": result, "told": told[:2] + told[-1:], "rows": len(told)}

    return run


def _route(entry: Route, **options: Any) -> Callable[[Context], Any]:
    def run(context: Context) -> Any:
        return entry.answer(np.random.default_rng(9), entry.few, **options)

    return run


def _rounds(entry: Route) -> Mapping[str, Any]:
    """A second round: the first misses its target."""
    return {"target_error": 0.15, "max_rounds": 2} if entry.islands else {}


WAYS: tuple[Way, ...] = (
    *(Way(entry.method, "gibbs", label, _chain(entry)) for label, entry in CHAINS),
    *(Way(entry.method, "gibbs", f"log Z: {entry.name}", _route(entry, **_rounds(entry))) for entry in ROUTES),
)


def _register(method: str) -> None:
    rows = tuple(way for way in WAYS if way.method == method)

    @check(
        f"discrepancy/{method}/recorded",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Do chains and routes to log Z from a fixed seed pass through the recorded numbers?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(outcomes(context, rows))


for _method in dict.fromkeys(way.method for way in WAYS):
    _register(_method)
