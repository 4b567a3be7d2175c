"""Runs of `reference` from the ordinary start, against recorded numbers: how it stops, damps, skips, searches, tells.

The other witness answers the same at the end and at each listed step, but what stops a run, what a listener is told,
what becomes of an improper cavity or of a step that is refused, and which batches are drawn is the loop's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from validation.checks.core import NO_PROBLEM, Context, Outcome, check
from validation.checks.learning import ALL, BATCHES, HYPER, PAPER
from validation.checks.recorded_fast import solved
from validation.checks.recorded_runs import Way, outcomes
from validation.problem import Problem

_COARSE = 1e-3
_FULL, _SOFT = "multinomial-probit full", "softmax full"
_DRAWN: Mapping[str, Any] = {"batch_size": 3, "n_steps": 4, "seed": 2, "trace": True}


def _way(method: str, label: str, kind: str, **options: Any) -> Way:
    return Way(method, "reference", f"reference: {label}, {kind}", solved(method, kind, options, False, "reference"))


def _stops(method: str, *kinds: str, **options: Any) -> Iterator[Way]:
    """Where a coarse tolerance stops."""
    for kind in kinds:
        yield _way(method, f"tolerance {_COARSE:g}", kind, **{"tolerance": _COARSE, **options})


def _begins(method: str, *kinds: str, sweeps: int = 3, **options: Any) -> Iterator[Way]:
    """The first sweeps."""
    for kind in kinds:
        yield _way(method, f"{sweeps} sweeps", kind, **{"max_iterations": sweeps, **options})


WAYS: tuple[Way, ...] = (
    *_stops("x-gpc", "logit", "logit full", "logit steep"),
    *_stops("epgpc", "probit", "probit full", "probit steep"),
    *_stops("svgpc", "probit", "probit full"),
    _way("x-gpc-svi", "batches drawn", "logit", **_DRAWN, learn=ALL),
    _way("x-gpc-svi", "until it stops", "logit", batches=BATCHES * 12, window=2, stop=0.05, trace=True),
    _way("svgpc", "batches drawn", "probit", **_DRAWN, learn=ALL),
    _way("epgpc", "in order", "probit steep", batches=BATCHES, parallel=False, learn=HYPER, trace=True),
    _way("epgpc", "batches drawn", "probit", batch_size=3, n_steps=5, seed=2, learn=ALL, trace=True),
    _way("x-gpc", "search", "logit", learn=ALL, learning_iterations=3, tolerance=_COARSE),
    _way("svgpc", "search", "probit", learn=ALL, max_iterations=3),
    *(
        way for method in ("vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")
        for way in _stops(method, "logit", "logit steep")
    ),
    *_stops("vi-taylor", "probit"),
    *_stops("laplace-binary", "logit full", "probit full", "logit full steep"),
    *_begins("laplace-binary", "logit full steep", sweeps=2),
    _way("laplace-binary", "search", "logit full", learn=HYPER, learning_iterations=3, tolerance=_COARSE),
    *_stops("svi", "logit", "probit", "logit steep"),
    _way("svi", "batches drawn", "probit", batch_size=3, n_steps=4, learn=HYPER, rate=0.5, seed=2),
    *(
        way for method in ("ep", "sep", "gfitc")
        for way in _stops(method, "threshold", "threshold steep", damping=0.7)
    ),
    _way("ep", "in order", "threshold steep", schedule="sequential", damping=1.0, max_iterations=3, trace=True),
    _way("ep", "sites of data", "threshold steep", factors="datum", damping=0.9, max_iterations=3, trace=True),
    _way("ep", "batches drawn", "threshold", **_DRAWN, learn=HYPER),
    *_stops("vi-robust", "threshold errors", "threshold errors steep"),
    _way("vi-robust", "batches drawn", "threshold errors", **_DRAWN, learn=HYPER),
    *_stops("pep", "threshold errors", damping=0.7, alpha=0.7),
    _way("pep", "undamped", "threshold errors steep", damping=1.0, alpha=0.9, max_iterations=3, trace=True),
    _way("pep", "outer steps", "threshold errors", alpha=0.7, learn=HYPER, n_steps=2, scheme="outer", trace=True,
         optimizer="adam", tolerance=1e-2),
    *(
        way for method in ("apep", "arpep", "rpapep")
        for way in _begins(method, "threshold errors", "threshold errors steep", alpha=0.7, trace=True)
    ),
    *_stops("bb-alpha", "threshold errors", alpha=0.7),
    _way("bb-alpha", "draws", "threshold errors", alpha=0.7, expectation="monte-carlo", n_draws=50, max_iterations=4),
    _way("bb-alpha", "draws at power 0", "threshold errors", alpha=0.0, expectation="monte-carlo", n_draws=50,
         max_iterations=4),
    *(
        _way(method, "power 0", "threshold errors", alpha=0.0, max_iterations=3, trace=True)
        for method in ("apep", "rpapep")
    ),
    _way("svi", "batches drawn, traced", "probit", batch_size=3, n_steps=4, seed=2, rate=0.5, trace=True),
    *_stops("nested-ep", _FULL, f"{_FULL} steep", trace=True),
    *_stops("nested-iep", _FULL, trace=True),
    _way("nested-ep", "incremental, in order", f"{_FULL} steep", inner="incremental", schedule="sequential",
         inner_schedule="parallel", inner_damping=0.7, max_iterations=3, trace=True),
    _way("nested-ep", "product rule", _FULL, prediction="quadrature", prediction_nodes=6, max_iterations=2),
    *_stops("qep", _FULL, nodes=5, prediction_nodes=5, trace=True),
    *_stops("qiep", _FULL, nodes=5, prediction_nodes=5, trace=True),
    *_stops("laplace", _SOFT, f"{_SOFT} steep", prediction_nodes=6),
    *_stops("laplace-tkp", _SOFT),
    *_stops("laplace-sparse", "softmax", "softmax steep", prediction_nodes=6),
    *_stops("vb-probit", _FULL, f"{_FULL} steep"),
    *_stops("ep", "threshold many", damping=0.7),
    _way("vb-probit", "plain", _FULL, accelerate=False, tolerance=1e-2),
    _way("laplace", "search", f"{_SOFT} distributions", learn=HYPER, learn_tolerance=0.05),
    _way("gfitc", "search", "threshold", learn=HYPER, n_steps=3),
    _way("vi-jj", "search", "logit", learn=HYPER, max_iterations=3),
    _way("vi-taylor", "search", "logit", learn=HYPER, max_iterations=3),
    _way("svi", "search", "logit", learn=HYPER, max_iterations=3),
    *(
        _way(method, "batches drawn", "threshold errors", **_DRAWN, learn=HYPER, alpha=0.7)
        for method in ("pep", "apep", "arpep", "rpapep")
    ),
    _way("apep", "search", "threshold errors", learn=HYPER, n_steps=1, optimizer="lbfgs", alpha=0.7, tolerance=1e-2),
    _way("label-regression", "rates", "threshold errors", learn=HYPER, optimizer="adaptive", n_steps=2, trace=True),
)  # fmt: skip


def _register(method: str) -> None:
    rows = tuple(way for way in WAYS if way.method == method)

    @check(
        f"discrepancy/{method}/recorded_reference",
        paper=PAPER[method],
        question="Does `reference` stop, damp, skip, search and tell as recorded?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(outcomes(context, rows))


for _method in dict.fromkeys(way.method for way in WAYS):
    _register(_method)
