"""Running chains: warm-up, thinning, running sums, progress, interruption, checkpoint and resume with identical draws.

A run is a start state, a step and a record. All chains advance together (leading axis r). Its memory is bounded: sums
go into a fixed number of batches (gibbs.chains.moments), kept draws into a budget (gibbs.chains.store).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gibbs.chains.checkpoint import fingerprint, read, write
from gibbs.chains.moments import Batches, BatchSums
from gibbs.chains.store import State, ThinnedStore
from gibbs.chains.warmup import FIRST, Watch
from gibbs.core.checks import file_name, shown
from gibbs.core.errors import _count
from gibbs.core.generators import restore, snapshot, spawn_generators
from gibbs.core.options import Chains, Stored
from gibbs.core.threads import one_thread

__all__ = [
    "Measures",
    "Plan",
    "Progress",
    "Record",
    "Run",
    "State",
    "Storage",
    "counts",
    "fingerprint",
    "run",
    "spawn_generators",
]

_BLOCK = 64  # draws handed over together at most
_BLOCK_BYTES = 32_000_000
_GROWTH = 1.2  # a run that is too short is lengthened by at least this factor, and at most doubled


class Progress(NamedTuple):
    """What a callback sees after every sweep."""

    sweep: int  # sweeps done, warm-up included
    n_sweeps: int  # sweeps in all as planned now: a warm-up by diagnostics or a target may lengthen the run
    n_kept: int  # draws so far, per chain
    seconds: float  # running time so far, earlier parts of a resumed run included


class Record(NamedTuple):
    """What one draw leaves behind."""

    kept: State  # each (r, ...): stored within the budget
    totals: State  # added up over the draws
    terms: State | None = None  # each (r, ...): handed to `accumulate` in blocks of draws


class Plan(NamedTuple):
    """How long a run is."""

    n_draws: int
    n_warmup: int | str  # or "auto"
    thin: int = 1
    target_ess: float | None = None
    max_draws: int | None = None
    max_warmup: int = 25_600

    @classmethod
    def of(cls, options: Chains) -> Plan:
        """As the options of a sampler have it; ValueError for fewer than four draws or limits below what they limit."""
        _count("n_draws", options.n_draws, 4)
        plan = cls(**{name: value for name, value in vars(options).items() if name in cls._fields})
        check_plan(plan)
        return plan


@dataclass(frozen=True)
class Storage:
    """What a run keeps: its checkpoint and its draws.

    checkpoint: an .npz file, written every checkpoint_every sweeps, at the end, and when the run is interrupted
    (KeyboardInterrupt and any exception of the callback pass through after the writing); if it exists already the run
    continues from it, with results identical bit by bit, also after a kill. mark: fingerprint of the run.
    max_kept_bytes: budget of the kept draws; when it is spent every second of them is let go (`Run.keep_every`).
    """

    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 1000
    mark: str = ""
    max_kept_bytes: int = 500_000_000

    @classmethod
    def of(cls, options: Stored, settings: Mapping[str, object], arrays: State) -> Storage:
        """As the options have it, for a run of these settings and arrays."""
        mark = fingerprint(settings, arrays)
        return cls(options.checkpoint, options.checkpoint_every, mark, options.max_kept_bytes)


@dataclass(frozen=True)
class Measures:
    """What is computed from states and draws while a run goes on.

    accumulate: makes sums (r, ...) over a block of the record's terms, arrays (k, r, ...); they end up in
    `Run.batches`. monitor: of a state, arrays (r, ...) in which an automatic warm-up compares the chains, default the
    kept ones. effective: effective draws of (kept draws, draws per kept draw), for a target.
    """

    accumulate: Callable[[State], State] | None = None
    monitor: Callable[[State], State] | None = None
    effective: Callable[[State, int], float] | None = None


class Run(NamedTuple):
    """A finished run."""

    kept: State  # each (r, s, ...)
    totals: State
    n_sweeps: int
    seconds: float
    n_draws: int  # draws per chain
    n_warmup: int  # sweeps
    keep_every: int  # draws per kept draw
    warmed_up: bool  # False: max_warmup was reached before the chains agreed
    target_reached: bool  # False: max_draws was reached before target_ess
    batches: Batches | None  # sums of what `accumulate` gave


def check_plan(plan: Plan) -> None:
    """ValueError for a plan with counts out of range or limits below what they limit."""
    _count("n_draws", plan.n_draws, 1)
    _count("thin", plan.thin, 1)
    if plan.n_warmup == "auto":
        _count("max_warmup", plan.max_warmup, FIRST)
    elif isinstance(plan.n_warmup, str):
        raise ValueError(f"n_warmup: found {shown(plan.n_warmup)}, expected an integer >= 0 or 'auto'")
    else:
        _count("n_warmup", plan.n_warmup, 0)
    if plan.target_ess is not None and not (np.isfinite(plan.target_ess) and plan.target_ess > 0):
        raise ValueError(f"target_ess: found {shown(plan.target_ess)}, expected a finite number > 0")
    if plan.target_ess is None and plan.max_draws is not None:
        raise ValueError(f"max_draws: found {shown(plan.max_draws)}, expected None without target_ess")
    if plan.max_draws is not None:
        _count("max_draws", plan.max_draws, plan.n_draws)


def counts(options: Any, plan: Plan) -> dict[str, object]:
    """What the options say of a run's draws, for its fingerprint.

    options: of a sampler, with n_chains, seed and max_kept_bytes; plan: how long the run is.
    """
    return {
        "n_chains": options.n_chains, "plan": [str(value) for value in plan], "seed": options.seed,
        "max_kept_bytes": options.max_kept_bytes,
    }  # fmt: skip


class _Course:
    """Everything a run has gathered; advanced by `take` after each sweep."""

    def __init__(
        self,
        plan: Plan,
        first: Record,
        max_kept_bytes: int,
        accumulate: Callable[[State], State] | None,
        effective: Callable[[State, int], float] | None,
    ) -> None:
        self.plan, self.accumulate, self.effective = plan, accumulate, effective
        self.limit = plan.n_draws  # draws after which the run is looked at
        longest = plan.n_draws if plan.target_ess is None else plan.max_draws or 100 * plan.n_draws
        self.longest = longest
        self.store = ThinnedStore(first.kept, longest, max_kept_bytes)
        self.totals = {name: np.zeros_like(value) for name, value in first.totals.items()}
        self.terms = {name: [] for name in first.terms or {}} if accumulate else {}  # type: dict[str, list[Any]]
        r = next(iter(first.kept.values())).shape[0]
        self.sums = BatchSums(r)
        size = sum(value.nbytes for value in (first.terms or {}).values())
        self.block = int(np.clip(_BLOCK_BYTES // max(size, 1), 1, _BLOCK))
        self.watch = Watch(plan.max_warmup) if plan.n_warmup == "auto" else None
        self.n_warmup = None if self.watch else int(plan.n_warmup)
        self.n_draws, self.n_pending, self.target_reached = 0, 0, plan.target_ess is None
        self.done = False

    @property
    def n_sweeps(self) -> int:
        """Sweeps in all as planned now."""
        warmup = self.n_warmup
        if warmup is None:
            assert self.watch is not None
            warmup = self.watch.end
        return warmup + self.limit * self.plan.thin

    def take(
        self, sweep: int, state: State, record: Callable[[State], Record], monitor: Callable[[State], State] | None
    ) -> None:
        if self.n_warmup is None:
            assert self.watch is not None
            if self.watch.add(sweep, record(state).kept if monitor is None else monitor(state)):
                self.n_warmup = sweep
            return
        if sweep <= self.n_warmup or (sweep - self.n_warmup) % self.plan.thin:
            return
        entry = record(state)
        self.n_draws += 1
        self.store.offer(self.n_draws, entry.kept)
        for name, value in entry.totals.items():
            self.totals[name] += value
        if self.terms:
            assert entry.terms is not None
            for name, value in entry.terms.items():
                self.terms[name].append(value)
            self.n_pending += 1
            if self.n_pending >= min(self.block, self.sums.room):
                self.sums.add(self._pending(), self.n_pending)
                self.terms, self.n_pending = {name: [] for name in self.terms}, 0
        if self.n_draws == self.limit:
            self._look()

    def _pending(self) -> State:
        assert self.accumulate is not None
        return self.accumulate({name: np.stack(values) for name, values in self.terms.items()})

    def _look(self) -> None:
        target = self.plan.target_ess
        if target is not None:
            assert self.effective is not None
            reached = self.effective(self.store.kept(), self.store.every)
            self.target_reached = bool(reached >= target)
            if not self.target_reached and self.n_draws < self.longest:
                factor = float(np.clip(1.1 * target / reached if reached > 0.0 else 2.0, _GROWTH, 2.0))
                self.limit = min(int(np.ceil(factor * self.n_draws)), self.longest)
                return
        self.done = True

    def finish(self, seconds: float) -> Run:
        assert self.n_warmup is not None
        batches = None
        if self.terms:
            batches = self.sums.batches(self._pending() if self.n_pending else None, self.n_pending)
        return Run(
            kept=self.store.kept(),
            totals=self.totals,
            n_sweeps=self.n_warmup + self.n_draws * self.plan.thin,
            seconds=seconds,
            n_draws=self.n_draws,
            n_warmup=self.n_warmup,
            keep_every=self.store.every,
            warmed_up=self.watch is None or self.watch.passed,
            target_reached=self.target_reached,
            batches=batches,
        )

    def arrays(self) -> State:
        """For a checkpoint."""
        warmup = -1 if self.n_warmup is None else self.n_warmup
        counts = [self.limit, warmup, self.n_draws, self.n_pending, int(self.target_reached), int(self.done)]
        out: State = {"counts": np.array(counts)}
        parts: dict[str, Mapping[str, Any]] = {"store": self.store.arrays(), "sums": self.sums.arrays()}
        parts["totals"] = self.totals
        parts["terms"] = {name: np.stack(values) for name, values in self.terms.items() if values}
        if self.watch is not None:
            parts["watch"] = self.watch.arrays()
        return out | {f"{part}.{name}": value for part, held in parts.items() for name, value in held.items()}

    def load(self, arrays: State) -> None:
        def part(prefix: str) -> State:
            return {name[len(prefix) + 1 :]: v for name, v in arrays.items() if name.startswith(prefix + ".")}

        self.limit, warmup, self.n_draws, self.n_pending, reached, done = (int(k) for k in arrays["counts"])
        self.n_warmup = None if warmup < 0 else warmup
        self.target_reached, self.done = bool(reached), bool(done)
        self.store.load(part("store"))
        self.sums.load(part("sums"))
        self.totals = part("totals")
        terms = part("terms")
        self.terms = {name: list(terms[name]) if name in terms else [] for name in self.terms}
        if self.watch is not None:
            self.watch.load(part("watch"))


@one_thread
def run(
    start: State,
    step: Callable[[State, Mapping[str, np.random.Generator]], State],
    record: Callable[[State], Record],
    rngs: Mapping[str, np.random.Generator],
    plan: Plan,
    *,
    measures: Measures = Measures(),
    storage: Storage = Storage(),
    callback: Callable[[Progress], object] | None = None,
) -> Run:
    """Advance all chains by n_warmup + n_draws · thin sweeps; every thin-th after the warm-up is a draw.

    start: arrays with leading axis r; step(state, rngs) returns a new state and leaves the old one alone;
    record(state) draws no random numbers. rngs: generators or streams by purpose (`gibbs.core.generators`).
    plan: its n_warmup "auto": after 100, 200, 400 ... sweeps, at most max_warmup, the chains are compared over the
    third and the last quarter (`gibbs.chains.warmup.Watch`); the warm-up ends when they agree, or unfinished at the
    limit (`Run.warmed_up`). Its target_ess: go on after n_draws until measures.effective reaches it, or until max_draws
    (default 100 n_draws; `Run.target_reached`). callback: called with a Progress after every sweep.
    measures, storage: what is computed on the way, and what is kept.

    Raises ValueError for counts out of range, for a budget below eight draws, and for a checkpoint that is
    unreadable, foreign or of another run.
    """
    check_plan(plan)
    checkpoint, mark, monitor = storage.checkpoint, storage.mark, measures.monitor
    _count("checkpoint_every", storage.checkpoint_every, 1)
    if plan.target_ess is not None and measures.effective is None:
        raise ValueError("effective: found None, expected a function where target_ess is given")
    course = _Course(plan, record(start), storage.max_kept_bytes, measures.accumulate, measures.effective)
    path = None if checkpoint is None else file_name("checkpoint", checkpoint)
    sweep, state, spent = 0, start, 0.0
    if path is not None and path.exists():
        arrays = read(path, mark)
        course.load({name[7:]: value for name, value in arrays.items() if name.startswith("course.")})
        restore(rngs, json.loads(str(arrays["generators"])))
        state = {name[6:]: value for name, value in arrays.items() if name.startswith("state.")}
        sweep, spent = int(arrays["sweep"]), float(arrays["seconds"])
    # the end of a sweep, in one name: an interruption inside the next one goes on from here
    last: tuple[int, State, dict[str, Any], float] = (sweep, state, {}, spent)
    began = time.perf_counter() - spent
    saved, whole = sweep, True

    def save() -> None:
        assert path is not None
        number, at, generators, seconds = last
        held = {"sweep": np.array(number), "seconds": np.array(seconds), "generators": np.array(json.dumps(generators))}
        held |= {f"state.{name}": value for name, value in at.items()}
        write(path, mark, held | {f"course.{name}": value for name, value in course.arrays().items()})

    try:
        while not course.done:
            state = step(last[1], rngs)
            whole = False  # what follows is undone by going back to the last file
            course.take(last[0] + 1, state, record, monitor)
            last = (last[0] + 1, state, snapshot(rngs) if path else {}, time.perf_counter() - began)
            whole = True
            if path is not None and last[0] - saved >= storage.checkpoint_every and not course.done:
                save()
                saved = last[0]
            if callback is not None:
                callback(Progress(last[0], course.n_sweeps, course.n_draws, last[3]))
    finally:
        if path is not None and whole and last[0] > saved:
            save()
    return course.finish(last[3])
