"""States of the ledger as they were when the wheel was built, for an installation without tests.

A wheel has no tests to read, so that what they say of each entry is written into it when it is built (`.ci/wheel.py`
calls `text_of`): state, addresses of the functions, tests with their routes. Functions are those that are installed,
and an entry whose functions are no longer those that were stored has no state. A repository has no such copy: there
the tests themselves are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from validation.door.quoting import shown
from validation.ledger.collection import Claim, MarkedTest
from validation.ledger.inventory import Equation

if TYPE_CHECKING:
    from validation.ledger.audit import Row

FILE = "stored.json"
SCHEMA = 2


class Held(NamedTuple):
    """One entry as it was stored: its state, the addresses of its functions and of its misprints, its tests."""

    state: str
    functions: frozenset[str]
    printed: frozenset[str]
    tests: tuple[MarkedTest, ...]


def text() -> str | None:
    """The file that came with the package, or None in a repository."""
    try:
        return resources.files("validation.ledger").joinpath(FILE).read_text(encoding="utf-8")
    except OSError:
        return None


def text_of(rows: Iterable[Row]) -> str:
    """What a wheel stores of these rows: a line for each entry, the same for the same code."""
    lines = []
    for row in rows:
        paper, id = row.entry.equation
        held = {
            "paper": paper,
            "id": id,
            "state": row.state,
            "functions": [item.address for item in row.functions],
            "printed": [item.address for item in row.printed],
            "tests": [asdict(test) for test in row.tests],
        }
        lines.append(json.dumps(held, ensure_ascii=False))
    return f'{{"schema": {SCHEMA}, "entries": [\n' + ",\n".join(lines) + "\n]}\n"


def read(held: str) -> dict[Equation, Held]:
    """Every entry of a stored file.

    Raises
    ------
    ValueError    if it is no such file
    """
    try:
        table = json.loads(held)
    except ValueError as error:
        raise ValueError(
            f"{FILE}: found no JSON ({error}), expected the states that the wheel was built with"
        ) from error
    schema = table.get("schema") if isinstance(table, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{FILE}: found schema {shown(schema)}, expected {SCHEMA}")
    try:
        return dict(map(_entry, table["entries"]))
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{FILE}: found an entry of another form ({error}), expected those of schema {SCHEMA}"
        ) from error


def _entry(row: dict[str, Any]) -> tuple[Equation, Held]:
    tests = tuple(
        MarkedTest(**{**test, "claims": tuple(Claim(**claim) for claim in test["claims"])}) for test in row["tests"]
    )
    held = Held(row["state"], frozenset(row["functions"]), frozenset(row["printed"]), tests)
    return (row["paper"], row["id"]), held


def restored(rows: tuple[Row, ...], held: str) -> tuple[tuple[Row, ...], list[str]]:
    """The rows with state and tests as stored, and a line for each whose functions are others by now."""
    entries, problems, answers = read(held), [], []
    for row in rows:
        equation = row.entry.equation
        known = entries.get(equation)
        functions, printed = (frozenset(item.address for item in items) for items in (row.functions, row.printed))
        if known is None or (known.functions, known.printed) != (functions, printed):
            where = "no such entry" if known is None else "other functions"
            problems.append(f"{equation[0]}:{equation[1]}: found {where} in {FILE}, expected the installed ones")
            answers.append(row)
            continue
        note = row.entry.note
        answers.append(replace(row, state=known.state, tests=known.tests, missing=(), gaps=(), note=note))
    return tuple(answers), problems
