"""Make truths a second time from a fresh seed, and hold each against the one that ships.

A truth is made from one seed, so a second run of its recipe gives the same digits and tells nothing. With another seed
the draws are others: what is stored and what is made now differ by their standard errors alone, entry by entry, if
neither the machine, the versions nor the program have changed what they mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from validation.datasets.errors import DatasetNotFoundError
from validation.door.solution import Solution
from validation.door.solve import ImplementationError
from validation.door.statistics import LEVEL, QUANTITIES, same_evidence, z_statistics
from validation.jobs import run as jobs_run
from validation.jobs.job import Job
from validation.jobs.run import Engine
from validation.truth import making, shelf
from validation.truth.make import Truth

# what rounding adds to rules of quadrature that state smaller errors: kernels of BLAS sum in other orders
ROUNDING = 1e-9


class Unit(NamedTuple):
    """One posterior to make again with a seed of its own, unless it is later than `until` (seconds of the epoch)."""

    name: str
    seed: int
    until: float | None


class Remade(NamedTuple):
    """What a second making gave.

    what      "agrees", "differs", "refused" (it missed its own gates), or "later" (the time was over)
    worst     largest |z| over all entries, or gap over stated error where both are exact; NaN unless compared
    limit     of worst, for so many `entries` at level `validation.judge.compare.LEVEL`
    where     quantity and entry of the worst, or why nothing was compared
    seconds   of the making
    """

    name: str
    what: str
    worst: float
    limit: float
    entries: int
    where: str
    seconds: float
    seed: int


def lot(names: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` of the names drawn without replacement; all of them if there are no more.

    Raises ValueError if there is no name.
    """
    if not names:
        raise ValueError("--remake: found no made truth that the filters admit, expected at least one")
    ordered = sorted(names)
    picks = np.random.default_rng(seed).choice(len(ordered), size=min(count, len(ordered)), replace=False)
    return [ordered[i] for i in picks]


def candidates(admits: Callable[[str], bool], longest: float) -> list[str]:
    """Made posteriors of the library that took at most `longest` seconds when they were made."""
    return [name for name in shelf.made() if admits(name) and shelf.card_of(name).seconds <= longest]


def remake_all(names: Sequence[str], seed: int, engine: Engine, until: float | None = None) -> Iterator[Remade]:
    """Make each again and compare; results come as they are done. Nothing stored is touched."""
    # a seed by name: another selection or order leaves each as it is
    units = [Unit(name, _seed(name, seed), until) for name in names]
    jobs = [Job(unit.name, unit, shelf.card_of(unit.name).seconds) for unit in units]
    with closing(jobs_run.run(work, jobs, engine)) as results:
        for done in results:
            if done.lost is not None:
                raise done.lost
            yield done.value


def _seed(name: str, seed: int) -> int:
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0])


def work(unit: Unit, hear: Callable[[Any], None]) -> Remade:
    """The work of one job."""
    if unit.until is not None and time.time() > unit.until:
        return _uncompared(unit, "later", "the time was over", 0.0)
    began = time.perf_counter()
    try:
        truth = making.make(unit.name, unit.seed)
        stored = shelf.load(unit.name)
    except DatasetNotFoundError as error:
        return _uncompared(unit, "later", " ".join(str(error).split()), 0.0)
    except (ImplementationError, ValueError, np.linalg.LinAlgError) as error:
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return _uncompared(unit, "refused", line, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    if reason := making.against(truth):
        return _uncompared(unit, "refused", reason, seconds)
    worst, limit, count, where = held(truth, stored)
    what = "agrees" if worst <= limit else "differs"  # a NaN differs
    return Remade(unit.name, what, worst, limit, count, where, seconds, unit.seed)


def _uncompared(unit: Unit, what: str, why: str, seconds: float) -> Remade:
    return Remade(unit.name, what, float("nan"), float("nan"), 0, why, seconds, unit.seed)


def held(new: Truth, stored: Truth) -> tuple[float, float, int, str]:
    """Largest statistic of the new truth against the stored one, its limit, how many there are, and which it is.

    Where a side has standard errors the statistic is |z|; where neither has, the gap over the sum of the errors that
    both rules of quadrature state, scaled to the limit.

    Raises ValueError if the two have no quantity in common.
    """
    left, right = new.solution, stored.solution
    parts: list[tuple[str, NDArray[np.float64], bool]] = []
    for name in QUANTITIES:
        if getattr(left, name) is None or getattr(right, name) is None:
            continue
        if name == "log_evidence" and same_evidence(left, right) is not None:
            continue
        statistics = z_statistics(left, right, name)
        if statistics is not None:
            parts.append((name, np.abs(statistics[0]), True))
        else:
            parts.append((name, _over_errors(left, right, name), False))
    if not parts:
        raise ValueError(f"{new.card.problem}: found no quantity that both makings have, expected at least one")
    count = sum(values.size for _, values, _ in parts)
    limit = float(-ndtri(0.5 * LEVEL / count))
    worst, where = -1.0, ""
    for name, values, random in parts:
        scaled = values if random else values * limit
        scaled = np.where(np.isnan(scaled), np.inf, scaled)
        entry = np.unravel_index(int(np.argmax(scaled)), scaled.shape)
        if scaled[entry] > worst:
            worst = float(scaled[entry])
            where = name if name == "log_evidence" else f"{name}[{', '.join(str(int(i)) for i in entry)}]"
    return worst, limit, count, where


def _over_errors(left: Solution, right: Solution, name: str) -> NDArray[np.float64]:
    """Gaps of an exact quantity over the sum of both stated errors, in units of its largest entry."""
    a, b = (np.atleast_1d(np.asarray(getattr(s, name), dtype=float)) for s in (left, right))
    stated = sum(float(s.settings.get(f"error_{name}", 0.0)) for s in (left, right))
    unit = max(1.0, float(np.abs(b).max(initial=0.0)))
    return np.asarray(np.abs(a - b) / ((stated + ROUNDING) * unit))
