"""Outcomes that many checks share: quantities side by side, and runs that did not converge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from validation.checks.core import Compared
from validation.door.solution import Solution
from validation.judge.compare import gradient_difference, relative_difference


def apart(
    pairs: Mapping[str, tuple[Any, Any]],
    limit: float,
    why: str,
    left: str,
    right: str = "definition",
    *,
    floor: float = 0.0,
) -> Iterable[Compared]:
    """Several quantities at once; what a side lacks, or has in another shape, is as far apart as can be.

    pairs : mapping        name to both values
    limit, why             of all of them
    left, right : str      who is compared with whom
    floor : float          size against which differences are measured at least, where a value can vanish by symmetry
    """
    for name, (a, b) in pairs.items():
        comparable = a is not None and b is not None and np.shape(a) == np.shape(b)
        yield Compared(
            relative_difference(a, b, floor) if comparable else np.inf,
            limit,
            f"{name}: {why}",
            left,
            right,
            f"relative difference of {name}",
        )


def fields(left: Any, right: Any, names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Attributes of two solutions or problems, by name."""
    return {name: (getattr(left, name), getattr(right, name)) for name in names}


def gradients_apart(left: Solution, right: Solution, name: str, limit: float, why: str) -> Compared:
    """One derivative of two solutions, by its unit; terms of 1 % of log Z and more cancel."""
    return Compared(
        gradient_difference(left, right, name),
        limit,
        f"gradient in {name}; {why}",
        left.label,
        right.label,
        f"relative difference of the gradient in {name}",
    )


def unconverged(solutions: Iterable[Solution], *, valued: bool = False) -> Iterable[Compared]:
    """A red outcome for each run that has not converged, or has no log evidence where it is to be `valued`."""
    for solution in solutions:
        if not solution.converged or (valued and solution.log_evidence is None):
            yield Compared(np.inf, 0.0, "an iteration that did not converge has no fixed point", solution.label, "-")
