"""Who executes each entry: solves and checks of a quick run of `triad verify`, or tests alone; a record of such a run.

`executed.json` is written by `make executed` and compared by `.ci/run` with what its own run of `triad verify`
executes (`validation.command.calls`). The page and the card read it, so that they need no run.

    "PAPER:ID"    "solve"     solves that execute it, as "WITNESS METHOD"
                  "loop"      those of them that call it in their own loop, and not only from within another entry
                  "checks"    checks that call it themselves, and not through a solve
                  "calls"     id of an entry of the same paper that is called from within it -> solves that do that

Only functions that show an entry as the paper prints it count (`shown`): those of `reference`, and those of others
where it has none. Functions that hold a misprint as it stands are left out: they are there to be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from validation.ledger.inventory import Equation
from validation.ledger.registry import Function

FILE = Path(__file__).parent / "executed.json"
SCHEMA = 3
SOLVES_OF = "reference"  # the witness whose solves are to be the papers' own equations
# kinds of entries that say what an algorithm does, of which solves are to be made
ALGORITHM = ("update", "objective", "gradient", "prediction", "bound", "approximation")


class Call(NamedTuple):
    """A marked function was called.

    function    its address
    caller      address of the nearest marked function above it, empty if there is none below the door
    door        "WITNESS METHOD" of the nearest solve above it, or the id of the check
    solved      whether the door is a solve
    """

    function: str
    caller: str
    door: str
    solved: bool


@dataclass(frozen=True, slots=True)
class Executed:
    """What executes one entry, and which entries are called from within it by which solves, each sorted."""

    solve: tuple[str, ...] = ()
    loop: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    calls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether `triad verify` executes it."""
        return bool(self.solve or self.checks)

    @property
    def words(self) -> str:
        """In the words of the ledger: solve, verify or tests alone."""
        if self.solve:
            return f"solve ({', '.join(name.removeprefix(f'{SOLVES_OF} ') for name in self.solve)})"
        return "verify" if self.checks else "tests alone"


Record = Mapping[Equation, Executed]


def printed_first(functions: Iterable[Function]) -> tuple[Function, ...]:
    """The functions that show an entry as the paper prints it: those of `reference`, or all if there are none."""
    listed = tuple(functions)
    return tuple(item for item in listed if item.package == SOLVES_OF) or listed


def shown(functions: Iterable[Function]) -> dict[str, tuple[Equation, ...]]:
    """Addresses of functions, each with the entries that it shows as the paper prints them."""
    entries: dict[Equation, list[Function]] = {}
    for item in functions:
        for equation in item.equations if not item.as_printed else ():
            entries.setdefault(equation, []).append(item)
    result: dict[str, tuple[Equation, ...]] = {}
    for equation, listed in entries.items():
        for item in printed_first(listed):
            result[item.address] = (*result.get(item.address, ()), equation)
    return result


def record(functions: Iterable[Function], calls: Iterable[Call]) -> Record:
    """The record of the calls that were seen (`validation.command.calls`).

    An entry that was not executed is there too, with nothing.
    """
    entries = shown(functions)
    everywhere = {equation for listed in entries.values() for equation in listed}
    doors: dict[Equation, dict[str, set[str]]] = {
        equation: {"solve": set(), "loop": set(), "checks": set()} for equation in everywhere
    }
    called: dict[Equation, dict[str, set[str]]] = {equation: {} for equation in everywhere}
    for call in calls:
        for equation in entries.get(call.function, ()):
            paper, id = equation
            doors[equation]["solve" if call.solved else "checks"].add(call.door)
            if call.solved and not call.caller:
                doors[equation]["loop"].add(call.door)
            for other in entries.get(call.caller, ()):
                if other[0] == paper and other != equation:
                    called[other].setdefault(id, set()).update({call.door} if call.solved else ())
    return {
        key: Executed(**{name: tuple(sorted(row[name])) for name in row}, calls=_sorted(called[key]))
        for key, row in sorted(doors.items())
    }


def _sorted(calls: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {id: tuple(sorted(solves)) for id, solves in sorted(calls.items())}


def entries_of(record: Record, check: str) -> tuple[Equation, ...]:
    """The entries that a check executes itself, and not through a solve."""
    return tuple(equation for equation, row in record.items() if check in row.checks)


def load(file: Path = FILE) -> Record:
    """The record; an empty one if nothing was measured, or what was cannot be read."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if held["schema"] != SCHEMA:
            return {}
        return {
            (paper, id): Executed(
                **{name: tuple(value) for name, value in row.items() if name != "calls"},
                calls=_sorted(row.get("calls", {})),
            )
            for key, row in held["entries"].items()
            for paper, _, id in [key.partition(":")]
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def text(record: Record) -> str:
    """The record as the file holds it: a line for each entry, the same for the same calls, without what is empty."""
    lines = [
        f"  {json.dumps(':'.join(key))}: {json.dumps({name: value for name, value in asdict(row).items() if value})}"
        for key, row in sorted(record.items())
    ]
    return f'{{\n "schema": {SCHEMA},\n "entries": {{\n' + ",\n".join(lines) + "\n }\n}\n"
