"""The inventories of claims: what the papers print and say, read from `inventory/<paper>.toml`.

A file holds `[paper]` (`key`, `complete`), and then

`[[claim]]`    one claim: a cell of a table, a figure, or a sentence. Keys are the fields of `Claim`.
`[[table]]`    a table, or a block of one, whose cells are claims that differ by row and column only: `columns` lists
               their names, `[table.rows]` gives each row its cells as printed: "0.33 ± 0.00", "0.33", or "-" where
               no number is printed. `text` may contain {row} and {column}; `unit` is that of the last digit where the
               paper leaves out zeros at the end. The id of a cell is the table's, the row's and the column's, joined
               by hyphens, in lower case. `reason` is that of a whole table that cannot be decided here.
`[protocols]`  names for protocols that several rows share: a `protocol` that is one of the names, or starts with one
               and a semicolon, takes its text in.
`[[verdict]]`  what was decided about a claim that stands as open above, by id: a state and the keys that go with it.
               With state "open" it holds the `reason` that nothing is decided. Cells of experiments are decided by
               results and never here: an inventory decides counts.
`about`        what a claim or table is about, of PARTS: by default cells of experiments, or sentences about them.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from validation.door.quoting import shown
from validation.ledger.inventory import check_table, nearest

KINDS = ("cell", "figure", "prose")
REPRODUCED, CONSISTENT, DIFFERS, REDUCED, REFUTED, UNDECIDABLE, OPEN = (
    "reproduced", "consistent", "differs", "reduced", "refuted", "not decidable", "open"
)  # fmt: skip
STATES: Mapping[str, str] = MappingProxyType({
    REPRODUCED: "our number agrees with print and with no other of its row; a sentence holds",
    CONSISTENT: "our number agrees with print, and with another of its row: no resolution",
    DIFFERS: "the opposite is certain, at the paper's size and protocol",
    REDUCED: "our run is smaller than the paper's; what would settle it is named",
    REFUTED: "shown wrong by mathematics, or by the paper's own table",
    UNDECIDABLE: "data or a detail of the protocol is missing; it is named",
    OPEN: "no run of the registered protocol, or one without the power to decide",
})  # fmt: skip
# What a claim is about, in the order of the headline; sizes and seconds stand outside the count.
MATHEMATICS, CELLS, SENTENCES, SIZES, SECONDS = "mathematics", "cells", "sentences", "sizes", "seconds"
PARTS: Mapping[str, str] = MappingProxyType({
    MATHEMATICS: "mathematics and counts of operations",
    CELLS: "experimental cells",
    SENTENCES: "experimental sentences and figures",
    SIZES: "sizes of data sets (not counted)",
    SECONDS: "absolute seconds (not counted)",
})  # fmt: skip
STANDARD_ERROR, STANDARD_DEVIATION, NO_SPREAD = "standard error", "standard deviation", "none"
SPREADS = (STANDARD_ERROR, STANDARD_DEVIATION, NO_SPREAD)

_TABLES = ("paper", "protocols", "claim", "table", "verdict")
_PAPER_KEYS: dict[str, type] = {"key": str, "complete": bool}
_CLAIM_KEYS: dict[str, type] = {"id": str, "where": str, "kind": str, "text": str, "state": str}
_TABLE_KEYS: dict[str, type] = {
    "id": str,
    "where": str,
    "text": str,
    "spread": str,
    "state": str,
    "columns": list,
    "rows": dict,
}
_COMMON: dict[str, type] = {"experiment": str, "protocol": str, "repeats": int, "about": str}
_PRINTED: dict[str, type] = {"printed": float, "printed_error": float, "unit": float, "spread": str, "decides": str}
_DECIDED: dict[str, type] = {
    "ours": float,
    "ours_error": float,
    "test": str,
    "reason": str,
    "command": str,
    "result": str,
}
_ID = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
_CELL = re.compile(r"(?P<value>-?\d+(?:\.(?P<decimals>\d+))?)(?: ± (?P<error>\d+(?:\.\d+)?))?")
# What a state in an inventory owes to its reader; beyond that, numbers decide a count, and a `test` the rest.
_NEEDS: dict[str, tuple[str, ...]] = {
    REPRODUCED: ("command",),
    DIFFERS: ("command", "reason"),
    REFUTED: ("command", "reason"),
    UNDECIDABLE: ("reason",),
    OPEN: (),
}
_NUMBERS = ("ours", "ours_error")


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of a paper, and what was decided about it."""

    paper: str
    id: str
    where: str  # as a reader finds it
    kind: str  # of KINDS
    text: str  # one sentence in our own words
    state: str  # of STATES
    printed: float | None = None
    printed_error: float | None = None
    unit: float | None = None  # of the last digit printed: what rounding leaves open
    spread: str = NO_SPREAD  # what printed_error is
    row: str = ""  # of a cell: its table and row, whose other columns are other methods
    repeats: int | None = None  # repetitions that printed and printed_error are taken over
    decides: str = ""  # the inequality or quantity that decides a figure or a sentence
    experiment: str = ""  # of `triad claims run PAPER`
    protocol: str = ""
    about: str = ""  # of PARTS
    ours: float | None = None
    ours_error: float | None = None  # standard error
    repetitions: int | None = None  # that ours is taken over
    half_width: float | None = None  # ours and printed agree up to this distance; None: no limit is known
    passing: int | None = None  # of the row's other printed values: how many would agree with ours as well
    others: int | None = None  # of how many
    departure: str = ""  # of our run from the registered protocol
    test: str = ""  # what was compared, and with which confidence
    reason: str = ""
    settles: str = ""  # what would decide a reduced or open claim
    command: str = ""
    result: str = ""  # file under results/

    @property
    def address(self) -> str:
        """PAPER:ID."""
        return f"{self.paper}:{self.id}"


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one paper, in printed order; `complete` once none is open."""

    paper: str
    complete: bool
    claims: tuple[Claim, ...]

    def __iter__(self) -> Iterator[Claim]:
        """Every claim, in printed order."""
        return iter(self.claims)

    def __len__(self) -> int:
        """How many claims there are."""
        return len(self.claims)

    def claim(self, id: str) -> Claim:
        """The claim with this id. LookupError names the nearest ones."""
        for claim in self.claims:
            if claim.id == id:
                return claim
        raise LookupError(f"id: found {shown(id)} in {self.paper}, expected {nearest(id, [c.id for c in self.claims])}")

    def counts(self, about: str | None = None) -> dict[str, int]:
        """How many claims, or those of one of PARTS, are in each state, in the order of STATES."""
        counted = Counter(claim.state for claim in self.claims if about in (None, claim.about))
        return {state: counted[state] for state in STATES}


def read_claims(text: str, name: str) -> Claims:
    """The claims of one paper from TOML text; `name` is the file's stem and must be the paper's key.

    Raises ValueError, naming file and row: an unknown or missing key, a wrong type, kind, state or spread, an id that
    is no address or is given twice, a cell without its number, a figure or sentence without what decides it, a verdict
    without its evidence, `complete` beside open claims.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}.toml: found no valid TOML: {error}") from error
    for part, content in data.items():
        if part not in _TABLES:
            raise ValueError(f"{name}.toml: found [{part}], expected one of {', '.join(_TABLES)}")
        if part not in ("paper", "protocols") and not isinstance(content, list):
            raise ValueError(f"{name}.toml: {part}: found {type(content).__name__}, expected [[{part}]]")
    about = check_table(f"{name}.toml [paper]", data.get("paper"), _PAPER_KEYS, {})
    if about["key"] != name:
        raise ValueError(f"{name}.toml [paper]: key: found {shown(about['key'])}, expected {name!r}, the file's name")
    protocols: Any = data.get("protocols", {})
    names: dict[str, type] = dict.fromkeys(protocols, str) if isinstance(protocols, dict) else {}
    check_table(f"{name}.toml [protocols]", protocols, names, {})
    claims: dict[str, Claim] = {}
    used: set[str] = set()
    for where, listed in _rows(name, data):
        claim = listed
        if claim.id in claims:
            raise ValueError(f"{where}: id: found {shown(claim.id)} a second time, expected ids to be unique")
        shared, semicolon, rest = claim.protocol.partition("; ")
        if shared in protocols:
            used.add(shared)
            claim = replace(claim, protocol=protocols[shared] + semicolon + rest)
        claims[claim.id] = claim
    if set(protocols) - used:
        unused = ", ".join(sorted(set(protocols) - used))
        raise ValueError(f"{name}.toml [protocols]: found {unused}, which no row names, expected each to be used")
    if not claims:
        raise ValueError(f"{name}.toml: found no claim, expected [[claim]] or [[table]]")
    for number, raw in enumerate(data.get("verdict", []), start=1):
        where = f"{name}.toml verdict {number}"
        row = check_table(where, raw, {"id": str, "state": str}, _DECIDED)
        if row["id"] not in claims:
            raise ValueError(f"{where}: id: found {shown(row['id'])}, expected {nearest(row['id'], claims)}")
        if claims[row["id"]].state != OPEN:
            raise ValueError(f"{where}: found a second verdict on {shown(row['id'])}, expected one")
        claims[row["id"]] = replace(claims[row["id"]], **_numbers(row))
    for claim in claims.values():
        _check(f"{name}.toml {claim.id}", claim)
    n_open = sum(claim.state == OPEN for claim in claims.values())
    if about["complete"] and n_open:
        raise ValueError(f"{name}.toml [paper]: complete: found true beside {n_open} open claims, expected false")
    return Claims(name, about["complete"], tuple(claims.values()))


def _rows(name: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Claim]]:
    """Claims and cells of tables, with the place that an error names."""
    for number, raw in enumerate(data.get("claim", []), start=1):
        where = f"{name}.toml claim {number}"
        row = check_table(where, raw, _CLAIM_KEYS, {**_COMMON, **_PRINTED, **_DECIDED})
        about = CELLS if row["kind"] == "cell" else SENTENCES
        yield where, Claim(paper=name, **{"about": about, **_numbers(row)})
    for number, raw in enumerate(data.get("table", []), start=1):
        where = f"{name}.toml table {number}"
        row = check_table(where, raw, _TABLE_KEYS, {**_COMMON, "unit": float, "reason": str})
        yield from _cells(where, name, row)


def _cells(where: str, paper: str, table: dict[str, Any]) -> Iterator[tuple[str, Claim]]:
    columns = table["columns"]
    for label, cells in table["rows"].items():
        here = f"{where}, row {label}"
        if not isinstance(cells, list) or len(cells) != len(columns):
            raise ValueError(f"{here}: found {shown(cells)}, expected a list of {len(columns)} cells")
        for column, cell in zip(columns, cells, strict=True):
            if cell == "-":
                continue
            match = _CELL.fullmatch(cell) if isinstance(cell, str) else None
            if match is None:
                raise ValueError(f"{here}: {column}: found {shown(cell)}, expected a text as '0.33 ± 0.01' or '-'")
            error = match["error"]
            claim = Claim(
                paper=paper,
                id="-".join((table["id"], slug(label), slug(column))),
                where=f"{table['where']}, row {label}, column {column}",
                kind="cell",
                row="-".join((table["id"], slug(label))),
                text=table["text"].replace("{row}", label).replace("{column}", column),
                state=table["state"],
                printed=float(match["value"]),
                printed_error=None if error is None else float(error),
                unit=float(table.get("unit", 10.0 ** -len(match["decimals"] or ""))),
                spread=NO_SPREAD if error is None else table["spread"],
                repeats=table.get("repeats"),
                experiment=table.get("experiment", ""),
                protocol=table.get("protocol", ""),
                about=table.get("about", CELLS),
                reason=table.get("reason", ""),
            )
            yield here, claim


def slug(label: str) -> str:
    """A name as it stands in an id: lower case, hyphens for what is neither letter nor digit."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with each int as the float that it stands for; repeats is a count and stays one."""
    return {key: float(value) if isinstance(value, int) and key != "repeats" else value for key, value in row.items()}


def _check(where: str, claim: Claim) -> None:
    """What the keys of a claim owe to one another."""
    if _ID.fullmatch(claim.id) is None:
        raise ValueError(f"{where}: id: found {shown(claim.id)}, expected lower case, digits, hyphens and dots")
    for key, known in (("kind", KINDS), ("state", tuple(_NEEDS)), ("spread", SPREADS), ("about", tuple(PARTS))):
        value = getattr(claim, key)
        if value not in known:
            raise ValueError(f"{where}: {key}: found {shown(value)}, expected one of {', '.join(known)}")
    for key in ("printed", "printed_error", "unit", *_NUMBERS):
        value = getattr(claim, key)
        positive = key in ("printed_error", "unit", "ours_error")
        if value is not None and (not math.isfinite(value) or (positive and value < 0.0)):
            expected = f"a finite number{' >= 0' if positive else ''}"
            raise ValueError(f"{where}: {key}: found {shown(value)}, expected {expected}")
    if claim.kind == "cell" and claim.printed is None:
        raise ValueError(f"{where}: found a cell without 'printed', expected the printed number")
    if claim.kind != "cell" and not claim.decides:
        raise ValueError(f"{where}: found no 'decides', expected the inequality or quantity that decides the claim")
    if claim.printed is None and (claim.printed_error is not None or claim.unit is not None):
        raise ValueError(f"{where}: found 'printed_error' or 'unit' without 'printed', expected the printed number too")
    if (claim.printed_error is None) != (claim.spread == NO_SPREAD):
        raise ValueError(
            f"{where}: spread: found {shown(claim.spread)} with printed_error = {claim.printed_error}, "
            f"expected {NO_SPREAD!r} exactly where no error is printed"
        )
    if claim.spread == STANDARD_DEVIATION and claim.repeats is None:
        raise ValueError(f"{where}: found a {STANDARD_DEVIATION} without 'repeats', expected over how many it is taken")
    if claim.repeats is not None and claim.repeats < 1:
        raise ValueError(f"{where}: repeats: found {claim.repeats}, expected a count from 1")
    _check_verdict(where, claim)


def _check_verdict(where: str, claim: Claim) -> None:
    given = [key for key in _DECIDED if key != "reason" and getattr(claim, key) not in (None, "")]
    if claim.state == OPEN and given:
        raise ValueError(f"{where}: found {', '.join(given)} of an open claim, expected a state that is decided")
    for key in _NEEDS[claim.state]:
        if not getattr(claim, key):
            raise ValueError(f"{where}: found {shown(claim.state)} without {key!r}, expected it")
    if claim.state not in (REPRODUCED, DIFFERS):
        return
    numbers = [key for key in _NUMBERS if getattr(claim, key) is not None]
    if claim.kind == "cell" or numbers:
        if len(numbers) < len(_NUMBERS):
            raise ValueError(f"{where}: found {shown(claim.state)} without {' and '.join(_NUMBERS)}, expected both")
        if claim.ours_error:
            raise ValueError(f"{where}: ours_error: found {claim.ours_error:g}, expected 0, the error of a count")
        if (claim.ours == claim.printed) != (claim.state == REPRODUCED):
            raise ValueError(f"{where}: found {shown(claim.state)} with ours = {claim.ours:g}, printed {claim.printed}")
    elif not claim.test:
        raise ValueError(f"{where}: found {shown(claim.state)} without 'test', expected what was compared")


def load(folder: Traversable | None = None) -> dict[str, Claims]:
    """The claims of every paper in a folder, by key; by default of those that ship with the package.

    Raises ValueError, naming file and row, for anything that is not as it should be.
    """
    folder = files("validation.claims") / "inventory" if folder is None else folder
    listed = sorted((item for item in folder.iterdir() if item.name.endswith(".toml")), key=lambda item: item.name)
    if not listed:
        raise ValueError(f"folder: found no inventory in {folder}, expected <paper>.toml")
    return {
        key: read_claims(item.read_text(encoding="utf-8"), key)
        for item in listed
        for key in [item.name.removesuffix(".toml")]
    }
