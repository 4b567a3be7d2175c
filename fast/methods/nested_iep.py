"""nested-iep: nested EP whose classes stay independent a posteriori. riihimaki2013, section 3.2.2.

Inner EP runs on the full g_i under a diagonal cavity; only means and variances of the classes are matched.
"""

from __future__ import annotations

import numpy as np

from fast.core.declare import takes_values
from fast.core.hyper import ClassGradients
from fast.core.linalg import positive_factors, solve_stack
from fast.core.results import Differences
from fast.core.threads import one_thread
from fast.core.types import BoolArray, FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.full_classes.couplings import evidence_gradients, marginal_covariances
from fast.full_classes.independent_sites import Tilt, diagonal, settle_independent
from fast.full_classes.inner_ep import distribution_with, log_normaliser, parallel_refresh, run
from fast.full_classes.nested_sites import differences, other_classes, scatter
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.ledger import equation
from fast.methods.nested_ep import DEFAULTS, NestedEPPosterior, NestedOptions
from fast.methods.nested_ep import predict as predict
from fast.solve.outer_loop import Pair


class NestedIEPPosterior(NestedEPPosterior):
    """q(f) and the sites where the iteration stopped, with diagonal covariances; alpha and beta are inner sites."""


@equation("riihimaki2013", "u3.2.2-iep")
@one_thread
def independent_update(
    cavity_mean: FloatArray, cavity_var: FloatArray, y: IntArray, alpha_tilde: FloatArray, beta_tilde: FloatArray
) -> Pair:
    """tau = 1/Sigma_hat_kk - 1/v, nu = mu_hat_k/Sigma_hat_kk - m/v of the inner approximation: riihimaki2013, 3.2.2.

    With N = (T^-1 + G)^-1 and q_k = (B N B')_kk, tau = q/(1 - v q) and nu = (t + m q)/(1 - v q), t = B (I + T G)^-1
    (beta - T B'm): no difference of precisions. Time O(n C^3).

    Parameters
    ----------
    cavity_mean, cavity_var : (n, C)    m, v
    y : (n,)                            labels
    alpha_tilde, beta_tilde : (n, C - 1)            inner sites
    """
    others = other_classes(y, cavity_mean.shape[1])
    cavity = distribution_with(differences(y, others, cavity_mean, diagonal(cavity_var)))
    a = np.sqrt(alpha_tilde)
    inner = cavity.cov * a[:, :, None] * a[:, None, :]
    index = np.arange(alpha_tilde.shape[1])
    inner[:, index, index] += 1.0
    factor, _ = positive_factors(inner)
    whitened = solve_stack(factor, a[:, :, None] * np.eye(alpha_tilde.shape[1]))  # N = half'half
    q = np.empty_like(cavity_mean)
    np.put_along_axis(q, others, np.einsum("nij,nij->nj", whitened, whitened), axis=1)
    q[np.arange(y.size), y] = (whitened.sum(axis=2) ** 2).sum(axis=1)
    score = beta_tilde - alpha_tilde * cavity.mean
    # (I + T G)^-1 = I - N G
    inverse_score = score - np.einsum(
        "nji,nj->ni", whitened, np.einsum("nij,nj->ni", whitened, np.einsum("nij,nj->ni", cavity.cov, score))
    )
    t = scatter(y, others, inverse_score)
    ratio = 1.0 - cavity_var * q
    return q / ratio, (t + cavity_mean * q) / ratio


class _Inner:
    """Inner EP of every datum, warm-started where its last run ended."""

    def __init__(self, y: IntArray, n_classes: int, inner: str, inner_schedule: str, inner_damping: float) -> None:
        self.y, self.others = y, other_classes(y, n_classes)
        self.alpha_tilde = np.zeros((y.size, n_classes - 1))
        self.beta_tilde = np.zeros((y.size, n_classes - 1))
        self.inner, self.schedule, self.damping = inner, inner_schedule, inner_damping

    def cavity(self, rows: np.ndarray, mean: FloatArray, var: FloatArray) -> Differences:
        return distribution_with(differences(self.y[rows], self.others[rows], mean, diagonal(var)))

    def tilt(self, rows: np.ndarray, mean: FloatArray, var: FloatArray) -> Tilt:
        safe = np.where((var > 0.0).all(axis=1, keepdims=True) & np.isfinite(mean + var), var, 1.0)
        safe_mean = np.where(np.isfinite(mean), mean, 0.0)
        cavity = self.cavity(rows, safe_mean, safe)
        alpha_tilde, beta_tilde = self.alpha_tilde[rows], self.beta_tilde[rows]
        distribution = parallel_refresh(cavity, alpha_tilde, beta_tilde)
        result = run(
            alpha_tilde,
            beta_tilde,
            distribution,
            inner=self.inner,
            schedule=self.schedule,
            damping=self.damping,
            cavity=cavity,
        )
        tau, nu = independent_update(safe_mean, safe, self.y[rows], result.alpha_tilde, result.beta_tilde)
        fine = (var > 0.0) & np.isfinite(tau) & np.isfinite(nu) & (tau >= 0.0)
        good: BoolArray = np.logical_and.reduce(fine, axis=1)
        self.alpha_tilde[rows[good]], self.beta_tilde[rows[good]] = result.alpha_tilde[good], result.beta_tilde[good]
        return Tilt(tau, nu, good, result.largest)

    def log_norm(self, mean: FloatArray, var: FloatArray) -> FloatArray:
        cavity = self.cavity(np.arange(self.y.size), mean, var)
        return log_normaliser(
            cavity, parallel_refresh(cavity, self.alpha_tilde, self.beta_tilde), self.alpha_tilde, self.beta_tilde
        )


class Warm:
    """What a search passes on: sites and inner sites."""

    def __init__(self, pair: Pair, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> None:
        self.pair, self.alpha_tilde, self.beta_tilde = pair, alpha_tilde, beta_tilde


@one_thread
def converge(
    prior: MulticlassPrior, options: NestedOptions = DEFAULTS, *, start: Warm | None = None
) -> NestedIEPPosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior      from `prepare`
    options    of `fit`
    start      where an earlier run ended; default zero
    """
    local = _Inner(prior.y, prior.n_classes, options.inner, options.inner_schedule, options.inner_damping)
    pair: Pair = (np.zeros((prior.n, prior.n_classes)), np.zeros((prior.n, prior.n_classes)))
    if start is not None:
        pair, local.alpha_tilde, local.beta_tilde = start.pair, start.alpha_tilde.copy(), start.beta_tilde.copy()

    def to_the_end(rows: np.ndarray, mean: FloatArray, var: FloatArray) -> Tilt:
        chosen = local.inner, local.schedule, local.damping
        local.inner, local.schedule, local.damping = "converged", "sequential", 1.0
        result = local.tilt(rows, mean, var)
        local.inner, local.schedule, local.damping = chosen
        return result

    end = settle_independent(
        prior,
        local.tilt,
        local.log_norm,
        options,
        start=pair,
        accelerated_tilt=to_the_end,
    )
    state = end.state
    return NestedIEPPosterior(
        prior,
        state.posterior,
        state.mean,
        marginal_covariances(state.posterior),
        local.alpha_tilde,
        local.beta_tilde,
        diagonal(end.sites[0]),
        end.sites[1],
        local.log_norm(state.cavity_mean, np.maximum(state.cavity_var, 0.0)),
        float(state.log_evidence) if np.isfinite(state.log_evidence) else None,
        end.trace,
        end.residual,
        end.converged,
        end.n_improper,
        end.iterations,
    )


@one_thread
def warm(posterior: NestedIEPPosterior) -> Warm:
    """Where to start a run at nearby parameters.

    Parameters
    ----------
    posterior    from `fit`
    """
    index = np.arange(posterior.site_location.shape[1])
    pair = (posterior.site_precision[:, index, index], posterior.site_location)
    return Warm(pair, posterior.alpha_tilde, posterior.beta_tilde)


@takes_values
def fit(data: Data, prior: Prior, options: NestedOptions = DEFAULTS) -> NestedIEPPosterior:
    """Nested EP with independent classes to its fixed point, hyper-parameters held. Time C n^3 an iteration.

    Parameters
    ----------
    data : Data      at least two classes
    prior : Prior    full; one number or one vector stands for all classes
    options          damping on tau and nu; tolerance on the largest standardised change of a site, or of an inner
                     site, in an undamped step; the callback is given an OuterProgress after every iteration

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    a matrix of the prior is not positive semi-definite
    """
    return converge(prepare(data, prior), options)


@one_thread
def gradients(posterior: NestedIEPPosterior) -> ClassGradients:
    """Gradient of log Z at the fixed point, sites held. Time O(C n^2 d).

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.prior.vjp(evidence_gradients(posterior.prior, posterior.posterior))
