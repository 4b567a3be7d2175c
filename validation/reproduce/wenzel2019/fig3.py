"""wenzel2019, section 5.3, Fig. 3: prediction error against training time for several numbers of inducing points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from validation import arguments, datasets
from validation.datasets.splits import standardise, train_test_split
from validation.report import figures
from validation.reproduce.classifiers import binary_classifier
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.protocols import inducing_point_study
from validation.reproduce.wenzel2019.table1 import METHODS, binary, smaller


@dataclass(frozen=True, kw_only=True)
class Fig3Options:
    """Options of `fig3`."""

    dataset: str = "shuttle"
    methods: Sequence[str] = METHODS
    m: Sequence[int] = (16, 32, 64, 128)
    n_max: int = 20_000
    batch_size: int = 100
    seed: int = 0


@experiment(
    "wenzel2019",
    "fig3",
    "prediction error against training time for several numbers of inducing points",
    "x-gpc converges fastest for every number of inducing points; 32 are enough for an almost optimal error on "
    "Shuttle, and svgpc becomes unstable below 128 (section 5.3, Fig. 3)",
    cells=lambda asked: len(asked.methods) * len(asked.m),
)
def fig3(asked: Fig3Options, say: Say) -> Outcome:
    """Training runs of each method and number of inducing points on one split, scored along the way."""
    for method in asked.methods:
        arguments.choice(method, METHODS, "methods")
    full = datasets.load(arguments.string(asked.dataset, "dataset"))
    data, how = binary(full)
    data = smaller(data, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed)
    split = train_test_split(data, asked.seed, test_size=0.1)
    X, X_test = standardise(data.X[split.train], data.X[split.test])
    rows: list[tuple[object, ...]] = []
    pictures = []
    for method in asked.methods:
        curves = inducing_point_study(
            lambda size, method=method: binary_classifier(  # type: ignore[misc]
                method, n_inducing=size, batch_size=asked.batch_size, seed=asked.seed
            ),
            asked.m,
            X,
            data.y[split.train],
            X_test,
            data.y[split.test],
            say=lambda text, head=f"{asked.dataset}, {method}": say(f"{head}, {text}"),  # type: ignore[misc]
        )
        rows += [
            (method, size, float(t), float(e), float(nll))
            for size, curve in curves.items()
            for t, e, nll in zip(curve.seconds, curve.error, curve.nll, strict=True)
        ]
        with figures.style():
            panels = tuple(
                figures.curves(
                    f"{method}: {title}",
                    [figures.Curve(f"m = {k}", c.seconds, np.asarray(getattr(c, field))) for k, c in curves.items()],
                    "seconds of training",
                    f"fig3-{method}-{field}",
                )
                for field, title in (("error", "prediction error"), ("nll", "negative log-likelihood"))
            )
        pictures.append(Picture(f"{method} on {asked.dataset}", tuple(f"m = {size}" for size in asked.m), panels))
    notes = [how] if how else []
    if data.n < full.n:
        notes.append(f"{data.n} of {full.n} rows, fewer than the paper's")
    notes.append("one split; hyper-parameters are learned along the way from the training rows")
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {split.train.size}, {split.test.size} test rows",
            "mini-batch": asked.batch_size,
            "seed": asked.seed,
        },
        (Table("curves", ("method", "m", "seconds", "error", "nll"), tuple(rows), "Scores along the training runs"),),
        tuple(pictures),
        tuple(notes),
    )
