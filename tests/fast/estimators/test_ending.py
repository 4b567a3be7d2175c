"""max_time, Ctrl-C and lines of progress, for every classifier."""

from __future__ import annotations

import itertools
import signal

import numpy as np
import pytest
from sklearn.datasets import make_classification

from fast import estimators
from fast.core import ending as endings

ALL = [getattr(estimators, name) for name in estimators.__all__]


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(60, 4, class_sep=0.8, random_state=1)
    return X, y


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_without_time_every_classifier_still_predicts_and_says_why_it_ended(cls, rows):
    X, y = rows
    model = cls(max_time=1e-9, random_state=0).fit(X, y)
    assert not model.converged_
    assert "max_time of 1e-09 s spent" in model.stop_reason_
    probabilities = model.predict_proba(X)
    # rows of two numbers sum to one up to rounding
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", [estimators.EPClassifier, estimators.XGPClassifier, estimators.SVIClassifier])
def test_time_that_is_not_spent_changes_nothing(cls, rows):
    X, y = rows
    settings = {"n_inducing": 8, "max_iter": 5, "random_state": 0}
    free = cls(**settings).fit(X, y)
    timed = cls(max_time=1e6, **settings).fit(X, y)
    np.testing.assert_array_equal(free.predict_proba(X), timed.predict_proba(X))
    assert free.stop_reason_ == timed.stop_reason_


@pytest.mark.parametrize(
    "model",
    [
        estimators.SEPClassifier(max_iter=10**6, n_inducing=8, learn=("noise",)),
        estimators.XGPClassifier(training="minibatch", max_iter=10**7, n_inducing=8),
        estimators.EPGPClassifier(training="minibatch", max_iter=10**7, n_inducing=8),
        estimators.SVIClassifier(training="minibatch", max_iter=10**7, n_inducing=8),
        estimators.APEPClassifier(training="minibatch", max_iter=10**7, n_inducing=8),
    ],
    ids=lambda model: type(model).__name__,
)
def test_an_interrupted_fit_predicts_and_the_interrupt_is_raised_again(model, rows):
    X, y = rows
    before = signal.getsignal(signal.SIGINT)
    steps = itertools.count(1)

    def interrupt(state):
        if next(steps) == 5:  # at a step and not at a time: a fast machine may be done by then
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, callback=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert "interrupted" in model.stop_reason_
    assert not model.converged_
    assert model.n_iter_ >= 1
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(
    "cls", [estimators.EPClassifier, estimators.NestedEPClassifier, estimators.SVGPClassifier, estimators.JJClassifier]
)
def test_verbose_prints_while_training_runs(cls, rows, capsys, monkeypatch):
    monkeypatch.setattr(endings, "_FIRST", 0.0)
    X, y = rows
    cls(verbose=1, max_iter=3, random_state=0).fit(X[:40], y[:40])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"{cls.__name__}: ") for line in lines)
    assert "iteration" in lines[0]
    assert "objective" in lines[0]
    cls(verbose=0, max_iter=3, random_state=0).fit(X[:40], y[:40])
    assert capsys.readouterr().out == ""


def test_a_time_that_is_none_is_refused_by_name(rows):
    with pytest.raises(ValueError, match="max_time: found 0"):
        estimators.EPClassifier(max_time=0.0).fit(*rows)


@pytest.mark.parametrize(
    "cls",
    [
        estimators.NestedEPClassifier,
        estimators.NestedIEPClassifier,
        estimators.LaplaceClassifier,
        estimators.VBProbitClassifier,
    ],
    ids=lambda cls: cls.__name__,
)
@pytest.mark.parametrize("learn", ["auto", (), ("variance",)], ids=str)
def test_a_full_gp_of_too_many_rows_for_its_time_is_reduced_and_says_so(cls, learn):
    X, y = make_classification(1500, 4, class_sep=0.8, random_state=1)
    model = cls(max_time=1e-3, learn=learn, random_state=0).fit(X, y)
    assert len(model.posterior_.latent_mean) == 400
    assert not model.converged_
    assert "all 1500 rows would take some" in model.stop_reason_
    assert "EPClassifier" in model.stop_reason_
    assert np.isfinite(model.predict_proba(X[:20])).all()


def test_time_enough_for_all_rows_changes_no_full_gp():
    X, y = make_classification(700, 4, class_sep=0.8, random_state=1)
    free, timed = (
        estimators.LaplaceClassifier(max_time=limit, learn=(), random_state=0).fit(X, y) for limit in (None, 1e6)
    )
    np.testing.assert_array_equal(free.predict_proba(X), timed.predict_proba(X))
    assert free.stop_reason_ == timed.stop_reason_


def test_a_full_gp_that_has_to_be_one_is_refused_where_it_has_no_time():
    X = np.linspace(-1.0, 1.0, 8000)[:, None]
    with pytest.raises(ValueError, match=r"max_time: found 0.001 s, expected at least .* set n_inducing"):
        estimators.XGPClassifier(n_inducing=None, training="batch", max_time=1e-3).fit(X, X[:, 0] > 0)
