"""The ledger on the terminal, through rich."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from validation.ledger import atlas, perturbed
from validation.ledger.audit import STATES, Ledger, Row, counts, execution, per_package, reasons
from validation.ledger.formula import formula
from validation.ledger.perturb import Report
from validation.ledger.registry import Function
from validation.screen.terminal import Grid, print_grid

TERMINAL = 80  # columns
ENDLESS = 100_000  # no line is as long

_STYLE = {"verified": "green", "corrected": "cyan", "not executable": "dim", "slip": "dim", "open": "yellow"}


def coverage(ledger: Ledger, rows: Sequence[Row]) -> RenderableType:
    """Per paper the counts of states, and for each package the functions and tests."""
    states = Table(title="The ledger", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    states.add_column("paper", no_wrap=True)
    states.add_column("entries", justify="right")
    for state in STATES:
        states.add_column(state, justify="right", style=_STYLE[state])
    states.add_column("reasons", justify="right")
    packages = Table(title="Functions / tests", title_justify="left", box=SIMPLE_HEAD)
    packages.add_column("paper", no_wrap=True)
    for package in ledger.packages:
        packages.add_column(package.name, justify="right")
    keys = list(dict.fromkeys(row.entry.paper for row in rows))
    for key in [*keys, *([""] if len(keys) > 1 else [])]:
        own = [row for row in rows if key in ("", row.entry.paper)]
        last = key == keys[-1]
        # Without tests nothing is known about states.
        numbers = ["-" if ledger.without_states else str(number) for number in counts(own).values()]
        given = "-" if ledger.without_states else "{}/{}".format(*reasons(own))
        states.add_row(key or "all", str(len(own)), *numbers, given, end_section=last)
        table = per_package(own, ledger.packages).values()
        cells = [f"{item['functions']} / {item['tests']}" if any(item.values()) else "-" for item in table]
        packages.add_row(key or "all", *cells, end_section=last)
    executed = [executed_table(rows)] if any(row.executed is not None for row in rows) else []
    partial = [key for key in keys if not ledger.inventory.papers[key].complete]
    entered = [Text(f"Not all displays are entered: {', '.join(partial)}.\n")] if partial else []
    return Group(states, *entered, packages, *executed)


def print_entries(console: Console, rows: Sequence[Row]) -> None:
    """A record for each entry of a paper: one line where nothing is folded."""
    grid = Grid(("id", "state", "section", "title", "functions, tests; missing", "executed by"), 3)
    cells, styles = [], []
    for row in rows:
        numbers = [len(row.functions) + len(row.printed), len(row.tests)]
        counted = [", ".join(map(str, numbers))] if any(numbers) else []
        rest = "; ".join([*counted, *(row.missing if counted else ()), *row.gaps])
        entry = row.entry
        cells.append((entry.id, row.state, entry.section, entry.title, rest, row.words))
        styles.append(_STYLE[row.state])
    print_grid(console, grid, cells, styles, width=console.width)


def console(stream: TextIO | None = None) -> Console:
    """At most 80 columns on a terminal or where COLUMNS is set; elsewhere nothing is folded, for copying."""
    result = Console(file=stream)
    fits = result.is_terminal or "COLUMNS" in os.environ
    return Console(file=stream, width=min(result.width, TERMINAL) if fits else ENDLESS)


def equation(ledger: Ledger, row: Row, *, fold: bool = True) -> RenderableType:
    """One entry: what the inventory says, its formula, who executes it, functions with their source, tests, errata.

    fold: at the width of the console; otherwise every line is as long as it is.
    """
    entry = row.entry
    paper = ledger.inventory.papers[entry.paper]
    printed = formula(row.printed, entry.id)
    head = Table.grid(padding=(0, 2))
    head.add_column(style="bold")
    head.add_column(overflow="fold")
    for name, value in {
        "paper": f"{paper.authors} ({paper.year}), {paper.title}",
        "section": entry.section,
        "kind": entry.kind,
        "formula": formula(row.functions, entry.id),
        "as printed": printed,
        "because": entry.because,
        "number": entry.number,
        "decided by": ", ".join(entry.decides),
        "denies": ", ".join(f"claim {entry.paper}:{claim}" for claim in entry.denies),
        "inputs": ", ".join(entry.inputs),
        "outputs": ", ".join(entry.outputs),
        "state": "unknown without tests" if ledger.without_states else row.state,
        "executed": f"by {row.words}" if row.words else "",
        "docs": atlas.link(entry.equation),
        "note": row.note,
    }.items():
        if value:
            head.add_row(name, Text(value))
    title = Text(f"{entry.paper}:{entry.id}  {entry.title}")
    parts: list[RenderableType] = [Panel(head, title=title, title_align="left", expand=fold)]
    if row.printed:
        parts.append(Text("\nErratum: the form as printed, then the corrected form", style="bold cyan"))
    for function in (*row.printed, *row.functions):
        parts += _source(function, fold)
    parts.append(Text("\nTests" if row.tests else "\nNo tests" if not ledger.without_states else "", style="bold"))
    for test in row.tests:
        parts.append(Text(f"{test.file}:{test.line}  {test.name}{', slow' if test.slow else ''}"))
        for claim in test.claims:
            if claim.equation == entry.equation:
                extra = f" (resolves {claim.resolves:g})" if claim.resolves is not None else ""
                extra += " (fails on the printed form, passes on the corrected one)" if claim.printed else ""
                route = Text(f"route: {claim.route}{extra}", style="dim")
                parts.append(Padding(route, (0, 0, 0, 4), expand=False))
    parts += _perturbed(row)
    if row.executed is not None and row.executed.checks:
        parts.append(Text("\nChecks", style="bold"))
        parts += [Text(name) for name in row.executed.checks]
    return Group(*parts)


def _perturbed(row: Row) -> Iterator[Text]:
    """What the last perturbation of the entry did, if it is known."""
    outcome = perturbed.load().get(row.entry.equation)
    if outcome is None or not outcome.functions:
        return
    yield Text(f"\nPerturbed{f' at commit {outcome.commit}' if outcome.commit else ''}", style="bold")
    for address, tried in outcome.functions.items():
        how = f" ({tried.how})" if tried.how else ""
        yield Text(f"{address}: by {tried.size:g}, noticed by {tried.noticed} of {tried.pairs}{how}")


def _source(function: Function, fold: bool) -> Iterator[RenderableType]:
    """Address, place and source of a function; the source begins with its signature and docstring."""
    mark = "  (as printed)" if function.as_printed else ""
    yield Text(f"\n{function.address}{mark}", style="bold")
    # from the folder around the package: the same text wherever the repository stands
    spec = importlib.util.find_spec(function.package)
    folder = Path((spec.origin if spec is not None else None) or "").parents[1]
    place = Path(function.file)
    shown = place.relative_to(folder) if place.is_relative_to(folder) else place
    yield Text(f"{shown.as_posix()}:{function.line}", style="dim")
    if fold:
        yield Syntax(function.source, "python", background_color="default", word_wrap=True)
    else:  # a Syntax fills its lines with blanks to the width
        yield Text(function.source.rstrip("\n"))


def executed_table(rows: Sequence[Row]) -> Table:
    """By paper, who executes the entries: all that have a function, and those that say what an algorithm does."""
    table = Table(title="Executed by: entries with a function / of the algorithm's kinds", title_justify="left",
                  box=SIMPLE_HEAD)  # fmt: skip
    table.add_column("paper", no_wrap=True)
    for column in ("entries", "solve", "verify alone", "tests alone"):
        table.add_column(column, justify="right")
    keys = list(dict.fromkeys(row.entry.paper for row in rows))
    for key in [*keys, *([""] if len(keys) > 1 else [])]:
        numbers = execution([row for row in rows if key in ("", row.entry.paper)])
        cells = [f"{numbers['all'][name]} / {numbers['algorithm'][name]}" for name in numbers["all"]]
        table.add_row(key or "all", *cells, end_section=key == keys[-1])
    return table


def perturbation(console: Console, report: Report, detail: bool = False) -> None:
    """Print a summary of the perturbations and the survivors; with detail also every trial.

    Tests and functions stand one to a line, never folded: addresses are there to be copied.
    """
    status = Counter(trial.status for trial in report.trials)
    errors = Counter(trial.error for trial in report.trials if trial.status == "noticed")
    by_error = ", ".join(f"{number} by {name}" for name, number in errors.most_common())
    spared = f", {status['not needed']} not needed" if status["not needed"] else ""

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    line(
        f"Perturbation: {report.cases} cases, {len(report.trials)} pairs of test and function: "
        f"{status['noticed']} noticed{f' ({by_error})' if by_error else ''}, "
        f"{status['survived']} not noticed{spared}; {len(report.survivors)} survivors; {report.seconds:.0f} s"
    )
    if report.slow:
        line(f"{len(report.slow)} slow tests left out; --slow runs them: {', '.join(report.slow)}", "dim")
    if report.skipped:
        line(f"{len(report.skipped)} cases skipped: {', '.join(report.skipped)}", "dim")
    if report.survivors:
        line("Survivors", "bold red")
        for survivor in report.survivors:
            line(survivor.text)
    if detail:
        for trial in report.trials:
            how = f" by {trial.error}" if trial.error else ""
            line(f"{trial.status}{how} (size {trial.scale:g}, {trial.calls} calls)", "bold")
            line(f"    {trial.test}\n    {trial.function}")
