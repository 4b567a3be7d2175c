"""Independent Gaussian processes of all classes on inducing inputs: hyper-parameters as arguments, rows, a search."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._learning import Derivative, check_learn, each_parameter, maximise
from reference.common.priors import Hyper, Prior

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

Evidence = Callable[[Prior], tuple[float, dict[str, Array]]]
"""Objective and its derivatives, fields with shapes as in the prior."""


class Found(NamedTuple):
    """Where a search ended."""

    prior: Prior
    trace: Array  # objective after each iteration of the search
    residual: float  # largest entry of the projected gradient in the coordinates
    converged: bool
    iterations: int


def checked_input(X: Any, y: Any, prior: Any) -> tuple[Array, Labels, Prior]:
    """Inputs (n, d), labels (n,) 0..C-1 and prior in their shapes, or a ValueError that names the argument."""
    X = _check.points(X, "X")
    n, d = X.shape
    Z = _check.array(prior.Z, "Z", 3)
    C = len(Z)
    if C < 2 or Z.shape[1] == 0 or Z.shape[2] != d:
        raise ValueError(f"Z: found shape {Z.shape}, expected (C, m, {d}) with C >= 2 and m >= 1")
    labels = _check.integers(y, "y")
    if labels.shape != (n,):
        raise ValueError(f"y: found {labels.dtype} of shape {labels.shape}, expected whole numbers ({n},)")
    if np.min(labels) < 0 or np.max(labels) >= C:
        raise ValueError(f"y: found labels {np.min(labels)} to {np.max(labels)}, expected 0..{C - 1}")
    values = {"Z": Z}
    for name, shape, low in (
        ("variance", (C,), "> 0"),
        ("lengthscales", (C, d), "> 0"),
        ("noise", (C,), ">= 0"),
        ("jitter", (C,), ">= 0"),
    ):
        value = _check.array(getattr(prior, name), name, len(shape))
        if value.shape != shape:
            raise ValueError(f"{name}: found shape {value.shape}, expected {shape}")
        if np.any(value < 0.0) or (low == "> 0" and np.any(value == 0.0)):
            raise ValueError(f"{name}: found {np.min(value):.6g}, expected {low}")
        if low == "> 0":
            _check.within_range(value, name)
        values[name] = value
    return X, labels.astype(np.int64), Prior(**values)


def fields_to_learn(learn: Any, prior: Prior) -> tuple[str, ...]:
    """The names in learn in the order of a vector; noise must be above zero to be learned; a text stands for one."""
    stands_for_all = Hyper(1.0, prior.lengthscales[0], float(np.min(prior.noise)), 0.0, prior.Z[0])
    return check_learn(learn, stands_for_all)


def class_gradients(derivative: Sequence[Derivative], X: Array, prior: Prior, learn: Sequence[str]) -> dict[str, Array]:
    """Derivatives in every hyper-parameter of every class, fields with shapes as in the prior.

    Parameters
    ----------
    derivative : sequence          one a class: dK_ZZ (m, m), dK_XZ (n, m), dk (n,) to the derivative of the objective
    X : (n, d)                the inputs that the derivatives are about
    prior : Prior             where
    learn : names             the fields
    """
    each = [
        each_parameter(of_class, prior.Z[k], X, Hyper(float(prior.variance[k]), prior.lengthscales[k],
                       float(prior.noise[k]), float(prior.jitter[k]), prior.Z[k]), learn)
        for k, of_class in enumerate(derivative)
    ]  # fmt: skip
    return {name: np.stack([np.asarray(row[name]) for row in each]) for name in learn}


def first_row(prior: Prior, shared: bool) -> Prior:
    """What is learned: all classes of the prior, or the first alone where they share everything."""
    return Prior(*(part[:1] for part in prior)) if shared else prior


def every_row(new: Prior, prior: Prior) -> Prior:
    """The inverse of `first_row`: a row of `new` for every class of the prior."""
    return Prior(*(np.broadcast_to(part, old.shape).copy() for part, old in zip(new, prior, strict=True)))


def row_gradients(gradients: dict[str, Array], shared: bool) -> dict[str, Array]:
    """The gradients in what is learned: shared parameters move all classes, whose derivatives add up."""
    return {
        name: np.sum(derivative, axis=0, keepdims=True) if shared else derivative
        for name, derivative in gradients.items()
    }


def search(
    evidence: Evidence, prior: Prior, learn: Sequence[str], shared: bool, n_steps: int, tolerance: float
) -> Found:
    """The maximum of an objective by L-BFGS-B, in the coordinates of `maximise`.

    Parameters
    ----------
    evidence : callable       Prior to objective and its derivatives, shapes as in the prior
    prior : Prior             start
    learn : names             fields to learn
    shared : bool             one vector for all classes
    n_steps : int             largest number of iterations
    tolerance : float         largest entry of the projected gradient of a search that has converged
    """

    def objective(row: Prior) -> tuple[float, dict[str, Array]]:
        value, derivatives = evidence(every_row(row, prior))
        return value, row_gradients(derivatives, shared)

    # the fields of Prior are those of Hyper with the class first, which the packing does not look at
    top = maximise(cast(Any, objective), cast(Any, first_row(prior, shared)), learn, n_steps, tolerance)
    return Found(every_row(cast(Prior, top.hyper), prior), *top[1:])
