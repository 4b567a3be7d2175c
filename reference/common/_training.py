"""Factors and hyper-parameters refined in turn: what a method offers, what a run keeps, its steps, a search around it.

The sweeps to a fixed point stand in each paper's `fit`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import fields_to_learn, search
from reference.common._learning import FIELDS
from reference.common._options import shown
from reference.common._steps import Learned, Rule
from reference.common.options import Options
from reference.common.priors import Prior

Array = NDArray[np.float64]
Batch = NDArray[np.intp]


class Seen(NamedTuple):
    """What a callback is told after every sweep or step."""

    iteration: int
    residual: float
    n_improper: int  # so far


class Value(NamedTuple):
    """The estimate of the evidence, and what it is made of."""

    log_evidence: float | None  # none if a cavity is not a distribution
    log_norm: Array


class Step(NamedTuple):
    """After one damped sweep over some data."""

    sites: Any
    posterior: Any
    residual: float  # largest undamped change of a factor in its own standardised coordinate
    n_improper: int  # cavities that were no distribution: their factors stay


class Method(Protocol):
    """Factors are whatever the method keeps; q is always built from them and from the prior's matrices K."""

    def matrices(self, X: Array, prior: Prior) -> Any:
        """What the prior says of the data; NotPositiveDefiniteError if one of K_ZZ is singular."""

    def start(self, K: Any) -> Any:
        """Factors of one."""

    def posterior(self, sites: Any, K: Any) -> Any:
        """q(f̄)."""

    def sweep(self, sites: Any, posterior: Any, K: Any, batch: Batch) -> Step:
        """The factors of a batch refined and damped, and q rebuilt."""

    def value(self, sites: Any, posterior: Any, K: Any) -> Value:
        """log Z_q of all data."""

    def traced(self, sites: Any, posterior: Any, K: Any) -> float | None:
        """log Z_q after a sweep; none if a cavity is not a distribution."""

    def latents(self, sites: Any, posterior: Any, K: Any) -> tuple[Array, Array]:
        """Means and variances of the latent values at the data, each (n, C)."""

    def gradients(
        self, X: Array, state: "State", batch: Batch | None, exact: bool, learn: Sequence[str]
    ) -> dict[str, Array] | None:
        """Derivatives of log Z_q, a mini-batch standing for all data; none if a cavity is not a distribution."""


class State(NamedTuple):
    """Everything that a step changes."""

    sites: Any
    posterior: Any
    prior: Prior
    K: Any
    rule: Rule | None = None  # of the steps of the hyper-parameters
    residual: float = np.inf
    n_improper: int = 0  # so far
    converged: bool = False
    reason: str = ""  # why sweeps ended before they converged

    def after(self, step: Step) -> "State":
        """After a sweep."""
        improper = self.n_improper + step.n_improper
        return self._replace(sites=step.sites, posterior=step.posterior, residual=step.residual, n_improper=improper)


class Fit(NamedTuple):
    """Where a method ended."""

    posterior: Any  # q(f̄)
    sites: Any
    prior: Prior  # as learned
    log_norm: Array  # log Z of each factor under the last cavities
    log_evidence: float | None  # log Z_q of all data, every constant included; none if a cavity is not a distribution
    gradients: dict[str, Array] | None  # fields with shapes as in the prior
    latent_mean: Array  # (n, C)
    latent_var: Array  # (n, C)  noise included
    trace: Array  # log Z_q after each sweep or step where it exists, before its hyper-parameters move; if asked for
    residual: float
    converged: bool
    n_improper: int
    iterations: int
    reason: str = ""  # why sweeps ended before they converged


class Task(NamedTuple):
    """A method, data, and what is asked: options with the defaults of `with_defaults`."""

    method: Method
    X: Array
    options: Options
    shared: bool  # one vector of hyper-parameters for all classes

    @property
    def exact(self) -> bool:
        """Whether gradients are the whole derivatives."""
        return "gradient_rule" in self.options.declared() and self.options.gradient_rule == "exact"

    @property
    def learned(self) -> Learned:
        """The hyper-parameters that move."""
        return Learned(self.options.learn, self.shared)


Settle = Callable[[Task, State], State]
"""The sweeps of a paper to a fixed point, from a state."""


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
        self.task, self.trace, self.count = task, list[float](), 0

    def tell(self, state: State) -> None:
        """One more sweep or step, before the hyper-parameters move."""
        self.count += 1
        if self.task.options.trace:
            value = self.task.method.traced(state.sites, state.posterior, state.K)
            self.trace.extend([] if value is None else [value])
        if self.task.options.callback is not None:
            self.task.options.callback(Seen(self.count, state.residual, state.n_improper))


def silent(_: State) -> None:
    """A callback that does nothing."""


def begin(task: Task, prior: Prior) -> State:
    """Factors of one."""
    K = task.method.matrices(task.X, prior)
    sites = task.method.start(K)
    return State(sites, task.method.posterior(sites, K), prior, K)


def first_rule(task: Task, prior: Prior, adaptive: Callable[[Array, Array, Array], Array]) -> Rule:
    """The rule of the first step of the hyper-parameters: Adam, or `adaptive`."""
    return task.learned.rule(prior, task.options.rate, adaptive if task.options.optimizer == "adaptive" else None)


def hyper_step(task: Task, state: State, batch: Batch | None, exact: bool) -> State:
    """One step of the hyper-parameters with the factors' numbers held; everything of the prior recomputed, and q."""
    gradients = task.method.gradients(task.X, state, batch, exact, task.options.learn)
    if gradients is None or state.rule is None:  # no gradient where a cavity is not a distribution: they wait
        return state
    prior, rule = task.learned.uphill(state.prior, gradients, state.rule)
    K = task.method.matrices(task.X, prior)
    return state._replace(prior=prior, K=K, posterior=task.method.posterior(state.sites, K), rule=rule)


def by_search(task: Task, start: State, settle: Settle) -> Fit:
    """L-BFGS-B on the log Z_q of fixed points, each looked for from the last one."""
    method, options, last = task.method, task.options, start

    def at(there: Prior) -> State:
        K = method.matrices(task.X, there)
        return settle(task, last._replace(prior=there, K=K, posterior=method.posterior(last.sites, K)))

    def evidence(there: Prior) -> tuple[float, dict[str, Array]]:
        nonlocal last
        last = at(there)
        value = method.value(last.sites, last.posterior, last.K).log_evidence
        gradients = method.gradients(task.X, last, None, task.exact, options.learn)
        if value is None or gradients is None:
            raise ValueError("damping: found cavities that are not distributions, expected a smaller one to avoid them")
        return value, gradients

    steps = 200 if options.n_steps is None else options.n_steps
    top = search(evidence, start.prior, options.learn, task.shared, steps, options.learn_tolerance)
    last = at(top.prior)
    last = last._replace(residual=top.residual, converged=top.converged and last.converged)
    return finish(task, last, top.trace if options.trace else [], top.iterations)


def finish(task: Task, state: State, trace: Sequence[float] | Array, iterations: int) -> Fit:
    """The answer of the last state."""
    method, at = task.method, (state.sites, state.posterior, state.K)
    value, gradients = method.value(*at), None
    if task.options.gradients and value.log_evidence is not None:
        gradients = method.gradients(task.X, state, None, task.exact, FIELDS)
    return Fit(
        state.posterior, state.sites, state.prior, value.log_norm, value.log_evidence, gradients,
        *method.latents(*at), np.array(trace), state.residual, state.converged, state.n_improper, iterations,
        state.reason,
    )  # fmt: skip
