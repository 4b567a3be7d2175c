"""The copies in $TRIAD_DATA, where it is set: every one as its manifest and the shipped table say."""

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest

from validation import datasets

FOLDER = os.environ.get("TRIAD_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="TRIAD_DATA is not set")


def rows():
    if not FOLDER:
        return [pytest.param({"name": "none"}, id="none")]
    table = tomllib.loads((Path(FOLDER) / "manifest.toml").read_text(encoding="utf-8"))
    return [
        # Above five million numbers a load takes more than half a second.
        pytest.param(row, id=row["name"], marks=[pytest.mark.slow] if row["n"] * row["d"] > 5e6 else [])
        for row in table["dataset"]
    ]


@pytest.mark.parametrize("row", rows())
def test_copy_at_hand_is_what_manifest_and_table_say(row):
    dataset = datasets.load(row["name"], source="folder")
    assert (dataset.n, dataset.d, dataset.n_train) == (row["n"], row["d"], row.get("n_train", 0))
    assert dataset.class_counts == row["classes"]
    assert dataset.sha256 == row["sha256"]
    if "constant_features" in row:
        assert [j + 1 for j in dataset.constant_features] == row["constant_features"]
    if row.get("duplicate_rows", -1) >= 0:
        # The manifest counts a row as a repeat if its label agrees too.
        labelled = np.column_stack([dataset.X, dataset.y])
        groups = datasets.duplicate_groups(labelled)
        assert dataset.n - groups.max() - 1 == row["duplicate_rows"]
        if dataset.n_train and row.get("test_rows_in_train", -1) >= 0:
            leaks = np.isin(groups[dataset.n_train :], groups[: dataset.n_train]).sum()
            assert leaks == row["test_rows_in_train"]


def at_hand(name):
    try:
        return datasets.load(name, source="folder")
    except datasets.DatasetNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


def test_wine_at_hand_is_the_bundled_wine():
    bundled, copy = datasets.load("wine"), at_hand("wine")
    assert np.array_equal(bundled.X, copy.X)
    assert np.array_equal(bundled.y, copy.y)


def test_iris_at_hand_differs_from_the_bundled_iris_in_the_three_known_misprints():
    bundled, copy = datasets.load("iris"), at_hand("iris")
    assert np.argwhere(bundled.X != copy.X).tolist() == [[34, 3], [37, 1], [37, 2]]
    assert (copy.X[34, 3], copy.X[37, 1], copy.X[37, 2]) == (0.1, 3.1, 1.5)
    assert np.array_equal(bundled.y, copy.y)


def test_wdbc_at_hand_is_the_bundled_breast_cancer_with_the_codes_exchanged():
    bundled, copy = datasets.load("breast_cancer"), at_hand("wdbc")
    assert np.array_equal(bundled.X, copy.X)
    assert np.array_equal(bundled.y, 1 - copy.y)


def test_official_split_of_segment_at_hand_loses_its_212_leaking_test_rows():
    segment = at_hand("segment")
    assert len(datasets.train_test_split(segment, 0).test) == 2100 - 212
    assert len(datasets.train_test_split(segment, 0, keep_leaks=True).test) == 2100


def test_official_split_of_svmguide3_at_hand_is_refused():
    with pytest.raises(ValueError, match="only repeats train rows"):
        datasets.train_test_split(at_hand("svmguide3"), 0)


def test_vowel_at_hand_has_540_rows_in_its_first_six_classes():
    vowel = at_hand("vowel").only("0", "1", "2", "3", "4", "5")
    assert (vowel.n, vowel.d, vowel.n_train) == (540, 10, 288)
