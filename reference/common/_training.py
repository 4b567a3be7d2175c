"""Factors and hyper-parameters refined in turn: what a run is asked and answers, its steps, and a search around it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reference.common import _sweeps
from reference.common._classes import Prior, fields_to_learn, search
from reference.common._learning import FIELDS
from reference.common._neighbours import Answer, gradient_answers, moment_answers, rounding_doubt
from reference.common._options import shown
from reference.common._steps import Learned, Rule
from reference.common._sweeps import Run, Step, Sweeps
from reference.common.options import Options

Array = NDArray[np.float64]
Batch = NDArray[np.intp]


class Seen(NamedTuple):
    """What a callback is told after every sweep or step."""

    iteration: int
    residual: float
    n_improper: int  # so far


class Value(NamedTuple):
    """The estimate of the evidence, and what it is made of."""

    log_evidence: float | None  # none if a cavity is no distribution
    log_norm: Array


class Method(Protocol):
    """Factors are whatever the method keeps; q is always built from them and from the prior's matrices K."""

    @property
    def damping(self) -> float:
        """Share of the way to refined factors that a sweep takes them."""

    def matrices(self, X: Array, prior: Prior) -> Any:
        """What the prior says of the data; NotPositiveDefiniteError if one of K_ZZ is singular."""

    def start(self, K: Any) -> Any:
        """Factors of one."""

    def posterior(self, sites: Any, K: Any) -> Any:
        """q(f̄)."""

    def step(self, sites: Any, posterior: Any, K: Any, batch: Batch) -> Step:
        """The factors of a batch refined and damped."""

    def value(self, sites: Any, posterior: Any, K: Any) -> Value:
        """log Z_q of all data."""

    def traced(self, sites: Any, posterior: Any, K: Any) -> float | None:
        """log Z_q after a sweep; none if a cavity is no distribution."""

    def latents(self, sites: Any, posterior: Any, K: Any) -> tuple[Array, Array]:
        """Means and variances of the latent values at the data, each (n, C)."""

    def gradients(
        self, X: Array, state: "State", batch: Batch | None, exact: bool, learn: Sequence[str]
    ) -> dict[str, Array] | None:
        """Derivatives of log Z_q, a mini-batch standing for all data; none if a cavity is no distribution."""


class State(NamedTuple):
    """Everything that a step changes."""

    sites: Any
    posterior: Any
    prior: Prior
    K: Any
    rule: Rule | None = None  # of the steps of the hyper-parameters
    residual: float = np.inf
    n_improper: int = 0  # so far

    def swept(self, step: Step | Run, method: Method) -> "State":
        """After a sweep, or sweeps; q is made where these have not."""
        q = method.posterior(step.sites, self.K) if step.posterior is None else step.posterior
        improper = self.n_improper + step.n_improper
        return self._replace(sites=step.sites, posterior=q, residual=step.residual, n_improper=improper)


class Fit(NamedTuple):
    """Where a method ended."""

    posterior: Any  # q(f̄)
    sites: Any
    prior: Prior  # as learned
    log_norm: Array  # log Z of each factor under the last cavities
    log_evidence: float | None  # log Z_q of all data, every constant included; none if a cavity is no distribution
    gradients: dict[str, Array] | None  # fields with shapes as in the prior
    latent_mean: Array  # (n, C)
    latent_var: Array  # (n, C)  noise included
    trace: Array  # log Z_q after each sweep or step where it exists, before its hyper-parameters move; if asked for
    residual: float
    converged: bool
    n_improper: int
    iterations: int
    form: str = "projected"  # of the equations that ran
    reason: str = ""  # why an answer whose sweeps have converged is not claimed


class Task(NamedTuple):
    """A method, data, and what is asked: options with the defaults of `with_defaults`."""

    method: Method
    X: Array
    options: Options
    shared: bool  # one vector of hyper-parameters for all classes

    @property
    def exact(self) -> bool:
        """Whether gradients are the whole derivatives."""
        return bool(self.options.gradient_rule == "exact")

    @property
    def learned(self) -> Learned:
        """The hyper-parameters that move."""
        return Learned(self.options.learn, self.shared)


def with_defaults(options: Options, prior: Prior, inner: Sequence[str], tied: bool = False) -> Options:
    """Options with the defaults that depend on others filled in, for a prior; or a ValueError that names one.

    The optimiser is "lbfgs" over all data with neither a number of steps nor an inner scheme, "adam" otherwise; the
    scheme is "outer" for "lbfgs", the first inner one otherwise; the rate is 0.01 for "adaptive", 0.001 for "adam".

    Parameters
    ----------
    options : Options         as given
    prior : Prior             start
    inner : names             schemes besides "outer", factors until convergence before every step
    tied : bool               a method that "lbfgs" cannot train
    """
    learn = fields_to_learn(options.learn, prior)
    if options.batches is not None and options.batch_size is not None:
        raise ValueError(f"batch_size: found {options.batch_size} with batches, expected one of the two")
    optimizer, scheme, rate, parts = options.optimizer, options.scheme, options.rate, options.in_parts
    if optimizer is None:
        optimizer = "adam" if tied or parts or scheme in inner or options.n_steps is not None else "lbfgs"
    if optimizer == "lbfgs" and (tied or parts):
        raise ValueError(f"optimizer: found 'lbfgs' {'for SEP' if tied else 'with batches'}, expected adaptive or adam")
    if scheme is None:
        scheme = "outer" if optimizer == "lbfgs" else inner[0]
    if optimizer == "lbfgs" and scheme != "outer":
        raise ValueError(f"scheme: found {shown(scheme)}, expected 'outer' for lbfgs, which needs the fixed point")
    if parts and scheme == "outer":
        raise ValueError(f"scheme: found 'outer' with batches, expected {' or '.join(inner)}")
    if rate is None:
        rate = 0.01 if optimizer == "adaptive" else 0.001
    if options.n_steps is not None and not (learn or parts):
        raise ValueError(f"n_steps: found {options.n_steps}, expected None without learn, batches or batch_size")
    return replace(options, learn=learn, optimizer=optimizer, scheme=scheme, rate=rate)  # type: ignore[type-var]


class Record:
    """What is told and kept of a run, sweep by sweep or step by step."""

    def __init__(self, task: Task) -> None:
        """Nothing so far."""
        self.task, self.trace = task, list[float]()
        self.count, self.improper = 0, 0

    def tell(self, step: Step | Run, K: Any) -> None:
        """One more sweep or step, before the hyper-parameters move; K of the prior that it had."""
        method, options = self.task.method, self.task.options
        self.count, self.improper = self.count + 1, self.improper + step.n_improper
        if options.trace:
            q = method.posterior(step.sites, K) if step.posterior is None else step.posterior
            value = method.traced(step.sites, q, K)
            self.trace.extend([] if value is None else [value])
        if options.callback is not None:
            options.callback(Seen(self.count, step.residual, self.improper))


def begin(task: Task, prior: Prior, adaptive: Callable[[Array, Array, Array], Array]) -> State:
    """Factors of one, and the rule of the first step: Adam, or `adaptive`."""
    K = task.method.matrices(task.X, prior)
    sites = task.method.start(K)
    rule = task.learned.rule(prior, task.options.rate, adaptive if task.options.optimizer == "adaptive" else None)
    return State(sites, task.method.posterior(sites, K), prior, K, rule)


def to_fixed_point(
    method: Method,
    sites: Any,
    K: Any,
    tolerance: float,
    max_iterations: int,
    monitor: Callable[[Step], None] | None = None,
) -> Run:
    """Sweeps over all data until no factor moves.

    Parameters
    ----------
    method : Method           how factors are refined
    sites : object            where to start
    K : object                matrices of the prior
    tolerance : float         estimated distance of a factor from the fixed point at which it ends, unless a cavity was
                              no distribution
    max_iterations : int      sweeps after which it gives up, as it does if 300 do not halve the residual; `converged`
                              is then False
    monitor : callable        told the outcome of every sweep
    """
    everything = np.arange(K.upsilon.shape[1])
    return _sweeps.to_fixed_point(
        lambda at, q: method.step(at, q, K, everything),
        lambda at: method.posterior(at, K),
        sites,
        Sweeps(method.damping, tolerance),
        max_iterations,
        monitor,
    )


def settled(task: Task, state: State, monitor: Callable[[Step], None] | None = None) -> Run:
    """The fixed point, from the present factors, under the limits of the options."""
    limits = task.options.tolerance, task.options.max_iterations
    return to_fixed_point(task.method, state.sites, state.K, *limits, monitor)


def hyper_step(task: Task, state: State, batch: Batch | None, exact: bool) -> State:
    """One step of the hyper-parameters with the factors' numbers held; everything of the prior recomputed, and q."""
    gradients = task.method.gradients(task.X, state, batch, exact, task.options.learn)
    if gradients is None or state.rule is None:  # no gradient where a cavity is no distribution: they wait
        return state
    prior, rule = task.learned.uphill(state.prior, gradients, state.rule)
    K = task.method.matrices(task.X, prior)
    return state._replace(prior=prior, K=K, posterior=task.method.posterior(state.sites, K), rule=rule)


def by_search(task: Task, start: State) -> Fit:
    """L-BFGS-B on the log Z_q of fixed points, each looked for from the last one."""
    method, options, last = task.method, task.options, start

    def evidence(there: Prior) -> tuple[float, dict[str, Array]]:
        nonlocal last
        last = last._replace(prior=there, K=method.matrices(task.X, there))
        last = last.swept(settled(task, last), method)
        value = method.value(last.sites, last.posterior, last.K).log_evidence
        gradients = method.gradients(task.X, last, None, task.exact, options.learn)
        if value is None or gradients is None:
            raise ValueError("damping: found cavities that are no distributions, expected a smaller one to avoid them")
        return value, gradients

    steps = 200 if options.n_steps is None else options.n_steps
    top = search(evidence, start.prior, options.learn, task.shared, steps, options.learn_tolerance)
    last = last._replace(prior=top.prior, K=method.matrices(task.X, top.prior))
    run = settled(task, last)
    last = last.swept(run, method)._replace(residual=top.residual)
    return finish(task, last, top.trace if options.trace else [], top.converged and run.converged, top.iterations)


def finish(task: Task, state: State, trace: Sequence[float] | Array, converged: bool, iterations: int) -> Fit:
    """The answer of the last state; not called converged where rounding leaves it open."""
    method, at = task.method, (state.sites, state.posterior, state.K)
    value, gradients = method.value(*at), None
    if task.options.gradients and value.log_evidence is not None:
        gradients = method.gradients(task.X, state, None, task.exact, FIELDS)
    reason = _doubt(task, state) if converged else ""
    return Fit(
        state.posterior, state.sites, state.prior, value.log_norm, value.log_evidence, gradients,
        *method.latents(*at), np.array(trace), state.residual, converged and not reason, state.n_improper, iterations,
        reason=reason,
    )  # fmt: skip


def _doubt(task: Task, state: State) -> str:
    """Why rounding leaves the answer open, empty if it does not: the factors' numbers held, beside the prior."""
    method = task.method

    def answers(there: Prior) -> dict[str, Answer]:
        K = method.matrices(task.X, there)
        q = method.posterior(state.sites, K)
        value, log_norm = method.value(state.sites, q, K)
        if value is None:
            raise ValueError("damping: found a cavity that is no distribution, expected one")
        mean, var = method.latents(state.sites, q, K)
        answer = {"log_evidence": Answer(value, 1.0)} | moment_answers(
            float(np.sqrt(np.max(state.prior.variance + state.prior.noise))),
            inducing_mean=q.mean,
            inducing_cov=q.cov,
            latent_mean=mean,
            latent_cov=var,
            log_norm=log_norm,
        )
        if task.options.gradients:
            beside = state._replace(posterior=q, prior=there, K=K)
            gradients = method.gradients(task.X, beside, None, task.exact, FIELDS)
            answer |= gradient_answers(gradients or {}, state.prior, value)
        return answer

    return rounding_doubt(answers, state.prior, list(state.K.K_ZZ), tolerance=task.options.tolerance)
