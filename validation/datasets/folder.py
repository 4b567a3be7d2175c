"""Data sets from a folder: `manifest.toml` says what each file is and which sha256 it must have.

The folder is named by the environment variable TRIAD_DATA. A manifest is a list of tables

    [[dataset]]
    name = "glass"                     # what load() is asked for
    file = "glass.csv.gz"              # gzip of comma-separated lines, header x1,...,xd,y; or .npz
    n = 214
    d = 9
    classes = { "1" = 70, "2" = 76 }   # rows of each label
    sha256 = "..."                     # of the file as it is
    citation = "..."

and may say `c`, `n_train` (the first n_train rows are the train part of the official split), `train_classes`,
`test_classes` and `constant_features` (from 1). An .npz holds the arrays x_train, y_train, x_test and y_test, with
n_train rows in the first two, or X and y; it is never unpickled. `[[missing]]` tables (name, why) say what the folder
has not, and why.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.datasets.catalogue import Expected, parse_expected, require, sorted_labels
from validation.datasets.errors import DatasetCorruptError, DatasetNotFoundError
from validation.door.quoting import shown

ENVIRONMENT = "TRIAD_DATA"


@dataclass(frozen=True)
class ManifestEntry:
    """One `[[dataset]]` of a manifest."""

    name: str
    path: Path
    sha256: str
    citation: str
    expected: Expected


@dataclass(frozen=True)
class Rows:
    """What a file holds, before the labels are coded."""

    X: NDArray[np.float64]
    labels: NDArray[np.str_]
    n_train: int | None


def data_folder() -> Path | None:
    """The folder named by $TRIAD_DATA; None where it is unset or empty.

    Raises DatasetNotFoundError where it names no folder with a manifest: a mistyped path must not look like absence.
    """
    value = os.environ.get(ENVIRONMENT, "")
    if not value:
        return None
    if not (Path(value) / "manifest.toml").is_file():
        raise DatasetNotFoundError(
            f"${ENVIRONMENT}: found {shown(value)}, expected a folder that holds manifest.toml; correct or unset it"
        )
    return Path(value)


def read_manifest(folder: Path) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """The raw `[[dataset]]` tables by name, and the reasons of `[[missing]]` by name."""
    where = f"{folder / 'manifest.toml'}"
    try:
        with open(where, "rb") as stream:
            table = tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise DatasetCorruptError(f"{where}: found no readable TOML ({error}), expected a manifest") from error
    rows: dict[str, Mapping[str, Any]] = {}
    for i, row in enumerate(_tables(table, "dataset", where)):
        name = require(row, "name", str, f"{where}, dataset {i + 1}")
        if name in rows:
            raise DatasetCorruptError(f"{where}: found two datasets named {name!r}, expected one")
        rows[name] = row
    missing: dict[str, str] = {}
    for i, row in enumerate(_tables(table, "missing", where)):
        name = require(row, "name", str, f"{where}, missing {i + 1}")
        missing[name] = require(row, "why", str, f"{where}, missing {name}")
    return rows, missing


def manifest_entry(folder: Path, row: Mapping[str, Any]) -> ManifestEntry:
    """A `[[dataset]]` table, checked: every key there, every number consistent, the file inside the folder."""
    where = f"{folder / 'manifest.toml'}, {row['name']}"
    file = require(row, "file", str, where)
    parts = PurePosixPath(file).parts
    if not parts or PurePosixPath(file).is_absolute() or ".." in parts:
        raise DatasetCorruptError(f"{where}: file: found {shown(file)}, expected a path inside the folder")
    if not file.endswith((".csv.gz", ".npz")):
        raise DatasetCorruptError(f"{where}: file: found {shown(file)}, expected a name that ends in .csv.gz or .npz")
    sha256 = require(row, "sha256", str, where)
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise DatasetCorruptError(f"{where}: sha256: found {shown(sha256)}, expected 64 hexadecimal digits")
    citation = require(row, "citation", str, where)
    return ManifestEntry(row["name"], folder / file, sha256, citation, parse_expected(row, where))


def read_rows(entry: ManifestEntry) -> Rows:
    """The rows of the file, after its sha256 was checked.

    Raises DatasetNotFoundError where there is no such file, DatasetCorruptError where its digest or its form is wrong.
    """
    try:
        content = entry.path.read_bytes()
    except OSError as error:
        raise DatasetNotFoundError(
            f"{entry.name}: found no readable file {entry.path} ({error.strerror}), expected the one the manifest "
            "names; restore it or remove the entry"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise DatasetCorruptError(
            f"{entry.path}: found sha256 {digest} ({len(content)} bytes), expected {entry.sha256}; the file "
            "was changed or cut short: restore it"
        )
    read = _npz_rows if entry.path.name.endswith(".npz") else _csv_rows
    return read(content, str(entry.path))


def code_labels(labels: NDArray[np.str_]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Codes 0..C-1 of the labels, and the label of each code."""
    distinct, inverse = np.unique(labels, return_inverse=True)
    classes = sorted_labels(str(label) for label in distinct)
    rank = {label: code for code, label in enumerate(classes)}
    return np.array([rank[str(label)] for label in distinct], dtype=np.int64)[inverse], classes


def _csv_rows(content: bytes, where: str) -> Rows:
    try:
        text = gzip.decompress(content).decode("utf-8")
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise DatasetCorruptError(f"{where}: found a damaged file ({error}), expected a gzip of UTF-8 text") from error
    header, *lines = text.splitlines() or [""]
    d = header.count(",")
    expected = ",".join([*(f"x{j + 1}" for j in range(d)), "y"])
    if header != expected or d == 0:
        raise DatasetCorruptError(f"{where}: line 1: found {_short(header)}, expected the header x1,...,xd,y")
    if not lines:
        raise DatasetCorruptError(f"{where}: found no rows after the header, expected at least one")
    for i, line in enumerate(lines):
        if line.count(",") != d:
            raise DatasetCorruptError(f"{where}: line {i + 2}: found {line.count(',')} commas, expected {d}")
    labels = np.array([line.rsplit(",", 1)[1] for line in lines])
    try:
        # NumPy's parser is exact to the last bit; the quick one of pandas 2 is not.
        X = np.loadtxt(lines, delimiter=",", usecols=range(d), comments=None, ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise DatasetCorruptError(f"{where}: found an entry that is no number ({error}), expected numbers") from error
    return Rows(X, labels, None)


def _npz_rows(content: bytes, where: str) -> Rows:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError) as error:
        raise DatasetCorruptError(
            f"{where}: found a damaged file ({error}), expected a .npz of plain arrays"
        ) from error
    if set(arrays) == {"X", "y"}:
        parts, n_train = [(arrays["X"], arrays["y"])], None
    elif set(arrays) == {"x_train", "y_train", "x_test", "y_test"}:
        parts = [(arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])]
        n_train = len(arrays["y_train"]) if arrays["y_train"].ndim else 0
    else:
        raise DatasetCorruptError(
            f"{where}: found the arrays {sorted(arrays)}, expected x_train, y_train, x_test, y_test or X, y"
        )
    for X, y in parts:
        if X.ndim != 2 or y.shape != X.shape[:1] or X.shape[1] != parts[0][0].shape[1] or X.dtype.kind not in "fiub":
            raise DatasetCorruptError(
                f"{where}: found X {X.dtype} {X.shape} with y {y.shape}, expected real (n, d) with (n,)"
            )
    X = np.concatenate([X for X, _ in parts], dtype=np.float64)
    return Rows(X, np.concatenate([y for _, y in parts]).astype(str), n_train)


def _tables(table: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    rows = table.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DatasetCorruptError(f"{where}: {key}: found {type(rows).__name__}, expected [[{key}]] tables")
    return rows


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
