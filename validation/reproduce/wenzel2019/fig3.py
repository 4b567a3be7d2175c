"""wenzel2019, section 5.3, Fig. 3: prediction error against training time for several numbers of inducing points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from validation import arguments, datasets
from validation.datasets.splits import standardise, train_test_split
from validation.report import figures
from validation.reproduce.classifiers import binary_classifier
from validation.reproduce.experiment import Outcome, Picture, Table, experiment
from validation.reproduce.protocols import inducing_point_study
from validation.reproduce.wenzel2019.table1 import METHODS, binary, smaller


@experiment(
    "wenzel2019",
    "fig3",
    "prediction error against training time for several numbers of inducing points",
    "x-gpc converges fastest for every number of inducing points; 32 are enough for an almost optimal error on "
    "Shuttle, and svgpc becomes unstable below 128 (section 5.3, Fig. 3)",
)
def fig3(
    *,
    dataset: str = "shuttle",
    methods: Sequence[str] = METHODS,
    m: Sequence[int] = (16, 32, 64, 128),
    n_max: int = 20_000,
    batch_size: int = 100,
    seed: int = 0,
    say: Callable[[str], object] = lambda text: None,
) -> Outcome:
    """Training runs of each method and number of inducing points on one split, scored along the way."""
    for method in methods:
        arguments.choice(method, METHODS, "methods")
    full = datasets.load(arguments.string(dataset, "dataset"))
    data, how = binary(full)
    data = smaller(data, arguments.integer(n_max, "n_max", at_least=20), seed)
    split = train_test_split(data, seed, test_size=0.1)
    X, X_test = standardise(data.X[split.train], data.X[split.test])
    rows: list[tuple[object, ...]] = []
    pictures = []
    for method in methods:
        say(f"{dataset}, {method}")
        curves = inducing_point_study(
            lambda size, method=method: binary_classifier(  # type: ignore[misc]
                method, n_inducing=size, batch_size=batch_size, seed=seed
            ),
            m,
            X,
            data.y[split.train],
            X_test,
            data.y[split.test],
            say=say,
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
        pictures.append(Picture(f"{method} on {dataset}", tuple(f"m = {size}" for size in m), panels))
    notes = [how] if how else []
    if data.n < full.n:
        notes.append(f"{data.n} of {full.n} rows, fewer than the paper's")
    notes.append("one split; hyper-parameters are learned along the way from the training rows")
    return Outcome(
        {
            "data": f"{dataset}: n = {split.train.size}, {split.test.size} test rows",
            "mini-batch": batch_size,
            "seed": seed,
        },
        (Table("curves", ("method", "m", "seconds", "error", "nll"), tuple(rows), "Scores along the training runs"),),
        tuple(pictures),
        tuple(notes),
    )
