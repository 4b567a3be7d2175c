"""The judge is judged: bugs are seeded into a witness one at a time, and some check must turn red on each.

A `SeededBug` replaces functions of a witness while checks run. It is caught if a check says FAIL; the same checks must
be green without it, or being red would say nothing. A bug whose replacement never ran proves nothing either.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from validation.checks import core, runner, selection
from validation.checks.core import Context, Result
from validation.checks.runner import Answered, Event, Listener, Pair
from validation.door.quoting import shown
from validation.jobs import run as jobs_run
from validation.jobs.job import Job
from validation.jobs.run import Engine, Processes
from validation.jobs.store import Store

# Where bugs come from: a callable, named so that a fresh process can find it, that gives a tuple of bugs.
SOURCE = "validation.seeded_bugs:all_bugs"

WITNESSES = ("reference", "fast", "gibbs")


class SeededBugError(RuntimeError):
    """A bug that cannot be seeded: its target is not there or cannot be replaced."""


@dataclass(frozen=True)
class SeededBug:
    """A mistake of the kind that people make, ready to be seeded.

    name          unique, short: "kl-without-log-determinant"
    witness       "fast", "gibbs", "reference": the package that is made wrong, and no other; "both": `reference` and
                  `fast` at once, so that agreement proves nothing
    method        method id
    description   one sentence: what is wrong
    targets       "module:attribute" or "module:Class.method"; every place a caller looks the function up, so name
                  the modules that import it by name as well
    make          gets the original (each target in turn), returns the replacement
    problems      names or globs of problems on which checks are to see the bug
    checks        ids or globs of the checks that may see it
    raises        an error counts as caught too (for bugs that make a factorisation fail)
    """

    name: str
    witness: str
    method: str
    description: str
    targets: tuple[str, ...]
    make: Callable[[Any], Any]
    problems: tuple[str, ...] = ("*",)
    checks: tuple[str, ...] = ("*",)
    raises: bool = False


class Calls:
    """How often the replacements of one bug ran, by the package that they replace."""

    def __init__(self) -> None:
        self.by_package: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Of the package where they ran least: a mistake that one of two witnesses never makes is not shared."""
        return min(self.by_package.values(), default=0)


class Trial(NamedTuple):
    """What came of one bug.

    state     "caught", "missed", "not green without bug", "never exercised", "not run" or "error"
    by        results that turned red, the reddest first
    note      what is wrong with a trial that is not "caught"
    """

    bug: SeededBug
    state: str
    by: tuple[Result, ...]
    seconds: float
    note: str = ""

    @property
    def caught(self) -> bool:
        """Whether the judge saw it."""
        return self.state == "caught"


class SelfTest(NamedTuple):
    """All trials, in the order of the bugs, and the green results they are held against."""

    trials: tuple[Trial, ...]
    baseline: tuple[Result, ...]
    seconds: float
    interrupted: bool = False

    @property
    def all_caught(self) -> bool:
        """True if the judge turned red on every bug."""
        return bool(self.trials) and all(trial.caught for trial in self.trials)


# -- seeding -------------------------------------------------------------------------------------------------


@contextmanager
def seeded(bug: SeededBug) -> Iterator[Calls]:
    """Replace every target of a bug; restore them all on leaving, whatever happened inside.

    Memories (functools caches) of the witness are emptied on entering and on leaving, so that no healthy number
    hides the bug and no wrong one outlives it.

    Raises
    ------
    SeededBugError    naming the target, if it is not there or is no function
    """
    calls = Calls()
    if not bug.targets:
        raise SeededBugError(f"targets: found none for {bug.name}, expected at least one module:attribute")
    _forget(bug)
    with ExitStack() as stack:
        stack.callback(_forget, bug)
        for target in bug.targets:
            owner, name = _place(target)
            stored = inspect.getattr_static(owner, name)
            own = name in vars(owner)
            original = stored.__func__ if isinstance(stored, (staticmethod, classmethod)) else getattr(owner, name)
            if isinstance(original, type) or isinstance(stored, property) or not callable(original):
                raise SeededBugError(
                    f"targets: found {shown(target)} to be a {type(stored).__name__}, expected a function"
                )
            replacement = bug.make(original)
            if not callable(replacement):
                raise SeededBugError(f"make: found {type(replacement).__name__} for {target!r}, expected a function")
            package = str(getattr(original, "__module__", None) or target).partition(".")[0]
            calls.by_package.setdefault(package, 0)
            counted: Any = _counted(replacement, original, calls, package)
            if isinstance(stored, (staticmethod, classmethod)):
                counted = type(stored)(counted)
            stack.callback(_restore, owner, name, stored, own)
            setattr(owner, name, counted)
        yield calls


def _place(target: str) -> tuple[Any, str]:
    """The object that holds a target, and the target's name there."""
    module, colon, attribute = target.partition(":")
    if not colon or not attribute:
        raise SeededBugError(f"targets: found {shown(target)}, expected module:attribute")
    try:
        owner: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SeededBugError(f"targets: found no module {module!r} ({error}), expected it for {target!r}") from error
    *path, name = attribute.split(".")
    for part in path:
        if not hasattr(owner, part):
            raise SeededBugError(f"targets: found no {part!r} on the way to {target!r}, expected it")
        owner = getattr(owner, part)
    if not hasattr(owner, name):
        close = get_close_matches(name, [entry for entry in dir(owner) if not entry.startswith("__")], n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise SeededBugError(f"targets: found no {name!r} in {module}, expected it{hint}")
    return owner, name


def _restore(owner: Any, name: str, stored: Any, own: bool) -> None:
    if own:
        setattr(owner, name, stored)
    else:
        delattr(owner, name)


def _counted(replacement: Callable[..., Any], original: Any, calls: Calls, package: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.by_package[package] += 1
        return replacement(*args, **kwargs)

    return counted


def _forget(bug: SeededBug) -> None:
    """Empty the functools caches of the packages that a bug touches."""
    roots = {bug.witness, *(target.partition(":")[0].partition(".")[0] for target in bug.targets)}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in roots and module is not None:
            for value in list(vars(module).values()):
                while value is not None:  # a cache may stand inside other decorators
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
                    value = getattr(value, "__wrapped__", None) if callable(value) else None


# -- trials --------------------------------------------------------------------------------------------------


class _Work(NamedTuple):
    """One unit: one problem, without bug and with each bug that it may show."""

    problem: str
    pairs: tuple[Pair, ...]
    bugs: tuple[tuple[str, tuple[Pair, ...]], ...]
    modules: tuple[str, ...]
    source: str
    full: bool


class _Seen(NamedTuple):
    """One bug on one problem."""

    answers: tuple[Answered, ...]
    calls: int
    seconds: float
    error: str = ""


class _Finished(NamedTuple):
    baseline: tuple[Answered, ...]
    seen: dict[str, _Seen]


def run(
    *,
    bugs: Iterable[str] = (),
    method: Iterable[str] = (),
    source: str = SOURCE,
    modules: Iterable[str] = (),
    full: bool = False,
    jobs: int | None = None,
    listen: Listener | None = None,
    by: tuple[Engine, Store | None] | None = None,
) -> SelfTest:
    """Seed every bug (those matching the globs `bugs` and `method`) and see what turns red.

    Without bugs each check runs once on each problem. Answers of witnesses that a bug does not touch are kept
    from there: witnesses never import each other, so a bug in one cannot move another, and truths are expensive.
    `by`: who works on the problems in place of `jobs` processes, and what keeps the answers of each.

    Raises
    ------
    runner.SelectionError    for globs that match no bug, or a bug that selects no check
    """
    started = time.perf_counter()
    chosen = _chosen(source, tuple(bugs), tuple(method))
    selections: dict[str, tuple[Pair, ...]] = {}
    for bug in chosen:
        try:
            chosen_pairs = runner.select(check=bug.checks, problem=bug.problems, modules=modules, full=full)
        except runner.SelectionError as error:
            raise runner.SelectionError(f"bug {bug.name}: {error}") from error
        selections[bug.name] = chosen_pairs.pairs
    used = {pair for pairs in selections.values() for pair in pairs}
    names = list(dict.fromkeys(pair.problem for pairs in selections.values() for pair in pairs))
    checks = core.imported(modules)
    registering = tuple(sorted({checks[pair.check].module for pair in used}))
    units = [
        _Work(
            name,
            tuple(sorted(pair for pair in used if pair.problem == name)),
            tuple(
                (bug.name, tuple(pair for pair in selections[bug.name] if pair.problem == name))
                for bug in chosen
                if any(pair.problem == name for pair in selections[bug.name])
            ),
            registering,
            source,
            full,
        )
        for name in names
    ]
    engine, store = by or (Processes(jobs), None)
    finished: dict[str, _Finished] = {}
    lost: dict[str, str] = {}
    interrupted = False
    # a problem costs about as much again for each bug that is tried on it
    work = [Job(unit.problem, unit, runner.cost(unit.problem) * (1 + len(unit.bugs))) for unit in units]
    try:
        with closing(jobs_run.run(_work, work, engine, store=store, listen=listen or runner.silent)) as value:
            for done in value:
                name = done.job.name
                if done.lost is not None:
                    lost[name] = str(done.lost)
                else:
                    finished[name] = done.value
                (listen or runner.silent)(Event("finished", name))
    except KeyboardInterrupt:
        interrupted = True
    # in the order of the problems, whoever was first
    finished = {name: finished[name] for name in names if name in finished}
    green = {answer.pair: answer for done in finished.values() for answer in done.baseline}
    baseline = runner.judge(green.values(), registering)
    trials = tuple(_trial(bug, selections[bug.name], finished, lost, green, registering) for bug in chosen)
    return SelfTest(trials, baseline, time.perf_counter() - started, interrupted)


def _chosen(source: str, names: Sequence[str], methods: Sequence[str]) -> tuple[SeededBug, ...]:
    bugs = _bugs(source)
    doubled = sorted({bug.name for bug in bugs if sum(f.name == bug.name for f in bugs) > 1})
    if doubled:
        raise runner.SelectionError(f"name: found {doubled} on several bugs, expected unique names")
    for sort, patterns, known in (
        ("bug", names, sorted(bug.name for bug in bugs)),
        ("method", methods, sorted({bug.method for bug in bugs})),
    ):
        for pattern in patterns:
            if not any(fnmatchcase(entry, pattern) for entry in known):
                raise runner.SelectionError(
                    f"{sort}: found {shown(pattern)}, expected {selection.known_names(known, pattern)}"
                )
    chosen = tuple(
        bug
        for bug in bugs
        if (not names or any(fnmatchcase(bug.name, p) for p in names))
        and (not methods or any(fnmatchcase(bug.method, p) for p in methods))
    )
    if not chosen:
        raise runner.SelectionError("bug: found none, expected at least one: a judge never seen red is no judge")
    return chosen


def _bugs(source: str) -> tuple[SeededBug, ...]:
    module, _, name = source.partition(":")
    return tuple(getattr(importlib.import_module(module), name)())


#: What the results of a trial's unit are made of, for `validation.jobs.store`.
TYPES = (_Finished, _Seen, Answered, Pair, core.Compared, core.Tested, core.Skipped)


def _work(unit: _Work, listen: Listener) -> _Finished:
    """All trials on one problem."""
    bugs = {bug.name: bug for bug in _bugs(unit.source)}
    healthy = Context(quick=not unit.full)
    baseline = tuple(runner.ask_problem(unit.problem, unit.pairs, healthy, unit.modules, listen))
    visited: dict[str, _Seen] = {}
    for name, pairs in unit.bugs:
        listen(Event("start", unit.problem, f"bug {name}"))
        started = time.perf_counter()
        bug = bugs[name]
        try:
            with seeded(bug) as calls:
                context = healthy.without(_touched(bug, healthy))
                answers = tuple(runner.ask_problem(unit.problem, pairs, context, unit.modules, runner.silent))
            visited[name] = _Seen(answers, calls.count, time.perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - a bug that cannot be seeded is reported with its reason
            text = str(error) if isinstance(error, SeededBugError) else f"{type(error).__name__}: {error}"
            visited[name] = _Seen((), 0, time.perf_counter() - started, text)
        listen(Event("done", unit.problem, f"bug {name}"))
    return _Finished(baseline, visited)


def _touched(bug: SeededBug, context: Context) -> set[str]:
    """Implementations whose answers a bug may move: all, unless every target lies inside one witness."""
    roots = {target.partition(":")[0].partition(".")[0] for target in bug.targets}
    if roots == {bug.witness} and bug.witness in WITNESSES:
        return context.implementations - (set(WITNESSES) - {bug.witness})
    return context.implementations


def _trial(
    bug: SeededBug,
    pairs: tuple[Pair, ...],
    finished: dict[str, _Finished],
    lost: dict[str, str],
    green: dict[Pair, Answered],
    modules: tuple[str, ...],
) -> Trial:
    """The verdict on one bug, from what its checks said with and without it."""
    names = list(dict.fromkeys(pair.problem for pair in pairs))
    observed = [finished[name].seen[bug.name] for name in names if name in finished]
    seconds = sum(entry.seconds for entry in observed)
    errors = [lost[name] for name in names if name in lost] + [entry.error for entry in observed if entry.error]
    if errors:
        return Trial(bug, "error", (), seconds, errors[0])
    if len(observed) < len(names):
        return Trial(bug, "not run", (), seconds, "interrupted before all its checks were asked")
    before = runner.judge([green[pair] for pair in pairs], modules)
    red_before = [result for result in before if result.failed]
    if red_before or not any(result.verdict == "PASS" for result in before):
        worst = red_before[0] if red_before else before[0]
        note = f"{worst.verdict} {worst.check} on {worst.problem} without the bug: {worst.why}"
        return Trial(bug, "not green without bug", (), seconds, note)
    if not any(entry.calls for entry in observed):
        return Trial(bug, "never exercised", (), seconds, f"no check called {' or '.join(bug.targets)}")
    after = runner.judge([answer for entry in observed for answer in entry.answers], modules)
    counted = ("FAIL", "ERROR") if bug.raises else ("FAIL",)
    by = sorted((result for result in after if result.verdict in counted), key=_redness)
    if by:
        return Trial(bug, "caught", tuple(by), seconds)
    raised = [result for result in after if result.verdict == "ERROR"]
    if raised:
        note = f"{raised[0].check} raised {raised[0].why}; an error counts only for a bug that says raises=True"
        return Trial(bug, "missed", (), seconds, note)
    closest = max(after, key=lambda result: -1.0 if result.ratio != result.ratio else result.ratio)
    note = f"all of {len(after)} verdicts stayed green; closest {closest.check} at {closest.ratio:.2g} of its limit"
    return Trial(bug, "missed", (), seconds, note)


def _redness(result: Result) -> tuple[bool, float]:
    """Errors last; a ratio that is no number (observed NaN) is as red as it gets."""
    return result.verdict == "ERROR", -result.ratio if result.ratio == result.ratio else -float("inf")
