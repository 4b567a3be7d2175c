"""log σ and log cosh in the log domain: finite and accurate for arguments of any size."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def log_sigmoid(z: ArrayLike) -> Array:
    """log σ(z) = -log(1 + e⁻ᶻ), same shape as z."""
    return -np.logaddexp(0.0, -np.asarray(z, dtype=float))


def log_cosh(z: ArrayLike) -> Array:
    """log cosh z, same shape as z.

    |z| + log((1 + e⁻²ᶻ)/2) for large |z|; for |z| < ½ as ½ log(1 + sinh² z), which keeps the relative accuracy
    that the difference |z| - log 2 + ... would lose.
    """
    size = np.abs(np.asarray(z, dtype=float))
    small = 0.5 * np.log1p(np.sinh(np.minimum(size, 0.5)) ** 2)
    return np.where(size < 0.5, small, size + np.log1p(np.exp(-2.0 * size)) - np.log(2.0))
