"""What checks of printed equations share: an equation that must hold, and a misprint that must not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from validation.checks.core import Compared
from validation.compare import relative_difference


def holds(equation: str, found: Any, expected: Any, right: str, limit: float = 1e-8, why: str = "") -> Compared:
    """The equation's value is `expected`, of `right`, to an identity's limit, or to one that `why` explains."""
    return Compared(
        relative_difference(found, expected),
        limit,
        f"{equation}: {why or 'one value by two roads in double precision, at a fixed point known to 1e-10'}",
        f"reference, {equation}",
        right,
    )


def misprint(equation: str, printed: Any, read: Any, right: Any, margin: float) -> Iterable[Compared]:
    """The form as printed is what the judge reads in it, and is off the right value by more than the margin."""
    yield holds(f"{equation} as printed", printed, read, "the judge's reading of the misprint")
    off = relative_difference(printed, right)
    yield Compared(
        margin / off if off > 0.0 else np.inf,
        1.0,
        f"{equation} as printed: off by {off:.3g} of the right value, of which less than {margin:g} would say that "
        "the print is right",
        f"reference, {equation} as printed",
        "the right value",
        "margin over relative difference",
    )
