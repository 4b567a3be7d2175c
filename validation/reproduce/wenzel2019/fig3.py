"""wenzel2019, section 5.3, Fig. 3: prediction error against training time for several numbers of inducing points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from validation import datasets
from validation.datasets.splits import kfold, standardise
from validation.door import arguments
from validation.reproduce import decisions
from validation.reproduce.classifiers import binary_classifier
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option, rows_taken
from validation.reproduce.protocols import Curve, inducing_point_study
from validation.reproduce.wenzel2019.table1 import METHODS, READINGS, binary, smaller
from validation.screen import figures

Folds = Sequence[Curve]
_FOLDS = 10


def _there(curve: Curve) -> float:
    """Seconds until the error is first within .005 of where it ends."""
    return float(curve.seconds[int(np.argmax(curve.error <= curve.error[-1] + 0.005))])


def _rise(curve: Curve) -> float:
    """Largest rise of the error after its least value so far."""
    return float((curve.error - np.minimum.accumulate(curve.error)).max())


def _mean(of: Callable[[Curve], float], curves: Folds) -> float:
    return float(np.mean([of(curve) for curve in curves]))


def _end(curve: Curve) -> float:
    return float(curve.error[-1])


def decide(curves: Mapping[str, Mapping[int, Folds]]) -> list[Decided]:
    """What section 5.3 says of Fig. 3, from the curves of all three methods by number of inducing points and fold."""
    listed: list[Decided] = []
    for method, every in curves.items():
        sizes = sorted(every)
        ends = [_mean(_end, every[m]) for m in sizes]
        worst = max(later - sooner for sooner, later in pairwise(ends))
        text = f"{method}: largest rise of the final error from one M to the next"
        listed.append(below("fig3-more-is-better", text, worst, 1e-12))
        text = f"{method}: seconds to the final error at M = {sizes[-1]}, above those at M = {sizes[0]}"
        last, first = (_mean(_there, every[sizes[k]]) for k in (-1, 0))
        listed.append(above("fig3-more-is-better", text, last, first))
        gap = _mean(_end, every[32]) - ends[-1]
        listed.append(below("fig3-32-enough", f"{method}: final error at M = 32 less that at {sizes[-1]}", gap, 0.005))
    for m, quick in curves["x-gpc-svi"].items():
        for method in ("svgpc", "epgpc"):
            ratio = _mean(_there, curves[method][m]) / _mean(_there, quick)
            text = f"M = {m}: seconds to the final error of {method} over x-gpc"
            listed += [
                above("fig3-fastest", f"{text}, at least 10", ratio, 10.0),
                below("fig3-fastest", f"{text}, at most 300", ratio, 300.0),
            ]
    rises = {m: _mean(_rise, every) for m, every in curves["svgpc"].items()}
    most = max(rises)
    for m, rise in rises.items():
        if m != most:
            text = f"M = {m}: largest rise of svgpc's error after its least, above that at {most} and .01"
            listed.append(above("fig3-svgpc-unstable", text, rise, max(rises[most], 0.01)))
    return listed


@dataclass(frozen=True, kw_only=True)
class Fig3Options:
    """Options of `fig3`."""

    dataset: str = "shuttle"
    methods: Sequence[str] = METHODS
    m: Sequence[int] = (16, 32, 64, 128)
    n_max: int = 20_000
    n_run: int = option(1, _FOLDS, "folds")
    batch_size: int = 100
    two_classes: str = "most frequent"
    seed: int = 0


@experiment(
    "wenzel2019",
    "fig3",
    "prediction error against training time for several numbers of inducing points",
    "x-gpc converges fastest for every number of inducing points; 32 are enough for an almost optimal error on "
    "Shuttle, and svgpc becomes unstable below 128 (section 5.3, Fig. 3)",
    cells=lambda asked: len(asked.methods) * len(asked.m) * asked.n_run,
)
def fig3(asked: Fig3Options, say: Say) -> Outcome:
    """Training runs of each method and number of inducing points on each fold, scored along the way."""
    for method in asked.methods:
        arguments.choice(method, METHODS, "methods")
    full = datasets.load(arguments.string(asked.dataset, "dataset"))
    data, how = binary(full, arguments.choice(asked.two_classes, READINGS, "two_classes"))
    data = smaller(data, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed)
    folds = list(islice(kfold(data, _FOLDS, asked.seed), arguments.integer(asked.n_run, "n_run", at_least=1)))
    rows: list[tuple[object, ...]] = []
    pictures = []
    result: dict[str, dict[int, list[Curve]]] = {method: {int(m): [] for m in asked.m} for method in asked.methods}
    for method in asked.methods:
        for k, split in enumerate(folds):
            X, X_test = standardise(data.X[split.train], data.X[split.test])
            head = f"{asked.dataset}, {method}, fold {k + 1}"
            curves = inducing_point_study(
                lambda size, method=method, k=k: binary_classifier(  # type: ignore[misc]
                    method, n_inducing=size, batch_size=asked.batch_size, seed=asked.seed + k
                ),
                asked.m,
                X,
                data.y[split.train],
                X_test,
                data.y[split.test],
                say=lambda text, head=head: say(f"{head}, {text}"),  # type: ignore[misc]
            )
            rows += [
                (method, size, k + 1, float(t), float(e), float(nll))
                for size, curve in curves.items()
                for t, e, nll in zip(curve.seconds, curve.error, curve.nll, strict=True)
            ]
            for size, curve in curves.items():
                result[method][size].append(curve)
        with figures.style():
            panels = tuple(
                figures.curves(
                    f"{method}: {title}, first fold",
                    [
                        figures.Curve(f"m = {m}", every[0].seconds, np.asarray(getattr(every[0], field)))
                        for m, every in result[method].items()
                    ],
                    "seconds of training",
                    f"fig3-{method}-{field}",
                )
                for field, title in (("error", "prediction error"), ("nll", "negative log-likelihood"))
            )
        pictures.append(Picture(f"{method} on {asked.dataset}", tuple(f"m = {size}" for size in asked.m), panels))
    notes = [how] if how else []
    notes += rows_taken(data, full, "n_max")
    message: tuple[Table, ...] = ()
    if set(asked.methods) == set(METHODS) and 32 in asked.m and len(asked.m) > 2:
        message = (decisions.table(decide(result), "What section 5.3 says of the curves"),)
    notes.append("hyper-parameters are learned along the way from the training rows")
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {folds[0].train.size}, {folds[0].test.size} test rows",
            "mini-batch": asked.batch_size,
            "seed": asked.seed,
        },
        (
            Table(
                "curves",
                ("method", "m", "fold", "seconds", "error", "nll"),
                tuple(rows),
                "Scores along the training runs",
            ),
            *message,
        ),
        tuple(pictures),
        tuple(notes),
    )
