"""`triad truth make`: make a truth file with its evidence card, or the stored ones of the package again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from validation import problems
from validation.door import storage
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.jobs import run as jobs_run
from validation.jobs.job import HELP, Done, Job
from validation.jobs.processes import linear_algebra_threads
from validation.jobs.run import engine
from validation.jobs.store import Store
from validation.truth import store
from validation.truth.card import EvidenceCard
from validation.truth.make import MAX_DRAWS, ROUTES, Attempt, Truth, make_truth
from validation.truth.making import LONGEST

NOT_MET = 1


Method = Annotated[str | None, typer.Option("--method", metavar="NAME", help=f"one of {', '.join(ROUTES)}")]
TargetEss = Annotated[float, typer.Option("--target-ess", help="effective draws, the smallest over all")]
Seed = Annotated[int, typer.Option("--seed", min=0)]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="the .npz to write; the card goes beside it as .toml")
]
Second = Annotated[
    str | None,
    typer.Option("--second", metavar="ROUTE", help="the route to compare with, or none; by default the best there is"),
]
MaxDraws = Annotated[int, typer.Option("--max-draws", min=4, help="draws per chain at most")]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="ADDRESS", help=HELP)]


def make_one(
    problem: Annotated[
        str,
        typer.Argument(
            help="a .npz or the name of a problem; without --method a truth of the library, may have wildcards"
        ),
    ],
    method: Method = None,
    target_ess: TargetEss = 10_000,
    seed: Seed = 0,
    output: Output = None,
    second: Second = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="of the library: processes")] = 1,
    longest: Annotated[
        float, typer.Option("--longest", help="of the library: skip truths whose estimated time exceeds this (seconds)")
    ] = LONGEST,
) -> None:
    """Make a truth file with its evidence card, or missing truths of the library.

    Exits 1 if the gate is not met or the second route disagrees.
    """
    if method is not None:
        truth(problem, method, target_ess, seed, output, second)
        return
    if output is not None or second is not None:
        raise typer.BadParameter("--method: found none with --output or --second, expected one of them")
    from validation.command.truths import truths

    truths(make=True, only=problem, jobs=jobs, longest=longest)


def truth(
    problem: Annotated[
        str | None,
        typer.Argument(help="a .npz written by Problem.save, or the name of a built-in problem or of a stored truth"),
    ] = None,
    method: Method = None,
    target_ess: TargetEss = 10_000,
    seed: Seed = 0,
    output: Output = None,
    second: Second = None,
    max_draws: MaxDraws = MAX_DRAWS,
    stored: Annotated[
        bool, typer.Option("--stored", help="make the stored truths again: the one named, or all of them")
    ] = False,
    cluster: Cluster = None,
) -> None:
    """Make a truth file with its evidence card; exit 1 if the gate is not met or the second route disagrees."""
    console, errors = _plain(), Console(stderr=True)
    if stored:
        if method is not None or output is not None or second is not None:
            raise typer.BadParameter("--stored: found --method, --second or --output, expected none: recipes have them")
        chosen = store.names() if problem is None else (problem,)
        for name in chosen:
            store.question(name)
        certified = True
        work = [Job(name, Asked(store.question(name), name), float(store.question(name).n)) for name in chosen]
        for done in _made(work, cluster, store.folder(), errors):
            done.value.save(store.folder() / f"{done.job.name}.npz")
            store.load.cache_clear()
            certified &= done.value.card.certified
            console.print(summary(done.value.card), soft_wrap=True)
        raise typer.Exit(int(not certified))
    if problem is None or method is None:
        raise typer.BadParameter("found no problem or no --method, expected both (or --stored)")
    path = Path("truth.npz") if output is None else output
    if path.suffix != ".npz":
        raise typer.BadParameter(f"--output: found {shown(path.name)}, expected a name that ends in .npz")
    asked = _load(problem)
    storage.check_writable(path)
    storage.check_writable(path.with_suffix(".toml"))
    options = {"target_ess": target_ess, "seed": seed, "second": second, "max_draws": max_draws}
    unit = Asked(asked, method=method, options=tuple(options.items()))
    for done in _made([Job(asked.name, unit)], cluster, path.parent, errors):
        made = done.value
        made.save(path)
    console.print(describe(made))
    console.print(f"{path}, {path.with_suffix('.toml')}", soft_wrap=True)
    if made.card.gate != "met":
        console.print(f"gate not met: {made.card.gate_reason}", soft_wrap=True)
    if not made.card.agrees:
        console.print(f"the routes disagree: found |z| = {made.card.second_z:.2f}, expected at most "
                      f"{made.card.second_limit:.2f}", soft_wrap=True)  # fmt: skip
    raise typer.Exit(0 if made.card.certified else NOT_MET)


class Asked(NamedTuple):
    """One truth to be made: from its recipe, or by a method with the options of `make_truth`."""

    problem: Problem
    recipe: str | None = None
    method: str = ""
    options: tuple[tuple[str, Any], ...] = ()


class Seen(NamedTuple):
    """What the sampler itself tells while it runs, for a live bar."""

    state: Any


def make(unit: Asked, hear: Callable[[Any], None]) -> Truth:
    """The work of one job. Only a listener that asks for it is told of every sweep: states are large."""
    callback = (lambda state: hear(Seen(state))) if getattr(hear, "watches", False) else None
    if unit.recipe is not None:
        return store.made(unit.recipe, listen=hear, callback=callback)
    return make_truth(unit.problem, unit.method, **dict(unit.options), listen=hear, callback=callback)


def _made(work: list[Job], cluster: str | None, folder: Path, errors: Console) -> Iterator[Done]:
    """Truths as they are made: one after the other in this process, or on a cluster, kept until all are there."""
    kept = None if cluster is None else Store(folder / "truth-jobs", "truth", (Truth, Solution, EvidenceCard))
    # in this process linear algebra has the threads that it has; on a worker one
    how = {"jobs": 1, "threads": linear_algebra_threads()} if cluster is None else {}
    with engine(cluster, **how) as who, showing(errors) as (listen, callback):
        hear = _Both(listen, callback)
        with closing(jobs_run.run(make, work, who, store=kept, listen=hear)) as value:
            for done in value:
                if done.lost is not None:
                    raise done.lost
                yield done
    if kept is not None:
        kept.clear()


class _Both:
    """A listener for attempts and, where somebody watches, for the states of samplers."""

    def __init__(self, listen: Any, callback: Any) -> None:
        self.listen, self.callback, self.watches = listen, callback, callback is not None

    def __call__(self, event: Any) -> None:
        if isinstance(event, Seen):
            self.callback(event.state)
        else:
            self.listen(event)


def summary(card: EvidenceCard) -> str:
    """One line for a stored truth."""
    second = f"|z| {card.second_z:.2f} of {card.second_limit:.2f} against {card.second_route}" if card.second_z else ""
    return f"{card.problem}: {card.route}; gate {card.gate}; {second or 'no second route'}; {card.seconds:.1f} s"


def describe(made: Truth) -> Table:
    """A two-column table of the card and of log Z."""
    card = made.card
    table = Table("field", "value", box=None, title=f"truth of {card.problem}", title_justify="left")
    table.add_row("model", card.model)
    table.add_row("route", card.route)
    if made.solution.log_evidence is not None:
        error = made.solution.log_evidence_se
        table.add_row(
            "log evidence", f"{made.solution.log_evidence:.6f}" + ("" if error is None else f" ± {error:.2g}")
        )
    table.add_row("gate", f"{card.gate}: {card.gate_reason}")
    if card.second_z is not None and card.second_limit is not None:
        table.add_row("second route", card.second_route)
        verdict = "agrees" if card.agrees else "DISAGREES"
        numbers = f"largest |z| {card.second_z:.2f} of {card.second_count}, limit {card.second_limit:.2f}"
        table.add_row("", f"{verdict}: {numbers}")
    else:
        table.add_row("second route", "none")
    table.add_row("seed", str(card.seed))
    table.add_row("seconds", f"{card.seconds:.1f}")
    table.add_row("sha256", card.problem_sha256[:16] + "...")
    return table


@contextmanager
def showing(console: Console) -> Iterator[tuple[Any, Any]]:
    """(listener, callback) that show what runs: a live bar on a terminal, a plain line for each run elsewhere."""
    began = time.perf_counter()
    if not console.is_terminal:

        def line(attempt: Attempt) -> None:
            console.print(f"{time.perf_counter() - began:6.1f} s  {words(attempt)}", soft_wrap=True, highlight=False)
            sys.stderr.flush()

        yield line, None
        return
    columns = (BarColumn(24), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        asked = {"draws": 1}

        def listen(attempt: Attempt) -> None:
            asked["draws"] = max(1, attempt.n_draws)
            bar.update(task, completed=0, total=None, description=words(attempt).replace("[", r"\["))

        def callback(state: Any) -> None:
            if hasattr(state, "n_sweeps"):
                bar.update(task, completed=state.sweep, total=state.n_sweeps)
            elif hasattr(state, "n_draws"):
                bar.update(task, completed=min(state.n_draws, asked["draws"]), total=asked["draws"])

        yield listen, callback


def words(attempt: Attempt) -> str:
    """An attempt as a line."""
    if attempt.what == "second":
        return f"second route: {attempt.route}"
    if attempt.what == "extend":
        ess = "no ESS" if attempt.ess is None else f"ESS {attempt.ess:.0f}"
        r_hat = "" if attempt.r_hat is None else f", R-hat {attempt.r_hat:.4f}"
        return f"{attempt.route}: {attempt.n_draws} draws gave {ess}{r_hat}; once more with more"
    draws = f", {attempt.n_draws} draws" if attempt.n_draws else ""
    return f"{attempt.route}{draws}"


def _load(name: str) -> Problem:
    """A problem from a .npz, a built-in one by name, or that of a stored truth."""
    if name.endswith(".npz") or (name not in (*problems.names(), *store.names()) and Path(name).is_file()):
        return Problem.load(name)
    return store.question(name) if name in store.names() else problems.get(name)


def _plain() -> Console:
    return Console(markup=False, emoji=False, highlight=False)
