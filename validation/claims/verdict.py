"""How a claim is decided: z of a cell against what is printed, and an inequality with 95 % confidence.

A cell is printed with an error bar and to so many digits. Rounding leaves the value open by a uniform distribution of
one unit of its last digit, and the error bar likewise, which matters where "± 0.00" is printed. A standard deviation
over repetitions becomes a standard error by their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from validation.claims.inventory import DIFFERS, OPEN, REPRODUCED, STANDARD_DEVIATION, UNDECIDABLE, Z_LIMIT, Claim
from validation.door.quoting import shown

CONFIDENCE = 0.95

# of a table that sets our numbers beside printed ones
COLUMNS = ("z", "verdict")


class Comparison(NamedTuple):
    """An inequality "left is smaller than right" as repetitions tell it."""

    mean: float  # of left - right
    error: float  # standard error of it
    bound: float  # upper end of the one-sided interval of the mean
    holds: bool | None  # None: neither it nor its opposite is certain enough

    @property
    def words(self) -> str:
        """Numbers and confidence, for the key `test` of a claim."""
        return f"difference {self.mean:.3g} ± {self.error:.2g}, upper end {self.bound:.3g} at {CONFIDENCE:.0%}"


def printed_error(claim: Claim) -> float:
    """Standard error of a printed number, the rounding of the error bar included and that of the number left out.

    Raises
    ------
    ValueError    for a claim without a printed number
    """
    if claim.printed is None:
        raise ValueError(f"claim: found {claim.address} without a printed number, expected one")
    if claim.printed_error is None:
        return 0.0
    scale = 1.0 / math.sqrt(claim.repeats or 1) if claim.spread == STANDARD_DEVIATION else 1.0
    return scale * math.hypot(claim.printed_error, (claim.unit or 0.0) / math.sqrt(12.0))


def decided(claim: Claim, ours: float, ours_error: float, command: str, *, reason: str = "", result: str = "") -> Claim:
    """The claim with our number beside the printed one: z, and the state that follows from it.

    Parameters
    ----------
    claim : Claim             open, with a printed number
    ours, ours_error : float  our number and its standard error, zero for a count
    command : str             that makes it again
    reason : str              why it differs; needed if it does
    result : str              file that holds it

    Raises
    ------
    ValueError                for a claim that is decided or has no printed number, for numbers that are not finite, for
                              an error below zero, or for a difference without a reason
    """
    if claim.state != OPEN:
        raise ValueError(f"claim: found {claim.address} in the state {shown(claim.state)}, expected an open one")
    if not (math.isfinite(ours) and math.isfinite(ours_error) and ours_error >= 0.0):
        given = f"{shown(ours)} ± {shown(ours_error)}"
        raise ValueError(f"ours: found {given}, expected finite numbers, the error not below zero")
    error = printed_error(claim)
    assert claim.printed is not None
    exact = ours_error == 0.0 and error == 0.0 and not claim.unit
    if exact:
        z = 0.0 if ours == claim.printed else math.copysign(math.inf, ours - claim.printed)
    else:
        z = z_of(ours, ours_error, claim.printed, error, claim.unit or 0.0)
    state = verdict(z)
    if state != verdict(0.0) and not reason:
        raise ValueError(f"reason: found none for {claim.address} with z = {z:.3g}, expected why it differs")
    return replace(
        claim, state=state, ours=ours, ours_error=ours_error, z=z, command=command, reason=reason, result=result
    )


def smaller(left: Sequence[float], right: Sequence[float], margin: float = 0.0) -> Comparison:
    """Whether left is below right + margin on average, from pairs of repetitions, by Student's t at 95 %, one-sided.

    Parameters
    ----------
    left, right : (r,)    paired by repetition (the same split, seed or fold), r >= 2
    margin : float        by which left may be above right

    Raises
    ------
    ValueError            for fewer than two pairs, for unequal lengths, or for numbers that are not finite
    """
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or a.size < 2:
        raise ValueError(f"right: found shapes {a.shape} and {b.shape}, expected two or more pairs of repetitions")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("left: found numbers that are not finite, expected repetitions that ended")
    difference = a - b - margin
    mean, error = float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(a.size))
    reach = float(student.ppf(CONFIDENCE, a.size - 1)) * error
    holds = True if mean + reach < 0.0 else False if mean - reach > 0.0 else None
    return Comparison(mean, error, mean + reach, holds)


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
