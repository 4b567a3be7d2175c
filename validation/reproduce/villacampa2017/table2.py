"""villacampa2017, section 4.1: Table 1, and Tables 2 and 3, which average over splits of eight data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.door import arguments
from validation.jobs.each import each
from validation.reproduce import sizes
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.printed import option, rows_taken
from validation.reproduce.published import published
from validation.reproduce.villacampa2017 import setting, uci


@dataclass(frozen=True, kw_only=True)
class Table1Options:
    """Options of `table1`."""

    names: Sequence[str] = uci.DATASETS
    seed: int = 0


@experiment(
    "villacampa2017",
    "table1",
    "the eight data sets and their sizes",
    "instances, attributes and classes of eight sets of the UCI repository (section 4.1, Table 1)",
    cells=lambda asked: len(asked.names),
    ahead=True,
)
def table1(asked: Table1Options, say: Say) -> Outcome:
    """Sizes of what the other experiments load: vowel with its first six classes, waveform generated."""
    return sizes.compare(
        "table1",
        "Instances, attributes and classes, here and in the paper's Table 1",
        {name: uci.uci_dataset_table(name)._asdict() for name in asked.names},
        lambda name: uci.load(name, asked.seed),
        lambda _, data: {"instances": data.n, "attributes": data.d, "classes": data.n_classes},
        notes=("waveform is generated: its 1000 rows are asked for, its attributes and classes are not",),
        say=say,
    )


class Trained(NamedTuple):
    """What one repetition gives."""

    probabilities: NDArray[np.float64]  # (t, C)
    seconds: float
    notes: tuple[str, ...]


def trained_on(method: str, plan: uci.Plan, n_classes: int, seed: int, training: setting.Training) -> Trained:
    """One method on the training rows of a split, its probabilities at the test rows."""
    prior = setting.start(plan.X, plan.n_inducing, n_classes, seed)
    run = setting.train(method, plan.X, plan.y, prior, training, setting.Watch(evaluate=False))
    return Trained(run.probabilities(plan.X_test), run.seconds, tuple(run.notes))


@dataclass(frozen=True, kw_only=True)
class Table2Options:
    """Options of `table2`."""

    datasets: Sequence[str] = option(("new_thyroid", "svmguide2", "wine"), uci.DATASETS, "data sets")
    methods: Sequence[str] = setting.METHODS
    fractions: Sequence[float] = option((0.05,), uci.FRACTIONS, "shares of inducing points")
    n_run: int = option(3, 20, "repetitions")
    n_draw: int = 1
    n_steps: int = option(250, 250, "iterations of EP and SEP")
    n_steps_lbfgs: int = option(30, 250, "iterations of L-BFGS")
    n_max: int = 2000
    rate: float = 0.01
    tolerance: float = 1e-3
    vi_optimizer: str = "lbfgs"
    seed: int = 0


@experiment(
    "villacampa2017",
    "table2",
    "negative test log-likelihood, test error and training time on eight data sets",
    "EP is close to GFITC, SEP gives similar results in the least time, VI gives much worse log-likelihoods on some "
    "sets but similar errors, and is slower (section 4.1, Tables 2 and 3)",
    in_parts=True,
    cells=lambda asked: len(asked.datasets) * len(asked.fractions) * len(asked.methods),
)
def table2(asked: Table2Options, say: Say) -> Outcome:
    """n_draw draws of a generated set have n_run splits each."""
    for method in asked.methods:
        arguments.choice(method, setting.METHODS, "methods")
    arguments.choice(asked.vi_optimizer, tuple(setting.VI), "vi_optimizer")
    arguments.integer(asked.n_run, "n_run", at_least=1)
    arguments.integer(asked.n_draw, "n_draw", at_least=1)
    printed = published("villacampa2017", "table2")
    rows: list[tuple[object, ...]] = []
    times: dict[tuple[float, str], list[float]] = {}
    notes: list[str] = []
    for name in asked.datasets:
        n_draw = asked.n_draw if name in uci.GENERATED else 1
        drawn = [uci.load(name, asked.seed + d) for d in range(n_draw)]
        full = drawn[0]
        sets = [setting.smaller(one, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed) for one in drawn]
        data = sets[0]
        notes += rows_taken(data, full, "n_max", name=name)
        if n_draw > 1:
            notes.append(f"{name}: {n_draw} draws with {asked.n_run} splits each; {uci.DRAWS}")
        for fraction in asked.fractions:
            plans = [
                uci.uci_protocol(one, fraction, k, seed=asked.seed + d)
                for d, one in enumerate(sets)
                for k in range(asked.n_run)
            ]
            for method in asked.methods:
                steps = asked.n_steps_lbfgs if method in ("gfitc", "vi-robust") else asked.n_steps
                calls = {
                    f"{name}-{fraction:g}-{method}-{k}": {
                        "method": method,
                        "plan": plan,
                        "n_classes": data.n_classes,
                        "seed": k,
                        "training": setting.training_of(
                            method, min(steps, plan.n_steps), asked.rate, asked.tolerance, asked.vi_optimizer
                        ),
                    }
                    for k, plan in enumerate(plans)
                }
                runs = each(trained_on, calls, (Trained,))
                for k, run in enumerate(runs):
                    notes += [f"{name}, repetition {k + 1}: {note}" for note in run.notes]
                every = [
                    uci.evaluation_metrics(
                        [run.probabilities for run in runs[first : first + asked.n_run]],
                        [plan.y_test for plan in plans[first : first + asked.n_run]],
                        [run.seconds for run in runs[first : first + asked.n_run]],
                    )
                    for first in range(0, len(plans), asked.n_run)
                ]
                result = every[0] if n_draw == 1 else uci.over_draws(every)
                times.setdefault((float(fraction), method), []).append(result.seconds)
                repetitions = asked.n_run if n_draw == 1 else n_draw
                rows += _rows(name, float(fraction), plans[0], method, result, repetitions, printed)
                say(
                    f"{name}, m = {plans[0].n_inducing}, {setting.NAMES[method]}: nll {result.nll:.3f}, "
                    f"error {result.error:.3f}, {result.seconds:.1f} s"
                )
    notes.append(f"start: {setting.START}")
    notes.append(setting.VI[asked.vi_optimizer])
    notes.append("seconds are of this machine and of these programs; only their ratios can be set beside the paper's")
    return Outcome(
        {
            "data": ", ".join(asked.datasets),
            "repetitions": asked.n_run,
            "optimisers": f"EP, SEP: adaptive rates from {asked.rate:g}, {asked.n_steps} steps; GFITC, VI: L-BFGS, "
            f"{asked.n_steps_lbfgs}",
            "jitter": setting.JITTER,
            "label errors of VI": setting.EPSILON,
            "seed": asked.seed,
        },
        (
            Table(
                "scores",
                ("data", "M", "m", "n", "method", "score", "here", "±", "paper", "± (paper)", "where", "repetitions"),
                tuple(rows),
                "Averages over repetitions, with standard errors, beside Tables 2 and 3",
            ),
            Table(
                "seconds",
                ("M", "method", "iterations", "seconds", "of SEP's", "seconds (paper)", "of SEP's (paper)"),
                tuple(_times(times, printed, {"ep": asked.n_steps, "sep": asked.n_steps}, asked.n_steps_lbfgs)),
                "Average training time over the data sets; in the paper (Table 2) over all eight, 250 iterations each",
            ),
        ),
        (),
        tuple(dict.fromkeys(notes)),
    )


def _label(fraction: float) -> str:
    return f"{100.0 * fraction:g}%"


def _rows(
    name: str,
    fraction: float,
    plan: uci.Plan,
    method: str,
    value: uci.Averages,
    repetitions: int,
    printed: dict[str, dict[str, object]],
) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for score, table in (("nll", "Table 2"), ("error", "Table 3"), ("seconds", "")):
        theirs = _printed(printed, fraction, method, score, name) if table else (None, None)
        rows.append(
            (name, _label(fraction), plan.n_inducing, plan.y.size, setting.NAMES[method], score,
             getattr(value, score), getattr(value, f"{score}_bar"), *theirs, None if theirs[0] is None else table,
             repetitions)
        )  # fmt: skip
    return rows


def _printed(
    printed: dict[str, dict[str, object]], fraction: float, method: str, score: str, name: str
) -> tuple[float | None, float | None]:
    block = printed.get(_label(fraction), {}).get(score, {})
    cells = block.get(name) if isinstance(block, dict) else None
    if cells is None:
        return None, None
    mean, bar = cells[list(printed["methods"]).index(method)]
    return mean, bar


def _times(
    times: dict[tuple[float, str], list[float]],
    printed: dict[str, dict[str, object]],
    steps: dict[str, int],
    steps_lbfgs: int,
) -> list[tuple[object, ...]]:
    order = list(printed["methods"])
    rows: list[tuple[object, ...]] = []
    for (fraction, method), values in times.items():
        mine = float(np.mean(values))
        sep = times.get((fraction, "sep"))
        theirs = printed.get(_label(fraction), {}).get("seconds")
        paper = base = None
        if isinstance(theirs, list):
            paper, base = theirs[order.index(method)][0], theirs[order.index("sep")][0]
        rows.append(
            (_label(fraction), setting.NAMES[method], steps.get(method, steps_lbfgs), mine,
             mine / float(np.mean(sep)) if sep else None, paper, None if paper is None else paper / base)
        )  # fmt: skip
    return rows
