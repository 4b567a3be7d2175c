"""Runs selected checks: a process works on one problem at a time, the order of answers depends on nobody's speed.

Checks that need no problem share nothing but what their module remembers, so each module of them is a unit of its own.

`select` turns what was asked on the command line into pairs of check and problem, `run` asks them, `judge` gives the
verdicts. Verdicts come last because Holm's procedure looks at the statistics of the whole run.
"""

from __future__ import annotations

import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from validation import problems
from validation.checks import core
from validation.checks.core import NO_PROBLEM, Check, Compared, Context, Outcome, Result, Skipped, Tested
from validation.checks.multiple import FAMILY_LEVEL, holm
from validation.checks.selection import Pair, Selection, SelectionError, select
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import versions
from validation.jobs import run as jobs_run
from validation.jobs.job import Job
from validation.jobs.place import Place
from validation.jobs.run import Engine, Processes
from validation.jobs.store import Store

__all__ = ["Pair", "Run", "Selection", "SelectionError", "judge", "run", "select"]

NOT_RUN = "not run: the run was interrupted before it was asked"


class Run(NamedTuple):
    """What came of a run: one result for each outcome, the solutions behind them, wall-clock seconds.

    places    where problems were worked on, with how many of them
    """

    results: tuple[Result, ...]
    solutions: tuple[Solution, ...]
    seconds: float
    versions: dict[str, str]
    interrupted: bool = False
    full: bool = False
    places: tuple[tuple[Place, int], ...] = ()

    def count(self, verdict: str) -> int:
        """How many results have this verdict."""
        return sum(result.verdict == verdict for result in self.results)

    @property
    def failed(self) -> bool:
        """Whether any check failed or raised."""
        return any(result.failed for result in self.results)


@dataclass(frozen=True)
class Answered:
    """What one pair answered, before any verdict. `error` is (type and message, traceback) if it raised."""

    pair: Pair
    outcomes: tuple[Outcome, ...]
    seconds: float
    error: tuple[str, str] | None = None


class Event(NamedTuple):
    """Progress: `what` is "start" (of a check), "done" (a check) or "finished" (a problem)."""

    what: str
    problem: str
    check: str = ""
    answered: Answered | None = None


Listener = Callable[[Event], None]


# -- one problem ---------------------------------------------------------------------------------------------


def ask(check: Check, context: Context, problem: Problem | None, pair: Pair) -> Answered:
    """Ask one check and keep whatever it answers; only an interrupt passes through."""
    started = time.perf_counter()
    try:
        outcome = check.function(context, problem)
        # a NamedTuple is iterable too, so it is told from a list of outcomes by its type
        outcomes = (outcome,) if isinstance(outcome, (Compared, Tested, Skipped)) else tuple(outcome)
        for entry in outcomes:
            if not isinstance(entry, (Compared, Tested, Skipped)):
                raise TypeError(f"{check.id}: found {type(entry).__name__}, expected Compared, Tested or Skipped")
            if isinstance(entry, Tested) and not np.size(entry.z):
                raise ValueError(f"{check.id}: found no statistics in a Tested, expected at least one")
        if not outcomes:
            raise ValueError(f"{check.id}: found no outcome, expected at least one")
    except Exception as error:  # noqa: BLE001 - whatever a check raises is its verdict
        text = f"{type(error).__name__}: {error}"
        return Answered(pair, (), time.perf_counter() - started, (text, traceback.format_exc()))
    return Answered(pair, outcomes, time.perf_counter() - started)


def ask_problem(
    name: str, pairs: Iterable[Pair], context: Context, modules: Iterable[str], listen: Listener
) -> Iterator[Answered]:
    """Ask all pairs of one problem in turn; a problem that cannot be built is an error of each of them."""
    checks = core.imported(modules)
    for pair in pairs:
        listen(Event("start", name, pair.check))
        started = time.perf_counter()
        try:
            problem = None if name == NO_PROBLEM else context.problem(name)
        except Exception as error:  # noqa: BLE001
            text = f"the problem cannot be made: {type(error).__name__}: {error}"
            answered = Answered(pair, (), time.perf_counter() - started, (text, traceback.format_exc()))
        else:
            answered = ask(checks[pair.check], context, problem, pair)
        listen(Event("done", name, pair.check, answered))
        yield answered


class _Work(NamedTuple):
    """One unit: everything a process needs to know to work on one problem."""

    problem: str
    pairs: tuple[Pair, ...]
    modules: tuple[str, ...]
    full: bool


class _Finished(NamedTuple):
    answers: tuple[Answered, ...]
    solutions: tuple[Solution, ...]


def _work(unit: _Work, listen: Listener) -> _Finished:
    context = Context(quick=not unit.full)
    answers = tuple(ask_problem(unit.problem, unit.pairs, context, unit.modules, listen))
    return _Finished(answers, tuple(context.solutions))


# -- a run ---------------------------------------------------------------------------------------------------

#: What the results of `work_on` are made of, for `validation.jobs.store`.
TYPES = (_Finished, Answered, Pair, Compared, Tested, Skipped, Solution)


def run(
    selection: Selection,
    *,
    jobs: int | None = None,
    listen: Listener | None = None,
    threads: int = 1,
    engine: Engine | None = None,
    store: Store | None = None,
) -> Run:
    """Ask every pair and judge the whole.

    Parameters
    ----------
    selection : Selection    from `select`
    jobs : int               processes, by default the smaller of 2 and the number of cores; 1 stays in this process
    listen : callable        told of every `Event`, in this process
    threads : int            of linear algebra in each process
    engine : Engine          who works on the problems, in place of `jobs` processes with `threads`
    store : Store            where answers are kept, one problem at a time; those that it has are not asked again

    Ctrl-C ends the run early: what was answered is judged, the rest is SKIP with that reason, `interrupted` is True.
    """
    started = time.perf_counter()
    listen = listen or silent
    answered: dict[Pair, Answered] = {}

    def hear(event: Event) -> None:
        if event.answered is not None:
            answered[event.answered.pair] = event.answered
        listen(event)

    units = _units(selection)
    unfinished = Counter(job.unit.problem for job in units)
    finished: dict[str, _Finished] = {}
    places: Counter[Place] = Counter()
    interrupted = False
    try:
        with closing(jobs_run.run(_work, units, engine or Processes(jobs, threads), store=store, listen=hear)) as value:
            for done in value:
                name = done.job.unit.problem
                if done.lost is not None:
                    for pair in done.job.unit.pairs:
                        answered.setdefault(pair, Answered(pair, (), 0.0, (str(done.lost), str(done.lost))))
                else:
                    finished[done.job.name] = done.value
                    answered |= {answer.pair: answer for answer in done.value.answers}
                    assert done.place is not None
                    places[done.place] += 1
                    for answer in done.value.answers if done.stored else ():
                        hear(Event("done", name, answer.pair.check, answer))
                unfinished[name] -= 1
                if not unfinished[name]:
                    hear(Event("finished", name))
    except KeyboardInterrupt:
        interrupted = True
    results = judge(
        [answered.get(pair, Answered(pair, (Skipped(NOT_RUN),), 0.0)) for pair in selection.pairs], selection.modules
    )
    solutions = tuple(solution for job in units if job.name in finished for solution in finished[job.name].solutions)
    return Run(
        results,
        solutions,
        time.perf_counter() - started,
        _versions(solutions),
        interrupted,
        full=selection.full,
        places=tuple(sorted(places.items())),
    )


def _units(selection: Selection) -> list[Job]:
    """The pairs of each problem, and without one those of each module, in the order of the report."""
    checks = core.imported(selection.modules)
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in selection.pairs:
        module = checks[pair.check].module if pair.problem == NO_PROBLEM else ""
        groups.setdefault((pair.problem, module), []).append(pair)
    return [
        Job(
            f"{problem} {module}".strip(),
            _Work(problem, tuple(mine), selection.modules, selection.full),
            cost(problem),
        )
        for (problem, module), mine in groups.items()
    ]


def judge(answers: Iterable[Answered], modules: Iterable[str] = (), level: float = FAMILY_LEVEL) -> tuple[Result, ...]:
    """Verdicts on everything that one run answered, Holm's procedure over all its z statistics."""
    answers = list(answers)
    checks = core.imported(modules)
    tested = [outcome for answer in answers for outcome in answer.outcomes if isinstance(outcome, Tested)]
    statistics = [np.abs(np.ravel(np.asarray(outcome.z, dtype=np.float64))) for outcome in tested]
    critical = holm(np.concatenate(statistics) if statistics else [], level).critical
    total = sum(entries.size for entries in statistics)
    results: list[Result] = []
    for answer in answers:
        check = checks[answer.pair.check]
        if answer.error is not None:
            text, details = answer.error
            results.append(_result(check, answer, "ERROR", text, details=details))
        results += [_verdict(check, answer, outcome, critical, level, total) for outcome in answer.outcomes]
    return tuple(results)


def _verdict(check: Check, answer: Answered, outcome: Outcome, critical: float, level: float, total: int) -> Result:
    if isinstance(outcome, Skipped):
        return _result(check, answer, "SKIP", outcome.why, left=outcome.left, right=outcome.right)
    if isinstance(outcome, Tested):
        size = np.abs(np.asarray(outcome.z, dtype=np.float64))
        return _result(
            check,
            answer,
            # not above, and so NaN, which max hands on, fails
            "PASS" if float(size.max()) <= critical else "FAIL",
            f"{outcome.why} (Holm at {level:g} over the {total} statistics of this run, {size.size} of them here)",
            left=outcome.left,
            right=outcome.right,
            observed=float(size.max()),
            limit=critical,
            unit="|z|, largest",
            power=outcome.power,
        )
    observed, limit = float(outcome.observed), float(outcome.limit)
    return _result(
        check,
        answer,
        "PASS" if observed <= limit else "FAIL",
        outcome.why,
        left=outcome.left,
        right=outcome.right,
        observed=observed,
        limit=limit,
        unit=outcome.unit,
    )


def _result(check: Check, answer: Answered, verdict: str, why: str, **more: Any) -> Result:
    told: dict[str, Any] = {"left": "", "right": "", "observed": math.nan, "limit": math.nan, **more}
    return Result(
        check=check.id,
        kind=check.kind,
        paper=check.paper,
        method=check.method,
        quantity=check.quantity,
        problem=answer.pair.problem,
        ratio=_ratio(told["observed"], told["limit"]),
        verdict=verdict,
        # several outcomes of one check share what it took, so that the column adds up
        seconds=answer.seconds / max(1, len(answer.outcomes)),
        why=why,
        question=check.question,
        full=answer.pair.full,
        **told,
    )


def _ratio(observed: float, limit: float) -> float:
    if limit > 0.0:
        return observed / limit
    return math.inf if observed > limit else math.nan


def _versions(solutions: Iterable[Solution]) -> dict[str, str]:
    result = dict(versions())
    for solution in solutions:
        result |= solution.versions
    return result


def cost(name: str) -> float:
    """A hint of how long a problem takes.

    Nobody knows what checks without a problem take, some of them a tenth of a run: they start first, so that none of
    them is left alone at the end.
    """
    if name == NO_PROBLEM:
        return math.inf
    return problems.cost(name)


def silent(event: Event) -> None:
    """Nobody listens."""
