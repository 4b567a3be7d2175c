"""What the checks of kind `print` answer: a printed equation that holds on `fast`'s quantities, or misses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from validation.checks.core import Compared
from validation.judge.compare import relative_difference

EXACT = 1e-8
_BECAUSE = "closed forms on one fixed point, known to 1e-10; 1e-8 is where a missing term shows"


def held(
    name: str, printed: Any, expected: Any, by: str, *, floor: float = 0.0, limit: float = EXACT, because: str = ""
) -> Compared:
    """A printed equation against its definition.

    name : str          where the paper prints it
    printed, expected   value of the equation, and what it must be; arrays of two shapes are infinitely apart
    by : str            what the expected value comes from
    floor : float       size against which a difference is measured at least, where the value nearly vanishes
    limit : float       1e-8, or another with its reason in `because`
    """
    return Compared(
        relative_difference(printed, expected, floor) if np.shape(printed) == np.shape(expected) else np.inf,
        limit,
        f"{name}: {by}; {because or _BECAUSE}",
        f"printed {name}",
        by,
        f"relative difference of {name}",
    )


def misprint(
    name: str, printed: Any, read: Any, right: Any, margin: float, *, floor: float = 0.0
) -> Iterable[Compared]:
    """A misprint: as printed it is what the judge reads in it, and off the right value by more than the margin.

    printed, read : array    the form as printed, and what it says to the judge's eye
    right : array            the right value
    margin : float           relative difference below which the print would be right
    floor : float            of the first of the two comparisons, as for `held`
    """
    yield held(f"{name}, as printed", printed, read, "the judge's reading of the misprint", floor=floor)
    off = relative_difference(printed, right)
    yield Compared(
        margin / off if off > 0.0 else np.inf,
        1.0,
        f"{name} as printed must miss: by {margin:g} at least, a million times the limit; found {off:.2g}",
        f"printed {name}",
        "the right value",
        f"{margin:g} over the relative difference",
    )


def missed(name: str, printed: float, right: float, excess: float, corrected: float) -> Iterable[Compared]:
    """A misprint beside its correction: as printed it misses by the terms that it moves, corrected it holds.

    printed, corrected : float    both forms
    right : float                 the right value
    excess : float                what the misprint adds
    """
    yield held(f"{name}, corrected", corrected, right, "the right value")
    yield from misprint(name, printed, right + excess, right, 0.05)
