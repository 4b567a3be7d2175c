"""Averages that are on record for printed tables, and what a paper says of the tables as a whole."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.reproduce.decisions import Decided, surely

Array = NDArray[np.float64]
_QUANTILE = 1.645  # one-sided, 95 %


class Average(NamedTuple):
    """A mean over repetitions and its standard error."""

    value: float
    error: float
    repetitions: int


Averages = Mapping[tuple[str, str, str, str], Average]  # by data set, M, method and score


def recorded(name: str) -> Averages:
    """The averages of a result of `validation.claims.results` with the columns data, M, method, score, here and ±."""
    text = (files("validation.claims") / "results" / f"{name}.csv").read_text(encoding="utf-8")
    return {
        (row["data"], row["M"], row["method"], row["score"]): Average(
            float(row["here"]), float(row["±"] or np.nan), int(row["repetitions"])
        )
        for row in csv.DictReader(io.StringIO(text))
    }


def pairs(averages: Averages, left: str, right: str, score: str, blocks: Iterable[str]) -> tuple[Array, Array]:
    """Values of two methods on every data set and block that has both."""
    asked = tuple(blocks)
    result = [
        (averages[data, M, left, score].value, averages[data, M, right, score].value)
        for data, M, method, of in sorted(averages)
        if (method, of) == (left, score) and M in asked and (data, M, right, score) in averages
    ]
    table = np.array(result, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def alike(claim: str, compared: str, left: Sequence[float], right: Sequence[float], margin: float) -> list[Decided]:
    """That the mean difference over data sets is inside the margin on both sides, each at 95 %."""
    return [
        surely(claim, f"{compared}, less {margin:g}", left, right, margin),
        surely(claim, f"{compared}, sign changed, less {margin:g}", right, left, margin),
    ]


def larger_by(claim: str, compared: str, left: Average, right: Average, least: float) -> Decided:
    """That left is above right by more than a number at 95 %, from both standard errors; open where neither is sure."""
    gap, error = left.value - right.value, float(np.hypot(left.error, right.error))
    low, high = gap - _QUANTILE * error, gap + _QUANTILE * error
    held = True if low > least else False if high < least else None
    repetitions = min(left.repetitions, right.repetitions)
    return Decided(claim, f"{compared}: difference, lower end at 95 %", low, least, held, repetitions)
