"""Hyper-parameters of independent Gaussian processes on inducing inputs, one process a class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Prior(NamedTuple):
    """Hyper-parameters of all classes."""

    variance: Array  # (C,)
    lengthscales: Array  # (C, d)
    noise: Array  # (C,)
    jitter: Array  # (C,)
    Z: Array  # (C, m, d)
