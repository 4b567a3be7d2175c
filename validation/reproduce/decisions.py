"""What a paper says of an experiment in words, with a number on either side and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from validation.claims.verdict import holds, smaller
from validation.reproduce.experiment import Table

TABLE = "claims"  # by this name an outcome has them, and `make record` keeps them
COLUMNS = ("claim", "compared", "observed", "limit", "verdict", "repetitions")


class Decided(NamedTuple):
    """A claim of the paper, what was compared, and whether it holds; a claim may have several."""

    claim: str  # its id in the inventory
    compared: str
    observed: float
    limit: float
    held: bool | None  # None: the numbers are not there, or neither side is certain
    repetitions: int = 0  # that its interval is taken over; 0: no interval, so that a sentence stays open


def below(claim: str, compared: str, observed: float, limit: float, repetitions: int = 0) -> Decided:
    """That a number is smaller than another; nothing is decided where one is none."""
    known = bool(np.isfinite(observed) and np.isfinite(limit))
    held = bool(observed < limit) if known else None
    return Decided(claim, compared, float(observed), float(limit), held, repetitions)


def above(claim: str, compared: str, observed: float, limit: float, repetitions: int = 0) -> Decided:
    """That a number is larger than another; nothing is decided where one is none."""
    known = bool(np.isfinite(observed) and np.isfinite(limit))
    held = bool(observed > limit) if known else None
    return Decided(claim, compared, float(observed), float(limit), held, repetitions)


def alike(claim: str, compared: str, interval: tuple[float, float], margin: float, repetitions: int) -> Decided:
    """That an interval of a difference is inside a margin on both sides; it fails where it is outside.

    An interval that holds zero is no proof that there is no difference.
    """
    low, high = interval
    held = True if -margin < low and high < margin else False if low > margin or high < -margin else None
    reach = float(max(-low, high))
    return Decided(
        claim, f"{compared}: farther end of the interval of the difference", reach, margin, held, repetitions
    )


def surely(claim: str, compared: str, left: Sequence[float], right: Sequence[float], margin: float = 0.0) -> Decided:
    """That left is below right + margin on average over repetitions, at 95 %; open where neither order is certain."""
    told = smaller(left, right, margin)
    text = f"{compared}: mean difference, below zero at 95 %"
    return Decided(claim, text, told.bound, 0.0, told.holds, len(left))


def figure(claim: str, of: Iterable[Decided]) -> Decided:
    """A figure without printed numbers: it is reproduced where everything holds that the text says of it."""
    listed = list(of)
    failed = sum(one.held is not None and not one.held for one in listed)
    held = None if not failed and any(one.held is None for one in listed) else not failed
    text = f"of {len(listed)} comparisons that the text makes of it: do not hold"
    return Decided(claim, text, failed, 0.0, held, min((one.repetitions for one in listed), default=0))


def table(decided: Iterable[Decided], text: str) -> Table:
    """The table of an outcome."""
    rows = tuple(
        (one.claim, one.compared, one.observed, one.limit, holds(one.held), one.repetitions) for one in decided
    )
    return Table(TABLE, COLUMNS, rows, text)
