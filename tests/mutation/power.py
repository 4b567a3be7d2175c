"""The recorded power: what became of each mutant of a sample, at the door, in the tests and in both.

`power.json` is written by `run.py --record`; `python tests/mutation/power.py` prints it as Markdown. Nothing in it is
edited but `review`, which is written after the record, by reading the survivors: null, or whether a user can see the
mutant, and why, {"visible": false, "why": "..."}.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mutants import Mutant
    from suite import Outcome

PATH = Path(__file__).resolve().parent / "power.json"
_CAUGHT = ("wrong value", "crash")

Row = dict[str, Any]


class Share(NamedTuple):
    """Mutants of a group that were caught, of those that count."""

    caught: int
    of: int

    def __str__(self) -> str:
        return f"{self.caught} of {self.of} ({self.caught / self.of:.0%})" if self.of else "-"


def row(mutant: Mutant, outcomes: dict[str, Outcome]) -> Row:
    """One mutant for the record."""
    return {
        "name": mutant.name,
        "kind": mutant.kind,
        "operator": mutant.operator,
        "diff": mutant.diff,
        **{target: outcome._asdict() for target, outcome in outcomes.items()},
        "review": None,
    }


def record(seed: int, rows: list[Row], tests: list[str] | None, aside: dict[str, list[str]]) -> None:
    """Add a sample; the same seed at the same commit is replaced.

    tests    folders of the tests that were asked, all by default
    aside    tests of each target that fail without any mutant, and were not asked
    """
    command = ["git", "-C", str(PATH.parent), "rev-parse", "--short=10", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    kept = [sample for sample in samples() if (sample["seed"], sample["commit"]) != (seed, commit)]
    text = json.dumps(
        [*kept, {"commit": commit, "seed": seed, "tests": tests, "aside": aside, "mutants": rows}], indent=1
    )
    PATH.write_text(text + "\n", encoding="utf-8")


def samples() -> list[dict[str, Any]]:
    """The recorded samples."""
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else []


def markdown() -> str:
    """The record as tables."""
    if not samples():
        return "No sample is recorded: `make mutate` makes one.\n"
    blocks = []
    commits = list(dict.fromkeys(sample["commit"] for sample in samples()))
    for commit in commits:
        chosen = [sample for sample in samples() if sample["commit"] == commit]
        seeds = ", ".join(f"{sample['seed']} ({len(sample['mutants'])})" for sample in chosen)
        rows = [entry for sample in chosen for entry in sample["mutants"]]
        blocks.append(f"Commit {commit}, seeds {seeds}.\n\n{_table(rows)}")
    return "\n".join(blocks)


def _table(rows: list[Row]) -> str:
    groups: dict[str, list[Row]] = {}
    for entry in rows:
        groups.setdefault(entry["name"].partition("/")[0], []).append(entry)
    for entry in sorted(rows, key=lambda entry: str(entry["kind"])):
        groups.setdefault(entry["kind"], []).append(entry)
    groups["all, as drawn"] = rows
    judged = [entry for entry in rows if not entry["review"]]
    groups["all, as reviewed"] = judged
    head = ["", "drawn", "door", "tests", "door or tests", "by the door alone", "by tests alone"]
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    door, tests = _seen("door"), _seen("tests")
    for name, group in groups.items():
        cells = [
            name,
            str(len(group)),
            str(_share(group, door)),
            str(_share(group, tests)),
            str(_share(group, lambda entry: door(entry) or tests(entry))),
            str(sum(door(entry) and not tests(entry) for entry in group)),
            str(sum(tests(entry) and not door(entry) for entry in group)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    crashes = ", ".join(
        f"{_share([entry for entry in rows if _seen(target)(entry)], _crashed(target))} of those seen by {name}"
        for target, name in (("door", "the door"), ("tests", "the tests"))
    )
    never = sum(entry["door"]["state"] == entry["tests"]["state"] == "never executed" for entry in rows)
    return (
        "\n".join(lines)
        + f"\n\nErrors and not wrong values: {crashes}. Executed by neither: {never}. Reviewed as equivalent: "
        + f"{len(rows) - len(judged)}.\n"
    )


def _share(group: Iterable[Row], caught: Callable[[Row], bool]) -> Share:
    flags = [caught(entry) for entry in group]
    return Share(sum(flags), len(flags))


def _seen(target: str) -> Callable[[Row], bool]:
    return lambda entry: entry[target]["state"] in _CAUGHT


def _crashed(target: str) -> Callable[[Row], bool]:
    return lambda entry: entry[target]["state"] == "crash"


if __name__ == "__main__":
    sys.stdout.write(markdown())
