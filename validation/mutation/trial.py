"""One mutant at a time: planted in a fresh process, held against the checks that execute it, the cheapest first.

Answers that the mutant cannot have touched come from the healthy run: those of other witnesses, and those whose
questions execute none of its lines.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from validation.checks import core, runner
from validation.checks.core import NO_PROBLEM, Context, Tested
from validation.mutation.baseline import Baseline
from validation.mutation.seed import plant
from validation.mutation.statements import Mutant, mutated_source

STATES = ("red", "crash", "survived", "never executed")

# a mutant that loops is given up after this many times the healthy seconds, and a minute for small ones
PATIENCE = 5.0
GRACE = 60.0

# libraries that the witnesses and the checks import, seconds for each mutant otherwise
_PRELOADED = (
    "numpy", "scipy.linalg", "scipy.special", "scipy.optimize", "scipy.stats", "scipy.integrate", "pandas", "emcee",
    "arviz_stats", "sklearn.base", "sklearn.cluster", "sklearn.datasets", "sklearn.utils.estimator_checks",
    "matplotlib", "mpmath", "jinja2", "rich.progress", "typer",
)  # fmt: skip


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


def run(mutants: Sequence[Mutant], baseline: Baseline, *, jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come; a process for each mutant, killed when it is out of patience."""
    fork = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    start: Any = multiprocessing.get_context(fork)
    if fork == "forkserver":
        # what no mutant touches, loaded once; none of the witnesses, which each process imports with its mutant
        start.set_forkserver_preload(list(_PRELOADED))
    waiting = list(mutants)
    running: dict[int, tuple[Any, Any, Mutant, float, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop(0)
                touched = baseline.touched(mutant.module, watched(mutant), readers(mutant))
                if not touched:
                    yield Outcome(mutant.name, "never executed", "", "", 0, 0.0)
                    continue
                healthy = sum(baseline.cost(pairs, keys) for pairs, keys in touched.values())
                ours, theirs = start.Pipe(duplex=False)
                process = start.Process(
                    target=_try, args=(theirs, mutant, baseline.folder, baseline.selection), daemon=True
                )
                process.start()
                theirs.close()
                now = time.perf_counter()
                running[process.pid] = (process, ours, mutant, now, now + GRACE + PATIENCE * healthy)
            yield from _finished(running)
    finally:
        for process, *_ in running.values():
            process.kill()


def watched(mutant: Mutant) -> range:
    """The lines by which one sees that a check depends on the mutant."""
    first, last = mutant.watched
    return range(first, last + 1)


def readers(mutant: Mutant) -> frozenset[str]:
    """Checks that read what the statement defines: of a default, the one that holds it to the record."""
    runs_at_import = mutant.watched[0] != mutant.first
    package = mutant.module.partition(".")[0]
    return frozenset({f"discrepancy/x-gpc/defaults_of_{package}"} if runs_at_import else ())


def _finished(running: dict[int, tuple[Any, Any, Mutant, float, float]]) -> Iterator[Outcome]:
    multiprocessing.connection.wait([pipe for _, pipe, *_ in running.values()], timeout=1.0)
    for number, (process, pipe, mutant, started, deadline) in list(running.items()):
        spent = time.perf_counter() - started
        if pipe.poll():
            try:
                state, by, note, asked = pipe.recv()
            except EOFError:
                process.join()
                state, by, note, asked = "crash", "", f"the process ended with {process.exitcode}", 0
        elif time.perf_counter() > deadline:
            state, by, note, asked = "crash", "", f"no answer after {spent:.0f} s", 0
        else:
            continue
        process.kill()
        process.join()
        pipe.close()
        del running[number]
        yield Outcome(mutant.name, state, by, note, asked, spent)


def _try(pipe: Any, mutant: Mutant, folder: Any, selection: Any) -> None:
    """In the fresh process: plant, ask, tell."""
    try:
        pipe.send(judge(mutant, Baseline.load(folder, selection)))
    except BaseException as error:  # noqa: BLE001 - whatever a mutant does ends here, and counts as a crash
        pipe.send(("crash", "", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}", 0))
    finally:
        pipe.close()


def judge(mutant: Mutant, baseline: Baseline) -> tuple[str, str, str, int]:
    """(state, check that saw it, note, number of pairs asked); must be called in a process that has no witness yet."""
    planted = plant(mutant.module, mutated_source(mutant))
    package = mutant.module.partition(".")[0]
    touched = baseline.touched(mutant.module, watched(mutant), readers(mutant))
    selection = baseline.selection
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore")
        checks = core.imported(selection.modules)
        answers = {answer.pair: answer for answer in baseline.answers()}
        asked = 0
        for name in sorted(touched, key=lambda name: baseline.cost(*touched[name])):
            pairs, keys = touched[name]
            context = _remembering(baseline, name, package, keys, quick=not selection.full)
            for pair in pairs:
                asked += 1
                answer = runner.ask(
                    checks[pair.check], context, None if name == NO_PROBLEM else context.problem(name), pair
                )
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
    for key, solution in baseline.healthy(name):
        if key[0] != package or key not in keys:
            context._answers[key] = solution
    return context
