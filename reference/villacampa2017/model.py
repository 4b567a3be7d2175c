"""Sections 2.1 and 2.2: labels, priors, inducing values, and the two posteriors over them that are approximated.

Labels count from 0. Arrays over classes and data have the class first, (C, n, ...). Each class has inducing inputs of
its own.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from reference.common._largest import log_largest
from reference.common.algebra import solution
from reference.common.errors import cholesky, factorise
from reference.common.kernels import squared_exponential
from reference.common.ledger import equation

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

REMEDY = "raise jitter or remove duplicate rows of Z"


class Conditional(NamedTuple):
    """Latent values given inducing values: independent Gaussians."""

    mean: Array  # (C, n)
    var: Array  # (C, n)


@equation("villacampa2017", "u1-labelling-rule")
def label_from_latents(latent_values: Array) -> Labels:
    """y_i = argmax_k f^k(x_i), labels (n,): section 2.1 of villacampa2017.

    Parameters
    ----------
    latent_values : (n, C)    rows f_i
    """
    return np.argmax(latent_values, axis=1).astype(np.int64)


@equation("villacampa2017", "1")
def hard_max_likelihood(f_i: Array, y_i: int) -> float:
    """p(y_i|f_i) = Π_{k≠y} Θ(f_y - f_k), 0 or 1, with ties shared: (1) of villacampa2017.

    The print leaves Θ(0) open. Classes that tie at the top share, 1/(number of largest) each, as the point masses of
    `exact_site_factor` do: the labels' probabilities sum to one, which ½ for each Θ(0) does for two classes only.

    Parameters
    ----------
    f_i : (C,)                latent values of one observation
    y_i : int                 its label, 0..C-1
    """
    theta = f_i[y_i] - np.delete(f_i, y_i) >= 0.0
    return float(np.prod(theta)) / float(np.sum(f_i == np.max(f_i)))


@equation("villacampa2017", "u2-latent-noise")
def add_latent_noise(k_xx: Array, noise: Array) -> Array:
    """Prior variance of f^k = f̂^k + ε^k, ε^k ~ N(0, σ_k²), an array (C, n): section 2.1 of villacampa2017.

    Parameters
    ----------
    k_xx : (C, n)             prior variances of f̂^k(x_i)
    noise : (C,)              σ_k²
    """
    return k_xx + noise[:, None]


@equation("villacampa2017", "u30-kernel")
def ard_gaussian_kernel(X1: Array, X2: Array | None, amplitude: float, lengthscales: Array, noise: float) -> Array:
    """amplitude² exp(-½ Σ_j (x_j - x'_j)²/l_j²), plus noise for an instance with itself: section 4 of villacampa2017.

    Parameters
    ----------
    X1 : (a, d)               first points
    X2 : (b, d) or None       second points; None: the covariance of X1 with itself, with noise on its diagonal
    amplitude : float         square root of the prior variance
    lengthscales : (d,)       l
    noise : float             variance of the additive noise
    """
    if X2 is not None:
        return squared_exponential(X1, X2, amplitude**2, lengthscales)
    return squared_exponential(X1, X1, amplitude**2, lengthscales) + noise * np.eye(len(X1))


@equation("villacampa2017", "u3-gp-prior")
def gp_prior(X: Array, variance: Array, lengthscales: Array) -> Array:
    """Covariances (C, n, n) of f^k ~ GP(0, c(·, ·; ξ^k)) at X, independent over classes: section 2.1 of villacampa2017.

        c(x, x'; ξ^k) = variance_k exp{-½ Σ_j (x_j - x'_j)²/lengthscales_kj²}

    Parameters
    ----------
    X : (n, d)                inputs
    variance : (C,)           of each class
    lengthscales : (C, d)     of each class
    """
    apart = (X[:, None, :] - X[None, :, :])[None] / lengthscales[:, None, None, :]  # (C, n, n, d)
    return variance[:, None, None] * np.exp(-0.5 * np.sum(apart**2, axis=3))


@equation("villacampa2017", "u4-inducing-points")
def inducing_covariances(Z: Array, variance: Array, lengthscales: Array, jitter: Array) -> Array:
    """K_ZZ (C, m, m) of f̄^k = (f^k(z_1^k), ..., f^k(z_m^k)), a set of inducing inputs each class: section 2.1.

    Parameters
    ----------
    Z : (C, m, d)             inducing inputs of villacampa2017
    variance : (C,)           of each class
    lengthscales : (C, d)     of each class
    jitter : (C,)             constant on the diagonal
    """
    return np.stack(
        [squared_exponential(Z[k], Z[k], variance[k], lengthscales[k]) + jitter[k] * np.eye(len(Z[k]))
         for k in range(len(Z))]
    )  # fmt: skip


@equation("villacampa2017", "19")
def inducing_prior(inducing_values: Array, K_ZZ: Array) -> float:
    """log p(f̄) = Σ_k log N(f̄^k | 0, K_ZZ^k): (19) of villacampa2017.

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    K_ZZ : (C, m, m)          prior covariances

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    total = 0.0
    for u, K in zip(inducing_values, K_ZZ, strict=True):
        factor = factorise(K, "K_ZZ", REMEDY)
        total += -0.5 * u @ factor.inverse @ u - 0.5 * factor.log_det - 0.5 * len(u) * np.log(2.0 * np.pi)
    return float(total)


@equation("villacampa2017", "u7-projection-vector")
def projection_vectors(K_XZ: Array, K_ZZ: Array) -> Array:
    """υ_i^k = K_ZZ⁻¹ k_Zx, rows of an array (C, n, m): below (8) of villacampa2017.

    Parameters
    ----------
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    return np.stack([cross @ factorise(K, "K_ZZ", REMEDY).inverse for cross, K in zip(K_XZ, K_ZZ, strict=True)])


@equation("villacampa2017", "4")
def conditional_mean(k_xZ: Array, K_ZZ: Array, inducing_values: Array) -> float:
    """m_i^k = k_xZᵀ K_ZZ⁻¹ f̄^k: (4) of villacampa2017, one datum and class.

    Parameters
    ----------
    k_xZ : (m,)               covariances of f^k(x_i) and f̄^k
    K_ZZ : (m, m)             prior covariance of f̄^k
    inducing_values : (m,)    f̄^k

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    return float(k_xZ @ factorise(K_ZZ, "K_ZZ", REMEDY).inverse @ inducing_values)


@equation("villacampa2017", "5")
def conditional_variance(k_xx: float, k_xZ: Array, K_ZZ: Array) -> float:
    """s_i^k = κ - k_xZᵀ K_ZZ⁻¹ k_xZ: (5) of villacampa2017, one datum and class; rounding below zero is zero.

    Parameters
    ----------
    k_xx : float              κ, prior variance of f^k(x_i), noise included
    k_xZ : (m,)               covariances of f^k(x_i) and f̄^k
    K_ZZ : (m, m)             prior covariance of f̄^k

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    ValueError                if k_xx and k_xZ belong to no covariance
    """
    white = solution(cholesky(K_ZZ, "K_ZZ", REMEDY), k_xZ, "chol K_ZZ")
    var = float(k_xx - white @ white)
    if var < -1e-8 * k_xx:
        raise ValueError(f"k_xx: found {k_xx:.6g}, expected at least {white @ white:.6g}")
    return max(var, 0.0)


@equation("villacampa2017", "u5-fitc-conditional")
def fitc_conditional(inducing_values: Array, k_xx: Array, K_XZ: Array, K_ZZ: Array) -> Conditional:
    """p_FITC(f|f̄) = Π_i Π_k N(f^k(x_i) | m_i^k, s_i^k) in place of p(f|f̄): section 2.1 of villacampa2017.

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Returns
    -------
    Conditional               means and variances, each (C, n)
    """
    C, n = k_xx.shape
    mean = [[conditional_mean(K_XZ[k, i], K_ZZ[k], inducing_values[k]) for i in range(n)] for k in range(C)]
    var = [[conditional_variance(float(k_xx[k, i]), K_XZ[k, i], K_ZZ[k]) for i in range(n)] for k in range(C)]
    return Conditional(np.array(mean), np.array(var))


@equation("villacampa2017", "3")
def exact_site_factor(cond_mean: Array, cond_var: Array, y_i: int) -> float:
    """φ_i(f̄) = ∫ Π_{k≠y} Θ(f_y - f_k) Π_k N(f_k | m_i^k, s_i^k) df_i: (3) of villacampa2017.

    Parameters
    ----------
    cond_mean : (C,)          m_i
    cond_var : (C,)           s_i
    y_i : int                 label, 0..C-1
    """
    return float(np.exp(log_largest(cond_mean[None], cond_var[None], np.array([y_i]))[0]))


@equation("villacampa2017", "u6-standardised-margin")
def standardised_margin(mean_label: float, mean_other: float, var_label: float, var_other: float) -> float:
    """α_i^k = (m_i^y - m_i^k)/√(s_i^y + s_i^k): below (6) of villacampa2017.

    Parameters
    ----------
    mean_label : float        m_i^y
    mean_other : float        m_i^k
    var_label : float         s_i^y
    var_other : float         s_i^k; the sum of both variances is positive
    """
    return float((mean_label - mean_other) / np.sqrt(var_label + var_other))


@equation("villacampa2017", "33")
def pairwise_factor(mean_label: float, mean_other: float, var_label: float, var_other: float) -> float:
    """φ_i^k = Φ(α_i^k) = p(f_y > f_k | f̄): (33) of villacampa2017.

    Parameters
    ----------
    mean_label : float        m_i^y
    mean_other : float        m_i^k
    var_label : float         s_i^y
    var_other : float         s_i^k
    """
    return float(ndtr(standardised_margin(mean_label, mean_other, var_label, var_other)))


@equation("villacampa2017", "6")
def pairwise_probit_approximation(cond_mean: Array, cond_var: Array, y_i: int) -> float:
    """P(f_y > f_k for all k ≠ y) ≈ Π_{k≠y} Φ(α_i^k), as if the events were independent: (6) of villacampa2017.

    Parameters
    ----------
    cond_mean : (C,)          m_i
    cond_var : (C,)           s_i
    y_i : int                 label, 0..C-1
    """
    product = 1.0
    for k in range(len(cond_mean)):
        if k != y_i:
            product *= pairwise_factor(cond_mean[y_i], cond_mean[k], cond_var[y_i], cond_var[k])
    return product


@equation("villacampa2017", "2")
def fitc_inducing_posterior(inducing_values: Array, y: Labels, k_xx: Array, K_XZ: Array, K_ZZ: Array) -> float:
    """log p(f̄) + Σ_i log φ_i(f̄), the logarithm of (2) of villacampa2017 times p(y).

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    y : (n,)                  labels, 0..C-1
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    """
    given = fitc_conditional(inducing_values, k_xx, K_XZ, K_ZZ)
    each = log_largest(given.mean.T, given.var.T, y)
    return inducing_prior(inducing_values, K_ZZ) + float(np.sum(each))


@equation("villacampa2017", "7")
def approximate_inducing_posterior(inducing_values: Array, y: Labels, k_xx: Array, K_XZ: Array, K_ZZ: Array) -> float:
    """log p(f̄) + Σ_i Σ_{k≠y_i} log Φ(α_i^k), the logarithm of (7) of villacampa2017 times p(y).

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    y : (n,)                  labels, 0..C-1
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    """
    given = fitc_conditional(inducing_values, k_xx, K_XZ, K_ZZ)
    total = inducing_prior(inducing_values, K_ZZ)
    for i, label in enumerate(y):
        for k in range(len(K_ZZ)):
            if k != label:
                pair = given.mean[label, i], given.mean[k, i], given.var[label, i], given.var[k, i]
                total += float(log_ndtr(standardised_margin(*pair)))
    return total
