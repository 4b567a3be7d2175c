"""Random mutants of the three witnesses: one change of one statement, made by the operators of Cosmic Ray.

The draw is frozen: every module, every statement and every constant can be drawn, none is excluded by name. A statement
is drawn at random without replacement, then a kind of change, then an operator of that kind, then a place: so that a
number is drawn as often as a sign, for which there are more operators. Annotations are not changed, because no program
evaluates them. Arithmetic and bit operators do not stand in for one another: on arrays of floats a bit operator raises
before anything is computed. A change that Python does not compile is none.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from planting import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
_ALIKE = ({"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}, {"BitAnd", "BitOr", "BitXor", "LShift", "RShift"})
T = TypeVar("T")
_CONTROL = ("Break", "Continue", "ZeroIteration", "Exception", "RemoveDecorator")
_NEEDS_ARGUMENTS = ("VariableReplacer", "VariableInserter")  # names of variables, which a random draw does not have

Position = tuple[int, int]  # line, column
Points = tuple[tuple[str, int], ...]  # file and line of statements that a test passes if it depends on another one


class Statement(NamedTuple):
    """A statement of a module, or the head of an exception's or a case's block.

    path : str             relative to the checkout
    first, last : int      own lines, without the body of a compound statement
    line : int             of the statement in a body, or of the first one of a function, that is passed; 0 if the
                           statement runs at import: functions of the module and of those that import it use it then
    place : str            "module", "default" or "body": where a constant of it stands
    """

    path: str
    first: int
    last: int
    line: int
    place: Literal["module", "default", "body"]

    @property
    def points(self) -> Points:
        """What a test passes if it depends on the statement."""
        return ((self.path, self.line),) if self.line else _users(self.path)


@dataclass(frozen=True)
class Mutant:
    """One change of one statement; `name` is unique and stable while the file is as it is."""

    name: str
    path: str
    points: Points
    kind: str
    operator: str
    text: str  # the whole changed module
    diff: str

    @property
    def module(self) -> str:
        """Dotted name."""
        return dotted(self.path)


def dotted(path: str) -> str:
    """Name of the module of a file."""
    return ".".join(part for part in Path(path).with_suffix("").parts if part != "__init__")


def draw(n: int, seed: int, packages: Iterable[str] = PACKAGES) -> list[Mutant]:
    """n random mutants; a smaller n gives the beginning of a larger one.

    Raises
    ------
    ValueError    if n is not positive
    """
    return _drawn([entry for package in packages for entry in _package(package)], n, seed)


def draw_changed(n: int, seed: int, base: str) -> list[Mutant]:
    """At most n random mutants of the statements of the witnesses that differ from the commit `base`."""
    command = ["git", "diff", "--unified=0", base, "--", *(f"{package}/*.py" for package in PACKAGES)]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines: dict[str, set[int]] = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count))
    known = [
        entry
        for path, changed in lines.items()
        if (ROOT / path).exists()
        for entry in statements(path)
        if changed & set(range(entry.first, entry.last + 1))
    ]
    return _drawn(known, n, seed)


def _drawn(known: list[Statement], n: int, seed: int) -> list[Mutant]:
    if n < 1:
        raise ValueError(f"n: found {n}, expected at least 1")
    rng = np.random.default_rng(seed)
    result: list[Mutant] = []
    for index in rng.permutation(len(known)):
        if len(result) == n:
            break
        changes = _changes(known[index])
        while changes:
            kind = _one(rng, sorted(changes))
            operator = _one(rng, sorted(changes[kind]))
            occurrence = _one(rng, changes[kind][operator])
            mutant = _mutant(known[index], operator, occurrence)
            if mutant is not None:
                result.append(mutant)
                break
            changes[kind][operator].remove(occurrence)
            changes[kind] = {name: places for name, places in changes[kind].items() if places}
            changes = {name: operators for name, operators in changes.items() if operators}
    return result


def _one(rng: np.random.Generator, values: Sequence[T]) -> T:
    return values[int(rng.integers(len(values)))]


# -- statements ------------------------------------------------------------------------------------------------------


def _package(package: str) -> Iterator[Statement]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield from statements(path.relative_to(ROOT).as_posix())


@cache
def statements(path: str) -> tuple[Statement, ...]:
    """The statements of a file, texts that document excepted."""
    return tuple(_walk(_tree(path).body, path, inside=False))


def _walk(body: list[ast.stmt], path: str, *, inside: bool) -> Iterator[Statement]:
    for node in body:
        if _documents(node):
            continue
        blocks = [block for block in _blocks(node) if block]
        last = max(_first(node), _until(node, blocks))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Statement(path, _first(node), last, _entry(node), "default")
            yield from _walk(node.body, path, inside=True)
            continue
        line = node.lineno if inside else 0
        yield Statement(
            path,
            _first(node),
            last,
            line,
            "body" if inside else "default" if isinstance(node, ast.AnnAssign) else "module",
        )
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            start = part.pattern.lineno if isinstance(part, ast.match_case) else part.lineno
            yield Statement(path, start, max(start, _first(part.body[0]) - 1), line, "body")
        for block in blocks:
            yield from _walk(block, path, inside=inside)


def _documents(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _first(node: ast.stmt) -> int:
    """Its first line, decorators included."""
    return min((entry.lineno for entry in getattr(node, "decorator_list", ())), default=node.lineno)


def _until(node: ast.stmt, blocks: list[list[ast.stmt]]) -> int:
    """The last line before the blocks of a statement and before what heads them."""
    assert node.end_lineno is not None
    heads = [part.pattern.lineno for part in getattr(node, "cases", ())]
    return min((*heads, *(_first(block[0]) for block in blocks)), default=node.end_lineno + 1) - 1


def _entry(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Line of the first statement that a call executes."""
    return next((entry for entry in node.body if not _documents(entry)), node.body[0]).lineno


@cache
def _users(path: str) -> Points:
    """Entries of the functions of a module and of the modules that import it, through modules without functions."""
    result = set(_entries(path))
    waiting, known = [path], {path}
    while waiting:
        for user in _importers(ROOT).get(dotted(waiting.pop()), set()) - known:
            known.add(user)
            result |= set(_entries(user))
            if not _entries(user):
                waiting.append(user)
    return tuple(sorted(result))


@cache
def _entries(path: str) -> Points:
    return tuple(
        (path, _entry(node))
        for node in ast.walk(_tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


@cache
def _importers(root: Path) -> dict[str, set[str]]:
    """Module to the files that import it."""
    result: dict[str, set[str]] = {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            for node in ast.walk(_tree(path)):
                if isinstance(node, ast.Import):
                    names = [entry.name for entry in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}", *(f"{node.module}.{entry.name}" for entry in node.names)]
                else:
                    continue
                for name in names:
                    result.setdefault(name, set()).add(path)
    return result


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, None) or []
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse(_source(path))


@cache
def _source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


# -- changes ---------------------------------------------------------------------------------------------------------


def _changes(statement: Statement) -> dict[str, dict[str, list[int]]]:
    """Kind of a change to operators to their occurrences within a statement."""
    result: dict[str, dict[str, list[int]]] = {}
    for operator, occurrence, line in _places(statement.path):
        if statement.first <= line <= statement.last:
            result.setdefault(_kind(operator, statement), {}).setdefault(operator, []).append(occurrence)
    return result


@cache
def _places(path: str) -> tuple[tuple[str, int, int], ...]:
    """(operator, occurrence, line) of every change that a file allows, outside of annotations."""
    annotated = [_span(node) for node in _annotations(_tree(path))]
    nodes = list(ast_nodes(get_ast(_source(path))))
    signs = [node for node in nodes if node.type in ("operator", "comparison", "factor", "not_test")]
    result = []
    for name in _operators():
        operator: Any = get_operator(name)()
        occurrence = 0
        # the many replacements of one sign by another look at nothing else
        for node in signs if "Operator_" in name else nodes:
            for first, last in operator.mutation_positions(node):
                if not any(start <= first and last <= end for start, end in annotated):
                    result.append((name, occurrence, first[0]))
                occurrence += 1
    return tuple(result)


@cache
def _operators() -> tuple[str, ...]:
    def offered(name: str) -> bool:
        if "ReplaceBinaryOperator" in name:
            return any(set(name.split("_")[1:]) <= alike for alike in _ALIKE)
        return not name.endswith(_NEEDS_ARGUMENTS)

    return tuple(name for name in operator_names() if offered(name))


def _annotations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            value = getattr(node, name, None)
            if isinstance(value, ast.expr):
                yield value


def _span(node: ast.expr) -> tuple[Position, Position]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _mutant(statement: Statement, operator: str, occurrence: int) -> Mutant | None:
    """The changed module; None if it does not compile."""
    before = _source(statement.path)
    text = mutate_code(before, get_operator(operator)(), occurrence)
    assert text is not None
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), lineterm="", n=0)
    diff = "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))
    short = operator.partition("/")[2]
    mark = hashlib.sha256(f"{statement.path}|{before}|{operator}|{occurrence}".encode()).hexdigest()[:10]
    name = f"{statement.path}:{statement.first}:{mark}"
    return Mutant(name, statement.path, statement.points, _kind(operator, statement), short, text, diff)


def _kind(operator: str, statement: Statement) -> str:
    """What was changed; constants by where they stand."""
    operator = operator.partition("/")[2]
    if operator.startswith("NumberReplacer"):
        return {"module": "constant", "default": "default", "body": "literal"}[statement.place]
    if operator.startswith("ReplaceBinary"):
        return "arithmetic"
    if operator.startswith("ReplaceComparison"):
        return "comparison"
    if operator.startswith("ReplaceUnary"):
        return "sign"
    return "control" if any(word in operator for word in _CONTROL) else "logic"
