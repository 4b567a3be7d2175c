"""Appendix C: Laplace's method for the softmax likelihood with the FITC prior, a baseline.

f^k ~ N(0, Q_k + diag(s^k)) independently, one K (Cn, Cn) class-major for all; the noise is in s. Hyper-parameters
are taken from elsewhere: the appendix has those of expectation propagation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.special import log_softmax, softmax

from reference.common._classes import checked_input
from reference.common._product import check_nodes, softmax_probabilities
from reference.common._training import Seen
from reference.common.errors import cholesky
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.common.priors import Prior
from reference.villacampa2020.hyper import Matrices, cross_covariances, inducing_covariances, prior_matrices
from reference.villacampa2020.posterior import Gaussians
from reference.villacampa2020.sparse import fitc_covariance, projection_vectors

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_HALVINGS = 30


class Mode(NamedTuple):
    """The mode of p(f|y)."""

    latent_values: Array  # (n, C) f̂
    derivative: Array  # (n, C) ∇log p(y|f̂), equal to K⁻¹f̂
    residual: float
    converged: bool
    iterations: int


class LaplaceFit(NamedTuple):
    """The Gaussian at the mode."""

    mode: Mode
    weight: Array  # (Cn, Cn) M = (K + W⁻¹)⁻¹
    latent_cov: Array  # (n, C, C) blocks of (K⁻¹ + W)⁻¹
    inducing: Gaussians
    pi: Array  # (n, C) softmax at the mode
    log_evidence: float


class LaplacePrediction(NamedTuple):
    """At new inputs."""

    latent_mean: Array  # (t, C)
    latent_cov: Array  # (t, C, C)
    probability: Array  # (t, C) rows sum to one
    probability_mass: Array  # (t,) their sums before


def softmax_log_likelihood(latent_values: Array, y: Labels) -> float:
    """Σ_i log p(y_i|f_i), p(y|f) = exp(f^y)/Σ_k exp(f^k): appendix C of villacampa2020.

    Parameters
    ----------
    latent_values : (n, C)    f
    y : (n,)                  labels, 0..C-1
    """
    return float(np.sum(log_softmax(latent_values, axis=1)[np.arange(len(y)), y]))


def softmax_log_gradient(latent_values: Array, y: Labels) -> Array:
    """∇log p(y|f) (n, C): one for the class of the label, less the softmax; appendix C of villacampa2020.

    Parameters
    ----------
    latent_values : (n, C)    f
    y : (n,)                  labels, 0..C-1
    """
    own = np.arange(latent_values.shape[1]) == y[:, None]
    pi = softmax(latent_values, axis=1)
    rest = np.where(own, 0.0, pi)
    return np.where(own, np.sum(rest, axis=1, keepdims=True), -pi)  # 1 - π_y as the sum of the others


def softmax_curvature_root(latent_values: Array) -> Array:
    """S with W = SSᵀ = -∇∇log p(y|f), (Cn, Cn) class-major: blocks D^½(I - √π√πᵀ), D = diag(π), villacampa2020.

    Indeed D^½(I - √π√πᵀ)²D^½ = D - ππᵀ, since √π has length one.

    Parameters
    ----------
    latent_values : (n, C)    f
    """
    n, C = latent_values.shape
    S = np.zeros((C, n, C, n))
    for i, root in enumerate(np.sqrt(softmax(latent_values, axis=1))):
        S[:, i, :, i] = root[:, None] * (np.eye(C) - np.outer(root, root))
    return S.reshape(C * n, C * n)


def fitc_prior_covariance(K: Matrices) -> Array:
    """K (Cn, Cn), class-major, with the blocks Q_k + diag(s^k): section 2.1 of villacampa2020.

    Parameters
    ----------
    K : Matrices              of the prior
    """
    return np.asarray(block_diag(*fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ)))


def laplace_weight(latent_values: Array, K: Array) -> tuple[Array, float]:
    """M = (K + W⁻¹)⁻¹ = S(I + SᵀKS)⁻¹Sᵀ and log|I + KW|: neither K nor W is inverted, villacampa2020.

    Parameters
    ----------
    latent_values : (n, C)    f, where W = SSᵀ is taken
    K : (Cn, Cn)              prior covariance, class-major
    """
    S = softmax_curvature_root(latent_values)
    factor = cholesky(np.eye(len(K)) + S.T @ K @ S, "I + S'KS", "raise jitter or noise")
    whitened = solve_triangular(factor, S.T, lower=True)
    return whitened.T @ whitened, 2.0 * float(np.sum(np.log(np.diag(factor))))


def laplace_mode(K: Array, y: Labels, n_classes: int, tolerance: float = 1e-10, max_iterations: int = 100) -> Mode:
    """The maximum of log p(y|f) - ½fᵀK⁻¹f by Newton's method from f = 0: appendix C of villacampa2020.

    With f = Ka throughout, Newton's target (K⁻¹ + W)⁻¹(Wf + ∇) is Kb with b = ∇ + M(f - K∇): nothing cancels near the
    mode. A step is halved while it lowers the objective.

    Parameters
    ----------
    K : (Cn, Cn)              prior covariance, class-major
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           C
    tolerance : float         largest entry of f - K∇, relative to max(1, |f|)
    max_iterations : int      Newton steps after which it gives up and says so
    """

    def table(vector: Array) -> Array:
        return vector.reshape(n_classes, len(y)).T

    f, a = np.zeros(len(K)), np.zeros(len(K))
    value, iterations = softmax_log_likelihood(table(f), y), 0
    while True:
        derivative = softmax_log_gradient(table(f), y).T.ravel()
        off = f - K @ derivative
        residual = float(np.max(np.abs(off))) / max(1.0, float(np.max(np.abs(f))))
        if residual <= tolerance or iterations == max_iterations:
            return Mode(table(f), table(derivative), residual, residual <= tolerance, iterations)
        move = derivative + laplace_weight(table(f), K)[0] @ off - a
        size = 1.0
        for _ in range(_HALVINGS):
            a_new = a + size * move
            f_new = K @ a_new
            value_new = softmax_log_likelihood(table(f_new), y) - 0.5 * float(a_new @ f_new)
            if value_new >= value - 1e-12 * (1.0 + abs(value)):  # below that the values are rounding
                break
            size *= 0.5
        f, a, value, iterations = f_new, a_new, value_new, iterations + 1


def laplace_log_evidence(mode: Mode, K: Array, y: Labels) -> float:
    """log p(y|f̂) - ½f̂ᵀ∇ - ½log|I + KW|, with ∇ = K⁻¹f̂: Laplace's log p(y), appendix C of villacampa2020.

    Parameters
    ----------
    mode : Mode               f̂ and ∇
    K : (Cn, Cn)              prior covariance, class-major
    y : (n,)                  labels
    """
    f = mode.latent_values
    return softmax_log_likelihood(f, y) - 0.5 * float(np.sum(f * mode.derivative)) - 0.5 * laplace_weight(f, K)[1]


@equation("villacampa2020", "u47-laplace")
@takes("laplace-sparse")
def laplace_baseline(X: Array, y: Labels, prior: Prior, *, options: Options) -> LaplaceFit:
    """Laplace's method with softmax likelihood and inducing inputs, hyper-parameters given: appendix C.

    q(f) = N(f̂, (K⁻¹ + W)⁻¹). The inducing values follow by conditioning on f: means K_ZX ∇ and covariances
    K_ZZ - K_ZX M K_XZ, of which the classes' own blocks are kept.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters and inducing inputs of all classes, villacampa2020
    options : Options         of "laplace-sparse", or each by name; those of the prediction are only checked

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    parts = prior_matrices(X, prior)
    n, C = len(y), len(parts.K_ZZ)
    if options.prediction_nodes is not None:
        check_nodes(options.prediction_nodes, C - 1)
    K = fitc_prior_covariance(parts)
    mode = laplace_mode(K, y, C, options.tolerance, options.max_iterations)
    if options.callback is not None:
        options.callback(Seen(mode.iterations, mode.residual, 0))
    M = laplace_weight(mode.latent_values, K)[0]
    blocks = (K - K @ M @ K).reshape(C, n, C, n)
    mean, cov = [], []
    for k, K_ZZ in enumerate(parts.K_ZZ):
        K_ZX, own = K_ZZ @ parts.upsilon[k].T, slice(k * n, (k + 1) * n)
        mean.append(K_ZX @ mode.derivative[:, k])
        cov.append(K_ZZ - K_ZX @ M[own, own] @ K_ZX.T)
    return LaplaceFit(
        mode,
        M,
        np.stack([blocks[:, i, :, i] for i in range(n)]),
        Gaussians(np.array(mean), np.array(cov)),
        softmax(mode.latent_values, axis=1),
        laplace_log_evidence(mode, K, y),
    )


def predict_laplace(
    fit: LaplaceFit, X: Array, X_test: Array, prior: Prior, nodes: int | None = None
) -> LaplacePrediction:
    """Latent values at new inputs, and E[softmax(f_*)] by Sobol' points: appendix C of villacampa2020.

    f_* and f share the inducing values alone: their covariance is B_*, blocks Q_*X = υ_*ᵀK_ZZ υ, and
    f_* ~ N(B_*∇, diag(κ_*) - B_* M B_*ᵀ).

    Parameters
    ----------
    fit : LaplaceFit          of `laplace_baseline`
    X : (n, d)                inputs
    X_test : (t, d)           new inputs
    prior : Prior             hyper-parameters
    nodes : int or None       of a product rule in each dimension; None: 4096 Sobol' points

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    ValueError                for a product rule of more than 1e6 points
    """
    parts, new = prior_matrices(X, prior), cross_covariances(X_test, prior)
    upsilon = projection_vectors(new.K_TZ, inducing_covariances(prior))
    shared = [u @ K @ v.T for u, K, v in zip(upsilon, parts.K_ZZ, parts.upsilon, strict=True)]
    t, C = len(X_test), len(parts.K_ZZ)
    mean = np.array([Q @ fit.mode.derivative[:, k] for k, Q in enumerate(shared)]).reshape(C, t).T
    cov, raw = np.empty((t, C, C)), np.empty((t, C))
    for s in range(t):
        B = block_diag(*[Q[s][None] for Q in shared])  # (C, Cn)
        cov[s] = np.diag(new.k_tt[:, s]) - B @ fit.weight @ B.T
        raw[s] = softmax_probabilities(mean[s], cov[s], nodes)
    mass = np.sum(raw, axis=1)
    return LaplacePrediction(mean, cov, raw / mass[:, None], mass)
