"""A program of another library behind the door that every implementation has."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.door import catalogue
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution

Array = NDArray[np.float64]

#: Added to matrices where the problem asks for no jitter and the library factorises them without a way around it.
LEAST_JITTER = 1e-12


@dataclass(frozen=True)
class Program:
    """One approximation of one library; calling it solves a problem.

    Parameters
    ----------
    name : str          what tables call it
    library : str       the distribution whose version is told
    module : str        what has to be importable; "" where `present` says whether the program is there
    methods : tuple     the method that it is, by its id in `triad list methods`, or a name of its own
    likelihoods : tuple of those of `Problem`
    points : str        "all rows", "inducing points" or "either"
    run : callable      Problem -> fields of a Solution by name
    note : str          what a reader of its numbers should know
    present : callable  () -> whether the program is there, for programs that are no Python modules
    """

    name: str
    library: str
    module: str
    methods: tuple[str, ...]
    likelihoods: tuple[str, ...]
    points: str
    run: Callable[[Problem], Mapping[str, Any]]
    note: str = ""
    kernels: tuple[str, ...] = ("se",)
    present: Callable[[], bool] | None = None
    release: Callable[[], str] | None = None

    def installed(self) -> bool:
        """Whether the program can be asked here."""
        return self.present() if self.present is not None else importlib.util.find_spec(self.module) is not None

    def version(self) -> str:
        """Of the library, "" where it is not installed."""
        if self.release is not None:
            return self.release()
        try:
            return version(self.library)
        except PackageNotFoundError:
            return ""

    def __call__(self, method: str, problem: Problem, **options: object) -> Solution:
        """What the library says of the problem.

        Raises
        ------
        ValueError             another method, an option
        NotImplementedError    a problem that the library cannot pose
        ModuleNotFoundError    the library is not installed
        """
        if method not in self.methods:
            raise ValueError(f"method: found {shown(method)}, expected one of {', '.join(self.methods)}")
        if options:
            raise ValueError(f"option: found {', '.join(sorted(options))}, expected none")
        if problem.kernel not in self.kernels:
            raise NotImplementedError(f"kernel {problem.kernel}: {self.name} is asked with {', '.join(self.kernels)}")
        if problem.likelihood not in self.likelihoods:
            raise NotImplementedError(f"likelihood {problem.likelihood}: {self.name} has {', '.join(self.likelihoods)}")
        if self.points != catalogue.EITHER and (problem.Z is None) == (self.points == catalogue.INDUCING):
            raise NotImplementedError(f"{self.name} is a prior on {self.points}")
        if not self.installed():
            raise ModuleNotFoundError(f"{self.library}: found it not installed, expected it for {self.name}")
        fields = dict(self.run(problem))
        if fields.get("probabilities") is not None:
            raw = np.asarray(fields["probabilities"], dtype=float)
            mass = raw.sum(axis=1)
            fields |= {"probabilities": raw / mass[:, None], "probability_mass": mass}
        return Solution(
            problem=problem,
            implementation=self.name,
            method=method,
            versions=fields.pop("versions", None) or {self.library: self.version()},
            **fields,
        )


def alike(problem: Problem) -> bool:
    """Whether all latent functions have the same prior."""
    parts = [problem.variance, problem.lengthscales, problem.noise, problem.jitter]
    parts += [] if problem.Z is None else [problem.Z]
    return all(np.array_equal(part, np.broadcast_to(part[:1], part.shape)) for part in parts)


def one_jitter(problem: Problem) -> float:
    """The jitter of all latent functions, at least LEAST_JITTER."""
    if problem.jitter.min() != problem.jitter.max():
        raise NotImplementedError("a jitter for each class")
    return max(float(problem.jitter[0]), LEAST_JITTER)


def no_jitter(problem: Problem) -> None:
    """Refuse a problem whose jitter the library has no place for."""
    if problem.jitter.any():
        raise NotImplementedError("a jitter beside the noise")


def binary(column: Any) -> Array:
    """(t, 2) class probabilities from those of the class 1."""
    p = np.asarray(column, dtype=float).reshape(-1)
    return np.stack([1.0 - p, p], axis=1)


def diagonal(variances: Any) -> Array:
    """(t, L, L) covariances of independent latent values, from variances (t, L)."""
    v = np.asarray(variances, dtype=float)
    return v[:, :, None] * np.eye(v.shape[1])


def no_repeats(problem: Problem) -> None:
    """Refuse noise where a test row equals a row of the data, for libraries whose noise goes by equal rows."""
    if not problem.noise.any() or problem.X_test is None:
        return
    rows = {row.tobytes() for row in problem.X}
    if any(row.tobytes() in rows for row in problem.X_test):
        raise NotImplementedError("noise, and test rows that are data: its kernel could not tell them apart")
