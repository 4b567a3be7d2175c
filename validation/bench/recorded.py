"""What was measured, kept: one JSON file, bench by bench, each with its machine, versions, commit and day.

A bench may have `withdrawn`: which of its numbers were taken out since they were not so, and why. It is shown with the
bench, and goes when the bench is measured again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from validation.bench.measure import MET, Row
from validation.door import storage
from validation.door.quoting import shown as quoted

SCHEMA = "gpc-triad/bench/1"
STORED = Path(str(resources.files("validation.bench"))) / "stored" / "speed.json"


def add(path: Path, name: str, rows: Iterable[Row], machine: Mapping[str, str]) -> None:
    """Put one bench into a file, in place of what it holds of it; other benches stay.

    Parameters
    ----------
    path           .json, made if it is not there
    name           of the bench
    rows           its lines
    machine        what they were measured on and with
    """
    from validation.jobs.place import commit

    benches = read(path) if path.exists() else {}
    benches[name] = {
        "machine": dict(machine),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        # JSON has no NaN
        "rows": [row._asdict() | {"value": row.value if math.isfinite(row.value) else None} for row in rows],
    }
    text = json.dumps({"schema": SCHEMA, "benches": benches}, indent=1, ensure_ascii=False) + "\n"
    storage.write_atomically(path, lambda file: file.write(text.encode()))


def read(path: Path) -> dict[str, Any]:
    """Benches of a file by name; ValueError where it is none of `add`'s."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: found no JSON ({error}), expected measurements by --record") from None
    if not isinstance(held, dict) or held.get("schema") != SCHEMA:
        schema = held.get("schema") if isinstance(held, dict) else held
        raise ValueError(f"{path}: found schema {quoted(schema)}, expected {SCHEMA!r}")
    benches: dict[str, Any] = held["benches"]
    return benches


def shown(path: Path, only: Sequence[str], *, markdown: bool, as_json: bool) -> str:
    """Text of a file's benches: lines, a table of Markdown, or JSON.

    Parameters
    ----------
    path        of `add`
    only        names of benches; empty: all
    markdown    a table
    as_json     the file itself, of those benches
    """
    benches = read(path)
    for name in only:
        if name not in benches:
            raise ValueError(f"--only: found {quoted(name)}, expected one of {', '.join(benches)}, which are stored")
    chosen = {name: benches[name] for name in only or benches}
    if as_json:
        return json.dumps(chosen, indent=1) + "\n"
    lines: list[str] = []
    for name, held in chosen.items():
        made = f"{name}: {held['date']}, commit {held['commit']}, {'; '.join(held['machine'].values())}"
        lines += ["", made, ""]
        if reason := held.get("withdrawn"):
            lines += [f"Withdrawn until measured again: {reason}.", *([""] if held["rows"] else [])]
        if markdown and held["rows"]:
            lines += ["| quantity | value | asked | met |", "| --- | ---: | ---: | --- |"]
        lines += [_line(row, markdown) for row in held["rows"]]
    return "\n".join(lines[1:]) + "\n"


def _line(row: Mapping[str, Any], markdown: bool) -> str:
    value = "-" if row["value"] is None else f"{row['value']:.3g} {row['unit']}".strip()
    met = MET[row["met"]]
    if markdown:
        quantity = str(row["quantity"]).replace("|", r"\|")
        return f"| {quantity} | {value} | {row['target']} | {met} |"
    asked = f" (asked {row['target']}: {met})" if row["target"] else ""
    return f"  {row['quantity']}: {value}{asked}"
