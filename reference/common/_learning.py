"""Hyper-parameters as one vector: logarithms of variance, lengthscales and noise, Z as it is; batch maximisation."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check, _search
from reference.common._options import shown
from reference.common._search import REACH, Limits
from reference.common.kernels import derivative_inputs, derivative_lengthscales, derivative_variance
from reference.common.priors import Hyper

Array = NDArray[np.float64]

FIELDS = ("variance", "lengthscales", "noise", "Z")
LARGEST = 1e50  # scales outside [1/LARGEST, LARGEST] are no model but a diverged ascent


def check_learn(learn: Any, hyper: Hyper) -> tuple[str, ...]:
    """The fields to learn, in the order of FIELDS; a text stands for one field."""
    given = (learn,) if isinstance(learn, str) else tuple(learn)
    for field in given:
        if not isinstance(field, str) or field not in FIELDS:
            raise ValueError(f"learn: found {shown(field)}, expected some of {', '.join(FIELDS)}")
    if "noise" in given and hyper.noise == 0.0:
        raise ValueError("learn: found 'noise' with noise = 0, whose logarithm cannot move; expected noise > 0")
    if "Z" in given and hyper.Z is None:
        raise ValueError("learn: found 'Z' in a full GP, expected inducing inputs Z to move")
    return tuple(field for field in FIELDS if field in given)


def coordinates(hyper: Hyper, learn: Sequence[str]) -> Array:
    """log variance, log lengthscales, log noise, rows of Z: those that are learned, one vector."""
    parts = [
        np.ravel(getattr(hyper, field)) if field == "Z" else np.log(np.ravel(getattr(hyper, field))) for field in learn
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def moved(hyper: Hyper, learn: Sequence[str], where: Array) -> Hyper:
    """The hyper-parameters with learned coordinates `where`; ValueError if a scale leaves [1e-50, 1e50]."""
    at = 0
    changes: dict[str, Any] = {}
    for field in learn:
        old = np.asarray(getattr(hyper, field), dtype=float)
        new = where[at : at + old.size]
        at += old.size
        # not (|.| <= ...) is true for NaN as well
        if not np.all(np.abs(new) <= (LARGEST if field == "Z" else np.log(LARGEST))):
            raise ValueError(
                f"learning_rate: found {field} outside the range of 1e-50 to 1e50, expected a smaller step"
            )
        new = (new if field == "Z" else np.exp(new)).reshape(old.shape)
        changes[field] = new if old.ndim else float(new)
    return hyper._replace(**changes)


def log_derivatives(hyper: Hyper, learn: Sequence[str], gradients: dict[str, Any]) -> Array:
    """Derivatives in the coordinates: ∂/∂log θ = θ ∂/∂θ."""
    parts = [np.ravel(gradients[f]) * (1.0 if f == "Z" else np.ravel(getattr(hyper, f))) for f in learn]
    return np.concatenate(parts) if parts else np.zeros(0)


Derivative = Callable[[Array, Array, Array], float]
"""From dK_ZZ (m, m), dK_XZ (n, m), dk (n,) to the derivative of an objective."""


def each_parameter(
    derivative: Derivative, support: Array, X: Array, hyper: Hyper, fields: Sequence[str]
) -> dict[str, Any]:
    """The derivative in each parameter of the prior, one at a time, from dK_ZZ, dK_XZ and the diagonal dk.

    The jitter is held. In the full model (Z None) support is all inputs, and the noise stands on the diagonal of K_XX:
    an objective of K_XX alone leaves dK_XZ and dk aside.
    """
    kernel = (hyper.variance, hyper.lengthscales)
    n, d = X.shape
    m = len(support)
    full = hyper.Z is None
    still = np.zeros(n)
    results: dict[str, Any] = {}

    if "variance" in fields:
        dK_ZZ, dK_XZ = derivative_variance(support, support, *kernel), derivative_variance(X, support, *kernel)
        results["variance"] = derivative(dK_ZZ, dK_XZ, np.ones(n))
    if "lengthscales" in fields:
        by_ZZ, by_XZ = (derivative_lengthscales(A, support, *kernel) for A in (support, X))
        results["lengthscales"] = np.array([derivative(*each, still) for each in zip(by_ZZ, by_XZ, strict=True)])
    if "noise" in fields:
        dK_ZZ = np.eye(m) if full else np.zeros((m, m))
        results["noise"] = derivative(dK_ZZ, np.zeros((n, m)), np.ones(n))
    if "Z" in fields and not full:
        by_ZZ, by_XZ = derivative_inputs(support, support, *kernel), derivative_inputs(X, support, *kernel)
        d_Z = np.empty((m, d))
        for j in range(d):
            for p in range(m):  # z_pj moves column p of K_XZ, and row and column p of K_ZZ
                dK_XZ, dK_ZZ = np.zeros((n, m)), np.zeros((m, m))
                dK_XZ[:, p] = by_XZ[j][:, p]
                dK_ZZ[:, p] = by_ZZ[j][:, p]
                dK_ZZ[p, :] += by_ZZ[j][:, p]
                d_Z[p, j] = derivative(dK_ZZ, dK_XZ, still)
        results["Z"] = d_Z
    return results


class Maximum(NamedTuple):
    """Where a batch search ended."""

    hyper: Hyper
    trace: Array  # objective after each iteration of the search
    residual: float  # largest entry of the projected gradient in the coordinates
    converged: bool
    iterations: int


def maximise(
    objective: Callable[[Hyper], tuple[float, dict[str, Any]]],
    hyper: Hyper,
    learn: Sequence[str],
    max_iterations: int,
    tolerance: float = 1e-4,
) -> Maximum:
    """L-BFGS-B on the learned coordinates; logarithms move by a factor of 1e4 at most, Z freely.

    A trial point whose K_ZZ is not positive definite counts as far worse than the start: the line search turns back.
    Converged: the projected gradient's largest entry is at most tolerance.
    """
    start = coordinates(hyper, learn)
    reach = np.concatenate([np.full(np.size(getattr(hyper, f)), np.inf if f == "Z" else REACH) for f in learn])

    def at(where: Array) -> tuple[float, Array]:
        there = moved(hyper, learn, where)
        value, gradients = objective(there)
        return value, log_derivatives(there, learn, gradients)

    # the search goes on beyond tolerance until the objective rises by no more than its rounding
    top = _search.maximise(at, start, Limits(1e-7, 1e-13, max_iterations), reach)
    return Maximum(moved(hyper, learn, top.where), top.trace, top.residual, top.residual <= tolerance, top.iterations)


def check_hyper(variance: Any, lengthscales: Any, noise: Any, jitter: Any, Z: Any, d: int) -> Hyper:
    """Checked hyper-parameters for d inputs."""
    return Hyper(
        _check.scalar(variance, "variance", zero_allowed=False),
        _check.positive_vector(lengthscales, "lengthscales", d),
        _check.scalar(noise, "noise", zero_allowed=True),
        _check.scalar(jitter, "jitter", zero_allowed=True),
        None if Z is None else _check.points(Z, "Z", d),
    )
