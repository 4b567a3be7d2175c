"""`triad claims run PAPER EXPERIMENT`: rerun an experiment, print its tables, write a page and CSVs."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from validation.claims import results
from validation.door import arguments
from validation.door.quoting import shown
from validation.jobs import each
from validation.jobs import run as jobs_run
from validation.jobs.job import HELP, Job
from validation.jobs.run import engine
from validation.reproduce import catalogue, decisions, page, printed
from validation.reproduce.experiment import EXPERIMENTS, Experiment, Outcome, Table, check_options, find
from validation.screen.as_json import text as json_text
from validation.screen.forecast import Lines
from validation.screen.terminal import Grid, print_grid, say, waiting

Paper = Annotated[str | None, typer.Argument(help="key of a paper, such as wenzel2019")]
Name = Annotated[str | None, typer.Argument(metavar="EXPERIMENT", help="such as fig1; all are listed without it")]
Dataset = Annotated[list[str] | None, typer.Option("--dataset", metavar="NAME", help="a data set by name; repeatable")]
Values = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="option of the experiment; repeatable"),
]
Output = Annotated[Path, typer.Option("--output", metavar="FOLDER", help="folder of the page and the CSVs")]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="ADDRESS", help=HELP)]
FOLDER = Path("results/reproduce")


def run(
    paper: Paper = None,
    name: Name = None,
    dataset: Dataset = None,
    option: Values = None,
    output: Output = FOLDER,
    cluster: Cluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the tables as JSON only")] = False,
) -> None:
    """Rerun a paper's experiment and compare with the published numbers."""
    reproduce(paper, name, dataset, option, output, cluster, as_json=as_json)


def reproduce(
    paper: Paper = None,
    name: Name = None,
    dataset: Dataset = None,
    option: Values = None,
    output: Output = FOLDER,
    cluster: Cluster = None,
    keep: Annotated[
        Path | None, typer.Option("--record", help="folder of results and cards (validation/claims/results) to add to")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the tables as JSON only")] = False,
) -> None:
    """As `triad claims run`, with the record that decides claims."""
    from validation.command.cli import parse_options

    catalogue.load()
    console = Console(markup=False, emoji=False, highlight=False)
    if paper is None or name is None:
        _list(console, paper, as_json=as_json)
        return
    wanted = find(paper, name)
    options = parse_options(option or [])
    if dataset:
        if "datasets" in wanted.options:
            options["datasets"] = dataset
        elif "dataset" in wanted.options and len(dataset) == 1:
            options["dataset"] = dataset[0]
        else:
            raise ValueError(f"--dataset: found {', '.join(dataset)}, expected what {name} takes: {_described(wanted)}")
    for key, default in wanted.options.items():  # one name or number serves where several could stand
        value = options.get(key)
        if isinstance(default, tuple) and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            options[key] = (value,)
    check_options(wanted, options)
    if options.get("seed") is not None:
        arguments.integer(options["seed"], "seed", at_least=0)
    try:
        output.mkdir(parents=True, exist_ok=True)  # refused before the work, not after
    except OSError as error:
        raise ValueError(f"output: found {output} ({error.strerror}), expected a folder that can be written") from error
    result = f"{paper}-{name}"
    keys = results.keys_of(result, keep) if keep is not None else ()
    began = time.perf_counter()
    errors = Console(stderr=True, markup=False, emoji=False, highlight=False)
    total = None if wanted.cells is None else wanted.cells(**options)
    lines = Lines(total, ahead=wanted.ahead)
    with waiting(errors, f"{paper} {name}", lines.words):
        outcome = _outcome(wanted, options, lambda text: say(errors, f"{text}{lines.said()}"), cluster, output)
    if as_json:
        tables = [{"name": one.name, "caption": one.caption, "columns": one.columns, "rows": one.rows}
                  for one in outcome.tables]  # fmt: skip
        sys.stdout.write(json_text({"tables": tables, "notes": outcome.notes}))
        console = errors
    for table in () if as_json else outcome.tables:
        _print(console, table)
    for note in () if as_json else outcome.notes:
        say(console, f"note: {note}")
    for path in page.write(wanted, outcome, output):
        console.print(str(path), soft_wrap=True)
    if keep is not None:
        command = _command(paper, name, options)
        card = results.made(command, time.perf_counter() - began, wanted.run.__module__, outcome.notes)
        # sentences are decided by the table of that name, cells by the experiment's own
        stated = result in results.statements(keep)
        wanted_table = [one for one in outcome.tables if not stated or one.name == decisions.TABLE]
        if not wanted_table:
            raise ValueError(
                f"--record: found no table of {decisions.TABLE}, expected options by which {name} decides any"
            )
        table = wanted_table[0]
        console.print(str(results.record(keep, result, table.columns, table.rows, keys, card)), soft_wrap=True)


def _command(paper: str, name: str, options: dict[str, Any]) -> str:
    """The command line that asks for the same."""
    given = [f"-o {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in options.items()]
    return " ".join([f"triad claims run {paper} {name}", *given])


class Asked(NamedTuple):
    """One whole experiment."""

    paper: str
    name: str
    options: dict[str, Any]


def _outcome(
    wanted: Experiment, options: dict[str, Any], say: Callable[[str], object], cluster: str | None, output: Path
) -> Outcome:
    """Run it here, its repetitions on a cluster, or all of it there where it has none."""
    if cluster is None:
        return wanted.run(**options, say=say)
    with engine(cluster) as who:
        if wanted.in_parts:
            with each.spreading(who, output / "jobs"):
                return wanted.run(**options, say=say)
        job = Job(f"{wanted.paper}-{wanted.name}", Asked(wanted.paper, wanted.name, options))
        (done,) = jobs_run.run(whole, [job], who, listen=_told(say))
        if done.lost is not None:
            raise done.lost
        value: Outcome = done.value
        return value


def _told(say: Callable[[str], object]) -> Callable[[Any], None]:
    def listen(text: Any) -> None:
        say(text)

    return listen


def whole(unit: Asked, hear: Callable[[str], object]) -> Outcome:
    """The work of an experiment that is one job."""
    catalogue.load()
    return find(unit.paper, unit.name).run(**unit.options, say=hear)


def _list(console: Console, paper: str | None, *, as_json: bool) -> None:
    chosen = [value for value in EXPERIMENTS.values() if paper in (None, value.paper)]
    if not chosen:
        papers = sorted({key for key, _ in EXPERIMENTS})
        raise ValueError(f"paper: found {shown(paper)}, expected one of {', '.join(papers)}")
    if as_json:
        keys = ("paper", "name", "title", "options")
        sys.stdout.write(json_text([{key: getattr(value, key) for key in keys} for value in sorted(chosen)]))
        return
    rows = [(value.paper, value.name, value.title, _described(value)) for value in sorted(chosen)]
    print_grid(console, Grid(("paper", "experiment", "what it is", "options"), 2), rows)


def _described(value: Experiment) -> str:
    paper = {name: f" ({printed.in_words(known)} in the paper)" for name, known in value.printed.items()}
    return ", ".join(f"{name}={default!r}{paper.get(name, '')}" for name, default in value.options.items()) or "none"


def _print(console: Console, table: Table) -> None:
    say(console, table.caption, style="italic")
    rows = [tuple(page.cell(value) for value in row) for row in table.rows]
    print_grid(console, Grid(table.columns, len(table.columns) - 1), rows)
