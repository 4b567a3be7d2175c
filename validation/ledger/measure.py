"""Measure who executes each marked function: the solves of the witnesses, and the checks of `triad verify`.

The markers' hooks see every call. The checks of a quick run are asked as `triad verify` asks them, and those of kind
`print` that a full run adds; a solve inside a check is noted as a solve, and by whom. Then each method of `reference`
solves the smallest problems that it takes, by defaults and once with each other value of each of its options.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from validation import problems
from validation.checks import core, runner
from validation.checks.core import NO_PROBLEM, Context
from validation.checks.selection import Pair
from validation.door import catalogue, options
from validation.door.problem import Problem
from validation.jobs.processes import spread
from validation.ledger import executed
from validation.ledger.executed import COLUMNS, SOLVES_OF, Executed, Record
from validation.ledger.inventory import Equation
from validation.ledger.registry import Package, Registry

LARGEST = 30  # data of a problem that is solved by defaults; a larger one only where no other suits
# options that shorten a search, with a value that is long enough to execute every step of it
_SHORT = {"learning_iterations": 3, "n_steps": 3}
_COSTLY = 1e3  # of a unit of solves, so that it starts before those of checks do

Tell = Callable[[str], None]


class Unit(NamedTuple):
    """Work for one process: the checks of one problem, or all solves of one method."""

    problem: str
    pairs: tuple[Pair, ...]
    modules: tuple[str, ...]
    packages: tuple[Package, ...]
    method: str = ""


class Seen(NamedTuple):
    """A function, who executed it, and the column that this belongs to."""

    address: str
    column: str
    by: str


class Watch:
    """Told of every call of a marked function while it is installed; `at` says on whose account."""

    def __init__(self, packages: Iterable[Package]) -> None:
        """Nothing seen yet."""
        self.seen: set[Seen] = set()
        self._markers = [importlib.import_module(package.marker) for package in packages]
        self._accounts: tuple[tuple[str, str], ...] = ()

    @contextmanager
    def at(self, *accounts: tuple[str, str]) -> Iterator[None]:
        """Inside, calls are of these (column, name) and of nobody else."""
        before, self._accounts = self._accounts, accounts
        try:
            yield
        finally:
            self._accounts = before

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside, the markers' hooks are this watch, and `solve` says who asks."""
        door: Any = importlib.import_module("validation.door.solve")
        earlier, solve = [marker.hook for marker in self._markers], door.solve
        for marker in self._markers:
            vars(marker)["hook"] = self._called
        door.solve = self._solving(solve)
        try:
            yield
        finally:
            door.solve = solve
            for marker, hook in zip(self._markers, earlier, strict=True):
                vars(marker)["hook"] = hook

    def _called(self, function: Callable[..., Any], output: Any) -> Any:
        if self._accounts:
            address = f"{function.__module__}.{function.__qualname__}"
            self.seen |= {Seen(address, *account) for account in self._accounts}
        return output

    def _solving(self, solve: Callable[..., Any]) -> Callable[..., Any]:
        def solving(implementation: str, method: str, problem: Problem, **asked: Any) -> Any:
            who = f"{implementation} {method}"
            within = [("within", who)] if any(column in ("quick", "within") for column, _ in self._accounts) else []
            with self.at(("option" if asked else "default", who), *within):
                return solve(implementation, method, problem, **asked)

        return solving


def work(unit: Unit, listen: Tell) -> frozenset[Seen]:
    """What one unit executes; a check that raises executes what it does before that."""
    watch = Watch(unit.packages)
    with watch.installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if unit.method:
            listen(f"solves of {unit.method}")
            for problem, asked in scenarios(unit.method):
                # a value that this problem does not take, or that leads nowhere, executes what it does
                try:
                    importlib.import_module("validation.door.solve").solve(SOLVES_OF, unit.method, problem, **asked)
                except (ValueError, TypeError, ArithmeticError):
                    continue
            return frozenset(watch.seen)
        listen(f"checks of {unit.problem}")
        checks, context = core.imported(unit.modules), Context()
        for pair in unit.pairs:
            problem_or_none = None if unit.problem == NO_PROBLEM else context.problem(unit.problem)
            with watch.at(("full" if pair.full else "quick", pair.check)):
                runner.ask(checks[pair.check], context, problem_or_none, pair)
    return frozenset(watch.seen)


def scenarios(method: str) -> Iterator[tuple[Problem, dict[str, Any]]]:
    """What a method of `reference` is asked: by defaults, then with each other value of each option by itself."""
    table = options.options_of(SOLVES_OF, method)
    short = {name: value for name, value in _SHORT.items() if name in table}
    if not short and "max_iterations" in table:
        short = {"max_iterations": 5}
    for problem in suitable(method):
        yield problem, {}
        for name, option in table.items():
            for value in _values(option):
                yield problem, {name: value}
        for learned in getattr(table.get("learn"), "choices", ()):
            for name in ("", "scheme", "gradient_rule", "optimizer", "prior_on", "map_density", "batches", "factors"):
                for value in _values(table[name]) if name in table else [None] if not name else []:
                    yield problem, {"learn": (learned,), **short, **({name: value} if name else {})}


def suitable(method: str) -> list[Problem]:
    """The smallest built-in problem of each sort that a method takes: by likelihood and by what the prior stands on."""
    entry = next(value for value in catalogue.METHODS if value.method == method)
    value: dict[tuple[Any, ...], Problem] = {}
    listed = [problems.get(name) for name in problems.names()]
    # the binary ones are of the logistic likelihood; the checks ask of them with the other one too
    listed += [problem.replace(likelihood="probit") for problem in listed if problem.likelihood == "logit"]
    for problem in sorted(listed, key=lambda problem: problem.n):
        sparse = problem.Z is not None
        if problem.likelihood not in entry.likelihoods or (entry.errors and not problem.epsilon):
            continue
        if (entry.points == catalogue.ALL_ROWS and sparse) or (entry.points == catalogue.INDUCING and not sparse):
            continue
        sort = (problem.likelihood, sparse, problem.epsilon > 0.0, min(problem.n_classes, 3))
        if sort not in value and (problem.n <= LARGEST or not value):
            value[sort] = problem
    return list(value.values())


def _values(option: Any) -> list[Any]:
    """The values of an option besides its default that lead to other code, as far as its type tells."""
    if option.name in ("learn", "callback"):
        return []
    if option.kind in ("choice", "rate") and option.choices:
        return [value for value in option.choices if value != option.default]
    if option.kind == "flag":
        return [not option.default]
    if option.name == "alpha":
        return [0.0, 0.5, 1.0]
    if option.name == "batches":
        return [[[0, 1], [1, 0]]]
    return [1] if option.name == "batch_size" else []


def run(
    functions: Registry,
    packages: Sequence[Package],
    paper: str | None = None,
    *,
    earlier: Record | None = None,
    jobs: int | None = None,
    listen: Tell = lambda text: None,
) -> Record:
    """Measure everything, or the checks and methods of one paper; the rest is then taken from the `earlier` record.

    Raises
    ------
    RuntimeError    if a process is lost
    """
    earlier = earlier or Record()
    chosen = [paper] if paper else []
    quick = runner.select(paper=chosen)
    added = runner.select(full=True, paper=chosen, check=["print/*"]) if _has_print(chosen) else quick
    pairs = [*quick.pairs, *(pair for pair in added.pairs if pair._replace(full=False) not in set(quick.pairs))]
    modules = tuple(sorted({*quick.modules, *added.modules}))
    own = [entry.method for entry in catalogue.METHODS if paper in (None, entry.paper)]
    units = [Unit("", (), (), tuple(packages), method) for method in own]
    units += [
        Unit(name, tuple(pair for pair in pairs if pair.problem == name), modules, tuple(packages))
        for name in dict.fromkeys(pair.problem for pair in pairs)
    ]
    costs = [_COSTLY if unit.method else runner.cost(unit.problem) for unit in units]
    visited: set[Seen] = set()
    for index, value in spread(work, units, costs, jobs=jobs, listen=listen):
        if isinstance(value, BaseException):
            unit = units[index]
            raise RuntimeError(f"{unit.method or unit.problem}: the process that measured it was lost ({value})")  # noqa: TRY004
        visited |= value
    checks = core.registered()
    mine = {name for name, check in checks.items() if paper in (None, check.paper)}
    return _record(functions, visited, earlier, paper, _Kept(frozenset(checks) - mine, frozenset(own)))


def _has_print(paper: list[str]) -> bool:
    return any(check.kind == "print" and (not paper or check.paper in paper) for check in core.registered().values())


class _Kept(NamedTuple):
    """What an earlier record may still say: checks that were not asked now, solves of other methods than these."""

    checks: frozenset[str]
    methods: frozenset[str]

    def holds(self, column: str, name: str) -> bool:
        return name in self.checks if column in ("quick", "full") else name.partition(" ")[2] not in self.methods


def _record(
    functions: Registry,
    observed: Iterable[Seen],
    earlier: Record,
    paper: str | None,
    kept: _Kept,
) -> Record:
    """The record of what was seen, with what the earlier one holds of what was not asked."""
    known = {item.address: item.equations for item in executed.shown(functions.functions)}
    table: dict[str, dict[str, set[str]]] = {name: {column: set() for column in COLUMNS} for name in known}
    for address, column, by in observed:
        if address in table:
            table[address][column].add(by)
    if paper is not None:
        for address, row in earlier.functions.items():
            for column in COLUMNS if address in table else ():
                table[address][column] |= {name for name in getattr(row, column) if kept.holds(column, name)}
    rows = {
        name: Executed(**{column: tuple(sorted(names)) for column, names in row.items()})
        for name, row in table.items()
        if any(row.values())
    }
    papers = sorted({key for marks in known.values() for key, _ in marks} if paper is None else {paper})
    read = {key: modules_of(key, rows, known, core.registered()) for key in papers}
    code = {key: executed.fingerprint(names) for key, names in read.items()}
    if paper is None:
        return Record(rows, code, read, known)
    return Record(rows, {**earlier.code, **code}, {**earlier.read, **read}, known)


def modules_of(
    paper: str,
    functions: Mapping[str, Executed],
    known: Mapping[str, tuple[Equation, ...]],
    checks: Mapping[str, core.Check],
) -> tuple[str, ...]:
    """Modules and packages on which it depends who executes a paper's entries.

    They are the paper's package in `reference` with what all papers share, the adapters that call it, the modules of
    functions elsewhere that realise entries of it, and those of the checks that were seen to execute any.
    """
    whole = {f"{SOLVES_OF}.{paper}", f"{SOLVES_OF}.common", f"validation.implementations.{SOLVES_OF}"}
    own = [name for name, marks in known.items() if any(key == paper for key, _ in marks)]
    modules = {_module_of(name) for name in own}
    modules |= {
        checks[check].function.__module__
        for name in own
        if name in functions
        for check in (*functions[name].quick, *functions[name].full)
        if check in checks
    }
    inside = {name for name in modules if any(f"{name}.".startswith(f"{package}.") for package in whole)}
    return tuple(sorted(whole | (modules - inside)))


def _module_of(address: str) -> str:
    """The module that a function of this address is defined in: module.function or module.Class.function."""
    name = address.rpartition(".")[0]
    while name not in sys.modules and "." in name:
        name = name.rpartition(".")[0]
    return name
