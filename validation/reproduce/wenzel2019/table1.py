"""wenzel2019, section 5.2, Table 1: error, log-likelihood and time of three methods, the paper's beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from validation.datasets import load
from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.reproduce.classifiers import binary_classifier
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.protocols import Score, cross_validate
from validation.reproduce.published import published

METHODS = ("x-gpc-svi", "svgpc", "epgpc")
_PAPER_SPLITS = 10


READINGS = ("most frequent", "odd")


def binary(data: Dataset, reading: str = "most frequent") -> tuple[Dataset, str]:
    """The set with two classes, and what was done to make it so, as the paper does not say how.

    The most frequent class against all others, or those with an odd number against those with an even one.
    """
    if data.n_classes == 2:
        return data, ""
    if reading == "odd":
        if not all(name.isdecimal() for name in data.classes):
            names = ", ".join(data.classes)
            raise ValueError(f"two_classes: found 'odd' for {data.name} with classes {names}, expected numbers")
        odd = np.array([int(name) % 2 for name in data.classes], dtype=np.int64)
        y, two, how = odd[data.y], ("even", "odd"), "odd numbers of classes against even ones"
    else:
        first = int(np.argmax(list(data.class_counts.values())))
        y, two = (data.y == first).astype(np.int64), ("rest", data.classes[first])
        how = f"class {data.classes[first]} against the rest"
    cut = Dataset(
        data.name, data.X, y, two, data.feature_names, data.n_train, data.citation, data.source, data.sha256
    )  # fmt: skip
    return cut, f"{data.name}: {how}, as the paper does not say how"


def smaller(data: Dataset, n_max: int, seed: int) -> Dataset:
    """At most n_max rows, drawn without replacement."""
    if data.n <= n_max:
        return data
    return data.rows(np.random.default_rng(seed).permutation(data.n)[:n_max])


@dataclass(frozen=True, kw_only=True)
class Table1Options:
    """Options of `table1`."""

    datasets: Sequence[str] = ("pima", "german20")
    methods: Sequence[str] = METHODS
    n_splits: int = _PAPER_SPLITS
    n_run: int = 3
    n_max: int = 50_000
    m: int = 100
    batch_size: int = 100
    seed: int = 0
    two_classes: str = "most frequent"


@experiment(
    "wenzel2019",
    "table1",
    "error, negative log-likelihood and time of x-gpc, svgpc and epgpc",
    "x-gpc is one to two orders of magnitude faster than svgpc and epgpc on most data sets, with similar errors and "
    "mostly better log-likelihoods (section 5.2, Table 1)",
    cells=lambda asked: len(asked.datasets) * len(asked.methods) * min(asked.n_run, asked.n_splits),
)
def table1(asked: Table1Options, say: Say) -> Outcome:
    """Each method on each data set, hyper-parameters learned from the training rows of each fold."""
    for method in asked.methods:
        arguments.choice(method, METHODS, "methods")
    arguments.integer(asked.n_max, "n_max", at_least=20)
    arguments.choice(asked.two_classes, READINGS, "two_classes")
    printed = {row["data"]: row for row in published("wenzel2019", "table1")["row"] if "data" in row}
    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    for name in asked.datasets:
        full = load(name)
        data, how = binary(full, asked.two_classes)
        data = smaller(data, asked.n_max, asked.seed)
        notes += [how] if how else []
        for method in asked.methods:
            result = cross_validate(
                data,
                lambda model_seed, method=method: binary_classifier(  # type: ignore[misc]
                    method, n_inducing=asked.m, batch_size=asked.batch_size, seed=model_seed
                ),
                n_splits=asked.n_splits,
                n_run=min(asked.n_run, asked.n_splits),
                seed=asked.seed,
                say=lambda text, head=f"{name}, {method}": say(f"{head}, {text}"),  # type: ignore[misc]
            )
            rows += _rows(name, method, data, full, result, asked.n_splits, printed.get(name))
    if min(asked.n_run, asked.n_splits) < _PAPER_SPLITS:
        notes.append(
            f"{min(asked.n_run, asked.n_splits)} folds of {asked.n_splits} were run, fewer than the {_PAPER_SPLITS} of "
            "the paper"
        )
    notes.append("steps: ten passes, at least 1000; the paper stops by a window over held-out performance")
    notes.append("seconds are of this machine and of these programs; only their ratios can be set beside the paper's")
    columns = ("data", "method", "n", "d", "folds", "what", "here", "± sd", "paper", "± sd (paper)",
               "parameters", "rows", "repetitions")  # fmt: skip
    return Outcome(
        {
            "folds": f"{min(asked.n_run, asked.n_splits)} of {asked.n_splits}",
            "inducing points": asked.m,
            "mini-batch": asked.batch_size,
            "seed": asked.seed,
        },
        (Table("table1", columns, tuple(rows), "Table 1: here and in the paper"),),
        (),
        tuple(notes),
    )


def _rows(
    name: str,
    method: str,
    data: Dataset,
    full: Dataset,
    value: Sequence[Score],
    n_splits: int,
    printed: dict[str, Any] | None,
) -> list[tuple[object, ...]]:
    paper: dict[str, list[float]] = {} if printed is None else printed[method]
    same = printed is not None and printed["n"] == full.n and printed["d"] == full.d
    size = "all" if data.n == full.n else f"{data.n} of {full.n}, below the paper's"
    if printed is not None and not same:
        size += f"; the paper has n = {printed['n']}, d = {printed['d']}"
    out: list[tuple[object, ...]] = []
    for quantity in Score._fields:
        values = np.array([getattr(score, quantity) for score in value])
        theirs: list[float] | list[None] = paper.get(quantity, [None, None])
        spread = float(values.std(ddof=1)) if values.size > 1 else None
        out.append(
            (name, method, data.n, data.d, f"{len(value)} of {n_splits}", quantity, float(values.mean()), spread,
             theirs[0], theirs[1], "learned per fold", size, len(value))
        )  # fmt: skip
    return out
