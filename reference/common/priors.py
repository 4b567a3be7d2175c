"""Hyper-parameters of one latent function, and of one for each class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Hyper(NamedTuple):
    """Hyper-parameters of one latent function, and its inducing inputs."""

    variance: float
    lengthscales: Array  # (d,)
    noise: float
    jitter: float
    Z: Array | None  # (m, d); None is the full GP


class Prior(NamedTuple):
    """Hyper-parameters of all classes, each with inducing inputs of its own."""

    variance: Array  # (C,)
    lengthscales: Array  # (C, d)
    noise: Array  # (C,)
    jitter: Array  # (C,)
    Z: Array  # (C, m, d)
