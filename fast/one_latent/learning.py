"""Parameters of the prior by L-BFGS-B on an objective whose inner fixed point is converged at every evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.declare import Options
from fast.core.ending import ENOUGH, ended
from fast.core.inputs import Hyper
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.core.values import Data, Prior, checked_hyper
from fast.solve.adam import Packing
from fast.solve.lbfgs import Best, Limits, Place, Search

# Logarithms may move this far from where they start: a factor of e^20 either way is no longer a kernel for the data.
_LARGEST_LOG_MOVE = 20.0
# How far logarithms may move in the first of two rounds, and how carefully that one ends. L-BFGS-B starts without
# curvature: a first step across several lengthscales may land where the kernel is a constant, from which no gradient
# leads back. The round that follows starts nearer, and with derivatives of its own size.
_FIRST_ROUND = 2.0
_FIRST_ITERATIONS, _FIRST_DERIVATIVE, _FIRST_CHANGE = 15, 1e-2, 1e-6
# Two rounds that gain less than this of the objective's size end the search, flat or not.
_GAIN = 1e-8
# Derivative over 1 + |objective| up to which an end counts as a maximum: far above what the search's own criteria
# leave.
_FLAT = 1e-3


class Learned(NamedTuple):
    """Where the search ended."""

    hyper: Hyper
    Z: FloatArray | None
    trace: FloatArray  # objective after each iteration of L-BFGS-B
    converged: bool
    reason: str
    n_evaluations: int
    n_refused: int  # parameters at which the prior could not be factorised, or a number overflowed


def maximise(
    evaluate: Callable[[Hyper, FloatArray | None], tuple[float, Gradients]],
    packing: Packing,
    *,
    max_iterations: int,
    tolerance: float,
    max_evaluations: int = 15_000,
) -> Learned:
    """Maximise an objective and the log density of what is learned over what the packing holds.

    A search starts in a box of two units of the logarithms around its start and goes on in one of twenty; where it ends
    on a gradient it is begun again, as long as that raises the objective.
    A search that has to end (`fast.core.ending`) returns the best evaluation before; the start is always evaluated.
    Parameters that the prior refuses count as worse than all seen, so the line search turns back; the best evaluation
    is what is returned.

    Parameters
    ----------
    evaluate : callable      parameters -> objective and its gradient
    packing                  which parameters, their start, and their hyperprior, which counts in every value here
    max_iterations : int     of L-BFGS-B
    tolerance : float        on the largest entry of the gradient in these coordinates
    max_evaluations : int    of the objective; the step in which they run out is finished

    Raises
    ------
    ValueError, NotPositiveDefiniteError    if the start itself is refused
    """
    start = packing.vector(packing.hyper, packing.Z)
    again = 0  # evaluations that were remembered

    def place(vector: FloatArray, best: Best | None) -> Place:
        nonlocal again
        if best is not None and np.array_equal(vector, best.vector):  # where a round begins
            again += 1
            return best.place
        hyper, Z = packing.parameters(vector, packing.hyper, packing.Z)
        value, gradients = evaluate(hyper, Z)
        log_prior, by_prior = packing.prior(hyper)
        return Place(value + log_prior, packing.gradient(gradients, hyper) + by_prior)

    search = Search(place)
    box = np.full(start.size, np.inf)
    for name, part in packing.parts.items():
        if name != "Z":
            box[part] = 1.0
    lowest, highest = start - _LARGEST_LOG_MOVE * box, start + _LARGEST_LOG_MOVE * box

    search(start)
    radius = _FIRST_ROUND
    while True:
        assert search.best is not None  # the start raises, or counts
        vector, (value, derivative, _) = search.best
        first = radius == _FIRST_ROUND
        left = max_iterations - len(search.trace)
        size = max(1.0, abs(value))
        if first:
            before = value
        # a first step takes the whole derivative, as far as the box allows: in these units no entry of it is above one
        unit = max(1.0, float(np.abs(derivative).max()))
        limits = Limits(
            min(_FIRST_ITERATIONS, left) if first else left,
            (max(tolerance, _FIRST_DERIVATIVE) if first else tolerance) / unit,
            (_FIRST_CHANGE if first else 1e-13) * min(1.0, size / unit),
            max_evaluations - search.n_evaluations + again,
        )
        near = np.maximum(vector - radius * box, lowest), np.minimum(vector + radius * box, highest)
        end = search.round(vector, limits, near, unit)
        best_vector, (value, derivative, _) = search.best
        spent = len(search.trace) >= max_iterations or search.n_evaluations - again >= max_evaluations
        free = np.clip(best_vector + derivative, lowest, highest) - best_vector
        flat = float(np.abs(free).max()) <= _FLAT * size
        if (
            spent
            or ended()
            or (end.reason == ENOUGH and not first)
            or (not first and (flat or value - before <= _GAIN * size))
        ):
            break
        radius = _LARGEST_LOG_MOVE if first else _FIRST_ROUND
    hyper, Z = packing.parameters(best_vector, packing.hyper, packing.Z)
    # a line search that finds no rise ends as a success too: beside a singular prior, say, where derivatives are
    # rounding
    flat = flat or end.reason == ENOUGH
    reason = end.reason if flat or not end.success else "no step raises the objective, whose gradient is not zero"
    count = search.n_evaluations - again
    return Learned(hyper, Z, np.array(search.trace), end.success and flat, reason, count, search.n_refused)


def starting(data: Data, prior: Prior, learn: Iterable[str], hyperprior: Any = None) -> tuple[Data, Packing]:
    """Data with checked inputs, and what is learned at its start; a copy of Z, which the search moves.

    Parameters
    ----------
    data          labels 0, 1
    prior         where the search starts
    learn         names
    hyperprior    of what is learned, or None
    """
    X = inputs.inputs("X", data.X)
    Z = None if prior.Z is None else inputs.finite_rows("Z", inputs.inputs("Z", prior.Z, X.shape[1])).copy()
    packing = Packing(learn, checked_hyper(prior, X.shape[1]), Z, hyperprior)
    if packing.size == 0:
        raise ValueError("learn: found no name, expected some of variance, lengthscales, noise, Z")
    return replace(data, X=X), packing


class WarmSearch:
    """`maximise` on an objective of a method that runs at every evaluation from the end of the one before."""

    def __init__(
        self,
        run: Callable[[Hyper, FloatArray | None, Any], Any],
        objective: Callable[[Any], tuple[float, Gradients]],
        end_of: Callable[[Any], Any],
        start: Any = None,
    ) -> None:
        """run: parameters and a start -> posterior; objective: of a posterior, with its gradient; end_of: of it too."""
        self.run, self.objective, self.end_of, self.start = run, objective, end_of, start

    def _evaluate(self, hyper: Hyper, Z: FloatArray | None) -> tuple[float, Gradients]:
        posterior = self.run(hyper, Z, self.start)
        self.start = self.end_of(posterior)
        return self.objective(posterior)

    def maximum(self, packing: Packing, options: Options) -> tuple[Any, Learned]:
        """The posterior at the best parameters, and how the search over a packing went; options: of a `Search`."""
        limits: Any = options
        learned = maximise(
            self._evaluate, packing, max_iterations=limits.learning_iterations, tolerance=limits.learning_tolerance
        )
        return self.run(learned.hyper, learned.Z, self.start), learned
