"""Plant every mistake of bugs.toml into its program and ask the judge: flagged, and whom it suspects first.

    PYTHONPATH=tests python -m judge_bugs.measure
    PYTHONPATH=tests python -m judge_bugs.measure --only ep --only svgp --save a.json
    PYTHONPATH=tests python -m judge_bugs.measure --join a.json b.json

The first writes docs/judge-bugs.md, as does the last of what others saved. `make judge-bugs` runs it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from validation.judge.judging import judge

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "judge-bugs.md"

#: program -> the method of `fast` that it is
PROGRAMS = {
    "laplace": "laplace-binary",
    "ep": "epgpc",
    "polya_gamma": "x-gpc",
    "svgp": "svgpc",
    "softmax": "laplace",
}


class Bug(NamedTuple):
    """One mistake: old text for new text in the source of a program.

    suspects    names that count as right; empty where the mistake is of no kind that the list of suspects has
    """

    program: str
    name: str
    old: str
    new: str
    suspects: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What the judge said: the verdict, the first suspect ("" for none), and its sentence."""

    bug: Bug
    verdict: str
    first: str
    text: str

    @property
    def kind(self) -> str:
        """right, wrong or none, of the first suspect; missed where nothing was flagged."""
        if self.verdict == "AGREE":
            return "missed"
        if not self.first:
            return "none"
        return "right" if self.first in self.bug.suspects else "wrong"


BUGS = tuple(
    Bug(**{**row, "suspects": tuple(row.get("suspects", ()))})
    for row in tomllib.loads((HERE / "bugs.toml").read_text(encoding="utf-8"))["bugs"]
)


def planted(bug: Bug) -> Any:
    """The program with the mistake; ValueError where the old text does not stand there exactly once."""
    source = (HERE / "programs" / f"{bug.program}.py").read_text(encoding="utf-8")
    if (count := source.count(bug.old)) != 1:
        raise ValueError(f"{bug.program}: {bug.name}: found the old text {count} times, expected once")
    module = ModuleType(f"planted_{bug.program}")
    exec(compile(source.replace(bug.old, bug.new), f"{bug.program}.py", "exec"), module.__dict__)
    return module.answer


def measured(bug: Bug) -> Outcome:
    """The verdict on one mistake, on the problems that the judge chooses."""
    verdict = judge(planted(bug), PROGRAMS[bug.program], power=False)
    first = verdict.suspicions[0] if verdict.suspicions else None
    return Outcome(bug, verdict.verdict, first.name if first else "", first.text if first else "")


def page(outcomes: list[Outcome]) -> str:
    """The table in words."""
    lines = [
        "# Planted mistakes",
        "",
        "Five programs were written from papers: Laplace and EP for two classes, Pólya-Gamma coordinate ascent,",
        "a sparse variational approximation, and Laplace for the softmax. All five agree. One mistake at a time was",
        "planted into them, and `triad judge` asked each its default questions. *Listed* mistakes are of a kind that",
        "the list of suspects has; for the others no suspect is right, and the best answer is none. The authors of the",
        "suspects wrote the mistakes too. `make judge-bugs` makes this page; no suspect was changed after it.",
        "",
        "| mistakes | planted | flagged | right suspect first | wrong suspect first | none |",
        "|---|---|---|---|---|---|",
    ]
    for word, some in (
        ("listed", [o for o in outcomes if o.bug.suspects]),
        ("not listed", [o for o in outcomes if not o.bug.suspects]),
    ):
        counts = [sum(o.kind == kind for o in some) for kind in ("right", "wrong", "none")]
        flagged = sum(o.kind != "missed" for o in some)
        lines.append(f"| {word} | {len(some)} | {flagged} | {' | '.join(map(str, counts))} |")
    lines += ["", "| program | mistake | listed | verdict | first suspect | |", "|---|---|---|---|---|---|"]
    for o in outcomes:
        listed = "yes" if o.bug.suspects else "no"
        lines.append(f"| {o.bug.program} | {o.bug.name} | {listed} | {o.verdict} | {o.text or '-'} | {o.kind} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, or join what was measured; write the page where every mistake is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PROGRAMS, action="append", help="one program; repeatable")
    parser.add_argument("--save", type=Path, help="write the outcomes as JSON")
    parser.add_argument("--join", type=Path, nargs="+", help="files of --save, in place of measuring")
    given = parser.parse_args()
    told: dict[str, list[str]] = {}
    for path in given.join or ():
        told |= json.loads(path.read_text(encoding="utf-8"))
    for bug in () if given.join else BUGS:
        if not given.only or bug.program in given.only:
            told[f"{bug.program}: {bug.name}"] = value = list(measured(bug)[1:])
            sys.stdout.write(f"{bug.program}: {bug.name}: {' | '.join(value)}\n")
            sys.stdout.flush()
            if given.save:
                given.save.write_text(json.dumps(told, indent=1), encoding="utf-8")
    if all(f"{bug.program}: {bug.name}" in told for bug in BUGS):
        PAGE.write_text(page([Outcome(bug, *told[f"{bug.program}: {bug.name}"]) for bug in BUGS]), encoding="utf-8")


if __name__ == "__main__":
    main()
