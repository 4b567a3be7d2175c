"""Work: how many iterations a solve takes, against the number recorded for it.

A wrong derivative in a Newton step, a mixing that remembers the wrong sweeps or a threshold of another size ends at the
same fixed point: whatever asks only for the answer passes it. What changes is the way there, and that is a number each
solution states. Rounding may move it by a sweep or two; a bug of that kind moves it by tens of percent.
`python -m validation.checks.iterations` records the numbers again, from the solves with default options that a quick
run makes anyway; so the checks cost nothing.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from validation.catalogue import METHODS
from validation.checks.core import Compared, Context, Outcome, check
from validation.problem import Problem

FILE = "iterations.toml"
# iterations that rounding adds or takes between kernels, and the share of a long run that it may
SPARE, SHARE = 1, 0.1


@cache
def recorded() -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """method -> problem -> witness -> iterations."""
    return tomllib.loads(resources.files("validation.checks").joinpath(FILE).read_text(encoding="utf-8"))


def compared(context: Context, method: str, problem: Problem) -> Iterable[Outcome]:
    """Both witnesses' iterations against the recorded ones."""
    for witness, count in recorded()[method][problem.name].items():
        solution = context.solve(witness, method, problem)
        allowed = max(SPARE, SHARE * count)
        yield Compared(
            abs(solution.iterations - count),
            allowed,
            f"{solution.iterations} iterations, recorded {count}: another way to the same answer is a bug in a step",
            witness,
            "recorded",
            unit="iterations",
        )


_PAPERS = {entry.method: entry.paper for entry in METHODS}


def _register(method: str) -> None:
    @check(
        f"discrepancy/{method}/iterations",
        paper=_PAPERS[method],
        question="Does each witness take as many iterations as recorded?",
        problems=tuple(recorded()[method]),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return compared(context, method, problem)


for _method in recorded():
    _register(_method)


def _empty(options: Any) -> bool:
    """Whether no option was given: only the word for a mapping stands there."""
    return not options or tuple(options) == ("mapping",)


def record() -> str:
    """Make the solves of a quick run and list their iterations; returns the text of the file."""
    runner = importlib.import_module("validation.checks.runner")
    core = importlib.import_module("validation.checks.core")
    selection = runner.select()
    results: dict[str, dict[str, dict[str, int]]] = {}
    for name in sorted({pair.problem for pair in selection.pairs} - {core.NO_PROBLEM}):
        context = Context(quick=True)
        pairs = [pair for pair in selection.pairs if pair.problem == name and not pair.check.endswith("/iterations")]
        list(runner.ask_problem(name, pairs, context, selection.modules, runner.silent))
        digest = core.digest(context.problem(name))
        for (witness, method, asked, options), solution in context._answers.items():
            plain = witness in ("reference", "fast") and method in _PAPERS and asked == digest and _empty(options)
            if plain and not isinstance(solution, Exception) and solution.iterations:
                results.setdefault(method, {}).setdefault(name, {})[witness] = int(solution.iterations)
    lines = [
        "# Made by `python -m validation.checks.iterations`: iterations of a quick run's solves without options.",
        "# Do not edit by hand.",
    ]
    for method in sorted(results):
        lines += ["", f'["{method}"]']
        for name, counts in sorted(results[method].items()):
            listed = ", ".join(f"{witness} = {count}" for witness, count in sorted(counts.items()))
            lines.append(f'"{name}" = {{ {listed} }}')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from pathlib import Path

    from validation.storage import write_text

    write_text(Path(__file__).with_name(FILE), record())
