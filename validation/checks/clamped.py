"""A quantity asked for outside its bound, and how far what comes is from the value on the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from validation.checks.core import Compared, Outcome

OUTSIDE = 1e-10  # far above the rounding of a few sums of numbers of size one, far below what is refused (1e-8)


class Bound(NamedTuple):
    """A quantity that is asked for outside its bound, and the value on the bound."""

    what: str
    ask: Callable[[], Any]
    wanted: Any
    limit: float = 0.0


def held(rows: Iterable[Bound], witness: str) -> Iterable[Outcome]:
    """The largest distance from the bound, and NaN, with which nothing passes, after a root of less than zero."""
    for row in rows:
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.asarray(row.ask(), dtype=np.float64)
        gap = float(np.abs(value - row.wanted).max())
        yield Compared(gap, row.limit, f"{row.what}: on its bound", witness, "definition", "distance from the bound")
