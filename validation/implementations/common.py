"""What the adapters share: refusals before any work, and shapes of binary problems."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.door import arguments
from validation.door.options import checked
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.witness import Adapter


def dispatcher(
    witness: str, package: str, adapters: Mapping[str, Sequence[str]], threads: Callable[..., Any] | None = None
) -> Callable[..., Solution]:
    """answer(method, problem, **options) of a witness, from the TABLEs of the modules of its package.

    threads: method, problem and options -> a block of the witness with the threads that suit the run.

    adapters: module -> the methods of its TABLE. A module is imported when one of its methods is asked: all of them
    take a second. Options are checked by name and value before any work. Raises ValueError if two modules claim one
    method.
    """
    home: dict[str, str] = {}
    for name, methods in adapters.items():
        for method in methods:
            if method in home:
                raise ValueError(f"{package}.{name}: found {shown(method)} a second time, expected each method once")
            home[method] = name

    def entry(method: str) -> Any:
        return importlib.import_module(f"{package}.{home[method]}").TABLE[method]

    def answer(method: str, problem: Problem, **options: Any) -> Solution:
        given = checked(witness, method, options, problem.n)
        asked = entry(method)
        if isinstance(asked, Adapter):
            return asked.answer(f"{witness} {method}", method, problem, given)
        return asked(problem, **given)

    def options(method: str) -> Mapping[str, Any]:
        asked = entry(method)
        if isinstance(asked, Adapter):
            return asked.row
        row: Mapping[str, Any] = importlib.import_module(f"{witness}.core.options").METHODS[method]
        return row

    answer.options = options  # type: ignore[attr-defined]
    if threads is not None:
        answer.threads = threads  # type: ignore[attr-defined]
    answer.methods = tuple(home)  # type: ignore[attr-defined]
    answer.__module__ = package
    return answer


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A covariance matrix of the judge's own without a Cholesky factor: says which, and what would help."""


def cholesky(K: NDArray[np.float64], name: str, remedy: str) -> NDArray[np.float64]:
    """Lower factor of K, or an error that names the matrix and what would help."""
    try:
        return np.asarray(np.linalg.cholesky(K), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        smallest = np.linalg.eigvalsh(K)[0]
        raise NotPositiveDefiniteError(
            f"{name} {K.shape}: found smallest eigenvalue {smallest:.3g}, expected > 0; {remedy}"
        ) from error


def refuse_learning(learn: Sequence[str], optimizer: Any, stochastic: bool) -> None:
    """L-BFGS-B takes all data, Adam mini-batches; None leaves the choice to that."""
    if optimizer is None:
        return
    arguments.choice(optimizer, ("adam", "lbfgs"), "optimizer")
    if learn and optimizer == "adam" and not stochastic:
        raise ValueError("optimizer: found 'adam' without batches, expected batch_size or batches, or 'lbfgs'")
    if learn and optimizer == "lbfgs" and stochastic:
        raise ValueError("optimizer: found 'lbfgs' with batches, expected 'adam'")


def finite_or_none(value: float) -> float | None:
    """A stopping rule's last value; none where there was no second iteration to compare with."""
    return float(value) if np.isfinite(value) else None


def two_columns(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """(t, 2) from p(y = 1)."""
    return np.stack([1.0 - probability, probability], axis=1)


def binary_gradients(value: Any) -> dict[str, NDArray[np.float64]]:
    """Gradients of a one-latent method in the shapes of a Solution."""
    gradients = {
        "variance": np.atleast_1d(value.variance),
        "lengthscales": np.asarray(value.lengthscales)[None],
        "noise": np.atleast_1d(value.noise),
    }
    if value.Z is not None:
        gradients["Z"] = np.asarray(value.Z)[None]
    return gradients
