"""L-BFGS-B on a function to maximise: SciPy's, for all papers, with a count of evaluations that is kept to."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from reference.common.errors import NotPositiveDefiniteError

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]

REACH = float(np.log(1e4))  # how far a search may move a logarithm


class Limits(NamedTuple):
    """Where a search ends, and how many of its last steps it looks back on."""

    gradient: float = 1e-9  # largest entry of the projected gradient
    rise: float = 0.0  # of the objective in one iteration, relative
    iterations: int = 15_000
    evaluations: int = 15_000
    memory: int = 20


class Top(NamedTuple):
    """The best point of a search."""

    where: Array
    value: float
    residual: float  # largest entry of the projected gradient there
    trace: Array  # largest value so far after each iteration
    iterations: int
    evaluations: int


class _EnoughError(Exception):
    """The last evaluation that was allowed has been made."""


def maximise(
    objective: Objective,
    start: Array,
    limits: Limits,
    reach: Array | float = np.inf,
    after: Callable[[Array, float], bool] | None = None,
) -> Top:
    """The highest point that L-BFGS-B passes on its way from start, within ± reach of it.

    A point where a matrix is not positive definite counts as far lower than the start: the line search turns back.

    Parameters
    ----------
    objective : callable      point (p,) to value and gradient (p,)
    start : (p,)              where the search starts
    limits : Limits           where it ends
    reach : (p,) or float     how far each coordinate may move
    after : callable          told point and value after each iteration; true ends the search

    Raises
    ------
    NotPositiveDefiniteError  if there is no value at the start
    """
    best: list[tuple[float, Array, Array]] = []
    count = 0
    first: list[float] = []  # values, of which the first is the start's
    trace: list[float] = []

    def loss(where: Array) -> tuple[float, Array]:
        nonlocal count
        if count >= limits.evaluations:
            raise _EnoughError
        count += 1
        try:
            value, gradient = objective(where)
        except NotPositiveDefiniteError:
            if not best:
                raise
            return -first[0] + 1e3 * (1.0 + abs(first[0])), where - start
        first.append(value)
        if not best or value >= best[0][0]:
            best[:] = [(value, where.copy(), gradient)]
        return -value, -gradient

    def watch(intermediate_result: Any) -> None:
        trace.append(best[0][0])
        if after is not None and after(intermediate_result.x, -float(intermediate_result.fun)):
            raise StopIteration

    low, high = start - reach, start + reach
    with suppress(_EnoughError):
        minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            callback=watch,
            options={
                "maxiter": limits.iterations,
                "maxfun": limits.evaluations,
                "ftol": limits.rise,
                "gtol": limits.gradient,
                "maxcor": limits.memory,
            },
        )
    value, where, gradient = best[0]
    residual = float(np.max(np.abs(np.clip(where + gradient, low, high) - where)))
    return Top(where, value, residual, np.array(trace), len(trace), count)
