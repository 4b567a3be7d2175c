"""One mutant at a time: planted in a fresh process, held against the checks that execute it, the cheapest first.

Answers that the mutant cannot have touched come from the healthy run: those of other witnesses, and those whose
questions execute none of its lines.
"""

from __future__ import annotations

import faulthandler
import os
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from validation.checks import core, runner
from validation.checks.core import NO_PROBLEM, Context, Tested
from validation.checks.selection import Pair, Selection
from validation.jobs import run as jobs_run
from validation.jobs.job import Done, Folder, Job
from validation.jobs.run import Engine
from validation.mutation.baseline import Baseline, Key
from validation.mutation.seed import plant
from validation.mutation.statements import Mutant, mutated_source
from validation.solution import Solution

STATES = ("red", "crash", "survived", "never executed")

# a mutant that loops is given up after this many times the healthy seconds, and some minutes: on a machine that others
# load, the process and the healthy answers take one to load, and who was given up counts as caught
PATIENCE = 5.0
GRACE = 240.0
# so is one check of it, after as many times its own seconds and these
GRACE_OF_ONE = 60.0


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: a state of STATES, the check that saw it, and how much had to be asked for that."""

    name: str
    state: str
    by: str
    note: str
    asked: int
    seconds: float

    def plain(self) -> dict[str, Any]:
        """For one line of JSON."""
        return asdict(self)


class Touched(NamedTuple):
    """Of one problem: pairs that execute a mutant, the cheapest first, and the questions that do."""

    problem: str
    pairs: tuple[Pair, ...]
    keys: frozenset[Key]


class Trial(NamedTuple):
    """What a process needs to try one mutant."""

    mutant: Mutant
    folder: Folder
    selection: Selection
    touched: tuple[Touched, ...]  # the cheapest first


def jobs(mutants: Sequence[Mutant], baseline: Baseline, folder: Folder) -> tuple[list[Job], list[Outcome]]:
    """A job for each mutant that any check executes, with its patience; the outcomes of the others.

    folder : Folder    of the baseline
    """
    work, untouched = [], []
    for mutant in mutants:
        asked = touched(mutant, baseline)
        if not asked:
            untouched.append(Outcome(mutant.name, "never executed", "", "", 0, 0.0))
            continue
        healthy = sum(baseline.cost(each.pairs, each.keys) for each in asked)
        unit = Trial(mutant, folder, baseline.selection, asked)
        work.append(Job(mutant.name, unit, healthy, patience=GRACE + PATIENCE * healthy))
    return work, untouched


def run(mutants: Sequence[Mutant], baseline: Baseline, engine: Engine) -> Iterator[Outcome]:
    """Outcomes as they come; a process for each mutant, killed when it is out of patience."""
    folder = Folder.of(baseline.folder)
    work, untouched = jobs(mutants, baseline, folder)
    yield from untouched
    with closing(jobs_run.run(attempt, work, engine, shared=folder)) as value:
        for done in value:
            yield outcome(done)


def outcome(done: Done) -> Outcome:
    """What became of a mutant, from what became of its job: a process that dies or does not end is a crash."""
    if done.lost is not None:
        return Outcome(done.job.name, "crash", "", str(done.lost), 0, done.seconds)
    state, by, note, asked = done.value
    return Outcome(done.job.name, state, by, note, asked, done.seconds)


def watched(mutant: Mutant) -> range:
    """The lines by which one sees that a check depends on the mutant."""
    first, last = mutant.watched
    return range(first, last + 1)


def touched(mutant: Mutant, baseline: Baseline) -> tuple[Touched, ...]:
    """What has to be asked of a mutant, the cheapest first; checks of no problem share nothing and stand alone."""
    result = []
    for name, (pairs, keys) in baseline.touched(mutant.module, watched(mutant), readers(mutant)).items():
        groups = [(pair,) for pair in pairs] if name == NO_PROBLEM else [pairs]
        result += [Touched(name, group, keys) for group in groups]
    return tuple(sorted(result, key=lambda each: baseline.cost(each.pairs, each.keys)))


def readers(mutant: Mutant) -> frozenset[str]:
    """Checks that read what the statement defines: of a default, the one that holds it to the record."""
    runs_at_import = mutant.watched[0] != mutant.first
    package = mutant.module.partition(".")[0]
    return frozenset({f"discrepancy/x-gpc/defaults_of_{package}"} if runs_at_import else ())


def attempt(unit: Trial, listen: object) -> tuple[str, str, str, int]:
    """In a fresh process: plant, ask, tell. Nobody listens meanwhile."""
    try:
        return judge(unit.mutant, Baseline.load(unit.folder.at(), unit.selection, lines=False), unit.touched)
    except BaseException as error:  # noqa: BLE001 - whatever a mutant does ends here, and counts as a crash
        return "crash", "", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}", 0


def judge(mutant: Mutant, baseline: Baseline, asks: Sequence[Touched]) -> tuple[str, str, str, int]:
    """(state, check that saw it, note, number of pairs asked).

    It must be called in a process that has no witness yet, and that may end in a check which takes too long.
    """
    planted = plant(mutant.module, mutated_source(mutant))
    package = mutant.module.partition(".")[0]
    selection = baseline.selection
    with warnings.catch_warnings(), threadpool_limits(limits=1), open(os.devnull, "w", encoding="utf-8") as nowhere:
        warnings.simplefilter("ignore")
        checks = core.imported(selection.modules)
        answers = {answer.pair: answer for answer in baseline.answers()}
        asked = 0
        contexts: dict[str, Context] = {}
        for name, pairs, keys in asks:
            if name not in contexts:
                contexts[name] = _remembering(baseline, name, package, keys, quick=not selection.full)
            context = contexts[name]
            for pair in pairs:
                asked += 1
                patience = GRACE_OF_ONE + PATIENCE * baseline.cost([pair], keys)
                faulthandler.dump_traceback_later(patience, exit=True, file=nowhere)
                here = Context(quick=not selection.full) if pair in baseline.problems[name].listens else context
                answer = runner.ask(checks[pair.check], here, None if name == NO_PROBLEM else here.problem(name), pair)
                faulthandler.cancel_dump_traceback_later()
                answers[pair] = answer
                # z statistics are judged among those of the whole run, as they would be in one
                whole = any(isinstance(outcome, Tested) for outcome in answer.outcomes)
                results = runner.judge(answers.values() if whole else [answer], selection.modules)
                for result in results:
                    if result.failed and (result.check, result.problem) == (pair.check, pair.problem):
                        state = "crash" if result.verdict == "ERROR" else "red"
                        return state, f"{result.check} on {result.problem}", result.why.splitlines()[0][:300], asked
    if not planted.loaded:
        raise RuntimeError(f"module: {mutant.module} was not imported, expected the checks to import it")
    return "survived", "", "", asked


def _remembering(baseline: Baseline, name: str, package: str, keys: frozenset[Any], *, quick: bool) -> Context:
    """A context that knows the healthy answers which the mutant cannot have touched."""
    context = Context(quick=quick)
    files = baseline.problems[name].files
    context._answers = _Kept({key: path for key, path in files.items() if key[0] != package or key not in keys})
    return context


class _Kept(dict[Any, Any]):
    """Answers that are read when somebody asks for them: reading all takes longer than most checks."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, Path):
            value = self[key] = Solution.load(value)
        return value
