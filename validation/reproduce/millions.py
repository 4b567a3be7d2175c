"""Training on millions of rows, as villacampa2017 and villacampa2020 claim it: memory and error beside few rows."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from fast.core import values
from fast.methods import apep, sep
from validation.door import arguments
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, below
from validation.reproduce.experiment import Outcome, Say, Table, experiment

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
_BLOCK = 100_000
_HALF = 2.5  # of the square's side
_INPUTS = 6  # of which two tell the label; a row is 48 bytes
_SAME = 1.1  # peaks of memory that are one, the labels put aside


def labels_of(X: Array, rng: np.random.Generator) -> Labels:
    """The largest of three functions of the plane, seen with noise."""
    f = np.stack([np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1], np.cos(2.0 * X[:, 1]), np.sin(X[:, 0] * X[:, 1])], axis=1)
    return np.argmax(f + 0.1 * rng.standard_normal(f.shape), axis=1)


def drawn(path: Path, n: int, seed: int) -> tuple[Array, Labels]:
    """n rows in a file, which are read from there, and their labels."""
    rng = np.random.default_rng(seed)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, _INPUTS))
    y = np.empty(n, dtype=np.int64)
    for first in range(0, n, _BLOCK):
        part = rng.uniform(-_HALF, _HALF, (min(_BLOCK, n - first), _INPUTS))
        X[first : first + _BLOCK] = part
        y[first : first + _BLOCK] = labels_of(part, rng)
    X.flush()
    return np.load(path, mmap_mode="r"), y


class Trained(NamedTuple):
    """One training."""

    megabytes: float  # most that was held at a time
    error: float  # on test rows
    seconds: float  # of the processor


def trained(method: str, X: Array, y: Labels, test: tuple[Array, Labels], n_steps: int, seed: int) -> Trained:
    """SEP or APEP on mini-batches of 200 rows of three classes, 20 inducing points each."""
    Z = np.random.default_rng(seed).uniform(-_HALF, _HALF, (3, 20, _INPUTS))
    prior = values.Prior(np.ones(3), np.full((3, _INPUTS), 3.0), np.full(3, 0.01), np.full(3, 1e-4), Z)
    drawn_rows = np.random.default_rng(seed).integers(0, len(y), (n_steps, 200))  # no order of all rows is kept
    own: dict[str, Any] = {
        "batches": [np.unique(rows) for rows in drawn_rows], "learn": ("variance", "lengthscales"), "rate": 0.05,
        "optimizer": "adam", "evaluate": False,
    }  # fmt: skip
    began = time.process_time()
    tracemalloc.start()
    try:
        p: Any
        if method == "sep":
            p = sep.predict(sep.fit(values.Data(X, y, 3), prior, sep.SEPOptions(**own)), test[0])
        else:
            options = apep.EnergyOptions(energy="apep", alpha=0.5, epsilon=0.01, **own)
            p = apep.predict(apep.fit(values.Data(X, y, 3), prior, options), test[0])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    error = float((np.asarray(p.probabilities).argmax(axis=1) != test[1]).mean())
    return Trained(peak / 1e6, error, time.process_time() - began)


def decide(few: Trained, many: Trained, n_more: int, rival: str, error: float) -> list[Decided]:
    """What is said of millions of rows; a label and its copy, 16 bytes, are left out of what a further row may take."""
    limit = _SAME * few.megabytes + 16e-6 * n_more
    return [
        below("millions", "most megabytes held with all rows, those of few and 16 bytes for a further row's label",
              many.megabytes, limit),
        below("millions", f"test error after the steps, below that of {rival}", many.error, error),
    ]  # fmt: skip


def outcome(method: str, n: int, n_few: int, n_steps: int, seed: int) -> Outcome:
    """The same training on few and on many rows of one distribution."""
    for value, name in ((n, "n"), (n_few, "n_few"), (n_steps, "n_steps")):
        arguments.integer(value, name, at_least=1)
    rng = np.random.default_rng(seed + 1)
    X_test = rng.uniform(-_HALF, _HALF, (3000, _INPUTS))
    test = X_test, labels_of(X_test, rng)
    result: dict[int, Trained] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (n_few, n):
            X, y = drawn(Path(folder) / f"{count}.npy", count, seed)
            result[count] = trained(method, X, y, test, n_steps, seed)
        first = np.array(X[:20_000]), y[:20_000]
        del X
    if method == "sep":
        rival = "the linear model"
        error = float((LogisticRegression().fit(*first).predict(X_test) != test[1]).mean())
    else:
        rival, error = "the most frequent class", 1.0 - float(np.bincount(test[1]).max()) / test[1].size
    return Outcome(
        {"n": n, "few": n_few, "steps": n_steps, "mini-batch": 200, "seed": seed},
        (
            Table(
                "millions",
                ("rows", "megabytes", "error", "seconds"),
                tuple((count, *each) for count, each in result.items()),
                f"{rival}: error {error:.3g}",
            ),
            decisions.table(decide(result[n_few], result[n], n - n_few, rival, error), "What is said of large data"),
        ),
        (),
        ("generated: three classes in a square, whose rows are read from a file; the papers' own set is not at hand",),
    )


@dataclass(frozen=True, kw_only=True)
class MillionsOptions:
    """Options of `millions`."""

    n: int = 2_000_000
    n_few: int = 20_000
    n_steps: int = 100
    seed: int = 0


@experiment(
    "villacampa2017",
    "millions",
    "SEP on two million rows beside twenty thousand",
    "training works on data sets of millions of instances (abstract, section 2.3.2)",
)
def of_2017(asked: MillionsOptions, say: Say) -> Outcome:
    """SEP by mini-batches."""
    return outcome("sep", asked.n, asked.n_few, asked.n_steps, asked.seed)


@experiment(
    "villacampa2020",
    "millions",
    "APEP on two million rows beside twenty thousand",
    "training works on data sets of several millions of instances (abstract, sections 2.2, 3.1)",
)
def of_2020(asked: MillionsOptions, say: Say) -> Outcome:
    """APEP at alpha = 0.5 by mini-batches."""
    return outcome("apep", asked.n, asked.n_few, asked.n_steps, asked.seed)
