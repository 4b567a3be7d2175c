"""What a green run is known to see: the record that `triad mutate --record` leaves beside the code, and its readers.

Two files, both made by that command. `power.json` holds the samples: how many mutants of which draw turned the checks
red, by package and area. `executed.npz` holds which functions of the witnesses each check executes, so that a run of a
few checks can say how little it looked at.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from validation import storage
from validation.mutation import cover
from validation.mutation.report import Rates
from validation.mutation.statements import PACKAGES, area_names, population

if TYPE_CHECKING:
    from validation.mutation.baseline import Baseline

SCHEMA = "executed-1"
_SHOWN = 12  # heavy pairs that the documentation names


class Sample(NamedTuple):
    """One draw of mutants and what became of them."""

    n: int
    seed: int
    packages: tuple[str, ...]
    against: str
    full: bool
    code: str  # fingerprint of the code and of what was asked
    commit: str  # "" outside a checkout
    rates: dict[str, Rates]  # by package, by area, and "all"
    seen: Mapping[str, int] = MappingProxyType({})  # mutants by the pair that was first, "CHECK on PROBLEM"


class Price(NamedTuple):
    """What the seconds of a run buy: pairs of check and problem in all, the cover, and heavy pairs outside it."""

    pairs: int
    cover: tuple[cover.Step, ...]
    idle: tuple[cover.Idle, ...]


class Executed(NamedTuple):
    """Which functions each check executes."""

    functions: tuple[str, ...]  # "module:function"
    statements: np.ndarray  # (f,) statements that compute
    executed: np.ndarray  # (f,) of them executed by a quick run
    checks: tuple[str, ...]
    table: np.ndarray  # (checks, f) flags

    def shares(self, checks: Collection[str]) -> dict[str, float]:
        """Share of the statements of each package that these checks execute, at most."""
        known = [k for k, name in enumerate(self.checks) if name in set(checks)]
        hit = self.table[known].any(axis=0)
        results = {}
        for package in PACKAGES:
            own = np.array([name.startswith(f"{package}.") for name in self.functions])
            results[package] = float(self.executed[own & hit].sum() / max(1, self.statements[own].sum()))
        return results

    def unseen(self, most: int) -> list[tuple[str, int]]:
        """Modules with the most statements that no check executes."""
        count: dict[str, int] = {}
        for name, missing in zip(self.functions, self.statements - self.executed, strict=True):
            module = name.partition(":")[0]
            count[module] = count.get(module, 0) + int(missing)
        ranked = sorted(count.items(), key=lambda entry: (-entry[1], entry[0]))
        return [entry for entry in ranked[:most] if entry[1]]


def folder() -> Path:
    """Where the record stands."""
    return Path(str(files("validation.mutation")))


def samples() -> list[Sample]:
    """The recorded samples; none if none was recorded."""
    return [
        Sample(**{**entry, "packages": tuple(entry["packages"]), "rates": _rates(entry["rates"])})
        for entry in _stored().get("samples", [])
    ]


def price() -> Price | None:
    """What the seconds of the recorded run buy, or None if that was not recorded."""
    stored = _stored().get("price")
    if stored is None:
        return None
    return Price(
        stored["pairs"],
        tuple(cover.Step(*entry) for entry in stored["cover"]),
        tuple(cover.Idle(*entry) for entry in stored["idle"]),
    )


def _stored() -> dict[str, Any]:
    path = folder() / "power.json"
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return value


def _rates(stored: Mapping[str, Mapping[str, int]]) -> dict[str, Rates]:
    return {name: Rates(**counts) for name, counts in stored.items()}


@cache
def executed() -> Executed | None:
    """The recorded table, or None if none was recorded."""
    path = folder() / "executed.npz"
    if not path.exists():
        return None
    arrays = storage.load_npz(path, SCHEMA)
    functions, checks = arrays["functions"].tolist(), arrays["checks"].tolist()
    flags = np.unpackbits(arrays["table"], axis=1, count=len(functions)).astype(bool)
    return Executed(tuple(functions), arrays["statements"], arrays["executed"], tuple(checks), flags)


def record(sample: Sample, healthy: Baseline) -> None:
    """Add a sample to the record. Samples of other code say nothing of this one and go, as does the same draw."""
    kept = [
        entry
        for entry in samples()
        if entry.code == sample.code and (entry.seed, entry.packages) != (sample.seed, sample.packages)
    ]
    drawn = sorted([*kept, sample], key=lambda entry: (entry.packages, entry.seed))
    plain = [
        {
            **entry._asdict(),
            "rates": {name: rates._asdict() for name, rates in entry.rates.items()},
            "seen": dict(sorted(entry.seen.items())),
        }
        for entry in drawn
    ]
    visited: dict[str, int] = {}
    for entry in drawn:
        for name, count in entry.seen.items():
            visited[name] = visited.get(name, 0) + count
    bought = {
        "pairs": len(healthy.selection.pairs),
        "cover": [[*step[:2], *_rounded(step[2:])] for step in cover.cover(visited, healthy)],
        "idle": [[*entry[:2], *_rounded(entry[2:])] for entry in cover.idle(visited, healthy)],
    }
    table = measured(healthy)
    arrays = {
        "functions": np.array(table.functions),
        "statements": table.statements,
        "executed": table.executed,
        "checks": np.array(table.checks),
        "table": np.packbits(table.table, axis=1),
    }
    storage.save_npz(folder() / "executed.npz", SCHEMA, arrays)
    storage.write_text(folder() / "power.json", json.dumps({"samples": plain, "price": bought}, indent=1) + "\n")
    executed.cache_clear()


def _rounded(shares: Sequence[float]) -> list[float]:
    return [round(share, 6) for share in shares]


def measured(healthy: Baseline) -> Executed:
    """Who executes what in a healthy run."""
    where: dict[str, int] = {}
    statements: list[int] = []
    ran: list[int] = []
    by_line: dict[str, dict[int, set[int]]] = {}  # a default stands for the whole of its module
    for package in PACKAGES:
        for entry in population(package):
            name = f"{entry.module}:{entry.function}"
            if name not in where:
                where[name] = len(where)
                statements.append(0)
                ran.append(0)
            k = where[name]
            lines = range(entry.watched[0], entry.watched[1] + 1)
            statements[k] += 1
            ran[k] += not healthy.executed(entry.module).isdisjoint(lines)
            for line in lines:
                by_line.setdefault(entry.module, {}).setdefault(line, set()).add(k)
    rows: dict[str, set[int]] = {}
    for problem in healthy.problems.values():
        for pair, own in problem.own.items():
            hit = rows.setdefault(pair.check, set())
            for lines_of in (own, *(problem.solved[key] for key in problem.asked[pair])):
                for module, observed in lines_of.items():
                    known = by_line.get(module, {})
                    hit.update(k for line in observed for k in known.get(line, ()))
    checks = sorted(rows)
    table = np.zeros((len(checks), len(where)), dtype=bool)
    for row, name in zip(table, checks, strict=True):
        row[sorted(rows[name])] = True
    return Executed(tuple(where), np.array(statements), np.array(ran), tuple(checks), table)


def commit() -> str:
    """The commit of the checkout, "" outside one."""
    command = ["git", "-C", str(folder()), "rev-parse", "--short=10", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


# -- in words ----------------------------------------------------------------------------------------------------


def sentence(checks: Collection[str]) -> str:
    """One line under a run's summary: what share of each package these checks execute, and how much a run sees."""
    table, drawn = executed(), samples()
    if table is None:
        return "power: not recorded (triad mutate --record)"
    shares = table.shares(checks)
    text = "judged of the statements that compute: " + ", ".join(
        f"{share:.1%} of {package}" for package, share in shares.items()
    )
    unseen = table.unseen(3)
    # a data set that is not at hand takes a handful of checks with it
    if len(set(checks) & set(table.checks)) >= 0.99 * len(table.checks):
        text += "; not: " + (", ".join(f"{count} in {module}" for module, count in unseen) or "nothing")
        if drawn:
            whole = total(drawn)["all"]
            text += f"; {whole.caught:.1%} of the executed mutants turned it red ({heading(drawn)})"
    return text


def total(drawn: Sequence[Sample]) -> dict[str, Rates]:
    """Counts over all samples, by package, by area and in all."""
    results: dict[str, Rates] = {}
    for name in (*PACKAGES, *area_names(), "all"):
        rows = [sample.rates[name] for sample in drawn if name in sample.rates]
        if rows:
            results[name] = Rates(*(sum(column) for column in zip(*rows, strict=True)))
    return results


def rows(drawn: Sequence[Sample]) -> list[list[str]]:
    """The table of the power: a head, then a line for each package, each area and all."""
    head = ["", "drawn", "never executed", "equivalent", "judged", "caught"]
    body = [
        [name, str(row.drawn), str(row.never), str(row.equivalent), str(row.judged), caught(row)]
        for name, row in total(drawn).items()
    ]
    return [head, *body]


def caught(row: Rates) -> str:
    """Share of the judged that were seen."""
    return f"{row.caught:.1%}" if row.judged else "-"


def heading(drawn: Sequence[Sample]) -> str:
    """Where the table comes from."""
    seeds = ", ".join(str(sample.seed) for sample in drawn)
    commits = ", ".join(dict.fromkeys(sample.commit for sample in drawn if sample.commit)) or "unknown"
    n = " + ".join(str(sample.n) for sample in drawn)
    return f"N = {n} random mutants, seeds {seeds}, commit {commits}"


def markdown() -> str:
    """The record as a table for the documentation."""
    drawn = samples()
    if not drawn:
        return "No sample is recorded: `triad mutate --record` makes one.\n"
    head, *body = rows(drawn)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    note = ""
    if (observed := executed()) is not None:
        shares = ", ".join(f"{share:.1%} of `{name}`" for name, share in observed.shares(observed.checks).items())
        note = f"\n\nA quick run executes {shares}, counted in statements that compute."
    return f"{heading(drawn)}.\n\n{table}{note}\n"


def markdown_of_price() -> str:
    """Power against seconds as Markdown: the cover at some shares, and the heavy pairs that saw nothing first."""
    bought = price()
    if bought is None:
        return "No price is recorded: `triad mutate --record` makes one.\n"
    text = f"{heading(samples())}.\n\n{cover.markdown(bought.cover, bought.pairs)}"
    if bought.idle:
        text += "\nHeavy, and first to see none of these mutants:\n\n"
        text += "| check | problem | of the seconds |\n| --- | --- | ---: |\n"
        text += "".join(f"| `{check}` | {problem} | {share:.1%} |\n" for check, problem, share in bought.idle[:_SHOWN])
        if rest := bought.idle[_SHOWN:]:
            text += f"| {len(rest)} more | | {sum(entry.seconds for entry in rest):.1%} |\n"
    return text


def sample_of(settings: Mapping[str, Any], groups: Mapping[str, Rates], observed: Mapping[str, int]) -> Sample:
    """A sample from what the command was asked and found."""
    chosen = {key: settings[key] for key in ("n", "seed", "packages", "against", "full", "code")}
    return Sample(**chosen, commit=commit(), rates=dict(groups), seen=dict(observed))
