"""Schedules of sweeps and of steps on the priors of several classes: villacampa2017, section 2.3 and supplement G.

A run (`fast.sparse_classes.ep.SiteRun`, `fast.sparse_classes.sep.TiedRun`) refreshes its factors, computes log Z_q and
its gradient, and moves to other priors. What is learned is one vector: logarithms of variance, lengthscales and noise,
Z as it is, class by class within a field, one row of each if the classes share them.

    outer                sweeps to the tolerance, then one step by (10)
    inner-approximate    one sweep, or one mini-batch, then one step by (10)
    inner-exact          the same with the exact gradient
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.declare import Options, option
from fast.core.ending import ENOUGH, ended, enough
from fast.core.hyper import ClassHyper, class_hyper
from fast.core.hyperprior import Hyperprior, prior_gradients
from fast.core.learned import coordinates, field_at, field_of, learned_names, log_derivative
from fast.core.options import Alternating, Checkpointed, Iteration, Steps, Traced, Training, Watched
from fast.core.types import FloatArray, IntArray
from fast.ledger import equation
from fast.solve.adam import AdamState, adam_arrays, adam_restored, adam_step
from fast.solve.lbfgs import Best, Place, Round, maximise
from fast.solve.minibatch import index_lists, random_indices
from fast.solve.steps import Saving, Stepping, run_steps
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.ep import ImproperCavityError, SiteRun, Swept
from fast.sparse_classes.mixing import mix, worth_mixing
from fast.sparse_classes.projections import InducingClasses, PointGradients

_LARGEST_FACTOR = float(np.log(1e4))  # how far L-BFGS-B moves a logarithm
_FIRST_RADIUS, _FIRST_ITERATIONS = 0.2, 15  # share of that in the first of two rounds
_GROW, _SHRINK = 1.02, 0.5


class Run(Protocol):
    """Factors, q and the priors that they stand on."""

    points: InducingClasses

    def refresh(self) -> Swept:
        """Visit all factors, by the rules of the run."""

    def log_evidence(self) -> float | None:
        """log Z_q of all data."""

    def gradient(self) -> PointGradients:
        """Of log Z_q, by the rule of the run."""

    def rebuild(self) -> None:
        """q from the factors at the present priors."""

    def state(self) -> dict[str, Any]:
        """Arrays of a checkpoint."""

    def restore(self, arrays: Mapping[str, Any], hyper: ClassHyper, Z: FloatArray, moved: bool) -> None:
        """Continue where `state` was taken."""


class BatchRun(Run, Protocol):
    """A run in steps: its factors may be visited batch by batch, and its priors moved after each."""

    data: ClassData

    def move(self, hyper: ClassHyper, Z: FloatArray) -> None:
        """Other priors."""

    def refresh(self, batch: IntArray | None = None) -> Swept:
        """Visit the factors of a batch, or of all data."""

    def gradient(self, batch: IntArray | None = None) -> PointGradients:
        """Of log Z_q, the data terms of a batch n / b times."""


class Progress(NamedTuple):
    """What a callback sees after every sweep or step."""

    iteration: int
    log_evidence: float  # NaN where it was not asked for
    residual: float
    n_improper: int
    hyper: ClassHyper
    run: Any


_BLURRED = 1e-12  # below, rounding blurs ratios of changes
_ALLOWED = 100.0  # distance from the optimum of an energy, over the tolerance on its direction
_LAST = 8  # changes from which their fall is read
_SLOW = 8  # steps on an energy that together have to gain what counts: some directions are slow


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassTraining(Iteration, Steps, Training, Alternating, Traced, Checkpointed, Watched):
    """What a method of inducing classes may be asked of a run; those with fewer options have the defaults here."""

    max_iterations: int = 1000
    optimizer: str | None = option(
        "choice", "of a search over the prior", choices=("lbfgs", "adaptive", "adam"), default=None
    )


class Settings(NamedTuple):
    """What `train` does."""

    tolerance: float = 1e-10
    max_iterations: int = 1000
    batches: tuple[IntArray, ...] | None = None
    batch_size: int | None = None
    n_steps: int = 0
    learn: tuple[str, ...] = ()
    scheme: str = "inner-approximate"
    optimizer: str = "adam"
    rate: float = 1e-3
    learn_tolerance: float = 1e-5
    hyperprior: Hyperprior | None = None
    seed: int = 0
    trace: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 100
    mark: str = ""

    @property
    def stochastic(self) -> bool:
        """Whether steps see batches."""
        return self.batches is not None or self.batch_size is not None

    @property
    def gradient_rule(self) -> str:
        """Of ep and sep, by which the priors move."""
        return "exact" if self.scheme == "inner-exact" else "10"


class Trained(NamedTuple):
    """How a run ended."""

    trace: FloatArray
    residual: float
    converged: bool
    iterations: int
    n_improper: int
    diverged: bool
    reason: str


class ClassPacking:
    """Learned parameters of all classes as one vector."""

    def __init__(
        self,
        learn: Iterable[str],
        hyper: ClassHyper,
        Z: FloatArray,
        shared: bool,
        hyperprior: Hyperprior | None = None,
    ) -> None:
        self.names = learned_names(learn, hyper.noise)
        self.hyperprior = Hyperprior.given(hyperprior, Z.shape[2])
        self.n_classes, self.rows = Z.shape[0], 1 if shared else Z.shape[0]
        shapes = {"Z": Z.shape[1:], "lengthscales": hyper.lengthscales.shape[1:]}
        self.shapes = {name: (self.rows, *shapes.get(name, ())) for name in self.names}
        edges = np.cumsum([0, *(int(np.prod(self.shapes[name])) for name in self.names)])
        self.parts = {name: slice(edges[k], edges[k + 1]) for k, name in enumerate(self.names)}
        self.size = int(edges[-1])

    def vector(self, hyper: ClassHyper, Z: FloatArray) -> FloatArray:
        """Parameters to a vector (p,)."""
        values = np.empty(self.size)
        for name, part in self.parts.items():
            value = Z if name == "Z" else coordinates(name, getattr(hyper, field_of(name)))
            values[part] = value[: self.rows].ravel()
        return values

    def parameters(
        self, vector: FloatArray, hyper: ClassHyper, Z: FloatArray, *, copy: bool = True
    ) -> tuple[ClassHyper, FloatArray]:
        """A vector back to parameters; ValueError, by name, where they leave the range that a prior may have.

        Not to copy makes them parts of the vector.
        """
        changed: dict[str, Any] = {}
        for name, part in self.parts.items():
            value = vector[part].reshape(self.shapes[name])
            if name != "Z":
                value = field_at(name, value, getattr(hyper, field_of(name))[: self.rows])
            full = np.repeat(value, self.n_classes, axis=0) if self.rows < self.n_classes else value
            full = full.copy() if copy and full is value else full
            if name == "Z":
                Z = full
                if not np.isfinite(Z).all():
                    raise ValueError("Z: found a value that is not finite, expected finite numbers")
            else:
                changed[field_of(name)] = full
        merged = hyper._replace(**changed)
        return class_hyper(*merged, self.n_classes, merged.lengthscales.shape[1]), Z

    def gradient(self, gradients: PointGradients, hyper: ClassHyper) -> FloatArray:
        """A gradient with respect to the parameters, in the coordinates of the vector."""
        values = np.empty(self.size)
        for name, part in self.parts.items():
            field = field_of(name)
            derivative = getattr(gradients, field)[: self.rows]
            if name != "Z":
                derivative = log_derivative(name, derivative, getattr(hyper, field)[: self.rows])
            values[part] = derivative.ravel()
        return values

    def prior(self, hyper: ClassHyper) -> tuple[float, FloatArray]:
        """Log density of what is learned and its derivatives in the coordinates of the vector; 0 without a hyperprior.

        It counts once, however many batches there are; classes that share their parameters have one density.
        """
        return prior_gradients(self.hyperprior, self.parts, self.size, lambda field: getattr(hyper, field)[: self.rows])


class AdaptiveState(NamedTuple):
    """Rates of all coordinates, and the gradient before."""

    rates: FloatArray  # (p,)
    previous: FloatArray  # (p,); NaN before the first step


@equation("villacampa2017", "u28-adaptive-learning-rate")
def adaptive_step(gradient: FloatArray, state: AdaptiveState) -> tuple[FloatArray, AdaptiveState]:
    """Rates grow by 2 % where the sign of the gradient stays and are halved elsewhere: villacampa2017, supplement G.

    Parameters
    ----------
    gradient : (p,)    of what is maximised
    state              before the step

    Returns
    -------
    step (p,) to be added, state after
    """
    rates = state.rates
    if not np.isnan(state.previous).any():
        rates = rates * np.where(np.sign(gradient) == np.sign(state.previous), _GROW, _SHRINK)
    return rates * gradient, AdaptiveState(rates, gradient)


def settings_of(n: int, options: Options, *, lbfgs: bool = True, q_steps: bool = False, **rules: Any) -> Settings:
    """What a run does: options, with what they leave open filled in and what does not go together refused by name.

    n_steps is by default as many as there are batches, else 250 (200 for L-BFGS-B), rate 0.01 for "adaptive" and 0.001
    for "adam". An index listed twice in a batch counts once.

    Parameters
    ----------
    n : int           data
    options           of the method; those of `ClassTraining` count
    lbfgs : bool      whether the method has an objective that its gradient belongs to
    q_steps : bool    whether steps move q too, so that there are some without batches and learned priors
    rules             options that the method decides
    """
    asked = ClassTraining.of({**vars(options), **rules})
    lists = None
    if asked.batches is not None:
        lists = tuple(np.unique(batch) for batch in index_lists("batches", asked.batches, n))
    stochastic = lists is not None or asked.batch_size is not None
    if lists is not None and asked.batch_size is not None:
        raise ValueError("batch_size: found a number beside batches, expected one of the two")
    learn, optimizer, scheme = inputs.names("learn", asked.learn), asked.optimizer, asked.scheme
    if optimizer is None:
        by_steps = stochastic or asked.n_steps is not None
        optimizer = "lbfgs" if lbfgs and not by_steps and scheme in (None, "outer") else "adam"
    if optimizer == "lbfgs" and stochastic and learn:
        raise ValueError("optimizer: found 'lbfgs' with batches, expected 'adaptive' or 'adam'")
    if scheme is None:
        scheme = "outer" if optimizer == "lbfgs" else "inner-approximate"
    if scheme != "outer" and optimizer == "lbfgs" and learn:
        raise ValueError(f"scheme: found {shown(scheme)} with 'lbfgs', expected 'outer'")
    if scheme == "outer" and stochastic and learn:
        raise ValueError("scheme: found 'outer' with batches, expected 'inner-approximate' or 'inner-exact'")
    if asked.n_steps is not None:
        steps = asked.n_steps
    else:
        steps = len(lists) if lists is not None else 200 if optimizer == "lbfgs" else 250
    if lists is not None and steps > len(lists):
        raise ValueError(f"n_steps: found {steps}, expected at most {len(lists)}, the number of batches")
    if asked.n_steps is not None and not (stochastic or learn or q_steps):
        raise ValueError("n_steps: found a number without batches or learn, expected one of them; see max_iterations")
    return Settings(
        tolerance=asked.tolerance,
        max_iterations=asked.max_iterations,
        batches=lists,
        batch_size=asked.batch_size,
        n_steps=steps,
        learn=learn,
        scheme=scheme,
        optimizer=optimizer,
        rate={"adaptive": 0.01, "adam": 0.001}.get(optimizer, 1.0) if asked.rate is None else asked.rate,
        learn_tolerance=asked.learn_tolerance,
        hyperprior=asked.hyperprior,
        seed=asked.seed,
        trace=asked.trace,
        checkpoint=asked.checkpoint,
        checkpoint_every=asked.checkpoint_every,
    )


def converge(run: Run, settings: Settings, callback: Callable[[Progress], None] | None = None) -> Trained:
    """Sweeps until an undamped one would change nothing, priors held.

    Mixing comes first where that pays; where it does not lead to a point that sweeps certify, sweeps start over. The
    reason of the end then says why they are plain ones.

    Parameters
    ----------
    run                  factors and q; changed
    settings             tolerance, max_iterations, trace
    callback : callable  called with a Progress after every sweep
    """
    if not settings.trace and worth_mixing(run, settings.max_iterations):
        before = {name: np.array(part) for name, part in run.state().items()}
        priors = run.points.hyper, run.points.Z
        mixed = mix(cast(SiteRun, run), tolerance=settings.tolerance, max_iterations=settings.max_iterations - 1)
        end = _plain(run, settings, callback, mixed.iterations, mixed.n_improper, mixed.rate)
        why = mixed.why
        if not end.converged:
            why = why or "mixing led to no point that sweeps certify"
            run.restore(before, *priors, True)
            end = _plain(run, settings, callback, 0, 0)
        return end._replace(reason=f"{end.reason}; plain sweeps alone: {why}") if why else end
    return _plain(run, settings, callback, 0, 0)


class SweepDistance:
    """How far sweeps of damping d still are from their fixed point, from undamped changes that fall by r a sweep.

    The slowest direction has the eigenvalue 1 - (1 - r)/d of an undamped sweep, from r or as mixing has seen it; of a
    change g there is g/(1 - eigenvalue) to go before the sweep and 1 - d (1 - eigenvalue) of it after.
    """

    def __init__(self, damping: float, rate: float) -> None:
        self.damping, self.rate = damping, rate
        self._changes: list[float] = []

    def __call__(self, change: float) -> float:
        """Take in one more change: the distance after its sweep, never below the change; inf while none falls.

        Parameters
        ----------
        change : float    largest standardised change of an undamped sweep
        """
        if change > _BLURRED:
            self._changes = [*self._changes, change][-_LAST:]
        rate = self.rate
        if len(self._changes) > 2:
            fall = (self._changes[-1] / self._changes[0]) ** (1.0 / (len(self._changes) - 1))
            rate = max(rate, 1.0 - (1.0 - float(fall)) / self.damping)
        if change == 0.0:
            return 0.0
        return change * max(1.0, 1.0 / (1.0 - rate) - self.damping) if rate < 1.0 else np.inf


def _plain(
    run: Run,
    settings: Settings,
    callback: Callable[[Progress], None] | None,
    iteration: int,
    improper: int,
    rate: float = 0.0,
) -> Trained:
    """Sweeps as printed, after those that were made already, which saw the slowest direction move at some rate."""
    trace: list[float] = []
    residual, converged, why = np.inf, False, ""
    contracts = getattr(run, "sweeps_contract", False)
    distance = SweepDistance(cast(SiteRun, run).damping, rate) if contracts else float
    values: list[float] = []  # of an energy, which no step lowers
    while iteration < settings.max_iterations and not converged and not (iteration and ended()):
        if hasattr(run, "ascended"):
            values.append(run.ascended())
            if enough(values, _SLOW):
                break
        swept = run.refresh()
        iteration += 1
        residual, improper, why = swept.residual, improper + swept.n_improper, swept.why
        converged = distance(residual) <= settings.tolerance and swept.n_improper == 0
        value = _evidence(run) if settings.trace else np.nan
        if np.isfinite(value):
            trace.append(value)
        if callback is not None:
            callback(Progress(iteration, value, residual, improper, run.points.hyper, run))
        if not np.isfinite(residual):
            break
    if converged and hasattr(run, "distance") and (left := run.distance()) > _ALLOWED * settings.tolerance:
        converged = False
        why = (
            f"found an estimated distance of {left:.1e} from the optimum, expected {_ALLOWED * settings.tolerance:.1e}"
        )
    if enough(values, _SLOW) and not ended():
        return Trained(np.array(trace), residual, True, iteration, improper, False, ENOUGH)
    reason = "tolerance reached" if converged else ended() or why or f"{iteration} sweeps made"
    return Trained(np.array(trace), residual, converged, iteration, improper, False, reason)


def _evidence(run: Run) -> float:
    value = run.log_evidence()
    return np.nan if value is None else value


def train(run: Run, settings: Settings, callback: Callable[[Progress], None] | None = None) -> Trained:
    """What the settings ask for: sweeps, steps on batches, or steps with a move of the priors after each.

    A step that leaves the range of the priors, or the finite numbers, ends the run at the last good state, diverged and
    with a reason.

    Parameters
    ----------
    run                  factors and q; changed
    settings             see `settings_of`
    callback : callable  called with a Progress after every sweep or step
    """
    if not settings.learn and not settings.stochastic:
        return converge(run, settings, callback)
    packing = ClassPacking(settings.learn, run.points.hyper, run.points.Z, run.points.shared, settings.hyperprior)
    if settings.learn and settings.optimizer == "lbfgs":
        return search(run, settings, packing, callback)
    # a run that takes no batches has no option for them
    return TrainingSteps(cast(BatchRun, run), settings, packing).all(callback)


class Batches:
    """The batches of a run of steps, one a step: given, drawn, or none, which is all data."""

    def __init__(self, settings: Settings, n: int) -> None:
        self.settings, self.n = settings, n
        self.rng = np.random.default_rng(settings.seed)

    def __call__(self, iteration: int) -> IntArray | None:
        """Of the step after so many.

        Parameters
        ----------
        iteration : int    steps made
        """
        if self.settings.batches is not None:
            return self.settings.batches[iteration]
        return None if self.settings.batch_size is None else random_indices(self.n, self.settings.batch_size, self.rng)

    def arrays(self) -> dict[str, Any]:
        """State of the draws."""
        return {"rng": np.array(json.dumps(self.rng.bit_generator.state))}

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go on where `arrays` was taken.

        Parameters
        ----------
        arrays    of a checkpoint
        """
        self.rng.bit_generator.state = json.loads(str(arrays["rng"]))


def saving(settings: Settings) -> Saving | None:
    """Checkpoints of a run of steps, None if there are none.

    Parameters
    ----------
    settings    of the run
    """
    if settings.checkpoint is None:
        return None
    return Saving(settings.checkpoint, settings.checkpoint_every, settings.mark)


def prior_arrays(points: InducingClasses) -> dict[str, Any]:
    """The priors in a checkpoint.

    Parameters
    ----------
    points    inducing points and parameters
    """
    return {**{f"hyper_{name}": value for name, value in points.hyper._asdict().items()}, "Z": points.Z}


def hyper_restored(arrays: Mapping[str, Any]) -> ClassHyper:
    """The parameters that `prior_arrays` was given.

    Parameters
    ----------
    arrays    of a checkpoint
    """
    return ClassHyper(*(arrays[f"hyper_{name}"] for name in ClassHyper._fields))


class TrainingSteps(Stepping):
    """Steps of a stochastic run or of gradient ascent: factors, then the priors."""

    def __init__(self, run: BatchRun, settings: Settings, packing: ClassPacking) -> None:
        self.run, self.settings, self.packing = run, settings, packing
        n = run.data.n if settings.stochastic else 0
        self.batches = Batches(settings, n)
        # of one of the two rules there is nothing: each is twice as large as what is learned
        size, other = (packing.size, 0) if settings.optimizer == "adam" else (0, packing.size)
        self.adam = AdamState.start(size)
        self.adaptive = AdaptiveState(np.full(other, settings.rate), np.full(other, np.nan))
        self.trace: list[float] = []
        self.iteration, self.improper = 0, 0
        self._swept = Swept(np.inf, 0)
        self.inner = settings._replace(trace=False)

    @property
    def residual(self) -> float:
        """Of the step before, computed where somebody asks for it."""
        if self._swept.later is not None:
            self._swept = Swept(self._swept.later(), self._swept.n_improper)
        return self._swept.residual

    def draw(self) -> IntArray | None:
        """Indices of the next batch; None: all data."""
        return self.batches(self.iteration)

    def step(self, batch: IntArray | None) -> float:
        """Factors, log Z_q if asked for, gradient, move.

        Parameters
        ----------
        batch : (b,)    indices; None: all data
        """
        run, settings = self.run, self.settings
        if settings.scheme == "outer" and settings.learn:
            end = converge(run, self.inner)
            self._swept = Swept(end.residual, end.n_improper)
        else:
            self._swept = run.refresh() if batch is None else run.refresh(batch)
        self.improper += self._swept.n_improper
        value = _evidence(run) if settings.trace else np.nan
        if np.isfinite(value):  # no entry where a cavity is improper
            self.trace.append(value)
        self.iteration += 1
        if self.packing.size:
            self._move(batch)
        return value

    def _move(self, batch: IntArray | None) -> None:
        run, packing = self.run, self.packing
        hyper, Z = run.points.hyper, run.points.Z
        try:
            value = run.gradient() if batch is None else run.gradient(batch)
        except ImproperCavityError:
            return  # the priors stay
        gradient = packing.gradient(value, hyper)
        del value  # as large as Z, of which there are enough
        if packing.hyperprior is not None:
            gradient += packing.prior(hyper)[1]
        if not np.isfinite(gradient).all():
            raise ValueError("gradient: found a value that is not finite, expected finite numbers; lower rate")
        if self.settings.optimizer == "adam":
            move, self.adam = adam_step(gradient, self.adam, self.settings.rate, overwrite=True)
        else:
            move, self.adaptive = adaptive_step(gradient, self.adaptive)
        move += packing.vector(hyper, Z)
        run.data.forget()
        run.move(*packing.parameters(move, hyper, Z, copy=False))

    def all(self, callback: Callable[[Progress], None] | None) -> Trained:
        """Every step.

        Parameters
        ----------
        callback : callable    called with a Progress after every step
        """

        def after(value: float) -> None:
            if callback is not None:
                hyper = self.run.points.hyper
                callback(Progress(self.iteration, value, self.residual, self.improper, hyper, self.run))

        end = run_steps(self, self.settings.n_steps, saving(self.settings), after)
        return Trained(
            np.array(self.trace), self.residual, False, self.iteration, self.improper, end.diverged, end.reason
        )

    def arrays(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            **prior_arrays(self.run.points),
            **self.batches.arrays(),
            "trace": np.array(self.trace),
            "numbers": np.array([self.iteration, self.improper]),
            "residual": np.array(self.residual),
            "adaptive": np.array(self.adaptive),
            **adam_arrays(self.adam),
            **self.run.state(),
        }

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Continue where `arrays` was taken.

        Parameters
        ----------
        arrays    of a checkpoint
        """
        self.run.restore(arrays, hyper_restored(arrays), arrays["Z"], bool(self.packing.size))
        self.batches.restore(arrays)
        self.trace, self._swept = arrays["trace"].tolist(), Swept(float(arrays["residual"]), 0)
        self.iteration, self.improper = (int(value) for value in arrays["numbers"])
        self.adaptive, self.adam = AdaptiveState(*arrays["adaptive"]), adam_restored(arrays)


def search(
    run: Run, settings: Settings, packing: ClassPacking, callback: Callable[[Progress], None] | None = None
) -> Trained:
    """L-BFGS-B on log Z_q, EP converged at every evaluation, from the sites of the best one so far.

    The log density of what is learned counts too, if the packing has one.
    Logarithms move by at most a factor 1e4. Parameters that the prior refuses, or at which EP does not converge to
    proper cavities, count as worse than all; the start itself raises.

    Parameters
    ----------
    run                  factors and q; left at the best parameters
    settings             tolerance, max_iterations of EP; n_steps, learn_tolerance of the search
    packing              learned parameters
    callback : callable  called with a Progress after every evaluation
    """
    hyper, Z = run.points.hyper, run.points.Z
    inner = settings._replace(trace=False)
    evaluations, improper = 0, 0

    def evaluate(vector: FloatArray, best: Best | None) -> Place:
        nonlocal evaluations, improper
        evaluations += 1
        here = packing.parameters(vector, hyper, Z)
        if best is not None:
            run.restore(best.place.payload[0], *here, True)
            run.rebuild()
        end = converge(run, inner)
        improper += end.n_improper
        value = run.log_evidence()
        if not np.isfinite(end.residual):
            raise ValueError(f"log_evidence: found {end.reason}; expected an optimum of q: lower alpha, move Z")
        if value is not None:
            log_prior, prior_gradient = packing.prior(here[0])
            gradient = packing.gradient(run.gradient(), here[0]) + prior_gradient
            value += log_prior
            if not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise ValueError("log_evidence: found a value that is not finite, expected a number")
        elif best is None and ended():
            value, gradient = -np.inf, np.zeros(vector.size)  # what there is when the time is over
        else:
            raise ValueError("log_evidence: found an improper cavity, expected a number; lower damping")
        better = best is None or value > best.place.value
        state = {name: np.array(part) for name, part in run.state().items()} if better else {}
        if callback is not None:
            callback(Progress(evaluations, value, end.residual, improper, here[0], run))
        return Place(value, gradient, (state, end))

    start = packing.vector(hyper, Z)
    box = np.full(start.size, np.inf)
    for name, part in packing.parts.items():
        if name != "Z":
            box[part] = _LARGEST_FACTOR
    # a first step may leap to where the noise, or the kernel, is no longer felt: near the start first
    rounds = (Round(_FIRST_RADIUS, _FIRST_ITERATIONS), Round(1.0, settings.n_steps))
    end = maximise(
        evaluate, start, box, rounds, n_iterations=settings.n_steps, tolerance=settings.learn_tolerance
    )  # fmt: skip
    state, swept = end.best.place.payload
    run.restore(state, *packing.parameters(end.best.vector, hyper, Z), True)
    converged = end.enough or (end.residual <= settings.learn_tolerance and swept.converged)
    converged = converged and np.isfinite(end.best.place.value)
    trace = end.trace if settings.trace else np.zeros(0)
    return Trained(trace, end.residual, converged, end.trace.size, improper, False, end.reason)
