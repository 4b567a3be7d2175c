"""`triad verify`: run the checks, print the verdicts, write results/checks.csv and results/report.html."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

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
from validation.screen.terminal import waiting

if TYPE_CHECKING:
    from validation.report.moved import Move, Verdicts
    from validation.report.page import Coverage

INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C


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
    threads: Annotated[int, typer.Option("--threads", min=1, help="threads of linear algebra in each process")] = 1,
    cluster: Annotated[str | None, typer.Option("--cluster", help=HELP)] = None,
    output: Annotated[Path, typer.Option("--output", help="folder for checks.csv and report.html")] = Path("results"),
    verbose: Annotated[bool, typer.Option("--verbose", help="print each result, and tracebacks")] = False,
    why: Annotated[bool, typer.Option("--why", help="explain the limit of each check")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print failures and the summary only")] = False,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="compare with an earlier checks.csv, and show what moved")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the run as JSON")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="write the run as JUnit XML to this file")] = None,
) -> None:
    """Run the checks and print the verdicts; exit 1 if one fails."""
    if (quiet or as_json) and (verbose or why):
        _refuse(f"{'--quiet' if quiet else '--json'}: found it with --verbose or --why, expected one of them")
    earlier = None if compare is None else _earlier(compare)
    try:
        selection = runner.select(
            full=full, paper=paper or [], method=method or [], check=check or [], problem=problem or []
        )
    except SelectionError as error:
        _refuse(str(error))
    narrow = bool(check or method or problem)  # reading all tests may take longer than such a run itself
    shown = _Shown(verbose, why, quiet, as_json)
    _run(selection, _Spread(cluster, jobs, output), shown, _Beside(earlier, compare, junit), threads, narrow=narrow)


def record(
    executed: Annotated[Path, typer.Argument(help="the record that is written")],
    output: Annotated[Path, typer.Option("--output", help="folder for checks.csv and report.html")] = Path("results"),
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="processes, as for verify")] = None,
) -> None:
    """Run the checks as `triad verify` and record who executes each equation; nothing is recorded if one fails."""
    beside = _Beside(executed=executed)
    _run(runner.select(), _Spread(None, jobs, output), _Shown(), beside, 1, narrow=False)


class _Shown(NamedTuple):
    """What is printed of a run."""

    verbose: bool = False
    why: bool = False
    quiet: bool = False
    as_json: bool = False


class _Beside(NamedTuple):
    """Files beside the table and the report: what an earlier run found, JUnit's XML, who executes each equation."""

    earlier: Verdicts | None = None
    compare: Path | None = None
    junit: Path | None = None
    executed: Path | None = None


def _run(
    selection: Selection, spread: _Spread, printed: _Shown, beside: _Beside, threads: int, *, narrow: bool
) -> NoReturn:
    """Run the checks of a selection, print and write what they found, and exit."""
    errors, output = Console(stderr=True), spread.output
    earlier, compare, junit, executed = beside
    verbose, why, quiet, as_json = printed
    written = {
        "--output": (output / "checks.csv", output / "report.html"),
        "--junit": (junit,),
        "EXECUTED": (executed,),
    }
    for name, files in written.items():
        try:
            for file in filter(None, files):
                storage.check_writable(file)
        except OSError as error:
            _refuse(f"{name}: {error.strerror or error}")
    try:
        # here, so that a wrong selection is told without waiting for Matplotlib
        from validation.command import calls
        from validation.report import export, moved, page, table

        store = spread.store(("verify", selection), runner.TYPES)
        parts = [(pair.check, pair.problem) for pair in selection.pairs]
        forecast = Forecast(work(parts, output / "checks.csv"))
        with (
            engine(spread.cluster, jobs=spread.jobs, threads=threads) as who,
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
            if moves is not None:
                failures = [one for one in result.results if one.failed]
                table.print_moves(console, moves, str(compare), failures, _where(errors, result, moves))
                console.print()
            # a comparison has shown the failures already
            few = moves is not None and not verbose
            table.print_run(console, result, why=why, verbose=verbose, quiet=quiet or few, failures=not few)
        # who interrupts the run does not wait for the ledger
        known = None if narrow or result.interrupted else coverage()
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
        if spread.cluster is not None:
            for line in places.summary(result.places):
                aside.print(f"problems computed: {line}", soft_wrap=True, highlight=False, markup=False)
        for line in places.unlike(place for place, _ in result.places):
            text = f"warning: digits may differ between workers: {line}"
            aside.print(text, style="yellow", soft_wrap=True, highlight=False, markup=False)
        if as_json:
            raise typer.Exit(INTERRUPTED if result.interrupted else int(result.failed))
        made = [output / "checks.csv", output / "report.html", *([junit] if junit is not None else [])]
        console.print(", ".join(map(str, made)), soft_wrap=True, highlight=False)
        if narrow:
            console.print("ledger coverage not collected: expected a run of all checks or of a paper", soft_wrap=True)
    except KeyboardInterrupt:
        errors.print("interrupted", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    except ClusterError as error:
        _refuse(str(error))
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(int(result.failed))


def _where(errors: Console, result: runner.Run, moves: Sequence[Move]) -> list[str]:
    """Lines on the functions that failures execute and passes do not, where something turned red."""
    from validation.report import where

    if not any(move.kind == "turned red" for move in moves):
        return []
    with waiting(errors, "looking for the functions that failures share"):
        return list(where.lines(*where.suspects(result.results)))


def _earlier(path: Path) -> Verdicts:
    """The verdicts of an earlier run, read before anything is computed."""
    from validation.report import moved

    try:
        return moved.load(path)
    except OSError as error:
        _refuse(f"--compare: {path}: {error.strerror or error}")
    except ValueError as error:
        _refuse(f"--compare: {error}")


def _asked(earlier: Verdicts, selection: Selection) -> Verdicts:
    """Of an earlier run what this one was asked too, and what nobody can be asked any more."""
    from validation.checks import core

    pairs = {(pair.check, pair.problem) for pair in selection.pairs}
    known = core.registered(selection.modules)
    return {key: value for key, value in earlier.items() if key[:2] in pairs or key[0] not in known}


class _Spread(NamedTuple):
    """Who does the work, and where its results are kept until the run is over: on a cluster, in the output folder."""

    cluster: str | None
    jobs: int | None
    output: Path

    def store(self, question: object, types: tuple[type, ...]) -> Store | None:
        return None if self.cluster is None else Store(self.output / "jobs", question, types)


def _refuse(message: str) -> NoReturn:
    """What was asked cannot be done: exit 2 as for any wrong option."""
    raise typer.BadParameter(message)


def coverage() -> list[Coverage] | None:
    """Coverage of each paper for the report; None where there are neither tests nor stored states."""
    from validation.ledger import audit as auditing

    ledger = auditing.build(auditing.default_sources())
    if ledger.without_states or ledger.problems:
        return None
    papers = dict.fromkeys(row.entry.paper for row in ledger.rows)
    results: list[Coverage] = []
    for paper in papers:
        n = auditing.counts([row for row in ledger.rows if row.entry.paper == paper])
        results.append(
            {
                "paper": paper,
                "verified": n["verified"],
                "corrected": n["corrected"],
                "not_executable": n["not executable"],
                "open": n["open"],
            }
        )
    return results


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
