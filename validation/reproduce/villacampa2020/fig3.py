"""villacampa2020, section 5.3 and appendix D, Fig. 3 and D.9: test scores against training time on Satellite."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from validation.door import arguments
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option, rows_taken
from validation.reproduce.villacampa2017.fig4 import averaged, times_of
from validation.reproduce.villacampa2020 import setting, uci
from validation.screen import figures

FIELDS = {"nll": "negative log-likelihood", "error": "test error"}


class Timed(NamedTuple):
    """Scores along one run; no course where the energy has no finite optimum."""

    course: setting.Course | None
    optimum: str  # "" or "none: why"
    notes: tuple[str, ...]


@equation("villacampa2020", "u40-time-protocol")
def training_time_experiment(
    plan: uci.Plan,
    method: str,
    alpha: float,
    m: int,
    *,
    n_steps: int | None = None,
    optimizer: str = "adaptive",
    rate: float = 0.01,
    n_start: int = 60,
    damping: float = 0.5,
    growth: float = 1.3,
    budget: float = np.inf,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Timed:
    """Test error and negative log-likelihood along one batch run: villacampa2020, section 5.3, Fig. 3 and D.9.

    Training is that of section 5.1; the scoring is not counted. alpha = 0 is VB.

    Parameters
    ----------
    plan : Plan          split of Satellite; its numbers of inducing points and its alpha are not looked at
    method : str         pep, apep, arpep or rpapep
    alpha : float        0, 0.3, 0.5, 0.8, 1 in the paper
    m : int              inducing points: 4, 20, 100 in the paper
    n_steps : int        steps; None: the paper's
    optimizer : str      of the methods that the paper trains by L-BFGS: "adaptive" or "lbfgs"
    rate : float         first rate of "adaptive"
    n_start : int        steps of q before the priors move
    damping : float      of power EP
    growth : float       > 1: scores after the first step, when training time has grown by this factor, at the end
    budget : float       seconds of training
    seed : int           of the inducing points at the start
    clock : callable     seconds
    """
    n_classes = int(max(plan.y.max(), plan.y_test.max())) + 1
    prior = setting.start(plan.X, arguments.integer(m, "m", at_least=1), n_classes, seed)
    training = setting.Training(
        n_steps=plan.n_steps if n_steps is None else n_steps, n_start=n_start, rate=rate, damping=damping,
        optimizer=optimizer if method in plan.quasi_newton else "adaptive",
    )  # fmt: skip
    watch = setting.Watch((plan.X_test, plan.y_test), growth, budget, evaluate=False, clock=clock)
    result = setting.train(method, alpha, plan.X, plan.y, prior, training, watch)
    return Timed(result.course, result.optimum, result.notes)


def until(course: setting.Course, field: str = "nll", share: float = 0.01) -> float:
    """Seconds after which a score stays within a share of where it ends."""
    values = np.asarray(getattr(course, field))
    far = np.flatnonzero(np.abs(values - values[-1]) > share * abs(values[-1]))
    return float(course.seconds[far[-1] + 1 if far.size else 0])


_Runs = Mapping[tuple[int, str, float], Sequence[setting.Course]]


def _of_ends(runs: _Runs, field: str, claims: Mapping[str, str]) -> list[Decided]:
    """Which alphas have the smallest scores at the end, under the ids that a figure has for it."""
    sizes = sorted({m for m, _, _ in runs})
    methods = list(dict.fromkeys(method for _, method, _ in runs))
    alphas = sorted({alpha for _, _, alpha in runs})
    near = [alpha for alpha in alphas if alpha <= 0.1]
    rest = [alpha for alpha in alphas if alpha > 0.1]
    listed: list[Decided] = []
    for m in sizes:
        for method in methods:
            end = {a: float(np.mean([getattr(c, field)[-1] for c in runs[m, method, a]])) for a in alphas}
            name = f"m = {m}, {setting.NAMES[method]}"
            text = f"{name}: final {field} near 0, above the largest of other alphas"
            listed.append(above(claims["worst"], text, min(end[a] for a in near), max(end[a] for a in rest)))
            order = sorted(rest, key=lambda a: end[a])
            if method == "pep":
                off = len(set(order[:2]) - {0.3, 0.5})
                text = f"{name}: of the two smallest final {field}, at {order[0]:g} and {order[1]:g}, not at 0.3 or 0.5"
                listed.append(below(claims["pep"], text, off, 0.5))
            else:
                text = f"{name}: alpha of the smallest final {field}"
                listed.append(above(claims["others"], text, order[0], 0.79))
    return listed


def decide(runs: Mapping[tuple[int, str, float], Sequence[setting.Course]]) -> list[Decided]:
    """What section 5.3 says of Fig. 3, and appendix D of D.9, from the courses by m, method and alpha.

    Needs two repetitions, all methods, and alphas 0, which is VB, a small one, 0.3, 0.5, 0.8 and 1. Differences from VB
    are taken to be in pairs over repetitions.
    """
    of_3 = _of_ends(runs, "nll", {"worst": "fig3-zero-worst", "pep": "fig3-pep-best", "others": "fig3-others-best"})
    sizes = sorted({m for m, _, _ in runs})
    alphas = sorted({alpha for _, _, alpha in runs})
    small = min(alpha for alpha in alphas if alpha > 0.0)
    for m in sizes:
        vb = np.array([course.nll[-1] for course in runs[m, "arpep", 0.0]])
        for method in setting.METHODS:
            gap = np.array([course.nll[-1] for course in runs[m, method, small]]) - vb
            error = float(gap.std(ddof=1) / np.sqrt(gap.size))
            text = f"m = {m}, {setting.NAMES[method]} at {small:g}: final nll less that of VB, in standard errors"
            off = float(abs(gap.mean()) / max(error, 1e-12))
            if method in ("arpep", "rpapep"):
                of_3.append(below("fig3-vb-equal", text, off, 1.0))
            else:
                of_3.append(above("fig3-pep-apep-differ", text, off, 2.0))
        for method in setting.METHODS[1:]:
            pairs = [(until(a), until(b)) for alpha in alphas if alpha > 0.1
                     for a, b in zip(runs[m, "pep", alpha], runs[m, method, alpha], strict=True)]  # fmt: skip
            left, right = np.log(np.array(pairs)).T
            text = f"m = {m}: log time to within 1 % of the end, PEP less {setting.NAMES[method]}"
            of_3.append(surely("fig3-pep-earlier", text, left.tolist(), right.tolist()))
    of_d9 = _of_ends(runs, "error", dict.fromkeys(("worst", "pep", "others"), "figd9"))
    return [decisions.figure("fig3", of_3), *of_3, *of_d9]


@dataclass(frozen=True, kw_only=True)
class Fig3Options:
    """Options of `fig3`."""

    dataset: str = "satellite"
    m: Sequence[int] = option((4, 20), (4, 20, 100), "inducing points per class")
    methods: Sequence[str] = setting.METHODS
    alphas: Sequence[float] = option((0.0, 0.5, 1.0), (0.0, 0.3, 0.5, 0.8, 1.0), "alphas")
    n_max: int = 1500
    n_run: int = option(1, 100, "repetitions")
    n_steps: int = 500
    optimizer: str = "adaptive"
    rate: float = 0.01
    n_start: int = 60
    damping: float = 0.5
    budget: float = option(4.0, np.inf, setting.CUT)
    seed: int = 0


@experiment(
    "villacampa2020",
    "fig3",
    "test log-likelihood and error against training time on Satellite",
    "alpha near 0, and VB, are worst; PEP is best at 0.3 and 0.5, the others near 0.8 to 1; ARPEP and RPAPEP near "
    "alpha = 0 are VB; PEP is good sooner than the others (section 5.3, Fig. 3; appendix D, Fig. D.9)",
    cells=lambda asked: len(asked.m) * len(asked.methods) * len(asked.alphas),
)
def fig3(asked: Fig3Options, say: Say) -> Outcome:
    """Each run is scored along its training, on rows that it does not see."""
    for method in asked.methods:
        arguments.choice(method, setting.METHODS, "methods")
    arguments.integer(asked.n_run, "n_run", at_least=1)
    full = uci.load(asked.dataset, asked.seed)
    data = setting.smaller(full, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed)
    plans = [uci.uci_protocol(data, 1.0, 0.0, k, seed=asked.seed) for k in range(asked.n_run)]
    summary: list[tuple[object, ...]] = []
    along: list[tuple[object, ...]] = []
    notes: list[str] = []
    pictures = []
    kept: dict[tuple[int, str, float], list[setting.Course]] = {}
    for size in asked.m:
        for method in asked.methods:
            lines: dict[str, list[figures.Curve]] = {field: [] for field in FIELDS}
            labels = []
            for alpha in asked.alphas:
                runs = [
                    training_time_experiment(
                        plan, method, alpha, size, n_steps=asked.n_steps, optimizer=asked.optimizer, rate=asked.rate,
                        n_start=asked.n_start if method == "pep" else setting.TRAINING.n_start,
                        damping=asked.damping, budget=asked.budget, seed=k,
                    )
                    for k, plan in enumerate(plans)
                ]  # fmt: skip
                head = (size, setting.NAMES[method], float(alpha))
                notes += [note for run in runs if run.optimum for note in run.notes]
                courses = [run.course for run in runs if run.course is not None]
                kept[int(size), method, float(alpha)] = courses
                if not courses:
                    summary.append((*head, setting.NONE, setting.NONE, setting.NONE, setting.NONE, len(runs)))
                    say(f"m = {size}, {head[1]}, alpha = {alpha:g}: {setting.NONE}")
                    continue
                seconds = times_of(courses, 12)
                results = {field: averaged(courses, field, seconds) for field in FIELDS}
                for field in FIELDS:
                    lines[field].append(figures.Curve(f"alpha = {alpha:g}", seconds, results[field]))
                labels.append(f"alpha = {alpha:g}")
                along += [
                    (*head, float(t), float(nll), float(error))
                    for t, nll, error in zip(seconds, results["nll"], results["error"], strict=True)
                ]
                ends = np.mean([(c.iteration[-1], c.seconds[-1], c.nll[-1], c.error[-1]) for c in courses], axis=0)
                summary.append((*head, *(float(value) for value in ends), len(runs) - len(courses)))
                say(f"m = {size}, {head[1]}, alpha = {alpha:g}: nll {ends[2]:.3f}, error {ends[3]:.3f} "
                    f"after {ends[1]:.1f} s")  # fmt: skip
            if labels:
                with figures.style():
                    panels = tuple(
                        figures.curves(title, lines[field], "seconds of training", f"v20-fig3-{size}-{method}-{field}")
                        for field, title in FIELDS.items()
                    )
                pictures.append(Picture(f"{setting.NAMES[method]}, m = {size}", tuple(labels), panels))
    notes += rows_taken(data, full, "n_max")
    whole = {0.0, 0.3, 0.5, 0.8, 1.0} < set(asked.alphas) and set(asked.methods) == set(setting.METHODS)
    message: tuple[Table, ...] = ()
    if whole and asked.n_run > 1 and all(len(courses) == asked.n_run for courses in kept.values()):
        message = (decisions.table(decide(kept), "What section 5.3 and appendix D say of the curves"),)
    notes += [f"start: {setting.START}", setting.LIMIT, setting.OPTIMISER, setting.sweeps(asked.damping, asked.n_start)]
    notes.append("Fig. 3 and D.9 print no numbers")
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {plans[0].y.size}, {plans[0].y_test.size} test rows",
            "repetitions": asked.n_run,
            "optimiser": f"{asked.optimizer}, rate {asked.rate:g}",
            "jitter": setting.JITTER,
            "label errors": setting.EPSILON,
            "seed": asked.seed,
        },
        (
            Table(
                "ends",
                ("m", "method", "alpha", "steps", "seconds", "nll", "error", "without optimum"),
                tuple(summary),
                "Where the runs end, averaged over those that have an optimum",
            ),
            Table("curves", ("m", "method", "alpha", "seconds", "nll", "error"), tuple(along), "Along the runs"),
            *message,
        ),
        tuple(pictures),
        tuple(dict.fromkeys(notes)),
    )
