"""Sections 2.3 and 4: factors and hyper-parameters refined in turn, over all data or over mini-batches."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._batches import ascending_batches
from reference.common._classes import Prior, checked_input, class_gradients, every_row, first_row, row_gradients, search
from reference.common._learning import FIELDS, coordinates, log_slopes, moved
from reference.common._neighbours import Answer, moment_answers, rounding_doubt, slope_answers
from reference.common._options import shown
from reference.common._sweeps import Step
from reference.common.ledger import equation
from reference.common.options import checked_options
from reference.villacampa2017.derivatives import kernel_slope
from reference.villacampa2017.fit import Matrices, prior_matrices, to_fixed_point
from reference.villacampa2017.gradients import AdamState, adam_step, adaptive_learning_rate, minibatch_scale
from reference.villacampa2017.methods import DatumEP, Method, PairwiseEP
from reference.villacampa2017.posterior import Gaussians
from reference.villacampa2017.printed import PrintedEP, PrintedSEP, ep_form, printed_gradients, sep_form
from reference.villacampa2017.settings import (
    SCHEMES,
    Options,
    Seen,
    check_choice,
    check_options,
)
from reference.villacampa2017.tied import TiedEP

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]

FACTORS = ("pairwise", "datum")
SCHEDULES = ("parallel", "sequential")


class Move(NamedTuple):
    """What comes before one step of the hyper-parameters, and which gradient it takes."""

    until_converged: bool  # sweeps to a fixed point, from the present factors; else one
    exact: bool  # the whole derivative of log Z_q; else formula (10)


class Ascent(NamedTuple):
    """Memory of a rule for steps."""

    adaptive: bool  # two per cent up or half, else Adam
    rate: float
    rates: Array  # (p,)  adaptive: rates of the last step
    previous: Array | None  # (p,)  adaptive: its gradient
    adam: AdamState


class State(NamedTuple):
    """Everything that a step changes."""

    sites: Any
    prior: Prior
    K: Matrices
    posterior: Gaussians
    ascent: Ascent
    residual: float
    n_improper: int  # so far


class Fit(NamedTuple):
    """Where a method ended."""

    posterior: Gaussians
    sites: Any  # Coefficients, DatumSites, or one Natural a class
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


@equation("villacampa2017", "u13-inner-outer-schemes")
def training_schedule(scheme: str, n_steps: int) -> tuple[Move, ...]:
    """What precedes each of n_steps steps of the hyper-parameters: section 2.3 and Figure 1 of villacampa2017.

    Parameters
    ----------
    scheme : str              "outer": factors until convergence, then (10); "inner-approximate": one sweep, then (10);
                              "inner-exact": one sweep, then the exact gradient
    n_steps : int             steps of the hyper-parameters

    Raises
    ------
    ValueError                for another scheme
    """
    check_choice(scheme, SCHEMES, "scheme")
    return (Move(scheme == "outer", scheme == "inner-exact"),) * n_steps


def log_evidence_gradients(
    method: Method,
    sites: Any,
    posterior: Gaussians,
    X: Array,
    prior: Prior,
    K: Matrices,
    batch: Batch | None = None,
    exact: bool = False,
    learn: Sequence[str] = FIELDS,
) -> dict[str, Array] | None:
    """The derivative of log Z_q, or formula (10), in every hyper-parameter; (12) of villacampa2017 for a mini-batch.

    Parameters
    ----------
    method : Method           whose log Z_q
    sites : object            its factors
    posterior : Gaussians     q(f̄)
    X : (n, d)                inputs
    prior : Prior             hyper-parameters
    K : Matrices              of the prior
    batch : (b,) or None      data whose terms stand for all, n/b times; None: all data
    exact : bool              the whole derivative with the factors' numbers held; False: formula (10)
    learn : names             fields wanted

    Returns
    -------
    dict or None              fields with shapes as in the prior; None if a cavity is no distribution
    """
    if isinstance(method, PrintedEP | PrintedSEP) and not exact:
        return printed_gradients(method, sites, posterior, X, prior, K, batch, learn)
    weights = np.ones(len(X))
    if batch is not None:
        weights = np.zeros(len(X))
        weights[batch] = minibatch_scale(len(X), len(batch))
    pulls = method.pulls(sites, posterior, K, weights, exact)
    if pulls is None:
        return None
    slopes = [kernel_slope(*each) for each in zip(pulls, K.upsilon, K.K_ZZ, strict=True)]
    return class_gradients(slopes, X, prior, learn)


def _ascended(where: Array, gradient: Array, ascent: Ascent) -> tuple[Array, Ascent]:
    """Coordinates after one step uphill, and what the rule remembers."""
    if not ascent.adaptive:
        new, adam = adam_step(where, gradient, ascent.adam, ascent.rate)
        return new, ascent._replace(adam=adam)
    rates = ascent.rates
    if ascent.previous is not None:
        rates = adaptive_learning_rate(gradient, ascent.previous, rates)
    return where + rates * gradient, ascent._replace(rates=rates, previous=gradient)


def _after_hyper_step(
    method: Method, X: Array, state: State, batch: Batch | None, exact: bool, learn: Sequence[str], shared: bool
) -> State:
    """One step of the hyper-parameters with the factors' numbers held; everything of the prior made anew, and q."""
    gradients = log_evidence_gradients(
        method, state.sites, state.posterior, X, state.prior, state.K, batch, exact, learn
    )
    if gradients is None:  # no gradient where a cavity is no distribution: the hyper-parameters wait
        return state
    row: Any = first_row(state.prior, shared)
    slope = log_slopes(row, learn, row_gradients(gradients, shared))
    where, ascent = _ascended(coordinates(row, learn), slope, state.ascent)
    prior = every_row(cast(Prior, moved(row, learn, where)), state.prior)
    K = prior_matrices(X, prior)
    return state._replace(prior=prior, K=K, posterior=method.posterior(state.sites, K), ascent=ascent)


@equation("villacampa2017", "u17-minibatch-schedule")
def minibatch_training_step(
    method: Method, X: Array, state: State, batch: Batch, exact: bool, learn: Sequence[str], shared: bool
) -> State:
    """All factors of a mini-batch, then one step along (12), q rebuilt after each: 2.3.2 of villacampa2017.

    Parameters
    ----------
    method : Method           EP or SEP
    X : (n, d)                inputs
    state : State             before
    batch : (b,)              indices of the mini-batch, each once; all data are one too
    exact : bool              the exact gradient in place of (12)
    learn : names             fields that move; none: the factors alone
    shared : bool             one vector for all classes

    Raises
    ------
    NotPositiveDefiniteError  if the step leads where K_ZZ is singular
    ValueError                if it leads out of the range of numbers
    """
    step = method.step(state.sites, state.posterior, state.K, batch)
    state = state._replace(
        sites=step.sites,
        posterior=method.posterior(step.sites, state.K) if step.posterior is None else step.posterior,
        residual=step.residual,
        n_improper=state.n_improper + step.n_improper,
    )
    return _after_hyper_step(method, X, state, batch, exact, learn, shared) if len(learn) else state


def fit(method: Method, X: Array, prior: Prior, shared: bool, options: Options) -> Fit:
    """A method of villacampa2017 from factors of one: to its fixed point, over mini-batches, or learning.

    Parameters
    ----------
    method : Method           EP or SEP of the labels
    X : (n, d)                inputs
    prior : Prior             hyper-parameters, or where to start from
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         checked
    """
    trace: list[float] = []
    count, improper = 0, 0

    def monitor(step: Step, K: Matrices) -> None:
        nonlocal count, improper
        count, improper = count + 1, improper + step.n_improper
        if options.trace:
            value = method.value(step.sites, method.posterior(step.sites, K), K).log_evidence
            if value is not None:
                trace.append(value)
        if options.callback is not None:
            options.callback(Seen(count, step.residual, improper))

    plan = ascending_batches(len(X), options.batches, options.batch_size, options.n_steps, options.seed)
    in_parts = options.batches is not None or options.batch_size is not None
    K = prior_matrices(X, prior)
    sites = method.start(K)
    if len(options.learn) and options.optimizer == "lbfgs":
        return _by_search(method, X, prior, shared, options)
    if not in_parts and not len(options.learn):
        run = to_fixed_point(method, sites, K, options.tolerance, options.max_iterations, lambda step: monitor(step, K))
        end = run.residual, run.converged, run.n_improper, run.iterations
        return _fit(method, X, run.sites, run.posterior, prior, K, np.array(trace), end, options)
    size = len(coordinates(cast(Any, first_row(prior, shared)), options.learn))
    rate = cast(float, options.rate)
    ascent = Ascent(
        options.optimizer == "adaptive",
        rate,
        np.full(size, rate),
        None,
        AdamState(np.zeros(size), np.zeros(size), 0),
    )
    state = State(sites, prior, K, method.posterior(sites, K), ascent, np.inf, 0)
    for move, rows in zip(training_schedule(cast(str, options.scheme), len(plan)), plan, strict=True):
        if move.until_converged:
            run = to_fixed_point(method, state.sites, state.K, options.tolerance, options.max_iterations)
            n_improper = state.n_improper + run.n_improper
            state = state._replace(
                sites=run.sites, posterior=run.posterior, residual=run.residual, n_improper=n_improper
            )
            monitor(Step(state.sites, state.residual, run.n_improper), state.K)
            state = _after_hyper_step(method, X, state, None, move.exact, options.learn, shared)
            continue
        old = state
        state = minibatch_training_step(method, X, state, rows, move.exact, options.learn, shared)
        monitor(Step(state.sites, state.residual, state.n_improper - old.n_improper), old.K)
    end = state.residual, False, state.n_improper, len(plan)
    return _fit(method, X, state.sites, state.posterior, state.prior, state.K, np.array(trace), end, options)


def _by_search(method: Method, X: Array, prior: Prior, shared: bool, options: Options) -> Fit:
    """L-BFGS-B on the log Z_q of fixed points, each looked for from the last one."""
    sites: Any = None
    n_improper = 0

    def evidence(there: Prior) -> tuple[float, dict[str, Array]]:
        nonlocal sites, n_improper
        K = prior_matrices(X, there)
        start = method.start(K) if sites is None else sites
        run = to_fixed_point(method, start, K, options.tolerance, options.max_iterations)
        sites, n_improper = run.sites, n_improper + run.n_improper
        value = method.value(run.sites, run.posterior, K).log_evidence
        gradients = log_evidence_gradients(method, run.sites, run.posterior, X, there, K, learn=options.learn)
        if value is None or gradients is None:
            raise ValueError("damping: found cavities that are no distributions, expected a smaller one to avoid them")
        return value, gradients

    steps = 200 if options.n_steps is None else options.n_steps
    gradients = search(evidence, prior, options.learn, shared, steps, options.learn_tolerance)
    K = prior_matrices(X, gradients.prior)
    run = to_fixed_point(method, sites, K, options.tolerance, options.max_iterations)
    end = gradients.residual, gradients.converged and run.converged, n_improper + run.n_improper, gradients.iterations
    trace = gradients.trace if options.trace else np.zeros(0)
    return _fit(method, X, run.sites, run.posterior, gradients.prior, K, trace, end, options)


def _fit(
    method: Method,
    X: Array,
    sites: Any,
    posterior: Gaussians,
    prior: Prior,
    K: Matrices,
    trace: Array,
    end: tuple[float, bool, int, int],
    options: Options,
) -> Fit:
    value = method.value(sites, posterior, K)
    slopes = None
    if options.gradients and value.log_evidence is not None:
        exact = options.gradient_rule == "exact"
        slopes = log_evidence_gradients(method, sites, posterior, X, prior, K, exact=exact)
    mean, var = method.latents(sites, posterior, K)
    residual, converged, n_improper, iterations = end
    reason = _doubt(method, X, sites, prior, K, options) if converged else ""
    converged = converged and not reason
    return Fit(
        posterior,
        sites,
        prior,
        value.log_norm,
        value.log_evidence,
        slopes,
        mean,
        var,
        trace,
        residual,
        converged,
        n_improper,
        iterations,
        reason=reason,
    )


def _doubt(method: Method, X: Array, sites: Any, prior: Prior, K: Matrices, options: Options) -> str:
    """Why rounding leaves the answer open, empty if it does not: the factors' numbers held, beside the prior."""

    def answers(there: Prior) -> dict[str, Answer]:
        K_there = prior_matrices(X, there)
        q = method.posterior(sites, K_there)
        value = method.value(sites, q, K_there).log_evidence
        if value is None:
            raise ValueError("damping: found a cavity that is no distribution, expected one")
        mean, var = method.latents(sites, q, K_there)
        answer = {"log_evidence": Answer(value, 1.0)} | moment_answers(
            float(np.sqrt(np.max(prior.variance + prior.noise))),
            inducing_mean=q.mean,
            inducing_cov=q.cov,
            latent_mean=mean,
            latent_cov=var,
        )
        if options.gradients:
            exact = options.gradient_rule == "exact"
            slopes = log_evidence_gradients(method, sites, q, X, there, K_there, exact=exact)
            answer |= slope_answers(slopes or {}, prior, value)
        return answer

    return rounding_doubt(answers, prior, list(K.K_ZZ), tolerance=options.tolerance)


def _damping(damping: Any) -> float:
    if _check.scalar(damping, "damping", zero_allowed=False) > 1.0:
        raise ValueError(f"damping: found {shown(damping)}, expected a number in (0, 1]")
    return float(damping)


@checked_options("ep")
def fit_ep(
    X: Array,
    y: Labels,
    prior: Prior,
    factors: str = "pairwise",
    schedule: str = "parallel",
    damping: float = 0.5,
    shared: bool = False,
    options: Options | None = None,
) -> Fit:
    """Expectation propagation of villacampa2017.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, where to start from
    factors : str             "pairwise": one a datum and other class, (8); "datum": one a datum, by quadrature
    schedule : str            "parallel": all from one q; "sequential": q refreshed after each
    damping : float           in (0, 1], how much of each move is made
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         the rest; None: defaults

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    check_choice(factors, FACTORS, "factors")
    check_choice(schedule, SCHEDULES, "schedule")
    checked = check_options(Options() if options is None else options, prior, tied=False)
    form = ep_form(checked.form, factors, len(X), len(prior.Z))
    kind = PrintedEP if form == "printed" else PairwiseEP if factors == "pairwise" else DatumEP
    posterior = fit(kind(y, len(prior.Z), _damping(damping), schedule), X, prior, shared, checked)
    return posterior._replace(form=form)


@checked_options("sep")
def fit_sep(
    X: Array,
    y: Labels,
    prior: Prior,
    count: str = "all",
    damping: float = 0.5,
    shared: bool = False,
    options: Options | None = None,
) -> Fit:
    """Stochastic expectation propagation of villacampa2017: one tied factor, see `methods.TiedEP`.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, where to start from
    count : str               "all" or "per-class": see `sep.factor_counts`
    damping : float           in (0, 1]
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         the rest; None: defaults

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    checked = check_options(Options() if options is None else options, prior, tied=True)
    form = sep_form(checked.form, len(X), len(prior.Z))
    kind = PrintedSEP if form == "printed" else TiedEP
    return fit(kind(y, len(prior.Z), _damping(damping), count), X, prior, shared, checked)._replace(form=form)
