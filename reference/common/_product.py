"""Class probabilities of a correlated Gaussian by Sobol' points; Gauss-Hermite product rules where they are asked for.

The points are the first N of the unscrambled Sobol' sequence (Sobol' 1967, Zh. vychisl. mat. 7, 784; direction numbers
of Joe and Kuo 2008, SIAM J. Sci. Comput. 30, 2635, as in SciPy), each coordinate moved by 1/(2N) to the middle of its
cell. Nothing is drawn: the same Gaussian has the same probabilities, and other orders of the classes have others.

Errors measured against scrambled sequences 16 and more times as long, the largest of 8 to 30 Gaussians with log
variance 1, 4 and 8 (independent and correlated classes): softmax 1e-4, 3e-4, 8e-4 for three classes and 6e-4, 3e-3,
6e-3 for twelve; orthants 1e-5 for three classes, 2e-4 for four, 2e-3 for ten and twelve, at any of these variances
(half of them below 2e-4). Of a small probability it is the logarithm that can be trusted: its relative error may be 1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri, ndtri_exp, softmax

from reference.common._options import shown
from reference.common.errors import cholesky

Array = NDArray[np.float64]

LARGEST = 1_000_000  # points of one product rule
LOG2_SOFTMAX = 12  # 4096 points for all classes at once
LOG2_ORTHANT = 10  # 1024 points for each class: every factor but the last is integrated without error
DIFFERENCES = "covariance of the differences"
REMEDY = "raise jitter or noise"


def check_nodes(nodes: int, dimension: int) -> None:
    """Refuse a rule that has no spread or too many points."""
    if isinstance(nodes, bool) or not isinstance(nodes, int | np.integer) or nodes < 2:
        raise ValueError(f"nodes: found {shown(nodes)}, expected a whole number >= 2")
    if float(nodes) ** dimension > LARGEST:
        raise ValueError(f"nodes: found {nodes} in {dimension} dimensions, expected at most 1e6 points")


def product_rule(mean: Array, cov: Array, nodes: int) -> tuple[Array, Array]:
    """Points (q, D) and weights (q,) with E[h(x)] ≈ Σ weights h(points) for x ~ N(mean, cov).

    Points mean + √2 D S t with t the nodes of exp(-t²), D the standard deviations and S the symmetric root of the
    correlations: D S (D S)ᵀ = cov, whatever order the coordinates have.
    """
    D = len(mean)
    check_nodes(nodes, D)
    t, w = np.polynomial.hermite.hermgauss(nodes)
    grids = np.meshgrid(*([t] * D), indexing="ij")
    points = np.stack([grid.ravel() for grid in grids], axis=1)
    weights = np.ones(len(points))
    for grid in np.meshgrid(*([w / np.sqrt(np.pi)] * D), indexing="ij"):
        weights = weights * grid.ravel()
    cholesky(cov, "covariance of the integration variables", REMEDY)  # positive definite
    sd = np.sqrt(np.diag(cov))
    values, vectors = np.linalg.eigh(cov / np.outer(sd, sd))
    root = sd[:, None] * (vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
    return mean + np.sqrt(2.0) * points @ root.T, weights


def sobol_points(log2_size: int, dimension: int) -> Array:
    """u_s, s = 1..N: the first N = 2^log2_size Sobol' points plus 1/(2N), all inside (0, 1): (N, dimension)."""
    from scipy.stats import qmc  # loading it takes a second, for which only predictions should wait

    return np.asarray(qmc.Sobol(dimension, scramble=False).random_base2(log2_size)) + 0.5 / 2**log2_size


class Orthant(NamedTuple):
    """A discrete measure for x ~ N(mean, cov) on x > 0, with x = mean + L z, after Genz (1992)."""

    log_weights: Array  # (N,) log Π_j Φ(b_j); their mean, without the logarithm, is P(x > 0)
    z: Array  # (N, D-1) all but the last, z_j > -b_j
    b: Array  # (N,) of the last, which is N(0, 1) on z_D > -b
    root: Array  # (D, D) L


def orthant_rule(mean: Array, cov: Array, u: Array) -> Orthant:
    """Sequential conditioning (Genz 1992, J. Comput. Graph. Statist. 1, 141), one coordinate after another.

        b_j = (m_j + Σ_{i<j} L_ji z_i)/L_jj,   z_j = -Φ⁻¹(u_j Φ(b_j)),   weight Π_j Φ(b_j)

    The last coordinate needs no u. Everything is in the log domain. Time O(N D²).

    Parameters
    ----------
    mean : (D,)               m
    cov : (D, D)              LLᵀ
    u : (N, D-1)              points in (0, 1)

    Raises
    ------
    NotPositiveDefiniteError  if cov is singular
    """
    D = len(mean)
    root = cholesky(cov, DIFFERENCES, REMEDY)
    log_u = np.log(u)
    z, log_weights = np.zeros_like(log_u), np.zeros(len(log_u))
    for j in range(D):
        b = (mean[j] + z[:, :j] @ root[j, :j]) / root[j, j]
        log_weights = log_weights + log_ndtr(b)
        if j < D - 1:
            z[:, j] = -ndtri_exp(log_u[:, j] + log_ndtr(b))
    return Orthant(log_weights, z, b, root)


def log_orthant_probability(mean: Array, cov: Array) -> float:
    """log P(x > 0) for x ~ N(mean, cov) of D dimensions, by `orthant_rule` with 1024 Sobol' points; D = 1 has no error.

    Time O(1024 D²). Largest errors of the probability measured at D = 2, 3, 9, 11: 1e-5, 2e-4, 2e-3, 2e-3.

    Parameters
    ----------
    mean : (D,)               mean
    cov : (D, D)              covariance

    Raises
    ------
    NotPositiveDefiniteError  if cov is singular
    """
    u = sobol_points(LOG2_ORTHANT, len(mean) - 1) if len(mean) > 1 else np.empty((1, 0))
    log_weights = orthant_rule(mean, cov, u).log_weights
    return float(logsumexp(log_weights) - np.log(len(log_weights)))


def softmax_probabilities(mean: Array, cov: Array, nodes: int | None = None) -> Array:
    """E[softmax(f_*)] (c,) for f_* ~ N(m, S).

    With 4096 Sobol' points d_s = Am + L Φ⁻¹(u_s), A = (I, -1), LLᵀ = ASAᵀ: differences to the last class, of which
    softmax((d_s, 0)) is averaged. The sum is one. Time O(4096 c²); errors up to 1e-4 (c = 3, log variance 1), 3e-3
    (c = 12, log variance 4) and 6e-3 (c = 12, log variance 8). With `nodes`, each class by a product rule over its own
    differences f_k - f_j; the sum is one only nearly.

    Parameters
    ----------
    mean : (c,)               m
    cov : (c, c)              S
    nodes : int or None       of the product rule in each dimension; None: Sobol' points

    Raises
    ------
    ValueError                for more than 1e6 points
    NotPositiveDefiniteError  if a covariance of differences is singular
    """
    c = len(mean)
    if nodes is None:
        A = np.eye(c)[:-1] - np.eye(c)[-1]
        d = A @ mean + ndtri(sobol_points(LOG2_SOFTMAX, c - 1)) @ cholesky(A @ cov @ A.T, DIFFERENCES, REMEDY).T
        return np.mean(softmax(np.pad(d, ((0, 0), (0, 1))), axis=1), axis=0)
    raw = np.empty(c)
    for k in range(c):
        differences = np.eye(c)[k] - np.delete(np.eye(c), k, axis=0)  # f_k - f_j, j ascending
        d, weights = product_rule(differences @ mean, differences @ cov @ differences.T, nodes)
        raw[k] = weights @ np.exp(-logsumexp(np.pad(-d, ((0, 0), (1, 0))), axis=1))  # 1/(1 + Σ exp(-d))
    return raw
