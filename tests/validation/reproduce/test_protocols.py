"""Protocols of the experiments, with classifiers whose scores are known in advance or from scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, zero_one_loss

from validation import datasets
from validation.datasets.splits import kfold
from validation.reproduce.protocols import (
    accuracy_against_time,
    cross_validate,
    inducing_point_study,
    performance_against_time,
    scores,
)


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=50)
    y = rng.integers(0, 3, 50)
    error, nll = scores(p, y)
    # the same sums of 50 terms in another order
    np.testing.assert_allclose(error, zero_one_loss(y, p.argmax(axis=1)), rtol=1e-12, atol=0)
    np.testing.assert_allclose(nll, log_loss(y, p, labels=[0, 1, 2]), rtol=1e-12, atol=0)


def test_a_probability_of_zero_is_an_infinite_nll():
    assert scores(np.array([[1.0, 0.0]]), np.array([1])) == (1.0, np.inf)


@pytest.mark.verifies("wenzel2019", "u5.2-cv", route="scikit-learn's pipeline, metrics and folds, written out")
def test_cross_validation_scores_each_fold_as_a_pipeline_of_scikit_learn_would():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = datasets.load("breast_cancer")
    ticks = iter(range(1000))
    result = cross_validate(data, lambda seed: LogisticRegression(), n_splits=4, n_run=3, seed=3)
    assert len(result) == 3
    for score, split in zip(result, kfold(data, 4, 3), strict=False):
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.X[split.train], data.y[split.train])
        p = model.predict_proba(data.X[split.test])
        # both run L-BFGS on equal numbers: rounding of the scaling is all that can differ
        np.testing.assert_allclose(score.nll, log_loss(data.y[split.test], p), rtol=1e-6, atol=0)
        np.testing.assert_allclose(score.error, zero_one_loss(data.y[split.test], p.argmax(axis=1)), rtol=0, atol=1e-12)
        assert score.seconds > 0.0
    assert next(ticks) == 0


class Remembers:
    """A classifier that keeps what it was given."""

    def __init__(self, seed):
        self.seed, self.seen = seed, []

    def fit(self, X, y):
        self.trained = X
        return self

    def predict_proba(self, X):
        self.seen.append(X)
        return np.full((X.shape[0], 2), 0.5)


def test_each_fold_has_a_seed_of_its_own_and_a_capped_standardised_test_part():
    made = []

    def make(seed):
        made.append(Remembers(seed))
        return made[-1]

    data = datasets.load("breast_cancer")
    cross_validate(data, make, n_splits=5, test_cap=7, seed=1)
    assert len({model.seed for model in made}) == 5
    assert all(model.seen[0].shape[0] == 7 for model in made)
    # centred by the mean of at most 569 rows of standardised size: rounding only
    assert all(np.abs(model.trained.mean(axis=0)).max() < 1e-10 for model in made)


def test_more_folds_than_there_are_is_refused():
    with pytest.raises(ValueError, match="n_run: found 4, expected 1 to 3 folds"):
        cross_validate(datasets.load("iris"), Remembers, n_splits=3, n_run=4)


class Ticking:
    """A classifier of ten steps: step k takes k + 1 seconds of the clock below and puts k/10 on the right class."""

    def __init__(self, m=0):
        self.now, self.level, self.m = 0.0, 0.0, m

    def clock(self):
        return self.now

    def fit(self, X, y, callback):
        for k in range(10):
            self.now += k + 1.0
            self.level = (k + 1) / 20 + 0.01 * self.m
            callback(self)
        return self

    def predict_proba(self, X):
        self.now += 1000.0  # scoring takes long, and must not count
        return np.column_stack([1.0 - self.level * np.ones(X.shape[0]), self.level * np.ones(X.shape[0])])


@pytest.mark.verifies("wenzel2019", "u5.2-time", route="a classifier and a clock whose every reading is known")
def test_the_curve_has_training_time_without_scoring_time():
    model = Ticking()
    X, y = np.zeros((4, 1)), np.ones(4, dtype=np.int64)
    curve = performance_against_time(model, X, y, X, y, growth=2.0, clock=model.clock)
    # training times are 1, 3, 6, 10, ...: scored at the first, then where the time has doubled, and at the end
    steps = np.array([1, 2, 3, 5, 8, 10])
    np.testing.assert_array_equal(curve.seconds, np.array([1.0, 3.0, 6.0, 15.0, 36.0, 55.0]))
    # exact logarithms of short numbers
    np.testing.assert_allclose(curve.nll, -np.log(steps / 20), rtol=1e-12, atol=0)
    np.testing.assert_array_equal(curve.error, np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0]))


@pytest.mark.verifies("wenzel2019", "u5.3-inducing", route="classifiers whose scores say how many inducing points")
def test_the_study_has_a_curve_for_each_number_of_inducing_points():
    made = {}

    def make(m):
        made[m] = Ticking(m)
        return made[m]

    X, y = np.zeros((4, 1)), np.ones(4, dtype=np.int64)
    shared = {"now": 0.0}

    def clock():
        shared["now"] += 1.0
        return shared["now"]

    curves = inducing_point_study(make, (3, 5), X, y, X, y, clock=clock)
    assert list(curves) == [3, 5]
    for m, curve in curves.items():
        # exact logarithm of a short number
        np.testing.assert_allclose(curve.nll[-1], -np.log(0.5 + 0.01 * m), rtol=1e-12, atol=0)
        # one reading of the clock for each step and one at the end
        assert curve.seconds[0] == 1.0
        assert curve.seconds[-1] == 11.0
        assert curve.error[-1] == 0.0


def test_a_study_without_sizes_is_refused():
    with pytest.raises(ValueError, match="sizes: found none"):
        inducing_point_study(Ticking, (), np.zeros((1, 1)), np.zeros(1, int), np.zeros((1, 1)), np.zeros(1, int))


class Budgeted:
    """A classifier that takes three seconds an iteration and is right on the first rows, one for each iteration."""

    now = 0.0

    def __init__(self, iterations):
        self.iterations = iterations

    def fit(self, X, y):
        Budgeted.now += 3.0 * self.iterations
        return self

    def predict_proba(self, X):
        Budgeted.now += 1000.0  # predicting takes long, and must not count
        right = np.arange(X.shape[0]) < self.iterations
        return np.column_stack([~right, right]).astype(np.float64)


@pytest.mark.verifies("izmailov2016", "u5.2-curves", route="classifiers and a clock whose every reading is known")
def test_accuracy_is_that_of_a_run_of_each_length_and_its_time_that_of_the_run():
    X, y = np.zeros((8, 1)), np.ones(8, dtype=np.int64)
    seconds, accuracy = accuracy_against_time(Budgeted, (1, 2, 6), X, y, X, y, clock=lambda: Budgeted.now)
    np.testing.assert_array_equal(seconds, [3.0, 6.0, 18.0])
    np.testing.assert_array_equal(accuracy, [1 / 8, 2 / 8, 6 / 8])


@pytest.mark.parametrize("budgets", [(), (2, 1), (1, 1), (0, 1)])
def test_budgets_that_do_not_rise_are_refused(budgets):
    with pytest.raises(ValueError, match="budgets: found"):
        accuracy_against_time(Budgeted, budgets, np.zeros((1, 1)), np.zeros(1, int), np.zeros((1, 1)), np.zeros(1, int))
