"""The recorded power: what became of each mutant of a sample, at the door, in the tests and in both.

`power.json` is written by `run.py --record`; `python tests/mutation/power.py` prints it as Markdown. Nothing in it is
edited but `review`, which is written after the record, by reading the survivors: null, or whether a user can see the
mutant, and why, {"visible": false, "why": "..."}.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scipy.stats import binomtest

if TYPE_CHECKING:
    from mutants import Mutant
    from suite import Outcome

PATH = Path(__file__).resolve().parent / "power.json"
TARGETS = ("door", "tests")
_CAUGHT = ("wrong value", "crash")

Row = dict[str, Any]


class Share(NamedTuple):
    """Mutants of a group that were caught, of those that count."""

    caught: int
    of: int

    def __str__(self) -> str:
        return f"{self.caught} of {self.of} ({self.caught / self.of:.0%})" if self.of else "-"

    @property
    def interval(self) -> str:
        """Of the share in all statements, 95 %, by Wilson."""
        if not self.of:
            return "-"
        low, high = binomtest(self.caught, self.of).proportion_ci(0.95, method="wilson")
        return f"{low:.0%} to {high:.0%}"


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
        tests = dict.fromkeys(path for sample in chosen for path in sample["tests"] or ["all tests"])
        title = f"Commit {commit}, seeds {seeds}; {', '.join(tests) if 'tests' in _asked(rows) else 'the door only'}."
        blocks.append(f"{title}\n\n{_groups(rows)}\n{_outcomes(rows)}")
    return "\n".join(blocks)


def _groups(rows: list[Row]) -> str:
    """What was caught by package and by kind."""
    groups: dict[str, list[Row]] = {}
    for entry in rows:
        groups.setdefault(entry["name"].partition("/")[0], []).append(entry)
    for entry in sorted(rows, key=lambda entry: str(entry["kind"])):
        groups.setdefault(entry["kind"], []).append(entry)
    groups["all"] = rows
    asked = _asked(rows)
    return _lines(
        ["", "drawn", *asked],
        [[name, len(group), *(_share(group, by) for by in asked.values())] for name, group in groups.items()],
    )


def _outcomes(rows: list[Row]) -> str:
    """Wrong values and crashes apart; shares as drawn, and without mutants that no user can see, say their reviews."""
    judged = [entry for entry in rows if entry["review"] is None or entry["review"]["visible"]]
    lines: list[list[object]] = []
    for name, by in _asked(rows).items():
        if name.endswith("alone"):
            continue
        states = Counter(entry[name]["state"] for entry in rows if name in entry)
        apart = [states[state] if name in TARGETS else "" for state in (*_CAUGHT, "survived", "never executed")]
        drawn, reviewed = _share(rows, by), _share(judged, by)
        lines.append([name, *apart, drawn, drawn.interval, reviewed, reviewed.interval])
    return _lines(
        ["", "wrong value", "crash", "survived", "never executed", "as drawn", "95 %", "as reviewed", "95 %"], lines
    )


def _lines(head: list[str], body: list[list[object]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *([str(cell) for cell in cells] for cells in body)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def _asked(rows: list[Row]) -> dict[str, Callable[[Row], bool]]:
    """What can have caught a mutant of these rows: the targets that all of them were held against, and any of these."""
    targets = [target for target in TARGETS if all(target in entry for entry in rows)]
    result = {target: _seen(target) for target in targets}
    if len(targets) > 1:
        result["either"] = lambda entry: any(_seen(target)(entry) for target in targets)
        for target in targets:
            others = [_seen(other) for other in targets if other != target]
            result[f"{target} alone"] = _alone(_seen(target), others)
    return result


def _alone(this: Callable[[Row], bool], others: list[Callable[[Row], bool]]) -> Callable[[Row], bool]:
    return lambda entry: this(entry) and not any(other(entry) for other in others)


def _share(group: Iterable[Row], caught: Callable[[Row], bool]) -> Share:
    flags = [caught(entry) for entry in group]
    return Share(sum(flags), len(flags))


def _seen(target: str) -> Callable[[Row], bool]:
    return lambda entry: entry[target]["state"] in _CAUGHT


if __name__ == "__main__":
    sys.stdout.write(markdown())
