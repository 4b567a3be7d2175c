"""Statements of a paper in prose that a trial decides: one function a statement, run one by one and put on record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation import datasets
from validation.claims.verdict import holds
from validation.datasets.splits import standardise, train_test_split
from validation.door import arguments
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided
from validation.reproduce.experiment import Outcome, Say
from validation.reproduce.wenzel2019.table1 import binary, smaller

Array = NDArray[np.float64]
Trial = Callable[[int], Iterable[Decided]]  # from a seed, what is compared


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """Options of `trials`: the claims to try, all of them where none is named."""

    claims: Sequence[str] = ()
    seed: int = 0


class Parts(NamedTuple):
    """Training and test rows of two classes."""

    X: Array
    y: NDArray[np.int64]
    X_test: Array
    y_test: NDArray[np.int64]


def parts_of(name: str, n: int, n_test: int, seed: int) -> Parts:
    """At most n training and n_test test rows of a data set, a fifth tested at least; standardised by training rows."""
    data = smaller(binary(datasets.load(name))[0], n + n_test, seed)
    split = train_test_split(data, seed, test_size=max(data.n - n, data.n // 5))
    X, X_test = standardise(data.X[split.train], data.X[split.test])
    return Parts(X, data.y[split.train], X_test, data.y[split.test])


def run(trials: Mapping[str, Trial], asked: TrialOptions, say: Say, notes: Sequence[str] = ()) -> Outcome:
    """The statements that are asked for, each by its trial.

    Parameters
    ----------
    trials : mapping     id of the claim in the inventory -> its trial
    asked, say           of the experiment
    notes : sequence     what has to be known of all trials
    """
    seed = arguments.integer(asked.seed, "seed", at_least=0)
    names = [arguments.choice(name, tuple(trials), "claims") for name in asked.claims] or list(trials)
    listed: list[Decided] = []
    for name in names:
        started = time.perf_counter()
        result = list(trials[name](seed))
        for one in result:
            say(f"{one.claim}: {one.compared}: {one.observed:.4g}, limit {one.limit:.4g}, {holds(one.held)}")
        say(f"{name}: {time.perf_counter() - started:.0f} s")
        listed += result
    table = decisions.table(listed, "What the trials say")
    return Outcome({"claims": ", ".join(names), "seed": seed}, (table,), (), tuple(notes))
