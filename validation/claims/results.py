"""Numbers that experiments gave, kept beside what the papers print: a CSV and a card for each experiment.

`results/<paper>-<experiment>.csv` has the rows of the experiment's table, each with the run that gave it, and the card
`.json` of the same name says of each run: command, options, seconds, versions, commit, and a fingerprint of the code
of `fast` that it went through. `make record PAPER=... EXPERIMENT=...` adds a run to both; its rows take the
place of earlier ones. `results/bindings.toml` says which row decides which cell of an inventory, and which results
decide sentences and figures (`[[statements]]`): their rows are those of `validation.reproduce.decisions`.

A row whose fingerprint is no longer that of the code is stale: the number stands, and whoever reads it is told.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import io
import json
import math
import platform
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from validation.claims import inventory, protocol
from validation.claims.inventory import (
    CONSISTENT,
    DIFFERS,
    MATHEMATICS,
    OPEN,
    REPRODUCED,
    STANDARD_DEVIATION,
    STANDARD_ERROR,
    Claim,
    Claims,
    slug,
)
from validation.claims.protocol import Departure, Protocol
from validation.claims.verdict import FAILS, HOLDS, LEAST, UNCERTAIN, Evidence, Row, decided, stated
from validation.door import storage
from validation.door.quoting import shown
from validation.jobs.place import commit
from validation.ledger.inventory import check_table

FOLDER = "results"
RUN, REPETITIONS = "run", "repetitions"  # columns that every result has
_HELD = {HOLDS: True, FAILS: False, UNCERTAIN: None}
_VERSIONS = ("gpc-triad", "numpy", "scipy")
_OURS = ("fast",)  # whose code a number goes through
_DOOR = "validation.door.solve"  # which imports a method when it is asked for it
_BINDING: dict[str, type] = {
    "result": str, "table": str, "row": str, "column": str, "value": str, "error": str, "match": dict,
}  # fmt: skip
_REASON: dict[str, type] = {"ids": str, "text": str}
_STATEMENTS: dict[str, type] = {"result": str}


class Card(NamedTuple):
    """One run of an experiment."""

    command: str
    seconds: float
    versions: Mapping[str, str]
    commit: str
    fingerprint: str  # of the code of `fast` that the experiment imports
    notes: tuple[str, ...]  # where it departs from the paper's protocol

    def stale(self, module: str) -> bool:
        """Whether the code has changed since."""
        return self.fingerprint != fingerprint(module)


class Binding(NamedTuple):
    """How rows of a result decide the cells of one table of an inventory.

    result         name of the CSV, PAPER-EXPERIMENT
    table          id of the table in the inventory
    row, column    columns of the CSV that hold the table's row and column, as names or as their slugs
    value, error   columns of the CSV with our number and its standard error
    match          other columns of the CSV and what stands in them
    spread         what `error` is: a standard error, or a standard deviation over the row's repetitions
    names          names of rows and columns that the table has otherwise: ours -> the table's
    """

    result: str
    table: str
    row: str
    column: str
    value: str
    error: str
    match: Mapping[str, str]
    spread: str = STANDARD_ERROR
    names: Mapping[str, str] = MappingProxyType({})

    def cell(self, row: Mapping[str, str]) -> str:
        """Id of the cell that a row of the CSV is about."""
        row_name, column_name = row[self.row], row[self.column]
        return "-".join((self.table, *(slug(self.names.get(name, name)) for name in (row_name, column_name))))


# -- the record ------------------------------------------------------------------------------------------------------


def record(
    folder: Path, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], keys: Sequence[str], card: Card
) -> Path:
    """Add a run to the CSV and the card of that name; rows with the same keys are replaced. Returns the CSV.

    Parameters
    ----------
    folder : Path           where both files are, or will be
    name : str              PAPER-EXPERIMENT
    columns, rows           of the table
    keys : sequence         columns that tell its rows apart
    card : Card             of this run
    """
    if missing := [key for key in keys if key not in columns]:
        raise ValueError(f"keys: found {', '.join(missing)}, expected columns of {', '.join(columns)}")
    path = folder / f"{name}.csv"
    there, cards = _rows(path) if path.is_file() else [], read_cards(folder, name)
    run = str(1 + max(map(int, cards), default=0))
    fresh = [{RUN: run, **{key: _cell(value) for key, value in zip(columns, row, strict=True)}} for row in rows]
    taken = {tuple(row[key] for key in keys) for row in fresh}
    kept = [row for row in there if tuple(row.get(key, "") for key in keys) not in taken]
    result = sorted([*kept, *fresh], key=lambda row: tuple(row[key] for key in keys))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*columns, RUN], lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(result)
    used = {row[RUN] for row in result}
    cards = {key: value for key, value in {**cards, run: card}.items() if key in used}
    text = json.dumps({key: value._asdict() for key, value in cards.items()}, indent=1, ensure_ascii=False)
    storage.write_text(path.with_suffix(".json"), text + "\n")
    storage.write_text(path, stream.getvalue())
    return path


def read_cards(folder: Any, name: str) -> dict[str, Card]:
    """The runs of one result by their number; none where it has no card."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return {}
    values = json.loads(path.read_text(encoding="utf-8"))
    return {key: Card(**{**value, "notes": tuple(value["notes"])}) for key, value in values.items()}


def _rows(path: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# -- what a run was ----------------------------------------------------------------------------------------------------


def made(command: str, seconds: float, module: str, notes: Iterable[str]) -> Card:
    """The card of a run that has just ended, of an experiment in a module."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}}
    return Card(command, round(seconds, 1), versions, commit(), fingerprint(module), tuple(notes))


@cache
def fingerprint(module: str) -> str:
    """SHA-256 over the sources of `fast` that a module imports, directly or not; behind `solve`, of all methods."""
    known: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in known:
            continue
        spec = find_spec(name)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        source = Path(spec.origin).read_bytes()
        known[name] = source
        if name == _DOOR:
            waiting += _methods()
        ours = ("validation.reproduce", "validation.implementations", _DOOR)
        waiting += [one for one in _imports(source) if one.partition(".")[0] in _OURS or one.startswith(ours)]
    digest = hashlib.sha256()
    for name in sorted(known):
        if name.partition(".")[0] in _OURS:
            digest.update(name.encode() + b"\0" + known[name] + b"\0")
    return digest.hexdigest()[:16]


def _methods() -> list[str]:
    """The modules of `fast.methods`."""
    spec = find_spec("fast.methods")
    if spec is None or spec.origin is None:
        return []
    return [f"fast.methods.{path.stem}" for path in sorted(Path(spec.origin).parent.glob("*.py"))]


@cache
def _imports(source: bytes) -> tuple[str, ...]:
    """The modules that a source names; kept, as the experiments of all papers stand on the same ones."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names.append(node.module)
            if node.module.partition(".")[0] in (*_OURS, "validation"):
                inside = (f"{node.module}.{alias.name}" for alias in node.names)
                names += [name for name in inside if _is_module(name)]
    return tuple(names)


@cache
def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False


# -- what it decides ---------------------------------------------------------------------------------------------------


def bindings(folder: Any = None) -> tuple[tuple[Binding, ...], tuple[tuple[str, str], ...]]:
    """The bindings, and the reasons of cells that differ: (pattern of addresses, text)."""
    folder = files("validation.claims") / FOLDER if folder is None else folder
    path = folder / "bindings.toml"
    if not path.is_file():
        return (), ()
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    bound = [
        check_table(f"bindings.toml cells {i}", raw, _BINDING, {"spread": str, "names": dict})
        for i, raw in enumerate(data.get("cells", []), 1)
    ]
    for i, raw in enumerate(bound, 1):
        if raw.get("spread", STANDARD_ERROR) not in (STANDARD_ERROR, STANDARD_DEVIATION):
            found = shown(raw["spread"])
            raise ValueError(
                f"bindings.toml cells {i}: spread: found {found}, expected {STANDARD_ERROR!r} or {STANDARD_DEVIATION!r}"
            )
    told = [
        check_table(f"bindings.toml reason {i}", raw, _REASON, {}) for i, raw in enumerate(data.get("reason", []), 1)
    ]
    return tuple(Binding(**row) for row in bound), tuple((row["ids"], row["text"]) for row in told)


def apply(
    papers: Mapping[str, Claims], folder: Any = None, protocols: Mapping[str, Mapping[str, Protocol]] | None = None
) -> dict[str, Claims]:
    """The claims with the cells, sentences and figures decided that results speak of, under the registered protocols.

    Raises
    ------
    ValueError    a binding that fits no cell, a cell that differs and has no reason, a row without its card, a result
                  of an experiment without a protocol
    """
    folder = files("validation.claims") / FOLDER if folder is None else folder
    protocols = protocol.load() if protocols is None else protocols
    bound, reasons = bindings(folder)
    why = _Reasons(reasons, [claim.address for claims in papers.values() for claim in claims])
    decisions: dict[str, Claim] = {}
    for name in statements(folder):
        decisions |= _stated(papers, folder, name, why, _protocol(name, papers, protocols))
    for binding in bound:
        paper, registered = _paper(binding.result, papers), _protocol(binding.result, papers, protocols)
        cells = {claim.id: claim for claim in papers[paper] if claim.id.startswith(f"{binding.table}-")}
        cards, count = read_cards(folder, binding.result), 0
        for row in _rows(folder / f"{binding.result}.csv"):
            if any(row.get(key) != value for key, value in binding.match.items()):
                continue
            claim = cells.get(binding.cell(row))
            if claim is None or claim.state != OPEN:
                continue
            if row[RUN] not in cards:
                raise ValueError(f"{binding.result}.csv: run: found {shown(row[RUN])}, expected one of the card")
            card, repetitions = cards[row[RUN]], int(row[REPETITIONS])
            spread = float(row[binding.error] or math.nan)
            error = spread / math.sqrt(repetitions) if binding.spread == STANDARD_DEVIATION else spread
            departure = registered.departure(card.command, card.notes, row)
            evidence = Evidence(
                float(row[binding.value]), error if math.isfinite(error) else 0.0, repetitions, *departure
            )
            beside = [one.printed for one in cells.values() if one.id != claim.id and one.row == claim.row]
            result = decided(
                claim, evidence, [value for value in beside if value is not None], card.command,
                result=f"{binding.result}.csv",
            )  # fmt: skip
            decisions[claim.address] = _explained(result, why(claim.address), registered)
            count += 1
        if not count:
            raise ValueError(
                f"bindings.toml: table: found no row of {binding.result}.csv for {binding.table}, expected some"
            )
    return {
        key: Claims(key, value.complete, tuple(decisions.get(claim.address, claim) for claim in value))
        for key, value in papers.items()
    }


class _Reasons:
    """The reason of a claim: that of the pattern which fits the fewest claims, the first of equal ones."""

    def __init__(self, reasons: Sequence[tuple[str, str]], addresses: Sequence[str]) -> None:
        fitting = [(sum(_fits(ids, address) for address in addresses), ids, text) for ids, text in reasons]
        self._sorted = sorted(fitting, key=lambda one: one[0])

    def __call__(self, address: str) -> str:
        return next((text for _, ids, text in self._sorted if _fits(ids, address)), "")


def _explained(claim: Claim, found: str, registered: Protocol) -> Claim:
    """The claim with the reason that was found for it, and what would settle it, where its state asks for them."""
    if claim.state in (REPRODUCED, CONSISTENT):
        return claim
    if claim.state == DIFFERS:
        if not found:
            raise ValueError(f"reason: found none for {claim.address}, which differs, expected why")
        return replace(claim, reason=found)
    return replace(claim, reason="; ".join(filter(None, (claim.reason, found))), settles=registered.settles)


def _protocol(name: str, papers: Mapping[str, Claims], protocols: Mapping[str, Mapping[str, Protocol]]) -> Protocol:
    paper = _paper(name, papers)
    experiment = name.removeprefix(f"{paper}-")
    if experiment not in protocols.get(paper, {}):
        raise ValueError(f"protocols/{paper}.toml: found no [experiments.{experiment}], expected one of {name}.csv")
    return protocols[paper][experiment]


def _paper(name: str, papers: Mapping[str, Claims]) -> str:
    paper, _, _ = name.partition("-")
    if paper not in papers:
        raise ValueError(f"bindings.toml: result: found {shown(name)}, expected PAPER-EXPERIMENT")
    return paper


def _stated(
    papers: Mapping[str, Claims], folder: Any, name: str, why: Callable[[str], str], registered: Protocol
) -> dict[str, Claim]:
    """Sentences and figures as the rows of one result decide them: all rows of a claim have to hold."""
    paper, cards, outcome = _paper(name, papers), read_cards(folder, name), {}
    by_claim: dict[str, list[dict[str, str]]] = {}
    for row in _rows(folder / f"{name}.csv"):
        by_claim.setdefault(row["claim"], []).append(row)
    for key, rows in by_claim.items():
        claim = papers[paper].claim(key)
        if claim.state != OPEN or claim.reason:
            continue
        if missing := {row[RUN] for row in rows} - cards.keys():
            raise ValueError(f"{name}.csv: run: found {shown(missing.pop())}, expected one of the card")
        departures = [
            registered.departure(cards[row[RUN]].command, cards[row[RUN]].notes, row)._asdict() for row in rows
        ]
        departure = {
            key: "; ".join(dict.fromkeys(filter(None, (one[key] for one in departures)))) for key in Departure._fields
        }
        compared = [Row(_HELD[row["verdict"]], int(row[REPETITIONS] or 0)) for row in rows]
        state = stated(
            compared,
            exact=claim.about == MATHEMATICS,
            reading=departure["reading"],
            smaller=departure["smaller"],
        )
        test = "; ".join(
            f"{row['compared']}: {row['observed']}, limit {row['limit']}, {row['verdict']}" for row in rows
        )
        reason = departure["reading"] or departure["smaller"]
        if state == OPEN and not reason:
            few = sum(row.repetitions < LEAST for row in compared)
            reason = "within its error: neither the statement nor its opposite is certain at 95 %"
            if few:
                reason = f"{few} of {len(compared)} comparisons have no interval over {LEAST} repetitions or more"
        decided = replace(
            claim, state=state, test=test, command=cards[rows[0][RUN]].command, result=f"{name}.csv",
            repetitions=min(row.repetitions for row in compared) or None, reason=reason,
            departure="; ".join(filter(None, departure.values())),
        )  # fmt: skip
        outcome[claim.address] = _explained(decided, why(claim.address), registered)
    return outcome


def statements(folder: Any = None) -> tuple[str, ...]:
    """The results whose rows decide sentences and figures."""
    folder = files("validation.claims") / FOLDER if folder is None else folder
    path = folder / "bindings.toml"
    if not path.is_file():
        return ()
    raw = tomllib.loads(path.read_text(encoding="utf-8")).get("statements", [])
    checked = [check_table(f"bindings.toml statements {i}", one, _STATEMENTS, {}) for i, one in enumerate(raw, 1)]
    return tuple(one["result"] for one in checked)


@cache
def load() -> dict[str, Claims]:
    """The claims of every paper, cells decided by the results that ship with the package."""
    return apply(inventory.load())


def keys_of(name: str, folder: Any = None) -> tuple[str, ...]:
    """The columns by which rows take the place of earlier ones: those that its bindings read, or the claim alone.

    Raises
    ------
    ValueError    nothing is bound to that result
    """
    if name in statements(folder):
        return ("claim",)
    bound = [binding for binding in bindings(folder)[0] if binding.result == name]
    if not bound:
        raise ValueError(f"result: found {shown(name)}, which bindings.toml does not bind, expected it there first")
    return tuple(dict.fromkeys(key for one in bound for key in (one.row, one.column, *one.match)))


def _fits(pattern: str, address: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), address) is not None
