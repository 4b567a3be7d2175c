"""EP whose classes stay independent: one scalar site (tau_ik, nu_ik) for each datum and class. riihimaki2013, 3.2.2.

The iteration is the same for every way to find tilted moments: a method gives `tilt`, from diagonal cavities to sites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fast.core.types import BoolArray, FloatArray
from fast.full_classes.couplings import Coupled, condition_independent
from fast.full_classes.inner_ep import log_site_integral, scalar_cavity
from fast.full_classes.prior import MulticlassPrior
from fast.full_classes.sequential_posterior import SequentialPosterior
from fast.solve.outer_loop import Outcome, OuterOptions, Pair, Proposal, iterate, residual_of


class Tilt(NamedTuple):
    """What tilted moments say of some data."""

    precision: FloatArray  # (b, C) tau
    location: FloatArray  # (b, C) nu
    good: BoolArray  # (b,) False where the site is refused
    change: FloatArray  # (b,) largest change of what is kept beside the sites


class IndependentState(NamedTuple):
    """What sites say of all data."""

    posterior: Coupled
    mean: FloatArray  # (n, C)
    var: FloatArray  # (n, C)
    cavity_mean: FloatArray  # (n, C)
    cavity_var: FloatArray  # (n, C)
    proper: BoolArray  # (n,)
    log_evidence: float  # NaN if a cavity is no distribution


# data, cavity mean, cavity variance -> sites; may remember per datum what it ended with
Tilting = Callable[[np.ndarray, FloatArray, FloatArray], Tilt]


def independent_state(
    prior: MulticlassPrior, pair: Pair, log_norm: Callable[[FloatArray, FloatArray], FloatArray] | None
) -> IndependentState:
    """Posterior, cavities and log Z (28) of given sites. Time C n^3.

    Parameters
    ----------
    prior                  the data
    pair                   tau, nu (n, C)
    log_norm : callable    cavity mean, variance -> log Z_q of each datum; None: log Z is not asked for
    """
    tau, nu = pair
    posterior = condition_independent(prior, tau, nu)
    var = np.column_stack([one.cond_var for one in posterior.factors])
    cavity = scalar_cavity(posterior.mean, var, tau, nu)
    proper: BoolArray = np.asarray((cavity.cavity_ratio > 0.0).all(axis=1))
    value = np.nan
    if log_norm is not None and proper.all():
        sites = log_site_integral(posterior.mean, var, tau, nu)
        value = 0.5 * float(np.vdot(nu, posterior.mean)) - 0.5 * posterior.log_det
        value += float(log_norm(cavity.mean, cavity.var).sum() - sites.sum())
    return IndependentState(posterior, posterior.mean, var, cavity.mean, cavity.var, proper, value)


def settle_independent(
    prior: MulticlassPrior,
    tilt: Tilting,
    log_norm: Callable[[FloatArray, FloatArray], FloatArray],
    options: OuterOptions,
    *,
    start: Pair,
    accelerated_tilt: Tilting | None = None,
) -> Outcome:
    """Iterate scalar sites to their fixed point.

    Parameters
    ----------
    prior                          the data
    tilt : callable                rows, cavity mean, cavity variance -> Tilt
    log_norm : callable            cavity mean, variance -> log Z_q of each datum
    options                        see `fast.solve.outer_loop.iterate`
    start                          tau, nu (n, C)
    accelerated_tilt : callable    the same fixed point, for mixed steps
    """
    everything, damping = np.arange(prior.n), options.damping

    def propose_with(tilting: Tilting) -> Callable[[Any, Pair], Proposal]:
        def propose(state: IndependentState, pair: Pair) -> Proposal:
            result = tilting(everything, state.cavity_mean, state.cavity_var)
            good = result.good & state.proper
            keep = good[:, None]
            target = (np.where(keep, result.precision, pair[0]), np.where(keep, result.location, pair[1]))
            extra = float(np.where(good, result.change, 0.0).max(initial=0.0))
            return Proposal(target, state.mean, state.var, int(good.size - np.count_nonzero(good)), extra)

        return propose

    def one_pass(pair: Pair) -> tuple[Pair, float, int]:
        tau, nu = pair[0].copy(), pair[1].copy()
        running = SequentialPosterior(prior, condition_independent(prior, tau, nu), tau, nu)
        residual, improper = 0.0, 0
        for i in range(prior.n):
            one = slice(i, i + 1)
            mean, cov = running.marginal(i)
            var = cov.diagonal()[None]
            cavity = scalar_cavity(mean[None], var, tau[one], nu[one])
            result = tilt(everything[one], cavity.mean, cavity.var)
            if not (result.good[0] and (cavity.cavity_ratio > 0.0).all()):
                improper += 1
                continue
            target = (result.precision, result.location)
            step = Proposal(target, mean[None], var, 0, float(result.change[0]))
            residual = max(residual, residual_of((tau[one], nu[one]), step))
            tau[one] = (1.0 - damping) * tau[one] + damping * result.precision
            nu[one] = (1.0 - damping) * nu[one] + damping * result.location
            running.update(i, tau[i], nu[i])
        return (tau, nu), residual, improper

    return iterate(
        lambda pair: independent_state(prior, pair, log_norm),
        propose_with(tilt),
        start,
        options,
        objective=lambda state: state.log_evidence,
        accelerated_propose=None if accelerated_tilt is None else propose_with(accelerated_tilt),
        sequential=one_pass if options.schedule == "sequential" else None,
    )


def diagonal(values: FloatArray) -> FloatArray:
    """(n, C) to diagonal matrices (n, C, C).

    Parameters
    ----------
    values : (n, C)
    """
    out = np.zeros((*values.shape, values.shape[1]))
    index = np.arange(values.shape[1])
    out[:, index, index] = values
    return out
