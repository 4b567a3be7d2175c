"""Section 2: Gaussian processes, (1), and classification with them, (2) to (6)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import cholesky, factorise
from reference.common.ledger import equation
from reference.common.logistic import log_sigmoid
from reference.common.quadrature import gaussian_integral, log_sigmoid_scalar, sigmoid_minus

Array = NDArray[np.float64]

REMEDY_X = "raise noise or jitter, or remove duplicate rows of X"
REMEDY_Z = "raise jitter or remove duplicate rows of Z"
_MOST_POINTS = 30_000_000  # of the grid of log_evidence


class Prior(NamedTuple):
    """Hyper-parameters, inducing inputs and the kernel that they belong to."""

    variance: float
    lengthscales: Array  # (d,)
    noise: float
    jitter: float
    Z: Array | None  # (m, d); None is the full GP
    kernel: str = "se"
    smoothness: float | None = None


class LatentDistribution(NamedTuple):
    """Mean and variance of latent values, one by one."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,)


class Predictive(NamedTuple):
    """Class probability, and what the same quadrature makes of the Gaussian density alone."""

    probability: Array  # (t,)  p(y = +1)
    probability_mass: Array  # (t,)  1 up to error
    error: Array  # (t,)  stated by the quadrature


@equation("izmailov2016", "1")
def gram_matrix(function: Callable[[Array, Array], float], X: Array) -> Array:
    """Covariance of process values at finitely many points: izmailov2016 (1).

        K_t = [ k(t_i, t_j) ]_ij                                                              (1)

    Parameters
    ----------
    function : callable       k, two points (d,) to a number
    X : (k, d)                points t

    Returns
    -------
    (k, k)

    Notes
    -----
    The paper prints k points and n columns in (1); both are the number of points.
    """
    return np.array([[function(a, b) for b in X] for a in X])


@equation("izmailov2016", "u2.1-mean")
def mean_vector(function: Callable[[Array], float], X: Array) -> Array:
    """Means of process values at finitely many points: izmailov2016, section 2.1.

        m_t = (m(t_1), ..., m(t_k))ᵀ

    Parameters
    ----------
    function : callable       m, a point (d,) to a number
    X : (k, d)                points t

    Returns
    -------
    (k,)
    """
    return np.array([function(a) for a in X])


@equation("izmailov2016", "u2.1-marginal")
def sample_gp_prior(rng: np.random.Generator, latent_mean: Array, K_XX: Array, n_draws: int) -> Array:
    """Draws of process values at finitely many points: izmailov2016, section 2.1.

        (f(t_1), ..., f(t_k))ᵀ ~ N(m_t, K_t)

    Parameters
    ----------
    rng : Generator           n_draws · k normals are consumed, draw after draw
    latent_mean : (k,)        m_t
    K_XX : (k, k)             K_t
    n_draws : int             draws

    Returns
    -------
    (n_draws, k)

    Raises
    ------
    NotPositiveDefiniteError  if K_XX is singular
    """
    white = rng.standard_normal((n_draws, len(latent_mean)))
    return latent_mean + white @ cholesky(K_XX, "K_XX", REMEDY_X).T


@equation("izmailov2016", "2")
def logistic_class_probability(latent_values: Array) -> Array:
    """Probability of the positive class: izmailov2016 (2).

        p(y* = +1|x*) = σ(f(x*)),   σ(z) = (1 + e⁻ᶻ)⁻¹                                        (2)

    Parameters
    ----------
    latent_values : (n,)      f, of any size: nothing overflows
    """
    return np.exp(log_sigmoid(latent_values))


@equation("izmailov2016", "3")
def log_joint_gpc(latent_values: Array, y_sign: Array, K_XX: Array) -> float:
    """Log joint density of labels and latent values: izmailov2016 (3).

        log p(y, f|X) = log N(f | 0, K(X, X)) + Σ_i log p(y_i|f_i)                            (3)

    Parameters
    ----------
    latent_values : (n,)      f
    y_sign : (n,)             y, labels -1 or +1
    K_XX : (n, n)             K(X, X)

    Raises
    ------
    NotPositiveDefiniteError  if K_XX is singular
    """
    return log_gaussian(latent_values, K_XX, "K_XX", REMEDY_X) + float(np.sum(log_sigmoid(y_sign * latent_values)))


@equation("izmailov2016", "u3.1-prior-u")
def log_gaussian(latent_values: Array, matrix: Array, name: str, remedy: str) -> float:
    """log N(f | 0, matrix) of latent_values f (k,), matrix (k, k) called name in an error that offers the remedy."""
    f, factor = latent_values, factorise(matrix, name, remedy)
    return float(-0.5 * (len(f) * np.log(2.0 * np.pi) + factor.log_det + f @ factor.inverse @ f))


@equation("izmailov2016", "4")
def latent_predictive(
    latent_mean: Array, posterior_cov: Array, K_XX: Array, K_TX: Array, k_tt: Array
) -> LatentDistribution:
    """Latent predictive distribution at new points under a Gaussian posterior of the latent values: izmailov2016 (4).

        p(f*|y, X, x*) = ∫ p(f*|f, X, x*) p(f|y, X) df                                        (4)

    With p(f|y, X) = N(m, V): mean k*ᵀK⁻¹m, variance k** - k*ᵀK⁻¹k* + k*ᵀK⁻¹VK⁻¹k*.

    Parameters
    ----------
    latent_mean : (n,)        m
    posterior_cov : (n, n)    V
    K_XX : (n, n)             K(X, X)
    K_TX : (t, n)             rows k*ᵀ
    k_tt : (t,)               k**

    Raises
    ------
    NotPositiveDefiniteError  if K_XX is singular
    """
    gain = K_TX @ factorise(K_XX, "K_XX", REMEDY_X).inverse
    given_f = k_tt - np.sum(gain * K_TX, axis=1)
    return LatentDistribution(gain @ latent_mean, given_f + np.sum((gain @ posterior_cov) * gain, axis=1))


def _zero(z: float) -> float:
    return 0.0


@equation("izmailov2016", "5")
def predictive_probability(latent_mean: Array, latent_var: Array) -> Predictive:
    """Probability of the positive class at new points: izmailov2016 (5).

        p(y* = +1|y, X, x*) = ∫ σ(f*) p(f*|y, X, x*) df*                                      (5)

    Adaptive quadrature around the mode of the integrand; a variance of 0 is a point mass.

    Parameters
    ----------
    latent_mean : (t,)        means of f*
    latent_var : (t,)         its variances, >= 0

    Returns
    -------
    Predictive                probability (t,), probability_mass (t,), error (t,)

    Raises
    ------
    ValueError                if a variance is negative, or a number not finite
    QuadratureError           if the quadrature states an error above 1e-11
    """
    means, variances = np.asarray(latent_mean, dtype=float), np.asarray(latent_var, dtype=float)
    if not np.all(np.isfinite(means)):
        raise ValueError("latent_mean: found a value that is not finite, expected finite values")
    pairs = list(zip(means, variances, strict=True))
    hits = [gaussian_integral(log_sigmoid_scalar, sigmoid_minus, *pair) for pair in pairs]
    masses = [gaussian_integral(_zero, _zero, *pair) for pair in pairs]
    error = np.array([max(hit.error, mass.error) for hit, mass in zip(hits, masses, strict=True)])
    # σ < 1: where the integral comes out above 1 it does so within its error
    return Predictive(np.array([min(hit.value, 1.0) for hit in hits]), np.array([mass.value for mass in masses]), error)


@equation("izmailov2016", "6")
def log_evidence(y_sign: Array, K_XX: Array) -> float:
    """Logarithm of the evidence of few labels: izmailov2016 (6), of which θ enters through K(X, X).

        log p(y|X, θ) = log ∫ p(y|f) p(f|X, θ) df                                             (6)

    f = Lz with LLᵀ = K, z standard normal, and the trapezoidal rule on [-9, 9]ⁿ, whose error falls as exp(-2πδ/h)
    with the step h: σ(y_i f_i) is analytic in z_j for |Im z_j| < δ = π/max_i Σ_j |L_ij|.

    Parameters
    ----------
    y_sign : (n,)             labels, -1 or +1; at most 4, fewer for a large variance
    K_XX : (n, n)             K(X, X), noise included

    Returns
    -------
    log p(y), to about 1e-13

    Raises
    ------
    ValueError                if the grid would have more than 3e7 points
    NotPositiveDefiniteError  if K_XX is singular
    """
    L = cholesky(K_XX, "K_XX", REMEDY_X)
    width = np.pi / float(np.max(np.sum(np.abs(L), axis=1)))
    half_width = int(np.ceil(9.0 / min(0.5, 2.0 * np.pi * width / 33.0)))
    n = len(y_sign)
    if (2 * half_width + 1) ** n > _MOST_POINTS:
        raise ValueError(
            f"y_sign: found {n} labels, whose grid has {2 * half_width + 1:.3g}^{n} points, "
            f"expected at most {_MOST_POINTS:g}"
        )
    z = np.linspace(-9.0, 9.0, 2 * half_width + 1)
    log_weight = -0.5 * z**2
    grid = np.stack(np.meshgrid(*[z] * n, indexing="ij"), axis=-1).reshape(-1, n)
    log_density = np.sum(np.stack(np.meshgrid(*[log_weight] * n, indexing="ij"), axis=-1).reshape(-1, n), axis=1)
    terms = log_density + np.sum(log_sigmoid((grid @ L.T) * y_sign), axis=1)
    top = float(np.max(terms))
    return float(top + np.log(np.sum(np.exp(terms - top))) + n * np.log((z[1] - z[0]) / np.sqrt(2.0 * np.pi)))
