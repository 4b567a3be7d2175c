"""Discrepancy: how far an approximation is from the truth, against distances recorded problem by problem.

Mean-field Pólya-Gamma inference is an approximation: it underestimates variances, more so the larger the prior
variance. So does svgpc; epgpc errs far less. That is no bug. A bug is a distance that has changed, in either
direction, so each is held within a factor of 1.5 of the value measured against long chains: nearer than that shows a
change as surely as farther. Where a truth is sampled and the method as near to it as the truth's own error, the caller
gives that error, and distances that differ by no more are taken for equal.
`python -m validation.checks.against_truth.discrepancy` measures the distances again and writes `distances.toml`.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources

import numpy as np

from validation.checks.core import Compared, Context, Outcome, Skipped, check
from validation.checks.subjects import DRAWN, FEW, LARGER, QUICK, REAL, SUBJECTS, THIRD, Subject, as_probit, truth
from validation.checks.witnesses import baselines
from validation.checks.witnesses.baselines import BASELINES
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import relative_difference

QUANTITIES = {
    "log_evidence": ("The bound or estimate is as far from log Z as recorded.", "distance from log Z, nat"),
    "latent_mean": ("Latent means are as far from the truth as recorded.", "relative difference"),
    "latent_cov": ("Latent variances are as far from the truth as recorded.", "mean relative difference"),
    "probabilities": ("Class probabilities are as far from the truth as recorded.", "largest difference"),
}

# the factor between a distance and the recorded one: room for the noise of a shorter chain, too little for a change
MARGIN = 1.5


def discrepancy(quantity: str, answer: Solution, exact: Solution) -> float:
    """The observed distance of one quantity, in the unit of QUANTITIES."""
    left, right = getattr(answer, quantity), getattr(exact, quantity)
    if quantity == "log_evidence":
        return float(abs(left - right))
    if quantity == "probabilities":
        return float(np.abs(left - right).max())
    if quantity == "latent_cov":
        # entry by entry: variances differ in size, and all of them are too small or too large together
        exact_var = np.einsum("nll->nl", right)
        return float(np.abs(np.einsum("nll->nl", left) / exact_var - 1.0).mean())
    return relative_difference(left, right)


@cache
def recorded() -> dict[str, dict[str, dict[str, float]]]:
    """method -> problem -> quantity -> distance, as measured."""
    text = resources.files("validation.checks.against_truth").joinpath("distances.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def compared(
    context: Context, subject: Subject, problem: Problem, quantity: str, exact: Solution, error: float = 0.0
) -> Iterable[Outcome]:
    """Both witnesses' distance from the truth against the recorded one; error is what the truths leave open in it."""
    distance = recorded().get(subject.method, {}).get(problem.name, {}).get(quantity)
    if distance is None:
        yield Skipped(f"distances.toml: found no {subject.method}.{problem.name}.{quantity}, expected a recorded one")
        return
    if quantity == "log_evidence" and (exact.log_evidence_se or 0.0) > 0.05:
        yield Skipped(f"log Z: found a standard error of {exact.log_evidence_se:.3g} nat, expected at most 0.05")
        return
    open_by = f"; the truths leave {error:.2g} open" if error else ""
    for implementation in ("reference", "fast"):
        answer = context.solve(implementation, subject.method, problem)
        result = discrepancy(quantity, answer, exact)
        nearest = min(max(distance, result - error), result + error)  # of what the errors leave possible
        yield Compared(
            observed=max(nearest / distance, distance / nearest) if nearest > 0.0 else np.inf,
            limit=MARGIN,
            why=f"{QUANTITIES[quantity][1]} {result:.4g}, recorded {distance:.4g}: the method's own error, "
            f"which is held within a factor of 1.5 in either direction{open_by}",
            left=implementation,
            right=exact.label,
            unit="times the recorded distance",
        )


def _register(subject: Subject, quantity: str) -> None:
    @check(
        f"discrepancy/{subject.method}/{quantity}",
        paper=subject.paper,
        question=QUANTITIES[quantity][0],
        problems=FEW + DRAWN + REAL,
        full=THIRD + LARGER,
    )
    def ask_discrepancy(context: Context, problem: Problem) -> Iterable[Outcome]:
        return compared(context, subject, problem, quantity, truth(context, subject, problem))


for _subject in SUBJECTS:
    for _quantity in QUANTITIES:
        _register(_subject, _quantity)


def record() -> str:
    """Measure every distance against long chains; returns the text of distances.toml."""
    lines = [
        "# Made by `python -m validation.checks.against_truth.discrepancy`: the distance between the approximation and",
        "# its truth (quadrature, exact draws, or the chains of a full run). Do not edit by hand.",
    ]
    for subject in SUBJECTS:
        for name in QUICK + LARGER:
            context = Context(quick=False)
            problem = context.problem(name)
            lines += measured(context, subject, problem, truth(context, subject, problem))
    for subject in BASELINES:
        for name in baselines.QUICK + baselines.FULL:
            context = Context(quick=False)
            question = as_probit(context.problem(name))
            lines += measured(context, subject, question, baselines.truth(context, subject, question))
    # the module takes its bands from here, so that it cannot be imported at the top
    lines += importlib.import_module("validation.checks.witnesses.villacampa2020").record()
    return "\n".join(lines) + "\n"


def measured(context: Context, subject: Subject, problem: Problem, exact: Solution) -> list[str]:
    """The table of one method on one problem."""
    answer = context.solve("reference", subject.method, problem)
    return [
        "",
        f'["{subject.method}"."{problem.name}"]',
        *(f"{key} = {discrepancy(key, answer, exact):.4g}  # {QUANTITIES[key][1]}" for key in QUANTITIES),
    ]


if __name__ == "__main__":
    from pathlib import Path

    from validation.door.storage import write_text

    write_text(Path(__file__).with_name("distances.toml"), record())
