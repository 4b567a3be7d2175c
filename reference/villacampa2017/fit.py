"""Sections 2.2, 2.3 and 4: the loops of EP and SEP, factors and hyper-parameters in turn, on all data or mini-batches.

What a sweep is, equation by equation, stands in `methods` (and in `datum` for one factor a datum).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._batches import ascending_batches
from reference.common._classes import checked_input
from reference.common._iteration import Arrival
from reference.common._options import shown
from reference.common._training import (
    Fit,
    Record,
    State,
    Task,
    begin,
    by_search,
    finish,
    first_rule,
    hyper_step,
    silent,
    with_defaults,
)  # fmt: skip
from reference.common.errors import NotPositiveDefiniteError
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.common.priors import Prior
from reference.villacampa2017.datum import DatumEP
from reference.villacampa2017.gradients import adaptive_learning_rate
from reference.villacampa2017.methods import EP, SEP

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]

SCHEMES = ("outer", "inner-approximate", "inner-exact")


class Move(NamedTuple):
    """What comes before one step of the hyper-parameters, and which gradient it takes."""

    until_converged: bool  # sweeps to a fixed point, from the present factors; else one
    exact: bool  # the whole derivative of log Z_q; else formula (10)


def to_fixed_point(task: Task, state: State, callback: Callable[[State], None] = silent) -> State:
    """Sweeps over all data until no factor of villacampa2017 moves: sections 2.2 and E.

    It stops where the distance that sweeps would still go, the last residual times max(1, ρ/(1 - ρ)) with ρ the factor
    by which residuals fall, is below the tolerance and all cavities were distributions; unconverged where a sweep
    leaves no distribution, where rounding alone moves the factors, or after max_iterations.

    Parameters
    ----------
    task : Task               EP, SEP or GFITC, inputs, options
    state : State             where to start
    callback : callable       called with the state after every sweep
    """
    # fmt: off
    arrival, everything = Arrival(task.options.tolerance), np.arange(len(task.X))
    state = state._replace(converged=False, reason="")
    for _ in range(task.options.max_iterations):
        try:
            step = task.method.sweep(state.sites, state.posterior, state.K, everything)            # (25) to (53)
        except NotPositiveDefiniteError as error:
            return state._replace(reason=f"a sweep leaves no distribution: {error}")
        state = state.after(step)
        callback(state)
        arrival.see(step.residual)
        if arrival.converged and step.n_improper == 0:
            return state._replace(converged=True)
        if arrival.stalled:
            break
    improper = f"{step.n_improper} cavities are not distributions and keep their factors"
    return state._replace(reason=improper if step.n_improper else arrival.reason(len(arrival.changes)))
    # fmt: on


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
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise ValueError(f"scheme: found {shown(scheme)}, expected one of {', '.join(SCHEMES)}")
    return (Move(scheme == "outer", scheme == "inner-exact"),) * n_steps


@equation("villacampa2017", "u17-minibatch-schedule")
def minibatch_training_step(
    task: Task, state: State, batch: Batch, exact: bool, callback: Callable[[State], None] = silent
) -> State:
    """All factors of a mini-batch, then one step along (12), q rebuilt after each: 2.3.2 of villacampa2017.

    Parameters
    ----------
    task : Task               EP or SEP, inputs, and the hyper-parameters that move; none: the factors alone
    state : State             before
    batch : (b,)              indices of the mini-batch, each once; all data are one too
    exact : bool              the exact gradient in place of (12)
    callback : callable       called with the state before the hyper-parameters move

    Raises
    ------
    NotPositiveDefiniteError  if the step leads where K_ZZ is singular
    ValueError                if it leads out of the range of numbers
    """
    # fmt: off
    state = state.after(task.method.sweep(state.sites, state.posterior, state.K, batch))           # (25) to (53)
    callback(state)
    return hyper_step(task, state, batch, exact) if task.options.learn else state                  # (12)
    # fmt: on


def fit(task: Task, prior: Prior) -> Fit:
    """A method of villacampa2017 from factors of one: to its fixed point, over mini-batches, or learning.

    Parameters
    ----------
    task : Task               EP or SEP of the labels, inputs, options
    prior : Prior             hyper-parameters, or where to start from
    """
    # fmt: off
    options, record = task.options, Record(task)
    state = begin(task, prior)                                                                     # φ̃ = 1, q = p(f̄)
    if not options.in_parts and not options.learn:
        state = to_fixed_point(task, state, record.tell)                                           # (25) to (53)
        return finish(task, state, record.trace, record.count)                                     # (9), (10)
    if options.learn and options.optimizer == "lbfgs":
        return by_search(task, state, to_fixed_point)                                              # (9), (10)
    state = state._replace(rule=first_rule(task, prior, adaptive_learning_rate))
    plan = ascending_batches(len(task.X), options.batches, options.batch_size, options.n_steps, options.seed)
    for move, batch in zip(training_schedule(options.scheme, len(plan)), plan, strict=True):       # 2.3, figure 1
        if move.until_converged:
            state = to_fixed_point(task, state)                                                    # (25) to (53)
            record.tell(state)
            state = hyper_step(task, state, None, move.exact)                                      # (10)
        else:
            state = minibatch_training_step(task, state, batch, move.exact, record.tell)           # (25) to (53), (12)
    return finish(task, state._replace(converged=False), record.trace, len(plan))                  # (9), (10)
    # fmt: on


@takes("ep")
def fit_ep(X: Array, y: Labels, prior: Prior, *, shared: bool = False, options: Options) -> Fit:
    """Expectation propagation of villacampa2017.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, where to start from
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         of "ep", or each by name

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    kind: Any = EP if options.factors == "pairwise" else DatumEP
    method = kind(y, len(prior.Z), options.damping, options.schedule)
    return fit(Task(method, X, with_defaults(options, prior, SCHEMES[1:]), shared), prior)


@takes("sep")
def fit_sep(X: Array, y: Labels, prior: Prior, *, shared: bool = False, options: Options) -> Fit:
    """Stochastic expectation propagation of villacampa2017: one tied factor, see `methods.SEP`.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, where to start from
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         of "sep", or each by name

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    method = SEP(y, len(prior.Z), options.damping, options.count)
    return fit(Task(method, X, with_defaults(options, prior, SCHEMES[1:], tied=True), shared), prior)
