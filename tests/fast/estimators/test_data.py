"""Data as people have them, and what the caller has set of NumPy: right answers, or a ValueError that names X or y."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_moons

from fast import estimators
from fast.estimators import EPClassifier, LaplaceClassifier, XGPClassifier

ALL = [getattr(estimators, name) for name in estimators.__all__]
X, Y = make_moons(24, noise=0.2, random_state=0)
TEXT = ["no", "yes"] * 6
ROWS = X[:12]


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_what_the_caller_has_set_of_floating_point_errors_changes_nothing(cls):
    far = np.concatenate([X, 1e3 * X])  # kernels of rows so far apart underflow
    usual = cls(max_iter=3, random_state=0).fit(X, Y).predict_proba(far)
    with np.errstate(all="raise"):
        model = cls(max_iter=3, random_state=0).fit(X, Y)
        np.testing.assert_array_equal(model.predict_proba(far), usual)
        model.decision_function(far)
        model.predict_log_proba(far)
        assert set(np.geterr().values()) == {"raise"}


@pytest.mark.parametrize("cls", [XGPClassifier, estimators.SEPClassifier, estimators.SVGPClassifier])
def test_nor_does_it_in_a_stream(cls):
    with np.errstate(all="raise"):
        model = cls(random_state=0).partial_fit(X, Y, classes=[0, 1])
        assert model.partial_fit(1e3 * X, Y).n_iter_ == 2


@pytest.mark.parametrize(
    ("y", "match"),
    [
        ([1, "a"] * 6, "^y: found numbers and text"),
        (np.array([1, "a"] * 6, dtype=object), "^y: found numbers and text"),
        (np.array([True, 0] * 6, dtype=object), "^y: found flags and numbers"),
        (["a", None] * 6, r"^y: found a missing label \(None\) in row 1"),
        (pd.Series(["a", "b"] * 5 + [pd.NA, "a"]), "^y: found a missing label .* in row 10"),
        (pd.Series(["a", "b"] * 5 + [pd.NA, "a"], dtype="string"), "^y: found a missing label .* in row 10"),
        (pd.Series([1, 0] * 5 + [pd.NA, 1], dtype="Int64"), "^y: found a missing label .* in row 10"),
        (pd.Series([True, False] * 5 + [pd.NA, True], dtype="boolean"), "^y: found a missing label .* in row 10"),
        (pd.Series(["a", "b"] * 5 + [None, "a"], dtype="category"), "^y: found a missing label .* in row 10"),
        (np.array([0.0, 1.0] * 5 + [0.0, np.nan]), r"^y: found a missing label \(nan\) in row 11"),
        (np.array(["2020-01-01", "NaT"] * 6, dtype="M8[D]"), r"^y: found a missing label \(NaT\) in row 1"),
        (np.ma.array([0, 1] * 6, mask=[False] * 11 + [True]), "^y: found masked labels"),
        ([b"a", b"b"] * 6, "^y: found labels of type bytes"),
        (np.array([b"a", b"b"] * 6), "^y: "),
        ([Decimal(1), Decimal(2)] * 6, "^y: found labels of type Decimal"),
        ([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)] * 6, "^y: found labels of type date"),
        ([[1], [2, 3]] * 6, "^y: found labels of type list"),
        ([10**400, 1] * 6, "^y: found integers beyond 64 bits"),
        (np.array([1j, 1] * 6), "^y: found complex numbers"),
        ([0.5, 1.5] * 6, "^y: Unknown label type: continuous"),
        ([0, 1] * 5, "^X, y: Found input variables with inconsistent numbers of samples"),
    ],
)
@pytest.mark.parametrize("cls", [XGPClassifier, EPClassifier])
def test_labels_that_are_no_classes_are_refused_by_name(cls, y, match):
    with pytest.raises(ValueError, match=match):
        cls().fit(ROWS, y)
    if hasattr(cls, "partial_fit"):
        with pytest.raises(ValueError, match=match):
            cls().partial_fit(ROWS, y, classes=["a", "b"])


def test_a_gap_in_the_column_of_labels_of_a_csv_names_y():
    lines = [f"{a},{b},{label}" for (a, b), label in zip(ROWS, TEXT, strict=True)]
    lines[4] = lines[4].rsplit(",", 1)[0] + ","
    table = pd.read_csv(io.StringIO("\n".join(["a,b,label", *lines])))
    with pytest.raises(ValueError, match=r"^y: found a missing label \(nan\) in row 4"):
        LaplaceClassifier().fit(table[["a", "b"]], table["label"])


@pytest.mark.parametrize(
    "y", [np.array([0, 1] * 6, dtype=object), np.array([True, False] * 6, dtype=object), pd.Series(TEXT, dtype=object)]
)
def test_objects_of_one_sort_are_labels(y):
    model = XGPClassifier(learn=(), n_inducing=4, random_state=0).fit(ROWS, y)
    assert model.classes_.tolist() == sorted(set(y))
    assert set(model.predict(ROWS)) <= set(y)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([[10**400, 1.0]] * 12, "^X: found an integer beyond the range of floats"),
        (1e-310 * ROWS, "^X: found rows some .* apart in column 0, expected 1e-300 to 1e.300"),
        (ROWS * [1.0, 1e-310], "^X: found rows some .* apart in column 1"),
        (np.c_[np.full(12, 3.0), ROWS * [1.0, 1e-310]], "^X: found rows some .* apart in column 2"),
        (8e307 * np.clip(ROWS, -2.0, 2.0), "^X: found rows some .* apart in column 0"),
        (pd.DataFrame({"a": [1, pd.NA] * 6, "b": [1.0, 2.0] * 6}), "^X: found a missing value in row 1 column 0"),
        (np.ma.array(ROWS, mask=ROWS > 1.0), "^X: found masked values"),
        ([["red", 1.0]] * 12, "^X: could not convert string to float: 'red'"),
        (1j * ROWS, "^X: found complex numbers, expected real ones"),
        (ROWS[:, 0], "^X: Expected 2D array"),
        (pd.DataFrame(ROWS, columns=["size", "size"]), r"^X: found several columns of the names \['size'\]"),
    ],
)
@pytest.mark.parametrize("cls", [XGPClassifier, EPClassifier])
def test_inputs_that_cannot_be_used_are_refused_by_name(cls, rows, match):
    with pytest.raises(ValueError, match=match):
        cls().fit(rows, TEXT)


def test_inputs_are_blamed_too_where_lengthscales_were_given():
    with pytest.raises(ValueError, match=r"^X: found rows some .* apart in column 0"):
        estimators.JJClassifier(lengthscales=1.0).fit(1e-310 * ROWS, TEXT)


def test_new_rows_are_refused_by_name():
    model = XGPClassifier(learn=(), n_inducing=4).fit(ROWS, TEXT)
    with pytest.raises(ValueError, match=r"^X: found an integer beyond the range of floats"):
        model.predict_proba([[10**400, 1.0]])


@pytest.mark.parametrize("cls", [XGPClassifier, EPClassifier])
def test_log_probabilities_are_those_of_the_probabilities(cls):
    y = Y if cls is XGPClassifier else Y + 2 * (X[:, 1] > 0.5)
    model = cls(learn=(), random_state=0).fit(X, y)
    # a logarithm, to its last digits
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12, atol=0)
    assert np.isfinite(model.predict_log_proba(1e6 * X)).all()


def test_a_lack_of_memory_names_what_needs_less():
    # matrices of 5 and 38 TB
    wide = np.linspace(-1.0, 1.0, 400_000)[:, None]
    with pytest.raises(MemoryError, match=r"X: found 400000 rows, for which .* a full GP take .* sparse classifier"):
        LaplaceClassifier(learn=(), lengthscales=0.5).fit(wide, np.arange(400_000) % 2)
    with pytest.raises(MemoryError, match=r"X: found 400000 rows, for which .* 100000 inducing points .*minibatch"):
        EPClassifier(inducing_points=wide[:100_000], training="batch", lengthscales=0.5).fit(
            wide, np.arange(400_000) % 60
        )
