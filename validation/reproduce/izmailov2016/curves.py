"""izmailov2016, section 5.2, Fig. 4 to 7: test accuracy against training time of five methods."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from validation import datasets
from validation.datasets.splits import standardise, train_test_split
from validation.door import arguments
from validation.reproduce.classifiers import TRACTABLE, tractable_classifier
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import rows_taken
from validation.reproduce.protocols import accuracy_against_time
from validation.reproduce.wenzel2019.table1 import binary, smaller
from validation.screen import figures


@dataclass(frozen=True, kw_only=True)
class CurvesOptions:
    """Options of `curves`."""

    dataset: str = "german20"
    methods: Sequence[str] = tuple(TRACTABLE)
    m: int = 50
    n_max: int = 2000
    budgets: Sequence[int] = (1, 2, 4, 8, 16)
    steps: int = 200
    seed: int = 0


@experiment(
    "izmailov2016",
    "curves",
    "test accuracy against training time",
    "vi-JJ, vi-Taylor and vi-JJ-hybrid perform like svi-AdaDelta or better without a learning rate to choose; "
    "vi-JJ-full works on small data and fails on most larger sets (section 5.2, Fig. 4 to 7)",
    cells=lambda asked: len(asked.methods),
)
def curves(asked: CurvesOptions, say: Say) -> Outcome:
    """Each method with m cluster centres on one split; svi makes `steps` steps for each iteration of the others."""
    for method in asked.methods:
        arguments.choice(method, tuple(TRACTABLE), "methods")
    full = datasets.load(arguments.string(asked.dataset, "dataset"))
    data, how = binary(full)
    data = smaller(data, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed)
    # the paper: 80 % and 20 % where a set comes without a test part
    split = train_test_split(data, asked.seed, test_size=0.2)
    X, X_test = standardise(data.X[split.train], data.X[split.test])
    rows: list[tuple[object, ...]] = []
    lines = []
    for method in asked.methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # runs are cut short on purpose
            seconds, accuracy = accuracy_against_time(
                lambda k, method=method: tractable_classifier(  # type: ignore[misc]
                    method, n_inducing=asked.m, max_iter=k * (asked.steps if method == "svi" else 1), seed=asked.seed
                ),
                asked.budgets,
                X,
                data.y[split.train],
                X_test,
                data.y[split.test],
            )
        say(f"{method}: accuracy {accuracy[-1]:.3f} after {seconds[-1]:.1f} s")
        rows += [(method, k, float(t), float(a)) for k, t, a in zip(asked.budgets, seconds, accuracy, strict=True)]
        lines.append(figures.Curve(method, np.asarray(seconds), np.asarray(accuracy)))
    with figures.style():
        panel = figures.curves(
            f"{asked.dataset}: test accuracy", lines, "seconds of training", f"curves-{asked.dataset}"
        )
    notes = [how] if how else []
    notes += rows_taken(data, full, "n_max")
    notes.append("one split; hyper-parameters are learned from the training rows; each point is a run of its own")
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {split.train.size}, {split.test.size} test rows",
            "inducing points": asked.m,
            "svi": f"{asked.steps} steps of AdaDelta for each iteration of the others",
            "seed": asked.seed,
        },
        (Table("curves", ("method", "iterations", "seconds", "accuracy"), tuple(rows), "Accuracy against time"),),
        (Picture(f"test accuracy on {asked.dataset}", tuple(asked.methods), (panel,)),),
        tuple(notes),
    )
