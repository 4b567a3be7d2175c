"""Type-II MAP of the parameters of several classes: a hyperprior, L-BFGS-B in logarithms. riihimaki2013, 5.5.

`fast.core.hyperprior` has the densities and what can be read in several ways of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import option
from fast.core.hyper import ClassGradients, ClassHyper
from fast.core.hyperprior import Density, Hyperprior
from fast.core.learned import coordinates, field_at, field_of, learned_names, log_derivative
from fast.core.options import ClassLearning, Maximum, Watched
from fast.core.types import FloatArray
from fast.full_classes.prior import MulticlassPrior
from fast.ledger import equation
from fast.solve.lbfgs import Best, Limits, Place, Search

_LARGEST_FACTOR = float(np.log(1e4))


class Searched(NamedTuple):
    """Where the search ended."""

    posterior: Any  # at the best parameters
    hyper: ClassHyper
    objective: float  # log evidence + log prior there
    trace: FloatArray  # objective after each iteration of L-BFGS-B
    converged: bool
    reason: str
    n_evaluations: int
    n_refused: int


class _Coordinates:
    """Learned fields as one vector of logarithms."""

    def __init__(self, learn: Iterable[str], hyper: ClassHyper, shared: bool) -> None:
        self.names = learned_names(learn, hyper.noise, with_Z=False)
        if not self.names:
            raise ValueError("learn: found no name, expected some of variance, scale or lengthscales, noise")
        self.hyper, self.rows = hyper, 1 if shared else hyper.variance.size

    def value_of(self, field: str) -> FloatArray:
        value: FloatArray = getattr(self.hyper, field)[: self.rows]
        return value

    def vector(self) -> FloatArray:
        return np.concatenate([coordinates(name, self.value_of(field_of(name))).ravel() for name in self.names])

    def at(self, vector: FloatArray) -> ClassHyper:
        changed, start = {}, 0
        for name in self.names:
            field = field_of(name)
            value = self.value_of(field)
            shape = coordinates(name, value).shape
            stop = start + int(np.prod(shape))
            part = field_at(name, vector[start:stop].reshape(shape), value)
            changed[field] = np.array(np.broadcast_to(part, getattr(self.hyper, field).shape))
            start = stop
        return self.hyper._replace(**changed)


def learned_logarithms(learn: Iterable[str], hyper: ClassHyper, shared: bool) -> FloatArray:
    """Logarithms of the learned parameters as one vector.

    Parameters
    ----------
    learn            names out of variance, scale or lengthscales, noise
    hyper            parameters of the classes
    shared : bool    one vector for all classes
    """
    return _Coordinates(learn, hyper, shared).vector()


@equation("riihimaki2013", "u5.5-map")
def map_objective(
    log_evidence: float,
    gradients: ClassGradients,
    hyper: ClassHyper,
    learn: Iterable[str],
    hyperprior: Mapping[str, Density] | None,
    *,
    shared: bool,
    prior_on: str = "field",
    map_density: str = "value",
) -> tuple[float, FloatArray]:
    """log evidence + log prior and its gradient in the logarithms of the learned fields: riihimaki2013, section 5.5.

    Parameters
    ----------
    log_evidence : float
    gradients                  of it; shared: each row holds the sum over the classes
    hyper                      parameters of the classes
    learn                      names out of variance, scale or lengthscales, noise
    hyperprior                 field -> (family, df, scale); fields without one, or not learned, do not count
    shared : bool              one vector, one density
    prior_on, map_density       see `fast.core.hyperprior.log_hyperprior`
    """
    learned = _Coordinates(learn, hyper, shared)
    density = Hyperprior(hyperprior or {}, prior_on, map_density).checked(hyper.lengthscales.shape[1])
    prior = density.at(learned.names, learned.value_of)
    derivatives = []
    for name in learned.names:
        field = field_of(name)
        derivative = log_derivative(name, getattr(gradients, field)[: learned.rows], learned.value_of(field))
        derivatives.append(np.ravel(derivative + prior.derivatives.get(name, 0.0)))
    return log_evidence + prior.value, np.concatenate(derivatives)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassSearch(Watched, ClassLearning, Maximum):
    """Options of a search over the parameters of full Gaussian processes of several classes."""

    hyperprior: Any = option("data", "field -> (family, df, scale) of its density; None: flat", default=None)
    max_iterations: int = option("integer", "iterations of L-BFGS-B", "[1, inf)", default=200)
    learning_tolerance: float = option(
        "number", "projected gradient at which a search over the prior has arrived", "(0, inf)", default=1e-5
    )


def search(
    prior: MulticlassPrior,
    converge: Callable[[MulticlassPrior, Any], Any],
    value_and_gradients: Callable[[Any], tuple[float | None, ClassGradients]],
    options: ClassSearch,
    *,
    warm_start: Callable[[Any], Any] | None = None,
) -> Searched:
    """Maximise log evidence + log prior by L-BFGS-B, the method converged at every evaluation.

    A search that has to end (`fast.core.ending`) returns the best evaluation before; the start is always evaluated.
    Logarithms move by at most log 1e4. Parameters that are refused, or whose evidence is none, count as worse than all.

    Parameters
    ----------
    prior                              data, and where the search starts
    converge : callable                (prior, start or None) -> posterior
    value_and_gradients : callable     posterior -> log evidence (or None) and its gradient
    options                            tolerance on the largest entry of the projected gradient; hyperprior, prior_on
                                       and map_density as in `map_objective`; the callback is given the posterior
                                       after each evaluation
    warm_start : callable              posterior -> start of the next run

    Raises
    ------
    ValueError, NotPositiveDefiniteError    if the start itself is refused
    """
    callback = options.callback
    learned = _Coordinates(options.learn, prior.hyper, prior.shared)
    first = learned.vector()
    start: tuple[Best | None, Any] = None, None  # the best place, and how to start from it

    def evaluate(vector: FloatArray, best: Best | None) -> Place:
        nonlocal start
        if best is not start[0] and best is not None:
            start = best, None if warm_start is None else warm_start(best.place.payload[0])
        hyper = learned.at(vector)
        here = MulticlassPrior(prior.X, prior.y, prior.n_classes, hyper, prior.shared)
        posterior = converge(here, start[1])
        log_evidence, gradients = value_and_gradients(posterior)
        if log_evidence is None:
            raise ValueError("log_evidence: found None, expected a number at the start of the search")
        value, derivative = map_objective(
            log_evidence, gradients, hyper, learned.names, options.hyperprior, shared=prior.shared,
            prior_on=options.prior_on, map_density=options.map_density,
        )  # fmt: skip
        return Place(value, derivative, (posterior, hyper))

    search = Search(evaluate, None if callback is None else lambda place: callback(place.payload[0]))
    limits = Limits(options.max_iterations, options.learning_tolerance, 1e-14)
    end = search.round(first, limits, (first - _LARGEST_FACTOR, first + _LARGEST_FACTOR))
    best = search.best
    assert best is not None  # the start raises, or counts
    posterior, hyper = best.place.payload
    counts = search.n_evaluations, search.n_refused
    return Searched(posterior, hyper, best.place.value, np.array(search.trace), end.success, end.reason, *counts)
