"""Where to start when nobody says: lengthscales from the distances between data."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from fast.core.types import FloatArray

_SUBSAMPLE = 1000  # rows that distances are taken of: half a million pairs


def default_lengthscales(X: Any, rng: np.random.Generator) -> FloatArray:
    """Median distance between data, input by input in units of its standard deviation: (d,).

    With z_j = x_j / s_j, lengthscale_j = s_j times the median of |z - z'| over pairs of a subsample of at most 1000
    rows: two typical points then correlate as exp(-1/2), however many inputs there are and whatever their units. An
    input that does not vary gets the lengthscale of s_j = 1. Pairs of equal rows do not count. Draws at most 1000
    integers; time and memory do not depend on n.

    Parameters
    ----------
    X : (n, d)    real; may be a numpy.memmap
    rng           source of the subsample; not used if n <= 1000
    """
    n, d = X.shape
    # strided starts with a random offset inside each stride: sorted, without repetition, and no permutation of n
    edges = np.linspace(0, n, min(n, _SUBSAMPLE) + 1).astype(np.int64)
    rows = edges[:-1] if n <= _SUBSAMPLE else rng.integers(edges[:-1], edges[1:])
    part = np.asarray(X[rows], dtype=np.float64)
    size = np.abs(part).max(axis=0)
    size[size == 0.0] = 1.0
    deviation = (part / size).std(axis=0) * size  # scaled first: squares of large or tiny inputs stay finite
    deviation[deviation <= 1e-12 * size] = 1.0  # a constant, up to rounding
    distances = pdist(part / deviation)
    distances = distances[distances > 0.0]
    typical = float(np.median(distances)) if distances.size else float(np.sqrt(2.0 * d))
    lengthscales: FloatArray = deviation * typical
    return lengthscales
