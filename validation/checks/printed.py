"""What the checks of kind `print` answer: a printed equation that holds on `fast`'s quantities, or misses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from validation.checks.core import Compared, Outcome
from validation.compare import relative_difference

EXACT = 1e-8


def held(
    name: str, printed: Any, expected: Any, by: str, floor: float = 0.0, limit: float = EXACT, because: str = ""
) -> Compared:
    """A printed equation against its definition.

    name : str          where the paper prints it
    printed, expected   value of the equation, and what it must be
    by : str            what the expected value comes from
    floor : float       size against which a difference is measured at least, where the value nearly vanishes
    limit : float       1e-8, or another with its reason in `because`
    """
    reason = because or "closed forms on one fixed point, known to 1e-10; 1e-8 is where a missing term shows"
    return Compared(
        relative_difference(printed, expected, floor),
        limit,
        f"{name}: {by}; {reason}",
        f"printed {name}",
        by,
        f"relative difference of {name}",
    )


def missed(name: str, printed: float, right: float, excess: float, corrected: float) -> Iterable[Outcome]:
    """A misprint: as printed it misses the right value by the terms that it moves, corrected it meets it.

    printed, corrected : float    both forms
    right : float                 the right value
    excess : float                what the misprint adds
    """
    yield held(f"{name}, corrected", corrected, right, "the right value")
    yield held(f"{name}, as printed", printed, right + excess, "the right value and what the misprint adds")
    yield Compared(
        0.05 / max(relative_difference(printed, right), 1e-300),
        1.0,
        f"{name} as printed must miss: by 5 % at least, a million times the limit of what holds",
        f"printed {name}",
        "the right value",
        "5 % over the relative difference",
    )
