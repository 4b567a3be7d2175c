"""`triad mutate`: plant random mistakes in the witnesses and count how many of them the checks see."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from validation.checks import runner
from validation.jobs.job import HELP
from validation.jobs.processes import default_jobs
from validation.jobs.run import engine
from validation.mutation import baseline, cover, power, report, statements, suite, trial
from validation.mutation.trial import Outcome
from validation.quoting import shown
from validation.terminal import say

AGAINST = ("verify", "tests", "both")
CAUGHT = ("red", "crash")


def mutate(
    package: Annotated[
        list[str] | None, typer.Option("--package", help="fast, gibbs or reference; repeatable, all by default")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="how many statements to change, one at a time")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, help="of the draw: the same seed, the same mutants")] = 0,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="hold them against checks of this method only; repeatable")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="hold them against the checks of a full run")] = False,
    against: Annotated[
        str, typer.Option("--against", help="verify (the judge), tests (the suite of a checkout) or both")
    ] = "verify",
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="processes at once")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help=HELP)] = None,
    output: Annotated[Path, typer.Option("--output", help="folder of what is kept for the next run")] = Path(
        "results/mutants"
    ),
    record: Annotated[
        bool, typer.Option("--record", help="keep the rates beside the code, for README, docs and reports")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="print the recorded rates as Markdown and plant nothing")
    ] = False,
    price: Annotated[
        bool, typer.Option("--price", help="print what the seconds of a run buy, as Markdown, and plant nothing")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="write JSON, and nothing else, to stdout")] = False,
) -> None:
    """Plant mutants one at a time and see whether `triad verify` turns red; exit 1 if too few do.

    Against both, the test suite is asked about those that the judge has not seen. The healthy run and the outcomes
    are kept in the output folder, by a fingerprint of all code and of what was asked: an interrupted run goes on
    where it was, and a changed file starts anew.
    """
    if show:
        sys.stdout.write(power.markdown())
    if price:
        sys.stdout.write(power.markdown_of_price())
    if show or price:
        return
    packages = tuple(dict.fromkeys(package or statements.PACKAGES))
    for name in packages:
        if name not in statements.PACKAGES:
            raise typer.BadParameter(
                f"--package: found {shown(name)}, expected one of {', '.join(statements.PACKAGES)}"
            )
    if against not in AGAINST:
        raise typer.BadParameter(f"--against: found {shown(against)}, expected one of {', '.join(AGAINST)}")
    if record and (against != "verify" or method or full or set(packages) != set(statements.PACKAGES)):
        raise typer.BadParameter("--record: found it with part of the question, expected all packages against verify")
    if against != "verify" and (method or full):
        raise typer.BadParameter(f"--against: found {shown(against)} with --method or --full, expected verify")
    try:
        mutants = statements.draw(packages, n, seed)
        if against != "verify":
            suite.root()
    except ValueError as error:
        raise typer.BadParameter(f"--{error}") from error
    workers = default_jobs() if jobs is None else jobs
    errors = Console(stderr=True)
    known = report.known_equivalents()
    settings: dict[str, object] = {"packages": packages, "n": n, "seed": seed, "method": method or [], "full": full}
    outcomes: dict[str, Outcome] = {}
    code = []
    with engine(cluster, jobs=workers if cluster is None else jobs) as who:
        if against != "tests":
            selection = runner.select(full=full, method=method or [])
            folder = output / baseline.fingerprint(selection)
            healthy = baseline.measure(selection, folder, who, tell=partial(_tell, errors))
            ask = partial(trial.run, baseline=healthy, engine=who)
            outcomes = _outcomes(errors, mutants, ask, folder / _name(packages, seed))
            code.append(folder.name)
        if against != "verify":
            folder = output / suite.fingerprint()
            tests = suite.measure(folder, jobs=workers, tell=partial(_tell, errors))
            missed = [mutant for mutant in mutants if not outcomes or outcomes[mutant.name].state not in CAUGHT]
            ask = partial(suite.run, suite=tests, engine=who)
            observed = _outcomes(errors, missed, ask, folder / _name(packages, seed))
            outcomes |= {
                name: value
                for name, value in observed.items()
                if name not in outcomes or value.state != "never executed"
            }
            code.append(folder.name)
    groups = report.table(mutants, outcomes, known)
    settings |= {"against": against, "code": " ".join(code)}
    value = report.verdict(groups)
    if record:
        power.record(power.sample_of(settings, groups, cover.first_to_see(outcomes.values())), healthy)
    if as_json:
        sys.stdout.write(report.as_json(mutants, outcomes, groups, settings))
    else:
        _print(Console(), mutants, outcomes, groups, value, settings)
    raise typer.Exit(int(not value.met))


def _name(packages: tuple[str, ...], seed: int) -> str:
    """The file of outcomes of one draw; those of a smaller n are among them."""
    return f"outcomes-{'-'.join(packages)}-{seed}.jsonl"


def _tell(console: Console, text: str) -> None:
    say(console, text)


def _outcomes(
    errors: Console, mutants: list[statements.Mutant], ask: Callable[..., Iterator[Outcome]], path: Path
) -> dict[str, Outcome]:
    """Outcomes by name: those on disk, then the rest, each written as soon as it is known."""
    names = {mutant.name for mutant in mutants}
    done: dict[str, Outcome] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.endswith("}"):  # a run that was killed may leave half a line
                entry = Outcome(**json.loads(line))
                if entry.name in names:
                    done[entry.name] = entry
    columns = (
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=errors, transient=True) as bar, path.open("a", encoding="utf-8") as file:
        task = bar.add_task("mutants", total=len(mutants), completed=len(done))
        waiting = [mutant for mutant in mutants if mutant.name not in done]
        for outcome in ask(waiting):
            done[outcome.name] = outcome
            file.write(json.dumps(outcome.plain()) + "\n")
            file.flush()
            bar.update(task, advance=1, description=f"{outcome.state}: {outcome.name}")
    return done


def _print(
    console: Console,
    mutants: list[statements.Mutant],
    outcomes: dict[str, Outcome],
    groups: dict[str, report.Rates],
    verdict: report.Verdict,
    settings: dict[str, object],
) -> None:
    for state in ("survived", "never executed"):
        for mutant in mutants:
            if outcomes[mutant.name].state == state:
                name = f"{state}: {mutant.module}:{mutant.first} {mutant.function} ({mutant.area}, {mutant.operator})"
                say(console, name)
                console.print(mutant.diff, soft_wrap=True, highlight=False, markup=False)
    table = Table("", "drawn", "red", "crash", "survived", "never run", "equivalent", "caught", box=None)
    for name, row in groups.items():
        caught = f"{row.caught:.1%}" if row.judged else "-"
        counts = (row.drawn, row.red, row.crash, row.survived, row.never, row.equivalent)
        table.add_row(name, *(str(count) for count in counts), caught)
    console.print(table)
    say(
        console,
        f"N = {settings['n']}, seed {settings['seed']}, {', '.join(settings['packages'])}, "  # type: ignore[arg-type]
        f"code {settings['code']}{', full run' if settings['full'] else ''}, against {settings['against']}",
    )
    for line in verdict.missing:
        say(console, f"below the reach: {line}")
