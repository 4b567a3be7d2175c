"""The probability that one of several independent Gaussians is the largest, to about 1e-13, point masses included."""

import numpy as np
from numpy.typing import NDArray

from reference.common._probit_line import probit_line

Array = NDArray[np.float64]

_POINT = 1e-7  # a point mass is widened to this part of the widest Gaussian: 5e-15 of the result


def log_largest(mean: Array, var: Array, y_i: int) -> float:
    """log P(f_y > f_k for all k ≠ y), f_k ~ N(mean_k, var_k) independent; -inf if it is impossible.

    Given f_y the others are below it independently, each with probability Φ((f_y - mean_k)/√var_k). Where all variances
    are zero the largest mean decides, and equal ones share.
    """
    sd = np.sqrt(var)
    if np.max(sd) == 0.0:
        ties = int(np.sum(mean == np.max(mean)))
        return float(-np.log(ties)) if mean[y_i] == np.max(mean) else -np.inf
    sd = np.maximum(sd, _POINT * np.max(sd))
    others = np.delete(np.arange(len(mean)), y_i)
    return probit_line(float(mean[y_i]), float(sd[y_i] ** 2), mean[others], sd[others]).log_norm
