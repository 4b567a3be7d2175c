"""`triad claims list`: what the papers claim, and which of it is reproduced."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from validation.claims import page
from validation.claims.inventory import MATHEMATICS, PARTS, SENTENCES, STATES, Claim, Claims
from validation.claims.results import load
from validation.door.quoting import shown
from validation.ledger.inventory import nearest

_PLACES = ("part", "paper", "cells", "key")  # columns of words; the others of a table of counts are numbers


def claims(
    target: Annotated[
        str | None, typer.Argument(metavar="PAPER[:ID]", help="a paper, or one claim of it; without it all are counted")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", help=f"list the claims in this state: {', '.join(STATES)}")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="write JSON, and nothing else, to stdout")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="write a table of Markdown to stdout")] = False,
) -> None:
    """Count the claims of the papers by part and state, sum up one paper, or show one claim."""
    if as_json and markdown:
        raise typer.BadParameter("--json: found it with --markdown, expected one of them")
    if state is not None and state not in STATES:
        raise ValueError(f"--state: found {shown(state)}, expected {nearest(state, tuple(STATES))}")
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
    whole = target is None and state is None
    if markdown:
        card: list[tuple[str, ...]] = [("key", "value"), *page.card(one)] if one else []
        sys.stdout.write(page.markdown(page.counts(asked) if whole else card or page.listed(chosen)))
        return
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=False)
    if one is not None:
        console.print(_table([("key", "value"), *page.card(one)]))
        _stale(console, [one])
    elif state is not None:
        _lines(console, [line for claim in chosen for line in page.described(claim)])
        _lines(console, [f"{len(chosen)} claims {state}:", f"  {STATES[state]}"])
    else:
        console.print(_table(page.counts(asked)))
        if target is None:
            console.print(_table(page.by_paper(asked)))
        else:
            _paper(console, asked[key])


def _paper(console: Console, claims: Claims) -> None:
    """Cells by table, sentences by state, what all cells of a data set or method have in common, what is stale."""
    if len(rows := page.by_table(claims)) > 1:
        console.print(_table(rows))
    for about in (SENTENCES, MATHEMATICS):
        _lines(console, ["", f"{PARTS[about]}:", *page.by_state(claims, about)])
    if lines := page.pool_lines(claims):
        _lines(console, ["", "cells on one side of print:", *lines])
    _lines(console, [""])
    _stale(console, claims)
    _lines(console, [f"triad claims list {claims.paper}:ID shows one, --state STATE a state"])


def _stale(console: Console, claims: Claims | list[Claim]) -> None:
    """A line on the results that code other than today's has given."""
    from validation.reproduce import catalogue  # imports every experiment

    results = {claim.result.removesuffix(".csv") for claim in claims if claim.result}
    if not results:
        return
    stale = sorted(results & set(catalogue.stale()))
    named = f": {', '.join(stale)}" if len(stale) == 1 else ""
    _lines(console, [f"stale, since the code of fast has changed: {len(stale)} of {len(results)} results{named}"])


def _lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def _table(rows: list[tuple[str, ...]]) -> Table:
    """The rows as a table of 80 columns; nothing is cut, long texts are folded."""
    header, *body = rows
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    card = header[0] == "key"
    for name in header:
        left = card or name in _PLACES
        least = max(map(len, name.split()))  # "not decidable" in two lines
        table.add_column(name, overflow="fold", justify="left" if left else "right", min_width=least,
                         no_wrap=left and name != "value")  # fmt: skip
    for row in body:
        table.add_row(*row)
    return table
