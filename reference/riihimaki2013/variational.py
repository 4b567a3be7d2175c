"""Section 4.3: the factorised approximation q(v)q(f) of Girolami and Rogers (2006)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr, logsumexp

from reference.common._iteration import Arrival
from reference.common.algebra import inverted
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
from reference.riihimaki2013.posterior import marginals
from reference.riihimaki2013.prediction import independent_class_probabilities

Array = NDArray[np.float64]
_HALF_WIDTH = 9.0  # the integrand falls at least as fast as exp(-(s - mode)²/2): 3e-18 at the ends
Labels = NDArray[np.int64]


class Region(NamedTuple):
    """Moments of N(v|m_i, I) cut to the region of the label."""

    log_norm: Array  # (n,)
    mean: Array  # (n, c)
    cov: Array  # (n, c, c)


@equation("riihimaki2013", "u4.3-vb-expectation")
def region_moments(means: Array, y: Labels) -> Region:
    """Moments of the conic truncations q(v_i): given v_y = s the others are independent normals cut at s.

    All integrals over s are of products of a normal density and of Φ(s - m_j), every one of them of width one: the
    trapezoidal rule with steps of 1/(2√c) around the mode has errors of rounding.

    Parameters
    ----------
    means : (n, c)            m_i
    y : (n,)                  labels
    """
    n, c = means.shape
    rows = np.arange(n)[:, None]
    others = np.array([np.delete(np.arange(c), k) for k in y])
    own, rest = means[np.arange(n), y][:, None], means[rows, others]  # m_y (n, 1), m_j (n, c-1)
    step = 0.5 / np.sqrt(c)
    s = _mode(own, rest) + step * np.arange(-np.ceil(_HALF_WIDTH / step), np.ceil(_HALF_WIDTH / step) + 1.0)
    z = s[:, :, None] - rest[:, None, :]  # (n, q, c-1)
    log_density = np.sum(log_ndtr(z), axis=2) - 0.5 * (s - own) ** 2 - 0.5 * np.log(2.0 * np.pi)
    log_norm = logsumexp(log_density, axis=1, keepdims=True)
    weights = np.exp(log_density - log_norm)
    first, second = mills_derivative(z)
    given = np.empty((*s.shape, c))  # E[v|s]
    np.put_along_axis(given, y[:, None, None], s[:, :, None], axis=2)
    np.put_along_axis(given, others[:, None, :], rest[:, None, :] - first, axis=2)
    mean = np.einsum("nq,nqc->nc", weights, given)
    off = given - mean[:, None]
    cov = np.asarray((off * weights[:, :, None]).transpose(0, 2, 1) @ off)
    cov[rows, others, others] += np.einsum("nq,nqj->nj", weights, 1.0 + second)  # Var[v_j|s] = 1 + (log Φ)''
    return Region(log_norm[:, 0] + np.log(step), mean, cov)


def _mode(own: Array, rest: Array) -> Array:
    """Where log N(s|m_y, 1) + Σ log Φ(s - m_j) is largest (n, 1), to a hundredth: its derivative falls with s."""
    low, high = own, np.maximum(own + rest.shape[1], np.max(rest, axis=1, keepdims=True))
    for _ in range(7 + int(np.ceil(np.log2(np.max(high - low))))):
        middle = 0.5 * (low + high)
        rises = np.sum(mills_derivative(middle - rest)[0], axis=1, keepdims=True) > middle - own
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return 0.5 * (low + high)


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


class Factors(NamedTuple):
    """q(f) of the approximation."""

    mean: Array  # (n, c)
    weights: Array  # (cn,) K⁻¹ mean
    cov: Array  # (cn, cn), zero between classes
    residual: float
    converged: bool
    iterations: int
    reason: str  # why it has not converged


@equation("riihimaki2013", "u4.3-vb-family")
def vb_posterior(K: Array, y: Labels, tolerance: float = 1e-10, max_iterations: int = 10_000) -> Factors:
    """q(f) = Π_k N(f^k|m^k, (K^k⁻¹ + I)⁻¹) at the fixed point of m^k = K^k(K^k + I)⁻¹E[v^k]: section 4.3.

    Parameters
    ----------
    K : (cn, cn)              prior covariance, class-major
    y : (n,)                  labels
    tolerance : float         estimated distance of m from the fixed point, relative to max(1, |m|), at which sweeps
                              end: the last change and what a contraction like the last ones leaves, see `Arrival`
    max_iterations : int      sweeps after which it gives up and says so; earlier if 200 bring no smaller change
    """
    n, c = len(y), len(K) // len(y)
    # fmt: off
    inverse = inverted(K + np.eye(len(K)), "K + I")
    m, b, arrival, iterations = np.zeros((n, c)), np.zeros(n * c), Arrival(tolerance), 0
    while not arrival.converged and not arrival.stalled and iterations < max_iterations:
        v = vb_expected_auxiliary(m, y)                                                       # 4.3, q(v)
        b = inverse @ v.T.ravel()                                                             # K⁻¹m
        before, m = m, (K @ b).reshape(c, n).T                                                # 4.3, q(f)
        arrival.see(float(np.max(np.abs(m - before))) / max(1.0, float(np.max(np.abs(m)))))
        iterations += 1
    # fmt: on
    reason = "" if arrival.converged else arrival.reason(iterations)
    return Factors(m, b, K - K @ inverse @ K, arrival.residual, arrival.converged, iterations, reason)


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
    log_norm = float(np.sum(region_moments(means, y).log_norm))
    return log_norm - 0.5 * float(means.T.ravel() @ weights) - float(np.sum(np.log(np.diag(factor))))


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
    reason: str


@takes("vb-probit")
def fit_vb(X: Array, y: Labels, n_classes: int, prior: Prior, *, options: Options) -> VBFit:
    """The factorised approximation of section 4.3 of riihimaki2013.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           c
    prior : Prior             hyper-parameters of every class
    options : Options         of vb-probit. tolerance: of the means; max_iterations None: 10 000

    Raises
    ------
    ValueError                naming the argument
    """
    X, y, prior = _check.data(X, y, n_classes, prior)
    limit = 10_000 if options.max_iterations is None else options.max_iterations
    K = prior_covariance(X, *prior)
    result = vb_posterior(K, y, options.tolerance, limit)
    region = region_moments(result.mean, y)
    latent = marginals(result.mean.T.ravel(), result.cov, len(y))
    bound = vb_bound(result.mean, result.weights, K, y)
    return VBFit(latent.mean, latent.cov, region.mean, result, bound, *result[3:])


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
