"""Discrepancy: how far an approximation is from the truth, against bands recorded problem by problem.

Mean-field Pólya-Gamma inference is an approximation: it underestimates variances, more so the larger the prior
variance. That is no fault. A fault is an error that has changed, so each band stands at 1.5 times a value measured
against long chains. `python -m validation.checks.discrepancy` measures them again and writes `bands.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources

import numpy as np

from validation.checks.core import Compared, Context, Outcome, Skipped, check, relative_difference
from validation.checks.subjects import LARGER, QUICK, SUBJECTS, Subject, truth
from validation.problem import Problem
from validation.solution import Solution

QUANTITIES = {
    "log_evidence": ("How far is the bound below log Z?", "log Z minus bound, nat"),
    "latent_mean": ("How far are the latent means from the truth?", "relative difference"),
    "latent_cov": ("How far are the latent variances from the truth?", "relative difference"),
    "probabilities": ("How far are the class probabilities from the truth?", "largest difference"),
}

# a band is this multiple of what was measured: far enough for the noise of a shorter chain, near enough to see a change
MARGIN = 1.5


def discrepancy(quantity: str, answer: Solution, exact: Solution) -> float:
    """The observed distance of one quantity, in the unit of QUANTITIES."""
    left, right = getattr(answer, quantity), getattr(exact, quantity)
    if quantity == "log_evidence":
        return float(abs(left - right))
    if quantity == "probabilities":
        return float(np.abs(left - right).max())
    return relative_difference(left, right)


@cache
def bands() -> dict[str, dict[str, dict[str, float]]]:
    """method -> problem -> quantity -> band, as recorded."""
    text = resources.files("validation.checks").joinpath("bands.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _compare(context: Context, subject: Subject, problem: Problem, quantity: str) -> Iterable[Outcome]:
    band = bands().get(subject.method, {}).get(problem.name, {}).get(quantity)
    exact = truth(context, subject, problem)
    if band is None:
        yield Skipped(f"bands.toml: found no {subject.method}.{problem.name}.{quantity}, expected a recorded band")
        return
    if quantity == "log_evidence" and (exact.log_evidence_se or 0.0) > 0.05:
        yield Skipped(f"log Z: found a standard error of {exact.log_evidence_se:.3g} nat, expected at most 0.05")
        return
    for implementation in ("reference", "fast"):
        answer = context.solve(implementation, subject.method, problem)
        yield Compared(
            observed=discrepancy(quantity, answer, exact),
            limit=band,
            why=f"recorded: {MARGIN:g} times the distance measured against long chains, the method's own error",
            left=implementation,
            right=exact.label,
            unit=QUANTITIES[quantity][1],
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
    """Measure every band against long chains; returns the text of bands.toml."""
    lines = [
        "# Made by `python -m validation.checks.discrepancy`: 1.5 times the distance between the approximation and",
        "# its truth (quadrature, or chains of the full run), rounded up to two digits. Do not edit by hand.",
    ]
    for subject in SUBJECTS:
        for name in QUICK + LARGER:
            context = Context(quick=False)
            problem = context.problem(name)
            exact = truth(context, subject, problem)
            answer = context.solve("reference", subject.method, problem)
            lines += ["", f'["{subject.method}"."{name}"]']
            for quantity in QUANTITIES:
                measured = discrepancy(quantity, answer, exact)
                error = getattr(exact, f"{quantity}_se")
                noise = "" if error is None else f", s.e. up to {np.max(error):.2g}"
                lines.append(f"{quantity} = {_round_up(MARGIN * measured)}  # measured {measured:.4g}{noise}")
    return "\n".join(lines) + "\n"


def _round_up(value: float) -> str:
    """Two digits, upwards."""
    if value == 0.0:
        return "0.0"
    step = 10.0 ** (np.floor(np.log10(value)) - 1)
    return f"{np.ceil(value / step - 1e-9) * step:.12g}"


if __name__ == "__main__":
    from pathlib import Path

    from validation.storage import write_text

    write_text(Path(__file__).with_name("bands.toml"), record())
