"""qep and qiep: EP for the multinomial probit with tilted moments by quadrature. riihimaki2013, sections 3.3 and 5.1.

qep: all couplings between classes, a (C - 1)-dimensional rule a site; with a diagonal Lambda the posterior has the
structure of nested EP, with a full one it has not: its algebra then takes (n C)^2 numbers and (n C)^3 operations.
qiep: independent classes, the scheme of Seeger et al. (2006).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import option, takes_values
from fast.core.hyper import ClassGradients
from fast.core.linalg import spectrum
from fast.core.results import ClassPrediction, Differences
from fast.core.threads import one_thread
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.full_classes.couplings import Coupled, condition, evidence_gradients, marginal_covariances
from fast.full_classes.dense_couplings import Dense, condition_dense, dense_covariance, dense_gradients
from fast.full_classes.independent_sites import Tilt, diagonal, settle_independent
from fast.full_classes.inner_ep import distribution_with
from fast.full_classes.nested_sites import (
    FullCavity,
    FullDistribution,
    differences,
    full_cavity,
    full_distribution,
    integrated_sites,
    other_classes,
    outer_sites,
    scatter,
)
from fast.full_classes.predict import predict_distribution
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.full_classes.quadrature_tilt import g_sites, independent_tilt, white_moments
from fast.full_classes.sequential_posterior import SequentialPosterior
from fast.likelihood.product_rule import product_rule
from fast.methods.nested_ep import ClassPredicting
from fast.solve.outer_loop import OuterOptions, Pair, Proposal, iterate, residual_of


@dataclass(frozen=True, kw_only=True, eq=False)
class QIEPOptions(OuterOptions):
    """Options of `fit_qiep`."""

    nodes: int = option("integer", "nodes of the tilted moments a direction", "[2, 200]", default=10)


@dataclass(frozen=True, kw_only=True, eq=False)
class QEPOptions(QIEPOptions):
    """Options of `fit_qep`."""

    lambda_: str = option("choice", "site precisions of qep", choices=("diagonal", "full"), default="diagonal")


DEFAULTS, INDEPENDENT = QEPOptions(), QIEPOptions()


@dataclass(frozen=True, eq=False)
class QuadratureEPPosterior:
    """q(f) and the sites where the iteration stopped."""

    prior: MulticlassPrior
    posterior: Coupled | Dense
    latent_mean: FloatArray  # (n, C)
    latent_cov: FloatArray  # (n, C, C)
    lambda_tilde: FloatArray | None  # (n, D, D); None for qiep
    xi: FloatArray | None  # (n, D)
    site_precision: FloatArray  # (n, C, C)
    site_location: FloatArray  # (n, C)
    log_tilted_norm: FloatArray  # (n,) log Z_hat of the rule at the final cavity
    log_evidence: float | None
    stationary: bool  # log Z is stationary in the sites, up to the rule's error
    trace: FloatArray
    residual: float
    converged: bool
    n_improper: int
    iterations: int


class _State(NamedTuple):
    posterior: Coupled | Dense
    location: FloatArray
    cov: FloatArray
    cavity: FullCavity
    g_cavity: Differences
    distribution: FullDistribution
    log_norm: FloatArray
    tilted: Any  # moments of the rule at the cavity
    log_evidence: float


class _QEP:
    """Everything that depends on the rule and on the shape of Lambda."""

    def __init__(self, prior: MulticlassPrior, nodes: int, full: bool) -> None:
        self.prior, self.nodes, self.full = prior, nodes, full
        self.others = other_classes(prior.y, prior.n_classes)

    def matrices(self, precision: FloatArray) -> FloatArray:
        """Lambda as matrices, from what the iteration carries."""
        return precision if self.full else diagonal(precision)

    def posterior(self, pair: Pair) -> tuple[Coupled | Dense, FloatArray, FloatArray]:
        """q(f), nu and marginal covariances."""
        prior, y, others = self.prior, self.prior.y, self.others
        if not self.full:
            sites = outer_sites(y, others, *pair)
            result = condition(prior, sites.precision, sites.location)
            return result, sites.location, marginal_covariances(result)
        sites_h = integrated_sites(*pair)
        values, vectors = spectrum(sites_h.precision, "site precisions")
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        loads = np.stack([scatter(y, others, roots[:, :, a]) for a in range(roots.shape[2])], axis=2)
        location = scatter(y, others, sites_h.location)
        dense = condition_dense(prior, loads, location)
        classes = range(prior.n_classes)
        prior_var = np.column_stack([prior.K(k).diagonal() for k in classes])
        return dense, location, dense_covariance(dense, [prior.K(k) for k in classes], prior_var)

    def local(
        self, rows: slice, mean: FloatArray, cov: FloatArray, pair: Pair
    ) -> tuple[FullCavity, Differences, FullDistribution, Any]:
        """Cavities, distributions of g and moments of the rule for some data."""
        projected = differences(self.prior.y[rows], self.others[rows], mean, cov)
        matrices = self.matrices(pair[0])
        cavity = full_cavity(projected, integrated_sites(matrices, pair[1]))
        g_cavity = distribution_with(Differences(cavity.mean, cavity.cov))
        distribution = full_distribution(g_cavity, matrices, pair[1])
        return cavity, g_cavity, distribution, white_moments(g_cavity, self.nodes)

    def at(self, pair: Pair) -> _State:
        """State of all data."""
        posterior, location, cov = self.posterior(pair)
        cavity, g_cavity, distribution, result = self.local(slice(None), posterior.mean, cov, pair)
        value = np.nan
        if cavity.proper.all():
            value = 0.5 * float(np.vdot(location, posterior.mean)) - 0.5 * posterior.log_det
            value += float((result.log_norm - cavity.log_site).sum())
        return _State(posterior, location, cov, cavity, g_cavity, distribution, result.log_norm, result, value)

    def propose(self, state: Any, pair: Pair) -> Proposal:
        """Sites that the rule's moments ask for."""
        return self.proposal(state.cavity, state.g_cavity, state.distribution, state.tilted, pair)

    def proposal(
        self, cavity: FullCavity, g_cavity: Differences, distribution: FullDistribution, value: Any, pair: Pair
    ) -> Proposal:
        """The same from its parts."""
        sites = g_sites(g_cavity, value, full=self.full)
        # where the distribution of g has no factor its variances, by which changes are measured, mean nothing
        good = sites.good & cavity.proper & distribution.proper & np.isfinite(sites.location).all(axis=1)
        index = np.arange(pair[1].shape[1])
        var = distribution.cov[:, index, index]
        new = sites.precision if self.full else sites.precision[:, index, index]
        shape = (slice(None),) + (None,) * (new.ndim - 1)
        first = np.where(good[shape], new, pair[0])
        second = np.where(good[:, None], sites.location, pair[1])
        return Proposal((first, second), distribution.mean, var, int(good.size - np.count_nonzero(good)))

    def gap(self, pair: Pair, value: Proposal) -> float:
        """Largest standardised change; of the diagonal of Lambda if it is full."""
        if not self.full:
            return residual_of(pair, value)
        old, new = (np.einsum("nii->ni", both) for both in (pair[0], value.target[0]))
        return residual_of((old, pair[1]), value._replace(target=(new, value.target[1])))

    def one_pass(self, pair: Pair, damping: float) -> tuple[Pair, float, int]:
        """One pass over the data in order, the posterior refreshed after each site."""
        first, second = pair[0].copy(), pair[1].copy()
        prior, residual, improper = self.prior, 0.0, 0
        running = None
        if not self.full:
            sites = outer_sites(prior.y, self.others, first, second)
            start = condition(prior, sites.precision, sites.location)
            running = SequentialPosterior(prior, start, sites.precision, sites.location)
        for i in range(prior.n):
            one = slice(i, i + 1)
            if running is None:
                posterior, _, covs = self.posterior((first, second))
                mean, cov = posterior.mean[i], covs[i]
            else:
                mean, cov = running.marginal(i)
            here = (first[one], second[one])
            result = self.proposal(*self.local(one, mean[None], cov[None], here), here)
            improper += result.n_improper
            residual = max(residual, self.gap(here, result))
            first[one] = (1.0 - damping) * first[one] + damping * result.target[0]
            second[one] = (1.0 - damping) * second[one] + damping * result.target[1]
            if running is not None:
                new = outer_sites(prior.y[one], self.others[one], first[one], second[one])
                running.update(i, new.precision[0], new.location[0])
        return (first, second), residual, improper


@takes_values
def fit_qep(data: Data, prior: Prior, options: QEPOptions = DEFAULTS) -> QuadratureEPPosterior:
    """EP with all couplings and (C - 1)-dimensional product rules, hyper-parameters held.

    Parameters
    ----------
    data : Data      at least two classes
    prior : Prior    full; one number or one vector stands for all classes
    options          damping on Lambda and xi; nodes^(C-1) at most a million; a full Lambda has exact moments and takes
                     (n C)^3 operations, without mixing

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    a matrix of the prior is not positive semi-definite
    """
    prepared = prepare(data, prior)
    D = prepared.n_classes - 1
    product_rule(D, options.nodes)
    full = options.lambda_ == "full"
    method = _QEP(prepared, options.nodes, full)
    start: Pair = (np.zeros((prepared.n, D, D) if full else (prepared.n, D)), np.zeros((prepared.n, D)))
    end = iterate(
        method.at,
        method.propose,
        start,
        replace(options, accelerate=options.accelerate and not full),
        objective=lambda state: state.log_evidence,
        gap=method.gap,
        sequential=(lambda pair: method.one_pass(pair, options.damping)) if options.schedule == "sequential" else None,
    )
    state = end.state
    matrices = method.matrices(end.sites[0])
    sites = integrated_sites(matrices, end.sites[1])
    columns = [scatter(prepared.y, method.others, sites.precision[:, :, a]) for a in range(D)]
    halved = np.stack(columns, axis=2)  # B S
    rows = [scatter(prepared.y, method.others, halved[:, k]) for k in range(prepared.n_classes)]
    return QuadratureEPPosterior(
        prepared,
        state.posterior,
        state.posterior.mean,
        state.cov,
        matrices,
        end.sites[1],
        np.stack(rows, axis=1),
        state.location,
        state.log_norm,
        float(state.log_evidence) if np.isfinite(state.log_evidence) else None,
        full,
        end.trace,
        end.residual,
        end.converged,
        end.n_improper,
        end.iterations,
    )


@takes_values
def fit_qiep(data: Data, prior: Prior, options: QIEPOptions = INDEPENDENT) -> QuadratureEPPosterior:
    """EP with independent classes and the rules of Seeger et al. (2006), hyper-parameters held.

    Parameters
    ----------
    data : Data      at least two classes
    prior : Prior    full; one number or one vector stands for all classes
    options          nodes of each one-dimensional rule, and in each dimension of the two-dimensional ones

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    a matrix of the prior is not positive semi-definite
    """
    prepared, nodes = prepare(data, prior), options.nodes
    others: IntArray = other_classes(prepared.y, prepared.n_classes)

    def tilt(rows: np.ndarray, mean: FloatArray, var: FloatArray) -> Tilt:
        fine = np.asarray((var > 0.0).all(axis=1) & np.isfinite(mean).all(axis=1), dtype=bool)
        safe_mean, safe_var = np.where(fine[:, None], mean, 0.0), np.where(fine[:, None], var, 1.0)
        result = independent_tilt(safe_mean, safe_var, prepared.y[rows], others[rows], nodes)
        return Tilt(result.precision, result.location, result.good & fine, np.zeros(rows.size))

    def log_norm(mean: FloatArray, var: FloatArray) -> FloatArray:
        return independent_tilt(mean, var, prepared.y, others, nodes).log_norm

    zero = np.zeros((prepared.n, prepared.n_classes))
    end = settle_independent(
        prepared,
        tilt,
        log_norm,
        options,
        start=(zero, zero),
    )
    state = end.state
    return QuadratureEPPosterior(
        prepared,
        state.posterior,
        state.mean,
        diagonal(state.var),
        None,
        None,
        diagonal(end.sites[0]),
        end.sites[1],
        log_norm(state.cavity_mean, np.maximum(state.cavity_var, 0.0)),
        float(state.log_evidence) if np.isfinite(state.log_evidence) else None,
        True,
        end.trace,
        end.residual,
        end.converged,
        end.n_improper,
        end.iterations,
    )


@one_thread
def gradients(posterior: QuadratureEPPosterior) -> ClassGradients | None:
    """Gradient of log Z at the fixed point, sites held: exact up to the rule's error. None for a diagonal Lambda.

    A diagonal Lambda matches no full set of moments, so log Z is not stationary in it.

    Parameters
    ----------
    posterior    from `fit_qep` or `fit_qiep`
    """
    if not posterior.stationary:
        return None
    if isinstance(posterior.posterior, Dense):
        return posterior.prior.vjp(dense_gradients(posterior.posterior))
    return posterior.prior.vjp(evidence_gradients(posterior.prior, posterior.posterior))


@ClassPredicting.checks
def predict(
    posterior: QuadratureEPPosterior,
    X_test: Any,
    *,
    prediction: str = "quadrature",
    prediction_nodes: int | None = None,
    block_size: int = 1024,
) -> ClassPrediction:
    """Latent distribution and class probabilities at test points.

    Parameters
    ----------
    posterior                   from `fit_qep` or `fit_qiep`
    X_test : (t, d)             t may be 0
    prediction : str            "quadrature" or "inner-ep"
    prediction_nodes : int      nodes in each dimension of a product rule; None: points of Sobol's sequence
    block_size : int            test points at a time
    """
    return predict_distribution(
        posterior.prior, posterior.posterior, X_test, prediction=prediction, prediction_nodes=prediction_nodes,
        block_size=block_size,
    )  # fmt: skip
