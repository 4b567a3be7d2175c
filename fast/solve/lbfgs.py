"""The search by L-BFGS-B for the maximum of an objective that some places refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

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
    from scipy.optimize import minimize  # here: only some runs need what takes long to load

    best: Best | None = None
    worst = np.inf
    trace: list[float] = []

    def objective(vector: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, worst
        try:
            place = evaluate(vector, best)
        except (ValueError, NotPositiveDefiniteError):
            if best is None:
                raise
            return -worst + 1e3 * (1.0 + abs(worst)), np.zeros(vector.size)
        worst = min(worst, place.value)
        if best is None or place.value > best.place.value:
            best = Best(vector.copy(), place)
        return -place.value, -place.gradient

    reason = ""
    for radius, most in rounds:
        if len(trace) >= n_iterations:
            break
        near = np.where(np.isfinite(box), radius * box, np.inf)
        end = minimize(
            objective,
            start if best is None else best.vector,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(start - near, start + near, strict=True)),
            callback=lambda _: trace.append(best.place.value if best is not None else np.nan),
            options={
                "maxiter": min(most, n_iterations - len(trace)),
                "gtol": tolerance,
                "ftol": 1e-15,
                "maxls": 40,
            },
        )
        reason = str(end.message)
    assert best is not None  # the start raises, or counts
    ahead = np.clip(best.vector + best.place.gradient, start - box, start + box)
    return Found(best, float(np.abs(ahead - best.vector).max()), np.array(trace), reason)
