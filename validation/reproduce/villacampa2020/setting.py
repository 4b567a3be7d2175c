"""What the experiments of villacampa2020 share: runs of four methods at any alpha, scored along the way, continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fast.core import values
from fast.methods import apep, pep
from reference.common.priors import Prior
from validation.door import arguments
from validation.implementations import power_runs
from validation.ledger.marker import equation
from validation.reproduce.protocols import scores
from validation.reproduce.villacampa2017.setting import (
    EPSILON,
    JITTER,
    LEARN,
    START,
    WATCH,
    Course,
    Watch,
    minibatches,
    smaller,
)
from validation.reproduce.villacampa2017.setting import start as start_of_2017

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

NAMES: Mapping[str, str] = MappingProxyType({"pep": "PEP", "apep": "APEP", "arpep": "ARPEP", "rpapep": "RPAPEP"})
METHODS = tuple(NAMES)
ALPHAS = tuple(k / 10 for k in range(11))
OPTIMIZERS = ("adaptive", "lbfgs")
_RESTARTS = 2
# A natural-gradient run that is far from its optimum after 40 steps searches it by L-BFGS, which costs as much as a
# whole training and is of no use where the priors move next: it counts its steps anew before.
_BEFORE_SEARCH = 39
NONE = "none"  # stands in tables for what an energy without a finite optimum does not have
CUT = "seconds after which a training is cut"
LIMIT = "alpha = 0 is the limit itself, which is VB for all four methods; the paper takes a small alpha, not printed"
OPTIMISER = (
    "q and priors take turns, a sweep of power EP or a natural-gradient step and an adaptive-rate step; the paper does "
    "so for PEP and has L-BFGS on q and priors together for the others: -o optimizer=lbfgs has it on the priors"
)
__all__ = ["ALPHAS", "EPSILON", "JITTER", "LEARN", "METHODS", "NAMES", "START", "Course", "Watch", "smaller", "start"]


class Run(NamedTuple):
    """How a training run ended."""

    method: str
    alpha: float
    run: Any
    log_evidence: float | None  # None: it has none, or it was not asked for
    optimum: str  # "" or "none: why"
    reason: str
    course: Course | None  # None: no scores were asked for, or the run has none
    iterations: int
    seconds: float  # of training
    restarts: tuple[float, ...] = ()  # first rates with which it diverged before

    @property
    def lost(self) -> bool:
        """Whether there is nothing to predict with."""
        return bool(self.optimum)

    def probabilities(self, X: Array) -> Array:
        """(t, C) at X (t, d).

        Raises
        ------
        ValueError    the run has no finite optimum
        """
        if self.lost:
            raise ValueError(f"run: found {self.optimum}, expected a finite optimum for predictions")
        return power_runs.probabilities(self.run, X)

    def scores(self, X: Array, y: Labels) -> tuple[float, float]:
        """(error, nll) of held-out rows; infinite where there is no optimum, which is last in every rank."""
        return (np.inf, np.inf) if self.lost else scores(self.probabilities(X), y)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of it beyond its numbers."""
        label = f"{NAMES[self.method]} at alpha = {self.alpha:g}"
        again = tuple(f"{label}: diverged from rate {rate:g}, begun again with {rate / 10:g}" for rate in self.restarts)
        if self.lost:
            return (*again, f"{label}: {self.optimum}")
        usual = not self.reason or self.reason.startswith("tolerance reached") or self.reason.endswith("steps made")
        usual = usual or "CONVERGENCE" in self.reason or "LIMIT" in self.reason
        return again if usual else (*again, f"{label}: {self.reason}")


@equation("villacampa2020", "u36-initialisation")
def start(X: Array, n_inducing: int, n_classes: int, seed: int, *, alike: bool = False) -> Prior:
    """Hyper-parameters and inducing points that all methods start with: section 5. Their values are not printed.

    As in the experiments of villacampa2017: every latent function has variance 1, noise 0.01 and, as lengthscales, the
    median distance of two standardised rows times the inputs' deviations; inducing points are rows, drawn a class.

    Parameters
    ----------
    X : (n, d)          training inputs, standardised
    n_inducing : int    of each class
    n_classes : int     C
    seed : int          of the draws
    alike : bool        inputs have one unit, such as pixels, and one lengthscale
    """
    return start_of_2017(X, n_inducing, n_classes, seed, alike=alike)


def grown(before: Run, X: Array, y: Labels, damping: float = 0.5) -> Any:
    """The run on more data, which come after those that it knows: priors, inducing points and q as they are.

    Power EP keeps its sites, new ones are zero; the other methods keep q itself.

    Parameters
    ----------
    before : Run    on the first rows
    X, y            all rows
    damping : float    of power EP
    """
    return power_runs.grown(before.run, before.method, before.alpha, X, y, damping)


def sweeps(damping: float, n_start: int) -> str:
    """What a page says of the sweeps of PEP, which decide at alpha near 0 at which fixed point they end."""
    return f"PEP: damping {damping:g}, {n_start} sweeps before the priors move; the paper prints neither"


class Training(NamedTuple):
    """How one method is trained on all data: q alone first, then q and the priors.

    epsilon       probability of a random label
    n_steps       updates of what is learned; of L-BFGS, iterations
    n_start       steps of q before the priors move, all there are if nothing is learned; not for "lbfgs"
    learn         names out of variance, lengthscales, noise, Z
    optimizer     "adaptive": in turns with q; "lbfgs": q at its optimum for every step of the priors
    rate          first rate of "adaptive"
    damping, tolerance, max_iterations    of power EP; tolerance and steps of q for the others too
    """

    epsilon: float = EPSILON
    n_steps: int = 500
    n_start: int = 60
    learn: Sequence[str] = LEARN
    optimizer: str = "adaptive"
    rate: float = 0.01
    damping: float = 0.5
    tolerance: float = 1e-3
    max_iterations: int = 200

    def options(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Of q alone, and of q and the priors; None where that is left out."""
        first = together = None
        damping = arguments.real(self.damping, "damping")
        if not 0.0 < damping <= 1.0:
            raise ValueError(f"damping: found {damping:g}, expected a share in (0, 1]")
        if arguments.integer(self.n_start, "n_start", at_least=0):
            first = {"max_iterations": self.n_start, "tolerance": self.tolerance}
        if self.learn:
            quasi_newton = self.optimizer == "lbfgs"
            together = {
                "max_iterations": self.max_iterations,
                "learn": self.learn,
                "optimizer": self.optimizer,
                "n_steps": self.n_steps,
                "tolerance": self.tolerance,
                "scheme": "outer" if quasi_newton else "inner-approximate",
                "rate": None if quasi_newton else self.rate,
            }
        return first, together


class BatchTraining(NamedTuple):
    """How one method is trained on mini-batches: Adam on the priors, and on q but for PEP, whose factors are refined.

    epsilon       probability of a random label
    batch_size    rows of a mini-batch; those of an epoch are a partition of the data
    n_steps       mini-batches
    learn         names out of variance, lengthscales, noise, Z
    rate          of Adam; its default is the paper's choice
    damping       of power EP
    seed          of the mini-batches
    """

    epsilon: float = EPSILON
    batch_size: int = 200
    n_steps: int = 1000
    learn: Sequence[str] = LEARN
    rate: float = 0.001
    damping: float = 0.5
    seed: int = 0


TRAINING, BATCH_TRAINING = Training(), BatchTraining()


def train(
    method: str,
    alpha: float,
    X: Array,
    y: Labels,
    prior: Prior,
    training: Training = TRAINING,
    watch: Watch = WATCH,
    before: Run | None = None,
) -> Run:
    """Train one method on all data.

    An energy that grows without bound, and a run that cannot begin, end with `optimum` "none: why". Where ascent with
    adaptive rates leaves the range of the priors it is begun again with a tenth of the rate, twice at most.

    Parameters
    ----------
    method : str     pep, apep, arpep or rpapep
    alpha : float    in [0, 1]
    X, y             training rows; inputs standardised
    prior : Prior    where it starts
    training         how
    watch            what is measured
    before : Run     continue it on these rows, of which it knows the first
    """
    optimizer = arguments.choice(training.optimizer, OPTIMIZERS, "optimizer")
    learning, damping = bool(training.learn), training.damping
    first, together = training.options()
    again: tuple[float, ...] = ()
    while True:
        record = Recorder(watch, quasi_newton=optimizer == "lbfgs" and learning)
        record.in_turns = optimizer == "adaptive" and learning
        record.begin()
        if before is None:
            arguments.choice(method, METHODS, "method")
            run = power_runs.begin(method, alpha, X, y, prior, epsilon=training.epsilon, damping=damping)
        else:
            run = grown(before, X, y, damping)
        wanted = not learning or (before is None and optimizer != "lbfgs")
        reason, optimum, diverged = _through(run, first if wanted else None, together, record)
        record.pause()
        if not diverged or optimizer == "lbfgs" or len(again) == _RESTARTS:
            end = ended(record, method, alpha, run, reason, optimum)
            return end._replace(restarts=again)
        again, training = (*again, training.rate), training._replace(rate=training.rate / 10.0)
        first, together = training.options()


def _through(
    run: Any, first: dict[str, Any] | None, together: dict[str, Any] | None, record: Recorder
) -> tuple[str, str, bool]:
    """q alone, then q and priors: how it ended, why there is no optimum, whether the priors left their range."""
    reason = ""
    try:
        if first is not None:
            reason = power_runs.settle(run, record, **first).reason
        if together is not None:
            trained = power_runs.learn(run, record, **together)
            return trained.reason, "", trained.diverged
    except EnoughError as error:
        reason = str(error)
    except (ValueError, np.linalg.LinAlgError) as error:
        # the start itself has no evidence, or no q: what a search of the priors refuses to begin with
        if not (isinstance(error, np.linalg.LinAlgError) or str(error).startswith("log_evidence:")):
            raise
        return reason, f"{NONE}: {error}", False
    return reason, "", False


def train_in_batches(
    method: str,
    alpha: float,
    X: Array,
    y: Labels,
    prior: Prior,
    training: BatchTraining = BATCH_TRAINING,
    watch: Watch = WATCH,
) -> Run:
    """Train one method on mini-batches; the log evidence of all data is not computed.

    Parameters
    ----------
    method, alpha, X, y, prior, watch    as for `train`
    training                             how
    """
    arguments.choice(method, METHODS, "method")
    record = Recorder(watch._replace(evaluate=False), quasi_newton=False)
    batches = minibatches(y.size, training.batch_size, training.n_steps, training.seed)
    common: dict[str, Any] = {
        "batches": batches, "n_steps": training.n_steps, "learn": tuple(training.learn), "rate": training.rate,
        "alpha": alpha, "epsilon": training.epsilon, "evaluate": False, "callback": record, "optimizer": "adam",
    }  # fmt: skip
    data, start_at = values.Data(X, y, prior.Z.shape[0]), values.Prior(*prior)
    record.begin()
    try:
        posterior: Any
        if method == "pep":
            posterior = pep.fit(data, start_at, pep.PEPOptions(scheme="inner", damping=training.damping, **common))
        else:
            posterior = apep.fit(data, start_at, apep.EnergyOptions(energy=method, **common))
        run, reason = posterior.run, posterior.trained.reason
    except EnoughError as error:
        assert record.last is not None  # raised by it
        run, reason = record.last.run, str(error)
    record.pause()
    return ended(record, method, alpha, run, reason, "")


def ended(record: Recorder, method: str, alpha: float, run: Any, reason: str, optimum: str) -> Run:
    """What a run has come to, its last scores included."""
    unbounded = getattr(run, "unbounded", None)
    optimum = optimum or unbounded or ""
    value = run.log_evidence() if record.watch.evaluate and not optimum else None
    course = None if optimum else record.finish(run)
    return Run(method, alpha, run, value, optimum, reason, course, record.count, record.trained)


class EnoughError(Exception):
    """The budget of seconds is spent, or the energy has no finite optimum."""


class Recorder:
    """A callback that scores a run at growing times, with the clock stopped, and ends it when there is enough."""

    def __init__(self, watch: Watch, *, quasi_newton: bool) -> None:
        self.watch = watch.checked()
        self.quasi_newton, self.best, self.in_turns = quasi_newton, -np.inf, False
        self.trained, self.resumed, self.count = 0.0, 0.0, 0
        self.rows: list[tuple[int, float, float, float]] = []
        self.last: Any = None

    def begin(self) -> None:
        """The clock runs."""
        self.resumed = self.watch.clock()

    def pause(self) -> None:
        """The clock stands."""
        self.trained += self.watch.clock() - self.resumed
        self.resumed = self.watch.clock()

    def __call__(self, progress: Any) -> None:
        """One step is made."""
        self.trained += self.watch.clock() - self.resumed
        self.last, self.count = progress, self.count + 1
        unbounded = getattr(progress.run, "unbounded", None)
        if unbounded is not None and not self.quasi_newton:
            self.resumed = self.watch.clock()
            raise EnoughError(unbounded)
        if self.in_turns and getattr(progress.run, "steps", 0) >= _BEFORE_SEARCH:
            progress.run.rebuild()
        # a line search also looks at worse places
        better = not self.quasi_newton or progress.log_evidence >= self.best
        self.best = max(self.best, progress.log_evidence) if self.quasi_newton else self.best
        if self.watch.test is not None and better and self._due():
            self._score(progress.run)
        self.resumed = self.watch.clock()
        if self.trained >= self.watch.budget:
            raise EnoughError(f"{self.watch.budget:g} seconds spent after {self.count} steps")

    def _due(self) -> bool:
        return not self.rows or self.trained >= self.watch.growth * self.rows[-1][1]

    def _score(self, run: Any) -> None:
        assert self.watch.test is not None
        p = power_runs.probabilities(run, self.watch.test[0])
        self.rows.append((self.count, self.trained, *scores(p, self.watch.test[1])))

    def finish(self, run: Any) -> Course | None:
        """The course with the end of the run as its last row."""
        if self.watch.test is None:
            return None
        if not self.rows or self.rows[-1][0] != self.count or self.quasi_newton:
            self._score(run)
        iteration, seconds, error, nll = zip(*self.rows, strict=True)
        return Course(np.array(iteration), np.array(seconds), np.array(error), np.array(nll))
