"""The table of fits: as a CSV with a card, on a terminal of 80 columns, and as Markdown."""

from __future__ import annotations

import hashlib
import io
import json
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from rich.console import Console
from rich.table import Table

from validation.bench.quality import programs, rules
from validation.bench.quality.fit import Fit
from validation.bench.quality.rules import Verdict
from validation.door import storage

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "gpc-triad/quality/1"
_NAME = "quality"
_HEADS = ("program", "sets", "NLL", "rank", "rank 2", "error", "ECE", "s", "max s", "cut", "fail", "open", "warn")
LEGEND = (
    "NLL, error, ECE, s: medians over sets of means over folds; s: processor time of a fit. rank: mean rank of NLL "
    "among programs for any number of classes; rank 2: among all, on sets of two classes. cut: fits ended at their "
    "budget; fail: errors; open: fits that say they did not converge; warn: fits with a warning."
)


def frame(fits: Iterable[Fit]) -> pd.DataFrame:
    """Fits as a data frame, ordered by program, set and fold as they first come."""
    import pandas as pd

    rows = pd.DataFrame([fit._asdict() for fit in fits], columns=list(Fit._fields))
    for column, order in (("program", programs.names()), ("dataset", dict.fromkeys(rows["dataset"]))):
        rows[column] = pd.Categorical(rows[column], [*order, *(set(rows[column]) - set(order))])
    rows = rows.sort_values(["program", "dataset", "fold"], kind="stable", ignore_index=True)
    return rows.astype({"program": str, "dataset": str})


def write(rows: pd.DataFrame, card: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """The CSV and beside it the card, which holds its digest; both are whole or neither is there."""
    content = rows.to_csv(index=False, float_format="%.6g", lineterminator="\n").encode()
    lines = ["# Made by `triad bench --only quality`, not by hand.", f"schema = {json.dumps(SCHEMA)}"]
    lines.append(f"sha256 = {json.dumps(hashlib.sha256(content).hexdigest())}")
    lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in card.items() if name != "versions"]
    lines += ["", "[versions]", *(f"{json.dumps(name)} = {json.dumps(v)}" for name, v in card["versions"].items())]
    csv, toml = folder / f"{_NAME}.csv", folder / f"{_NAME}.toml"
    folder.mkdir(parents=True, exist_ok=True)
    storage.write_together({csv: content, toml: ("\n".join(lines) + "\n").encode()})
    return csv, toml


def read(folder: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """What `write` wrote.

    Raises
    ------
    FileNotFoundError     where there is none
    FileFormatError       for a pair of files that do not belong together
    """
    import pandas as pd

    csv, toml = folder / f"{_NAME}.csv", folder / f"{_NAME}.toml"
    for path in (csv, toml):
        if not path.is_file():
            raise FileNotFoundError(f"{path}: found no file, expected one that `triad bench --only quality` wrote")
    card = tomllib.loads(toml.read_text(encoding="utf-8"))
    content = csv.read_bytes().replace(b"\r\n", b"\n")
    if card.pop("schema", None) != SCHEMA or card.pop("sha256", None) != hashlib.sha256(content).hexdigest():
        raise storage.FileFormatError(f"{csv}: found another content than that of {toml.name}, expected the pair")
    kinds: dict[str, Any] = {name: float for name, kind in get_type_hints(Fit).items() if kind is float}
    rows = pd.read_csv(
        io.BytesIO(content), keep_default_na=False, na_values=[""], dtype=kinds | {"converged": "object"}
    )
    if tuple(rows.columns) != Fit._fields:
        raise storage.FileFormatError(f"{csv}: found the columns {list(rows.columns)}, expected {list(Fit._fields)}")
    rows["converged"] = [{"True": True, "False": False}.get(str(value)) for value in rows["converged"]]
    for name in ("stopped", "message"):
        rows[name] = rows[name].astype(object).fillna("").astype(str)
    return rows, card


def stored() -> Path:
    """The folder of the table that ships with the package."""
    return Path(str(resources.files("validation.bench.quality").joinpath("stored")))


# -- for people ----------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3) -> str:
    """A number so short that a table of them has 80 columns; a dash where there is none."""
    if isnan(value):
        return "-"
    if not isfinite(value):
        return "inf"
    return f"{value:.{digits}f}"


def seconds(value: float) -> str:
    """Seconds with two digits."""
    return "-" if isnan(value) else f"{value:.2f}"[:4].rstrip(".") if value < 1000.0 else f"{value:.0f}"


def cells(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """The summary as text, the best mean rank over all sets first, then programs for two classes only."""
    lines = rules.summaries(rows)
    lines.sort(key=lambda one: (isnan(one.rank), one.rank if not isnan(one.rank) else one.rank_two))
    return [
        (one.program, str(one.sets), number(one.nll), number(one.rank, 1), number(one.rank_two, 1), number(one.error),
         number(one.ece), seconds(one.seconds), seconds(one.slowest), *(str(count) for count in one[9:]))
        for one in lines
    ]  # fmt: skip


def verdict_text(verdict: Verdict) -> str:
    """One rule on one line."""
    word = "not judged" if verdict.met is None else "met" if verdict.met else "not met"
    text = f"{word}: {verdict.rule}"
    if verdict.number:
        text += f" ({verdict.number})"
    return f"{text}. Misses: {', '.join(verdict.misses)}" if verdict.misses else text


def told(card: dict[str, Any]) -> str:
    """The card in a sentence or two."""
    versions = ", ".join(f"{name} {value}" for name, value in card["versions"].items())
    text = (
        f"{card['fits']} fits: {card['n_run']} of {card['folds']} folds, at most {card['rows']} training and "
        f"{card['test_rows']} test rows, budget {card['budget']:g} s of processor time a fit on one thread, seed "
        f"{card['seed']}, commit {card['commit'] or 'unknown'}, {card['date']}; {versions}."
    )
    for key, what in (("not_installed", "Not installed"), ("not_found", "Sets not found")):
        if card[key]:
            text += f" {what}: {', '.join(card[key])}."
    return text


def show(console: Console, rows: pd.DataFrame, card: dict[str, Any]) -> None:
    """Print summary, rules and card."""
    table = Table(*_HEADS, box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for column in table.columns:
        column.no_wrap = True
    for row in cells(rows):
        table.add_row(*row)
    console.print(table)
    console.print(f"\n{LEGEND}\n")
    for verdict in rules.verdicts(rows):
        console.print(verdict_text(verdict))
    console.print(f"\n{told(card)}")


def as_json(rows: pd.DataFrame, card: dict[str, Any]) -> str:
    """Card, rules and rows as JSON, which knows neither infinity nor NaN: null stands for them."""
    verdicts = [verdict._asdict() for verdict in rules.verdicts(rows)]
    lines = json.loads(rows.to_json(orient="records"))
    return json.dumps({"card": card, "rules": verdicts, "fits": lines}, indent=2) + "\n"


def markdown(rows: pd.DataFrame, card: dict[str, Any]) -> str:
    """The same as Markdown, and the NLL of every program on every set."""
    parts = [told(card), _markdown_table(_HEADS, cells(rows)), LEGEND]
    parts.append("\n".join(f"- {verdict_text(verdict)}" for verdict in rules.verdicts(rows)))
    nll = rules.means(rows, "nll")
    sizes = rows.groupby("dataset", sort=False)[["n_classes", "d", "n"]].max()
    for few, title in ((True, "two classes"), (False, "more classes")):
        chosen = [name for name in nll.index if (sizes.loc[name, "n_classes"] == 2) == few]
        if not chosen:
            continue
        part = nll.loc[chosen]
        part = part.loc[:, part.notna().any()]
        best = part.min(axis=1)
        lines = [
            (program, *(_bold(number(value), value == low) for value, low in zip(part[program], best, strict=True)))
            for program in part.columns
        ]
        heads = [f"{name}, {sizes.loc[name, 'n']} x {sizes.loc[name, 'd']}" for name in chosen]
        if not few:
            heads = [f"{head}, C = {sizes.loc[name, 'n_classes']}" for head, name in zip(heads, chosen, strict=True)]
        parts.append(
            f"Sets of {title}, training rows x inputs, best in bold:\n\n{_markdown_table(('NLL', *heads), lines)}"
        )
    return "\n\n".join(parts) + "\n"


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = "|".join("---" if k == 0 else "---:" for k in range(len(heads)))
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)])
