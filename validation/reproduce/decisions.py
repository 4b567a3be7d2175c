"""What a paper says of an experiment in words, with a number on either side and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from validation.claims.verdict import holds, smaller
from validation.reproduce.experiment import Table

TABLE = "claims"  # by this name an outcome has them, and `triad reproduce --record` keeps them
COLUMNS = ("claim", "compared", "observed", "limit", "verdict")


class Decided(NamedTuple):
    """A claim of the paper, what was compared, and whether it holds; a claim may have several."""

    claim: str  # its id in the inventory
    compared: str
    observed: float
    limit: float
    held: bool | None  # None: the numbers are not there


def below(claim: str, compared: str, observed: float, limit: float) -> Decided:
    """That a number is smaller than another; nothing is decided where one is none."""
    known = bool(np.isfinite(observed) and np.isfinite(limit))
    return Decided(claim, compared, float(observed), float(limit), bool(observed < limit) if known else None)


def above(claim: str, compared: str, observed: float, limit: float) -> Decided:
    """That a number is larger than another; nothing is decided where one is none."""
    known = bool(np.isfinite(observed) and np.isfinite(limit))
    return Decided(claim, compared, float(observed), float(limit), bool(observed > limit) if known else None)


def surely(claim: str, compared: str, left: Sequence[float], right: Sequence[float], margin: float = 0.0) -> Decided:
    """That left is below right + margin on average over repetitions, at 95 %; open where neither order is certain."""
    told = smaller(left, right, margin)
    return Decided(claim, f"{compared}: mean difference, below zero at 95 %", told.bound, 0.0, told.holds)


def figure(claim: str, of: Iterable[Decided]) -> Decided:
    """A figure without printed numbers: it is reproduced where everything holds that the text says of it."""
    listed = list(of)
    failed = sum(one.held is not None and not one.held for one in listed)
    held = None if not failed and any(one.held is None for one in listed) else not failed
    return Decided(claim, f"of {len(listed)} comparisons that the text makes of it: do not hold", failed, 0.0, held)


def table(decided: Iterable[Decided], text: str) -> Table:
    """The table of an outcome."""
    rows = tuple((one.claim, one.compared, one.observed, one.limit, holds(one.held)) for one in decided)
    return Table(TABLE, COLUMNS, rows, text)
