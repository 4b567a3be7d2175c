"""`triad bench --only league`: how far other libraries are from the truth, program by program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from validation.door import storage
from validation.peers import league as table
from validation.screen.forecast import Steps
from validation.screen.terminal import Grid, print_grid, say

_LEGEND = (
    "Medians over problems: bias in posterior standard deviations, ratio of variances, error of log Z or of its bound, "
    "excess negative log-likelihood; from fast: the largest relative difference from the same method."
)


def league(
    library: Annotated[
        list[str] | None, typer.Option("--library", help="only this one; repeatable; by default all")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="ask those that are installed now, in place of what is recorded")
    ] = False,
    furthest: Annotated[
        bool, typer.Option("--furthest", help="the ten largest distances from the same method of fast")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="write every row as JSON to stdout")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="write a table of Markdown to stdout")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="with --measure: the table that is written"),
    ] = None,
) -> None:
    """Show how far other libraries are from the truth, or measure those that are installed.

    What is shown was recorded with the versions named. --measure asks every program on each built-in problem with a
    truth that it can pose, some minutes for all libraries, and writes the rows to --output.
    """
    if as_json and markdown:
        raise typer.BadParameter("--json: found it with --markdown, expected one of them")
    if measure and output is None:
        raise typer.BadParameter("--measure: found no --output, expected a .csv file for the rows")
    if output is not None and not measure:
        raise typer.BadParameter("--output: found it without --measure, expected both")
    names = table.libraries(library or ())
    if measure:
        assert output is not None
        storage.check_writable(output)
        errors = Console(stderr=True, markup=False, highlight=False)
        steps = Steps(names)

        def listen(what: str) -> None:
            say(errors, f"asking {what} ({steps.begin()})")
            sys.stderr.flush()

        rows = table.measure(names, listen, output)
    else:
        rows = table.recorded()
    rows = tuple(row for row in rows if row.library in names)
    if as_json:
        sys.stdout.write(json.dumps(table.as_json(rows), indent=2, allow_nan=False) + "\n")
        return
    header, records = (table.FURTHEST, table.furthest(rows)) if furthest else (table.HEADER, table.summary(rows))
    if markdown:
        sys.stdout.write(table.markdown(header, records))
        return
    console = Console(markup=False, emoji=False, highlight=False)
    if not records:
        say(console, "no rows: none of the libraries was measured")
        return
    right = (3,) if furthest else tuple(range(3, 11))
    print_grid(console, Grid(header, len(header) - 1, right), records)
    if not furthest:
        say(console, _LEGEND)
        for program, problem, why in table.failures(rows):
            say(console, f"{program} on {problem} fails: {why}", indent=2)
