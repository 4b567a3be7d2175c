"""A classification data set as plain, checked, read-only arrays, and the cuts that are made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from validation.datasets.splits import standardise
from validation.door import arguments
from validation.door.quoting import shown


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels, where they are from, and what is known of their order.

    Parameters
    ----------
    name : str                    what reports call it
    X : (n, d)                    inputs as in the source: neither standardised nor shuffled. Held as a read-only
                                  view, not copied
    y : (n,)                      labels, ints 0..C-1; a cut may have lost a class, a loaded set has them all
    classes : (C,) of str         the source's label of each class; y codes them in this order: integer labels by
                                  size, others alphabetically; embedded sets in scikit-learn's order
    feature_names : (d,) of str
    n_train : int                 the first n_train rows are the train part of the official split; 0: there is none
    citation : str
    source : str                  where the rows were read from
    sha256 : str                  of the file read, or where no file was read of the arrays (`content_sha256`); a
                                  cut keeps the digest of what it was cut from

    Raises
    ------
    ValueError, TypeError         naming the argument, what was found and what was expected
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    feature_names: tuple[str, ...]
    n_train: int
    citation: str
    source: str
    sha256: str

    def __post_init__(self) -> None:
        X = _frozen(self.X if _is_clean(self.X) else arguments.matrix(self.X, "X"))
        y = _frozen(arguments.labels(self.y, X.shape[0], len(self.classes), "y"))
        if len(set(self.classes)) < len(self.classes) or len(self.classes) < 2:
            raise ValueError(f"classes: found {self.classes}, expected at least two different labels")
        if len(self.feature_names) != X.shape[1]:
            raise ValueError(f"feature_names: found {len(self.feature_names)}, expected {X.shape[1]}")
        n_train = arguments.integer(self.n_train, "n_train", at_least=0)
        if n_train and n_train >= X.shape[0]:
            raise ValueError(f"n_train: found {n_train}, expected 0 or fewer than the {X.shape[0]} rows")
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Inputs."""
        return int(self.X.shape[1])

    @property
    def n_classes(self) -> int:
        """C, whether or not each class occurs."""
        return len(self.classes)

    @property
    def class_counts(self) -> dict[str, int]:
        """How many rows each class has, in the order of `classes`."""
        counts = np.bincount(self.y, minlength=self.n_classes)
        return {label: int(count) for label, count in zip(self.classes, counts, strict=True)}

    @property
    def constant_features(self) -> tuple[int, ...]:
        """Indices, from 0, of the columns that have one value in all rows."""
        return tuple(int(j) for j in np.flatnonzero((self.X[:1] == self.X).all(axis=0)))

    @property
    def content_sha256(self) -> str:
        """Digest of X (little-endian float64 by rows), y (little-endian int64) and the class labels."""
        digest = hashlib.sha256(np.ascontiguousarray(self.X, dtype="<f8").data)
        digest.update(np.ascontiguousarray(self.y, dtype="<i8").data)
        digest.update("\n".join(self.classes).encode())
        return digest.hexdigest()

    def rows(self, indices: ArrayLike) -> Dataset:
        """The rows with these indices, in this order; all classes keep their codes.

        An official split survives only if its train rows still stand before its test rows and both are left.
        """
        chosen = _row_indices(indices, self.n, "indices")
        is_train = chosen < self.n_train
        n_train = int(is_train.sum())
        if not is_train[:n_train].all() or n_train == chosen.size:
            n_train = 0
        return replace(self, X=self.X[chosen], y=self.y[chosen], n_train=n_train)

    def features(self, columns: ArrayLike) -> Dataset:
        """The columns with these indices, in this order."""
        chosen = _row_indices(columns, self.d, "columns")
        names = tuple(self.feature_names[j] for j in chosen)
        return replace(self, X=self.X[:, chosen], feature_names=names)

    def without_constant_features(self) -> Dataset:
        """The columns that vary (riihimaki2013 uses 18 of the 19 columns of `segment` for that reason)."""
        return self.features(np.setdiff1d(np.arange(self.d), self.constant_features))

    def only(self, *labels: str) -> Dataset:
        """The rows of these classes, coded 0, 1, ... in the order given.

        `load("vowel").only("0", "1", "2", "3", "4", "5")` is the six-class vowel set of villacampa2017 and
        villacampa2020 (540 rows); `load("usps").only("3", "5", "7")` has the classes of riihimaki2013.
        """
        codes = [self._code(label, "labels") for label in labels]
        if len(set(codes)) < len(codes) or len(codes) < 2:
            raise ValueError(f"labels: found {labels}, expected at least two different classes")
        kept = self.rows(np.flatnonzero(np.isin(self.y, codes)))
        recode = np.full(self.n_classes, -1)
        recode[codes] = np.arange(len(codes))
        return replace(kept, name=f"{self.name}[{','.join(labels)}]", y=recode[kept.y], classes=tuple(labels))

    def binary(self, positive: str | Iterable[str], negative: str | Iterable[str] | None = None) -> Dataset:
        """A binary problem: y = 1 for the class (or classes) `positive`, 0 for `negative`, by default all others.

        Rows of further classes are left out. X keeps the order of its rows.
        """
        ones = _label_list(positive)
        zeros = [c for c in self.classes if c not in ones] if negative is None else _label_list(negative)
        one_codes = [self._code(label, "positive") for label in ones]
        zero_codes = [self._code(label, "negative") for label in zeros]
        if not ones or not zeros or set(ones) & set(zeros):
            raise ValueError(f"negative: found {zeros} against {ones}, expected two disjoint groups of classes")
        kept = self.rows(np.flatnonzero(np.isin(self.y, one_codes + zero_codes)))
        names = ("+".join(zeros), "+".join(ones))
        label = f"{self.name}[{names[1]} vs {'rest' if negative is None else names[0]}]"
        return replace(kept, name=label, y=np.isin(kept.y, one_codes).astype(np.int64), classes=names)

    def standardised(self, train: ArrayLike | None = None) -> Dataset:
        """X with zero mean and unit variance over the rows `train`.

        By default these are the train part of the official split, or all rows where there is none. A column that is
        constant there is centred and keeps its scale (see `standardise`).
        """
        if train is None:
            train = np.arange(self.n_train or self.n)
        chosen = _row_indices(train, self.n, "train")
        return replace(self, X=standardise(self.X[chosen], self.X)[1])

    def subsample(self, size: int, seed: int) -> Dataset:
        """`size` rows drawn without replacement, each class in its share, shuffled and with no official split.

        A class whose share of `size` rounds to zero is lost. Raises ValueError where size, or what is left over,
        has not a row for each class that occurs, and where a class has a single row.
        """
        counts = [count for count in self.class_counts.values() if count]
        most = self.n - len(counts)
        if not len(counts) <= arguments.integer(size, "size", at_least=1) <= most or min(counts) < 2:
            expected = f"{len(counts)}..{most} rows, and two or more of each class"
            raise ValueError(f"size: found {size} of rows {self.class_counts}, expected {expected}")
        # here: scikit-learn takes a second to load, and most commands need none of it
        from sklearn.model_selection import StratifiedShuffleSplit

        splitter = StratifiedShuffleSplit(n_splits=1, train_size=size, random_state=seed)
        chosen, _ = next(splitter.split(np.zeros(self.n), self.y))
        return replace(self, X=self.X[chosen], y=self.y[chosen], n_train=0)

    def _code(self, label: str, name: str) -> int:
        if label not in self.classes:
            raise ValueError(
                f"{name}: found {shown(label)}, expected classes of {self.name}: {', '.join(self.classes)}"
            )
        return self.classes.index(label)


def _label_list(labels: str | Iterable[str]) -> list[str]:
    return [labels] if isinstance(labels, str) else list(labels)


def _row_indices(indices: ArrayLike, size: int, name: str) -> NDArray[np.int64]:
    array = np.asarray(indices)
    if array.dtype.kind not in "iu" or array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name}: found {array.dtype} of shape {array.shape}, expected a non-empty list of integers")
    if array.min() < 0 or array.max() >= size:
        raise ValueError(f"{name}: found {array.min()}..{array.max()}, expected 0..{size - 1}")
    return array.astype(np.int64)


def _is_clean(X: NDArray[np.float64]) -> bool:
    """Whether X needs no conversion, which would copy it: `mnist` has 439 MB."""
    return isinstance(X, np.ndarray) and X.dtype == np.float64 and X.ndim == 2 and bool(np.isfinite(X).all())


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
