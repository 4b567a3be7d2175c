"""Section 5, baseline epgpc: the loops, in batches of all data and of some, and the search for hyper-parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._iteration import Arrival, change
from reference.common._learning import check_learn, maximise
from reference.common.options import Options, takes
from reference.common.priors import Hyper
from reference.wenzel2019 import _prior
from reference.wenzel2019._stochastic import Adam, Batch, plan_batches
from reference.wenzel2019.epgpc import (
    Sites,
    ep_cavity,
    ep_latent_moments,
    ep_log_evidence,
    ep_posterior,
    ep_sites,
    ep_tilted,
    epgpc_gradients,
)

Array = NDArray[np.float64]


class EPGPCFit(NamedTuple):
    """Where EP ended."""

    inducing_mean: Array  # (m,)
    inducing_cov: Array  # (m, m)
    latent_mean: Array  # (n,)      of f_i, which its own label has seen
    latent_var: Array  # (n,)       noise included
    site_precision: Array  # (n,)
    site_shift: Array  # (n,)
    log_evidence: float  # estimate of log p(y) under FITC (the full GP if Z is None), every constant included
    trace: Array  # (iterations,)   log Z after each sweep, or a mini-batch's estimate of it after each step
    residual: float  # estimated relative distance to the fixed point
    converged: bool
    n_improper: int  # updates skipped because a cavity was no distribution
    iterations: int
    hyper: Hyper  # as learned
    reason: str = ""  # why it has not converged


class EPState(NamedTuple):
    """What a callback is told after every sweep or step."""

    iteration: int
    log_evidence: float | None  # where it is traced
    residual: float
    sites: Sites
    hyper: Hyper


def _finished(
    given: _prior.Inputs,
    K: _prior.Matrices,
    sites: Sites,
    trace: list[float],
    residual: float,
    converged: bool,
    counts: tuple[int, int],
    reason: str = "",
) -> EPGPCFit:
    q = ep_posterior(*sites, K.upsilon, K.K_ZZ).q
    log_evidence = ep_log_evidence(*sites, given.y_sign, K.K_ZZ, K.upsilon, K.cond_var)
    cavity = ep_cavity(*q, *sites, K.upsilon)
    tilted = ep_tilted(cavity.mean, cavity.var, given.y_sign, K.cond_var)
    moments = ep_latent_moments(cavity.mean, cavity.var, tilted.derivative, tilted.curvature, K.cond_var)
    history = np.array(trace)
    return EPGPCFit(*q, *moments, *sites, log_evidence, history, residual, converged, *counts, given.hyper, reason)


def propagate(
    given: _prior.Inputs,
    tolerance: float,
    max_iterations: int,
    damping: float,
    start: Sites | None = None,
    callback: Callable[[EPState], None] | None = None,
) -> EPGPCFit:
    """Parallel sweeps from sites of zero, or from others: every cavity from one q(u), every site towards its moments.

    `residual` is the estimated distance of the sites from the fixed point, see `Arrival`, by the largest relative
    change of a and b as if the step had been whole. A site whose cavity is not a distribution is left and counted.

    Parameters
    ----------
    given : Inputs            checked
    tolerance : float         of `residual`
    max_iterations : int      sweeps after which it gives up and says so; earlier if 200 bring no smaller change
    damping : float           share of a step that is taken
    start : Sites             None: zero
    callback : callable       called with an EPState after every sweep
    """
    X, y_sign, hyper = given
    K = _prior.matrices(X, hyper)
    sites = Sites(np.zeros(len(X)), np.zeros(len(X))) if start is None else start
    trace: list[float] = []
    arrival, n_improper, left = Arrival(tolerance), 0, 0
    while not (arrival.converged and not left) and len(trace) < max_iterations and not arrival.stalled:
        # fmt: off
        q = ep_posterior(*sites, K.upsilon, K.K_ZZ).q                                         # N(u|0, K_mm) Π t_i
        cavity = ep_cavity(*q, *sites, K.upsilon)                                             # q/t_i
        tilted = ep_tilted(*cavity[:2], y_sign, K.cond_var)                                   # cavity times Φ(y_i f_i)
        target = ep_sites(*cavity[:2], tilted.derivative, tilted.curvature)                   # its moments
        # fmt: on
        before, sites = sites, _towards(target, sites, cavity.proper, damping)
        left = int(np.sum(~cavity.proper))
        n_improper += left
        arrival.see(max(change(after, old) for after, old in zip(sites, before, strict=True)) / damping)
        trace.append(ep_log_evidence(*sites, y_sign, K.K_ZZ, K.upsilon, K.cond_var))
        if callback is not None:
            callback(EPState(len(trace), trace[-1], arrival.residual, sites, hyper))
    converged = arrival.converged and not left
    reason = f"{left} cavities are not distributions" if left else arrival.reason(len(trace))
    counts = n_improper, len(trace)
    return _finished(given, K, sites, trace, arrival.residual, converged, counts, "" if converged else reason)


def _towards(target: Sites, sites: Sites, proper: NDArray[np.bool_], damping: float) -> Sites:
    """Sites moved by a share of the way to a target, where the cavity is a distribution."""
    moved = (np.where(proper, (1.0 - damping) * a + damping * b, a) for a, b in zip(sites, target, strict=True))
    return Sites(*moved)


@takes("epgpc")
def fit_epgpc(
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
    *,
    options: Options,
) -> EPGPCFit:
    """Parallel expectation propagation to its fixed point, and log Z's maximum in the hyper-parameters to learn.

    Starts with all sites zero. A sweep takes every cavity from one q(u) and moves every site towards moment matching.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1; one class alone is allowed
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, added to the prior variance of each latent value at data and test points
    jitter : float            >= 0, added to the diagonal of K_ZZ (of K_XX if Z is None)
    Z : (m, d) or None        inducing inputs; None is the full GP
    options : Options         of "epgpc", or each by name; learn: by L-BFGS-B with EP converged each time; callback:
                              called with an EPState after every sweep, not while hyper-parameters are searched

    Returns
    -------
    EPGPCFit                  with learn, trace is that of the search and residual the largest gradient left

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    tolerance, max_iterations, damping = options.tolerance, options.max_iterations, options.damping
    learned = check_learn(options.learn, given.hyper)
    if not learned:
        return propagate(given, tolerance, max_iterations, damping, callback=options.callback)
    everything = np.arange(len(given.X))
    last: list[Sites] = []

    def objective(hyper: Hyper) -> tuple[float, dict[str, Any]]:
        start = last[0] if last else None
        fit = propagate(given._replace(hyper=hyper), tolerance, max_iterations, damping, start)
        last[:] = [Sites(fit.site_precision, fit.site_shift)]
        return fit.log_evidence, epgpc_gradients(given.X, given.y_sign, hyper, *last[0], everything, learned)

    optimum = maximise(objective, given.hyper, learned, 200)
    end = given._replace(hyper=optimum.hyper)
    fit = propagate(end, tolerance, max_iterations, damping, callback=options.callback)
    return fit._replace(
        trace=optimum.trace,
        residual=optimum.residual,
        converged=optimum.converged and fit.converged,
        iterations=optimum.iterations,
    )


def _replaced(whole: Array, rows: Batch, part: Array) -> Array:
    """A copy with other values in some rows."""
    result = whole.copy()
    result[rows] = part
    return result


@takes("epgpc")
def fit_epgpc_batches(
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
    *,
    options: Options,
) -> EPGPCFit:
    """Expectation propagation that refreshes the sites of one mini-batch a step, hyper-parameters by Adam.

    Within a mini-batch all sites are refreshed from one q(u); or, without parallel, one after another in the order of
    the list, q(u) following each. After the mini-batch one Adam step along `epgpc_gradients` of the mini-batch, with
    the sites held; q(u) is then made anew from the sites. In estimates a datum that is listed twice counts once, as
    its site does.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0
    jitter : float            >= 0
    Z : (m, d) or None        inducing inputs; None is the full GP
    options : Options         of "epgpc", or each by name; n_steps None: as many as batches, or 1000; trace: the
                              mini-batch's estimate of log Z after each step, before Adam's

    Returns
    -------
    EPGPCFit                  converged False: no stopping rule is asked; residual is the last step's change of sites

    Raises
    ------
    ValueError                for bad input, an empty or foreign mini-batch, hyper-parameters that diverge
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    learned = check_learn(options.learn, given.hyper)
    plan, _ = plan_batches(len(given.X), options)
    K = _prior.matrices(given.X, given.hyper)
    sites = Sites(np.zeros(len(given.X)), np.zeros(len(given.X)))
    adam = Adam(given.hyper, learned, options.learning_rate)
    values: list[float] = []
    n_improper = 0
    for step, batch in enumerate(plan, 1):
        before = sites
        for rows in [batch] if options.parallel else batch[:, None]:
            mine, kappa = Sites(sites.precision[rows], sites.shift[rows]), K.upsilon[rows]
            # fmt: off
            q = ep_posterior(*sites, K.upsilon, K.K_ZZ).q                                     # N(u|0, K_mm) Π t_i
            cavity = ep_cavity(*q, *mine, kappa)                                              # q/t_i
            tilted = ep_tilted(*cavity[:2], given.y_sign[rows], K.cond_var[rows])             # cavity times Φ(y_i f_i)
            target = ep_sites(*cavity[:2], tilted.derivative, tilted.curvature)               # its moments
            # fmt: on
            new = _towards(target, mine, cavity.proper, options.damping)
            sites = Sites(*(_replaced(whole, rows, part) for whole, part in zip(sites, new, strict=True)))
            n_improper += int(np.sum(~cavity.proper))
        residual = max(change(new, old) for new, old in zip(sites, before, strict=True))
        once = np.unique(batch)
        if options.trace:
            values.append(ep_log_evidence(*sites, given.y_sign, K.K_ZZ, K.upsilon, K.cond_var, once))
        if learned:
            gradients = epgpc_gradients(given.X, given.y_sign, given.hyper, *sites, once, learned)
            hyper, K = adam.ascend(given.X, given.hyper, gradients)
            given = given._replace(hyper=hyper)
        if options.callback is not None:
            options.callback(EPState(step, values[-1] if values else None, residual, sites, given.hyper))
    return _finished(given, K, sites, values, residual, False, (n_improper, len(plan)))
