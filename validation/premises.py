"""What two solutions say of how they came about, before any number of theirs is compared.

An iteration that was cut short has no fixed point, two methods need not agree, and two powers of one divergence
should not: none of that shows in the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from validation.solution import Solution

# options by which a run is asked for steps and not for a fixed point
_STEPS = ("n_steps", "batches", "batch_size")

# what a run reports of itself, and what decides only how much of the work is done at a time: never part of the question
_REPORTED = frozenset(
    {"block_size", "diverged", "digits", "evaluations", "gradients", "last_rate", "learning", "max_iterations"}
    | {"memory_budget", "moments", "quadrature_error", "reason", "trace"}
)

# ways to one fixed point: they matter to a run of so many steps, which ends somewhere on the way
_WAYS = frozenset(
    {"accelerate", "damping", "inner", "inner_damping", "inner_schedule", "nat_rate", "optimizer", "rate", "schedule"}
    | {"scheme", "seed", "stop", "window"}
)


class Unfinished(NamedTuple):
    """Which sides did not converge: the largest residual with its tolerance (NaN where unsaid), and the whole text."""

    residual: float
    tolerance: float
    why: str


def asked_for_steps(solution: Solution) -> bool:
    """Whether the settings say that a number of steps was asked for: such a run claims no fixed point."""
    return any(solution.settings.get(name) is not None for name in _STEPS)


def unfinished(*sides: Solution) -> Unfinished | None:
    """The sides that were asked for a fixed point and say that they did not reach it; None if there is none."""
    found = [side for side in sides if not side.converged and not asked_for_steps(side)]
    if not found:
        return None
    # a run may stop for another reason than its residual; only a residual above the tolerance explains anything
    known = [(side.residual, _tolerance(side)) for side in found if side.residual is not None]
    residual, tolerance = max(known, default=(np.nan, np.nan))
    told = " and ".join(_described(side) for side in found)
    why = f"{told}: an iteration that did not converge has no fixed point (max_iterations sets how far it may go)"
    return Unfinished(residual, tolerance if residual > tolerance else np.nan, why)


def _described(side: Solution) -> str:
    after = f" after {side.iterations} iterations" if side.iterations else ""
    left = "" if side.residual is None else f" at a residual of {side.residual:.2g}"
    reason = side.settings.get("reason")
    return f"{side.label} not converged{after}{left}" + (f" ({reason})" if reason else "")


def _tolerance(side: Solution) -> float:
    value = side.settings.get("tolerance")
    return float(value) if isinstance(value, (int, float)) else np.nan


def different_settings(left: Solution, right: Solution) -> str:
    """Settings that both sides state, that matter, and that differ, as 'alpha 0.5 and 1.0'; empty if there are none.

    A setting that one side alone states is no difference: witnesses state what they have a choice in.
    """
    ignored = _REPORTED
    if not (asked_for_steps(left) or asked_for_steps(right)):
        ignored |= _WAYS
    return ", ".join(
        f"{name} {a} and {b}" for name, a, b in _both(left.settings, right.settings) if name not in ignored and a != b
    )


def _both(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(set(left) & set(right)):
        a, b = left[name], right[name]
        if name == "learn":  # a name stands for itself, and the order of several says nothing
            a, b = (sorted({entry} if isinstance(entry, str) else set(entry or ())) for entry in (a, b))
        yield name, a, b
