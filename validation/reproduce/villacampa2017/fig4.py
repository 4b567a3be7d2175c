"""villacampa2017, section 4.3, Fig. 4 and 6: test scores against training time on Satellite, in batches of all data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validation.door import arguments
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option, rows_taken
from validation.reproduce.villacampa2017 import setting, uci
from validation.screen import figures

Array = NDArray[np.float64]


@equation("villacampa2017", "u38-time-protocol")
def training_time_experiment(
    plan: uci.Plan,
    method: str,
    *,
    n_steps: int | None = None,
    rate: float | None = None,
    tolerance: float = 1e-3,
    damping: float = 0.5,
    growth: float = 1.3,
    budget: float = np.inf,
    vi_optimizer: str = "lbfgs",
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> setting.Course:
    """Test error and negative log-likelihood along one batch training run: villacampa2017, section 4.3, Fig. 4 and 6.

    Training is that of section 4.1; the scoring is not counted.

    Parameters
    ----------
    plan : Plan             split and number of inducing points
    method : str            gfitc, ep, sep or vi-robust
    n_steps : int           iterations; None: the paper's
    rate : float            of the first step of adaptive rates
    tolerance, damping      of EP where it is run to convergence
    growth : float          > 1: scores after the first step, when training time has grown by this factor, at the end
    budget : float          seconds of training
    vi_optimizer : str      of vi-robust: "lbfgs" or "adam"
    seed : int              of the inducing points at the start
    clock : callable        seconds
    """
    n_classes = int(max(plan.y.max(), plan.y_test.max())) + 1
    prior = setting.start(plan.X, plan.n_inducing, n_classes, seed)
    steps = plan.n_steps if n_steps is None else n_steps
    training = setting.training_of(method, steps, rate, tolerance, vi_optimizer)._replace(damping=damping)
    watch = setting.Watch((plan.X_test, plan.y_test), growth, budget, evaluate=False, clock=clock)
    result = setting.train(method, plan.X, plan.y, prior, training, watch)
    assert result.course is not None  # test rows were given
    return result.course


def averaged(courses: Sequence[setting.Course], field: str, seconds: Array) -> Array:
    """Mean over runs of the last score before each time; NaN until the slowest run has one."""
    values = np.full((len(courses), seconds.size), np.nan)
    for row, course in zip(values, courses, strict=True):
        place = np.searchsorted(course.seconds, seconds, side="right") - 1
        row[place >= 0] = getattr(course, field)[place[place >= 0]]
    mean: Array = values.mean(axis=0)
    return mean


def times_of(courses: Sequence[setting.Course], count: int) -> Array:
    """`count` times in geometric steps from where every run has a score to the end of the longest."""
    first = max(float(course.seconds[0]) for course in courses)
    last = max(float(course.seconds[-1]) for course in courses)
    return np.geomspace(max(first, 1e-9), max(last, first, 1e-9), count)


def _area(course: setting.Course, field: str, seconds: Array) -> float:
    """Mean of a score over the logarithm of time; before its first one a run has that."""
    place = np.maximum(np.searchsorted(course.seconds, seconds, side="right") - 1, 0)
    return float(np.asarray(getattr(course, field))[place].mean())


def reached(course: setting.Course, level: float) -> int:
    """The place of the first score of a course that is at most a level; its last one where none is."""
    outcome = np.flatnonzero(course.nll <= level)
    return int(outcome[0]) if outcome.size else course.nll.size - 1


def decide(runs: Mapping[int, Mapping[str, Sequence[setting.Course]]]) -> list[Decided]:
    """What section 4.3 says of Fig. 4 and 6, from courses by m and method, two repetitions or more of all four."""
    best: list[Decided] = []
    alike: list[Decided] = []
    of_vi: list[Decided] = []
    errors: list[Decided] = []
    ratios = []
    for m, every in runs.items():
        grid = times_of([course for courses in every.values() for course in courses], 40)

        def area(method: str, field: str, every=every, grid=grid) -> list[float]:  # type: ignore[no-untyped-def]
            return [_area(course, field, grid) for course in every[method]]

        def steps(method: str, every=every) -> list[float]:  # type: ignore[no-untyped-def]
            return [float(np.log(c.iteration[reached(c, c.nll[-1] + 0.02)] + 1.0)) for c in every[method]]

        for rival in ("gfitc", "vi-robust"):
            text = f"m = {m}: mean over log time, SEP less {setting.NAMES[rival]}, of the"
            best.append(surely("fig4-sep-best", f"{text} nll", area("sep", "nll"), area(rival, "nll")))
            errors.append(surely("fig6-errors", f"{text} error", area("sep", "error"), area(rival, "error")))
        gap = abs(float(np.mean([a.nll[-1] - b.nll[-1] for a, b in zip(every["ep"], every["sep"], strict=True)])))
        alike.append(below("fig4-ep-equals-sep", f"m = {m}: distance of EP's and SEP's mean final nll", gap, 0.02))
        times = {
            method: [float(np.log(c.seconds[reached(c, c.nll[-1] + 0.02)])) for c in every[method]] for method in every
        }
        text = f"m = {m}: log time to the final nll + .02, SEP less GFITC"
        best.append(surely("fig4-faster-than-gfitc", text, times["sep"], times["gfitc"]))
        for method in ("ep", "sep"):
            text = f"m = {m}: log steps to the final nll + .02, {setting.NAMES[method]} less VI"
            of_vi.append(surely("converges-in-fewer", text, steps(method), steps("vi-robust")))
        of_vi.append(surely("fig4-vi-small-m", f"m = {m}: log steps to the final nll + .02, SEP less VI",
                            steps("sep"), steps("vi-robust")))  # fmt: skip
        a_step = {method: np.mean([c.seconds[-1] / c.iteration[-1] for c in every[method]]) for method in every}
        ratios.append(float(a_step["vi-robust"] / a_step["sep"]))
        rises = {field: float(np.mean([getattr(c, field)[-1] - getattr(c, field).min() for c in every["vi-robust"]]))
                 for field in ("nll", "error")}  # fmt: skip
        errors += [
            above("fig6-errors", f"m = {m}: rise of VI's nll after its lowest", rises["nll"], 0.02),
            below("fig6-errors", f"m = {m}: rise of VI's error after its lowest", rises["error"], 0.005),
        ]
    text = f"time of a step, VI's over SEP's, at m = {max(runs)} and at m = {min(runs)}"
    of_vi.append(below("fig4-vi-small-m", text, ratios[-1], ratios[0]))
    return [*best, *alike, *of_vi, *errors]


@dataclass(frozen=True, kw_only=True)
class Fig4Options:
    """Options of `fig4`."""

    dataset: str = "satellite"
    m: Sequence[int] = option((4, 20), (4, 20, 100), "inducing points per class")
    methods: Sequence[str] = ("gfitc", "sep", "vi-robust")
    n_max: int = 2000
    n_run: int = option(2, 100, "repetitions")
    n_steps: int = 250
    n_steps_lbfgs: int = 250
    budget: float = option(10.0, np.inf, "seconds after which a run ends")
    rate: float = 0.01
    tolerance: float = 1e-3
    vi_optimizer: str = "lbfgs"
    seed: int = 0


@experiment(
    "villacampa2017",
    "fig4",
    "test log-likelihood and error against training time on Satellite",
    "SEP has the best scores at the lowest cost for every number of inducing points; GFITC waits for EP to converge; "
    "VI is slow with few inducing points, and its log-likelihood stays behind while its error does not (section 4.3, "
    "Fig. 4 and 6)",
    cells=lambda asked: len(asked.m) * len(asked.methods),
)
def fig4(asked: Fig4Options, say: Say) -> Outcome:
    """Of training alone are the seconds of a budget."""
    for method in asked.methods:
        arguments.choice(method, setting.METHODS, "methods")
    arguments.choice(asked.vi_optimizer, tuple(setting.VI), "vi_optimizer")
    full = uci.load(asked.dataset, asked.seed)
    data = setting.smaller(full, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed)
    plans = [
        uci.uci_protocol(data, 1.0, k, seed=asked.seed)
        for k in range(arguments.integer(asked.n_run, "n_run", at_least=1))
    ]
    summary: list[tuple[object, ...]] = []
    along: list[tuple[object, ...]] = []
    pictures = []
    runs: dict[int, dict[str, list[setting.Course]]] = {}
    for size in asked.m:
        lines: dict[str, list[figures.Curve]] = {"nll": [], "error": []}
        for method in asked.methods:
            steps = asked.n_steps_lbfgs if method in ("gfitc", "vi-robust") else asked.n_steps
            courses = [
                training_time_experiment(
                    plan._replace(n_inducing=arguments.integer(size, "m", at_least=1)), method, n_steps=steps,
                    rate=asked.rate if method in ("ep", "sep") else None, tolerance=asked.tolerance,
                    budget=asked.budget, vi_optimizer=asked.vi_optimizer, seed=k,
                )
                for k, plan in enumerate(plans)
            ]  # fmt: skip
            runs.setdefault(int(size), {})[method] = courses
            seconds = times_of(courses, 12)
            results = {field: averaged(courses, field, seconds) for field in lines}
            name = setting.NAMES[method]
            for field in lines:
                lines[field].append(figures.Curve(name, seconds, results[field]))
            along += [
                (size, name, float(t), float(nll), float(error))
                for t, nll, error in zip(seconds, results["nll"], results["error"], strict=True)
            ]
            ends = [(c.iteration[-1], c.seconds[-1], c.nll[-1], c.error[-1], c.nll.min()) for c in courses]
            mean = np.mean(ends, axis=0)
            summary.append((size, name, *(float(value) for value in mean)))
            say(f"m = {size}, {name}: nll {mean[2]:.3f}, error {mean[3]:.3f} after {mean[1]:.1f} s")
        with figures.style():
            panels = tuple(
                figures.curves(f"m = {size}: {title}", lines[field], "seconds of training", f"fig4-{size}-{field}")
                for field, title in (("nll", "negative log-likelihood"), ("error", "test error"))
            )
        pictures.append(
            Picture(f"{asked.dataset}, m = {size}", tuple(setting.NAMES[method] for method in asked.methods), panels)
        )
    notes = []
    notes += rows_taken(data, full, "n_max")
    notes.append(f"start: {setting.START}")
    notes.append("with L-BFGS a run is scored at the best point that it has seen")
    notes.append(setting.VI[asked.vi_optimizer])
    notes.append("Fig. 4 and 6 print no numbers")
    message: tuple[Table, ...] = ()
    if set(asked.methods) == set(setting.METHODS) and asked.n_run > 1 and len(asked.m) > 1:
        message = (decisions.table(decide(dict(sorted(runs.items()))), "What section 4.3 says of the curves"),)
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {plans[0].y.size}, {plans[0].y_test.size} test rows",
            "repetitions": asked.n_run,
            "optimisers": f"EP, SEP: adaptive rates from {asked.rate:g}, {asked.n_steps} steps; GFITC, VI: L-BFGS, "
            f"{asked.n_steps_lbfgs}",
            "seed": asked.seed,
        },
        (
            Table(
                "ends",
                ("m", "method", "iterations", "seconds", "nll", "error", "lowest nll"),
                tuple(summary),
                "At the end of the runs, averages over repetitions",
            ),
            Table("curves", ("m", "method", "seconds", "nll", "error"), tuple(along), "Averages along the runs"),
            *message,
        ),
        tuple(pictures),
        tuple(notes),
    )
