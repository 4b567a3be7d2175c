"""One fit of one program on one fold, in a process of its own, cut where its budget is spent."""

from __future__ import annotations

import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.bench.quality import programs
from validation.bench.quality.data import Fold

BINS = 10  # of confidence, for the calibration error
SMALLEST = 2.0**-52  # a probability counts as at least this: one row is worth 36 nats at most, in every program alike
_LONGEST_TEXT = 160


class Unit(NamedTuple):
    """One fit: all that it needs, seed and data among it."""

    program: str
    fold: Fold
    seed: int
    budget: float  # seconds of processor time


class Fit(NamedTuple):
    """One line of the table.

    outcome       "fitted", "cut" (its budget was spent) or "failed" (an error, which `message` has)
    seconds       of processor time in fit; of a cut one those until then
    wall          of the clock, in fit
    inducing      inducing points; 0 where there are none
    converged     of the classifier, None where it does not say
    n_warnings    while it was fitted; message holds the first, or the error
    """

    program: str
    dataset: str
    fold: int
    n: int
    d: int
    n_classes: int
    n_test: int
    outcome: str
    nll: float
    error: float
    ece: float
    seconds: float
    wall: float
    inducing: int
    converged: bool | None
    stopped: str
    n_warnings: int
    message: str


class CutError(BaseException):
    """The budget is spent; no `except Exception` of a program swallows it."""


def work(unit: Unit, hear: Callable[[Any], None]) -> Fit:
    """The work of one job."""
    return fitted(unit.program, unit.fold, seed=unit.seed, budget=unit.budget)


def fitted(program: str, fold: Fold, *, seed: int, budget: float, make: Callable[..., Any] = programs.make) -> Fit:
    """Fit, predict and score.

    Parameters
    ----------
    program : str      name
    fold : Fold        training and test rows
    seed : int         of the program
    budget : float     seconds of processor time for fit
    make : callable    (name, y, seed) -> what has fit and predict_proba
    """
    model = make(program, fold.y, seed)
    outcome, message = "fitted", ""
    started, wall = time.process_time(), time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with limited(budget):
                model.fit(fold.X, fold.y)
        except CutError:
            outcome = "cut"
        except Exception as error:  # noqa: BLE001 - what a program raises is part of the table
            outcome, message = "failed", f"{type(error).__name__}: {error}"
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    nll = error_rate = ece = float("nan")
    if outcome == "fitted":
        try:
            nll, error_rate, ece = scores(_all_classes(model, fold), fold.y_test)
        except Exception as error:  # noqa: BLE001 - as above
            outcome, message = "failed", f"in predict_proba: {type(error).__name__}: {error}"
    if not message and caught:
        message = f"{caught[0].category.__name__}: {caught[0].message}"
    points = getattr(model, "inducing_points_", None)
    converged = getattr(model, "converged_", None)
    return blank(program, fold)._replace(
        outcome=outcome,
        nll=nll,
        error=error_rate,
        ece=ece,
        seconds=seconds,
        wall=wall,
        inducing=0 if points is None else int(points.shape[-2]),
        converged=None if converged is None else bool(converged),
        stopped=plain(getattr(model, "stop_reason_", "")),
        n_warnings=len(caught),
        message=plain(message),
    )


def blank(program: str, fold: Fold) -> Fit:
    """The line of a fit of which nothing is known but what it was of."""
    n, d = fold.X.shape
    nan = float("nan")
    return Fit(
        program, fold.name, fold.fold, n, d, fold.n_classes, len(fold.y_test), "cut", nan, nan, nan, 0.0, 0.0, 0, None,
        "", 0, "",
    )  # fmt: skip


def lost(unit: Unit, seconds: float) -> Fit:
    """The line of a fit whose process ended without an answer: it could be cut in no other way."""
    ended = blank(unit.program, unit.fold)
    return ended._replace(seconds=seconds, wall=seconds, message="the process was ended")


def plain(text: str) -> str:
    """A text on one line, without paths, not too long."""
    text = re.sub(r"(?:[A-Za-z]:)?[/\\][^\s:'\"]+[/\\]", "", " ".join(str(text).split()))
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Inside, CutError is raised when the process has computed for so long; where there is no such clock, nothing is.

    Processor time and no clock on the wall: beside other programs a fit gets the same budget.
    """
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "setitimer")):
        yield
        return

    def over(number: int, frame: Any) -> None:
        raise CutError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _all_classes(model: Any, fold: Fold) -> NDArray[np.float64]:
    """Probabilities (t, C) of all classes of the set, 0 for one that no training row has."""
    given = np.asarray(model.predict_proba(fold.X_test))
    full = np.zeros((len(fold.y_test), fold.n_classes))
    full[:, np.asarray(model.classes_, dtype=np.intp)] = given
    return full


def scores(probabilities: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[float, float, float]:
    """(NLL, error, calibration error) of probabilities (t, C) at labels y (t,).

    NLL is the mean of -log p(y), p at least `SMALLEST`; the calibration error is the mean over rows of |confidence -
    accuracy| of their bin, ten bins of the largest probability, all of one width (Guo et al. 2017, ICML).

    Raises
    ------
    ValueError    for probabilities that are not finite, or whose rows do not sum to one within 1e-6
    """
    if not np.isfinite(probabilities).all() or np.abs(probabilities.sum(axis=1) - 1.0).max() > 1e-6:
        raise ValueError("probabilities: found rows that are not finite or do not sum to one, expected probabilities")
    nll = float(-np.log(np.maximum(probabilities[np.arange(y.size), y], SMALLEST)).mean())
    chosen, confidence = np.argmax(probabilities, axis=1), probabilities.max(axis=1)
    right = (chosen == y).astype(np.float64)
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, confidence - right, BINS)  # sum over a bin's rows
    return nll, float(1.0 - right.mean()), float(np.abs(gaps).sum() / y.size)
