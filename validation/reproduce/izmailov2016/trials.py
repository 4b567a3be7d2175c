"""izmailov2016, sections 3 and 5.1: statements about centres, rates and inner numbers, each tried on three sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from validation.door.problem import Problem
from validation.door.solve import solve
from validation.reproduce.classifiers import tractable_classifier
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.izmailov2016.sets import METHODS, runs_of
from validation.reproduce.trials import Parts, Trial, TrialOptions, parts_of, run

Array = NDArray[np.float64]
_SETS = ("german20", "svmguide1", "magic")
_ROWS, _TEST, _CENTRES, _SPLITS, _ROUNDS = 1000, 2000, 30, 4, 32
_STEPS = 100  # of svi for each iteration of the others, as in `sets`
_NEAR = 0.01
_RATES = tuple(0.1 * 2.0**k for k in range(21))  # of svi, until it diverges
_ROUNDS_OF_RATES = (1, 2, 4, 8, 16)
_FALL = 0.05  # of the accuracy, by which divergence is told


@cache
def _parts(name: str, seed: int) -> Parts:
    return parts_of(name, _ROWS, _TEST, seed)


def _splits(name: str, seed: int) -> list[Parts]:
    return [_parts(name, seed + k) for k in range(_SPLITS)]


def _score(method: str, parts: Parts, seed: int, rounds: int = _ROUNDS, **options: Any) -> float:
    """Accuracy on the test rows."""
    model = tractable_classifier(method, n_inducing=_CENTRES, max_iter=rounds, seed=seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # runs are cut short on purpose
        return float(model.set_params(**options).fit(parts.X, parts.y).score(parts.X_test, parts.y_test))


def _placed(parts: Parts, seed: int, learn: tuple[str, ...]) -> float:
    """Accuracy at the maximum of the bound (11) from cluster centres, by svgpc, which can learn positions too."""
    centres = KMeans(_CENTRES, n_init=1, random_state=seed).fit(parts.X).cluster_centers_
    scale = np.full(parts.X.shape[1], np.sqrt(2.0 * parts.X.shape[1]))  # near the median distance of standardised rows
    problem = Problem("centres", parts.X, parts.y, 2, "probit", 1.0, scale, jitter=1e-6, Z=centres, X_test=parts.X_test)
    answer = solve("fast", "svgpc", problem, learn=learn, optimizer="lbfgs", learning_iterations=_ROUNDS,
                   tolerance=1e-4, gradients=False)  # fmt: skip
    assert answer.probabilities is not None  # test rows were given
    return float(np.mean(answer.probabilities.argmax(axis=1) == parts.y_test))


def _centres(seed: int) -> Iterable[Decided]:
    held = []
    for name in _SETS:
        splits = _splits(name, seed) + _splits(name, seed + _SPLITS)
        fixed = [_placed(parts, seed, ("variance", "scale")) for parts in splits]
        moved = [_placed(parts, seed, ("variance", "scale", "Z")) for parts in splits]
        text = f"{name}: accuracy with learned positions less that with centres, .01 put aside"
        held.append(surely("", text, moved, fixed, _NEAR))
    text = "; ".join(f"{one.compared}: {one.observed:.3g}" for one in held)
    good, bad = (sum(one.held is value for one in held) for value in (True, False))
    most = len(held) / 2.0
    verdict = True if good > most else False if bad > most else None
    yield Decided("kmeans-positions", f"sets of {len(held)} that hold at 95 %: {text}", good, most, verdict, len(held))


def _lbfgs(seed: int) -> Iterable[Decided]:
    for name in _SETS:
        budgets: dict[str, Sequence[int]] = dict.fromkeys(METHODS, (1, 2, 4, 8, 16, 32))
        budgets["svi-lbfgs"] = (1, 2, 4, 8, 16, 32, 64)
        runs = runs_of(_splits(name, seed), budgets, m=_CENTRES, steps=_STEPS, seed=seed)
        for method in METHODS:
            there = np.exp(np.array(runs[method].log_time))
            text = f"{name}: accuracy when {method} is at its end, L-BFGS-B on (11) less {method}"
            yield surely("lbfgs-elbo-worse", text, runs["svi-lbfgs"].at(there), runs[method].at(there))


def _curve(parts: Parts, seed: int, rate: float) -> Array:
    """Accuracy of svi after more and more steps at a rate; 0 where its parameters have left their range."""

    def score(rounds: int) -> float:
        try:
            return _score("svi", parts, seed, rounds * _STEPS, rate=rate)
        except ValueError as error:
            if "expected at most" not in str(error):  # what a parameter beyond its range is told
                raise
            return 0.0

    return np.array([score(rounds) for rounds in _ROUNDS_OF_RATES])


def _rates(seed: int) -> Iterable[Decided]:
    parts = _parts("svmguide1", seed)
    curves: dict[float, Array] = {}
    for rate in _RATES:
        curves[rate] = _curve(parts, seed, rate)
        best = max(float(curve.max()) for curve in curves.values())
        drop = best - float(curves[rate][-1])
        if drop > _FALL:
            break

    def there(curve: Array) -> float:
        place = np.flatnonzero(curve >= best - _NEAR)
        return float(_STEPS * _ROUNDS_OF_RATES[place[0]]) if place.size else np.inf

    yield above("rate-inside-grid", f"svmguide1: best final accuracy less that at rate {rate:.4g}", drop, _FALL)
    medium = min(there(curves[one]) for one in list(curves)[1:-1])
    slow = min(there(curves[_RATES[0]]), 2.0 * _STEPS * _ROUNDS_OF_RATES[-1])
    text = "svmguide1: steps until the best accuracy - .01, of the soonest medium rate, and at rate .1"
    yield below("rate-inside-grid", text, medium, slow)


def _inner(seed: int) -> Iterable[Decided]:
    for name in _SETS:
        parts = _parts(name, seed)
        scores = {
            (n_upd, n_fun): _score("vi-jj", parts, seed, n_upd=n_upd, n_fun=n_fun)
            for n_upd in (1, 3, 10)
            for n_fun in (2, 5, 20)
        }
        most = max(scores, key=lambda pair: scores[pair])
        text = f"{name}: best accuracy of nine pairs, at {most}, less that at (3, 5)"
        yield below("inner-numbers", text, scores[most] - scores[3, 5], _NEAR)


TRIALS: Mapping[str, Trial] = MappingProxyType({
    "kmeans-positions": _centres, "lbfgs-elbo-worse": _lbfgs, "rate-inside-grid": _rates, "inner-numbers": _inner,
})  # fmt: skip


@experiment(
    "izmailov2016",
    "trials",
    "statements of sections 3 and 5.1, each by a trial",
    "cluster centres serve, L-BFGS-B on (11) does worse, the best rate is inside its grid, three updates and five "
    "evaluations do (sections 3, 5.1)",
)
def trials(asked: TrialOptions, say: Say) -> Outcome:
    """On german20, svmguide1 and magic, at most 1000 training rows of each."""
    notes = (
        f"at most {_ROWS} training and {_TEST} test rows of {', '.join(_SETS)}, not named in the paper; {_SPLITS} "
        f"splits, {_CENTRES} centres",
        f"{_ROUNDS} iterations; svi: {_STEPS} steps of AdaDelta for each",
        "of rates the paper prints no ends of its grid: .1, doubled until parameters overflow or accuracy falls by .05",
    )
    return run(TRIALS, asked, say, notes)
