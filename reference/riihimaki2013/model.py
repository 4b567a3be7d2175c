"""Section 2: prior, covariance function, the two observation models, posterior and marginal likelihood.

Vectors of all latent values are class-major, f = (f¹_1, ..., f¹_n, f²_1, ..., fᶜ_n), and labels count from 0.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import logsumexp, ndtr

from reference.common._options import shown
from reference.common._probit_line import probit_line
from reference.common._product import product_rule
from reference.common.errors import factorise
from reference.common.ledger import equation

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

REMEDY = "raise jitter or noise, or remove duplicate rows of X"


@equation("riihimaki2013", "u2-se")
def kernel_se_ard(X1: Array, X2: Array, variance: float, lengthscales: Array) -> Array:
    """κ_se(x, x') = σ² exp(-½ Σ_k l_k⁻² (x_k - x'_k)²), a matrix (a, b): section 2 of riihimaki2013.

    Parameters
    ----------
    X1 : (a, d)               first points
    X2 : (b, d)               second points
    variance : float          σ²
    lengthscales : (d,)       l
    """
    scaled = (X1[:, None, :] - X2[None, :, :]) / lengthscales
    return variance * np.exp(-0.5 * np.sum(scaled**2, axis=2))


def prior_covariance(X: Array, variance: Array, lengthscales: Array, noise: Array, jitter: Array) -> Array:
    """K (cn, cn): blocks K^k = κ(X, X) + (noise_k + jitter_k) I on the diagonal.

    Parameters
    ----------
    X : (n, d)                inputs
    variance : (c,)           σ² of each class
    lengthscales : (c, d)     of each class
    noise : (c,)              variance added to each latent value
    jitter : (c,)             further constant on the diagonal
    """
    extra = np.eye(len(X))
    return block_diag(
        *(
            kernel_se_ard(X, X, variance[k], lengthscales[k]) + (noise[k] + jitter[k]) * extra
            for k in range(len(variance))
        )
    )


@equation("riihimaki2013", "u2-prior")
def log_prior_latent(f: Array, K: Array) -> float:
    """log N(f | 0, K), section 2 of riihimaki2013.

    Parameters
    ----------
    f : (cn,)                 latent values, class-major
    K : (cn, cn)              block-diagonal prior covariance

    Raises
    ------
    NotPositiveDefiniteError  if K is singular
    """
    factor = factorise(K, "K_XX", REMEDY)
    return float(-0.5 * f @ factor.inverse @ f - 0.5 * factor.log_det - 0.5 * len(f) * np.log(2.0 * np.pi))


@equation("riihimaki2013", "1")
def softmax_likelihood(f_i: Array, y_i: int) -> float:
    """p(y_i|f_i) = exp(f_y)/Σ_j exp(f_j): (1) of riihimaki2013.

    Parameters
    ----------
    f_i : (c,)                latent values of one observation
    y_i : int                 its label, 0..c-1
    """
    raised = np.exp(f_i - np.max(f_i))
    return float(raised[y_i] / np.sum(raised))


@equation("riihimaki2013", "2")
def multinomial_probit_likelihood(f_i: Array, y_i: int) -> float:
    """p(y_i|f_i) = E_{u ~ N(0, 1)} Π_{j≠y} Φ(u + f_y - f_j): (2) of riihimaki2013, by adaptive panels.

    Parameters
    ----------
    f_i : (c,)                latent values of one observation
    y_i : int                 its label, 0..c-1
    """
    return float(np.exp(log_multinomial_probit_likelihood(f_i, y_i)))


@equation("riihimaki2013", "24")
def multinomial_probit_region(f_i: Array, y_i: int) -> float:
    """p(y_i|f_i) = ∫ ψ(v_y > v_k for all k ≠ y) Π_j N(v_j|f_j, 1) dv: (24) of riihimaki2013.

    Given v_y the others are below it independently, each with probability Φ(v_y - f_k): v_y alone is left, on the line.

    Parameters
    ----------
    f_i : (c,)                latent values of one observation
    y_i : int                 its label, 0..c-1
    """
    others = np.delete(f_i, y_i)
    return float(np.exp(probit_line(float(f_i[y_i]), 1.0, others, np.ones(len(others))).log_norm))


def log_softmax_likelihood(f_i: Array, y_i: int) -> float:
    """f_y - log Σ_j exp(f_j), the logarithm of (1) of riihimaki2013: f_i (c,) latent values, y_i the label."""
    return -float(logsumexp(f_i - f_i[y_i]))


@equation("riihimaki2013", "2")
def log_multinomial_probit_likelihood(f_i: Array, y_i: int) -> float:
    """log E_u Π_{j≠y} Φ(u + f_y - f_j), logarithm of (2) of riihimaki2013: f_i (c,) latent values, y_i the label."""
    others = np.delete(f_i, y_i)
    return probit_line(0.0, 1.0, others - f_i[y_i], np.ones(len(others))).log_norm


LOG_LIKELIHOODS = {"softmax": log_softmax_likelihood, "multinomial-probit": log_multinomial_probit_likelihood}


@equation("riihimaki2013", "3")
def log_posterior(f: Array, y: Labels, K: Array, likelihood: str) -> float:
    """log p(f|X, θ) + Σ_i log p(y_i|f_i), the logarithm of (3) of riihimaki2013 without its 1/Z.

    Parameters
    ----------
    f : (cn,)                 latent values, class-major
    y : (n,)                  labels, 0..c-1
    K : (cn, cn)              block-diagonal prior covariance
    likelihood : str          "softmax" or "multinomial-probit"

    Raises
    ------
    NotPositiveDefiniteError  if K is singular
    ValueError                for another likelihood
    """
    if not isinstance(likelihood, str) or likelihood not in LOG_LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(likelihood)}, expected one of {', '.join(LOG_LIKELIHOODS)}")
    by_datum = f.reshape(-1, len(y)).T
    return log_prior_latent(f, K) + sum(LOG_LIKELIHOODS[likelihood](by_datum[i], int(y[i])) for i in range(len(y)))


@equation("riihimaki2013", "u2-evidence")
def log_marginal_likelihood(y: Labels, K: Array, likelihood: str, nodes: int = 40) -> float:
    """log Z = log ∫ p(f|X, θ) Π_i p(y_i|f_i) df by brute force: section 2 of riihimaki2013, for a few latent values.

    The likelihood sees the differences f_j - f_y of each datum only: a Gauss-Hermite product rule over those,
    n(c - 1) of them.

    Parameters
    ----------
    y : (n,)                  labels, 0..c-1
    K : (cn, cn)              block-diagonal prior covariance
    likelihood : str          "softmax" or "multinomial-probit"
    nodes : int               per dimension

    Raises
    ------
    ValueError                for another likelihood, or more than 1e6 points
    """
    if not isinstance(likelihood, str) or likelihood not in LOG_LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(likelihood)}, expected one of {', '.join(LOG_LIKELIHOODS)}")
    n = len(y)
    c = len(K) // n
    rows = []
    for i in range(n):
        for j in range(c):
            if j != y[i]:
                row = np.zeros(n * c)
                row[j * n + i], row[int(y[i]) * n + i] = 1.0, -1.0
                rows.append(row)
    differences = np.array(rows)
    cov = differences @ K @ differences.T  # of f_j - f_y
    if likelihood == "softmax":
        d, weights = product_rule(np.zeros(len(cov)), cov, nodes)
        each = 1.0 / (1.0 + np.sum(np.exp(d.reshape(-1, n, c - 1)), axis=2))
    else:  # f_y - f_j + u_i in place of them
        shifted, weights = product_rule(np.zeros(len(cov)), cov + np.kron(np.eye(n), np.ones((c - 1, c - 1))), nodes)
        each = np.prod(ndtr(shifted.reshape(-1, n, c - 1)), axis=2)
    return float(np.log(weights @ np.prod(each, axis=1)))
