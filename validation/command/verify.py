"""`triad verify`: run the checks, print the verdicts, write results/checks.csv and results/report.html."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from validation.checks import runner
from validation.checks.runner import Event, Listener, Selection, SelectionError
from validation.command import completing
from validation.door import storage
from validation.jobs import place as places
from validation.jobs.job import HELP, ClusterError
from validation.jobs.run import engine
from validation.jobs.store import Store
from validation.screen.forecast import Forecast, work

if TYPE_CHECKING:
    from validation.report.moved import Verdicts
    from validation.report.page import Coverage

INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C

# Gives the ledger's coverage for the report, or None where it cannot be had; the command line sets it.
coverage: Callable[[], Sequence[Coverage] | None] | None = None


def verify(
    full: Annotated[bool, typer.Option("--full", help="add the larger problems and longer chains")] = False,
    paper: Annotated[
        list[str] | None,
        typer.Option("--paper", help="only checks of this paper; repeatable", autocompletion=completing.papers),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="only this method id; repeatable", autocompletion=completing.methods),
    ] = None,
    check: Annotated[
        list[str] | None, typer.Option("--check", help="only this check, or a glob such as 'identity/*'; repeatable")
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", help="only this problem; repeatable", autocompletion=completing.problems),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="processes; by default 2, or 1 on a single core")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="of linear algebra in each process")] = 1,
    cluster: Annotated[str | None, typer.Option("--cluster", help=HELP)] = None,
    output: Annotated[Path, typer.Option("--output", help="folder for checks.csv and report.html")] = Path("results"),
    verbose: Annotated[bool, typer.Option("--verbose", help="a line for each verdict; tracebacks")] = False,
    why: Annotated[bool, typer.Option("--why", help="the reason for its limit under each check")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="failures and the summary alone, no progress")] = False,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="an earlier checks.csv: show what moved since that run")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the run as JSON on stdout, in place of the table")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="write the run as JUnit XML to this file too")] = None,
    executed: Annotated[
        Path | None, typer.Option(hidden=True, help="of a quick run of all checks: write who executes each equation")
    ] = None,
) -> None:
    """Close the triangle: ask every check, print the verdicts, exit 1 if one of them is red."""
    errors = Console(stderr=True)
    if (quiet or as_json) and (verbose or why):
        _refuse(errors, f"{'--quiet' if quiet else '--json'}: found it with --verbose or --why, expected one of them")
    if executed is not None and (full or paper or method or check or problem or cluster):
        _refuse(errors, "--executed: found it with another selection or --cluster, expected a quick run of all checks")
    earlier = None if compare is None else _earlier(errors, compare)
    try:
        selection = runner.select(
            full=full, paper=paper or [], method=method or [], check=check or [], problem=problem or []
        )
        storage.check_writable(output / "checks.csv")
        storage.check_writable(output / "report.html")
    except SelectionError as error:
        _refuse(errors, str(error))
    except OSError as error:
        _refuse(errors, f"--output: {error.strerror or error}")
    for name, file in {"--junit": junit, "--executed": executed}.items():
        try:
            if file is not None:
                storage.check_writable(file)
        except OSError as error:
            _refuse(errors, f"{name}: {error.strerror or error}")
    try:
        # here, so that a wrong selection is told without waiting for Matplotlib
        from validation.command import calls
        from validation.report import export, moved, page, table

        narrow = bool(check or method or problem)  # reading all tests may take longer than such a run itself
        store = None if cluster is None else Store(output / "jobs", ("verify", selection), runner.TYPES)
        parts = [(pair.check, pair.problem) for pair in selection.pairs]
        forecast = Forecast(work(parts, output / "checks.csv"))
        with (
            engine(cluster, jobs=jobs, threads=threads) as who,
            nullcontext(None) if quiet else progress(errors, len(selection.pairs), forecast) as listen,
        ):
            recording = None if executed is None else calls.Recording(who)
            result = runner.run(selection, listen=listen, engine=recording or who, store=store)
        console = Console()
        # of what was not asked this time nothing can be said
        moves = None if earlier is None else moved.moves(_asked(earlier, selection), table.verdicts(result.results))
        if as_json:
            sys.stdout.write(export.json_text(result, moves))
        else:
            table.print_run(console, result, why=why, verbose=verbose, quiet=quiet)
            if moves is not None:
                table.print_moves(console, moves, str(compare))
        # who interrupts the run does not wait for the ledger
        known = None if coverage is None or narrow or result.interrupted else coverage()
        csv = table.csv_text(result.results).encode()
        # the page names the table that it was made with
        drawn = page.render(result, known, moves=moves, earlier="" if compare is None else compare.name)
        report = drawn.replace(
            "<head>", f'<head>\n<meta name="checks-csv-sha256" content="{hashlib.sha256(csv).hexdigest()}">', 1
        )
        storage.write_together({output / "checks.csv": csv, output / "report.html": report.encode()})
        if junit is not None:
            storage.write_together({junit: export.junit(result).encode()})
        if executed is not None and recording is not None and not (result.interrupted or result.failed):
            storage.write_together({executed: recording.text().encode()})
        if store is not None and not result.interrupted:
            store.clear()
        aside = errors if as_json else console
        if cluster is not None:
            for line in places.summary(result.places):
                aside.print(f"problems computed: {line}", soft_wrap=True, highlight=False, markup=False)
        for line in places.unlike(place for place, _ in result.places):
            text = f"warning: digits may differ between workers: {line}"
            aside.print(text, style="yellow", soft_wrap=True, highlight=False, markup=False)
        if as_json:
            raise typer.Exit(INTERRUPTED if result.interrupted else int(result.failed))
        written = [output / "checks.csv", output / "report.html", *([junit] if junit is not None else [])]
        console.print(", ".join(map(str, written)), soft_wrap=True, highlight=False)
        if narrow:
            console.print("ledger coverage not collected: expected a run of all checks or of a paper", soft_wrap=True)
    except KeyboardInterrupt:
        errors.print("interrupted", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    except ClusterError as error:
        _refuse(errors, str(error))
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(int(result.failed))


def _earlier(errors: Console, path: Path) -> Verdicts:
    """The verdicts of an earlier run, read before anything is computed."""
    from validation.report import moved

    try:
        return moved.load(path)
    except OSError as error:
        _refuse(errors, f"--compare: {path}: {error.strerror or error}")
    except ValueError as error:
        _refuse(errors, f"--compare: {error}")


def _asked(earlier: Verdicts, selection: Selection) -> Verdicts:
    """Of an earlier run what this one was asked too, and what nobody can be asked any more."""
    from validation.checks import core

    pairs = {(pair.check, pair.problem) for pair in selection.pairs}
    known = core.registered(selection.modules)
    return {key: value for key, value in earlier.items() if key[:2] in pairs or key[0] not in known}


def _refuse(errors: Console, message: str) -> NoReturn:
    """What was asked cannot be done: say it on stderr, exit 2 as for any wrong option."""
    errors.print(f"triad verify: {message}", style="red", soft_wrap=True, highlight=False, markup=False)
    raise typer.Exit(2)


# -- progress ------------------------------------------------------------------------------------------------


@contextmanager
def progress(console: Console, total: int | None, forecast: Forecast | None = None) -> Iterator[Listener]:
    """A listener that shows what is running: a live bar on a terminal, one plain line for each problem elsewhere.

    With a forecast it says how long the rest will take.
    """
    started = time.perf_counter()

    def rest() -> str:
        return "" if forecast is None else forecast.words(time.perf_counter() - started)

    if not console.is_terminal:
        yield _plain(console, started, forecast, rest)
        return
    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    running: dict[str, str] = {}
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)

        def live(event: Event) -> None:
            if event.what == "start":
                running[event.problem] = event.check
            elif event.what == "finished":
                running.pop(event.problem, None)
            elif forecast is not None:
                forecast.done((event.check, event.problem))
            told = ", ".join(f"{problem}: {what}" for problem, what in list(running.items()))
            left = rest()
            # names are names, not rich's markup
            described = (f"{left}; {told}" if left else told).replace("[", r"\[")
            bar.update(task, advance=int(event.what == "done"), description=described)

        yield live


def _plain(console: Console, started: float, forecast: Forecast | None, rest: Callable[[], str]) -> Listener:
    done: dict[str, int] = {}

    def line(event: Event) -> None:
        if event.what == "done":
            done[event.problem] = done.get(event.problem, 0) + 1
            if forecast is not None:
                forecast.done((event.check, event.problem))
        elif event.what == "finished":
            asked = done.get(event.problem, 0)
            what = "checks that need no problem" if event.problem == "-" else event.problem
            left = rest()
            text = f"{time.perf_counter() - started:6.1f} s  {what}: {asked} done{f'; {left}' if left else ''}"
            console.print(text, soft_wrap=True, highlight=False, markup=False)
            sys.stderr.flush()

    return line
