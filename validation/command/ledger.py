"""`triad audit`: coverage of the ledger, one equation, the perturbation of its tests, the page of the docs."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from validation.ledger import audit as ledger_audit
from validation.ledger import page, perturb, show
from validation.ledger import perturbed as perturbed_record
from validation.screen.terminal import say, waiting

STORED = "states as they were when this package was built: its tests are not installed"


Target = Annotated[
    str | None, typer.Argument(metavar="PAPER[:EQ]", help="a paper, or one equation of it; all papers if absent")
]
Rerun = Annotated[bool, typer.Option("--run", help="run the tests and checks of one equation, and print their numbers")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON only")]


def audit(
    target: Target = None,
    rerun: Rerun = False,
    as_json: AsJson = False,
    slow: Annotated[bool, typer.Option("--slow", help="with --run: run slow tests too")] = False,
) -> None:
    """Show which equations of the papers are implemented and tested.

    Exits 1 for an open entry of a complete paper or one that triad verify never executes, a file or marker that cannot
    be read or a failure of --run; 2 for bad arguments.
    """
    maintain(target, rerun=rerun, as_json=as_json, slow=slow)


def maintain(
    target: Target = None,
    perturbed: Annotated[
        bool, typer.Option("--perturb", help="rerun the tests while the functions' outputs are perturbed")
    ] = False,
    rerun: Rerun = False,
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="write the page of the docs to stdout")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the page (or, with --json, the JSON) to FILE instead")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="exit 1 if FILE differs from the page (with --json: the JSON)")
    ] = None,
    slow: Annotated[bool, typer.Option("--slow", help="with --perturb or --run: run slow tests too")] = False,
) -> None:
    """As `triad audit`, with the perturbation of tests and the page of the docs.

    Exits 1 for an open entry of a complete paper or one that triad verify never executes, a file or marker that cannot
    be read, an unknown id, a survivor of --perturb, a failure of --run or a page that differs; 2 for bad arguments.
    """
    errors = Console(stderr=True)
    if as_json and as_markdown:
        raise typer.BadParameter("--json, --markdown: found both, expected one of them")
    if as_json and perturbed and check is not None:
        raise typer.BadParameter("--check: found it with --json --perturb, whose times differ from run to run")
    if slow and not (perturbed or rerun):
        raise typer.BadParameter("--slow: found it alone, expected it with --perturb or --run")
    if output is not None:
        check_writable(output)  # before the work
    sources = ledger_audit.default_sources()
    try:
        paper, id = ledger_audit.split_target(target, sources.inventory)
    except LookupError as error:
        hint = ledger_audit.suggestion(target or "", sources.inventory)
        raise typer.BadParameter(f"{error.args[0]}{hint}") from error
    if rerun and id is None:
        raise typer.BadParameter(f"--run: found {target or 'no address'}, expected one equation, PAPER:EQ")
    if rerun and (perturbed or as_json or as_markdown or output or check):
        raise typer.BadParameter("--run: found it with another kind of output or --perturb, expected it alone")
    with waiting(errors, "reading functions and tests"):
        ledger = ledger_audit.build(sources, paper or "")
    rows = ledger.select(paper, id)
    asked = {"--perturb": perturbed, "--run": rerun, "--markdown": as_markdown, "--check": check is not None,
             "--output": output is not None and not as_json}  # fmt: skip
    needs_tests = [name for name, given in asked.items() if given]
    if ledger.without_tests and (needs_tests or (ledger.without_states and (id is None or output))):
        what = f"{needs_tests[0]} needs a checkout: " if needs_tests else ""
        errors.print(f"error: {what}{ledger.without_tests}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)
    failures = list(ledger.failures(rows))
    report = None
    if perturbed and sources.root is not None:
        with _bar(errors) as progress:
            report = perturb.run(ledger, sources.root, rows, slow=slow, exhaustive=id is not None, progress=progress)
        failures += report.failures
        if sources.kept is not None and not report.problems:
            from validation.jobs.place import commit

            known = {**perturbed_record.load(sources.kept), **perturb.record(report, rows, sources.root, commit())}
            write(sources.kept, perturbed_record.text(known))

    if as_json:
        data: dict[str, Any] = ledger_audit.as_json(ledger, rows, sources.root, full=id is not None)
        data["perturbation"] = None if report is None else perturb.as_json(report)
        data["failures"] = failures
        text = json.dumps(data, indent=2) + "\n"
    else:
        text = page.markdown(ledger, rows)
    if check is not None:
        failures += _differences(check, text)
    if output is not None:
        write(output, text)
    elif (as_json or as_markdown) and check is None:
        sys.stdout.write(text)  # click would write UTF-8 where the stream is ASCII

    quiet = as_json or as_markdown or output is not None or check is not None
    console = errors if quiet else show.console()
    if rerun:
        from validation.command import rerun as rerunning  # the checks take seconds to load

        failures += rerunning.run(console, sources, rows[0], slow=slow)
    elif not quiet:
        if id is not None:
            console.print(show.equation(ledger, rows[0], fold=console.width <= show.TERMINAL))
        else:
            console.print(show.coverage(ledger, rows))
            if paper is not None:
                show.print_entries(console, rows)
    if ledger.stored and not quiet:
        console.print(STORED, style="dim")
    if report is not None and not as_json:
        show.perturbation(console, report, detail=id is not None)
    for failure in failures:
        # Survivors already stand in their table.
        if report is None or as_json or failure not in report.failures or failure in report.problems:
            _failed(errors, failure)
    if report is not None and not as_json:
        for case, name in report.broken:
            _failed(errors, f"{case}: fails unperturbed ({name})")
    if failures:
        raise typer.Exit(1)


def _failed(errors: Console, failure: str) -> None:
    """What makes the audit fail: folded on a terminal alone, and never where it has lines of its own."""
    if errors.is_terminal and "\n" not in failure:
        say(errors, f"FAIL {failure}", style="red")
    else:
        errors.print(f"FAIL {failure}", markup=False, highlight=False, style="red", soft_wrap=True)


@contextmanager
def _bar(console: Console) -> Iterator[perturb.Progress]:
    """A bar of progress on stderr."""
    columns = (TextColumn("perturbing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}", markup=False), console=console, transient=True) as bar:
        task = bar.add_task("collecting", total=None)

        def advance(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what.rpartition("::")[2])

        yield advance


def _differences(file: Path, text: str) -> list[str]:
    """What to say if a file is not this text, to the letter."""
    try:
        result = file.read_text(encoding="utf-8")
    except OSError as error:
        return [f"{file}: found no readable file ({error.strerror}), expected the page; --output {file} writes it"]
    except UnicodeDecodeError:
        return [f"{file}: found no UTF-8 text, expected the page; --output {file} writes it"]
    if result == text:
        return []
    lines = list(difflib.unified_diff(result.splitlines(), text.splitlines(), "found", "expected", lineterm="", n=0))
    more = [f"... and {len(lines) - 20} more lines"] if len(lines) > 20 else []
    message = f"{file}: differs from the page that the code gives; make ledger writes it"
    return ["\n".join([message, *lines[:20], *more])]


def check_writable(file: Path) -> None:
    """BadParameter if `write` could not write this file."""
    from validation.door import storage

    if not file.parent.is_dir():
        raise typer.BadParameter(f"--output: found {file} in no folder, expected a writable file")
    try:
        storage.check_writable(file)
    except OSError as error:
        raise typer.BadParameter(f"--output: {error.strerror}") from error


def write(file: Path, text: str) -> None:
    """Write a text file whole or not at all. BadParameter if the folder cannot be written to."""
    from validation.door.storage import write_text

    try:
        write_text(file, text)
    except OSError as error:
        raise typer.BadParameter(f"--output: found {file} ({error.strerror}), expected a writable file") from error
