"""How far the programs of other libraries are from the truth, and from the same method of `fast`.

Each program is asked every built-in problem with a truth that it can pose. Libraries run in processes of their own: two
of them may bring shared objects that do not bear one another.
"""

from __future__ import annotations

import csv
import io
import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from validation.door import storage
from validation.door.quoting import shown
from validation.judge.judging import LIMIT, Session
from validation.judge.posing import posed, questions_for
from validation.judge.verdict import Case
from validation.peers import Program, programs
from validation.truth import store
from validation.truth.approximations import distance

FILE = "league.csv"
LARGEST = 60  # data of a problem

VERDICTS = ("agrees", "differs", "fails", "refuses")


class Row(NamedTuple):
    """One program on one problem; NaN where one side does not have the quantity.

    bias ... overconfidence    from the truth, as `validation.truth.approximations.Distance`
    apart, quantity            largest relative difference from the same method of `fast`, and in what; NaN without one
    verdict                    "agrees" with `fast` to LIMIT (with the truth within its band, for a method of its own),
                               "differs", "fails" (no answer, or one that is none), "refuses"
    why                        what the program said, the first usual suspect, or what a band means; "" if none is known
    """

    library: str
    version: str
    program: str
    method: str
    problem: str
    likelihood: str
    n: int
    n_classes: int
    bias: float
    variance_ratio: float
    log_z_error: float
    excess_nll: float
    overconfidence: float
    apart: float
    quantity: str
    verdict: str
    why: str
    seconds: float


_MEASURES = ("bias", "variance_ratio", "log_z_error", "excess_nll", "overconfidence")


def measured(program: Program, name: str) -> Row:
    """One program on one built-in problem, by name."""
    (method,) = program.methods
    session = Session(program, method, name, LIMIT)
    p = session.problem
    began = time.perf_counter()
    cases = list(session.cases())
    seconds = time.perf_counter() - began
    values: dict[str, Any] = dict.fromkeys(_MEASURES, math.nan)
    apart, quantity = math.nan, ""
    if session.solution is not None:
        values = distance(session.solution, session.opponents()[-1])
        same = [case.row for case in cases if case.row.kind == "identity" and math.isfinite(case.row.observed)]
        if same:
            worst = max(same, key=lambda row: row.observed)
            apart, quantity = worst.observed, worst.quantity
    verdict, why = _verdict(session, cases)
    return Row(
        program.library, program.version(), program.name, method, name, p.likelihood, p.n, p.n_classes,
        **values, apart=apart, quantity=quantity, verdict=verdict, why=why, seconds=seconds,
    )  # fmt: skip


def _verdict(session: Session, cases: Sequence[Case]) -> tuple[str, str]:
    if session.refusal:
        return "refuses", session.refusal
    if session.solution is None:
        return "fails", next(case.row.why for case in cases)
    known = any(case.row.kind == "identity" for case in cases)
    # of a method that `fast` has, the distance from the truth is that method's own: `fast` has it too
    wrong = [case for case in cases if case.row.verdict in ("FAIL", "INEXACT")]
    failed = [case for case in wrong if not known or case.row.kind == "identity"]
    failed = [case for case in failed if case.row.kind != "invariance"]
    if not failed:
        return "agrees", ""
    for told in session.suspects(failed):
        if told.ranked:
            return "differs", told.ranked[0].text
    return "differs", "" if known else failed[0].row.why


def questions(program: Program, only: Iterable[str] = ()) -> tuple[str, ...]:
    """The problems that a program is asked, smallest first."""
    (asked,) = questions_for(program, largest=LARGEST)
    fitting = tuple(name for name in asked.problems if name in store.RECIPES or posed(name).n <= 2)
    chosen = tuple(only)
    if foreign := [name for name in chosen if name not in fitting]:
        raise ValueError(f"problem: found {', '.join(foreign)}, expected some of {', '.join(fitting)}")
    return chosen or fitting


def measure(
    libraries: Iterable[str], listen: Callable[[str], object] = lambda _: None, path: Path | None = None
) -> tuple[Row, ...]:
    """Ask the programs of libraries that are installed and put their rows in place of recorded ones.

    Each library's rows are on the disk before the next is asked; rows of libraries that are not installed stay.

    Parameters
    ----------
    libraries : iterable    names of `libraries()`
    listen : callable       called with a line before each library and for each that is not installed
    path : Path             of the table, league.csv of the package by default
    """
    rows = list(recorded(path))
    for library in libraries:
        mine = [program for program in programs() if program.library == library]
        there = [program.name for program in mine if program.installed()]
        if not there:
            listen(f"{library}: not installed")
            continue
        listen(f"{library}: {', '.join(there)}")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            fresh = pool.submit(_all_of, library).result()
        rows = [row for row in rows if row.library != library] + fresh
        write(rows, path)
    return recorded(path)


def _all_of(library: str) -> list[Row]:
    mine = [program for program in programs() if program.library == library and program.installed()]
    return [measured(program, name) for program in mine for name in questions(program)]


def libraries(wanted: Iterable[str] = ()) -> tuple[str, ...]:
    """Names of the libraries that have programs, or those wanted of them."""
    known = tuple(dict.fromkeys(program.library for program in programs()))
    chosen = tuple(wanted)
    if foreign := [name for name in chosen if name not in known]:
        raise ValueError(f"library: found {shown(foreign[0])}, expected one of {', '.join(known)}")
    return chosen or known


# -- the record ------------------------------------------------------------------------------------------------------


def recorded(path: Path | None = None) -> tuple[Row, ...]:
    """The rows of league.csv."""
    return _read(path or _path())


@cache
def _read(path: Path) -> tuple[Row, ...]:
    if not path.is_file():
        return ()
    types: dict[str, Callable[[str], Any]] = get_type_hints(Row)
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(Row(**{key: types[key](value) for key, value in row.items()}) for row in csv.DictReader(file))


def write(rows: Sequence[Row], path: Path | None = None) -> None:
    """Replace the table, atomically."""
    names = libraries()
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in sorted(rows, key=lambda row: (names.index(row.library), row.program, row.n, row.problem)):
        writer.writerow([f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split()) for value in row])
    storage.write_text(path or _path(), stream.getvalue())
    _read.cache_clear()


def _path() -> Path:
    return Path(str(resources.files("validation.peers"))) / FILE


# -- tables ----------------------------------------------------------------------------------------------------------

HEADER = ("program", "version", "method", "problems", "agrees", "differs", "fails", "bias", "variance", "log Z, nat",
          "excess NLL", "from fast")  # fmt: skip


def summary(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """A record for each program: how many problems, verdicts, medians of its distances, the largest from `fast`."""
    by_program: dict[str, list[Row]] = {}
    for row in rows:
        by_program.setdefault(row.program, []).append(row)
    records = []
    for program, mine in by_program.items():
        asked = [row for row in mine if row.verdict != "refuses"]
        counts = [str(sum(row.verdict == verdict for row in asked)) for verdict in VERDICTS[:3]]
        medians = [_median(asked, key) for key in ("bias", "variance_ratio", "log_z_error", "excess_nll")]
        apart = [row for row in asked if not math.isnan(row.apart)]
        worst = max(apart, key=lambda row: row.apart, default=None)
        last = "-" if worst is None else f"{worst.apart:.1g} ({worst.quantity}, {worst.problem})"
        records.append((program, mine[0].version, mine[0].method, str(len(asked)), *counts, *medians, last))
    return records


def largest(rows: Iterable[Row], count: int = 10) -> list[Row]:
    """The rows that are furthest from the same method of `fast`."""
    return sorted((row for row in rows if not math.isnan(row.apart)), key=lambda row: -row.apart)[:count]


FURTHEST = ("program", "problem", "quantity", "from fast", "first suspect")


def furthest(rows: Iterable[Row], count: int = 10) -> list[tuple[str, ...]]:
    """`largest` as records, with what would explain them."""
    return [
        (row.program, row.problem, row.quantity, f"{row.apart:.2g}", row.why or "none of the usual ones")
        for row in largest(rows, count)
    ]


def failures(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Programs that gave no answer: program, problem, what was raised."""
    return [(row.program, row.problem, row.why) for row in rows if row.verdict == "fails"]


def markdown(header: Sequence[str], records: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [tuple(header), tuple("---" for _ in header), *records]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _median(rows: Sequence[Row], key: str) -> str:
    values = [value for row in rows if not math.isnan(value := getattr(row, key))]
    return f"{np.median(values):.2g}" if values else "-"


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows as JSON has them, NaN as null."""
    return [
        {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row._asdict().items()}
        for row in rows
    ]
