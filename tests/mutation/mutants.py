"""Random mutants of the three witnesses: one change of one statement, made by the operators of Cosmic Ray.

The draw is frozen: every module, every statement and every constant can be drawn, none is excluded by name. A statement
is drawn at random without replacement, then one operator that applies to it, then one place. Annotations are not
changed, because no program evaluates them. Bit operators are not offered in place of arithmetic: on arrays of floats
they raise before anything is computed.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fast", "gibbs", "reference")
_ARITHMETIC = {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}
_CONTROL = ("Break", "Continue", "ZeroIteration", "Exception", "RemoveDecorator")
_NEEDS_ARGUMENTS = ("VariableReplacer", "VariableInserter")  # names of variables, which a random draw does not have

Position = tuple[int, int]  # line, column


class Statement(NamedTuple):
    """A statement of a module. What runs at import is watched through the lines that use it.

    path : str           relative to the checkout
    first, last : int    own lines, without the body of a compound statement
    watched : range      lines whose execution shows that a test depends on the statement
    place : str          "module", "default" or "body": where a constant of it stands
    """

    path: str
    first: int
    last: int
    watched: range
    place: str


@dataclass(frozen=True)
class Mutant:
    """One change of one statement; `name` is unique and stable while the file is as it is."""

    name: str
    path: str
    watched: range
    kind: str
    operator: str
    text: str  # the whole changed module
    diff: str

    @property
    def module(self) -> str:
        """Dotted name."""
        parts = Path(self.path).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")


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
        if changes:
            operators = sorted(changes)
            operator = operators[rng.integers(len(operators))]
            occurrences = changes[operator]
            result.append(_mutant(known[index], operator, occurrences[rng.integers(len(occurrences))]))
    return result


# -- statements ------------------------------------------------------------------------------------------------------


def _package(package: str) -> Iterator[Statement]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield from statements(path.relative_to(ROOT).as_posix())


@cache
def statements(path: str) -> tuple[Statement, ...]:
    """The statements of a file, texts that document excepted."""
    tree = ast.parse(_source(path))
    return tuple(_walk(tree.body, path, range(1, len(_source(path).splitlines()) + 1), inside=False))


def _walk(body: list[ast.stmt], path: str, around: range, *, inside: bool) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        assert node.end_lineno is not None
        inner = [block for block in _blocks(node) if block]
        last = min((block[0].lineno for block in inner), default=node.end_lineno + 1) - 1
        last = max(last, node.lineno)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = range(node.body[0].lineno, node.end_lineno + 1)
            yield Statement(path, node.lineno, last, lines, "default")
            yield from _walk(node.body, path, lines, inside=True)
            continue
        own = range(node.lineno, last + 1)
        place = "body" if inside else "default" if isinstance(node, ast.AnnAssign) else "module"
        yield Statement(path, node.lineno, last, own if inside else around, place)
        for block in inner:
            yield from _walk(block, path, around, inside=inside)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, None) or []
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


@cache
def _source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


# -- changes ---------------------------------------------------------------------------------------------------------


def _changes(statement: Statement) -> dict[str, list[int]]:
    """Operator to its occurrences within a statement."""
    result: dict[str, list[int]] = {}
    for operator, occurrence, line in _places(statement.path):
        if statement.first <= line <= statement.last:
            result.setdefault(operator, []).append(occurrence)
    return result


@cache
def _places(path: str) -> tuple[tuple[str, int, int], ...]:
    """(operator, occurrence, line) of every change that a file allows, outside of annotations."""
    annotated = [_span(node) for node in _annotations(ast.parse(_source(path)))]
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
            return set(name.split("_")[1:]) <= _ARITHMETIC
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


def _mutant(statement: Statement, operator: str, occurrence: int) -> Mutant:
    before = _source(statement.path)
    text = mutate_code(before, get_operator(operator)(), occurrence)
    assert text is not None
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), lineterm="", n=0)
    diff = "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))
    short = operator.partition("/")[2]
    mark = hashlib.sha256(f"{statement.path}|{before}|{operator}|{occurrence}".encode()).hexdigest()[:10]
    name = f"{statement.path}:{statement.first}:{mark}"
    return Mutant(name, statement.path, statement.watched, _kind(short, statement), short, text, diff)


def _kind(operator: str, statement: Statement) -> str:
    """What was changed; constants by where they stand."""
    if operator.startswith("NumberReplacer"):
        return {"module": "constant", "default": "default", "body": "literal"}[statement.place]
    if operator.startswith("ReplaceBinary"):
        return "arithmetic"
    if operator.startswith("ReplaceComparison"):
        return "comparison"
    if operator.startswith("ReplaceUnary"):
        return "sign"
    return "control" if any(word in operator for word in _CONTROL) else "logic"
