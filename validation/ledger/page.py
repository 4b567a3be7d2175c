"""The ledger as a page of Markdown: the same text for the same code, so that a committed copy can be checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from validation.ledger.audit import STATES, Ledger, Row, counts, execution, per_package, reasons, routes
from validation.ledger.executed import ALGORITHM

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|$#~])")


def escape(text: str) -> str:
    """Plain text for a cell of a table: no character of it means anything to Markdown or to MyST's maths."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _tests(row: Row) -> str:
    """The cell of tests and routes: package, name and route of each."""
    cells = []
    for test in row.tests:
        text = "; ".join(escape(route) for route in routes(test, row.entry.equation))
        where = f"{escape(test.package)}: " if test.package else ""
        cells.append(f"{where}`{test.name}` ({text})")
    return "<br>".join(cells)


def _line(row: Row) -> str:
    """One line of a paper's table."""
    entry = row.entry
    functions = [f"`{item.address}`" for item in row.functions]
    functions += [f"`{item.address}` (as printed)" for item in row.printed]
    cells = [
        escape(entry.id),
        escape(entry.section),
        escape(entry.title),
        entry.kind,
        row.state,
        escape(row.words),
        "<br>".join(functions),
        _tests(row),
        # A bare "no function, no test" on each of some hundred lines would say what the state has said.
        "" if row.missing == ("no function", "no test") else escape(row.note),
    ]
    return "| " + " | ".join(cells) + " |"


def _executed(rows: Sequence[Row], papers: Sequence[str]) -> list[str]:
    """The table of who executes the entries, if that was measured."""
    if all(row.executed is None for row in rows):
        return []
    lines = [
        "",
        "*Executed by* says who calls the functions of `reference` that realise an entry (its only ones, where it has",
        "none there) in a quick run of `triad verify`: `solve` with the methods named, its checks alone, or nobody but",
        "the tests. The second number of each pair counts the entries of the kinds",
        f"{', '.join(ALGORITHM[:-1])} and {ALGORITHM[-1]} alone.",
        "",
        "| paper | entries with a function | solve | checks of verify alone | tests alone |",
        "|---|" + "---:|" * 4,
    ]
    for key in [*papers, "all"]:
        table = execution([row for row in rows if key in ("all", row.entry.paper)])
        cells = [f"{table['all'][name]} / {table['algorithm'][name]}" for name in table["all"]]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return lines


def misprints(rows: Sequence[Row], named: Callable[[Row], str]) -> list[str]:
    """The misprints and slips as lines of a table: what each is, why it is one, by which number.

    rows     of the ledger
    named    Markdown of an entry's number
    """
    lines = ["| paper | equation | what it is | because | number | decided by |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.misprint:
            entry = row.entry
            told = [escape(text) for text in (entry.title, entry.because, entry.number)]
            decides = "<br>".join(f"`{address}`" for address in entry.decides)
            lines.append("| " + " | ".join([entry.paper, named(row), *told, decides]) + " |")
    return lines


def overview(ledger: Ledger, rows: Sequence[Row]) -> list[str]:
    """Lines of Markdown: what the states mean, counts by paper and state, who executes entries, counts by package."""
    papers = list(dict.fromkeys(row.entry.paper for row in rows))
    lines = [
        "Every equation of the papers, the functions that realise it, the tests that could refute it and by which",
        "route. An entry is *verified* (a function and a test), *corrected* (the printed formula, or what the paper",
        "says of it, is wrong; it is kept as code beside the right one, and a test tells them apart), *not executable*",
        "(prose, figures, tables that would only be typed again), a *slip* of the paper (a letter, a word or a sign",
        "that leaves no number in doubt; in words) or *open*.",
        "",
        "*Reasons* counts the misprints and slips that say why the print is wrong, and by which independent number.",
        "",
        "| paper | entries | " + " | ".join(STATES) + " | reasons | complete |",
        "|---|" + "---:|" * (len(STATES) + 2) + "---|",
    ]
    for key in papers:
        own = [row for row in rows if row.entry.paper == key]
        states = " | ".join(str(number) for number in counts(own).values())
        complete = "yes" if ledger.inventory.papers[key].complete else "no"
        given, wanted = reasons(own)
        lines.append(f"| {key} | {len(own)} | {states} | {given} / {wanted} | {complete} |")
    lines += _executed(rows, papers)
    lines += ["", "| package | entries realised | functions | tests |", "|---|---:|---:|---:|"]
    for package, numbers in per_package(rows, ledger.packages).items():
        lines.append(f"| {package} | {numbers['entries']} | {numbers['functions']} | {numbers['tests']} |")
    return lines


def markdown(ledger: Ledger, rows: Sequence[Row]) -> str:
    """The page: a table of counts, then for each paper its entries with state, functions, tests and routes."""
    lines = [
        "<!-- Made by `make ledger`; not edited by hand. -->",
        "",
        "# The ledger",
        "",
        *overview(ledger, rows),
        "",
        "## Misprints and slips",
        "",
        *misprints(rows, lambda row: escape(row.entry.id)),
    ]
    for key in dict.fromkeys(row.entry.paper for row in rows):
        paper = ledger.inventory.papers[key]
        lines += [
            "",
            f"## {key}",
            "",
            f"{escape(paper.authors)} ({paper.year}). {escape(paper.title)}. {escape(paper.venue)}.",
            "",
            "| id | section | title | kind | state | executed by | functions | tests and routes | note |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_line(row) for row in rows if row.entry.paper == key),
        ]
    return "\n".join(lines) + "\n"
