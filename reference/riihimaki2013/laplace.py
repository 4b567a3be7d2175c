"""Section 4.1: Laplace's method for the softmax model, and class probabilities as ratios of evidences."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._product import product_rule, softmax_probabilities
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.riihimaki2013 import _check
from reference.riihimaki2013.evidence import ep_gradient
from reference.riihimaki2013.fit import (
    Gradients,
    Prediction,
    Prior,
    as_gradients,
    covariance_derivatives,
    cross_covariance,
)
from reference.riihimaki2013.model import REMEDY, prior_covariance
from reference.riihimaki2013.posterior import (
    covariance_times,
    ep_posterior,
    log_det_of,
    m_matrix,
    marginals,
    stack_blocks,
)
from reference.riihimaki2013.prediction import predict_latent_covariance

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class LaplaceFit(NamedTuple):
    """The Gaussian at the mode."""

    mode: Array  # (cn,)
    latent_mean: Array  # (n, c)
    latent_cov: Array  # (n, c, c)
    pi: Array  # (n, c) softmax at the mode
    log_evidence: float
    residual: float
    converged: bool
    iterations: int


def softmax_table(f: Array, n: int) -> Array:
    """Softmax of each datum (n, c): f (cn,) class-major, n data."""
    by_datum = f.reshape(-1, n).T
    raised = np.exp(by_datum - np.max(by_datum, axis=1, keepdims=True))
    return raised / np.sum(raised, axis=1, keepdims=True)


def log_softmax_sum(f: Array, y: Labels) -> float:
    """Σ_i log p(y_i|f_i) of (1) of riihimaki2013; f (cn,) class-major, y (n,) labels."""
    by_datum = f.reshape(-1, len(y)).T
    off = by_datum - by_datum[np.arange(len(y)), y][:, None]
    top = np.max(off, axis=1)
    return -float(np.sum(top + np.log(np.sum(np.exp(off - top[:, None]), axis=1))))


def softmax_gradient(f: Array, y: Labels) -> Array:
    """∇ log p(y|f) (cn,): one-hot labels minus softmax; f (cn,) class-major, y (n,) labels."""
    pi = softmax_table(f, len(y))
    return (np.eye(pi.shape[1])[y] - pi).T.ravel()


@equation("riihimaki2013", "u4.1-W")
def _w_blocks(f: Array, n: int) -> Array:
    """diag(π_i) - π_iπ_i' (n, c, c) of latent values f (cn,) at n data, the blocks of W: riihimaki2013, section 4.1."""
    pi = softmax_table(f, n)
    return np.stack([np.diag(p) - np.outer(p, p) for p in pi])


@equation("riihimaki2013", "u4.1-W")
def softmax_w_matrix(f: Array, n: int) -> Array:
    """W = -∇∇ log p(y|f) (cn, cn), class-major, with blocks diag(π_i) - π_iπ_i': section 4.1 of riihimaki2013.

    Parameters
    ----------
    f : (cn,)                 latent values
    n : int                   number of data
    """
    return stack_blocks(_w_blocks(f, n))


@equation("riihimaki2013", "u4.1-newton")
def laplace_newton_step(f: Array, K: Array, y: Labels) -> Array:
    """f ← (K⁻¹ + W)⁻¹(Wf + ∇log p(y|f)): Newton's method of section 4.1 of riihimaki2013.

    Written as a step from f, -(I + KW)⁻¹(f - K∇) with (I + KW)⁻¹ = I - (K⁻¹ + W)⁻¹W: what is rounded is small near the
    mode.

    Parameters
    ----------
    f : (cn,)                 latent values, class-major
    K : (cn, cn)              prior covariance
    y : (n,)                  labels
    """
    off = f - K @ softmax_gradient(f, y)
    W = _w_blocks(f, len(y))
    return f - (off - covariance_times(K, W, stack_blocks(W) @ off))


class Mode(NamedTuple):
    """Mode and covariance of q_LA."""

    mode: Array
    cov: Array
    residual: float
    converged: bool
    iterations: int


@equation("riihimaki2013", "u4.1-laplace")
def laplace_posterior(K: Array, y: Labels, tolerance: float = 1e-10, max_iterations: int = 100) -> Mode:
    """q_LA(f) = N(f̂, (K⁻¹ + W)⁻¹): section 4.1 of riihimaki2013.

    Parameters
    ----------
    K : (cn, cn)              prior covariance, class-major
    y : (n,)                  labels
    tolerance : float         of `laplace_mode`
    max_iterations : int      of `laplace_mode`
    """
    end = laplace_mode(K, y, tolerance, max_iterations)
    # fmt: off
    W = _w_blocks(end.mode, len(y))                                                           # 4.1
    return end._replace(cov=ep_posterior(K, W, np.zeros((len(y), len(W[0])))).cov)            # (K⁻¹ + W)⁻¹
    # fmt: on


def laplace_mode(K: Array, y: Labels, tolerance: float = 1e-10, max_iterations: int = 100) -> Mode:
    """Newton's method from f = 0, and no covariance.

    Parameters
    ----------
    K : (cn, cn)              prior covariance, class-major
    y : (n,)                  labels
    tolerance : float         largest entry of f - K∇log p(y|f), relative to max(1, |f|), at which it ends
    max_iterations : int      Newton steps after which it gives up and says so
    """
    # fmt: off
    f, iterations = np.zeros(len(K)), 0
    while (residual := _residual(f, K, y)) > tolerance and iterations < max_iterations:
        f = laplace_newton_step(f, K, y)                                                      # 4.1, Newton's method
        iterations += 1
    # fmt: on
    return Mode(f, np.zeros((0, 0)), residual, residual <= tolerance, iterations)


def _residual(f: Array, K: Array, y: Labels) -> float:
    """Largest entry of f - K∇log p(y|f), relative to max(1, |f|): zero at the mode."""
    return float(np.max(np.abs(f - K @ softmax_gradient(f, y)))) / max(1.0, float(np.max(np.abs(f))))


@equation("riihimaki2013", "u4.1-logz")
def laplace_log_marginal(mode: Array, K: Array, y: Labels) -> float:
    """log Z_LA = log p(y|f̂) - ½f̂'K⁻¹f̂ - ½log|I + KW|, with K⁻¹f̂ = ∇log p(y|f̂): section 4.1 of riihimaki2013.

    Parameters
    ----------
    mode : (cn,)              f̂
    K : (cn, cn)              prior covariance, class-major
    y : (n,)                  labels
    """
    quadratic = float(mode @ softmax_gradient(mode, y))
    return log_softmax_sum(mode, y) - 0.5 * quadratic - 0.5 * log_det_of(K, _w_blocks(mode, len(y)))


@takes("laplace")
def fit_laplace(X: Array, y: Labels, n_classes: int, prior: Prior, *, options: Options) -> LaplaceFit:
    """Laplace's method: section 4.1 of riihimaki2013.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           c
    prior : Prior             hyper-parameters of every class
    options : Options         of laplace. tolerance: of the mode; max_iterations: Newton steps, None: 100

    Raises
    ------
    ValueError                naming the argument
    """
    X, y, prior = _check.data(X, y, n_classes, prior)
    K = prior_covariance(X, *prior)
    limit = 100 if options.max_iterations is None else options.max_iterations
    result = laplace_posterior(K, y, options.tolerance, limit)
    latent = marginals(result.mode, result.cov, len(y))
    return LaplaceFit(
        result.mode,
        latent.mean,
        latent.cov,
        softmax_table(result.mode, len(y)),
        laplace_log_marginal(result.mode, K, y),
        result.residual,
        result.converged,
        result.iterations,
    )


def laplace_gradients(fit: LaplaceFit, X: Array, y: Labels, prior: Prior) -> Gradients:
    """Total derivative of log Z_LA at the mode, which moves with the hyper-parameters.

        ½a'(∂K)a - ½tr(M∂K) + s'(I - KM)(∂K)a,   a = ∇log p(y|f̂),   s_ik = -½tr(Σ_i ∂W_i/∂f_ik)

    Parameters
    ----------
    fit : LaplaceFit          converged
    X : (n, d)                inputs
    y : (n,)                  labels
    prior : Prior             hyper-parameters of every class
    """
    n = len(y)
    K = prior_covariance(X, *prior)
    M = m_matrix(K, _w_blocks(fit.mode, n))
    a = softmax_gradient(fit.mode, y)
    s = np.empty_like(fit.pi)
    for i, (p, C) in enumerate(zip(fit.pi, fit.latent_cov, strict=True)):
        J = np.diag(p) - np.outer(p, p)  # ∂π_l/∂f_k
        s[i] = -0.5 * (np.diag(C) @ J - 2.0 * (C @ p) @ J)
    pull = s.T.ravel() - M @ (K @ s.T.ravel())
    derivatives = list(covariance_derivatives(X, prior))
    # K⁻¹μ of Laplace's Gaussian is a, so that location a + Wf̂ makes `ep_gradient`'s b equal a
    location = a + softmax_w_matrix(fit.mode, n) @ fit.mode
    flat = ep_gradient(location, M, K, derivatives) + np.array([pull @ (dK @ a) for dK in derivatives])
    return as_gradients(flat, len(prior.variance))


@takes("laplace")
def predict_laplace(
    fit: LaplaceFit, X: Array, y: Labels, X_test: Array, prior: Prior, *, options: Options
) -> Prediction:
    """Latent values at test points, and E[softmax(f_*)] by a rule for each class.

    Parameters
    ----------
    fit : LaplaceFit          of `fit_laplace`
    X : (n, d)                inputs
    y : (n,)                  labels
    X_test : (t, d)           test inputs
    prior : Prior             hyper-parameters of every class
    options : Options         of laplace. prediction_nodes: of a product rule a dimension; None: 4096 Sobol' points

    Raises
    ------
    ValueError                for a product rule of more than 1e6 points
    """
    c = len(prior.variance)
    K = prior_covariance(X, *prior)
    M = m_matrix(K, _w_blocks(fit.mode, len(y)))
    a = softmax_gradient(fit.mode, y)
    mean, cov, raw = np.empty((len(X_test), c)), np.empty((len(X_test), c, c)), np.empty((len(X_test), c))
    for s, K_star in enumerate(cross_covariance(X_test, X, prior)):
        mean[s] = K_star @ a
        cov[s] = predict_latent_covariance(np.diag(prior.variance + prior.noise), K_star, M)
        raw[s] = softmax_probabilities(mean[s], cov[s], options.prediction_nodes)
    mass = np.sum(raw, axis=1)
    return Prediction(mean, cov, raw / mass[:, None], mass)


@equation("riihimaki2013", "22")
def tierney_kadane_ratio(function: Callable[[Array], float], K: Array, y: Labels, nodes: int = 40) -> float:
    """E[h(f)] = ∫h(f)p(y|f)p(f)df / ∫p(y|f)p(f)df: (22) of riihimaki2013, both integrals by one product rule.

    Parameters
    ----------
    function : callable       h: f (cn,) to a positive number
    K : (cn, cn)              prior covariance, for a few latent values
    y : (n,)                  labels, softmax model
    nodes : int               per dimension

    Raises
    ------
    ValueError                for more than 1e6 points
    """
    factorise(K, "K_XX", REMEDY)
    f, weights = product_rule(np.zeros(len(K)), K, nodes)
    likelihood = weights * np.exp([log_softmax_sum(one, y) for one in f])
    return float(likelihood @ np.array([function(one) for one in f]) / np.sum(likelihood))


@equation("riihimaki2013", "23")
def predict_by_evidence_ratio(
    log_evidence: Callable[[Array, Labels], float], K_extended: Array, y: Labels, n_classes: int
) -> Array:
    """p(y_* = k|x_*, D) = Z(D, (x_*, k))/Z(D) for each class (c,): (23) of riihimaki2013.

    Parameters
    ----------
    log_evidence : callable   prior covariance and labels to log Z
    K_extended : (c(n+1), c(n+1))     prior covariance with x_* as the last datum, class-major
    y : (n,)                  labels
    n_classes : int           c
    """
    n = len(y)
    kept = np.concatenate([k * (n + 1) + np.arange(n) for k in range(n_classes)])
    before = log_evidence(K_extended[np.ix_(kept, kept)], y)
    return np.exp([log_evidence(K_extended, np.append(y, k)) - before for k in range(n_classes)])


@equation("riihimaki2013", "u4.1.1-la-tkp")
def la_tkp(K_extended: Array, y: Labels, n_classes: int, tolerance: float = 1e-10, max_iterations: int = 100) -> Array:
    """LA-TKP: (23) with Laplace's log Z for each extended data set (c,), section 4.1.1 of riihimaki2013.

    The scores need not sum to one.

    Parameters
    ----------
    K_extended : (c(n+1), c(n+1))     prior covariance with x_* as the last datum, class-major
    y : (n,)                  labels
    n_classes : int           c
    tolerance : float         of each mode
    max_iterations : int      Newton steps of each
    """

    def log_evidence(K: Array, labels: Labels) -> float:
        return laplace_log_marginal(laplace_mode(K, labels, tolerance, max_iterations).mode, K, labels)

    return predict_by_evidence_ratio(log_evidence, K_extended, y, n_classes)


def extended_covariance(X: Array, x_star: Array, prior: Prior) -> Array:
    """Prior covariance (c(n+1), c(n+1)) of data and one test point, which has noise and no jitter.

    Parameters
    ----------
    X : (n, d)                inputs
    x_star : (d,)             the test point
    prior : Prior             hyper-parameters of every class
    """
    n = len(X)
    K = prior_covariance(np.vstack([X, x_star]), *prior)
    for k in range(len(prior.variance)):
        K[k * (n + 1) + n, k * (n + 1) + n] = prior.variance[k] + prior.noise[k]
    return K
