"""What is known of each data set before it is read: the shipped table `expected.toml`."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from validation.datasets.errors import DatasetCorruptError
from validation.door.quoting import shown


@dataclass(frozen=True)
class Expected:
    """What a copy of a data set must show: rows, inputs, rows per class, official split.

    `train_classes` and `constant_features` (indices from 0) are None where nothing is said of them.
    """

    n: int
    d: int
    classes: Mapping[str, int]
    n_train: int = 0
    train_classes: Mapping[str, int] | None = None
    constant_features: tuple[int, ...] | None = None


@dataclass(frozen=True)
class OpenML:
    """Where OpenML has a set, and how its copy becomes ours.

    `labels` renames its class labels; `columns` selects and orders its inputs (all if empty); rows with a missing
    value are left out if `drop_missing`; its rows are in the order of the official split only if `official_split`.
    """

    data_id: int
    name: str
    labels: Mapping[str, str]
    columns: tuple[str, ...]
    drop_missing: bool
    official_split: bool


@dataclass(frozen=True)
class Entry:
    """One row of the shipped table. `embedded` is scikit-learn's loader; `missing` says why no copy is at hand."""

    name: str
    expected: Expected | None
    citation: str
    order: str
    notes: str
    embedded: str | None
    embedded_classes: Mapping[str, int] | None
    openml: OpenML | None
    missing: str | None
    generator: str | None


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The different labels in the order of their codes: integers by size ("2" before "10"), others alphabetically."""
    distinct = sorted(set(labels))
    try:
        return tuple(sorted(distinct, key=int))
    except ValueError:
        return tuple(distinct)


@cache
def catalogue() -> Mapping[str, Entry]:
    """All sets that are known by name, in the order of the table."""
    text = resources.files("validation.datasets").joinpath("expected.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    entries = [_entry(row) for row in table["dataset"]]
    return {entry.name: entry for entry in entries}


def near_misses(name: str, known: Iterable[str]) -> list[str]:
    """Known names that may have been meant."""
    plain = {_plain(candidate): candidate for candidate in known}
    return [plain[match] for match in difflib.get_close_matches(_plain(name), list(plain), n=3, cutoff=0.6)]


def parse_expected(row: Mapping[str, Any], where: str) -> Expected:
    """n, d, classes and so on of a row of `expected.toml` or of a manifest.

    Raises DatasetCorruptError, naming the row and the key, where one is missing, of a wrong type, or where the
    numbers contradict each other.
    """
    n, d = require(row, "n", int, where), require(row, "d", int, where)
    classes = _counts(require(row, "classes", dict, where), "classes", where)
    n_train = require({"n_train": 0, **row}, "n_train", int, where)
    constant = require({"constant_features": [], **row}, "constant_features", list, where)
    train = _counts(row["train_classes"], "train_classes", where) if "train_classes" in row else None
    for key, value, wanted in (
        ("classes", sum(classes.values()), n),
        ("c", row.get("c", len(classes)), len(classes)),
        ("train_classes", sum(train.values()) if train else n_train, n_train),
    ):
        if value != wanted:
            raise DatasetCorruptError(f"{where}: {key}: found {value}, expected {wanted}")
    if n < 1 or d < 1 or not 0 <= n_train < n or len(classes) < 2:
        found_numbers = f"n = {n}, d = {d}, n_train = {n_train}, {len(classes)} classes"
        raise DatasetCorruptError(f"{where}: found {found_numbers}, expected n > n_train >= 0, d >= 1, two classes")
    if not all(isinstance(j, int) and 1 <= j <= d for j in constant):
        raise DatasetCorruptError(f"{where}: constant_features: found {constant}, expected column numbers 1..{d}")
    # The tables count columns from 1, as their headers x1..xd do.
    columns = tuple(j - 1 for j in constant) if "constant_features" in row else None
    return Expected(n, d, classes, n_train, train, columns)


def require(row: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    """row[key], if it is there and of that type."""
    if key not in row:
        raise DatasetCorruptError(f"{where}: found no key {key!r}, expected one of type {kind.__name__}")
    value = row[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DatasetCorruptError(f"{where}: {key}: found {shown(value)}, expected a value of type {kind.__name__}")
    return value


def _counts(classes: Mapping[str, Any], key: str, where: str) -> dict[str, int]:
    for label, count in classes.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise DatasetCorruptError(f"{where}: {key}.{label}: found {shown(count)}, expected a number of rows")
    return {label: classes[label] for label in sorted_labels(classes)}


def _entry(row: Mapping[str, Any]) -> Entry:
    where = f"expected.toml, {row['name']}"
    openml = row.get("openml")
    return Entry(
        name=row["name"],
        expected=parse_expected(row, where) if "n" in row else None,
        citation=row.get("citation", ""),
        order=row.get("order", ""),
        notes=row.get("notes", ""),
        embedded=row.get("embedded"),
        embedded_classes=row.get("embedded_classes"),
        openml=None if openml is None else _openml(openml),
        missing=row.get("missing"),
        generator=row.get("generator"),
    )


def _openml(row: Mapping[str, Any]) -> OpenML:
    return OpenML(
        data_id=row["id"],
        name=row["name"],
        labels=row.get("labels", {}),
        columns=tuple(row.get("columns", ())),
        drop_missing=row.get("drop_missing", False),
        official_split=row.get("official_split", False),
    )


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
