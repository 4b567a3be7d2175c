"""Gauss-Hermite product rules against a Gaussian vector, laid along its lower Cholesky factor."""

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import cholesky

Array = NDArray[np.float64]

LARGEST = 1_000_000  # points of one rule


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
