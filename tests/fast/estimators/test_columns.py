"""Columns that data cannot tell apart from nothing, or from others, change nothing that is learned or predicted."""

import numpy as np
import pytest

from fast import estimators
from fast.estimators import EPGPClassifier, LaplaceClassifier, SEPClassifier, SVGPClassifier, XGPClassifier

N = 20  # rows of training
# Copies are taken from the data by a division, and their mean has another order of summation: some units in the last
# place of the inputs, which a posterior of few rows does not multiply by more than 1e4.
ROUNDING = 1e-11


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 3)) * [1.0, 30.0, 0.2]
    return X, (np.sin(2.0 * X[:, 0]) + X[:, 1] / 30.0 + 0.3 * rng.normal(size=60) > 0).astype(int)


def widened(X, kind):
    """Columns that cannot matter among those of X, and where the latter are."""
    n = len(X)
    zeros, far = np.zeros((n, 4)), np.full((n, 1), 1e6)
    rounded = np.full((n, 1), 0.3)
    rounded[::2] = 0.1 + 0.2
    parts = {
        "constant": [far, X[:, :2], zeros, X[:, 2:], rounded],
        "duplicate": [X[:, :1], X[:, :1], X, X[:, 2:]],
        "affine": [X, 1.0 - X[:, :1], 1e-3 * X[:, 1:2] + 7.0, -2e5 * X[:, 2:]],
        "all": [far, X[:, :1], X[:, :1], zeros, 1.0 - X[:, :1], X[:, 1:], rounded, 5.0 * X[:, 2:] + 3.0],
    }
    places = {"constant": [1, 2, 7], "duplicate": [0, 3, 4], "affine": [0, 1, 2], "all": [1, 8, 9]}
    copies = {"constant": [1, 1, 1], "duplicate": [3, 1, 2], "affine": [2, 2, 2], "all": [3, 1, 2]}
    return np.concatenate(parts[kind], axis=1), places[kind], np.sqrt(copies[kind])


def same(one, other, X, wide, places, copies):
    np.testing.assert_allclose(other.predict_proba(wide), one.predict_proba(X), rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(other.log_evidence_, one.log_evidence_, rtol=ROUNDING, atol=0)
    np.testing.assert_allclose(other.log_hyperprior_, one.log_hyperprior_, rtol=ROUNDING, atol=0)
    assert other.n_iter_ == one.n_iter_
    # k copies share 1/l^2
    result = other.lengthscales_[..., places] / copies
    np.testing.assert_allclose(result, one.lengthscales_, rtol=ROUNDING, atol=0)
    varies = np.ptp(wide[:N], axis=0) > 1e-12 * np.abs(wide[:N]).max(axis=0)
    np.testing.assert_array_equal(np.isfinite(np.atleast_2d(other.lengthscales_)[0]), varies)


@pytest.mark.parametrize("name", estimators.__all__)
def test_columns_that_cannot_matter_change_nothing_in_any_classifier(name, data):
    X, y = data
    wide, places, copies = widened(X, "all")
    one, other = (getattr(estimators, name)(max_iter=2, random_state=0).fit(A[:N], y[:N]) for A in (X, wide))
    same(one, other, X, wide, places, copies)


@pytest.mark.parametrize("kind", ["constant", "duplicate", "affine"])
@pytest.mark.parametrize(
    "options",
    [
        {"learn": ()},
        {"learn": ("variance", "lengthscales", "noise", "Z"), "n_inducing": 8, "prior": None, "max_iter": 2},
        {"prior": "half-student-t", "max_iter": 2, "learn": ("variance", "lengthscales")},
        {"training": "minibatch", "batch_size": 7, "max_iter": 20, "n_inducing": 12},
    ],
)
def test_columns_that_cannot_matter_change_nothing_however_training_is_asked(kind, options, data):
    X, y = data
    wide, places, copies = widened(X, kind)
    one, other = (SVGPClassifier(random_state=0, **options).fit(A[:N], y[:N]) for A in (X, wide))
    same(one, other, X, wide, places, copies)


def test_sixty_zero_columns_beside_four_inputs():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(370, 4))
    y = (np.sin(2.5 * X[:, 0]) + 0.2 * rng.normal(size=370) > 0).astype(int)
    ends = []
    for k in (0, 60):
        A = np.c_[X, np.zeros((370, k))]
        model = EPGPClassifier(random_state=0).fit(A[:70], y[:70])
        ends.append(model.predict_proba(A[70:]))
        assert model.score(A[70:], y[70:]) > 0.9  # .756 where zero columns were charged for
    np.testing.assert_array_equal(ends[0], ends[1])  # one computation


def test_single_precision_and_given_starts(data):
    X, y = data
    X = X.astype(np.float32)
    wide = np.c_[X, np.float32(0.1) * np.ones(60, dtype=np.float32), X[:, 1], X[:, 0] * np.float32(4.0)]
    one = XGPClassifier(random_state=0, lengthscales=2.0).fit(X[:N], y[:N])
    other = XGPClassifier(random_state=0, lengthscales=[2.0, 2.0, 2.0, 9.0, 9.0, 9.0]).fit(wide[:N], y[:N])
    same(one, other, X, wide, [0, 1, 2], np.sqrt([2, 2, 1]))


def test_lengthscales_are_those_of_the_kernel_that_predicts(data):
    X, y = data
    wide = np.c_[X, 3.0 - 10.0 * X[:, 0], X[:, 1]]
    model = XGPClassifier(random_state=0).fit(wide[:N], y[:N])
    given = {"variance": model.variance_, "lengthscales": model.lengthscales_, "noise": model.noise_}
    again = XGPClassifier(inducing_points=model.inducing_points_, learn=(), **given).fit(wide[:N], y[:N])
    # a bound at its maximum to 1e-10 twice, predictions err by as much as q: the square root of it
    np.testing.assert_allclose(again.predict_proba(wide), model.predict_proba(wide), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(again.lengthscales_, model.lengthscales_)


def test_of_a_column_that_did_not_vary_new_values_have_no_effect(data):
    X, y = data
    wide = np.c_[X, np.full(60, 4.0)]
    model = LaplaceClassifier(max_iter=3).fit(wide[:N], y[:N])
    moved = wide.copy()
    moved[:, 3] = np.linspace(-1e3, 1e3, 60)
    np.testing.assert_array_equal(model.predict_proba(moved), model.predict_proba(wide))
    assert np.isinf(model.lengthscales_[3])
    assert np.isinf(model.hyper_[1].lengthscales[3])


def test_lengthscales_that_are_given_and_held_count_as_given(data):
    X, y = data
    wide = np.c_[X, np.full(60, 4.0)]
    model = XGPClassifier(lengthscales=[1.0, 30.0, 0.2, 2.0], learn=()).fit(wide[:N], y[:N])
    far = wide.copy()
    far[:, 3] += 200.0
    np.testing.assert_allclose(
        model.predict_proba(far), 0.5, rtol=0, atol=1e-12
    )  # the prior, a hundred lengthscales off
    np.testing.assert_array_equal(model.lengthscales_, [1.0, 30.0, 0.2, 2.0])


@pytest.mark.parametrize("cls", [XGPClassifier, SEPClassifier, LaplaceClassifier])
def test_where_nothing_varies_all_rows_have_the_frequency_of_labels(cls):
    y = np.arange(20) % 4 == 0
    ends = [
        cls(max_iter=5, random_state=0).fit(np.full((20, d), 3.0), y).predict_proba(np.zeros((2, d))) for d in (1, 5)
    ]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert (ends[0][:, 0] > 0.5).all()


def test_inducing_points_may_differ_where_rows_do_not(data):
    X, y = data
    wide = np.c_[X, np.full(60, 4.0)]
    Z = wide[:10].copy()
    Z[:, 3] += np.arange(10.0)
    model = XGPClassifier(inducing_points=Z, random_state=0).fit(wide[:N], y[:N])
    assert np.isfinite(model.lengthscales_).all()
    np.testing.assert_array_equal(model.inducing_points_, Z)


def test_a_memory_map_is_read_by_rows(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(21_000, 3))
    X[:, 1] = 5.0
    y = (X[:, 0] > 0).astype(int)
    mapped = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    options = {"training": "minibatch", "max_iter": 5, "n_inducing": 5, "random_state": 0}
    one, other = (XGPClassifier(**options).fit(A, y) for A in (X[:, [0, 2]], mapped))
    np.testing.assert_array_equal(one.predict_proba(X[:50][:, [0, 2]]), other.predict_proba(X[:50]))


@pytest.mark.parametrize("cls", [XGPClassifier, SVGPClassifier, SEPClassifier])
@pytest.mark.parametrize("after", [0, 20])
def test_streams_learn_nothing_of_columns_that_cannot_matter(cls, after, data):
    X, y = data
    wide, places, copies = widened(X, "all")
    ends = []
    for A in (X, wide):
        model = cls(random_state=0, n_inducing=15, learn=("variance", "lengthscales"), max_iter=3)
        if after:
            model.fit(A[:after], y[:after])
        for start in range(after, 60, 5):
            model.partial_fit(A[start : start + 5], y[start : start + 5], classes=[0, 1])
        ends.append((model.predict_proba(A), model.lengthscales_))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(ends[1][1][..., places] / copies, ends[0][1], rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("cls", [XGPClassifier, SVGPClassifier, SEPClassifier])
def test_a_column_counts_in_a_stream_as_soon_as_it_varies(cls):
    rng = np.random.default_rng(1)
    X = np.c_[rng.normal(size=(300, 2)), np.full(300, 5.0)]
    X = np.c_[X, X[:, 0]]
    y = rng.integers(2, size=300)
    later = slice(100, 300)
    X[later, 2] += rng.normal(size=200)
    X[later, 3] = rng.normal(size=200)
    y[later] = X[later, 2] + X[later, 3] > 5.0
    model = cls(random_state=0, n_inducing=60, learn=())
    for start in range(0, 300, 20):
        model.partial_fit(X[start : start + 20], y[start : start + 20], classes=[0, 1])
        if start == 80:
            assert np.isinf(np.atleast_2d(model.lengthscales_)[:, 2]).all()
    assert np.isfinite(model.lengthscales_).all()
    assert model.inducing_points_.shape[-1] == 4
    assert model.score(X[later], y[later]) > 0.8


def test_a_batch_that_is_refused_leaves_columns_as_they_were(data):
    X, y = data
    A = np.c_[X, np.zeros(60)]
    model = XGPClassifier(random_state=0, learn=()).partial_fit(A[:20], y[:20], classes=[0, 1])
    before, bad = model.predict_proba(A), A[20:30].copy()
    bad[:, 3], bad[3, 2] = 1.0, 1.7e308  # a column that begins to vary, and a row that is too far out
    with pytest.raises(ValueError, match="expected inputs / lengthscales to be finite"):
        model.partial_fit(bad, y[20:30])
    A[30:, 3] = 2.0
    np.testing.assert_array_equal(model.predict_proba(A), before)
    assert np.isinf(model.lengthscales_[3])
