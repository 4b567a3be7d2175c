"""The search by L-BFGS-B for the maximum of an objective that some places refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fast.core.ending import ENOUGH, EndedError, ended, enough, reached
from fast.core.errors import NotPositiveDefiniteError
from fast.core.types import FloatArray


class Place(NamedTuple):
    """The objective at a vector of parameters."""

    value: float
    gradient: FloatArray  # (p,)
    payload: Any = None  # what the caller needs to come back; a best place keeps it


class Best(NamedTuple):
    """The best place so far."""

    vector: FloatArray  # (p,)
    place: Place


class Limits(NamedTuple):
    """Where a round ends."""

    iterations: int
    gradient: float  # largest entry of the projected gradient
    change: float  # of the objective in one iteration, relative
    evaluations: int = 15_000
    memory: int = 10  # past steps
    line_steps: int = 40  # of one line search
    gains: bool = True  # whether it ends where nothing is gained that counts (`fast.core.ending.enough`)


class End(NamedTuple):
    """Where a round stopped."""

    vector: FloatArray  # (p,); the best place where the run had to end
    success: bool
    reason: str


class Search:
    """L-BFGS-B on an objective that some places refuse, round after round; the best place of all is kept.

    Places that raise, or where a number is not finite, count as worse than all. The start itself raises, and is
    evaluated in any case: a search that has to end (`fast.core.ending`) keeps the best place before.

    evaluate : callable    (vector, best so far or None) -> Place; may raise ValueError, NotPositiveDefiniteError
    told : callable        after each evaluation that was not refused, with its place
    """

    def __init__(
        self, evaluate: Callable[[FloatArray, Best | None], Place], told: Callable[[Place], None] | None = None
    ) -> None:
        self.evaluate, self.told = evaluate, told
        self.best: Best | None = None
        self.trace: list[float] = []  # the best value after each iteration
        self.n_evaluations = self.n_refused = 0
        self._worst = np.inf

    def __call__(self, vector: FloatArray) -> tuple[float, FloatArray]:
        """What the optimiser is told: minus objective and gradient."""
        best = self.best
        if best is not None and ended():
            raise EndedError
        self.n_evaluations += 1
        try:
            place = self.evaluate(vector, best)
            # a start that was cut short may be worse than all, but no NaN
            usable = np.isfinite(place.value) or (place.value == -np.inf and best is None and ended())
            if not (usable and np.isfinite(place.gradient).all()):
                raise ValueError("objective: found a value or derivative that is not finite, expected finite numbers")
        except (ValueError, NotPositiveDefiniteError):
            if best is None:
                raise
            self.n_refused += 1
            return -self._worst + 1e3 * (1.0 + abs(self._worst)), np.zeros(vector.size)
        if best is not None and ended():  # cut short on its way to a fixed point
            raise EndedError
        self._worst = min(self._worst, place.value)
        if best is None or place.value > best.place.value:
            self.best = best = Best(vector.copy(), place)
        reached(f"iteration {len(self.trace)} of the search", best.place.value)
        if self.told is not None:
            self.told(place)
        return -place.value, -place.gradient

    def round(
        self,
        start: FloatArray,
        limits: Limits,
        box: tuple[FloatArray, FloatArray] | None = None,
        unit: float = 1.0,
    ) -> End:
        """One run of L-BFGS-B.

        Parameters
        ----------
        start : (p,)     where it begins
        limits           where it ends
        box              smallest and largest vector
        unit : float     by which objective and gradient are divided
        """
        from scipy.optimize import minimize  # here: only some runs need what takes long to load

        # iterations before this round: at the edge of a small box nothing is gained, which says nothing
        begun = len(self.trace)

        def objective(vector: FloatArray) -> tuple[float, FloatArray]:
            value, derivative = self(vector)
            return value / unit, derivative / unit

        def after(_: FloatArray) -> None:
            self.trace.append(np.nan if self.best is None else self.best.place.value)
            if limits.gains and enough(self.trace[begun:]):
                raise StopIteration

        options = {
            "maxiter": limits.iterations,
            "maxfun": limits.evaluations,
            "gtol": limits.gradient,
            "ftol": limits.change,
            "maxls": limits.line_steps,
            "maxcor": limits.memory,
        }
        bounds = None if box is None else list(zip(*box, strict=True))
        try:
            end = minimize(
                objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=after, options=options
            )
        except EndedError:
            assert self.best is not None  # the start is evaluated in any case
            return End(self.best.vector, False, ended())
        if self.best is not None and not np.isfinite(self.best.place.value):
            return End(self.best.vector, False, ended())
        if limits.gains and enough(self.trace[begun:]):
            return End(end.x, True, ENOUGH)
        return End(end.x, bool(end.success), str(end.message))


class Round(NamedTuple):
    """One run of L-BFGS-B, from the best place so far."""

    radius: float  # share of the box about the start that it may use
    n_iterations: int


class Found(NamedTuple):
    """Where the search ended."""

    best: Best
    residual: float  # largest entry of the projected gradient at the best place
    trace: FloatArray  # the best value after each iteration
    reason: str
    enough: bool = False  # `fast.core.ending.enough` ended it


def maximise(
    evaluate: Callable[[FloatArray, Best | None], Place],
    start: FloatArray,
    box: FloatArray,
    rounds: Sequence[Round],
    *,
    n_iterations: int,
    tolerance: float,
) -> Found:
    """The largest value in a box about the start. Places that raise count as worse than all; the start itself raises.

    A search that has to end (`fast.core.ending`) returns the best place before; the start is evaluated in any case.

    Without curvature a first step may be far too long: a first round with a small radius keeps it near the start.

    Parameters
    ----------
    evaluate : callable     (vector, best so far or None) -> Place; may raise ValueError, NotPositiveDefiniteError
    start : (p,)            first vector
    box : (p,)              how far each entry may move; inf: anywhere
    rounds                  one after the other
    n_iterations : int      in all rounds
    tolerance : float       on the projected gradient
    """
    search, reason = Search(evaluate), ""
    for radius, most in rounds:
        if len(search.trace) >= n_iterations or (search.best is not None and ended()):
            break
        near = np.where(np.isfinite(box), radius * box, np.inf)
        limits = Limits(min(most, n_iterations - len(search.trace)), tolerance, 1e-15)
        here = start if search.best is None else search.best.vector
        reason = search.round(here, limits, (start - near, start + near)).reason
    best = search.best
    assert best is not None  # the start raises, or counts
    ahead = np.clip(best.vector + best.place.gradient, start - box, start + box)
    return Found(best, float(np.abs(ahead - best.vector).max()), np.array(search.trace), reason, reason == ENOUGH)
