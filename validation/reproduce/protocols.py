"""How classifiers are measured: folds, error and log-likelihood, against training time. wenzel2019, 5.2 and 5.3."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.datasets.dataset import Dataset
from validation.datasets.splits import kfold, standardise
from validation.door.quoting import shown
from validation.ledger.marker import equation

Array = NDArray[np.float64]
Say = Callable[[str], object]


class Score(NamedTuple):
    """How one fitted classifier does on held-out rows."""

    error: float  # share of wrong labels
    nll: float  # mean of -log p(y* | x*)
    seconds: float  # of training


class Curve(NamedTuple):
    """Held-out scores after so many seconds of training, the scoring itself not counted."""

    seconds: Array  # (r,)
    error: Array
    nll: Array


def scores(probabilities: Array, y: NDArray[np.int64]) -> tuple[float, float]:
    """(error, nll) of class probabilities (t, C) at labels y (t,); a probability of zero gives an infinite nll."""
    right = probabilities[np.arange(y.size), y]
    with np.errstate(divide="ignore"):
        nll = float(-np.log(right).mean())
    return float(np.mean(np.argmax(probabilities, axis=1) != y)), nll


@equation("wenzel2019", "u5.2-cv")
def cross_validate(
    data: Dataset,
    make_model: Callable[[int], Any],
    *,
    n_splits: int = 10,
    n_run: int | None = None,
    test_cap: int = 100_000,
    seed: int = 0,
    say: Say = lambda text: None,
) -> list[Score]:
    """Scores of each fold: wenzel2019, section 5.2.

    Inputs are standardised by the training rows of each fold.

    Parameters
    ----------
    data : Dataset
    make_model : callable    seed of the fold -> a scikit-learn classifier; it sees labels as ints
    n_splits : int           folds
    n_run : int or None      how many of them are run; None: all
    test_cap : int           at most so many test rows of a fold are scored (the paper: 100 000)
    seed : int               of the folds; fold k's model gets a seed spawned from it

    Raises
    ------
    ValueError               n_run out of range; what the splits refuse
    """
    n_run = n_splits if n_run is None else n_run
    if not 1 <= n_run <= n_splits:
        raise ValueError(f"n_run: found {n_run}, expected 1 to {n_splits} folds")
    seeds = np.random.SeedSequence(seed).generate_state(n_splits)
    results = []
    for k, split in enumerate(kfold(data, n_splits, seed)):
        if k == n_run:
            break
        test = split.test[:test_cap]  # the rows of a split are shuffled: the first ones are a sample
        X, X_test = standardise(data.X[split.train], data.X[test])
        model = make_model(int(seeds[k]))
        started = time.perf_counter()
        model.fit(X, data.y[split.train])
        seconds = time.perf_counter() - started
        results.append(Score(*scores(model.predict_proba(X_test), data.y[test]), seconds))
        say(f"fold {k + 1} of {n_run}: error {results[-1].error:.3f}, nll {results[-1].nll:.3f}, {seconds:.1f} s")
    return results


@equation("wenzel2019", "u5.2-time")
def performance_against_time(
    model: Any,
    X: Array,
    y: NDArray[np.int64],
    X_test: Array,
    y_test: NDArray[np.int64],
    *,
    growth: float = 1.3,
    clock: Callable[[], float] = time.perf_counter,
) -> Curve:
    """Held-out scores along one training run, at times that grow by a factor: wenzel2019, section 5.2, Fig. 2.

    Parameters
    ----------
    model                  a classifier whose fit takes callback(model), called after each step
    X, y, X_test, y_test   training and held-out rows, standardised
    growth : float         > 1; the scores are taken after the first step, and whenever the training time has grown by
                           this factor, and at the end
    clock : callable       seconds
    """
    if not growth > 1.0:
        raise ValueError(f"growth: found {shown(growth)}, expected a factor > 1")
    seconds: list[float] = []
    taken: list[tuple[float, float]] = []
    state = {"resumed": clock(), "trained": 0.0}

    def score() -> None:
        seconds.append(state["trained"])
        taken.append(scores(model.predict_proba(X_test), y_test))

    def after_step(_: Any) -> None:
        now = clock()
        state["trained"] += now - state["resumed"]
        if not seconds or state["trained"] >= growth * seconds[-1]:
            score()
        state["resumed"] = clock()

    model.fit(X, y, callback=after_step)
    state["trained"] += clock() - state["resumed"]
    score()
    error, nll = np.array(taken).T
    return Curve(np.array(seconds), error, nll)


@equation("wenzel2019", "u5.3-inducing")
def inducing_point_study(
    make_model: Callable[[int], Any],
    sizes: Sequence[int],
    X: Array,
    y: NDArray[np.int64],
    X_test: Array,
    y_test: NDArray[np.int64],
    *,
    say: Say = lambda text: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, Curve]:
    """Scores against training time for each number of inducing points: wenzel2019, section 5.3, Fig. 3.

    Parameters
    ----------
    make_model : callable  number of inducing points -> a classifier whose fit takes a callback
    sizes : ints           numbers of inducing points (the paper: 16, 32, 64, 128)
    X, y, X_test, y_test   training and held-out rows, standardised
    clock : callable       seconds
    """
    if not len(sizes):
        raise ValueError("sizes: found none, expected at least one number of inducing points")
    curves = {}
    for m in sizes:
        curves[int(m)] = performance_against_time(make_model(int(m)), X, y, X_test, y_test, clock=clock)
        say(f"m = {m}: error {curves[m].error[-1]:.4f} after {curves[m].seconds[-1]:.1f} s")
    return curves


@equation("izmailov2016", "u5.2-curves")
def accuracy_against_time(
    make_model: Callable[[int], Any],
    budgets: Sequence[int],
    X: Array,
    y: NDArray[np.int64],
    X_test: Array,
    y_test: NDArray[np.int64],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Array, Array]:
    """Seconds of training and share of right test labels after so many iterations: izmailov2016, section 5.2.

    Each budget is a run of its own from the same start, so that the curve holds for methods that give nothing away
    before they end; the time of a run counts whole.

    Parameters
    ----------
    make_model : callable  iterations -> a classifier that makes at most so many
    budgets : ints         iterations, rising
    X, y, X_test, y_test   training and held-out rows, standardised
    clock : callable       seconds
    """
    if not len(budgets) or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise ValueError(f"budgets: found {list(budgets)}, expected rising numbers of iterations from 1")
    seconds, accuracy = [], []
    for budget in budgets:
        model = make_model(int(budget))
        started = clock()
        model.fit(X, y)
        seconds.append(clock() - started)
        accuracy.append(1.0 - scores(model.predict_proba(X_test), y_test)[0])
    return np.array(seconds), np.array(accuracy)
