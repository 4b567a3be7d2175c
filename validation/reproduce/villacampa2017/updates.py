"""villacampa2017, section 2.3 and appendix E: parallel updates against sequential ones, and the outer schedule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from validation.datasets.splits import standardise
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.solve import solve
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, surely
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.villacampa2017 import fig1, setting, uci


def decide(
    parallel: Sequence[float], sequential: Sequence[float], first: Sequence[float], last: Sequence[float]
) -> list[Decided]:
    """What the text says, from logarithms of seconds, a repetition each."""
    return [
        surely("parallel-faster", "log seconds to the same fixed point of EP, parallel less sequential",
               parallel, sequential),
        surely("outer-inefficient-at-start", "log seconds of an update of the outer schedule, its last fifth less "
               "its first", last, first),
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class UpdatesOptions:
    """Options of `updates`."""

    dataset: str = "vehicle"
    n: int = 150
    fraction: float = 0.1
    n_run: int = 5
    n_steps: int = 60
    rate: float = 0.01
    damping: float = 0.5
    tolerance: float = 1e-4
    seed: int = 0


@experiment(
    "villacampa2017",
    "updates",
    "seconds of parallel and of sequential updates, and of the updates of the outer schedule",
    "parallel updates are faster than sequential ones; EP to convergence before each step of the hyper-parameters "
    "takes longest at first (appendix E, section 2.3)",
)
def updates(asked: UpdatesOptions, say: Say) -> Outcome:
    """EP at the start of training by both schedules, and a training by the outer one, on n_run random parts."""
    full = uci.load(asked.dataset, asked.seed)
    rows: list[tuple[object, ...]] = []
    result: dict[str, list[float]] = {"parallel": [], "sequential": [], "first": [], "last": []}
    for k in range(arguments.integer(asked.n_run, "n_run", at_least=2)):
        data = setting.smaller(full, arguments.integer(asked.n, "n", at_least=20), asked.seed + k)
        (X,) = standardise(data.X)
        m = setting.share(asked.fraction, data.n)
        prior = setting.start(X, m, data.n_classes, asked.seed + k)
        problem = Problem(
            asked.dataset, X, data.y, data.n_classes, "threshold", *prior[:4], Z=prior.Z, prior_model="fitc"
        )
        for schedule, damping in (("parallel", asked.damping), ("sequential", 1.0)):
            began = time.process_time()
            answer = solve("fast", "ep", problem, schedule=schedule, damping=damping, tolerance=asked.tolerance,
                           gradients=False)  # fmt: skip
            taken = time.process_time() - began
            result[schedule].append(float(np.log(taken)))
            rows.append((k + 1, schedule, taken, answer.iterations, answer.log_evidence))
        scheduled = fig1.run_schedule_comparison(
            X, data.y, prior, schemes=("outer",), n_steps=asked.n_steps, rate=asked.rate, tolerance=1e-3,
            max_iterations=500, damping=asked.damping, clock=time.process_time,
        )["outer"]  # fmt: skip
        each = np.diff(np.concatenate([[0.0], scheduled.seconds]))
        count = max(each.size // 5, 1)
        for name, some in (("first", each[:count]), ("last", each[-count:])):
            result[name].append(float(np.log(some.mean())))
            rows.append((k + 1, f"outer, {name} {count} updates", float(some.mean()), None, None))
        say(", ".join(f"{name} {np.exp(values[-1]):.3g} s" for name, values in result.items()))
    return Outcome(
        {"data": asked.dataset, "n": asked.n, "damping": asked.damping, "tolerance": asked.tolerance,
         "seed": asked.seed},
        (
            Table(
                "updates",
                ("repetition", "updates", "seconds", "sweeps", "log Z"),
                tuple(rows),
                "Processor seconds to the fixed point of EP, and of an update of the outer schedule",
            ),
            decisions.table(decide(**result), "What section 2.3 and appendix E say"),
        ),
        (),
        (
            f"{asked.n_run} random parts of {asked.n} rows; the paper names no data",
            f"parallel sweeps are damped by {asked.damping:g}, sequential ones need no damping",
            f"outer: {asked.n_steps} updates; an update's seconds are in the place of its sweeps",
        ),
    )  # fmt: skip
