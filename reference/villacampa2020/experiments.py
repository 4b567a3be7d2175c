"""Sections 5, 5.6 and B: the kernel, where all methods start, which point to ask for, and the table of data sets."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.kernels import squared_exponential
from reference.common.ledger import equation
from reference.villacampa2020.hyper import Prior

Array = NDArray[np.float64]

_TABLE = {
    "glass": (214, 9, 6),
    "new-thyroid": (215, 5, 3),
    "satellite": (6435, 36, 6),
    "svmguide2": (391, 20, 3),
    "vehicle": (846, 18, 4),
    "vowel": (540, 10, 6),
    "waveform": (1000, 21, 3),
    "wine": (178, 13, 3),
}


class Sizes(NamedTuple):
    """One row of Table B.2."""

    instances: int
    attributes: int
    classes: int


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


@equation("villacampa2020", "u36-initialisation")
def initialise_hyperparameters(X: Array, n_classes: int, n_inducing: int, seed: int, jitter: float = 1e-6) -> Prior:
    """What all methods start from: section 5 of villacampa2020, which says no more than that it is one for all.

    Inducing inputs are inputs drawn without replacement, the same for every class; every function has variance 1, noise
    0.1 and the median distance of two inputs, along one dimension, as lengthscale of that dimension.

    Parameters
    ----------
    X : (n, d)                inputs
    n_classes : int           C
    n_inducing : int          inducing inputs a class, at most n
    seed : int                of the draw
    jitter : float            constant on the diagonal of K_ZZ

    Raises
    ------
    ValueError                if n_inducing exceeds the number of inputs
    """
    n, d = X.shape
    if not 1 <= n_inducing <= n:
        raise ValueError(f"n_inducing: found {n_inducing}, expected 1 to {n}")
    rows = np.random.default_rng(seed).choice(n, n_inducing, replace=False)
    pairs = np.triu_indices(n, 1)
    apart = np.array([np.median(np.abs(X[pairs[0], j] - X[pairs[1], j])) if n > 1 else 0.0 for j in range(d)])
    lengthscales = np.where(apart > 0.0, apart, 1.0)
    C = n_classes
    return Prior(
        np.ones(C), np.tile(lengthscales, (C, 1)), np.full(C, 0.1), np.full(C, jitter), np.tile(X[rows], (C, 1, 1))
    )


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


@equation("villacampa2020", "u45-table-b2")
def uci_dataset_table(name: str) -> Sizes:
    """Instances, attributes and classes of a data set: Table B.2 of villacampa2020.

    Parameters
    ----------
    name : str                glass, new-thyroid, satellite, svmguide2, vehicle, vowel, waveform or wine

    Raises
    ------
    ValueError                for another name
    """
    if name not in _TABLE:
        raise ValueError(f"name: found {name!r}, expected one of {', '.join(_TABLE)}")
    return Sizes(*_TABLE[name])
