"""nested-ep: expectation propagation with all couplings between classes, multinomial probit. riihimaki2013, 3.2.

Outer sites (alpha_i, beta_i), C - 1 pairs a datum, seen through g_i = B~'w_i; inner EP runs on all g_i at once.
One outer iteration takes C factorisations I + D_k^1/2 K_k D_k^1/2, their inverses, one factorisation of P, and C solves
with it. Hyper-parameters are held; `fast.full_classes.learning` moves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import option, takes_values
from fast.core.hyper import ClassGradients
from fast.core.options import SHARE, Blocks, Predicting
from fast.core.results import ClassPrediction, Differences
from fast.core.threads import one_thread
from fast.core.types import BoolArray, FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.full_classes.couplings import Coupled, condition, evidence_gradients, marginal_covariances
from fast.full_classes.inner_ep import distribution_with, log_normaliser, log_site_ratios, run
from fast.full_classes.nested_sites import (
    OuterSites,
    augmented_differences,
    differences,
    ep_log_evidence,
    other_classes,
    outer_sites,
    projected_cavity,
    proper_cavities,
    site_matrices,
)
from fast.full_classes.predict import predict_distribution
from fast.full_classes.prior import MulticlassPrior
from fast.full_classes.prior import prepare as prepare
from fast.full_classes.sequential_posterior import SequentialPosterior
from fast.ledger import equation
from fast.solve.outer_loop import Outcome, OuterOptions, Pair, Proposal, iterate, residual_of


@dataclass(frozen=True, kw_only=True, eq=False)
class NestedOptions(OuterOptions):
    """Options of nested EP, with all couplings or with independent classes."""

    inner: str = option(
        "choice",
        "inner EP to convergence, or one step a visit",
        choices=("converged", "incremental"),
        default="converged",
    )
    inner_schedule: str = option(
        "choice", "schedule of the inner EP", choices=("sequential", "parallel"), default="sequential"
    )
    inner_damping: float = option("number", "damping of the inner EP", SHARE, default=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassPredicting(Blocks, Predicting):
    """Options of predictions."""

    block_size: int = 1024


DEFAULTS = NestedOptions()


class State(NamedTuple):
    """What sites say of all data."""

    sites: OuterSites
    posterior: Coupled
    cov: FloatArray  # (n, C, C) Sigma_i
    projected: Differences  # h_i
    distribution: Differences  # g_i
    proper: BoolArray  # (n,) cavities that are distributions
    log_evidence: float  # NaN if one is not


@dataclass(frozen=True, eq=False)
class NestedEPPosterior:
    """q(f) and the sites where the iteration stopped."""

    prior: MulticlassPrior
    posterior: Coupled
    latent_mean: FloatArray  # (n, C)
    latent_cov: FloatArray  # (n, C, C)
    alpha_tilde: FloatArray  # (n, C - 1)
    beta_tilde: FloatArray  # (n, C - 1)
    site_precision: FloatArray  # (n, C, C) Pi_i
    site_location: FloatArray  # (n, C) nu_i
    log_tilted_norm: FloatArray  # (n,) log Z_q of each datum
    log_evidence: float | None  # log Z_EP, every constant in it; None: a cavity is no distribution
    trace: FloatArray  # log Z_EP after each iteration
    residual: float
    converged: bool
    n_improper: int
    iterations: int


def _state(prior: MulticlassPrior, others: IntArray, pair: Pair) -> State:
    alpha_tilde, beta_tilde = pair
    sites = outer_sites(prior.y, others, alpha_tilde, beta_tilde)
    posterior = condition(prior, sites.precision, sites.location)
    cov = marginal_covariances(posterior)
    projected = differences(prior.y, others, posterior.mean, cov)
    distribution = augmented_differences(projected, alpha_tilde, beta_tilde)
    proper = proper_cavities(projected, alpha_tilde)
    index = np.arange(alpha_tilde.shape[1])
    value = np.nan
    if proper.all():
        ratios = log_site_ratios(distribution.mean, distribution.cov[:, index, index], alpha_tilde, beta_tilde)
        value = ep_log_evidence(sites.location, posterior.mean, posterior.log_det, alpha_tilde, beta_tilde, ratios)
    return State(sites, posterior, cov, projected, distribution, proper, value)


@equation("riihimaki2013", "u3.2.3-incremental")
@one_thread
def inner_proposal(
    distribution: Differences,
    cavity: Differences | None,
    alpha_tilde: FloatArray,
    beta_tilde: FloatArray,
    *,
    inner: str = "converged",
    inner_schedule: str = "sequential",
    inner_damping: float = 1.0,
) -> Pair:
    """Sites after inner EP that starts at the present ones, one sweep if incremental: riihimaki2013, section 3.2.3.

    Parameters
    ----------
    distribution  of g with the sites
    cavity                  of g without; needed by a parallel inner schedule only
    alpha_tilde, beta_tilde : (n, D)    inner sites
    inner : str             "converged" or "incremental"
    inner_schedule : str    "sequential" or "parallel"
    inner_damping : float   share of the new site in an inner update
    """
    result = run(
        alpha_tilde,
        beta_tilde,
        distribution,
        inner=inner,
        schedule=inner_schedule,
        damping=inner_damping,
        cavity=cavity,
    )
    return result.alpha_tilde, result.beta_tilde


def _proposal(state: State, pair: Pair, inner: str, inner_schedule: str, inner_damping: float) -> Proposal:
    alpha_tilde, beta_tilde = pair
    cavity = None
    if inner_schedule == "parallel":
        result = projected_cavity(state.projected, alpha_tilde, beta_tilde)
        cavity = distribution_with(Differences(result.mean, result.cov))
    new_alpha, new_beta = inner_proposal(
        state.distribution,
        cavity,
        alpha_tilde,
        beta_tilde,
        inner=inner,
        inner_schedule=inner_schedule,
        inner_damping=inner_damping,
    )
    good = state.proper & np.isfinite(new_alpha).all(axis=1) & np.isfinite(new_beta).all(axis=1)
    keep = good[:, None]
    index = np.arange(alpha_tilde.shape[1])
    return Proposal(
        (np.where(keep, new_alpha, alpha_tilde), np.where(keep, new_beta, beta_tilde)),
        state.distribution.mean,
        state.distribution.cov[:, index, index],
        int(np.count_nonzero(~good)),
    )


@equation("riihimaki2013", "u3.1-schedule")
def _sequential_pass(
    prior: MulticlassPrior, others: IntArray, pair: Pair, damping: float, propose: Callable[[State, Pair], Proposal]
) -> tuple[Pair, float, int]:
    """One pass over the data in order, the posterior refreshed after each site."""
    alpha_tilde, beta_tilde = pair[0].copy(), pair[1].copy()
    sites = outer_sites(prior.y, others, alpha_tilde, beta_tilde)
    coupled = condition(prior, sites.precision, sites.location)
    running = SequentialPosterior(prior, coupled, sites.precision, sites.location)
    residual, improper = 0.0, 0
    for i in range(prior.n):
        one = slice(i, i + 1)
        y, other = prior.y[one], others[one]
        mean, cov = running.marginal(i)
        projected = differences(y, other, mean[None], cov[None])
        distribution = augmented_differences(projected, alpha_tilde[one], beta_tilde[one])
        proper = proper_cavities(projected, alpha_tilde[one])
        here = (alpha_tilde[one], beta_tilde[one])
        result = propose(State(sites, coupled, cov[None], projected, distribution, proper, np.nan), here)
        improper += result.n_improper
        residual = max(residual, residual_of(here, result))
        alpha_tilde[one] = (1.0 - damping) * alpha_tilde[one] + damping * result.target[0]
        beta_tilde[one] = (1.0 - damping) * beta_tilde[one] + damping * result.target[1]
        new = outer_sites(y, other, alpha_tilde[one], beta_tilde[one])
        running.update(i, new.precision[0], new.location[0])
    return (alpha_tilde, beta_tilde), residual, improper


@one_thread
def converge(
    prior: MulticlassPrior, options: NestedOptions = DEFAULTS, *, start: Pair | None = None
) -> NestedEPPosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior                         from `prepare`
    options                       of `fit`
    start : pair of (n, C - 1)    alpha and beta to start from; default zero
    """
    inner, inner_schedule, inner_damping = options.inner, options.inner_schedule, options.inner_damping
    damping = options.damping
    others = other_classes(prior.y, prior.n_classes)

    def propose(state: State, pair: Pair) -> Proposal:
        return _proposal(state, pair, inner, inner_schedule, inner_damping)

    shape = (prior.n, prior.n_classes - 1)
    end = iterate(
        lambda pair: _state(prior, others, pair),
        propose,
        (np.zeros(shape), np.zeros(shape)) if start is None else start,
        options,
        objective=lambda state: state.log_evidence,
        # one sweep has the fixed points of many
        accelerated_propose=lambda state, pair: _proposal(state, pair, "incremental", "sequential", 1.0),
        sequential=(lambda pair: _sequential_pass(prior, others, pair, damping, propose))
        if options.schedule == "sequential"
        else None,
    )
    return _assemble(prior, end)


def _assemble(prior: MulticlassPrior, end: Outcome) -> NestedEPPosterior:
    (alpha_tilde, beta_tilde), state = end.sites, end.state
    result = projected_cavity(state.projected, alpha_tilde, beta_tilde)
    cavity = distribution_with(Differences(result.mean, result.cov))
    log_norm = log_normaliser(cavity, state.distribution, alpha_tilde, beta_tilde)
    return NestedEPPosterior(
        prior,
        state.posterior,
        state.posterior.mean,
        state.cov,
        alpha_tilde,
        beta_tilde,
        site_matrices(state.sites.precision),
        state.sites.location,
        log_norm,
        float(state.log_evidence) if np.isfinite(state.log_evidence) else None,
        end.trace,
        end.residual,
        end.converged,
        end.n_improper,
        end.iterations,
    )


@takes_values
def fit(data: Data, prior: Prior, options: NestedOptions = DEFAULTS) -> NestedEPPosterior:
    """Nested EP to its fixed point, hyper-parameters held. Sites start at zero.

    Time an outer iteration (7/3) C n^3, memory C n^2 (one more n^2 for each distinct kernel).

    Parameters
    ----------
    data : Data      at least two classes
    prior : Prior    full; one number or one vector stands for all classes
    options          damping on alpha and beta; tolerance on the largest standardised change of a site in an undamped
                     step; the callback is given an OuterProgress after every iteration

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    a matrix of the prior is not positive semi-definite
    """
    return converge(prepare(data, prior), options)


@equation("riihimaki2013", "B-gradient")
@one_thread
def gradients(posterior: NestedEPPosterior) -> ClassGradients:
    """Gradient of log Z_EP at the fixed point, sites held: riihimaki2013, appendix B. Time O(C n^3 + n^2 d).

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.prior.vjp(evidence_gradients(posterior.prior, posterior.posterior))


@ClassPredicting.checks
def predict(
    posterior: Any,
    X_test: Any,
    *,
    prediction: str = "inner-ep",
    prediction_nodes: int | None = None,
    block_size: int = 1024,
) -> ClassPrediction:
    """Latent distribution and class probabilities at test points. Time 3 C t n^2, memory that of a block.

    Parameters
    ----------
    posterior                   from `fit`
    X_test : (t, d)             t may be 0
    prediction : str            "inner-ep", or "quadrature" as a second route
    prediction_nodes : int      nodes in each dimension of a product rule; None: points of Sobol's sequence
    block_size : int            test points at a time
    """
    return predict_distribution(
        posterior.prior, posterior.posterior, X_test, prediction=prediction, prediction_nodes=prediction_nodes,
        block_size=block_size,
    )  # fmt: skip


@NestedOptions.checks
def one_outer_step(
    prior: MulticlassPrior, alpha_tilde: FloatArray, beta_tilde: FloatArray, *, inner: str = "incremental"
) -> Pair:
    """Proposals from the posterior of given sites: one undamped outer iteration.

    Parameters
    ----------
    prior                       from `prepare`
    alpha_tilde, beta_tilde : (n, C - 1)    sites
    inner : str                 "incremental" or "converged"
    """
    others = other_classes(prior.y, prior.n_classes)
    state = _state(prior, others, (alpha_tilde, beta_tilde))
    return _proposal(state, (alpha_tilde, beta_tilde), inner, "sequential", 1.0).target
