"""What the experiments of villacampa2017 share: starts, training of four methods, scores along a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from fast.core import values
from fast.methods import ep, gfitc, sep, vi_robust
from reference.common.priors import Prior
from reference.villacampa2017.protocol import batch_optimiser_choice, initialise_hyperparameters
from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.door.quoting import shown
from validation.reproduce.protocols import scores

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MODULES: Mapping[str, ModuleType] = MappingProxyType({"gfitc": gfitc, "ep": ep, "sep": sep, "vi-robust": vi_robust})
METHODS = tuple(MODULES)
NAMES: Mapping[str, str] = MappingProxyType({"gfitc": "GFITC", "ep": "EP", "sep": "SEP", "vi-robust": "VI"})
LEARN = ("variance", "lengthscales", "noise", "Z")
EPSILON = 1e-3  # section 3
JITTER = 1e-6  # inducing points end on top of each other: keeps K of them apart from rounding
_SUBSAMPLE = 1000  # rows that distances are taken of
START = "variance 1, median distances as lengthscales, noise 0.01; the paper does not print its start"
VI_STEPS = "VI moves q by natural-gradient steps between those of Adam; the paper takes Adam for q as well"


class Held(NamedTuple):
    """What a method's `predict` reads: the state of a run, at its end or along the way."""

    run: Any


class Course(NamedTuple):
    """Held-out scores along one training run, the scoring itself not counted."""

    iteration: NDArray[np.int64]  # (r,)
    seconds: Array  # of training
    error: Array
    nll: Array  # mean of -log p(y* | x*)


class Run(NamedTuple):
    """How a training run ended."""

    method: str
    run: Any
    log_evidence: float | None
    trace: Array  # log evidence before each step, if asked for
    iterations: int
    n_improper: int
    diverged: bool
    reason: str
    course: Course | None  # None: no scores were asked for
    times: Array  # (steps,) seconds of training at the end of each, scoring left out
    residuals: Array  # (steps,) of EP, or of the variational distribution
    seconds: float  # of training in all

    def probabilities(self, X: Array) -> Array:
        """(t, C) at X (t, d)."""
        return np.asarray(MODULES[self.method].predict(Held(self.run), X).probabilities)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of it beyond its numbers."""
        label = NAMES[self.method]
        message = [f"{label} stopped as diverged, {self.reason}"] if self.diverged else []
        if self.n_improper:
            message.append(f"{label} skipped {self.n_improper} factors whose cavity was no distribution")
        return tuple(message)


class _EnoughError(Exception):
    """The budget of seconds is spent."""


def start(X: Array, n_inducing: int, n_classes: int, seed: int, *, alike: bool = False) -> Prior:
    """The start that all methods share: section 4. Inducing points are rows of X, drawn for each class.

    alike: inputs have one unit, such as pixels; they start with one lengthscale, the median distance of two rows.
    """
    rng = np.random.default_rng(arguments.integer(seed, "seed", at_least=0))
    if alike:
        rows = X[rng.choice(len(X), min(len(X), _SUBSAMPLE), replace=False)]
        lengthscales = np.full(X.shape[1], np.median(pdist(rows)))
    else:
        lengthscales = _typical_distances(X, rng)
    return initialise_hyperparameters(rng, X, n_inducing, n_classes, 1.0, lengthscales, 0.01, JITTER)


def _typical_distances(X: Array, rng: np.random.Generator) -> Array:
    """The median distance of two rows in units of the inputs' deviations, input by input: (d,)."""
    n = len(X)
    edges = np.linspace(0, n, min(n, _SUBSAMPLE) + 1).astype(np.int64)
    rows = edges[:-1] if n <= _SUBSAMPLE else rng.integers(edges[:-1], edges[1:])  # one of each of so many strides
    deviation = X[rows].std(axis=0)
    deviation[deviation == 0.0] = 1.0
    distances = pdist(X[rows] / deviation)
    return np.asarray(deviation * np.median(distances[distances > 0.0]))


def minibatches(n: int, size: int, n_steps: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """The data split into mini-batches, each epoch in a new order: section 2.3.2. The last of an epoch may be short."""
    rng = np.random.default_rng(arguments.integer(seed, "seed", at_least=0))
    arguments.integer(size, "batch_size", at_least=1)
    results: list[NDArray[np.int64]] = []
    while len(results) < n_steps:
        order = rng.permutation(n)
        results += [order[k : k + size] for k in range(0, n, size)]
    return tuple(results[:n_steps])


class Training(NamedTuple):
    """How one method is trained: the optimiser of section 4.1, or Adam on mini-batches.

    n_steps       updates of what is learned; of L-BFGS, iterations
    learn         names out of variance, lengthscales, noise, Z
    batches       index lists, one a step; None: all data
    optimizer     "lbfgs", "adaptive" or "adam"; None: the paper's for the method
    rate          of the optimiser's first step; None: its own
    scheme        "outer", "inner-approximate", "inner-exact"; None: the optimiser's
    tolerance, max_iterations, damping    of EP (or of the variational distribution) where it is run to convergence
    nat_rate      size of the natural-gradient steps of vi-robust where it takes mini-batches or Adam
    shared        one kernel and one set of inducing points for all classes
    """

    n_steps: int = 250
    learn: Sequence[str] = LEARN
    batches: Sequence[Any] | None = None
    optimizer: str | None = None
    rate: float | None = None
    scheme: str | None = None
    tolerance: float = 1e-4
    max_iterations: int = 1000
    damping: float = 0.5
    nat_rate: float = 0.1
    shared: bool = False


class Watch(NamedTuple):
    """What is measured of a run, and when it is stopped.

    test        held-out rows for scores (X, y); None: no scores
    growth      > 1: scores after the first step and whenever training time has grown by this factor
    budget      seconds of training, the run ends with the step that spends them
    trace       log evidence before each step
    evaluate    log evidence at the end
    clock       seconds
    """

    test: tuple[Array, Labels] | None = None
    growth: float = 1.3
    budget: float = np.inf
    trace: bool = False
    evaluate: bool = True
    clock: Callable[[], float] = time.perf_counter

    def checked(self) -> Watch:
        """The same, or a ValueError by name."""
        if not self.growth > 1.0:
            raise ValueError(f"growth: found {shown(self.growth)}, expected a factor > 1")
        if not self.budget > 0.0:
            raise ValueError(f"budget: found {shown(self.budget)}, expected seconds > 0")
        return self


TRAINING, WATCH = Training(), Watch()
_ADAM_RATE, _NAT_RATE = 0.03, 0.5  # of VI where Adam trains it
# how VI is trained, by the name of its optimiser
VI: Mapping[str, str] = MappingProxyType(
    {
        "lbfgs": "VI: at each step of L-BFGS q is at its optimum by natural gradients; the paper searches in q as well",
        "adam": f"VI: steps of Adam from {_ADAM_RATE:g} on the prior beside natural gradients of {_NAT_RATE:g} on q, "
        "all data at once; the paper has L-BFGS on both",
    }
)


def training_of(method: str, n_steps: int, rate: float | None, tolerance: float, vi_optimizer: str) -> Training:
    """How a method is trained in batch: by the paper's optimiser, or VI by Adam, its q and its prior together.

    Parameters
    ----------
    method, n_steps       as `Training` has them
    rate, tolerance       of the first adaptive step of EP and SEP; of EP
    vi_optimizer : str    of vi-robust, a key of `VI`
    """
    if method == "vi-robust" and vi_optimizer == "adam":
        return Training(n_steps, tolerance=tolerance, rate=_ADAM_RATE, optimizer="adam", nat_rate=_NAT_RATE)
    return Training(n_steps, tolerance=tolerance, rate=rate if method in ("ep", "sep") else None)


def train(method: str, X: Array, y: Labels, prior: Prior, training: Training = TRAINING, watch: Watch = WATCH) -> Run:
    """Train one method and score it along the way.

    Parameters
    ----------
    method : str     gfitc, ep, sep or vi-robust
    X, y             training rows; inputs standardised
    prior : Prior    where it starts
    training         how
    watch            what is measured
    """
    arguments.choice(method, METHODS, "method")
    optimizer = training.optimizer
    if optimizer is None:
        optimizer = "adam" if training.batches is not None else batch_optimiser_choice(method).optimizer
    learn = tuple(training.learn)
    record = _Record(method, watch.checked(), quasi_newton=optimizer == "lbfgs" and bool(learn))
    module, options = MODULES[method], _options(method, training, optimizer)
    data, start_at = values.Data(X, y, prior.Z.shape[0]), values.Prior(*prior, shared=training.shared)
    asked = type(module.DEFAULTS).of(options | {"trace": watch.trace, "evaluate": watch.evaluate, "callback": record})
    record.begin()
    try:
        posterior = module.fit(data, start_at, asked)
    except _EnoughError:
        last = record.last
        assert last is not None  # raised by it
        course = record.finish(last.run)
        return Run(
            method, last.run, None, np.zeros(0), last.iteration, last.n_improper, False, "budget spent", course,
            np.array(record.times), np.array(record.residuals), record.trained,
        )  # fmt: skip
    record.pause()
    done = posterior.trained
    return Run(
        method, posterior.run, posterior.log_evidence, done.trace, done.iterations, done.n_improper, done.diverged,
        done.reason, record.finish(posterior.run, done.iterations), np.array(record.times),
        np.array(record.residuals), record.trained,
    )  # fmt: skip


def _options(method: str, training: Training, optimizer: str) -> dict[str, Any]:
    """What training means to `fit` of a method; it takes those that it has."""
    options = training._asdict() | {"optimizer": optimizer, "epsilon": EPSILON}
    if method == "gfitc" and (optimizer != "lbfgs" or training.batches is not None):
        raise ValueError(
            f"optimizer: found {shown(optimizer)} for gfitc, expected 'lbfgs' on all data: no sum over the data"
        )
    if not training.learn and training.batches is None:
        del options["n_steps"]
    if training.scheme is None:
        options["scheme"] = "outer" if optimizer == "lbfgs" else "inner-approximate"
    if training.rate is None:
        del options["rate"]
    return options


class _Record:
    """A callback that scores a run at growing times, with the clock stopped."""

    def __init__(self, method: str, watch: Watch, *, quasi_newton: bool) -> None:
        self.method, self.watch, self.quasi_newton = method, watch, quasi_newton
        self.best = -np.inf
        self.trained, self.resumed = 0.0, 0.0
        self.rows: list[tuple[int, float, float, float]] = []
        self.times: list[float] = []
        self.residuals: list[float] = []
        self.last: Any = None

    def begin(self) -> None:
        self.resumed = self.watch.clock()

    def pause(self) -> None:
        self.trained += self.watch.clock() - self.resumed

    def __call__(self, progress: Any) -> None:
        self.pause()
        self.last = progress
        self.times.append(self.trained)
        self.residuals.append(progress.residual)
        # a line search also looks at worse places
        better = not self.quasi_newton or progress.log_evidence >= self.best
        self.best = max(self.best, progress.log_evidence) if self.quasi_newton else self.best
        if self.watch.test is not None and better and self._due():
            self._score(progress.iteration, progress.run)
        if self.trained >= self.watch.budget:
            raise _EnoughError
        self.begin()

    def _due(self) -> bool:
        return not self.rows or self.trained >= self.watch.growth * self.rows[-1][1]

    def _score(self, iteration: int, run: Any) -> None:
        assert self.watch.test is not None
        probabilities = MODULES[self.method].predict(Held(run), self.watch.test[0]).probabilities
        self.rows.append((iteration, self.trained, *scores(probabilities, self.watch.test[1])))

    def finish(self, run: Any, iterations: int | None = None) -> Course | None:
        """The course with the end of the run as its last row."""
        if self.watch.test is None:
            return None
        count = self.last.iteration if self.last is not None else iterations or 0
        if not self.rows or self.rows[-1][0] != count or self.quasi_newton:
            self._score(count, run)
        iteration, seconds, error, nll = zip(*self.rows, strict=True)
        return Course(np.array(iteration), np.array(seconds), np.array(error), np.array(nll))


def share(fraction: float, n: int) -> int:
    """How many inducing points a share of n rows makes."""
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction: found {shown(fraction)}, expected a share in (0, 1]")
    return max(1, round(fraction * n))


def smaller(data: Dataset, n: int, seed: int) -> Dataset:
    """At most n rows, each class in its share."""
    return data if n >= data.n else data.subsample(n, seed)
