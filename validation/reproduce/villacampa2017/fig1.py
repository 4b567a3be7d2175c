"""villacampa2017, section 2.3, Fig. 1: log evidence against training time for three ways to learn with EP."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.priors import Prior
from validation import datasets
from validation.datasets.splits import standardise
from validation.door import arguments
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option, rows_taken
from validation.reproduce.villacampa2017 import setting
from validation.screen import figures

Array = NDArray[np.float64]
SCHEMES = ("outer", "inner-approximate", "inner-exact")
_NEAR = 0.02  # of the rise of log Z_q
NAMES = dict(zip(SCHEMES, ("EP-outer", "EP-inner-approx", "EP-inner-exact"), strict=True))


class Schedule(NamedTuple):
    """Log Z_q before each update, and seconds until then, for one scheme."""

    log_evidence: Array  # (r,) NaN where a cavity was no distribution
    seconds: Array  # (r,) of training, log Z_q itself not counted
    notes: tuple[str, ...]


@equation("villacampa2017", "u14-figure1-protocol")
def run_schedule_comparison(
    X: Array,
    y: NDArray[np.int64],
    prior: Prior,
    *,
    schemes: Sequence[str] = SCHEMES,
    n_steps: int = 250,
    rate: float | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
    damping: float = 0.5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Schedule]:
    """Log Z_q and time of every hyper-parameter update of EP under three schedules: villacampa2017, 2.3, Fig. 1.

    Each scheme is run twice from the same start, once for log Z_q and once for the time, which is thus that of an
    update without an evaluation of log Z_q.

    Parameters
    ----------
    X, y                 training rows; inputs standardised
    prior : Prior        where all schemes start, inducing points included
    schemes : names      outer (EP to convergence before each update by (10)), inner-approximate, inner-exact
    n_steps : int        updates; the paper: 250
    rate : float         of the first step, which then adapts
    tolerance : float    of EP in "outer"
    max_iterations : int sweeps of one run of EP in "outer"
    damping : float      of EP
    clock : callable     seconds
    """
    results = {}
    for scheme in schemes:
        arguments.choice(scheme, SCHEMES, "schemes")
        training = setting.Training(
            n_steps=n_steps, scheme=scheme, rate=rate, tolerance=tolerance, max_iterations=max_iterations,
            damping=damping,
        )  # fmt: skip
        told = setting.train("ep", X, y, prior, training, setting.Watch(trace=True, evaluate=False))
        timed = setting.train("ep", X, y, prior, training, setting.Watch(clock=clock, evaluate=False))
        notes = list(told.notes)
        short = int((told.residuals > tolerance).sum()) if scheme == "outer" else 0
        if short:
            notes.append(f"EP did not converge in {max_iterations} sweeps before {short} of {told.trace.size} updates")
        results[scheme] = Schedule(told.trace, timed.times[: told.trace.size], tuple(notes))
    return results


def _risen(schedule: Schedule) -> tuple[float, float]:
    """How far log Z_q has risen, and the log of the seconds until it is within a fiftieth of that from its end."""
    values = schedule.log_evidence
    rise = float(values[-1] - values[0])
    near = np.flatnonzero(~(values >= values[-1] - _NEAR * abs(rise)))
    first = min(int(near[-1]) + 1, values.size - 1) if near.size else 0
    return rise, float(np.log(max(schedule.seconds[first], 1e-6)))


def decide(repetitions: Sequence[Mapping[str, Schedule]]) -> list[Decided]:
    """What section 2.3 says of Fig. 1, times at 95 % over repetitions; needs two of them."""
    risen = [{scheme: _risen(one[scheme]) for scheme in SCHEMES} for one in repetitions]
    ends = [[float(one[scheme].log_evidence[-1]) for scheme in SCHEMES] for one in repetitions]
    rises = [max(each[scheme][0] for scheme in SCHEMES) for each in risen]
    spread = float(np.mean([np.ptp(end) / rise for end, rise in zip(ends, rises, strict=True)]))
    gap = [abs(end[1] - end[2]) / rise for end, rise in zip(ends, rises, strict=True)]
    _, approximate, exact = SCHEMES

    def times(scheme: str) -> list[float]:
        return [each[scheme][1] for each in risen]

    def whole(scheme: str) -> list[float]:
        return [float(np.log(one[scheme].seconds[-1])) for one in repetitions]

    return [
        above("fig1-all-maximise", "least rise of log Z_q over schedules and repetitions",
              min(each[scheme][0] for each in risen for scheme in SCHEMES), 0.0),
        below("fig1-all-maximise", "range of the three ends over the rise, mean", spread, _NEAR),
        *(surely("fig1-inner-faster", f"log time to a fiftieth of the rise from the end, {NAMES[scheme]} less EP-outer",
                 times(scheme), times("outer")) for scheme in (approximate, exact)),
        surely("fig1-approximate-gradient", "log time of all updates, approximate less exact gradient",
               whole(approximate), whole(exact)),
        below("fig1-approximate-gradient", "distance of their ends over the rise, mean", float(np.mean(gap)), _NEAR),
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fig1Options:
    """Options of `fig1`."""

    dataset: str = "vehicle"
    n: int = 200
    fraction: float = 0.2
    n_run: int = 1
    n_steps: int = option(60, 250, "updates")
    rate: float = 0.01
    tolerance: float = 1e-3
    max_iterations: int = 500
    damping: float = 0.5
    seed: int = 0


@experiment(
    "villacampa2017",
    "fig1",
    "log evidence against training time for three ways to learn with EP",
    "all three maximise log Z_q; updating factors and hyper-parameters together is more efficient than waiting for EP "
    "to converge, and the approximate gradient gives almost the same as the exact one, sooner (section 2.3, Fig. 1)",
    cells=lambda asked: asked.n_run * len(SCHEMES),
)
def fig1(asked: Fig1Options, say: Say) -> Outcome:
    """Each of n_run repetitions has rows and a start of its own; M = N/5 is the paper's."""
    full = datasets.load(arguments.string(asked.dataset, "dataset"))
    repetitions: list[dict[str, Schedule]] = []
    for k in range(arguments.integer(asked.n_run, "n_run", at_least=1)):
        data = setting.smaller(full, arguments.integer(asked.n, "n", at_least=10), asked.seed + k)
        (X,) = standardise(data.X)
        prior = setting.start(X, setting.share(asked.fraction, data.n), data.n_classes, asked.seed + k)
        one: dict[str, Schedule] = {}
        for scheme in SCHEMES:
            one |= run_schedule_comparison(
                X, data.y, prior, schemes=(scheme,), n_steps=asked.n_steps, rate=asked.rate, tolerance=asked.tolerance,
                max_iterations=asked.max_iterations, damping=asked.damping,
            )  # fmt: skip
            end = one[scheme]
            say(f"{k + 1}, {NAMES[scheme]}: log Z {end.log_evidence[-1]:.2f} after {end.seconds[-1]:.1f} s")
        repetitions.append(one)
    results = repetitions[0]
    rows = [_row(scheme, schedule, results) for scheme, schedule in results.items()]
    every = [
        (NAMES[scheme], k + 1, float(t), float(v))
        for scheme, schedule in results.items()
        for k, (t, v) in enumerate(zip(schedule.seconds, schedule.log_evidence, strict=True))
        if k % max(1, asked.n_steps // 20) == 0 or k == schedule.seconds.size - 1
    ]
    with figures.style():
        drawn = [figures.Curve(NAMES[s], each.seconds, each.log_evidence) for s, each in results.items()]
        panel = figures.curves(f"{asked.dataset}: log Z", drawn, "seconds of training", f"fig1-{asked.dataset}")
    notes = [f"{NAMES[scheme]}: {note}" for scheme, schedule in results.items() for note in schedule.notes]
    notes += rows_taken(data, full, "n")
    notes.append(f"start: {setting.START}")
    notes.append("log Z is taken before each update; Fig. 1 prints no numbers")
    message: tuple[Table, ...] = ()
    if asked.n_run > 1:
        notes.append(f"traces and summary are of the first of {asked.n_run} repetitions")
        message = (decisions.table(decide(repetitions), "What section 2.3 says of the figure"),)
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {data.n}, C = {data.n_classes}, d = {data.d}",
            "inducing points": prior.Z.shape[1],
            "updates": f"{asked.n_steps} by adaptive rates from {asked.rate:g}",
            "EP": f"damping {asked.damping:g}, tolerance {asked.tolerance:g} where it converges",
            "seed": asked.seed,
        },
        (
            Table(
                "summary",
                ("scheme", "updates", "log Z, first", "log Z, last", "highest", "seconds", "seconds to the lowest end"),
                tuple(rows),
                "Three schedules; the last column is when log Z first passes the lowest of their ends",
            ),
            Table("traces", ("scheme", "update", "seconds", "log Z"), tuple(every), "Along the runs, thinned"),
            *message,
        ),
        (Picture(f"EP on {asked.dataset}", tuple(NAMES[s] for s in results), (panel,)),),
        tuple(notes),
    )


def _row(scheme: str, schedule: Schedule, value: dict[str, Schedule]) -> tuple[object, ...]:
    values = schedule.log_evidence
    common = min(each.log_evidence[-1] for each in value.values())
    reached = np.flatnonzero(values >= common)
    when = float(schedule.seconds[reached[0]]) if reached.size else None
    return (
        NAMES[scheme], values.size, float(values[0]), float(values[-1]), float(np.nanmax(values)),
        float(schedule.seconds[-1]), when,
    )  # fmt: skip
