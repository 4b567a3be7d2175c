"""Seeded splits that mind official splits, sorted rows and duplicates; standardisation by training statistics.

Rows with equal inputs are kept together: none is in a train part and its test part at once, whatever their labels.
The rows of every part come in shuffled order, because the files of many sets are sorted by class.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from validation.door import arguments

if TYPE_CHECKING:
    from validation.datasets.dataset import Dataset


_LARGEST = 1e150


class Split(NamedTuple):
    """Row indices of the two parts, disjoint and shuffled."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def standardise(X_train: ArrayLike, *others: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    """Zero mean and unit variance by the statistics of X_train, for it and for each of the others.

    X_train (n, d), others (t, d). A column that is constant in X_train is centred by its mean and not divided: what
    varies there in the others keeps its units.

    Raises ValueError where an array is not finite, has no two axes, or has another number of columns.
    """
    train = arguments.matrix(X_train, "X_train")
    if train.shape[0] == 0:
        raise ValueError("X_train: found 0 rows, expected at least 1")
    largest = float(np.abs(train).max(initial=0.0))
    if largest > _LARGEST:
        raise ValueError(f"X_train: found {largest:.6g}, expected at most {_LARGEST:g}: its square must be finite")
    rest = [arguments.matrix(other, f"others[{i}]") for i, other in enumerate(others)]
    for i, other in enumerate(rest):
        if other.shape[1] != train.shape[1]:
            raise ValueError(f"others[{i}]: found {other.shape[1]} columns, expected {train.shape[1]}")
    # here and below: scikit-learn takes a second to load, and most commands need none of it
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    # scikit-learn refuses an array with no rows; an empty test set is legitimate here.
    return tuple(scaler.transform(array) if array.shape[0] else array.copy() for array in (train, *rest))


def _checked(dataset: Any, seed: Any) -> int:
    """The seed, if it is one that scikit-learn takes and there is something to split."""
    from validation.datasets.dataset import Dataset

    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset: found {type(dataset).__name__}, expected a Dataset")
    seed = arguments.integer(seed, "seed", at_least=0)
    if seed >= 2**32:
        raise ValueError(f"seed: found {seed}, expected less than 2**32")
    return seed


def duplicate_groups(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n,) ints, equal for two rows of X exactly if the rows are equal; numbered by first appearance."""
    visited: dict[bytes, int] = {}
    groups = np.empty(X.shape[0], dtype=np.int64)
    for i, row in enumerate(X):
        # + 0.0 turns -0.0 into 0.0; a digest instead of the bytes keeps wide sets out of memory a second time.
        key = hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest()
        groups[i] = visited.setdefault(key, len(visited))
    return groups


def train_test_split(
    dataset: Dataset,
    seed: int,
    test_size: float | int | None = None,
    *,
    stratify: bool = True,
    keep_leaks: bool = False,
) -> Split:
    """One train and test part.

    Parameters
    ----------
    dataset : Dataset
    seed : int                    same seed, same split
    test_size : float, int or None   share of the rows in (0, 1), or their number; None is the official split where
                                  there is one, else 0.1 (villacampa2017, villacampa2020 use 90 % and 10 %)
    stratify : bool               each class in its share in both parts; the official split is taken as it is
    keep_leaks : bool             test rows of the official split whose inputs also stand in the train part are left
                                  out; True keeps them, as the papers that print figures for the whole part did
                                  (riihimaki2013 on `segment`: 212 of 2100)

    Drawn are distinct rows, each with all its repeats, so that in a set with repeated rows the size of the test part
    is test_size in distinct rows and only near it in rows.

    Raises
    ------
    ValueError                    test_size out of range; a class with too few distinct rows to stratify; an official
                                  test part that consists of leaks (`svmguide3`)
    """
    seed, stratify = _checked(dataset, seed), arguments.boolean(stratify, "stratify")
    groups = duplicate_groups(dataset.X)
    if test_size is None and dataset.n_train:
        return _official(dataset, groups, seed, arguments.boolean(keep_leaks, "keep_leaks"))
    from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit

    share = _share(0.1 if test_size is None else test_size, dataset.n)
    n_groups = int(groups.max()) + 1
    n_test = int(np.ceil(share * n_groups - 1e-9))
    if stratify:
        strata = _group_labels(dataset, groups)
        counts = np.bincount(strata, minlength=dataset.n_classes)
        present = counts[counts > 0]
        if present.min() < 2 or n_test < present.size or n_groups - n_test < present.size:
            rarest = dataset.classes[int(np.argmin(np.where(counts > 0, counts, n_groups + 1)))]
            raise ValueError(
                f"test_size: found {n_test} distinct test rows of {n_groups} with {present.min()} of class {rarest!r}, "
                f"expected 2 or more of each class and a row for each of the {present.size} classes in both parts; "
                "change it, or pass stratify=False"
            )
        splitter = StratifiedShuffleSplit(n_splits=1, test_size=n_test, random_state=seed)
        train, test = next(splitter.split(np.zeros(n_groups), strata))
    else:
        if not 1 <= n_test < n_groups:
            raise ValueError(f"test_size: found {n_test} distinct test rows of {n_groups}, expected 1..{n_groups - 1}")
        shuffle = GroupShuffleSplit(n_splits=1, test_size=n_test, random_state=seed)
        train, test = next(shuffle.split(np.zeros(n_groups), groups=np.arange(n_groups)))
    return Split(*(_expand(part, groups, seed, i) for i, part in enumerate((train, test))))


def kfold(
    dataset: Dataset, n_splits: int, seed: int, *, stratify: bool = True, keep_leaks: bool = False
) -> Iterator[Split]:
    """n_splits parts in turn as the test part, as in the ten-fold cross-validation of riihimaki2013 and wenzel2019.

    Each row is in exactly one test part; the official split is ignored. Equal rows stay together, unless keep_leaks
    has them fall where they may; the parts are even in distinct rows. A class with fewer distinct rows than n_splits
    is missing from some test parts.

    Raises ValueError for n_splits < 2 or more than there are distinct rows.
    """
    n_splits = arguments.integer(n_splits, "n_splits", at_least=2)
    seed, stratify = _checked(dataset, seed), arguments.boolean(stratify, "stratify")
    leaks = arguments.boolean(keep_leaks, "keep_leaks")
    groups = np.arange(dataset.n) if leaks else duplicate_groups(dataset.X)
    n_groups = int(groups.max()) + 1
    # The folds are made of distinct rows, not by StratifiedGroupKFold: that one visits each group in Python (minutes
    # for 300 000 rows), and with shuffle=True older releases of it lose the strata.
    strata = _group_labels(dataset, groups)
    largest = int(np.bincount(strata).max()) if stratify else n_groups
    if n_splits > largest:
        where = "of the largest class" if stratify else ""
        raise ValueError(f"n_splits: found {n_splits}, expected at most the {largest} distinct rows {where}".rstrip())
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if stratify else KFold
    splitter = kind(n_splits=n_splits, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # Said in the docstring: `glass` has a class of 9, and the papers take ten folds.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        folds = list(splitter.split(np.zeros(n_groups), strata))
    return (
        Split(_expand(train, groups, seed, 2 * k), _expand(test, groups, seed, 2 * k + 1))
        for k, (train, test) in enumerate(folds)
    )


def _official(dataset: Dataset, groups: NDArray[np.int64], seed: int, keep_leaks: bool) -> Split:
    train = np.arange(dataset.n_train)
    test = np.arange(dataset.n_train, dataset.n)
    if not keep_leaks:
        test = test[~np.isin(groups[test], groups[train])]
        if test.size == 0:
            raise ValueError(
                f"test_size: found None and an official test part of {dataset.name} that only repeats train rows, "
                "expected a share of the rows (or keep_leaks=True)"
            )
    return Split(_shuffled(train, seed, 0), _shuffled(test, seed, 1))


def _share(test_size: float | int, n: int) -> float:
    if isinstance(test_size, (bool, np.bool_)) or not isinstance(test_size, (int, float, np.integer, np.floating)):
        raise TypeError(f"test_size: found {type(test_size).__name__}, expected a share or a number of rows")
    share = min(int(test_size), n) / n if isinstance(test_size, (int, np.integer)) else float(test_size)
    if not 0.0 < share < 1.0:
        raise ValueError(f"test_size: found {test_size}, expected a share in (0, 1) or a number of rows in 1..{n - 1}")
    return share


def _group_labels(dataset: Dataset, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The label of each group: that of most of its rows, the smaller code in a tie."""
    pairs, counts = np.unique(groups * dataset.n_classes + dataset.y, return_counts=True)
    group, label = np.divmod(pairs, dataset.n_classes)
    order = np.lexsort((label, -counts, group))
    return label[order][np.unique(group[order], return_index=True)[1]]


def _expand(part: NDArray[np.int64], groups: NDArray[np.int64], seed: int, stream: int) -> NDArray[np.int64]:
    return _shuffled(np.flatnonzero(np.isin(groups, part)), seed, stream)


def _shuffled(rows: NDArray[np.int64], seed: int, stream: int) -> NDArray[np.int64]:
    """The rows in an order of their own for each part of a split."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,))).permutation(rows)
