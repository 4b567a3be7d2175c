"""`triad bench --only quality`: make the table, or show one that was made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from validation.bench.quality import run, table
from validation.bench.quality.fit import Fit
from validation.bench.quality.run import Asked
from validation.jobs.job import ClusterError
from validation.jobs.run import engine

OUTPUT = Path("results/quality")
INTERRUPTED = 130


@dataclass(frozen=True)
class Where:
    """Where a table is made and put, or read.

    output      folder of the CSV, its card and the fits so far
    cluster     address of a Dask cluster; None: processes of this machine
    jobs        processes at once
    """

    output: Path = OUTPUT
    cluster: str | None = None
    jobs: int | None = None


def made(asked: Asked, where: Where, *, markdown: bool, as_json: bool) -> None:
    """Make the table; on Ctrl-C show what there is.

    Raises
    ------
    typer.BadParameter    for names that are unknown
    typer.Exit            with 130 after Ctrl-C
    """
    errors = Console(stderr=True, markup=False, emoji=False, highlight=False)
    try:
        what = run.plan(asked)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    for name in what.not_installed:
        errors.print(f"{name}: not installed, left out")
    for name in what.not_found:
        errors.print(f"{name}: this set is not at hand, left out (set TRIAD_DATA, see `triad list data`)")
    fits: list[Fit] = []
    count = len(what.jobs)

    def say(line: Fit, known: bool) -> None:
        number = f"{len(fits) + 1}/{count}"
        result = f"NLL {line.nll:.3f}" if line.outcome == "fitted" else line.outcome
        before = ", known" if known else ""
        errors.print(
            f"{number:>9}  {line.dataset} {line.fold} {line.program}: {result}, {line.seconds:.1f} s{before}",
            soft_wrap=True,
        )

    interrupted = False
    with _told(errors), engine(where.cluster, jobs=where.jobs) as who:
        try:
            for line in run.fits(what.jobs, who, where.output, say):
                fits.append(line)  # noqa: PERF402 - an interrupt keeps those before
        except KeyboardInterrupt:
            interrupted = True
    if fits:
        rows = table.frame(fits)
        card = run.card(asked, what, len(fits))
        if not interrupted:
            for path in table.write(rows, card, where.output):
                errors.print(str(path), soft_wrap=True)
        shown(rows, card, markdown=markdown, as_json=as_json)
    if interrupted:
        errors.print(f"interrupted after {len(fits)} of {count} fits; the same command goes on from there")
        raise typer.Exit(INTERRUPTED)


def read(folder: Path, *, markdown: bool, as_json: bool) -> None:
    """Show a table that was made."""
    try:
        rows, card = table.read(folder)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    shown(rows, card, markdown=markdown, as_json=as_json)


def shown(rows: Any, card: dict[str, Any], *, markdown: bool, as_json: bool) -> None:
    """On the terminal, as Markdown or as JSON."""
    if as_json:
        sys.stdout.write(table.as_json(rows, card))
    elif markdown:
        sys.stdout.write(table.markdown(rows, card))
    else:
        table.show(Console(markup=False, emoji=False, highlight=False), rows, card)


@contextmanager
def _told(errors: Console) -> Iterator[None]:
    """What a cluster has against the work, in a line."""
    try:
        yield
    except ClusterError as error:
        errors.print(f"error: {error}", soft_wrap=True)
        raise typer.Exit(2) from error
