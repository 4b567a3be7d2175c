"""wenzel2019, section 5.3, Fig. 3: prediction error against training time for several numbers of inducing points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from validation import arguments, datasets
from validation.datasets.splits import standardise, train_test_split
from validation.report import figures
from validation.reproduce import decisions
from validation.reproduce.classifiers import binary_classifier
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.protocols import Curve, inducing_point_study
from validation.reproduce.wenzel2019.table1 import METHODS, binary, smaller


def _there(curve: Curve) -> float:
    """Seconds until the error is first within .005 of where it ends."""
    return float(curve.seconds[int(np.argmax(curve.error <= curve.error[-1] + 0.005))])


def _rise(curve: Curve) -> float:
    """Largest rise of the error after its least value so far."""
    return float((curve.error - np.minimum.accumulate(curve.error)).max())


def decide(curves: Mapping[str, Mapping[int, Curve]]) -> list[Decided]:
    """What section 5.3 says of Fig. 3, from the curves of all three methods by number of inducing points."""
    listed: list[Decided] = []
    for method, every in curves.items():
        sizes = sorted(every)
        ends = [float(every[m].error[-1]) for m in sizes]
        worst = max(later - sooner for sooner, later in pairwise(ends))
        text = f"{method}: largest rise of the final error from one M to the next"
        listed.append(below("fig3-more-is-better", text, worst, 1e-12))
        text = f"{method}: seconds to the final error at M = {sizes[-1]}, above those at M = {sizes[0]}"
        listed.append(above("fig3-more-is-better", text, _there(every[sizes[-1]]), _there(every[sizes[0]])))
        gap = float(every[32].error[-1] - every[sizes[-1]].error[-1])
        listed.append(below("fig3-32-enough", f"{method}: final error at M = 32 less that at {sizes[-1]}", gap, 0.005))
    for m, quick in curves["x-gpc-svi"].items():
        for method in ("svgpc", "epgpc"):
            ratio = _there(curves[method][m]) / _there(quick)
            text = f"M = {m}: seconds to the final error of {method} over x-gpc"
            listed += [
                above("fig3-fastest", f"{text}, at least 10", ratio, 10.0),
                below("fig3-fastest", f"{text}, at most 300", ratio, 300.0),
            ]
    rises = {m: _rise(curve) for m, curve in curves["svgpc"].items()}
    last = max(rises)
    for m, rise in rises.items():
        if m != last:
            text = f"M = {m}: largest rise of svgpc's error after its least, above that at {last} and .01"
            listed.append(above("fig3-svgpc-unstable", text, rise, max(rises[last], 0.01)))
    return listed


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
    result: dict[str, Mapping[int, Curve]] = {}
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
        result[method] = curves
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
    message: tuple[Table, ...] = ()
    if set(asked.methods) == set(METHODS) and 32 in asked.m and len(asked.m) > 2:
        message = (decisions.table(decide(result), "What section 5.3 says of the curves"),)
    notes.append("one split; hyper-parameters are learned along the way from the training rows")
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {split.train.size}, {split.test.size} test rows",
            "mini-batch": asked.batch_size,
            "seed": asked.seed,
        },
        (
            Table("curves", ("method", "m", "seconds", "error", "nll"), tuple(rows), "Scores along the training runs"),
            *message,
        ),
        tuple(pictures),
        tuple(notes),
    )
