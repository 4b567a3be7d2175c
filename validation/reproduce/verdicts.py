"""What a number of ours says of a printed one: the z column of tables, and the verdict that goes with it."""

from __future__ import annotations

import numpy as np

from validation.claims.inventory import DIFFERS, REPRODUCED, UNDECIDABLE, Z_LIMIT

COLUMNS = ("z", "verdict")


def z_of(ours: float, ours_error: float, printed: float, printed_error: float, unit: float) -> float:
    """(ours - printed) over the root of both squared errors and of the variance unit²/12 that rounding leaves open.

    Parameters
    ----------
    ours, ours_error : float          our number and its standard error, zero for a count
    printed, printed_error : float    likewise of the paper; zero where it prints none
    unit : float                      of the last digit printed, > 0
    """
    return float((ours - printed) / np.sqrt(ours_error**2 + printed_error**2 + unit**2 / 12.0))


def verdict(z: float | None) -> str:
    """In the words of the claims: reproduced up to |z| = 3, else differs; not decidable here without a number."""
    if z is None or np.isnan(z):
        return UNDECIDABLE
    return REPRODUCED if abs(z) <= Z_LIMIT else DIFFERS


def holds(statement: bool | np.bool_ | None) -> str:
    """The same of an inequality."""
    if statement is None:
        return UNDECIDABLE
    return REPRODUCED if statement else DIFFERS
