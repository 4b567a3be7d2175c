"""Gauss-Hermite product rules against a Gaussian vector, along its lower Cholesky factor; the mean of a softmax."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from reference.common.errors import cholesky

Array = NDArray[np.float64]

LARGEST = 1_000_000  # points of one rule
DEFAULT_NODES = {1: 100, 2: 40, 3: 20, 4: 12, 5: 8, 6: 6, 7: 5, 8: 4, 9: 3}


def check_nodes(nodes: int, dimension: int) -> None:
    """Refuse a rule that has no spread or too many points."""
    if isinstance(nodes, bool) or not isinstance(nodes, int | np.integer) or nodes < 2:
        raise ValueError(f"nodes: found {nodes!r}, expected a whole number >= 2")
    if float(nodes) ** dimension > LARGEST:
        raise ValueError(f"nodes: found {nodes} in {dimension} dimensions, expected at most 1e6 points")


def product_rule(mean: Array, cov: Array, nodes: int) -> tuple[Array, Array]:
    """Points (q, D) and weights (q,) with E[h(x)] ≈ Σ weights h(points) for x ~ N(mean, cov).

    Points mean + √2 L t with L the lower Cholesky factor of cov and t the nodes of exp(-t²).
    """
    D = len(mean)
    check_nodes(nodes, D)
    t, w = np.polynomial.hermite.hermgauss(nodes)
    grids = np.meshgrid(*([t] * D), indexing="ij")
    points = np.stack([grid.ravel() for grid in grids], axis=1)
    weights = np.ones(len(points))
    for grid in np.meshgrid(*([w / np.sqrt(np.pi)] * D), indexing="ij"):
        weights = weights * grid.ravel()
    root = cholesky(cov, "covariance of the integration variables", "raise jitter or noise")
    return mean + np.sqrt(2.0) * points @ root.T, weights


def gaussian_rule(mean: Array, cov: Array, nodes: int | None) -> tuple[Array, Array]:
    """Points (q, D) and weights (q,) against N(mean, cov): a product rule, or from D = 10 on a cubature of degree 3.

    Parameters
    ----------
    mean : (D,)               mean of the Gaussian
    cov : (D, D)              its covariance
    nodes : int or None       per dimension; None: by a table that falls from 100 (D = 1) to 3 (D = 9)

    Raises
    ------
    ValueError                for more than 1e6 points
    NotPositiveDefiniteError  if cov is singular
    """
    D = len(mean)
    if nodes is None and D not in DEFAULT_NODES:
        root = cholesky(cov, "covariance of the integration variables", "raise jitter or noise") * np.sqrt(D)
        return np.concatenate([mean + root.T, mean - root.T]), np.full(2 * D, 0.5 / D)
    return product_rule(mean, cov, DEFAULT_NODES[D] if nodes is None else nodes)


def softmax_probabilities(mean: Array, cov: Array, nodes: int | None = None) -> Array:
    """E[softmax(f_*)] (c,) for f_* ~ N(m, S), each class by a rule over its own differences; not normalised.

    Parameters
    ----------
    mean : (c,)               m
    cov : (c, c)              S
    nodes : int or None       of `gaussian_rule`
    """
    c = len(mean)
    raw = np.empty(c)
    for k in range(c):
        differences = np.eye(c)[k] - np.delete(np.eye(c), k, axis=0)  # f_k - f_j, j ascending
        d, weights = gaussian_rule(differences @ mean, differences @ cov @ differences.T, nodes)
        raw[k] = weights @ np.exp(-logsumexp(np.pad(-d, ((0, 0), (1, 0))), axis=1))  # 1/(1 + Σ exp(-d))
    return raw
