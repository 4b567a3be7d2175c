"""The statements of the witnesses that compute, and random mutants of them.

What does not compute is left out: modules that check arguments and hold errors, types and the ledger's markers, the
bodies of functions that only check, tests of an `if` that only raises, messages, documentation.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from validation.mutation.operators import Change, Source, changes
from validation.mutation.symmetry import symmetric_functions

PACKAGES = ("fast", "gibbs", "reference")


class Statement(NamedTuple):
    """One statement that computes: the module and function it stands in, its first and last line.

    What runs while a module is imported (constants, defaults of arguments and fields) is executed by no check, but
    used by those that execute one of the lines `watched`: of the function, or of the whole module.
    """

    module: str
    function: str  # qualified name; "" at the top of the module
    first: int
    last: int
    watched: tuple[int, int]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Mutant:
    """One change of one statement.

    name       unique and stable while the file is as it is
    area       of `areas.toml`
    before, after    the lines of the statement
    """

    name: str
    module: str
    function: str
    area: str
    first: int
    last: int
    watched: tuple[int, int]
    operator: str
    before: str
    after: str
    change: Change

    @property
    def diff(self) -> str:
        """The lines that differ, marked as in a unified diff."""
        lines = difflib.ndiff(self.before.splitlines(), self.after.splitlines())
        return "\n".join(line.rstrip() for line in lines if line[:1] in "+-")


def module_path(module: str) -> Path:
    """The file of a module of a witness, found without importing it."""
    package, *rest = module.split(".")
    path = Path(str(files(package))).joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules(package: str) -> list[str]:
    """All modules of a witness that compute."""
    root = Path(str(files(package)))
    names = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join((package, *(part for part in parts if part != "__init__")))
        if not any(fnmatchcase(name, pattern) for pattern in _areas()["leave_out"]["modules"]):
            names.append(name)
    return names


def source_of(module: str) -> str:
    """Text of a module."""
    return module_path(module).read_text(encoding="utf-8")


def statements(module: str, text: str | None = None) -> list[Statement]:
    """The statements of a module that compute and can be changed."""
    source = _parsed(module)[1] if text is None else Source(text, _symmetric)
    results = []
    for place in _walk(source.tree.body, _Place("", frozenset(), (1, source.data.count(b"\n") + 1))):
        possible = tuple(changes(source, place.node, place.known))
        if possible:
            first, last = place.node.lineno, _own_last_line(place.node)
            results.append(Statement(module, place.function, first, last, place.watched or (first, last), possible))
    return results


def draw(packages: tuple[str, ...], n: int, seed: int) -> list[Mutant]:
    """n mutants: statements at random without replacement, then one of the changes of each at random.

    Raises
    ------
    ValueError    if n is not between 1 and the number of statements
    """
    everything = [entry for package in packages for entry in population(package)]
    if not 1 <= n <= len(everything):
        raise ValueError(f"n: found {n}, expected 1..{len(everything)}, the statements of {', '.join(packages)}")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(everything))[:n]  # a smaller n is the beginning of a larger one
    return [make(everything[i], everything[i].changes[rng.integers(len(everything[i].changes))]) for i in chosen]


@cache
def population(package: str) -> tuple[Statement, ...]:
    """All statements of a package; reading the three takes some seconds."""
    return tuple(entry for module in modules(package) for entry in statements(module))


def make(statement: Statement, change: Change) -> Mutant:
    """The mutant that one change of a statement makes."""
    text, source = _parsed(statement.module)
    mutated = source.changed(change)
    shift = mutated.count("\n") - text.count("\n")
    # a change may reach beyond the lines on which the statement itself begins to run
    last = max(statement.last, 1 + source.data[: change.end].count(b"\n"))
    before = "\n".join(text.splitlines()[statement.first - 1 : last])
    after = "\n".join(mutated.splitlines()[statement.first - 1 : last + shift])
    mark = hashlib.sha256(f"{statement.module}|{text}|{tuple(change)}".encode()).hexdigest()[:10]
    return Mutant(
        name=f"{statement.module}:{statement.first}:{mark}",
        module=statement.module,
        function=statement.function,
        area=area(statement.module, statement.function),
        first=statement.first,
        last=last,
        watched=statement.watched,
        operator=change.operator,
        before=before,
        after=after,
        change=change,
    )


def area(module: str, function: str) -> str:
    """The area of a function, the first of `areas.toml` whose patterns fit.

    Raises
    ------
    LookupError    if none fits: every module belongs somewhere
    """
    name = f"{module}:{function}"
    for entry in _areas()["area"]:
        if any(fnmatchcase(name, pattern) for pattern in entry["patterns"]):
            return str(entry["name"])
    raise LookupError(f"areas: found no area for {name!r}, expected a pattern in areas.toml")


def area_names() -> tuple[str, ...]:
    """Names of the areas in the order of the report."""
    return tuple(dict.fromkeys(entry["name"] for entry in _areas()["area"]))


def mutated_source(mutant: Mutant) -> str:
    """The whole text of the mutant's module."""
    return _parsed(mutant.module)[1].changed(mutant.change)


@cache
def _parsed(module: str) -> tuple[str, Source]:
    text = source_of(module)
    return text, Source(text, _symmetric)


@cache
def _symmetric(module: str) -> Mapping[str, frozenset[int]]:
    """Functions of a witness's module that do not mind the order of some of their arguments."""
    if module.partition(".")[0] not in PACKAGES:
        return {}
    return symmetric_functions(ast.parse(source_of(module)))


@cache
def _areas() -> dict:
    return tomllib.loads((files("validation.mutation") / "areas.toml").read_text(encoding="utf-8"))


class _Place(NamedTuple):
    """Where a statement stands: its function, the names with a value there, the lines that tell whether it counts."""

    function: str
    known: frozenset[str]
    watched: tuple[int, int] | None  # None inside a function: the statement's own lines
    node: ast.stmt = ast.Pass()

    def inside(self, name: str) -> str:
        """Qualified name of something defined here."""
        return f"{self.function}.{name}" if self.function else name


def _walk(body: list[ast.stmt], here: _Place) -> Iterator[_Place]:
    """The statements that compute, each with its place."""
    for node in body:
        if (
            _is_text(node)
            or _is_type(node)
            or _only_checks(node)
            or (_cuts_by_it(node) if here.function else _cuts_work(node))
        ):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in _areas()["leave_out"]["elsewhere"]:
            yield from _walk(node.orelse, here)
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not any(fnmatchcase(node.name, pattern) for pattern in _areas()["leave_out"]["functions"]):
                yield from _function(node, here)
        elif isinstance(node, ast.ClassDef):
            yield from _walk(node.body, here._replace(function=here.inside(node.name)))
        elif here.function or not (isinstance(node, ast.Assign) and _is_bookkeeping(node)):
            yield here._replace(node=node)
            # a loop's body sees what its later lines have assigned
            known = here.known | _assigned([node])
            for inner in _inner(node):
                yield from _walk(inner, here._replace(known=known))
            here = here._replace(known=known)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, here: _Place) -> Iterator[_Place]:
    """The defaults of a function and what stands in it."""
    assert node.end_lineno is not None
    name = here.inside(node.name)
    yield _Place(name, here.known, (node.body[0].lineno, node.end_lineno), node)
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    yield from _walk(node.body, _Place(name, frozenset(argument.arg for argument in arguments), None))


def _inner(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        value = getattr(node, name, None)
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
    for handler in getattr(node, "handlers", []):
        yield handler.body
    for case in getattr(node, "cases", []):
        yield case.body


def _assigned(body: list[ast.stmt]) -> frozenset[str]:
    """Names that statements of this level give a value."""
    names = set()
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if target is not None:
                names |= {entry.id for entry in ast.walk(target) if isinstance(entry, ast.Name)}
    return frozenset(names)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_type(node: ast.stmt) -> bool:
    """A name for types: T = TypeVar("T", A, B), Update = Callable[...], Prepared = A | B."""
    value = ast.unparse(node.value) if isinstance(node, ast.Assign) else ""
    return re.match(r"TypeVar\(|Callable\[|[A-Z]\w+( \| [A-Z]\w+)+$|(float|int|str)( \|)", value) is not None


def _only_checks(node: ast.stmt) -> bool:
    """An `if` that does nothing but raise, or warn, and the statements that do that."""
    if isinstance(node, (ast.Raise, ast.Assert)):
        return True
    if isinstance(node, (ast.Expr, ast.Assign)) and isinstance(node.value, ast.Call):
        checks = _areas()["leave_out"]["checks"]
        return any(fnmatchcase(ast.unparse(node.value.func), pattern) for pattern in checks)
    if isinstance(node, ast.If) and not node.orelse:
        return isinstance(node.body[-1], ast.Raise) and all(
            isinstance(entry, (ast.Raise, ast.Assign)) or _is_text(entry) for entry in node.body
        )
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _cuts_work(node: ast.stmt) -> bool:
    """A constant of a module that says how much is done at a time, or kept: no number depends on it."""
    names = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(name, ast.Name) and _is_cut(name.id) for name in names)


def _is_cut(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _areas()["leave_out"]["constants"])


def _cuts_by_it(node: ast.stmt) -> bool:
    """rows = max(1, _CELLS // ...), with such a constant: so many rows at a time, and at least one."""
    value = node.value if isinstance(node, ast.Assign) else None
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "max" and len(value.args) == 2):
        return False
    one, share = value.args
    if not (isinstance(share, ast.BinOp) and isinstance(share.op, ast.FloorDiv) and isinstance(share.left, ast.Name)):
        return False
    return isinstance(one, ast.Constant) and one.value == 1 and _is_cut(share.left.id)


def _is_bookkeeping(node: ast.Assign) -> bool:
    return all(isinstance(target, ast.Name) and target.id.startswith("__") for target in node.targets)


def _own_last_line(node: ast.stmt) -> int:
    """The last line that belongs to the statement itself and not to its body."""
    inner = [entry.lineno for body in _inner(node) for entry in body[:1]]
    assert node.end_lineno is not None
    return max(node.lineno, min(inner) - 1) if inner else node.end_lineno
