"""Discrepancy: how far an approximation is from the truth, against distances recorded problem by problem.

Mean-field Pólya-Gamma inference is an approximation: it underestimates variances, more so the larger the prior
variance. That is no fault. A fault is a distance that has changed, in either direction, so each is held within a
factor of 1.5 of the value measured against long chains: nearer than that shows a change as surely as farther.
`python -m validation.checks.discrepancy` measures the distances again and writes `distances.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources

import numpy as np

from validation.checks.core import Compared, Context, Outcome, Skipped, check
from validation.checks.subjects import LARGER, QUICK, SUBJECTS, Subject, truth
from validation.compare import relative_difference
from validation.problem import Problem
from validation.solution import Solution

QUANTITIES = {
    "log_evidence": ("How far is the bound below log Z?", "log Z minus bound, nat"),
    "latent_mean": ("How far are the latent means from the truth?", "relative difference"),
    "latent_cov": ("How far are the latent variances from the truth?", "mean relative difference"),
    "probabilities": ("How far are the class probabilities from the truth?", "largest difference"),
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
    text = resources.files("validation.checks").joinpath("distances.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _compare(context: Context, subject: Subject, problem: Problem, quantity: str) -> Iterable[Outcome]:
    distance = recorded().get(subject.method, {}).get(problem.name, {}).get(quantity)
    exact = truth(context, subject, problem)
    if distance is None:
        yield Skipped(f"distances.toml: found no {subject.method}.{problem.name}.{quantity}, expected a recorded one")
        return
    if quantity == "log_evidence" and (exact.log_evidence_se or 0.0) > 0.05:
        yield Skipped(f"log Z: found a standard error of {exact.log_evidence_se:.3g} nat, expected at most 0.05")
        return
    for implementation in ("reference", "fast"):
        answer = context.solve(implementation, subject.method, problem)
        found = discrepancy(quantity, answer, exact)
        yield Compared(
            observed=max(found / distance, distance / found) if found > 0.0 else np.inf,
            limit=MARGIN,
            why=f"{QUANTITIES[quantity][1]} {found:.4g}, against long chains {distance:.4g}: the method's own error, "
            "which is held within a factor of 1.5 in either direction",
            left=implementation,
            right=exact.label,
            unit="times the recorded distance",
        )


def _register(subject: Subject, quantity: str) -> None:
    @check(
        f"discrepancy/{subject.method}/{quantity}",
        paper=subject.paper,
        question=QUANTITIES[quantity][0],
        problems=QUICK,
        full=LARGER,
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return _compare(context, subject, problem, quantity)


for _subject in SUBJECTS:
    for _quantity in QUANTITIES:
        _register(_subject, _quantity)


def record() -> str:
    """Measure every distance against long chains; returns the text of distances.toml."""
    lines = [
        "# Made by `python -m validation.checks.discrepancy`: the distance between the approximation and its truth",
        "# (quadrature, or the chains of a full run). Do not edit by hand.",
    ]
    for subject in SUBJECTS:
        for name in QUICK + LARGER:
            context = Context(quick=False)
            problem = context.problem(name)
            exact = truth(context, subject, problem)
            answer = context.solve("reference", subject.method, problem)
            lines += ["", f'["{subject.method}"."{name}"]']
            lines += [f"{key} = {discrepancy(key, answer, exact):.4g}  # {QUANTITIES[key][1]}" for key in QUANTITIES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from pathlib import Path

    from validation.storage import write_text

    write_text(Path(__file__).with_name("distances.toml"), record())
