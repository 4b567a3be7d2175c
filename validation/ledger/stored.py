"""States of the ledger as they were when the wheel was built, for an installation without tests.

The wheel holds the page of the docs (`docs/ledger.md`), which `triad audit --check` holds against code and tests. What
it says of tests is read back from it; functions are those that are installed, and an entry whose functions are no
longer those of the page has no state. A repository has no such copy: there the tests themselves are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING

from validation.ledger.collection import Claim, MarkedTest
from validation.ledger.inventory import Equation
from validation.quoting import shown

if TYPE_CHECKING:
    from validation.ledger.audit import Row

FILE = "stored.md"

_HEADING = re.compile(r"## (\w+)$")
_CELLS = re.compile(r"(?<!\\)\|")
_FUNCTION = re.compile(r"`([\w.]+)`( \(as printed\))?$")
_TEST = re.compile(r"(?:(\w+): )?`(\w+)` \((.*)\)$")


def text() -> str | None:
    """The page that came with the package, or None in a repository."""
    try:
        return resources.files("validation.ledger").joinpath(FILE).read_text(encoding="utf-8")
    except OSError:
        return None


class Held:
    """One line of the page: its state, the addresses of its functions and its tests."""

    def __init__(self, equation: Equation, cells: list[str]) -> None:
        """Cells of a line: id, section, title, kind, state, executed by, functions, tests and routes, note."""
        self.state = cells[4]
        self.functions = frozenset(cell for cell in cells[6].split("<br>") if cell)
        self.tests = tuple(_test(equation, cell) for cell in cells[7].split("<br>") if cell)


def read(page: str) -> dict[Equation, Held]:
    """Every entry of a page.

    Raises
    ------
    ValueError    naming the line, if it is no line of such a page
    """
    found = {}
    for paper, line in _lines(page):
        cells = [cell.strip() for cell in _CELLS.split(line)[1:-1]]
        if len(cells) != 9:
            raise ValueError(f"{FILE}: found a line of {len(cells)} cells, expected 9: {line[:60]}")
        equation = (paper, _plain(cells[0]))
        found[equation] = Held(equation, cells)
    return found


def _lines(page: str) -> Iterator[tuple[str, str]]:
    paper, table = "", False
    for line in page.splitlines():
        if heading := _HEADING.match(line):
            paper, table = heading[1], False
        elif paper and line.startswith("|---"):
            table = True
        elif table and line.startswith("|"):
            yield paper, line


def restored(rows: tuple[Row, ...], page: str) -> tuple[tuple[Row, ...], list[str]]:
    """The rows with state and tests of the page, and a line for each whose functions are others by now."""
    held, problems, found = read(page), [], []
    for row in rows:
        equation = row.entry.equation
        functions = {f"`{item.address}`" for item in row.functions}
        functions |= {f"`{item.address}` (as printed)" for item in row.printed}
        known = held.get(equation)
        if known is None or known.functions != functions:
            where = "no such entry" if known is None else "other functions"
            problems.append(
                f"{equation[0]}:{equation[1]}: found {where} on the stored page, expected the installed ones"
            )
            found.append(row)
            continue
        note = row.entry.note
        found.append(replace(row, state=known.state, tests=known.tests, missing=(), gaps=(), note=note))
    return tuple(found), problems


def _test(equation: Equation, cell: str) -> MarkedTest:
    match = _TEST.match(cell)
    if match is None:
        raise ValueError(f"{FILE}: found {shown(cell)}, expected package: `test` (route)")
    package, name, route = match[1] or "", match[2], _plain(match[3])
    folder = f"tests/{package}" if package else "tests"
    return MarkedTest(f"{folder}::{name}", package, folder, 0, name, 1, False, (Claim(*equation, route),))


def _plain(cell: str) -> str:
    return re.sub(r"\\([\\`*_{}\[\]<>|$#~])", r"\1", cell)
