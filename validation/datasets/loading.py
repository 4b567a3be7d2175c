"""`load(name)`: from scikit-learn's bundled sets, from $TRIAD_DATA, or from OpenML; every copy is checked.

Which copy is read when a name is in several places: the bundled one first (`iris`, `wine`, `digits`, `breast_cancer`
are the same numbers on every machine, whatever its environment), then the folder, then OpenML. `source=` asks for one
of them. Names that look alike:

- `breast_cancer` is scikit-learn's copy of the 569 x 30 diagnostic set; `wdbc` has the same rows under the UCI labels,
  with the codes the other way round (breast_cancer: malignant 0, benign 1; wdbc: B 0, M 1);
- `breast_cancer_wisconsin` is the older 683 x 9 set.

`wine` has the same numbers everywhere. `iris` from the folder or from OpenML is the UCI file with its known misprints:
counted from 0, row 34 has 0.1 in column 3 where Fisher's paper has 0.2, and row 37 has 3.1 and 1.5 in columns 1 and 2
where the paper has 3.6 and 1.4. The bundled copy has Fisher's numbers. Bundled labels are scikit-learn's (`setosa`,
`class_0`), the others' are those of UCI (`Iris-setosa`, `1`); the codes agree.
"""

from __future__ import annotations

import http.client
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from validation.datasets.catalogue import Entry, Expected, catalogue, near_misses
from validation.datasets.dataset import Dataset
from validation.datasets.errors import DatasetCorruptError, DatasetNotFoundError
from validation.datasets.folder import (
    ENVIRONMENT,
    code_labels,
    data_folder,
    manifest_entry,
    read_manifest,
    read_rows,
)
from validation.door import arguments
from validation.door.quoting import shown

SOURCES = ("embedded", "folder", "openml")


def load(name: str, *, source: str | None = None) -> Dataset:
    """The data set of that name, checked against its published size and class counts.

    Parameters
    ----------
    name : str                    one of `known_names()`; `triad list data` lists them
    source : str or None          "embedded" (bundled with scikit-learn), "folder" ($TRIAD_DATA) or "openml"; None
                                  takes the first of these that has the set. OpenML means a download, kept in
                                  scikit-learn's own cache

    Raises
    ------
    DatasetNotFoundError          no such set within reach: what was looked for, where, what to do
    DatasetCorruptError           a copy was found that is not what it should be
    """
    arguments.string(name, "name")
    if source is not None:
        arguments.choice(source, SOURCES, "source")
    entry = catalogue().get(name)
    looked: list[str] = []
    for place, attempt in (("embedded", _embedded), ("folder", _from_folder), ("openml", _from_openml)):
        if source in (None, place):
            result = attempt(name, entry, looked)
            if result is not None:
                return result
    raise DatasetNotFoundError(_not_found(name, entry, looked))


def known_names() -> tuple[str, ...]:
    """All names of the shipped table, then those only the folder has."""
    folder = data_folder()
    extra = sorted(set(read_manifest(folder)[0]) - set(catalogue())) if folder else []
    return (*catalogue(), *extra)


def locate(name: str) -> str:
    """Where `load(name)` would read it: "embedded", "folder", "openml", "generated" or "missing"."""
    entry = catalogue().get(name)
    if entry is not None and entry.embedded:
        return "embedded"
    folder = data_folder()
    if folder is not None and name in read_manifest(folder)[0]:
        return "folder"
    if entry is not None and entry.openml:
        return "openml"
    return "generated" if entry is not None and entry.generator else "missing"


def expected_counts(name: str) -> Expected | None:
    """Size and class counts of a known set as `load(name)` would find them; None where nothing is said."""
    entry = catalogue().get(name)
    if entry is not None and entry.embedded and entry.expected and entry.embedded_classes:
        return replace(entry.expected, classes=entry.embedded_classes)
    if entry is not None and entry.expected:
        shuffled = locate(name) == "openml" and entry.openml is not None and not entry.openml.official_split
        return replace(entry.expected, n_train=0) if shuffled else entry.expected
    folder = data_folder()
    rows = read_manifest(folder)[0] if folder else {}
    return manifest_entry(folder, rows[name]).expected if folder and name in rows else None


def check(dataset: Dataset, expected: Expected) -> None:
    """Compare rows, inputs, class counts, official split and constant columns with what is known of the set.

    Raises DatasetCorruptError, naming the first difference.
    """
    train_counts = None
    if expected.train_classes is not None and dataset.n_train:
        counts = np.bincount(dataset.y[: dataset.n_train], minlength=dataset.n_classes)
        train_counts = {label: int(count) for label, count in zip(dataset.classes, counts, strict=True) if count}
    comparisons: list[tuple[str, Any, Any]] = [
        ("n", dataset.n, expected.n),
        ("d", dataset.d, expected.d),
        ("classes", dataset.class_counts, dict(expected.classes)),
        ("n_train", dataset.n_train, expected.n_train),
    ]
    if train_counts is not None:
        comparisons.append(("train_classes", train_counts, dict(expected.train_classes or {})))
    if expected.constant_features is not None:
        comparisons.append(("constant_features", dataset.constant_features, expected.constant_features))
    for key, value, wanted in comparisons:
        if value != wanted:
            raise DatasetCorruptError(f"{dataset.name} from {dataset.source}: {key}: found {value}, expected {wanted}")


def _embedded(name: str, entry: Entry | None, looked: list[str]) -> Dataset | None:
    if entry is None or entry.embedded is None or entry.expected is None:
        bundled = ", ".join(known for known, row in catalogue().items() if row.embedded)
        looked.append(f"scikit-learn's bundled sets: only {bundled}")
        return None
    # here and below: scikit-learn takes a second to load, and most commands need none of it
    import sklearn
    import sklearn.datasets

    bunch = getattr(sklearn.datasets, entry.embedded)()
    # A class of `digits` is an integer there; its label is the digit.
    classes = tuple(str(label) for label in bunch.target_names)
    dataset = _dataset(
        entry.name,
        X=np.asarray(bunch.data, dtype=np.float64),
        y=np.asarray(bunch.target, dtype=np.int64),
        classes=classes,
        feature_names=tuple(str(feature) for feature in bunch.feature_names),
        citation=entry.citation,
        source=f"scikit-learn {sklearn.__version__}, {entry.embedded}",
    )
    check(dataset, replace(entry.expected, classes=entry.embedded_classes or entry.expected.classes))
    return dataset


def _from_folder(name: str, entry: Entry | None, looked: list[str]) -> Dataset | None:
    folder = data_folder()
    if folder is None:
        looked.append(f"${ENVIRONMENT}: not set")
        return None
    rows, missing = read_manifest(folder)
    if name not in rows:
        # Where the shipped table knows the set, it gives the reason itself.
        why = f" ({missing[name]})" if name in missing and entry is None else ""
        looked.append(f"${ENVIRONMENT}: {folder / 'manifest.toml'} lists {len(rows)} sets, not this one{why}")
        return None
    manifest = manifest_entry(folder, rows[name])
    content = read_rows(manifest)
    y, classes = code_labels(content.labels)
    if content.n_train not in (None, manifest.expected.n_train):
        raise DatasetCorruptError(
            f"{manifest.path}: n_train: found {content.n_train} rows in x_train, expected {manifest.expected.n_train}"
        )
    dataset = _dataset(
        name,
        X=content.X,
        y=y,
        classes=classes,
        feature_names=tuple(f"x{j + 1}" for j in range(content.X.shape[1])),
        citation=manifest.citation,
        source=f"${ENVIRONMENT}/{manifest.path.relative_to(folder).as_posix()}",
        n_train=manifest.expected.n_train,
        sha256=manifest.sha256,
    )
    check(dataset, manifest.expected)
    if entry is not None and entry.expected is not None:
        # A name means one data set: a folder cannot give it to another.
        check(dataset, entry.expected)
    return dataset


def _from_openml(name: str, entry: Entry | None, looked: list[str]) -> Dataset | None:
    if entry is None or entry.openml is None or entry.expected is None:
        looked.append("OpenML: no copy in this form is known")
        return None
    import sklearn.datasets

    openml = entry.openml
    source = f"OpenML data id {openml.data_id} ({openml.name})"
    try:
        with warnings.catch_warnings():
            # What fails is said once, by the error below.
            warnings.filterwarnings("ignore", message="A network error occurred", category=UserWarning)
            warnings.filterwarnings("ignore", message="Invalid cache", category=RuntimeWarning)
            # the file's MD5 is held against the one that OpenML publishes, also where it comes from the cache
            bunch = sklearn.datasets.fetch_openml(data_id=openml.data_id, as_frame=True, parser="auto", n_retries=1)
    except (OSError, http.client.HTTPException) as error:
        looked.append(f"{source}: not reached ({type(error).__name__}: {error})")
        return None
    except ValueError as error:
        raise DatasetCorruptError(f"{name} from {source}: {error}") from error
    frame = bunch.data
    absent = [column for column in openml.columns if column not in frame.columns]
    if absent:
        raise DatasetCorruptError(f"{name} from {source}: found columns {list(frame.columns)}, expected {absent} too")
    if openml.columns:
        frame = frame[list(openml.columns)]
    try:
        X = np.column_stack([np.asarray(frame[column].astype(np.float64)) for column in frame.columns])
    except (TypeError, ValueError) as error:
        raise DatasetCorruptError(
            f"{name} from {source}: found an input that is no number ({error}), expected numbers"
        ) from error
    raw = np.array([str(label).strip(" '\"") for label in bunch.target])
    labels = np.array([openml.labels.get(str(label), str(label)) for label in raw])
    if openml.drop_missing:
        complete = ~np.isnan(X).any(axis=1)
        X, labels = X[complete], labels[complete]
    y, classes = code_labels(labels)
    dataset = _dataset(
        name,
        X=X,
        y=y,
        classes=classes,
        feature_names=tuple(str(column) for column in frame.columns),
        citation=entry.citation,
        source=source,
        n_train=entry.expected.n_train if openml.official_split else 0,
    )
    check(dataset, replace(entry.expected, n_train=dataset.n_train))
    return dataset


def _dataset(name: str, source: str, n_train: int = 0, sha256: str | None = None, **content: Any) -> Dataset:
    try:
        dataset = Dataset(name=name, source=source, n_train=n_train, sha256=sha256 or "", **content)
    except ValueError as error:
        raise DatasetCorruptError(f"{name} from {source}: {error}") from error
    return dataset if sha256 else replace(dataset, sha256=dataset.content_sha256)


def _not_found(name: str, entry: Entry | None, looked: list[str]) -> str:
    places = "\n".join(f"  {place}" for place in looked)
    if entry is None:
        close = near_misses(name, known_names())
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        advice = (
            f"{hint}`triad list data` lists the names; a set of your own is added to manifest.toml in ${ENVIRONMENT}"
        )
    elif entry.generator:
        advice = f"it is generated: call validation.datasets.{entry.generator}(rng, n)"
    else:
        online = "go online, or " if entry.openml else ""
        advice = (
            f"{online}set {ENVIRONMENT} to a folder whose manifest.toml lists it (form: validation/datasets/folder.py)"
        )
    why = f"; {entry.missing}" if entry is not None and entry.missing else ""
    return (
        f"name: found {shown(name)}, expected a data set within reach{why}. Looked in:\n{places}\nWhat to do: {advice}"
    )
