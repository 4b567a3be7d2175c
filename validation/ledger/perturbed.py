"""What the perturbation of each entry did, and how near its tests came to their tolerances: a record of a run.

`perturbed.json` is written by `make audit` and read by the cards, so that they need no run. An entry was
measured with the code of the files that hold its functions and its tests; with other code the card says so.

    "PAPER:ID"    "commit"      of the checkout
                  "code"        fingerprint of these files
                  "functions"   address -> [times that a test noticed, pairs that were tried, size, how]
                  "tests"       id -> [passed, failed or skipped, share]: the largest difference over what was
                                allowed; null where the test compares otherwise
                  "proof"       [as printed, corrected] in one case, from a test that tells them apart
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent / "perturbed.json"
SCHEMA = 1


class Tried(NamedTuple):
    """One function of an entry: how often a test noticed, of how many pairs, by what size, and how it was noticed."""

    noticed: int
    pairs: int
    size: float
    how: str


class Ran(NamedTuple):
    """One test of an entry: its result, and how near it came to its tolerance."""

    result: str
    share: float | None

    @property
    def words(self) -> str:
        """The number that it last gave, as a share of what is allowed."""
        if self.share is None:
            return self.result
        return f"{self.result}, largest difference {self.share:.2g} of what is allowed"


class Outcome(NamedTuple):
    """What is known of one entry."""

    commit: str
    code: str
    functions: Mapping[str, Tried]
    tests: Mapping[str, Ran]
    proof: tuple[float, float] | None = None

    def stale(self, files: Iterable[Path]) -> bool:
        """Whether it was measured with other code than that of these files."""
        return self.code != fingerprint(files)


Record = Mapping[tuple[str, str], Outcome]


def load(file: Path = FILE) -> Record:
    """The record; an empty one if nothing was measured, or what was cannot be read."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if held["schema"] != SCHEMA:
            return {}
        return {_equation(name): _outcome(row) for name, row in held["entries"].items()}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def text(record: Record) -> str:
    """The record as the file holds it: a line for each entry."""
    lines = [f"  {json.dumps(':'.join(key))}: {json.dumps(_plain(row))}" for key, row in sorted(record.items())]
    return f'{{\n "schema": {SCHEMA},\n "entries": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def fingerprint(files: Iterable[Path]) -> str:
    """Of the code of some files, without docstrings and comments."""
    result = hashlib.sha256()
    for file in sorted(set(files)):
        result.update(f"{file.name} {_sum(file)}\n".encode())
    return result.hexdigest()[:12]


@functools.cache
def _sum(file: Path) -> str:
    try:
        return hashlib.sha256(code_of(file.read_text(encoding="utf-8")).encode()).hexdigest()
    except (OSError, SyntaxError):
        return "unreadable"


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


def _equation(name: str) -> tuple[str, str]:
    paper, _, id = name.partition(":")
    return paper, id


def _outcome(row: Mapping[str, Any]) -> Outcome:
    functions = {name: Tried(*value) for name, value in row["functions"].items()}
    tests = {name: Ran(*value) for name, value in row["tests"].items()}
    proof = row.get("proof")
    return Outcome(row["commit"], row["code"], functions, tests, None if proof is None else (proof[0], proof[1]))


def _plain(row: Outcome) -> dict[str, Any]:
    tests = {name: [ran.result, _rounded(ran.share)] for name, ran in row.tests.items()}
    held = {**row._asdict(), "functions": dict(row.functions), "tests": tests}
    if row.proof is None:
        del held["proof"]
    return held


def _rounded(value: float | None) -> float | None:
    """Two digits, which tell how near it was."""
    return None if value is None else float(f"{value:.2g}")
