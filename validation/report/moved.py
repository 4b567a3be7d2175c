"""What moved between two runs of `triad verify`: the view that somebody needs who changed a fast path.

A verdict is found again by its check, problem and sides; one check may give several on one problem, they keep their
order. Numbers below 1 % of a limit move with the rounding of another machine: they are counted, not listed first.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from validation.door.quoting import shown

KEY = ("check", "problem", "left", "right", "quantity")
_NUMBERS = ("observed", "limit", "ratio")
_RED = ("FAIL", "ERROR")
VERDICTS = ("PASS", "SKIP", *_RED)

# In the order in which they matter to somebody who changed something.
KINDS = (
    "turned red",
    "no longer judged",
    "gone",
    "limit raised",
    "ratio grew",
    "still red",
    "turned green",
    "limit lowered",
    "ratio fell",
    "now judged",
    "new",
    "number changed",
)

# a ratio is a share of a limit: below one percent of it rounding moves
_NOTICED = 0.01


class Verdict(NamedTuple):
    """One verdict of a run; NaN where there is no number."""

    observed: float
    limit: float
    ratio: float
    verdict: str

    @property
    def red(self) -> bool:
        """FAIL or ERROR."""
        return self.verdict in _RED


class Move(NamedTuple):
    """One verdict that is not what it was; None where a run does not have it."""

    kind: str
    check: str
    problem: str
    sides: str
    before: Verdict | None
    after: Verdict | None

    @property
    def size(self) -> float:
        """How far the ratio moved, in limits; for a changed limit by which factor; else the relative change."""
        if self.before is None or self.after is None:
            return math.inf
        old, new = self.before, self.after
        if self.kind.startswith("limit"):
            return abs(math.log(new.limit / old.limit)) if min(new.limit, old.limit) > 0.0 else math.inf
        if self.kind == "number changed":
            scale = max(abs(new.observed), abs(old.observed))
            return abs(new.observed - old.observed) / scale if scale > 0.0 else 0.0
        moved = abs(new.ratio - old.ratio)
        return math.inf if math.isnan(moved) else moved


Verdicts = Mapping[tuple[str, ...], Verdict]


def load(path: Path) -> Verdicts:
    """The verdicts of an earlier run.

    Parameters
    ----------
    path    a checks.csv of `triad verify`

    Raises
    ------
    ValueError    if it is no such file; names what is missing
    OSError       if it cannot be read
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: found bytes that are no text ({error.reason}), expected a checks.csv") from None
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in (*KEY, *_NUMBERS, "verdict") if name not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"{path}: found no column {', '.join(missing)}, expected a checks.csv of triad verify")
    try:
        return verdicts(reader)
    except csv.Error as error:
        raise ValueError(f"{path}: found {error}, expected a checks.csv of triad verify") from None


def verdicts(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], Verdict]:
    """Verdicts by check, problem, sides, quantity and place among those that share them."""
    kept: dict[tuple[str, ...], Verdict] = {}
    count: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(rows, start=2):
        key = tuple(str(row[name]) for name in KEY)
        if row["verdict"] not in VERDICTS:
            raise ValueError(f"line {number}: verdict: found {shown(row['verdict'])}, expected one of {VERDICTS}")
        count[key] = count.get(key, -1) + 1
        observed, limit, ratio = (_number(row[name], name, number) for name in _NUMBERS)
        kept[(*key, str(count[key]))] = Verdict(observed, limit, ratio, str(row["verdict"]))
    return kept


def _number(value: Any, name: str, line: int) -> float:
    if value is None or value == "":
        return math.nan
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"line {line}: {name}: found {shown(value)}, expected a number") from None


def moves(before: Verdicts, after: Verdicts) -> list[Move]:
    """All verdicts that are not what they were, the kinds that matter first, in each kind the largest first."""
    changed: list[Move] = []
    for key in dict.fromkeys([*after, *before]):
        kind = _kind(before.get(key), after.get(key))
        if kind is not None:
            sides = " vs ".join(side for side in key[2:4] if side)
            changed.append(Move(kind, key[0], key[1], sides, before.get(key), after.get(key)))
    order = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(changed, key=lambda move: (order[move.kind], -move.size))


def _kind(old: Verdict | None, new: Verdict | None) -> str | None:
    if old is None or new is None:
        return "gone" if new is None else "turned red" if new.red else "new"
    if new.red or old.red:
        return "still red" if new.red and old.red else "turned red" if new.red else "turned green"
    if new.verdict != old.verdict:
        return "no longer judged" if new.verdict == "SKIP" else "now judged"
    if new.limit != old.limit and not math.isnan(new.limit + old.limit):
        return "limit raised" if new.limit > old.limit else "limit lowered"
    grown = new.ratio - old.ratio
    if abs(grown) > _NOTICED:
        return "ratio grew" if grown > 0.0 else "ratio fell"
    same = new.observed == old.observed or (math.isnan(new.observed) and math.isnan(old.observed))
    return None if same else "number changed"


def summary(changed: Iterable[Move]) -> str:
    """One line: how many of each kind."""
    counts: dict[str, int] = {}
    for move in changed:
        counts[move.kind] = counts.get(move.kind, 0) + 1
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if kind in counts) or "nothing moved"
