"""Real sets, folds of them, and what a fold gives to every program alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation import datasets
from validation.datasets.errors import DatasetNotFoundError

#: Eight sets of two classes and eight of more, from 4 to 123 inputs: numbers, counts, binary inputs, pixels.
SETS = (
    "a9a", "banknote", "breast_cancer", "electricity", "german", "ionosphere", "magic", "pima",
    "digits", "glass", "iris", "satellite", "segment", "vehicle", "vowel", "wine",
)  # fmt: skip
TEST_ROWS = 2000  # of a fold at most: an NLL of .3 is then known to about .01
POOL = 12_000  # rows of a large set that are looked at at all: three folds of 1500 and 2000 rows, with room to spare


class Fold(NamedTuple):
    """One training part and one test part, standardised by the training rows."""

    name: str
    fold: int
    n_classes: int  # of the set; a small training part may miss some
    X: NDArray[np.float64]  # (n, d)
    y: NDArray[np.int64]  # (n,)
    X_test: NDArray[np.float64]  # (t, d)
    y_test: NDArray[np.int64]  # (t,)


def folds_of(name: str, *, folds: int, n_run: int, rows: int, seed: int) -> Iterator[Fold]:
    """The first n_run folds of a set.

    Every row is in at most one test part; equal rows stay together. Training rows are the first of a shuffled part.

    Parameters
    ----------
    name : str      of a set that `datasets.load` knows
    folds : int     parts
    n_run : int     how many of them are wanted
    rows : int      training rows at most
    seed : int      of the parts
    """
    data = datasets.load(name)
    if data.n > POOL:  # the parts of a large set are samples of it anyway, and finding equal rows takes time
        data = data.subsample(POOL, seed)
    for number, split in enumerate(datasets.kfold(data, folds, seed)):
        if number == n_run:
            return
        train, test = split.train[:rows], split.test[:TEST_ROWS]
        X, X_test = datasets.standardise(data.X[train], data.X[test])
        yield Fold(name, number, data.n_classes, X, data.y[train], X_test, data.y[test])


def reachable(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of sets that are at hand, and of those that are not."""
    here: list[str] = []
    missing: list[str] = []
    for name in names:
        try:
            (here if datasets.locate(name) in ("embedded", "folder") else missing).append(name)
        except DatasetNotFoundError:
            missing.append(name)
    return tuple(here), tuple(missing)
