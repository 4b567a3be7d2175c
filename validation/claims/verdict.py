"""How claims are decided: the one rule for printed numbers and the one for sentences and figures.

A printed number p with standard error s_p and unit u of its last digit is compared with our mean o of r repetitions
and its standard error s. Rounding leaves the number open by a uniform distribution of one unit, and the error bar
likewise, which matters where "± 0.00" is printed. The half width of the comparison is

    h = t sqrt(s² + s_p² + u²/12),

with t the quantile of Student's distribution that covers as much as three standard deviations of a Gaussian; its
degrees of freedom are those of Welch and Satterthwaite, from r - 1 of ours and the paper's own. |o - p| > h: the
numbers differ. Otherwise they agree, and the comparison has resolved something only if no other printed value of the
same row, which is another method's, would have agreed as well.

A run that is not the registered protocol's decides nothing: `validation.claims.protocol` says which are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from validation.claims.inventory import (
    CONSISTENT,
    DIFFERS,
    OPEN,
    REDUCED,
    REPRODUCED,
    STANDARD_DEVIATION,
    Claim,
)
from validation.door.quoting import shown

CONFIDENCE = 0.95  # of an inequality, one-sided
COVERAGE = float(2.0 * norm.cdf(3.0) - 1.0)  # of a half width
LEAST = 5  # repetitions below which nothing is decided
HOLDS, FAILS, UNCERTAIN = "holds", "fails", "uncertain"  # what a compared row of a result says


class Evidence(NamedTuple):
    """Our number beside a printed one.

    value, error    mean and its standard error
    repetitions     that they are taken over
    reading         how the run departs from the registered protocol where the paper is silent, or which gate it failed
    smaller         how the run is below the size or length that the paper prints
    """

    value: float
    error: float
    repetitions: int
    reading: str = ""
    smaller: str = ""


class Row(NamedTuple):
    """One comparison behind a sentence: whether it holds, and over how many repetitions its interval was taken."""

    held: bool | None  # None: neither it nor its opposite is certain
    repetitions: int  # 0: no interval


class Comparison(NamedTuple):
    """An inequality "left is smaller than right" as repetitions show it."""

    mean: float  # of left - right
    error: float  # standard error of it
    bound: float  # upper end of the one-sided interval of the mean
    holds: bool | None  # None: neither it nor its opposite is certain enough

    @property
    def words(self) -> str:
        """Numbers and confidence, for the key `test` of a claim."""
        return f"difference {self.mean:.3g} ± {self.error:.2g}, upper end {self.bound:.3g} at {CONFIDENCE:.0%}"


# -- printed numbers -------------------------------------------------------------------------------------------------


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


def half_width(claim: Claim, error: float, repetitions: int) -> float:
    """How far our number may be from the printed one and still agree; infinite for a single repetition."""
    if repetitions < 2:
        return math.inf
    theirs, rounding = printed_error(claim), (claim.unit or 0.0) / math.sqrt(12.0)
    total = math.hypot(error, theirs, rounding)
    if total == 0.0:
        return 0.0
    # the paper's own degrees of freedom are those of its repetitions; unknown ones count as many
    spent = (error / total) ** 4 / (repetitions - 1)
    if claim.repeats is not None and claim.repeats > 1:
        spent += (theirs / total) ** 4 / (claim.repeats - 1)
    freedom = 1.0 / spent if spent > 0.0 else math.inf
    quantile = 0.5 + 0.5 * COVERAGE
    return total * float(student.ppf(quantile, freedom) if math.isfinite(freedom) else norm.ppf(quantile))


def decided(claim: Claim, evidence: Evidence, others: Sequence[float], command: str, *, result: str = "") -> Claim:
    """The claim with our number, its resolution, and the state that follows.

    Parameters
    ----------
    claim : Claim             open, with a printed number
    evidence : Evidence       ours
    others : floats           what the paper prints in the same row for other methods
    command, result : str     that make the number again, and the file that holds it

    Raises
    ------
    ValueError                for a claim that is decided or has no printed number, for numbers that are not finite, for
                              an error below zero
    """
    if claim.state != OPEN:
        raise ValueError(f"claim: found {claim.address} in the state {shown(claim.state)}, expected an open one")
    ours, error = evidence.value, evidence.error
    if not (math.isfinite(ours) and math.isfinite(error) and error >= 0.0):
        raise ValueError(f"ours: found {shown(ours)} ± {shown(error)}, expected finite numbers, the error not below 0")
    reach = half_width(claim, error, evidence.repetitions)
    assert claim.printed is not None  # half_width has refused it
    passing = sum(abs(ours - other) <= reach for other in others)
    state, reason = OPEN, ""
    if evidence.reading:
        reason = evidence.reading
    elif evidence.smaller:
        state, reason = REDUCED, evidence.smaller
    elif evidence.repetitions < LEAST:
        reason = f"{evidence.repetitions} repetitions, fewer than the {LEAST} below which nothing is decided"
    elif abs(ours - claim.printed) > reach:
        state = DIFFERS
    else:
        state = REPRODUCED if others and not passing else CONSISTENT
    return replace(
        claim, state=state, ours=ours, ours_error=error, repetitions=evidence.repetitions,
        half_width=reach if math.isfinite(reach) else None, passing=passing, others=len(others),
        departure="; ".join(filter(None, (evidence.reading, evidence.smaller))),
        command=command, reason=reason, result=result,
    )  # fmt: skip


# -- sentences and figures -------------------------------------------------------------------------------------------


def stated(rows: Iterable[Row], *, reading: str = "", smaller: str = "", exact: bool = False) -> str:
    """State of a sentence or figure that the rows of a result speak of; all of them have to hold.

    Parameters
    ----------
    rows                what was compared
    reading, smaller    as of `Evidence`
    exact : bool        for mathematics and counts, which need no repetitions
    """
    listed = list(rows)
    if not listed:
        raise ValueError("rows: found none, expected what was compared")
    if reading:
        return OPEN
    if smaller:
        return REDUCED
    certain = [row.held if exact or row.repetitions >= LEAST else None for row in listed]
    if any(held is False for held in certain):
        return DIFFERS
    return REPRODUCED if all(certain) else OPEN


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


def holds(statement: bool | np.bool_ | None) -> str:
    """Whether a comparison holds, in the word that results have for it."""
    if statement is None:
        return UNCERTAIN
    return HOLDS if statement else FAILS


def as_printed(ours: float | None, printed: float | None) -> str:
    """The same of a count, which is the printed one or is not."""
    return UNCERTAIN if ours is None or printed is None or math.isnan(ours) else holds(ours == printed)


# -- many cells together ---------------------------------------------------------------------------------------------


class Pool(NamedTuple):
    """Cells of one data set or method: how many of our numbers are below and above print."""

    name: str
    below: int
    above: int
    p: float  # two-sided sign test, as if cells were independent, which those of one split are not


def pooled(pairs: Iterable[tuple[str, float, float]]) -> list[Pool]:
    """Sign tests of (name, ours, printed) by name; equal numbers count for neither side."""
    groups: dict[str, list[float]] = {}
    for name, ours, printed in pairs:
        groups.setdefault(name, []).append(ours - printed)
    result = []
    for name, gaps in groups.items():
        below, above = sum(gap < 0.0 for gap in gaps), sum(gap > 0.0 for gap in gaps)
        p = float(binomtest(below, below + above).pvalue) if below + above else 1.0
        result.append(Pool(name, below, above, p))
    return result
