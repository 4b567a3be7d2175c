"""Parameters that EP finds for the classifiers of its model."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification

from fast.estimators import (
    APEPClassifier,
    ARPEPClassifier,
    EPClassifier,
    PEPClassifier,
    RobustVIClassifier,
    RPAPEPClassifier,
    SEPClassifier,
    VBProbitClassifier,
    _classes,
)
from fast.estimators import _guide as guide
from fast.sparse_classes.alpha_runs import EnergyRun

GUIDED = [SEPClassifier, RobustVIClassifier, PEPClassifier, APEPClassifier, ARPEPClassifier, RPAPEPClassifier]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::3], y[::3]


@pytest.mark.parametrize("cls", GUIDED)
def test_the_parameters_are_those_of_ep_and_training_converges(cls, iris):
    X, y = iris
    model = cls(n_inducing=12, random_state=0).fit(X, y)
    ep = EPClassifier(inducing_points=model.inducing_points_[0], training="batch").fit(X, y)
    # the same search from the same start: no rounding in between
    np.testing.assert_array_equal(model.variance_, ep.variance_)
    np.testing.assert_array_equal(model.noise_, ep.noise_)
    assert model.converged_
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("cls", GUIDED)
def test_named_parameters_are_learned_by_the_method_itself_and_given_ones_held(cls, iris):
    X, y = iris
    own = cls(n_inducing=6, learn=("noise",), max_iter=2, random_state=0).fit(X, y)
    assert (own.variance_ == 1.0).all()
    assert (own.noise_ != 0.1).any()
    held = cls(n_inducing=6, learn=(), max_iter=3, random_state=0).fit(X, y)
    assert (held.noise_ == 0.1).all()


def test_the_probit_has_the_ratio_of_variance_and_noise_that_ep_finds(iris):
    X, y = (part[::2] for part in iris)
    model = VBProbitClassifier(random_state=0).fit(X, y)
    ep = EPClassifier(variance=0.1, shared=True, training="batch").fit(X, y)  # the ratio is the start, 1
    # the same search from the same start, every row an inducing point: no rounding in between
    assert model.variance_ == ep.variance_[0] / ep.noise_[0]
    assert model.noise_ == 0.0
    np.testing.assert_array_equal(model.lengthscales_, ep.lengthscales_[0])
    assert model.converged_
    own = VBProbitClassifier(learn=("variance", "lengthscales")).fit(X, y)
    # its bound prefers a variance at which it is tight
    assert own.variance_ < 0.5 * model.variance_
    assert own.log_evidence_ > model.log_evidence_


@pytest.mark.parametrize("cls", [RobustVIClassifier, APEPClassifier, ARPEPClassifier, RPAPEPClassifier])
def test_training_begins_at_the_q_of_ep_and_keeps_no_copy_of_it(cls, iris, monkeypatch):
    X, y = iris
    first = []
    begin = EnergyRun.begin_at
    monkeypatch.setattr(EnergyRun, "begin_at", lambda self, q: first.append(q) or begin(self, q))
    model = cls(n_inducing=6, random_state=0).fit(X, y)
    ep = EPClassifier(inducing_points=model.inducing_points_[0], training="batch").fit(X, y)
    np.testing.assert_array_equal(first[0].shift, ep.posterior_.run.q.shift)
    if hasattr(model, "epsilon_"):  # a second training begins where the first has ended
        assert len(first) == 2
        assert not np.array_equal(first[1].shift, first[0].shift)
    assert model._first_q is None
    first.clear()
    monkeypatch.setattr(guide, "ROWS", 40)  # EP sees a sample and has points of its own: the prior it is
    cls(n_inducing=6, random_state=0, epsilon=0.1).fit(X, y)
    assert first == []


def test_a_sweep_that_costs_little_is_made_until_nothing_changes(iris, monkeypatch):
    X, y = iris
    assert SEPClassifier(n_inducing=6, random_state=0).fit(X, y).n_iter_ > 100
    monkeypatch.setattr(_classes, "_WORK", 0.0)
    model = SEPClassifier(n_inducing=6, random_state=0).fit(X, y)
    assert (model.n_iter_, model.converged_, model.stop_reason_) == (100, False, "100 sweeps made")
    monkeypatch.setattr(_classes, "_WORK", 50 * 3 * 6**2 * 1.1)  # ten in a hundred more than a hundred
    assert SEPClassifier(n_inducing=6, random_state=0).fit(X, y).n_iter_ == 110


def test_many_rows_are_sampled_and_points_stay_those_of_all_rows(monkeypatch):
    X, y = make_classification(90, 3, n_informative=3, n_redundant=0, random_state=0)
    rows = []
    fit = EPClassifier.fit
    monkeypatch.setattr(EPClassifier, "fit", lambda self, X, y: rows.append(X.shape) or fit(self, X, y))
    monkeypatch.setattr(guide, "ROWS", 40)
    model = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
    assert rows == [(40, 3)]
    assert model.inducing_points_.shape == (2, 10, 3)


def test_a_sample_has_every_class_in_its_share():
    rng = np.random.RandomState(0)
    codes = rng.permutation(np.repeat([0, 1, 2], [300, 99, 1]))
    rows = guide.sample(codes, 100, rng)
    assert rows.size == np.unique(rows).size == 100
    counts = np.bincount(codes[rows])
    # systematic: shares are kept within the two rows that every class has beforehand
    assert counts[2] == 1
    assert abs(counts[0] - 75) <= 2
    np.testing.assert_array_equal(guide.sample(codes[:50], 100, rng), np.arange(50))
