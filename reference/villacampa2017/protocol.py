"""Section 4: how every method starts, and how each is trained."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._options import shown
from reference.common.ledger import equation
from reference.common.priors import Prior

Array = NDArray[np.float64]

METHODS = ("ep", "sep", "gfitc", "vi-robust")


class BatchTraining(NamedTuple):
    """Batch training of section 4.1."""

    optimizer: str  # "lbfgs", or "adaptive": gradient ascent with a rate for each hyper-parameter
    iterations: int
    quasi_newton: bool  # what the name stands for


class ToyTraining(NamedTuple):
    """Training of section 4.2, where the inducing inputs alone are learned."""

    optimizer: str
    n_steps: int
    batch_size: int  # data in a step
    learn: tuple[str, ...]


def _known(method: str) -> None:
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method: found {shown(method)}, expected one of {', '.join(METHODS)}")


@equation("villacampa2017", "u31-initialisation")
def initialise_hyperparameters(
    rng: np.random.Generator,
    X: Array,
    n_inducing: int,
    n_classes: int,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
) -> Prior:
    """The start that all methods share: inducing inputs are random training inputs, other values equal: section 4.

    villacampa2017 gives no values of the kernel; each class draws its own inducing inputs, without replacement.

    Parameters
    ----------
    rng : Generator           one choice of rows a class is consumed
    X : (n, d)                inputs
    n_inducing : int          m, at most n
    n_classes : int           C
    variance : float          of every class
    lengthscales : (d,)       of every class
    noise : float             of every class
    jitter : float            of every class

    Raises
    ------
    ValueError                if m is not in 1..n
    """
    if not 1 <= n_inducing <= len(X):
        raise ValueError(f"n_inducing: found {n_inducing}, expected 1 to {len(X)}, the number of inputs")
    Z = np.stack([X[rng.choice(len(X), n_inducing, replace=False)] for _ in range(n_classes)])
    each = np.ones(n_classes)
    return Prior(variance * each, np.tile(lengthscales, (n_classes, 1)), noise * each, jitter * each, Z)


@equation("villacampa2017", "u34-optimisers")
def batch_optimiser_choice(method: str) -> BatchTraining:
    """250 iterations: L-BFGS for gfitc and vi-robust, ascent with adaptive rates for ep and sep: section 4.1.

    Parameters
    ----------
    method : str              ep, sep, gfitc or vi-robust of villacampa2017

    Raises
    ------
    ValueError                for another method
    """
    _known(method)
    quasi_newton = method in ("gfitc", "vi-robust")
    return BatchTraining("lbfgs" if quasi_newton else "adaptive", 250, quasi_newton)


@equation("villacampa2017", "u37-toy-training")
def toy_training_settings(method: str, n: int = 1000) -> ToyTraining:
    """2000 batch iterations; for vi-robust 2000 epochs of Adam with mini-batches of 100: section 4.2.

    Parameters
    ----------
    method : str              ep, sep, gfitc or vi-robust of villacampa2017
    n : int                   data; the last mini-batch of an epoch may be smaller

    Raises
    ------
    ValueError                for another method
    """
    if method == "vi-robust":
        size = min(100, n)
        return ToyTraining("adam", 2000 * -(-n // size), size, ("Z",))
    return ToyTraining(batch_optimiser_choice(method).optimizer, 2000, n, ("Z",))
