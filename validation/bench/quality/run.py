"""All fits that were asked for, as jobs: each is on the disk as soon as it is known and is not run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from validation.bench.quality import data, fit, programs, table
from validation.bench.quality.fit import Fit, Unit
from validation.door.quoting import shown
from validation.jobs import place
from validation.jobs import run as jobs_run
from validation.jobs.job import Job
from validation.jobs.run import Engine
from validation.jobs.store import Store

_GRACE = 120.0  # seconds of the clock that a process has beyond its budgets: loading, predicting, a busy machine
_BUSY = 4.0  # how much longer than its processor time a fit may take on the clock


class Asked(NamedTuple):
    """What a table is of.

    programs, sets    names; empty: all
    rows              training rows at most
    folds, n_run      parts of a set, and how many of them are run
    budget            seconds of processor time for a fit
    seed              of folds and programs
    """

    programs: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    rows: int = 1500
    folds: int = 3
    n_run: int = 3
    budget: float = 300.0
    seed: int = 0

    @staticmethod
    def parts(folds: int | None, n_run: int | None) -> dict[str, int]:
        """`folds` and `n_run` as fields: all folds are run unless somebody says how many."""
        many = Asked().folds if folds is None else folds
        return {"folds": many, "n_run": many if n_run is None else n_run}


class Plan(NamedTuple):
    """The jobs of a table, and what it cannot have."""

    jobs: tuple[Job, ...]
    not_installed: tuple[str, ...]
    not_found: tuple[str, ...]


def plan(asked: Asked) -> Plan:
    """Jobs fold by fold, so that a run that is cut short has seen every set.

    Raises
    ------
    ValueError    naming what is unknown
    """
    chosen = asked.programs or programs.names()
    for name in chosen:
        if name not in programs.names():
            raise ValueError(f"--classifiers: found {shown(name)}, expected some of {', '.join(programs.names())}")
    if not 1 <= asked.n_run <= asked.folds:
        raise ValueError(f"--run: found {asked.n_run}, expected 1 to {asked.folds}, the folds")
    missing = tuple(name for name in chosen if not programs.installed(name))
    sets, not_found = data.reachable(asked.sets or data.SETS)
    if asked.sets and not_found:
        raise ValueError(
            f"--sets: found {', '.join(not_found)}, expected sets that are at hand (see `triad list data`)"
        )
    folds: list[data.Fold] = []
    for name in sets:
        folds += data.folds_of(name, folds=asked.folds, n_run=asked.n_run, rows=asked.rows, seed=asked.seed)
    folds.sort(key=lambda fold: fold.fold)
    jobs = [
        Job(f"{fold.name}-{fold.fold}-{name}", Unit(name, fold, asked.seed, asked.budget), 0.0,
            _BUSY * asked.budget + _GRACE)
        for fold in folds
        for name in chosen
        if name not in missing and programs.takes(name, fold.n_classes)
    ]  # fmt: skip
    return Plan(tuple(jobs), missing, not_found)


def fits(jobs: Iterable[Job], engine: Engine, folder: Path, say: Callable[[Fit, bool], object]) -> Iterator[Fit]:
    """Fits as they get known, each on the disk by then; say is told of each, and whether it was there before.

    A process that did not answer is a fit that was cut, and as well known as any other.
    """
    store = Store(folder / "jobs", table.SCHEMA, (Fit,))
    with closing(jobs_run.run(fit.work, tuple(jobs), engine, store=store)) as answers:
        for done in answers:
            if done.lost is not None:
                done = replace(done, value=fit.lost(done.job.unit, done.seconds), place=place.here(), lost=None)
                store.write(done)
            say(done.value, done.stored)
            yield done.value


def card(asked: Asked, what: Plan, count: int) -> dict[str, Any]:
    """What a reader needs to make the table again."""
    import sklearn

    from validation.jobs.place import commit

    where = place.here()
    return {
        "fits": count,
        "rows": asked.rows,
        "test_rows": data.TEST_ROWS,
        "folds": asked.folds,
        "n_run": asked.n_run,
        "budget": asked.budget,
        "seed": asked.seed,
        "not_installed": list(what.not_installed),
        "not_found": list(what.not_found),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "linear_algebra": where.kernel,
        "versions": dict(where.versions) | {"scikit-learn": sklearn.__version__},
    }
