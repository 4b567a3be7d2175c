"""`triad list data`: data sets known by name, their sources, and whether the copies at hand are right."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from validation.command import completing
from validation.datasets.catalogue import Entry, Expected, catalogue, near_misses
from validation.datasets.dataset import Dataset
from validation.datasets.errors import DatasetCorruptError, DatasetNotFoundError
from validation.datasets.folder import ENVIRONMENT
from validation.datasets.loading import expected_counts, known_names, load, locate
from validation.door.quoting import shown
from validation.screen.as_json import text as json_text
from validation.screen.terminal import say

PLACES = {
    "embedded": "scikit-learn (bundled)",
    "folder": f"${ENVIRONMENT}",
    "openml": "OpenML (download)",
    "generated": "generated",
    "missing": "missing",
}


def data(
    name: Annotated[
        str | None,
        typer.Argument(help="a data set to show; default: list all", autocompletion=completing.datasets),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="load and check NAME, downloading it if needed; default: all sets at hand"),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON only")] = False,
) -> None:
    """List the data sets known by name, show one, or load and check the copies at hand.

    Exits 0, 1 where a copy is missing or not what it should be, or 2 where a name is unknown.
    """
    console = Console(highlight=False)
    try:
        names = known_names()
        if name is not None and name not in names:
            close = near_misses(name, names)
            hint = f"; did you mean {' or '.join(close)}?" if close else "; `triad list data` prints the known names"
            raise typer.BadParameter(f"name: found {shown(name)}, expected a known data set{hint}")
        if as_json:
            if check:
                raise typer.BadParameter("--json: found it with --check, expected one of them")
            sys.stdout.write(json_text([_values(key) for key in names] if name is None else _values(name)))
            return
        if check:
            passed = _check(console, names if name is None else (name,), download=name is not None)
        else:
            passed = _list(console, names) if name is None else _show(console, name)
    except (DatasetCorruptError, DatasetNotFoundError) as error:
        _tell(str(error))
        raise typer.Exit(1) from error
    if not passed:
        raise typer.Exit(1)


def _tell(message: str) -> None:
    say(Console(stderr=True, highlight=False), f"error: {message}")


def _values(name: str) -> dict[str, Any]:
    """Where a set would come from here, and what is known of it."""
    place, expected, entry = locate(name), expected_counts(name), catalogue().get(name)
    known = {} if expected is None else {"n": expected.n, "d": expected.d, "classes": expected.classes,
                                         "n_train": expected.n_train}  # fmt: skip
    return {"name": name, "from": place, **known, "cite": None if entry is None else entry.citation}


def _list(console: Console, names: tuple[str, ...]) -> bool:
    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for column in ("n", "d", "C", "train"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    counts = dict.fromkeys(PLACES, 0)
    for name in names:
        place = locate(name)
        counts[place] += 1
        style = "dim" if place == "missing" else None
        entry = catalogue().get(name)
        # Without a reason in the table it is only this machine that lacks it.
        where = f"needs ${ENVIRONMENT}" if place == "missing" and entry and not entry.missing else PLACES[place]
        table.add_row(name, *_numbers(expected_counts(name)), where, style=style)
    console.print(table)
    summary = ", ".join(f"{count} {place}" for place, count in counts.items() if count)
    console.print(
        f"\n{len(names)} data sets: {summary}. `triad list data NAME` shows one, `--check` loads those at hand."
    )
    return True


def _numbers(expected: Expected | None) -> list[str]:
    if expected is None:
        return ["-"] * 4
    numbers = (expected.n, expected.d, len(expected.classes), expected.n_train)
    return [str(number) if number else "-" for number in numbers]


def _show(console: Console, name: str) -> bool:
    place = locate(name)
    entry = catalogue().get(name)
    facts: list[tuple[str, Any]] = [("name", name), ("from", PLACES[place])]
    if place in ("embedded", "folder"):
        facts += _loaded_facts(load(name))
    else:
        facts += _expected_facts(expected_counts(name))
    if entry is not None:
        facts += _entry_facts(entry, place)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in facts:
        if value not in ("", None):
            grid.add_row(key, escape(str(value)))
    console.print(grid)
    return True


def _loaded_facts(dataset: Dataset) -> list[tuple[str, Any]]:
    constant = ", ".join(dataset.feature_names[j] for j in dataset.constant_features)
    return [
        ("read from", dataset.source),
        ("rows, inputs", f"{dataset.n} x {dataset.d}"),
        ("classes", _classes(dataset.class_counts)),
        ("official split", _split(dataset.n, dataset.n_train)),
        ("constant", constant or "no input"),
        ("sha256", dataset.sha256),
        ("checked", "rows, inputs, class counts, official split, constant inputs"),
        ("cite", dataset.citation),
    ]


def _expected_facts(expected: Expected | None) -> list[tuple[str, Any]]:
    if expected is None:
        return []
    return [
        ("rows, inputs", f"{expected.n} x {expected.d}"),
        ("classes", _classes(expected.classes)),
        ("official split", _split(expected.n, expected.n_train)),
    ]


def _entry_facts(entry: Entry, place: str) -> list[tuple[str, Any]]:
    facts = [("order of rows", entry.order), ("notes", entry.notes)]
    if place not in ("embedded", "folder"):
        facts.append(("cite", entry.citation))
    if entry.openml is not None:
        facts.append(("at OpenML", f"{entry.openml.name}, data id {entry.openml.data_id}"))
    if entry.generator is not None:
        facts.append(("call", f"validation.datasets.{entry.generator}(rng, n)"))
    if place == "missing":
        facts.append(("why missing", entry.missing or f"set {ENVIRONMENT} to a folder that has it"))
    elif place == "openml":
        facts.append(("to read it", f"load({entry.name!r}) downloads it; or set {ENVIRONMENT} to a folder that has it"))
    return facts


def _classes(counts: Any) -> str:
    return ", ".join(f"{label}: {count}" for label, count in counts.items())


def _split(n: int, n_train: int) -> str:
    return f"{n_train} train, {n - n_train} test" if n_train else "none"


def _check(console: Console, names: tuple[str, ...], *, download: bool) -> bool:
    """Load each set, one line each; what fails is said and the rest is still checked."""
    failed = skipped = 0
    for name in names:
        place = locate(name)
        if not download and place not in ("embedded", "folder"):
            skipped += 1
            continue
        start = time.perf_counter()
        try:
            with console.status(f"{name} ..."):
                dataset = load(name)
        except (DatasetCorruptError, DatasetNotFoundError) as error:
            failed += 1
            console.print(f"[red]FAIL[/red] {name}: {escape(str(error))}", soft_wrap=True)
            continue
        size = f"{dataset.n} x {dataset.d}, {dataset.n_classes} classes"
        seconds = time.perf_counter() - start
        console.print(
            f"[green]PASS[/green] {name:<24} {size:<28} {escape(dataset.source)}  {seconds:.2f} s", soft_wrap=True
        )
    checked = len(names) - skipped
    rest = f"; {skipped} not at hand" if skipped else ""
    console.print(f"{checked - failed} of {checked} data sets are as expected{rest}")
    return failed == 0
