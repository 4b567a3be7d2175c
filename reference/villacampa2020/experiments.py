"""Sections 5 and 5.6: the kernel, and which point to ask for."""

import numpy as np
from numpy.typing import NDArray

from reference.common.kernels import squared_exponential
from reference.common.ledger import equation

Array = NDArray[np.float64]


@equation("villacampa2020", "u35-kernel")
def ard_gaussian_kernel(X1: Array, X2: Array | None, amplitude: float, lengthscales: Array, noise: float) -> Array:
    """amplitude² exp(-½ Σ_j (x_j - x'_j)²/l_j²), plus noise for an instance with itself: section 5 of villacampa2020.

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


@equation("villacampa2020", "u44-entropy-selection")
def select_by_entropy(probability: Array) -> int:
    """The candidate whose class distribution has the largest entropy -Σ_c p_c log p_c: section 5.6 of villacampa2020.

    Of equal ones the first.

    Parameters
    ----------
    probability : (n, C)      of each candidate
    """
    log_p = np.log(np.where(probability > 0.0, probability, 1.0))  # 0 log 0 = 0
    return int(np.argmax(-np.sum(probability * log_p, axis=1)))
