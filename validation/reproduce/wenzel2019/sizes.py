"""wenzel2019, Table 1, column Dataset: rows and inputs of the thirteen data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from validation.datasets import load
from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.reproduce import sizes
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.published import published


def different_rows(data: Dataset) -> int:
    """Rows of which none, its label included, repeats another."""
    return len(np.unique(np.column_stack([data.X, data.y]), axis=0))


def model_matrix_columns(data: Dataset, numbers: Sequence[int]) -> int:
    """Columns of a model matrix: a constant, the inputs at `numbers`, and of each other one less than it has values."""
    categories = [j for j in range(data.d) if j not in numbers]
    return 1 + len(numbers) + sum(len(np.unique(data.X[:, j])) - 1 for j in categories)


def last_pixel(data: Dataset) -> int:
    """Place, from 1, of the last input that is ever other than nought: the inputs of a file that leaves noughts out."""
    return int(np.flatnonzero((data.X != 0.0).any(axis=0))[-1]) + 1


class Part(NamedTuple):
    """What of a set of Table 1 is counted, and how."""

    row: str  # as printed
    data: str  # of `triad list data`
    counts: Mapping[str, Callable[[Dataset], int]]  # "n", "d" -> count


def _inputs(data: Dataset) -> int:
    return data.d


def _bank(data: Dataset) -> int:
    # age, balance, day, duration, campaign, pdays, previous: the order of the UCI file
    return model_matrix_columns(data, (0, 5, 9, 11, 12, 13, 14))


def _plain(row: str, data: str, inputs: Callable[[Dataset], int] = _inputs) -> Part:
    return Part(row, data, MappingProxyType({"n": different_rows, "d": inputs}))


PARTS = (
    _plain("aXa", "a9a"),
    _plain("Bank Market.", "bank", _bank),
    _plain("Click Pred.", "click_prediction"),
    # its rows are those of three parts, of which two are at hand
    Part("Cod RNA", "cod_rna", MappingProxyType({"d": _inputs})),
    Part("Cod RNA", "cod_rna_r", MappingProxyType({"n": different_rows})),
    _plain("Diabetes", "pima"),
    _plain("Electricity", "electricity"),
    _plain("German", "german20"),
    _plain("Higgs", "higgs"),
    _plain("IJCNN", "ijcnn1"),
    Part("Mnist", "mnist", MappingProxyType({"n": lambda data: data.n, "d": last_pixel})),
    _plain("Shuttle", "shuttle"),
    _plain("SUSY", "susy"),
    _plain("wXa", "wxa"),
)
_NAMES = tuple(part.data for part in PARTS)


@dataclass(frozen=True, kw_only=True)
class SizesOptions:
    """Options of `sizes_of_table1`."""

    datasets: Sequence[str] = _NAMES


@experiment(
    "wenzel2019",
    "sizes",
    "rows and inputs of the thirteen data sets",
    "rows and inputs of thirteen data sets, 768 to 11 million rows (Table 1, column Dataset)",
)
def sizes_of_table1(asked: SizesOptions, say: Say) -> Outcome:
    """Counts of what `triad list data` has: rows without their repeats, inputs as the notes say."""
    for name in asked.datasets:
        arguments.choice(name, _NAMES, "datasets")
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in published("wenzel2019", "table1")["row"]}
    parts = {part.data: part for part in PARTS if part.data in asked.datasets}
    printed = {name: {quantity: rows[part.row][quantity] for quantity in part.counts} for name, part in parts.items()}
    return sizes.compare(
        "sizes",
        "Rows and inputs, here and in the paper's Table 1",
        printed,
        load,
        lambda name, data: {quantity: count(data) for quantity, count in parts[name].counts.items()},
        notes=(
            "rows: those that repeat another, label included, are left out; of those counted whole a9a alone has some, "
            "11868 of 48842, and what is left is the printed number",
            "bank: seven numbers, 35 columns of nine categoricals, each with one less than it has values, a constant: "
            "43; without the constant 42, with a column for every value 51, with one number a categorical 16",
            "mnist: a file that leaves noughts out ends with the last pixel that is ever other than nought",
            "cod_rna: the paper's rows need its third part, cod_rna_r; those at hand have 257491 different ones",
        ),
        say=say,
    )
