"""What the seconds of a run buy: a greedy cover of the mutants by pairs of check and problem.

A mutant is held against the checks that execute it, cheap ones first, until one sees it, and is counted for that one.
The cover takes the pair with the most mutants a second, then the next; a question that several pairs share is paid for
once. So the curve is a lower bound: what a later pair would have seen as well is not counted for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from validation.checks.selection import Pair
from validation.mutation.baseline import Baseline
from validation.mutation.trial import Outcome

# a pair that takes less than this share of a run's seconds is left where it is, whatever it sees
HEAVY = 0.003


class Step(NamedTuple):
    """A pair of the cover, with shares of the run's seconds and of the seen mutants, both up to and with this pair."""

    check: str
    problem: str
    seconds: float
    mutants: float


class Idle(NamedTuple):
    """A heavy pair that was the first to see no mutant, with the share of the run's seconds that goes without it."""

    check: str
    problem: str
    seconds: float


def first_to_see(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Mutants by the pair that saw them first, "CHECK on PROBLEM"; one that ended a process counts for nobody."""
    results: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.by:
            results[outcome.by] = results.get(outcome.by, 0) + 1
    return results


def cover(observed: Mapping[str, int], healthy: Baseline) -> tuple[Step, ...]:
    """The pairs that were first to see something, most mutants a second first."""
    pairs = _pairs(healthy)
    waiting = {name: count for name, count in observed.items() if name in pairs}
    paid: set[tuple[str, object]] = set()
    whole, total = _whole(healthy), sum(waiting.values())
    steps: list[Step] = []
    spent, caught = 0.0, 0
    while waiting:
        price = {name: _price(pairs[name], healthy, paid) for name in waiting}
        best = max(waiting, key=lambda name: (waiting[name] / max(price[name], 1e-9), name))
        spent, caught = spent + price[best], caught + waiting.pop(best)
        paid |= {(pairs[best].problem, key) for key in healthy.problems[pairs[best].problem].asked[pairs[best]]}
        steps.append(Step(pairs[best].check, pairs[best].problem, spent / whole, caught / total))
    return tuple(steps)


def idle(observed: Mapping[str, int], healthy: Baseline) -> tuple[Idle, ...]:
    """Heavy pairs outside the cover, the heaviest first: what a run would save if it left out that one alone."""
    whole = _whole(healthy)
    results = []
    for name, problem in healthy.problems.items():
        askers: dict[object, int] = {}
        for keys in problem.asked.values():
            for key in keys:
                askers[key] = askers.get(key, 0) + 1
        for pair, answer in problem.answers.items():
            alone = sum(problem.seconds[key] for key in problem.asked[pair] if askers[key] == 1)
            share = (answer.seconds + alone) / whole
            if share >= HEAVY and f"{pair.check} on {name}" not in observed:
                results.append(Idle(pair.check, name, share))
    return tuple(sorted(results, key=lambda entry: (-entry.seconds, entry.check, entry.problem)))


def markdown(steps: Sequence[Step], pairs: int) -> str:
    """Power against seconds, at some shares of the mutants."""
    if not steps:
        return ""
    lines = ["| of the mutants that were seen | by pairs of check and problem | in this share of the seconds |",
             "| ---: | ---: | ---: |"]  # fmt: skip
    for share in (0.5, 0.75, 0.9, 0.95, 1.0):
        k = next(i for i, step in enumerate(steps) if step.mutants >= share - 1e-12)
        lines.append(f"| {steps[k].mutants:.0%} | {k + 1} of {pairs} | {steps[k].seconds:.1%} |")
    return "\n".join(lines) + "\n"


def _pairs(healthy: Baseline) -> dict[str, Pair]:
    return {f"{pair.check} on {pair.problem}": pair for pair in healthy.selection.pairs}


def _price(pair: Pair, healthy: Baseline, paid: set[tuple[str, object]]) -> float:
    """Seconds of a pair, with the questions that nobody has paid for."""
    problem = healthy.problems[pair.problem]
    fresh = {key for key in problem.asked[pair] if (pair.problem, key) not in paid}
    return problem.answers[pair].seconds + sum(problem.seconds[key] for key in fresh)


def _whole(healthy: Baseline) -> float:
    """Seconds of the whole run, each question answered once."""
    return sum(
        sum(answer.seconds for answer in problem.answers.values())
        + sum(problem.seconds[key] for key in {key for keys in problem.asked.values() for key in keys})
        for problem in healthy.problems.values()
    )
