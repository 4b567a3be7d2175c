"""Make the truths of the library that are missing, cheapest first; what misses its gates is told and not stored.

Gates: those of the route (`validation.truth.make.gate`), a second route that agrees, and for log Z a standard error of
at most 0.05 nat and two estimators that agree and share no code but what makes the prior's covariance. Where log Z or
its second estimator is out of reach the card says so, and the moments stand alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from validation.datasets.errors import DatasetNotFoundError
from validation.door import storage
from validation.door.solve import ImplementationError
from validation.jobs import run as jobs_run
from validation.jobs.job import Job
from validation.jobs.run import Engine
from validation.truth import library, shelf
from validation.truth.evidence import MOST_ERROR, agreement, mcse, routes_of
from validation.truth.library import ANNEALED, Posterior
from validation.truth.make import Pair, Request, Truth, make_pair

TARGET_ESS = 10_000.0
# seconds; what costs more is made by name or with --longest
LONGEST = 600.0
REFUSED = "refused.toml"
# beyond so many data the usual budget keeps fewer draws than the effective ones that are asked for
_MANY, _KEPT = 1000, 4_000_000_000


class Outcome(NamedTuple):
    """What came of one posterior: made, refused with the reason, later as the time was over, or without data."""

    name: str
    what: str
    line: str
    seconds: float


class Unit(NamedTuple):
    """One posterior to make, unless it is later than `until` (seconds since the epoch)."""

    name: str
    until: float | None


class Refused(NamedTuple):
    """A posterior that was tried and missed its gates: the problem it was, why, after how many seconds."""

    fingerprint: str
    reason: str
    seconds: float


def missing(pattern: Callable[[str], bool], longest: float, again: bool = False) -> list[Posterior]:
    """Posteriors that are neither made nor known to miss their gates, cheapest first."""
    tried = refused()
    return sorted(
        (
            p
            for p in library.posteriors().values()
            if pattern(p.name) and p.seconds <= longest and not shelf.is_made(p.name) and (again or p.name not in tried)
        ),
        key=lambda p: p.seconds,
    )


def make_all(chosen: Sequence[Posterior], engine: Engine, until: float | None = None) -> Iterator[Outcome]:
    """Make posteriors, each on the disk before it is told of; what misses its gates is written down in `refused.toml`.

    Whoever ends this goes on later: what is made is not missing any more.
    """
    # engines start with the costliest: the other way round an interrupted run has made the most
    jobs = [Job(p.name, Unit(p.name, until), -p.seconds) for p in chosen]
    with closing(jobs_run.run(work, jobs, engine)) as results:
        for done in results:
            if done.lost is not None:
                raise done.lost
            outcome: Outcome = done.value
            if outcome.what in ("made", "refused"):
                _write_down(outcome)
            yield outcome


def work(unit: Unit, hear: Callable[[Any], None]) -> Outcome:
    """The work of one job."""
    name = unit.name
    if unit.until is not None and time.time() > unit.until:
        return Outcome(name, "later", "the time was over", 0.0)
    if shelf.is_made(name):  # by another run, since this one began
        return Outcome(name, "made", "by another run meanwhile", 0.0)
    began = time.perf_counter()
    try:
        truth = make(name)
    except DatasetNotFoundError as error:
        return Outcome(name, "without data", " ".join(str(error).split()), 0.0)
    except (ImplementationError, ValueError, np.linalg.LinAlgError) as error:
        line = " ".join(str(error).split())
        return Outcome(name, "refused", f"{type(error).__name__}: {line}", time.perf_counter() - began)
    seconds = time.perf_counter() - began
    reason = against(truth)
    if reason:
        return Outcome(name, "refused", reason, seconds)
    shelf.save(name, truth)
    return Outcome(name, "made", f"{truth.card.route}; {truth.card.evidence_note}", seconds)


def make(name: str, seed: int = library.SEED) -> Truth:
    """A truth of the library in memory, with the card that its gates are read from.

    seed    of the draws; the library's own is that of every truth that ships
    """
    posterior, problem = library.get(name), library.question(name)
    second, options = _routes(posterior)
    began = time.perf_counter()
    pair = make_pair(
        problem,
        posterior.route,
        Request(
            target_ess=TARGET_ESS,
            seed=seed,
            second=second,
            second_ess=0.2 * TARGET_ESS,
            options=options,
        ),
    )
    seconds = time.perf_counter() - began
    routes = evidence_routes(pair)
    card = replace(
        pair.truth.card,
        problem_sha256=library.fingerprint(problem),
        recipe=posterior.recipe(),
        seconds=round(seconds, 2),
        mcse=mcse(pair.truth.solution),
        evidence=routes,
        **_agreement(routes, posterior),
    )
    return Truth(pair.truth.solution, card)


def _routes(posterior: Posterior) -> tuple[str | None, Mapping[str, Any]]:
    """The second route (None: the best there is), and options of the first: those that give log Z by two routes."""
    p = posterior
    if p.learn:
        return "none", MappingProxyType({"learn": list(p.learn)})
    chains = "gibbs-threshold-evidence" if p.likelihood == "threshold" else "gibbs-probit-evidence"
    if p.route == "quadrature":
        return ("gibbs-logit" if p.likelihood == "logit" else "exact-probit"), MappingProxyType({})
    if p.route == "exact-probit":
        return chains, MappingProxyType({})
    if p.route == "gibbs-logit":
        # annealed particles take minutes beyond some forty data
        options: dict[str, Any] = {"evidence": "all" if p.n <= ANNEALED else "chains"}
        if p.n > _MANY:
            options["max_kept_bytes"] = _KEPT
        return "gibbs-logit-plain", MappingProxyType(options)
    if p.route == "mh-softmax":
        return "mh-softmax-ellipse", MappingProxyType({"evidence": "all"})
    if p.route == "gibbs-threshold":
        return "gibbs-threshold-both", MappingProxyType({"evidence": "all", "target_error": 0.02})
    return None, MappingProxyType({"evidence": "all", "target_error": 0.02})


# -- log Z -----------------------------------------------------------------------------------------------------------


def evidence_routes(pair: Pair) -> dict[str, tuple[float, float, int]]:
    """log Z by every route of both sides: value, standard error, and whether the route trusts its own error (0, 1)."""
    routes: dict[str, tuple[float, float, int]] = {}
    for solution in (pair.first, pair.second):
        if solution is not None:
            routes |= routes_of(solution)
    return routes


def _agreement(routes: Mapping[str, Sequence[float]], posterior: Posterior) -> dict[str, Any]:
    """Fields of the card about log Z."""
    why = "its parameters are sampled" if posterior.learn else "no route gives it"
    return agreement(routes, why, f"no second route is sure to {MOST_ERROR} nat")


# -- gates -----------------------------------------------------------------------------------------------------------


def against(truth: Truth) -> str:
    """Why a truth is not stored, or nothing."""
    card = truth.card
    if card.gate != "met":
        return f"gate not met: {card.gate_reason}"
    if card.second_z is not None and card.second_limit is not None and not card.second_z <= card.second_limit:
        return f"{card.second_route} disagrees: |z| {card.second_z:.2f}, limit {card.second_limit:.2f}"
    if not card.agrees:
        return f"routes to log Z disagree: |z| {card.evidence_z:.2f}, limit {card.evidence_limit:.2f}"
    return ""


# -- what was tried in vain ------------------------------------------------------------------------------------------


def refused() -> Mapping[str, Refused]:
    """Posteriors that missed their gates when they were made of today's problem."""
    import tomllib

    path = shelf.folder() / REFUSED
    if not path.is_file():
        return {}
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = {name: Refused(**row) for name, row in table.items()}
    return {name: row for name, row in rows.items() if library.fingerprints().get(name) == row.fingerprint}


def _write_down(outcome: Outcome) -> None:
    rows = {**refused()}
    before = rows.pop(outcome.name, None)
    if outcome.what == "refused":
        rows[outcome.name] = Refused(library.fingerprints()[outcome.name], outcome.line, round(outcome.seconds, 1))
    elif before is None:
        return
    lines = ["# Posteriors of the library that missed their gates; made by `triad truth make '*'`, not by hand."]
    for name, row in sorted(rows.items()):
        values = ", ".join(f"{key} = {_text(value)}" for key, value in row._asdict().items())
        lines.append(f'"{name}" = {{ {values} }}')
    storage.write_text(shelf.folder() / REFUSED, "\n".join([*lines, ""]))


def _text(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
