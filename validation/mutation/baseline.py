"""What each check executes: one healthy run under coverage, statement by statement and question by question.

A check rarely calls a witness itself: it asks `Context.solve`, which remembers answers. So lines are recorded for each
question (a solve) and for each check, and a check depends on its own lines and on those of the questions it asked.
Functions' caches are emptied between the two, so that nobody lives on what another has computed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from validation import storage
from validation.checks import core, runner
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Skipped, Tested
from validation.checks.runner import Answered
from validation.checks.selection import Pair, Selection
from validation.jobs import run as jobs_run
from validation.jobs.job import Job, contents
from validation.jobs.run import Engine
from validation.mutation.statements import PACKAGES, source_of
from validation.solution import Solution

LAST = "problem.json"  # of the files of a problem; with it they are whole
LINES = "lines.json"  # who executes what: most of what is kept, and of no use to who tries a mutant
PATIENCE = 7200.0  # seconds for the checks of one problem, under coverage

Key = tuple[Any, ...]  # of a question, as `Context` has it
Lines = dict[str, frozenset[int]]  # module -> lines


@dataclass
class Problem:
    """The healthy run on one problem."""

    name: str
    answers: dict[Pair, Answered] = field(default_factory=dict)
    asked: dict[Pair, tuple[Key, ...]] = field(default_factory=dict)
    own: dict[Pair, Lines] = field(default_factory=dict)
    solved: dict[Key, Lines] = field(default_factory=dict)
    seconds: dict[Key, float] = field(default_factory=dict)
    healthy: dict[Key, Solution] = field(default_factory=dict)
    files: dict[Key, Path] = field(default_factory=dict)
    imported: Lines = field(default_factory=dict)  # of functions that run while their module is imported
    listens: set[Pair] = field(default_factory=set)  # they watch witnesses work: a remembered answer shows them nothing


@dataclass
class Baseline:
    """Healthy runs on every problem of a selection, in a folder."""

    selection: Selection
    problems: dict[str, Problem]
    folder: Path

    @classmethod
    def load(cls, folder: Path, selection: Selection, *, lines: bool = True) -> Baseline:
        """What `measure` left in the folder; without `lines` it says nothing of what is executed."""
        names = sorted({pair.problem for pair in selection.pairs}, key=lambda name: -runner.cost(name))
        return cls(selection, {name: load(folder / name, lines=lines) for name in names}, folder)

    def answers(self) -> list[Answered]:
        """All answers in the order of the selection."""
        return [self.problems[pair.problem].answers[pair] for pair in self.selection.pairs]

    def touched(
        self, module: str, lines: Iterable[int], readers: frozenset[str] = frozenset()
    ) -> dict[str, tuple[tuple[Pair, ...], frozenset[Key]]]:
        """Problem -> pairs that execute one of these lines (the cheapest first), and the questions that do.

        readers : names of checks that look at the line without executing it
        """
        wanted = frozenset(lines)
        if wanted.isdisjoint(self._asked(module)) and not wanted.isdisjoint(self._imported(module)):
            wanted = self._asked(module)  # a table that an import makes is used by whoever runs the module
        results = {}
        for name, problem in self.problems.items():
            keys = frozenset(
                key for key, observed in problem.solved.items() if wanted & observed.get(module, frozenset())
            )
            cost = {
                pair: problem.answers[pair].seconds
                + sum(problem.seconds[key] for key in problem.asked[pair] if key in keys)
                for pair in problem.answers
                if wanted & problem.own[pair].get(module, frozenset())
                or keys & set(problem.asked[pair])
                or pair.check in readers
            }
            if cost:
                results[name] = (tuple(sorted(cost, key=lambda pair: cost[pair])), keys)
        return results

    def cost(self, pairs: Iterable[Pair], keys: frozenset[Key]) -> float:
        """Seconds that pairs take once these questions have to be answered anew, each of them once."""
        pairs = tuple(pairs)
        asked = {
            (pair.problem, key) for pair in pairs for key in self.problems[pair.problem].asked[pair] if key in keys
        }
        own = sum(self.problems[pair.problem].answers[pair].seconds for pair in pairs)
        return own + sum(self.problems[name].seconds[key] for name, key in asked)

    def executed(self, module: str) -> frozenset[int]:
        """Lines of a module that anything executes; those that its import runs count if anything runs the module."""
        asked = self._asked(module)
        return asked | self._imported(module) if asked else asked

    def _imported(self, module: str) -> frozenset[int]:
        return frozenset().union(*(problem.imported.get(module, frozenset()) for problem in self.problems.values()))

    def _asked(self, module: str) -> frozenset[int]:
        visited: set[int] = set()
        for problem in self.problems.values():
            for lines in (*problem.own.values(), *problem.solved.values()):
                visited |= lines.get(module, frozenset())
        return frozenset(visited)


def fingerprint(selection: Selection) -> str:
    """Of the packages' text and of what is asked: a baseline is good for exactly that."""
    digest = hashlib.sha256(repr(selection.pairs).encode())
    for package in (*PACKAGES, "validation"):
        root = Path(str(files(package)))
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".toml", ".npz") and "mutation" not in path.parts:
                digest.update(f"{path.relative_to(root)}".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def measure(
    selection: Selection, folder: Path, engine: Engine, *, tell: Callable[[str], None] = lambda text: None
) -> Baseline:
    """Run every pair once under coverage, each problem in a process of its own; what `folder` has is not run again.

    Raises
    ------
    RuntimeError    if a process dies, or a check is not green without any mutant
    """
    names = sorted({pair.problem for pair in selection.pairs}, key=lambda name: -runner.cost(name))
    work = [
        Job(name, Healthy(name, selection), runner.cost(name), patience=PATIENCE)
        for name in names
        if not (folder / name / LAST).exists()
    ]
    with closing(jobs_run.run(_measure, work, engine)) as answers:
        for done in answers:
            if done.lost is not None:
                raise RuntimeError(f"{done.job.name}: {done.lost}, expected a healthy run")
            for name, content in done.value.items():
                path = folder / done.job.name / name
                storage.write_atomically(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
            tell(f"healthy run on {done.job.name}")
    outcome = Baseline.load(folder, selection)
    red = [result for result in runner.judge(outcome.answers(), selection.modules) if result.failed]
    if red:
        raise RuntimeError(
            f"{red[0].check} on {red[0].problem}: found {red[0].verdict} without any mutant ({red[0].why}), "
            "expected green: mutants tell nothing before that"
        )
    return outcome


class Healthy(NamedTuple):
    """One problem, to be asked every check of a selection under coverage."""

    name: str
    selection: Selection


def _measure(unit: Healthy, listen: object) -> dict[str, bytes]:
    """The files of a healthy run, as `save` makes them; LAST is the last of them."""
    name, selection = unit
    try:
        import coverage
    except ImportError as error:
        raise RuntimeError("coverage: found it not installed, expected the extra gpc-triad[test]") from error
    os.environ["COVERAGE_CORE"] = "ctrace"  # the core of newer Pythons knows no contexts
    tracer = coverage.Coverage(data_file=None, source_pkgs=list(PACKAGES), config_file=False)
    tracer.set_option("run:disable_warnings", ["module-not-imported", "no-data-collected"])
    tracer.start()
    problem = Problem(name)
    context = _Recording(tracer, problem, quick=not selection.full)
    checks = core.imported(selection.modules)
    with threadpool_limits(limits=1):
        for pair in (pair for pair in selection.pairs if pair.problem == name):
            context.pair = pair
            asked = None if name == NO_PROBLEM else context.problem(name)
            forget()
            tracer.switch_context(_mark("check", pair))
            problem.asked[pair] = ()
            before = context.spent
            answered = runner.ask(checks[pair.check], context, asked, pair)
            spent = max(0.0, answered.seconds - (context.spent - before))
            problem.answers[pair] = Answered(pair, answered.outcomes, spent, answered.error)
    tracer.stop()
    _collect(tracer, problem)
    with threadpool_limits(limits=1):
        problem.listens = _listening(problem, selection, checks)
    with tempfile.TemporaryDirectory(prefix="triad-healthy-") as folder:
        save(problem, Path(folder))
        files = contents(Path(folder))
    return {key: files[key] for key in sorted(files, key=lambda key: key == LAST)}


def _listening(problem: Problem, selection: Selection, checks: Mapping[str, core.Check]) -> set[Pair]:
    """Pairs that are not green once their questions are answered from memory, though nothing is wrong."""
    context = Context(quick=not selection.full)
    context._answers.update(problem.healthy)
    result = set()
    for pair in (pair for pair in problem.answers if problem.asked[pair]):
        asked = None if problem.name == NO_PROBLEM else context.problem(problem.name)
        answered = runner.ask(checks[pair.check], context, asked, pair)
        # z statistics are a matter of the whole run, and those of one answer are the same each time
        outcomes = tuple(outcome for outcome in answered.outcomes if not isinstance(outcome, Tested))
        settled = Answered(pair, outcomes, answered.seconds, answered.error)
        if not outcomes and answered.error is None:
            continue
        if any(each.failed for each in runner.judge([settled], selection.modules) if each.check == pair.check):
            result.add(pair)
    return result


# -- files -----------------------------------------------------------------------------------------------------


def save(problem: Problem, folder: Path) -> None:
    """Answers as .npz, all else as one .json, which is written last: with it the folder is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = list(problem.solved)
    for number, key in enumerate(keys):
        if key in problem.healthy:
            problem.healthy[key].save(folder / f"{number}.npz")
    executed = {
        "keys": [_listed(problem.solved[key]) for key in keys],
        "pairs": [_listed(problem.own[pair]) for pair in problem.answers],
        "imported": _listed(problem.imported),
    }
    stored = {
        "name": problem.name,
        "keys": [{"key": key, "seconds": problem.seconds[key], "healthy": key in problem.healthy} for key in keys],
        "pairs": [
            {
                "pair": pair,
                "seconds": answer.seconds,
                "error": answer.error,
                "outcomes": [_plain(outcome) for outcome in answer.outcomes],
                "asked": [keys.index(key) for key in problem.asked[pair]],
            }
            for pair, answer in problem.answers.items()
        ],
        "listens": sorted(problem.listens),
    }
    storage.write_text(folder / LINES, json.dumps(executed))
    storage.write_text(folder / LAST, json.dumps(stored))


def load(folder: Path, *, lines: bool = True) -> Problem:
    """What `save` wrote; without `lines`, all but what is executed."""
    stored = json.loads((folder / LAST).read_text(encoding="utf-8"))
    problem = Problem(stored["name"])
    problem.listens = {Pair(*pair) for pair in stored["listens"]}
    keys = [_tuples(entry["key"]) for entry in stored["keys"]]
    for number, (key, entry) in enumerate(zip(keys, stored["keys"], strict=True)):
        problem.seconds[key] = entry["seconds"]
        if entry["healthy"]:
            problem.files[key] = folder / f"{number}.npz"
    for entry in stored["pairs"]:
        pair = Pair(*entry["pair"])
        error = None if entry["error"] is None else tuple(entry["error"])
        outcomes = tuple(_outcome(plain) for plain in entry["outcomes"])
        problem.answers[pair] = Answered(pair, outcomes, entry["seconds"], error)
        problem.asked[pair] = tuple(keys[number] for number in entry["asked"])
    if lines:
        executed = json.loads((folder / LINES).read_text(encoding="utf-8"))
        problem.solved = {key: _frozen(value) for key, value in zip(keys, executed["keys"], strict=True)}
        problem.own = {pair: _frozen(value) for pair, value in zip(problem.answers, executed["pairs"], strict=True)}
        problem.imported = _frozen(executed["imported"])
    return problem


def _listed(lines: Lines) -> dict[str, list[int]]:
    return {module: sorted(numbers) for module, numbers in lines.items()}


def _frozen(lines: Mapping[str, Iterable[int]]) -> Lines:
    return {module: frozenset(numbers) for module, numbers in lines.items()}


_OUTCOMES: dict[str, type] = {"Compared": Compared, "Tested": Tested, "Skipped": Skipped}


def _plain(outcome: Outcome) -> dict[str, Any]:
    values = outcome._asdict()
    if isinstance(outcome, Tested):
        values["z"] = np.asarray(outcome.z, dtype=float).tolist()
    if isinstance(outcome, Compared):
        values |= {"observed": float(outcome.observed), "limit": float(outcome.limit)}
    return {"type": type(outcome).__name__, **values}


def _outcome(plain: dict[str, Any]) -> Outcome:
    values = {key: value for key, value in plain.items() if key != "type"}
    if "z" in values:
        values["z"] = np.asarray(values["z"], dtype=float)
    result: Outcome = _OUTCOMES[plain["type"]](**values)
    return result


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


# -- recording -------------------------------------------------------------------------------------------------


class _Recording(Context):
    """Notes who asks what, and under which mark the answer is computed."""

    def __init__(self, tracer: Any, problem: Problem, *, quick: bool) -> None:
        super().__init__(quick=quick)
        self._tracer, self._record = tracer, problem
        self.pair: Pair | None = None
        self.spent = 0.0

    def solve(self, implementation: str, method: str, problem: Any, **options: Any) -> Solution:
        """As `Context.solve`; the lines that a fresh answer executes go to the question and not to the check."""
        assert self.pair is not None
        key = question(implementation, method, problem, options)
        self._record.asked[self.pair] = tuple(dict.fromkeys((*self._record.asked[self.pair], key)))
        if (
            key in self._record.solved
            and (implementation, method, core.digest(problem), core._frozen(options)) in self._answers
        ):
            return super().solve(implementation, method, problem, **options)
        forget()
        self._tracer.switch_context(_mark("solve", key))
        started = time.perf_counter()
        try:
            result = super().solve(implementation, method, problem, **options)
            if not _calls_back(options):
                self._record.healthy[key] = result
            return result
        finally:
            spent = time.perf_counter() - started
            self._record.seconds[key] = self._record.seconds.get(key, 0.0) + spent
            self.spent += spent
            self._record.solved.setdefault(key, {})
            forget()
            self._tracer.switch_context(_mark("check", self.pair))


def question(implementation: str, method: str, problem: Any, options: dict[str, Any]) -> Key:
    """What `Context.solve` remembers an answer by, with callables by name: the same in every process."""
    return (implementation, method, core.digest(problem), _named(core._frozen(options)))


def _named(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_named(entry) for entry in value)
    return getattr(value, "__qualname__", type(value).__name__) if callable(value) else value


def _calls_back(options: dict[str, Any]) -> bool:
    """Whether a check listens to the run itself, so that a remembered answer does not do."""
    return any(callable(value) for value in options.values())


def _mark(kind: str, value: Any) -> str:
    return f"{kind} {hashlib.sha256(repr(value).encode()).hexdigest()[:20]}"


def lines_by_mark(data: Any) -> dict[str, Lines]:
    """Lines by module, for every context that coverage's data tell apart; "" is what ran before the first."""
    lines: dict[str, dict[str, set[int]]] = {}
    roots = {package: Path(str(files(package))).resolve() for package in PACKAGES}
    for path in data.measured_files():
        for package, root in roots.items():
            if Path(path).resolve().is_relative_to(root):
                parts = Path(path).resolve().relative_to(root).with_suffix("").parts
                module = ".".join((package, *(part for part in parts if part != "__init__")))
                for line, marks in data.contexts_by_lineno(path).items():
                    for mark in marks:
                        lines.setdefault(mark, {}).setdefault(module, set()).add(line)
    return {mark: {module: frozenset(observed) for module, observed in value.items()} for mark, value in lines.items()}


def _collect(tracer: Any, problem: Problem) -> None:
    """Lines by module for every check and every question."""
    result = lines_by_mark(tracer.get_data())
    problem.own = {pair: result.get(_mark("check", pair), {}) for pair in problem.answers}
    problem.solved = {key: result.get(_mark("solve", key), {}) for key in problem.solved}
    for module, lines in result.get("", {}).items():
        inside = lines & _inside_functions(module)
        if inside:
            problem.imported[module] = inside


def _inside_functions(module: str) -> frozenset[int]:
    """Lines of the bodies of a module's functions."""
    result: set[int] = set()
    for node in ast.walk(ast.parse(source_of(module))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            result.update(range(node.body[0].lineno, node.end_lineno + 1))
    return frozenset(result)


def forget() -> None:
    """Empty the functools caches of the witnesses."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and module is not None:
            for value in list(vars(module).values()):
                while value is not None:
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
                    value = getattr(value, "__wrapped__", None) if callable(value) else None
