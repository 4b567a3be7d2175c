"""Sections 3.1, 3.5 and A.5: power expectation propagation, to its fixed point, over mini-batches, or learning."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check, _sweeps
from reference.common._batches import ascending_batches
from reference.common._classes import (
    Prior,
    checked_input,
    class_gradients,
    every_row,
    fields_to_learn,
    first_row,
    row_gradients,
    search,
)
from reference.common._learning import FIELDS, Slope, coordinates, log_slopes, moved
from reference.common._neighbours import Answer, moment_answers, rounding_doubt, slope_answers
from reference.common._options import shown
from reference.common._sweeps import Run, Step, Sweeps
from reference.common.errors import NotPositiveDefiniteError
from reference.common.ledger import equation
from reference.common.options import checked_options
from reference.villacampa2020.evidence import (
    pep_log_evidence_from_moments,
    pep_log_evidence_limit,
    site_log_normaliser_from_moments,
    site_log_normaliser_rank_one,
)
from reference.villacampa2020.forms import check_printed, form_of
from reference.villacampa2020.gradients import (
    AdamState,
    Direction,
    adam_step,
    adaptive_learning_rate,
    held_matrices_pulls,
    held_numbers_pulls,
    kernel_slope,
    pep_log_evidence_gradient,
)
from reference.villacampa2020.hyper import Batch, Matrices, inducing_covariances, prior_matrices
from reference.villacampa2020.pep import (
    TiltedLaw,
    parallel_pep_sweep,
    pep_log_evidence,
    pep_refine_factors,
    tilted_laws,
)
from reference.villacampa2020.posterior import Coefficients, Gaussians, posterior_moments
from reference.villacampa2020.power_likelihood import check_power
from reference.villacampa2020.projected import project, proposals
from reference.villacampa2020.refinement import damped_update
from reference.villacampa2020.sparse import Marginal, latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

SCHEMES = ("outer", "inner")
OPTIMIZERS = ("lbfgs", "adaptive", "adam")
RULES = ("28", "exact")
_HALVINGS = 60


class Task(NamedTuple):
    """What is asked of one run."""

    y: Labels
    epsilon: float
    alpha: float
    damping: float
    form: str = "projected"


class Options(NamedTuple):
    """Settings; None chooses the default, see `check_options`."""

    tolerance: float = 1e-10
    max_iterations: int = 1000
    batches: Sequence[Any] | None = None
    batch_size: int | None = None
    n_steps: int | None = None
    learn: Sequence[str] = ()
    scheme: str | None = None
    optimizer: str | None = None
    rate: float | None = None
    learn_tolerance: float = 1e-5
    gradient_rule: str = "28"
    gradients: bool = True
    seed: int = 0
    trace: bool = False
    callback: Callable[["Seen"], None] | None = None
    form: str | None = None


class Seen(NamedTuple):
    """What a callback is told after every sweep or step."""

    iteration: int
    residual: float
    n_improper: int  # so far


class Ascent(NamedTuple):
    """Memory of a rule for steps."""

    adaptive: bool  # two per cent up or half, else Adam
    rate: float
    rates: Array  # (p,)  adaptive: rates of the last step
    previous: Array | None  # (p,)  adaptive: its gradient
    adam: AdamState


class State(NamedTuple):
    """Everything that a step of training changes."""

    coefficients: Coefficients
    prior: Prior
    K: Matrices
    posterior: Gaussians
    ascent: Ascent
    residual: float
    n_improper: int  # so far


class Fit(NamedTuple):
    """Where power expectation propagation ended."""

    posterior: Gaussians
    coefficients: Coefficients
    prior: Prior  # as learned
    log_norm: Array  # (n,) (1/α) log Z_i under the last cavities
    log_evidence: float | None  # log Z_q of all data, every constant included; none if a cavity is no distribution
    gradients: dict[str, Array] | None  # fields with shapes as in the prior
    latents: Marginal  # at the data, (n, C), noise included
    trace: Array  # log Z_q, where it exists, after each sweep or step, before hyper-parameters move; empty unless asked
    residual: float
    converged: bool
    n_improper: int
    iterations: int
    form: str = "projected"  # which ran
    reason: str = ""  # why an answer whose sweeps have converged is not claimed


def pep_residual(new: Coefficients, old: Coefficients, latent_mean: Array, latent_var: Array) -> float:
    """Largest change of a factor, max(|ΔC¹| q, |ΔC² - ΔC¹ p| √q) with p, q the moments of υᵀf̄ under q: villacampa2020.

    Parameters
    ----------
    new : Coefficients        of all factors, undamped
    old : Coefficients        of all factors
    latent_mean : (n, C)      p, before the update
    latent_var : (n, C)       q, of υᵀf̄ alone
    """
    c1, c2 = new.c1 - old.c1, new.c2 - old.c2
    by_precision, by_shift = np.abs(c1) * latent_var, np.abs(c2 - c1 * latent_mean) * np.sqrt(latent_var)
    return float(max(np.max(by_precision), np.max(by_shift)))


def damped_sweep(
    coefficients: Coefficients, posterior: Gaussians, K: Matrices, task: Task, batch: Batch | None = None
) -> Step:
    """Refine the factors of a batch from one q, move them by the damping, rebuild q: appendix A.5 of villacampa2020.

    C¹ may be negative when ε > 0. If the new q is no distribution the damping is halved until it is.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    K : Matrices                  of the prior
    task : Task                   labels, ε, α, damping
    batch : (b,) or None          indices, each once; None: all data

    Raises
    ------
    NotPositiveDefiniteError      if no step leaves a distribution
    """
    damping = task.damping
    for halving in range(_HALVINGS + 1):
        try:
            sweep = _printed_sweep if task.form == "printed" else _projected_sweep
            swept = sweep(coefficients, posterior, K, task, damping, batch)
            return swept._replace(n_improper=swept.n_improper + halving)
        except NotPositiveDefiniteError:
            if halving == _HALVINGS:
                raise
        damping *= 0.5
    raise AssertionError


def _printed_sweep(
    coefficients: Coefficients, posterior: Gaussians, K: Matrices, task: Task, damping: float, batch: Batch | None
) -> Step:
    """The paper's sweep; how far it would have gone without damping, in the factors' own coordinates."""
    rows = np.arange(len(task.y)) if batch is None else batch
    new = parallel_pep_sweep(coefficients, task.y, K, task.epsilon, task.alpha, damping, batch)
    old, wanted = (Coefficients(*(part[rows] for part in each)) for each in (coefficients, new.coefficients))
    at = latent_marginal(posterior, K.upsilon[:, rows], np.zeros_like(K.cond_var[:, rows]))  # of υᵀf̄
    return Step(new.coefficients, pep_residual(wanted, old, *at) / damping, new.n_improper, new.posterior)


def _projected_sweep(
    coefficients: Coefficients, posterior: Gaussians, K: Matrices, task: Task, damping: float, batch: Batch | None
) -> Step:
    """The same along υ alone: (A.8) to (A.20) contracted, see `projected`."""
    rows = np.arange(len(task.y)) if batch is None else batch
    old = Coefficients(*(part[rows] for part in coefficients))
    at = project(old, posterior, task.y[rows], K.upsilon[:, rows], K.cond_var[:, rows], task.epsilon, task.alpha)
    wanted = proposals(old, at, task.alpha)
    new = Coefficients(*(part.copy() for part in coefficients))
    for after, proposed, before in zip(new, wanted, old, strict=True):
        after[rows] = damped_update(proposed, before, damping)
    q = posterior_moments(*new, K.upsilon, K.K_ZZ)
    return Step(new, pep_residual(wanted, old, at.p, at.q), int(np.sum(~at.proper)), q)


def to_fixed_point(
    coefficients: Coefficients,
    K: Matrices,
    task: Task,
    tolerance: float,
    max_iterations: int,
    monitor: Callable[[Step], None] | None = None,
) -> Run:
    """Sweeps over all data until no factor wants to move: section 3.1 of villacampa2020.

    Parameters
    ----------
    coefficients : Coefficients   where to start
    K : Matrices                  of the prior
    task : Task                   labels, ε, α, damping
    tolerance : float             estimated distance of a factor from the fixed point at which it ends, unless a cavity
                                  was no distribution or a step was halved
    max_iterations : int          sweeps after which it gives up, as it does if 300 do not halve the residual;
                                  `converged` is then False
    monitor : callable            told the outcome of every sweep
    """
    return _sweeps.to_fixed_point(
        lambda at, q: damped_sweep(at, q, K, task),
        lambda at: posterior_moments(at.c1, at.c2, K.upsilon, K.K_ZZ),
        coefficients,
        Sweeps(task.damping, tolerance),
        max_iterations,
        monitor,
    )


def log_evidence_of(
    coefficients: Coefficients, posterior: Gaussians, K: Matrices, task: Task
) -> tuple[float | None, Array]:
    """log Z_q of villacampa2020, and (1/α) log Z_i (n,): (8) as printed, or (A.26) with (A.27) contracted.

    At α = 0 the contracted form has its limit, a lower bound.

    Parameters
    ----------
    coefficients : Coefficients   of all factors
    posterior : Gaussians         q(f̄)
    K : Matrices                  of the prior
    task : Task                   labels, ε, α

    Returns
    -------
    float or None, (n,)           None if a cavity is no distribution
    """
    if task.form == "printed":
        whole = posterior, task.y, K, task.epsilon, task.alpha
        refined = pep_refine_factors(coefficients, *whole)
        return (None if refined.n_improper else pep_log_evidence(coefficients, *whole)), refined.log_norm
    at = project(coefficients, posterior, task.y, K.upsilon, K.cond_var, task.epsilon, task.alpha)
    log_norm = at.likelihood.log_expectation
    if not np.all(at.proper):
        return None, log_norm
    if task.alpha > 0.0:
        each = site_log_normaliser_rank_one(
            task.alpha * log_norm, coefficients, posterior, K.upsilon, task.alpha
        )  # below (A.27)
        return pep_log_evidence_from_moments(posterior, K.K_ZZ, each, task.alpha), log_norm  # (A.26)
    return pep_log_evidence_limit(posterior, K.K_ZZ, log_norm, coefficients, K.upsilon), log_norm


def _traced(coefficients: Coefficients, posterior: Gaussians, K: Matrices, task: Task) -> float | None:
    """log Z_q after a sweep; as printed by (A.26) and (A.27), from the moments that are at hand."""
    if task.form != "printed":
        return log_evidence_of(coefficients, posterior, K, task)[0]
    try:
        laws = tilted_laws(coefficients, posterior, task.y, K, task.epsilon, task.alpha)
    except ValueError:  # a cavity is no distribution
        return None
    each = [site_log_normaliser_from_moments(law.log_norm, law.cavity, posterior) for law in laws]  # (A.27)
    return pep_log_evidence_from_moments(posterior, K.K_ZZ, np.array(each), task.alpha)  # (A.26)


def log_evidence_gradients(
    coefficients: Coefficients,
    posterior: Gaussians,
    X: Array,
    prior: Prior,
    K: Matrices,
    task: Task,
    gradient_rule: str = "28",
    batch: Batch | None = None,
    learn: Sequence[str] = FIELDS,
) -> dict[str, Array] | None:
    """The derivative of log Z_q of villacampa2020 in every hyper-parameter; of a mini-batch, its terms n/b times.

    Parameters
    ----------
    coefficients : Coefficients   of all factors
    posterior : Gaussians         q(f̄)
    X : (n, d)                    inputs
    prior : Prior                 hyper-parameters
    K : Matrices                  of the prior
    task : Task                   labels, ε, α
    gradient_rule : str           "28": the factors' natural parameters held, (A.28); "exact": the numbers C¹ and C²
    batch : (b,) or None          data whose terms stand for all
    learn : names                 fields wanted

    Returns
    -------
    dict or None                  fields with shapes as in the prior; None if a cavity is no distribution

    Notes
    -----
    As printed, (A.28) is evaluated for one hyper-parameter after the other; contracted, once for all of a class
    (`held_matrices_pulls`). "exact", which no equation of the paper is, has the second way only.
    """
    rows = np.arange(len(X)) if batch is None else batch
    if task.form == "printed" and gradient_rule == "28":
        try:
            laws = tilted_laws(coefficients, posterior, task.y, K, task.epsilon, task.alpha, batch)
        except ValueError:  # a cavity is no distribution
            return None
        return class_gradients(
            [_printed_slope(k, posterior, laws, K.of(rows), task.alpha, rows, len(X)) for k in range(len(K.K_ZZ))],
            X, prior, learn,
        )  # fmt: skip
    pulls_of = held_numbers_pulls if gradient_rule == "exact" else held_matrices_pulls
    weights = np.zeros(len(X))
    weights[rows] = len(X) / len(rows)
    pulls = pulls_of(coefficients, posterior, task.y, K, task.epsilon, task.alpha, weights)
    if pulls is None:
        return None
    slopes = [kernel_slope(*each) for each in zip(pulls, K.upsilon, K.K_ZZ, strict=True)]
    return class_gradients(slopes, X, prior, learn)


def _printed_slope(
    k: int, posterior: Gaussians, laws: Sequence[TiltedLaw], K: Matrices, alpha: float, rows: Batch, n: int
) -> Slope:
    """(A.28) in one class, from the derivatives of the matrices of all data."""

    def slope(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
        direction = Direction(dK_ZZ, dK_XZ[rows], dk[rows])
        return pep_log_evidence_gradient(k, posterior, laws, K, alpha, direction, n / len(rows))

    return slope


@equation("villacampa2020", "u20-joint-optimisation")
def training_step(
    state: State, X: Array, task: Task, batch: Batch, gradient_rule: str, learn: Sequence[str], shared: bool
) -> State:
    """One sweep over a batch, then one step of the hyper-parameters, without waiting for convergence: 3.1, 3.5.

    The numbers C¹ and C² stay while υ, s, K and q are made anew. Where a cavity is no distribution there is no
    gradient, and the hyper-parameters wait.

    Parameters
    ----------
    state : State             before, of villacampa2020
    X : (n, d)                inputs
    task : Task               labels, ε, α, damping
    batch : (b,)              indices, each once; all data are a batch too
    gradient_rule : str       "28" or "exact", see `log_evidence_gradients`
    learn : names             fields that move; none: the factors alone
    shared : bool             one vector for all classes

    Raises
    ------
    NotPositiveDefiniteError  if the step leads where K_ZZ is singular
    ValueError                if it leads out of the range of numbers
    """
    swept = damped_sweep(state.coefficients, state.posterior, state.K, task, batch)
    state = state._replace(
        coefficients=swept.sites,
        posterior=swept.posterior,
        residual=swept.residual,
        n_improper=state.n_improper + swept.n_improper,
    )
    return hyper_step(state, X, task, batch, gradient_rule, learn, shared) if len(learn) else state


def hyper_step(
    state: State, X: Array, task: Task, batch: Batch, gradient_rule: str, learn: Sequence[str], shared: bool
) -> State:
    """One step uphill of the hyper-parameters with the factors' numbers held; the second half of `training_step`.

    Parameters
    ----------
    state : State             before, of villacampa2020
    X : (n, d)                inputs
    task : Task               labels, ε, α
    batch : (b,)              data whose terms stand for all
    gradient_rule : str       "28" or "exact"
    learn : names             fields that move
    shared : bool             one vector for all classes

    Raises
    ------
    NotPositiveDefiniteError  if the step leads where K_ZZ is singular
    ValueError                if it leads out of the range of numbers
    """
    gradients = log_evidence_gradients(
        state.coefficients, state.posterior, X, state.prior, state.K, task, gradient_rule, batch, learn
    )
    if gradients is None:
        return state
    row: Any = first_row(state.prior, shared)
    slope, where, ascent = (
        log_slopes(row, learn, row_gradients(gradients, shared)),
        coordinates(row, learn),
        state.ascent,
    )
    if ascent.adaptive:
        rates = ascent.rates
        if ascent.previous is not None:
            rates = adaptive_learning_rate(slope, ascent.previous, rates)
        where, ascent = where + rates * slope, ascent._replace(rates=rates, previous=slope)
    else:
        where, adam = adam_step(where, slope, ascent.adam, ascent.rate)
        ascent = ascent._replace(adam=adam)
    prior = every_row(cast(Prior, moved(row, learn, where)), state.prior)
    K = prior_matrices(X, prior)
    return state._replace(
        prior=prior, K=K, posterior=posterior_moments(*state.coefficients, K.upsilon, K.K_ZZ), ascent=ascent
    )


def _choice(value: Any, known: Sequence[str], name: str) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}: found {shown(value)}, expected one of {', '.join(known)}")


def check_options(options: Options, prior: Prior) -> Options:
    """Options with the defaults that depend on others filled in.

    The optimiser is "lbfgs" over all data with neither a number of steps nor the scheme "inner", "adam" otherwise; the
    scheme is "outer" for "lbfgs", "inner" otherwise; the rate is 0.01 for "adaptive", 0.001 for "adam".

    Parameters
    ----------
    options : Options         as given
    prior : Prior             start, of villacampa2020

    Raises
    ------
    ValueError                naming the option
    """
    _check.scalar(options.tolerance, "tolerance", zero_allowed=False)
    _check.count(options.max_iterations, "max_iterations")
    _check.scalar(options.learn_tolerance, "learn_tolerance", zero_allowed=False)
    _choice(options.gradient_rule, RULES, "gradient_rule")
    if options.n_steps is not None:
        _check.count(options.n_steps, "n_steps")
    if options.callback is not None and not callable(options.callback):
        raise ValueError(f"callback: found {shown(options.callback)}, expected a callable or None")
    learn = fields_to_learn(options.learn, prior)
    if options.batches is not None and options.batch_size is not None:
        raise ValueError(f"batch_size: found {shown(options.batch_size)} with batches, expected one of the two")
    parts = options.batches is not None or options.batch_size is not None
    optimizer, scheme, rate = options.optimizer, options.scheme, options.rate
    if optimizer is None:
        optimizer = "adam" if parts or scheme == "inner" or options.n_steps is not None else "lbfgs"
    _choice(optimizer, OPTIMIZERS, "optimizer")
    if optimizer == "lbfgs" and parts:
        raise ValueError("optimizer: found 'lbfgs' with batches, expected adaptive or adam")
    if scheme is None:
        scheme = "outer" if optimizer == "lbfgs" else "inner"
    _choice(scheme, SCHEMES, "scheme")
    if optimizer == "lbfgs" and scheme != "outer":
        raise ValueError(f"scheme: found {shown(scheme)}, expected 'outer' for lbfgs, which needs the fixed point")
    if parts and scheme == "outer":
        raise ValueError("scheme: found 'outer' with batches, expected 'inner'")
    if rate is None:
        rate = 0.01 if optimizer == "adaptive" else 0.001
    if options.n_steps is not None and not (learn or parts):
        raise ValueError(f"n_steps: found {options.n_steps}, expected None without learn, batches or batch_size")
    rate = _check.scalar(rate, "rate", zero_allowed=False)
    return options._replace(learn=learn, optimizer=optimizer, scheme=scheme, rate=rate)


@checked_options("pep")
def fit_pep(
    X: Array,
    y: Labels,
    prior: Prior,
    epsilon: float = 0.0,
    alpha: float = 0.5,
    damping: float = 0.5,
    shared: bool = False,
    options: Options | None = None,
) -> Fit:
    """Power expectation propagation of villacampa2020 from factors of one.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, where to start from
    epsilon : float           label-error probability in [0, 1), positive at alpha = 0
    alpha : float             α, 0 (variational inference) or in [1e-8, 1]
    damping : float           in [1e-8, 1], how much of each move is made
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         the rest; None: defaults

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    alpha, epsilon = _check.scalar(alpha, "alpha", True), _check.scalar(epsilon, "epsilon", True)
    check_power(alpha, epsilon)
    if _check.scalar(damping, "damping", zero_allowed=False) > 1.0:
        raise ValueError(f"damping: found {shown(damping)}, expected a number in [1e-8, 1]")
    chosen = check_options(Options() if options is None else options, prior)
    searched = len(chosen.learn) > 0 and chosen.scheme == "outer"
    searched = searched or alpha == 0.0  # a limit that the printed equations do not have
    form = form_of(chosen.form, len(X), inducing_covariances(prior), alpha, searched)
    check_printed(form, alpha, "pep")
    task = Task(y, epsilon, alpha, float(damping), form)
    if len(chosen.learn) and chosen.optimizer == "lbfgs":
        return _by_search(X, prior, task, shared, chosen)
    trace: list[float] = []
    count, improper = 0, 0

    def monitor(coefficients: Coefficients, posterior: Gaussians, K: Matrices, residual: float, more: int) -> None:
        nonlocal count, improper
        count, improper = count + 1, improper + more
        if chosen.trace:
            value = _traced(coefficients, posterior, K, task)
            trace.extend([] if value is None else [value])
        if chosen.callback is not None:
            chosen.callback(Seen(count, residual, improper))

    K = prior_matrices(X, prior)
    start = Coefficients(np.zeros((len(X), len(prior.Z))), np.zeros((len(X), len(prior.Z))))
    limits = chosen.tolerance, chosen.max_iterations
    if chosen.batches is None and chosen.batch_size is None and not len(chosen.learn):
        run = to_fixed_point(
            start, K, task, *limits, lambda s: monitor(s.sites, s.posterior, K, s.residual, s.n_improper)
        )
        end = run.residual, run.converged, run.n_improper, run.iterations
        return _fit(X, run.sites, run.posterior, prior, K, task, np.array(trace), end, chosen)
    plan = ascending_batches(len(X), chosen.batches, chosen.batch_size, chosen.n_steps, chosen.seed)
    size = len(coordinates(cast(Any, first_row(prior, shared)), chosen.learn))
    rate = cast(float, chosen.rate)
    memory = AdamState(np.zeros(size), np.zeros(size), 0)
    ascent = Ascent(chosen.optimizer == "adaptive", rate, np.full(size, rate), None, memory)
    state = State(start, prior, K, posterior_moments(*start, K.upsilon, K.K_ZZ), ascent, np.inf, 0)
    told = chosen.trace or chosen.callback is not None
    for rows in plan:
        if chosen.scheme == "outer":
            run = to_fixed_point(state.coefficients, state.K, task, *limits)
            state = state._replace(
                coefficients=run.sites,
                posterior=run.posterior,
                residual=run.residual,
                n_improper=state.n_improper + run.n_improper,
            )
            monitor(state.coefficients, state.posterior, state.K, state.residual, run.n_improper)
            state = hyper_step(state, X, task, rows, chosen.gradient_rule, chosen.learn, shared)
            continue
        old = state
        state = training_step(state, X, task, rows, chosen.gradient_rule, chosen.learn, shared)
        if told:  # before the hyper-parameters moved
            q = posterior_moments(*state.coefficients, old.K.upsilon, old.K.K_ZZ)
            monitor(state.coefficients, q, old.K, state.residual, state.n_improper - old.n_improper)
    end = state.residual, False, state.n_improper, len(plan)
    return _fit(X, state.coefficients, state.posterior, state.prior, state.K, task, np.array(trace), end, chosen)


def _by_search(X: Array, prior: Prior, task: Task, shared: bool, options: Options) -> Fit:
    """L-BFGS-B on the log Z_q of fixed points, each looked for from the last one."""
    at = Coefficients(np.zeros((len(X), len(prior.Z))), np.zeros((len(X), len(prior.Z))))
    n_improper = 0
    limits = options.tolerance, options.max_iterations

    def evidence(there: Prior) -> tuple[float, dict[str, Array]]:
        nonlocal at, n_improper
        K = prior_matrices(X, there)
        run = to_fixed_point(at, K, task, *limits)
        at, n_improper = run.sites, n_improper + run.n_improper
        value, _ = log_evidence_of(at, run.posterior, K, task)
        gradients = log_evidence_gradients(
            at, run.posterior, X, there, K, task, options.gradient_rule, None, options.learn
        )
        if value is None or gradients is None:
            raise ValueError("damping: found cavities that are no distributions, expected a smaller one to avoid them")
        return value, gradients

    steps = 200 if options.n_steps is None else options.n_steps
    gradients = search(evidence, prior, options.learn, shared, steps, options.learn_tolerance)
    K = prior_matrices(X, gradients.prior)
    run = to_fixed_point(at, K, task, *limits)
    end = gradients.residual, gradients.converged and run.converged, n_improper + run.n_improper, gradients.iterations
    trace = gradients.trace if options.trace else np.zeros(0)
    return _fit(X, run.sites, run.posterior, gradients.prior, K, task, trace, end, options)


def _fit(
    X: Array,
    coefficients: Coefficients,
    posterior: Gaussians,
    prior: Prior,
    K: Matrices,
    task: Task,
    trace: Array,
    end: tuple[float, bool, int, int],
    options: Options,
) -> Fit:
    value, log_norm = log_evidence_of(coefficients, posterior, K, task)
    slopes = None
    if options.gradients and value is not None:
        slopes = log_evidence_gradients(coefficients, posterior, X, prior, K, task, options.gradient_rule)
    latents = latent_marginal(posterior, K.upsilon, K.cond_var)
    residual, converged, n_improper, iterations = end
    reason = _doubt(X, coefficients, prior, K, task, options) if converged else ""
    end = residual, converged and not reason, n_improper, iterations
    return Fit(posterior, coefficients, prior, log_norm, value, slopes, latents, trace, *end, task.form, reason)


def _doubt(X: Array, coefficients: Coefficients, prior: Prior, K: Matrices, task: Task, options: Options) -> str:
    """Why rounding leaves the answer open, empty if it does not: the factors' numbers held, beside the prior."""

    def answers(there: Prior) -> dict[str, Answer]:
        K_there = prior_matrices(X, there)
        q = posterior_moments(*coefficients, K_there.upsilon, K_there.K_ZZ)
        value, log_norm = log_evidence_of(coefficients, q, K_there, task)
        if value is None:
            raise ValueError("damping: found a cavity that is no distribution, expected one")
        latents = latent_marginal(q, K_there.upsilon, K_there.cond_var)
        answer = {"log_evidence": Answer(value, 1.0)} | moment_answers(
            float(np.sqrt(np.max(prior.variance + prior.noise))),
            inducing_mean=q.mean,
            inducing_cov=q.cov,
            latent_mean=latents.mean,
            latent_cov=latents.var,
            log_norm=log_norm,
        )
        if options.gradients:
            slopes = log_evidence_gradients(coefficients, q, X, there, K_there, task, options.gradient_rule)
            answer |= slope_answers(slopes or {}, prior, value)
        return answer

    return rounding_doubt(answers, prior, list(K.K_ZZ), tolerance=options.tolerance)
