"""An experiment as files: one HTML page that loads nothing, and a CSV for each of its tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd

from validation.door import storage
from validation.door.solve import versions
from validation.reproduce.experiment import Experiment, Outcome, Table

_TEMPLATES = (Path(__file__).parent, Path(__file__).parents[1] / "report")


def write(wanted: Experiment, outcome: Outcome, folder: Path, *, now: datetime | None = None) -> list[Path]:
    """Write PAPER-NAME.html and PAPER-NAME[-TABLE].csv into the folder, each atomically; returns their paths."""
    stem = f"{wanted.paper}-{wanted.name}"
    page = folder / f"{stem}.html"
    text = render(wanted, outcome, now=now)
    storage.write_atomically(page, lambda stream: stream.write(text.encode()))
    written = [page]
    for table in outcome.tables:
        name = stem if len(outcome.tables) == 1 else f"{stem}-{table.name}"
        content = frame(table).to_csv(index=False).encode()
        target = folder / f"{name}.csv"
        storage.write_atomically(target, lambda stream, content=content: stream.write(content))  # type: ignore[misc]
        written.append(target)
    return written


def frame(table: Table) -> pd.DataFrame:
    """The table with its columns by name."""
    return pd.DataFrame(list(table.rows), columns=list(table.columns))


def render(wanted: Experiment, outcome: Outcome, *, now: datetime | None = None) -> str:
    """The page; `now` is when the experiment ended, by default this moment."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = cell
    environment.filters["numeric"] = is_number
    return environment.get_template("experiment.html.j2").render(
        experiment=wanted,
        outcome=outcome,
        versions=versions(),
        date=(now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def is_number(value: object) -> bool:
    """Whether a cell is aligned as a number."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def cell(value: object) -> str:
    """A cell as text: four digits, a dash for what is not there."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "–"
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    return str(value)
