"""Data sets as arrays, their cuts, their splits, and standardisation."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation import datasets
from validation.datasets import Dataset


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("TRIAD_DATA", raising=False)


def small(y, *, X=None, n_train=0, classes=("a", "b", "c")):
    y = np.asarray(y)
    X = np.arange(2.0 * y.size).reshape(y.size, 2) if X is None else np.asarray(X, dtype=float)
    return Dataset("small", X, y, classes, tuple(f"x{j + 1}" for j in range(X.shape[1])), n_train, "none", "test", "0")


# --- the bundled sets


@pytest.mark.parametrize(
    ("name", "n", "d", "counts"),
    [
        ("iris", 150, 4, {"setosa": 50, "versicolor": 50, "virginica": 50}),
        ("wine", 178, 13, {"class_0": 59, "class_1": 71, "class_2": 48}),
        ("breast_cancer", 569, 30, {"malignant": 212, "benign": 357}),
    ],
)
def test_bundled_set_has_its_published_size_and_class_counts(name, n, d, counts):
    dataset = datasets.load(name)
    assert (dataset.n, dataset.d, dataset.class_counts, dataset.n_train) == (n, d, counts, 0)
    assert dataset.source.startswith("scikit-learn ")
    assert dataset.sha256 == dataset.content_sha256


def test_digits_has_ten_classes_and_three_constant_pixels():
    digits = datasets.load("digits")
    assert (digits.n, digits.d, digits.classes) == (1797, 64, tuple("0123456789"))
    assert digits.constant_features == (0, 32, 39)
    assert digits.without_constant_features().d == 61
    assert digits.without_constant_features().constant_features == ()


def test_bundled_iris_has_the_numbers_of_fisher_and_not_the_misprints_of_uci():
    X = datasets.load("iris").X
    assert X[34].tolist() == [4.9, 3.1, 1.5, 0.2]
    assert X[37].tolist() == [4.9, 3.6, 1.4, 0.1]


def test_digest_notices_one_changed_bit_and_one_changed_label():
    wine = datasets.load("wine")
    X = wine.X.copy()
    X[3, 2] = np.nextafter(X[3, 2], 10.0)
    y = wine.y.copy()
    y[0] = 1
    digests = {wine.content_sha256, dataclasses.replace(wine, X=X).content_sha256}
    digests |= {dataclasses.replace(wine, y=y).content_sha256}
    assert len(digests) == 3


# --- the data class


def test_arrays_of_a_dataset_cannot_be_written():
    iris = datasets.load("iris")
    with pytest.raises(ValueError, match="read-only"):
        iris.X[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        iris.y[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        iris.n_train = 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.array([[1.0, np.nan]] * 4)}, "X: found nan"),
        ({"X": np.zeros(4)}, "X: found shape"),
        ({"y": np.array([0, 1, 2, 3])}, "y: found the label 3"),
        ({"y": np.array([0, 1, 2])}, "y: found shape"),
        ({"classes": ("a", "a", "b")}, "classes: found"),
        ({"feature_names": ("x1",)}, "feature_names: found 1, expected 2"),
        ({"n_train": 4}, "n_train: found 4"),
    ],
)
def test_a_dataset_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(small([0, 1, 2, 0]), **changes)


def test_float_labels_are_refused():
    with pytest.raises(TypeError, match="y: found dtype float64"):
        small([0.0, 1.0, 2.0])


def test_rows_keep_the_official_split_only_while_it_can_be_told():
    dataset = small([0, 1, 2, 0, 1, 2], n_train=4)
    assert dataset.rows([0, 3, 4]).n_train == 2
    assert dataset.rows([4, 0]).n_train == 0  # a test row first
    assert dataset.rows([0, 1]).n_train == 0  # no test row left
    assert dataset.rows([4, 5]).n_train == 0  # no train row left


@pytest.mark.parametrize("bad", [[], [6], [-1], [0.5], [True, False]])
def test_rows_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match="indices: found"):
        small([0, 1, 2, 0, 1, 2]).rows(bad)


def test_binary_codes_the_positive_class_one_and_drops_the_others():
    dataset = small([0, 1, 2, 0, 1, 2], n_train=4)
    cut = dataset.binary("a", "c")
    assert cut.y.tolist() == [1, 0, 1, 0]
    assert cut.classes == ("c", "a")
    assert cut.X.tolist() == dataset.X[[0, 2, 3, 5]].tolist()
    assert (cut.n_train, cut.name) == (3, "small[a vs c]")
    assert dataset.binary("b", "a").y.tolist() == [0, 1, 0, 1]


def test_binary_against_the_rest_keeps_every_row():
    cut = small([0, 1, 2, 0, 1, 2]).binary("b")
    assert cut.y.tolist() == [0, 1, 0, 0, 1, 0]
    assert cut.name == "small[b vs rest]"
    assert small([0, 1, 2]).binary(["a", "c"], "b").y.tolist() == [1, 0, 1]


def test_binary_of_unknown_or_overlapping_classes_is_refused():
    dataset = small([0, 1, 2])
    with pytest.raises(ValueError, match="positive: found 'd', expected classes of small: a, b, c"):
        dataset.binary("d")
    with pytest.raises(ValueError, match="negative: found"):
        dataset.binary("a", ["a", "b"])


def test_only_codes_the_classes_in_the_order_asked_for():
    cut = small([0, 1, 2, 0]).only("c", "a")
    assert (cut.y.tolist(), cut.classes) == ([1, 0, 1], ("c", "a"))
    with pytest.raises(ValueError, match="labels: found"):
        small([0, 1, 2, 0]).only("a")


def test_subsample_keeps_class_shares_and_repeats_by_seed():
    digits = datasets.load("digits")
    one, again, other = (digits.subsample(200, seed=s) for s in (1, 1, 2))
    assert one.content_sha256 == again.content_sha256 != other.content_sha256
    shares = np.array(list(one.class_counts.values())) / 200
    # A stratified draw rounds each count of 200 by less than one row.
    np.testing.assert_allclose(shares, np.array(list(digits.class_counts.values())) / digits.n, rtol=0, atol=1 / 200)


@pytest.mark.parametrize("size", [0, 2, 148, 150])
def test_subsample_of_impossible_size_is_refused(size):
    with pytest.raises(ValueError, match="size: found"):
        datasets.load("iris").subsample(size, seed=0)


# --- standardisation


def test_standardise_uses_the_statistics_of_the_train_part_alone():
    rng = np.random.default_rng(1)
    train, test = rng.normal(3.0, 2.0, (50, 3)), rng.normal(7.0, 5.0, (9, 3))
    got_train, got_test = datasets.standardise(train, test)
    mean, std = train.mean(axis=0), train.std(axis=0)
    # A mean and a quotient in float64 on numbers near 10: a few ulp, 1e-15 each.
    np.testing.assert_allclose(got_train, (train - mean) / std, rtol=0, atol=1e-13)
    np.testing.assert_allclose(got_test, (test - mean) / std, rtol=0, atol=1e-13)


def test_standardise_centres_a_constant_column_and_does_not_divide_it():
    train = np.column_stack([np.full(7, 0.1), np.arange(7.0)])
    test = np.array([[0.6, 3.0]])
    got_train, got_test = datasets.standardise(train, test)
    # The mean of seven 0.1 may be an ulp off.
    np.testing.assert_allclose(got_train[:, 0], 0.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(got_test, [[0.5, 0.0]], rtol=0, atol=1e-15)


def test_standardise_accepts_an_empty_test_part_and_one_train_row():
    assert datasets.standardise(np.ones((3, 2)), np.empty((0, 2)))[1].shape == (0, 2)
    assert datasets.standardise(np.array([[4.0, 5.0]]))[0].tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.empty((0, 2)),), "X_train: found 0 rows"),
        ((np.ones((3, 2)), np.ones((3, 1))), r"others\[0\]: found 1 columns, expected 2"),
        ((np.array([[np.inf]]),), "X_train: found inf"),
        ((np.ones(3),), "X_train: found shape"),
    ],
)
def test_standardise_names_what_it_refuses(arrays, message):
    with pytest.raises(ValueError, match=message):
        datasets.standardise(*arrays)


def test_standardised_uses_the_train_part_of_the_official_split():
    dataset = small([0, 1, 2, 0], X=[[0.0, 1.0], [2.0, 3.0], [9.0, 9.0], [9.0, 9.0]], n_train=2)
    assert dataset.standardised().X[:2].tolist() == [[-1.0, -1.0], [1.0, 1.0]]
    assert dataset.standardised([2, 3]).X[2].tolist() == [0.0, 0.0]


# --- splits


def repeated(seed, n_groups=40, most=4, n_classes=3):
    """Rows in groups of equal inputs, sorted by class, some with differing labels inside a group."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rng.integers(1, most + 1, n_groups))
    y = np.sort(groups % n_classes)
    y[rng.integers(y.size, size=3)] = rng.integers(n_classes, size=3)
    return small(y, X=np.column_stack([groups, -groups.astype(float)]))


def test_duplicate_groups_are_equal_exactly_for_equal_rows():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0], [0.0, 1.0], [np.nextafter(0.0, 1.0), 1.0]])
    assert datasets.duplicate_groups(X).tolist() == [0, 0, 1, 0, 2]


@given(seed=st.integers(0, 2**32 - 1), data_seed=st.integers(0, 10**6), stratify=st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_input_is_in_both_parts_of_a_split(seed, data_seed, stratify):
    dataset = repeated(data_seed)
    train, test = datasets.train_test_split(dataset, seed, 0.3, stratify=stratify)
    groups = datasets.duplicate_groups(dataset.X)
    assert not set(groups[train]) & set(groups[test])
    assert sorted([*train, *test]) == list(range(dataset.n))
    assert len(set(groups[test])) == 12  # 0.3 of 40 distinct rows


@given(seed=st.integers(0, 2**32 - 1), data_seed=st.integers(0, 10**6), stratify=st.booleans())
@settings(max_examples=20, deadline=None)
def test_folds_are_disjoint_cover_all_rows_and_share_no_input_with_their_train_part(seed, data_seed, stratify):
    dataset = repeated(data_seed)
    groups = datasets.duplicate_groups(dataset.X)
    visited = []
    for train, test in datasets.kfold(dataset, 4, seed, stratify=stratify):
        assert not set(groups[train]) & set(groups[test])
        assert sorted([*train, *test]) == list(range(dataset.n))
        visited += test.tolist()
    assert sorted(visited) == list(range(dataset.n))


def test_folds_that_keep_leaks_are_even_in_rows_and_part_equal_ones():
    dataset = repeated(3)
    groups = datasets.duplicate_groups(dataset.X)
    folds = list(datasets.kfold(dataset, 4, 0, keep_leaks=True))
    assert sorted(i for fold in folds for i in fold.test) == list(range(dataset.n))
    assert max(fold.test.size for fold in folds) - min(fold.test.size for fold in folds) <= 3  # one a class
    assert any(set(groups[fold.train]) & set(groups[fold.test]) for fold in folds)
    with pytest.raises(TypeError, match="keep_leaks"):
        datasets.kfold(dataset, 4, 0, keep_leaks=2)


def test_split_without_repeats_has_exactly_the_size_asked_for_and_the_class_shares():
    wine = datasets.load("wine")
    for size, n_test in ((0.1, 18), (50, 50), (None, 18)):
        train, test = datasets.train_test_split(wine, 3, size)
        assert (train.size, test.size) == (178 - n_test, n_test)
        shares = np.bincount(wine.y[test]) / n_test
        # Stratified counts are rounded by less than one row.
        np.testing.assert_allclose(shares, np.bincount(wine.y) / 178, rtol=0, atol=1 / n_test)


def test_splits_repeat_by_seed_and_differ_between_seeds():
    iris = datasets.load("iris")
    one, again, other = (datasets.train_test_split(iris, seed, 0.2) for seed in (1, 1, 2))
    assert np.array_equal(one.train, again.train)
    assert np.array_equal(one.test, again.test)
    assert set(one.test) != set(other.test)
    folds, same, others = ([sorted(f.test) for f in datasets.kfold(iris, 5, seed)] for seed in (1, 1, 2))
    assert folds == same != others


def test_rows_sorted_by_class_come_out_of_every_split_mixed():
    iris = datasets.load("iris")
    parts = [*datasets.train_test_split(iris, 0, 0.5)]
    parts += [part for fold in datasets.kfold(iris, 2, 0) for part in fold]
    parts += [*datasets.train_test_split(iris, 0, 0.5, stratify=False)]
    official = small(np.repeat([0, 1, 2], 20), n_train=50)
    for labels in [*(iris.y[part] for part in parts), official.y[datasets.train_test_split(official, 0).train]]:
        runs = 1 + np.count_nonzero(np.diff(labels))
        # 3 runs when sorted; a random order of 3 classes has about two thirds of n, never as few as a third of n.
        assert runs > labels.size / 3


def test_official_split_is_the_default_where_there_is_one():
    dataset = small([0, 1, 2] * 4, n_train=8)
    split = datasets.train_test_split(dataset, 5)
    assert (sorted(split.train), sorted(split.test)) == (list(range(8)), [8, 9, 10, 11])
    assert len(datasets.train_test_split(dataset, 5, 0.5).test) == 6


def test_official_test_rows_that_repeat_a_train_row_are_left_out_unless_kept():
    X = [[0, 0], [1, 0], [2, 0], [1, 0], [3, 0]]
    dataset = small([0, 1, 2, 2, 0], X=X, n_train=3)  # row 3 repeats the inputs of row 1 under another label
    assert datasets.train_test_split(dataset, 0).test.tolist() == [4]
    assert sorted(datasets.train_test_split(dataset, 0, keep_leaks=True).test) == [3, 4]
    with pytest.raises(ValueError, match="only repeats train rows"):
        datasets.train_test_split(dataset.rows([0, 1, 2, 3]), 0)


@pytest.mark.parametrize("size", [0.0, 1.0, -0.1, 0, 150, 1.5])
def test_test_size_out_of_range_is_refused(size):
    with pytest.raises(ValueError, match="test_size: found"):
        datasets.train_test_split(datasets.load("iris"), 0, size)


def test_test_size_of_another_type_is_refused():
    with pytest.raises(TypeError, match="test_size: found str"):
        datasets.train_test_split(datasets.load("iris"), 0, "0.1")


def test_a_class_with_one_distinct_row_cannot_be_stratified_and_the_error_says_which():
    dataset = small([0, 0, 0, 1, 1, 1, 2])
    with pytest.raises(ValueError, match=r"1 of class 'c'.*stratify=False"):
        datasets.train_test_split(dataset, 0, 0.5)
    assert datasets.train_test_split(dataset, 0, 0.5, stratify=False).test.size == 4


def test_folds_allow_a_class_smaller_than_their_number_and_warn_of_nothing():
    dataset = small([0] * 20 + [1] * 20 + [2] * 4)
    sizes = [np.bincount(dataset.y[f.test], minlength=3)[2] for f in datasets.kfold(dataset, 10, 0)]
    assert sum(sizes) == 4
    with pytest.raises(ValueError, match="n_splits: found 21, expected at most the 20 distinct rows"):
        datasets.kfold(dataset, 21, 0)
    with pytest.raises(ValueError, match="n_splits: found 1"):
        datasets.kfold(dataset, 1, 0)


def test_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed: found -1"):
        datasets.train_test_split(datasets.load("iris"), -1)
