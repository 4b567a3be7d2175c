"""Moments: is every method as far from the truths at hand as it was recorded to be, covariances as much as means?

Both witnesses compute one thing, so that identity sees a mistake of one of them; a mistake of both shows here. What
`triad compare` holds a stranger's answer to, `validation.judge.distances`, the witnesses meet themselves: the signed
mean logarithm of variance ratios sees variances 5 % off wherever they are, and no distance may shrink either.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from validation.checks.core import Compared, Context, Outcome, Skipped, check
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge import distances
from validation.judge.distances import Entry

# problems whose truth is stored or a second of quadrature, one at least for each method
QUICK = ("three-points-fitc", "toy", "toy-2-sparse-threshold", "toy-3", "toy-3-softmax")
# left to `triad compare`: a minute and more of iterations each
SLOW = (
    ("rpapep", "toy-3-sparse-threshold"),
    ("rpapep", "toy-3-sparse-errors"),
    ("rpapep", "toy-4-sparse-steep-threshold"),
)

PAPERS = {
    "wenzel2019": ("x-gpc", "x-gpc-svi", "svgpc", "epgpc"),
    "izmailov2016": ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor"),
    "riihimaki2013": ("nested-ep", "nested-iep", "qep", "qiep", "laplace", "laplace-tkp", "vb-probit"),
    "villacampa2017": ("ep", "sep", "gfitc", "vi-robust"),
    "rasmussen2006": ("laplace-binary",),
    "villacampa2020": ("pep", "apep", "arpep", "rpapep", "bb-alpha", "label-regression", "laplace-sparse"),
}
PAPER = {method: paper for paper, methods in PAPERS.items() for method in methods}


def base(name: str) -> str:
    """The problem that a check is asked of: that of the entry, its link whichever it is."""
    return name.removesuffix("-probit")


def truth(context: Context, entry: Entry) -> Solution:
    """The stored truth, or quadrature."""
    result = context.stored(distances.question(entry.problem))
    return distances.truth_of(entry.problem, context.solve) if result is None else result


def held(context: Context, entry: Entry, witness: str) -> Iterable[Outcome]:
    """One witness on one problem, every quantity that was recorded."""
    true = truth(context, entry)
    answer = context.solve(witness, entry.method, distances.question(entry.problem), **entry.options)
    if not answer.converged:
        yield Compared(np.inf, 0.0, "an iteration that did not converge has no fixed point", answer.label, "-")
        return
    result = distances.known(answer, true)
    for quantity in entry.distances:
        outcome = None if result is None else result.held(quantity, answer, true)
        if outcome is None:
            # a witness that leaves a quantity out, or answers for other settings, is a change too
            why = f"{quantity}: found none, or settings other than {entry.settings}, expected what was recorded"
            yield Compared(np.inf, 1.0, why, answer.label, true.label)
        elif outcome.resolves:
            unit = "departures from the recorded distance, in what is allowed"
            yield Compared(
                outcome.observed, outcome.limit, f"{quantity}: {outcome.why}", answer.label, true.label, unit
            )
        else:
            yield Skipped(f"{quantity}: {outcome.why}", answer.label, true.label)


def _register(method: str, own: list[Entry]) -> None:
    names = tuple(dict.fromkeys(base(entry.problem) for entry in own if (method, entry.problem) not in SLOW))
    quick = tuple(name for name in names if name in QUICK) or names[:1]

    @check(
        f"discrepancy/{method}/moments",
        paper=PAPER[method],
        question="Means, covariances, probabilities and log Z are as far from the truth as recorded.",
        problems=quick,
        full=tuple(name for name in names if name not in quick),
    )
    def moments(context: Context, problem: Problem) -> Iterable[Outcome]:
        # `reference` is slower, and has identity to answer for it
        for entry in own:
            if base(entry.problem) == problem.name:
                yield from held(context, entry, "fast")


for _method in sorted(distances.methods()):
    _register(_method, [entry for entry in distances.entries() if entry.method == _method])
