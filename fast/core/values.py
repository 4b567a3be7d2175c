"""What a user gives besides options: the data, and the prior over their latent functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fast.core import inputs
from fast.core.inputs import Hyper
from fast.core.types import FloatArray


@dataclass(frozen=True, eq=False)  # arrays have no truth value to compare by
class Data:
    """Inputs and labels, as they were given; a method checks what it takes."""

    X: Any  # (n, d), real, finite; may be a numpy.memmap, read in blocks
    y: Any  # (n,), ints 0..C-1
    n_classes: int = 2  # C


@dataclass(frozen=True, eq=False)
class Prior:
    """Gaussian processes, as they were given: of one latent function, or of C functions with an axis of C in front.

    k(x, x') = variance exp(-1/2 sum_j (x_j - x'_j)^2 / lengthscales_j^2), or a Matern kernel.
    """

    variance: Any  # > 0: float or (C,)
    lengthscales: Any  # > 0: (d,) or (C, d)
    noise: Any  # >= 0, added to the variance of every latent value: float or (C,)
    jitter: Any  # >= 0, on the diagonal of K_ZZ, or of K_XX: float or (C,)
    Z: Any = None  # inducing points, (m, d) or (C, m, d); None: full Gaussian processes
    shared: Any = False  # one prior and one Z for all classes, gradients summed
    smoothness: Any = None  # order of the Matern kernel; None: squared exponential


class Binary(NamedTuple):
    """Data and prior of one latent function, checked."""

    X: Any  # (n, d), a memmap or float64
    y_sign: FloatArray  # (n,), -1.0 and +1.0
    hyper: Hyper
    Z: FloatArray | None  # (m, d)


def checked_binary(data: Data, prior: Prior) -> Binary:
    """Data and prior of a method of one latent function.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one function

    Raises
    ------
    ValueError       bad input, by name
    """
    X = inputs.inputs("X", data.X)
    hyper = checked_hyper(prior, X.shape[1])
    y_sign = inputs.labels(data.y, X.shape[0])
    Z = None if prior.Z is None else inputs.finite_rows("Z", inputs.inputs("Z", prior.Z, X.shape[1]))
    return Binary(X, y_sign, hyper, Z)


def checked_hyper(prior: Prior, n_columns: int) -> Hyper:
    """The parameters of the prior over one function.

    Parameters
    ----------
    prior : Prior      of one function
    n_columns : int    inputs, d
    """
    return inputs.hyper(
        prior.variance, prior.lengthscales, prior.noise, prior.jitter, n_columns, smoothness=prior.smoothness
    )


def moved(prior: Prior, hyper: Any, Z: Any = None) -> Prior:
    """The same prior at other parameters.

    Parameters
    ----------
    prior : Prior    whose jitter, smoothness and sharing stay
    hyper            variance, lengthscales and noise
    Z                inducing points; None: full Gaussian processes
    """
    return replace(prior, variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise, Z=Z)
