"""L-BFGS-B on a function to maximise, with a count of its evaluations that is kept to."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from reference.common.errors import NotPositiveDefiniteError

Array = NDArray[np.float64]

REACH = float(np.log(1e4))  # how far a search may move a logarithm


class Found(NamedTuple):
    """The best point seen."""

    where: Array
    value: float
    slope: float  # largest entry of the projected gradient there
    trace: Array  # value after each iteration
    evaluations: int
    iterations: int


class _EnoughError(Exception):
    """The last evaluation that was allowed has been made."""


def maximise(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    reach: Array,
    n_fun: int | None = None,
    max_iterations: int = 15_000,
    tolerance: float = 0.0,
) -> Found:
    """L-BFGS-B from start within ± reach; ends after n_fun evaluations or a relative rise of at most tolerance.

    The best point seen is returned, so the value never falls. A point where a matrix is not positive definite counts
    as far worse than the start: the line search turns back.
    """
    best: list[tuple[float, Array, Array]] = []
    count = 0
    trace: list[float] = []

    def loss(where: Array) -> tuple[float, Array]:
        nonlocal count
        if n_fun is not None and count >= n_fun:
            raise _EnoughError
        count += 1
        try:
            value, gradient = objective(where)
        except NotPositiveDefiniteError:
            if not best:
                raise
            return -best[0][0] + 1e3 * (1.0 + abs(best[0][0])), where - start
        if not best:
            best.append((value, where.copy(), gradient))
        if value >= best[-1][0]:
            best.append((value, where.copy(), gradient))
        return -value, -gradient

    iterations = 0

    def after(intermediate_result: object) -> None:
        nonlocal iterations
        iterations += 1
        trace.append(best[-1][0])

    low, high = start - reach, start + reach
    limit = 15_000 if n_fun is None else n_fun
    with suppress(_EnoughError):
        minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            callback=after,
            options={"maxiter": max_iterations, "maxfun": limit, "ftol": tolerance, "gtol": 1e-9, "maxcor": 20},
        )
    value, where, gradient = best[-1]
    slope = float(np.max(np.abs(np.clip(where + gradient, low, high) - where)))
    return Found(where, value, slope, np.array(trace), count, iterations)
