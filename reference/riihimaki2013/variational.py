"""Section 4.3: the factorised approximation q(v)q(f) of Girolami and Rogers (2006)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from reference.common._probit_line import probit_line
from reference.common.algebra import inverted, solution
from reference.common.errors import cholesky, factorise
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.common.probit import mills_derivative
from reference.riihimaki2013 import _check
from reference.riihimaki2013.fit import (
    Gradients,
    Prediction,
    Prior,
    as_gradients,
    covariance_derivatives,
    cross_covariance,
)
from reference.riihimaki2013.model import REMEDY, prior_covariance
from reference.riihimaki2013.posterior import ep_posterior, marginals
from reference.riihimaki2013.prediction import independent_class_probabilities

Array = NDArray[np.float64]
_PATIENCE = 300  # sweeps within which the residual must halve: plain ones contract by .99 and better
_ROUNDING, _FEW = 1e-13, 10  # below it so many are enough: what moves the means there is rounding
Labels = NDArray[np.int64]


class Region(NamedTuple):
    """Moments of N(v|m_i, I) cut to the region of the label."""

    log_norm: Array  # (n,)
    mean: Array  # (n, c)
    cov: Array  # (n, c, c)


@equation("riihimaki2013", "u4.3-vb-expectation")
def region_moments(means: Array, y: Labels) -> Region:
    """Moments of the conic truncations q(v_i): given v_y = s the others are independent normals cut at s.

    Parameters
    ----------
    means : (n, c)            m_i
    y : (n,)                  labels
    """
    n, c = means.shape
    log_norm, mean, cov = np.empty(n), np.empty((n, c)), np.empty((n, c, c))
    for i in range(n):
        others = np.delete(np.arange(c), y[i])
        line = probit_line(float(means[i, y[i]]), 1.0, means[i, others], np.ones(c - 1))
        first, second = mills_derivative(line.z)
        given = np.empty((len(line.s), c))  # E[v|s]
        given[:, y[i]], given[:, others] = line.s, means[i, others] - first
        mean[i] = line.weights @ given
        off = given - mean[i]
        cov[i] = (off.T * line.weights) @ off
        cov[i][others, others] += line.weights @ (1.0 + second)  # Var[v_j|s] = 1 + (log Φ)''
        log_norm[i] = line.log_norm
    return Region(log_norm, mean, cov)


@equation("riihimaki2013", "u4.3-vb-expectation")
def vb_expected_auxiliary(means: Array, y: Labels) -> Array:
    """E[v_i] under q(v_i) (n, c) by one-dimensional quadrature: section 4.3 of riihimaki2013.

    E[v_j] = m_j - E_u[φ(t_j)Π_{l≠y,j}Φ(t_l)]/Z_i with t_l = u + m_y - m_l, and E[v_y] = m_y + Σ_{j≠y}(m_j - E[v_j]).

    Parameters
    ----------
    means : (n, c)            m_i
    y : (n,)                  labels
    """
    return region_moments(means, y).mean


def vb_sweep(means: Array, y: Labels, K: Array) -> tuple[Array, Array]:
    """m^k ← K^k(K^k + I)⁻¹E[v^k] for every class, and the weights K⁻¹m = (K + I)⁻¹E[v] of the new means.

    Parameters
    ----------
    means : (n, c)            m
    y : (n,)                  labels
    K : (cn, cn)              prior covariance, class-major
    """
    target = vb_expected_auxiliary(means, y).T.ravel()
    b = np.asarray(solution(K + np.eye(len(K)), target, "K + I"), dtype=np.float64)
    return (K @ b).reshape(means.shape[1], len(y)).T, b


class Factors(NamedTuple):
    """q(f) of the approximation."""

    mean: Array  # (n, c)
    weights: Array  # (cn,) K⁻¹ mean
    cov: Array  # (cn, cn), zero between classes
    residual: float
    converged: bool
    iterations: int


@equation("riihimaki2013", "u4.3-vb-family")
def vb_posterior(
    K: Array, y: Labels, tolerance: float = 1e-10, max_iterations: int = 10_000, accelerate: bool = True
) -> Factors:
    """q(f) = Π_k N(f^k|m^k, (K^k⁻¹ + I)⁻¹) at the fixed point of m^k = K^k(K^k + I)⁻¹E[v^k]: section 4.3.

    The bound is concave in m: its only stationary point is the maximum of Σ_i log Z_i - ½m'K⁻¹m. Newton steps with
    -∇∇log Z_i = I - Cov[v_i] reach it sooner than the sweeps, which the residual is taken from.

    Parameters
    ----------
    K : (cn, cn)              prior covariance, class-major
    y : (n,)                  labels
    tolerance : float         largest change of m in a plain sweep, relative to max(1, |m|)
    max_iterations : int      steps after which it gives up and says so; earlier after 300 without half the residual,
                              or after 10 where the residual is that of rounding
    accelerate : bool         Newton steps in place of plain sweeps
    """
    n, c = len(y), len(K) // len(y)
    m, b = np.zeros((n, c)), np.zeros(n * c)
    residual = least = np.inf
    iterations = since = 0
    converged = False
    while iterations < max_iterations and since < (_FEW if least < _ROUNDING else _PATIENCE):
        swept, b_swept = vb_sweep(m, y, K)
        residual = float(np.max(np.abs(swept - m))) / max(1.0, float(np.max(np.abs(m))))
        if residual <= tolerance:
            converged = True
            break
        least, since = (residual, 0) if residual < 0.5 * least else (least, since + 1)
        m, b = _vb_newton(m, swept, b_swept, y, K) if accelerate else (swept, b_swept)
        iterations += 1
    cov = K - K @ solution(K + np.eye(len(K)), K, "K + I")
    return Factors(m, b, cov, residual, converged, iterations)


def _vb_newton(m: Array, swept: Array, b_swept: Array, y: Labels, K: Array) -> tuple[Array, Array]:
    """A Newton step if it raises the bound, with its weights; else the plain sweep, which always does."""
    region = region_moments(m, y)
    W = np.eye(m.shape[1]) - region.cov
    shift = np.einsum("nkl,nl->nk", W, m) + region.mean - m
    new = ep_posterior(K, W, shift).mean.reshape(m.shape[1], len(y)).T
    b = (shift - np.einsum("nkl,nl->nk", W, new)).T.ravel()
    gain = _fit_terms(new, b, y) - _fit_terms(swept, b_swept, y)
    return (new, b) if gain >= -1e-9 or np.max(np.abs(new - m)) < 1e-4 else (swept, b_swept)


def _fit_terms(means: Array, weights: Array, y: Labels) -> float:
    """What the bound has of the means: Σ_i log Z_i - ½m'K⁻¹m."""
    return float(np.sum(region_moments(means, y).log_norm) - 0.5 * means.T.ravel() @ weights)


@equation("riihimaki2013", "u4.3-vb-bound")
def vb_bound(means: Array, weights: Array, K: Array, y: Labels) -> float:
    """Σ_i log Z_i - ½Σ_k(m^k'K^k⁻¹m^k + log|I + K^k|): the bound of section 4.3 of riihimaki2013, every constant in.

    E_q[log p(y, v|f) p(f)] - E_q[log q] for the best q(v) and the covariances (K^k⁻¹ + I)⁻¹; the traces cancel.

    Parameters
    ----------
    means : (n, c)            m
    weights : (cn,)           K⁻¹m; K itself may be singular
    K : (cn, cn)              prior covariance, class-major
    y : (n,)                  labels
    """
    factor = cholesky(np.eye(len(K)) + K, "I + K", REMEDY)
    return _fit_terms(means, weights, y) - float(np.sum(np.log(np.diag(factor))))


class VBFit(NamedTuple):
    """The factorised approximation."""

    latent_mean: Array  # (n, c)
    latent_cov: Array  # (n, c, c), diagonal
    expected_auxiliary: Array  # (n, c)
    factors: Factors
    log_evidence: float
    residual: float
    converged: bool
    iterations: int


@takes("vb-probit")
def fit_vb(X: Array, y: Labels, n_classes: int, prior: Prior, *, options: Options) -> VBFit:
    """The factorised approximation of section 4.3 of riihimaki2013.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           c
    prior : Prior             hyper-parameters of every class
    options : Options         of vb-probit. tolerance: of the means; max_iterations None: 10 000; accelerate: Newton
                              steps in place of plain sweeps

    Raises
    ------
    ValueError                naming the argument
    """
    X, y, prior = _check.data(X, y, n_classes, prior)
    limit = 10_000 if options.max_iterations is None else options.max_iterations
    K = prior_covariance(X, *prior)
    result = vb_posterior(K, y, options.tolerance, limit, options.accelerate)
    region = region_moments(result.mean, y)
    latent = marginals(result.mean.T.ravel(), result.cov, len(y))
    bound = vb_bound(result.mean, result.weights, K, y)
    return VBFit(
        latent.mean, latent.cov, region.mean, result, bound, result.residual, result.converged, result.iterations
    )


def vb_gradients(fit: VBFit, X: Array, prior: Prior) -> Gradients:
    """Gradient ½b'(∂K)b - ½tr((K + I)⁻¹∂K) of the bound at its fixed point, b = K⁻¹m.

    Parameters
    ----------
    fit : VBFit               converged
    X : (n, d)                inputs
    prior : Prior             hyper-parameters of every class
    """
    K = prior_covariance(X, *prior)
    b = fit.factors.weights
    without = inverted(K + np.eye(len(K)), "K + I")
    flat = [0.5 * b @ dK @ b - 0.5 * np.sum(without * dK) for dK in covariance_derivatives(X, prior)]
    return as_gradients(np.array(flat), len(prior.variance))


def predict_vb(fit: VBFit, X: Array, X_test: Array, prior: Prior) -> Prediction:
    """Latent values and class probabilities, the latter by adaptive panels on the line.

    Parameters
    ----------
    fit : VBFit               of `fit_vb`
    X : (n, d)                inputs
    X_test : (t, d)           test inputs
    prior : Prior             hyper-parameters of every class
    """
    c = len(prior.variance)
    K = prior_covariance(X, *prior)
    b = fit.factors.weights
    factor = cholesky(np.eye(len(K)) + K, "I + K", REMEDY)
    mean, cov, raw = np.empty((len(X_test), c)), np.empty((len(X_test), c, c)), np.empty((len(X_test), c))
    for s, K_star in enumerate(cross_covariance(X_test, X, prior)):
        whitened = solve_triangular(factor, K_star.T, lower=True)
        mean[s] = K_star @ b
        cov[s] = np.diag(prior.variance + prior.noise) - whitened.T @ whitened
        raw[s] = independent_class_probabilities(mean[s], np.diag(cov[s]))
    mass = np.sum(raw, axis=1)
    return Prediction(mean, cov, raw / mass[:, None], mass)


def vb_hyper_objective(factors: Factors, K: Array) -> float:
    """E_{q(f)}[log p(f|θ)] = -½(log|2πK| + tr K⁻¹(S + mm')): what section 4.3 maximises with the factors held.

    Parameters
    ----------
    factors : Factors         q(f), held
    K : (cn, cn)              prior covariance at θ, not singular

    Raises
    ------
    NotPositiveDefiniteError  if K is singular
    """
    m = factors.mean.T.ravel()
    prior = factorise(K, "K_XX", REMEDY)
    second = factors.cov + np.outer(m, m)
    return float(-0.5 * (prior.log_det + np.sum(prior.inverse * second) + len(m) * np.log(2.0 * np.pi)))
