"""Who executes each entry: solves, the checks of `triad verify`, or tests alone; a record that a run has left.

`executed.json` is made by `triad audit --executed` (`validation.ledger.measure`) and read here, so that the page and
the card need no run. Functions that hold a misprint as it stands are left out: they are there to be wrong.

    "functions"   address -> {"default": solves by defaults, "option": solves with some option, "quick": checks of the
                  quick run that call it themselves, "full": those that a full run adds, "within": solves of the quick
                  run that call it}; a solve is "witness method", what is empty is left out
    "read"        paper -> modules and packages on which it depends who executes its entries
    "code"        paper -> fingerprint of these as they were measured
    "known"       address -> equations of every function that there was, whether anything executes it or not

Only functions that show an entry as the paper prints it are there (`shown`): those of `reference`, and those of others
where it has none. What `fast` does with an entry that `reference` has may move without a new measurement.

A record that does not know a function, or knows one that has gone, is out of date, and the audit fails. One that was
measured with other code of the modules that it read is only said to be so: most changes of code leave it true.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validation.ledger.inventory import Equation
from validation.ledger.registry import Function

FILE = Path(__file__).parent / "executed.json"
SCHEMA = 2
COLUMNS = ("default", "option", "quick", "full", "within")
SOLVES_OF = "reference"  # the witness whose solves are to be the papers' own equations
# kinds of entries that say what an algorithm does, of which solves are to be made
ALGORITHM = ("update", "objective", "gradient", "prediction", "bound", "approximation")


@dataclass(frozen=True, slots=True)
class Executed:
    """What executes one function, or one entry: solves ("witness method") and checks by name, each sorted."""

    default: tuple[str, ...] = ()
    option: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    @property
    def quick_run(self) -> bool:
        """Whether a quick run of `triad verify` executes it."""
        return bool(self.quick or self.within)

    @property
    def verified(self) -> bool:
        """Whether `triad verify` executes it, in a quick or a full run."""
        return self.quick_run or bool(self.full)

    @property
    def solved(self) -> bool:
        """Whether a solve executes it, by defaults or with an option."""
        return bool(self.default or self.option)

    @property
    def words(self) -> str:
        """In the words of the ledger: solve, verify or tests alone."""
        parts = []
        if self.default:
            parts.append(f"solve ({_methods(self.default)}; default)")
        if other := [name for name in self.option if name not in self.default]:
            parts.append(f"solve ({_methods(other)}; with options)")
        if self.quick_run:
            parts.append("verify")
        elif self.full:
            parts.append("verify --full")
        return " | ".join(parts) or "tests alone"

    def __or__(self, other: Executed) -> Executed:
        """By either."""
        return Executed(*(tuple(sorted({*getattr(self, name), *getattr(other, name)})) for name in COLUMNS))


@dataclass(frozen=True, slots=True)
class Record:
    """What was measured: by function, with the code that was read for each paper and the functions that there were."""

    functions: Mapping[str, Executed] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: Mapping[str, tuple[Equation, ...]] = field(default_factory=dict)

    def of(self, functions: Iterable[Function]) -> Executed:
        """What executes an entry: its functions in `reference`, or where it has none there, any that it has."""
        result = Executed()
        for function in printed_first(functions):
            result |= self.functions.get(function.address, Executed())
        return result

    def entries_of(self, check: str) -> tuple[Equation, ...]:
        """The entries that a check executes itself, and not through a solve."""
        names = [name for name, row in self.functions.items() if check in row.quick or check in row.full]
        return tuple(dict.fromkeys(mark for name in names for mark in self.known.get(name, ())))

    def out_of_date(self, functions: Sequence[Function], equations: Collection[Equation]) -> tuple[str, ...]:
        """Functions of these equations that the record does not know as they are, or that it knows and are gone."""
        there = {item.address: item.equations for item in shown(functions, equations)}
        new = sorted(name for name, marks in there.items() if self.known.get(name) != marks)
        gone = sorted(
            name for name, marks in self.known.items() if name not in there and any(mark in equations for mark in marks)
        )
        return (*(f"{name}: not measured" for name in new), *(f"{name}: measured, and gone" for name in gone))

    def stale(self, paper: str | None = None) -> tuple[str, ...]:
        """Papers, of all or of this one, whose record was measured with other code than that at hand."""
        asked = [key for key in self.code if paper in (None, key)]
        return tuple(key for key in asked if self.code[key] != fingerprint(self.read.get(key, ())))


def printed_first(functions: Iterable[Function]) -> tuple[Function, ...]:
    """The functions that show an entry as the paper prints it: those of `reference`, or all if there are none."""
    listed = tuple(functions)
    return tuple(item for item in listed if item.package == SOLVES_OF) or listed


def shown(functions: Iterable[Function], asked: Collection[Equation] | None = None) -> tuple[Function, ...]:
    """The functions that show at least one of their entries, of those `asked`, as the paper prints it."""
    entries: dict[Equation, list[Function]] = {}
    for item in functions:
        for equation in item.equations if not item.as_printed else ():
            if asked is not None and equation not in asked:
                continue
            entries.setdefault(equation, []).append(item)
    return tuple({item.address: item for listed in entries.values() for item in printed_first(listed)}.values())


def _methods(solves: Iterable[str]) -> str:
    """ep, sep of "reference ep", "reference sep"; other witnesses are named."""
    return ", ".join(name.removeprefix(f"{SOLVES_OF} ") for name in solves)


def load(file: Path = FILE) -> Record:
    """The record; an empty one if nothing was measured, or what was cannot be read."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if held["schema"] != SCHEMA:
            return Record()
        rows = held["functions"].items()
        return Record(
            {name: Executed(**{key: tuple(value) for key, value in row.items()}) for name, row in rows},
            held["code"],
            {paper: tuple(names) for paper, names in held["read"].items()},
            {name: tuple((paper, id) for paper, id in marks) for name, marks in held["known"].items()},
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError):
        return Record()


def text(record: Record) -> str:
    """The record as the file holds it: a line for each function, the same for the same measurement."""
    functions = {
        name: {key: list(getattr(row, key)) for key in COLUMNS if getattr(row, key)}
        for name, row in sorted(record.functions.items())
    }
    known = {name: [list(mark) for mark in marks] for name, marks in sorted(record.known.items())}

    def lines(table: Mapping[str, Any]) -> str:
        return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items()) + "\n }"

    return (
        f'{{\n "schema": {SCHEMA},\n "code": {lines(dict(sorted(record.code.items())))},\n "read": '
        f'{lines({paper: list(names) for paper, names in sorted(record.read.items())})},\n "functions": '
        f'{lines(functions)},\n "known": {lines(known)}\n}}\n'
    )


def fingerprint(names: Iterable[str]) -> str:
    """Of modules and whole packages, without docstrings and comments: who executes what does not depend on those."""
    result = hashlib.sha256()
    for name in names:
        result.update(f"{name}\n".encode())
        for file in _files(name):
            result.update(f"{file.name}\n".encode())
            result.update(code_of(file.read_text(encoding="utf-8")).encode())
    return result.hexdigest()[:16]


def _files(name: str) -> list[Path]:
    """The files of a module or of a package with all below it, found without an import; none of one that is gone."""
    top, *parts = name.split(".")
    spec = importlib.util.find_spec(top)
    for place in () if spec is None else spec.submodule_search_locations or ():
        path = Path(place, *parts)
        if path.is_dir():
            return sorted(path.rglob("*.py"), key=lambda file: file.relative_to(path).as_posix())
        if path.with_suffix(".py").is_file():
            return [path.with_suffix(".py")]
    return []


def code_of(source: str) -> str:
    """What a module computes, as text: its syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            held = body[0].value
            if isinstance(held, ast.Constant) and isinstance(held.value, str):
                held.value = ""
    return ast.dump(tree)
