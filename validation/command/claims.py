"""`triad claims`: what the papers claim, and which of it is reproduced."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from validation.claims import page
from validation.claims.inventory import STATES, Claim, Claims
from validation.claims.results import load
from validation.door.quoting import shown
from validation.ledger.inventory import nearest

_WHOLE = ("paper", "claims", "state", "printed", "ours", "z")  # columns that are never folded
_RIGHT = ("claims", *STATES)


def claims(
    target: Annotated[
        str | None, typer.Argument(metavar="PAPER[:ID]", help="a paper, or one claim of it; without it all are counted")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", help=f"only claims in this state: {', '.join(STATES)}")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="write JSON, and nothing else, to stdout")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="write a table of Markdown to stdout")] = False,
) -> None:
    """Count the claims of the papers by state, list those of one paper, or show one of them."""
    if as_json and markdown:
        raise typer.BadParameter("--json: found it with --markdown, expected one of them")
    if state is not None and state not in STATES:
        raise ValueError(f"--state: found {shown(state)}, expected {nearest(state, STATES)}")
    papers = load()
    key, colon, id = (target or "").partition(":")
    if target is not None and key not in papers:
        raise LookupError(f"paper: found {shown(key)}, expected {nearest(key, papers)}")
    asked = papers if target is None else {key: papers[key]}
    one = papers[key].claim(id) if colon else None
    chosen = [one] if one else [c for group in asked.values() for c in group if state in (None, c.state)]
    if as_json:
        sys.stdout.write(json.dumps(page.as_json(asked, chosen), indent=2, allow_nan=False) + "\n")
        return
    rows = _rows(asked, chosen, one, whole=target is None and state is None)
    if markdown:
        sys.stdout.write(page.markdown(rows))
        return
    console = Console(markup=False, emoji=False, highlight=False)
    for table in _tables(asked, rows, counted=one is None and (target is not None or state is not None)):
        console.print(table)


def _rows(papers: dict[str, Claims], chosen: list[Claim], one: Claim | None, *, whole: bool) -> list[tuple[str, ...]]:
    if one is not None:
        return [("key", "value"), *page.card(one)]
    return page.counts(papers) if whole else page.listed(chosen)


def _tables(papers: dict[str, Claims], rows: list[tuple[str, ...]], *, counted: bool) -> list[Table]:
    """The rows as a table, after that of the counts if `counted`; nothing is cut, long texts are folded."""
    tables = []
    for header, *body in ([page.counts(papers)] if counted else []) + [rows]:
        table = Table(box=None)
        for name in header:
            table.add_column(
                name, overflow="fold", no_wrap=name in _WHOLE, justify="right" if name in _RIGHT else "left"
            )
        for row in body:
            table.add_row(*row)
        tables.append(table)
    return tables
