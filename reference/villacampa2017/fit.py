"""Sections 2.2, 2.3 and 4: the loops of EP and SEP, factors and hyper-parameters in turn, on all data or mini-batches.

Which equations a sweep has stands in the methods: `printed` for the form "printed", `methods` and `tied` for the form
"projected".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._batches import ascending_batches
from reference.common._classes import Prior, checked_input
from reference.common._options import shown
from reference.common._sweeps import Step
from reference.common._training import (
    Fit,
    Method,
    Record,
    State,
    Task,
    begin,
    by_search,
    finish,
    hyper_step,
    settled,
    with_defaults,
)  # fmt: skip
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.villacampa2017.gradients import adaptive_learning_rate
from reference.villacampa2017.methods import DatumEP, PairwiseEP
from reference.villacampa2017.printed import PrintedEP, PrintedSEP, ep_form, sep_form
from reference.villacampa2017.tied import TiedEP

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]

SCHEMES = ("outer", "inner-approximate", "inner-exact")


class Move(NamedTuple):
    """What comes before one step of the hyper-parameters, and which gradient it takes."""

    until_converged: bool  # sweeps to a fixed point, from the present factors; else one
    exact: bool  # the whole derivative of log Z_q; else formula (10)


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
def minibatch_training_step(task: Task, state: State, batch: Batch, exact: bool) -> State:
    """All factors of a mini-batch, then one step along (12), q rebuilt after each: 2.3.2 of villacampa2017.

    Parameters
    ----------
    task : Task               EP or SEP, inputs, and the hyper-parameters that move; none: the factors alone
    state : State             before
    batch : (b,)              indices of the mini-batch, each once; all data are one too
    exact : bool              the exact gradient in place of (12)

    Raises
    ------
    NotPositiveDefiniteError  if the step leads where K_ZZ is singular
    ValueError                if it leads out of the range of numbers
    """
    # fmt: off
    step = task.method.step(state.sites, state.posterior, state.K, batch)                          # (25) to (53)
    state = state.swept(step, task.method)                                                         # (25) to (27)
    return hyper_step(task, state, batch, exact) if len(task.options.learn) else state             # (12)
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
    state = begin(task, prior, adaptive_learning_rate)                                             # φ̃ = 1, q = p(f̄)
    if len(options.learn) and options.optimizer == "lbfgs":
        return by_search(task, state)                                                              # (9), (10)
    if not options.in_parts and not len(options.learn):
        run = settled(task, state, lambda step: record.tell(step, state.K))                        # (25) to (53)
        return finish(task, state.swept(run, task.method), record.trace, run.converged, run.iterations)   # (9), (10)
    plan = ascending_batches(len(task.X), options.batches, options.batch_size, options.n_steps, options.seed)
    for move, batch in zip(training_schedule(options.scheme, len(plan)), plan, strict=True):       # 2.3, figure 1
        old = state
        if move.until_converged:
            run = settled(task, state)                                                             # (25) to (53)
            state = state.swept(run, task.method)
            record.tell(run, state.K)
            state = hyper_step(task, state, None, move.exact)                                      # (10)
        else:
            state = minibatch_training_step(task, state, batch, move.exact)                        # (25) to (53), (12)
            record.tell(Step(state.sites, state.residual, state.n_improper - old.n_improper), old.K)
    return finish(task, state, record.trace, False, len(plan))                                     # (9), (10)
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
    form = ep_form(options.form, options.factors, len(X), len(prior.Z))
    kind: Any = PrintedEP if form == "printed" else PairwiseEP if options.factors == "pairwise" else DatumEP
    method: Method = kind(y, len(prior.Z), options.damping, options.schedule)
    return fit(Task(method, X, with_defaults(options, prior, SCHEMES[1:]), shared), prior)._replace(form=form)


@takes("sep")
def fit_sep(X: Array, y: Labels, prior: Prior, *, shared: bool = False, options: Options) -> Fit:
    """Stochastic expectation propagation of villacampa2017: one tied factor, see `tied.TiedEP`.

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
    form = sep_form(options.form, len(X), len(prior.Z))
    method = (PrintedSEP if form == "printed" else TiedEP)(y, len(prior.Z), options.damping, options.count)
    options = with_defaults(options, prior, SCHEMES[1:], tied=True)
    return fit(Task(method, X, options, shared), prior)._replace(form=form)
