"""The classifiers: scikit-learn's own checks, and what those do not ask."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fast.core.values import Data, Prior
from fast.estimators import (
    EPClassifier,
    EPGPClassifier,
    RobustVIClassifier,
    SVGPClassifier,
    SVIClassifier,
    XGPClassifier,
)
from fast.methods import epgpc, svgpc, x_gpc

CLASSIFIERS = (XGPClassifier, SVGPClassifier, EPGPClassifier)
MODULES = {XGPClassifier: x_gpc, SVGPClassifier: svgpc, EPGPClassifier: epgpc}
EVIDENCE = {XGPClassifier: "elbo", SVGPClassifier: "elbo", EPGPClassifier: "log_evidence"}


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(120, noise=0.25, random_state=0)
    return X, y


@parametrize_with_checks([XGPClassifier()])
def test_scikit_learn_has_nothing_to_object(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([SVGPClassifier(), EPGPClassifier(), XGPClassifier(training="minibatch", max_iter=60)])
def test_scikit_learn_has_nothing_to_object_to_the_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_with_parameters_held_it_is_the_method_and_nothing_else(cls, moons):
    X, y = moons
    Z = X[:15]
    model = cls(inducing_points=Z, variance=2.0, lengthscales=[0.8, 1.1], noise=0.1, jitter=1e-6, learn=()).fit(X, y)
    module = MODULES[cls]
    posterior = module.fit(Data(X, y), Prior(2.0, np.array([0.8, 1.1]), 0.1, 1e-6, Z))
    prediction = module.predict(posterior, X[:7])
    mean, var = model.latent_mean_and_variance(X[:7])
    # one and the same computation
    np.testing.assert_array_equal(mean, prediction.latent_mean)
    np.testing.assert_array_equal(var, prediction.latent_var)
    np.testing.assert_array_equal(model.predict_proba(X[:7]), prediction.probabilities)
    assert model.log_evidence_ == getattr(posterior, EVIDENCE[cls])
    assert model.jitter_spent_ == 0.0
    odds = prediction.probabilities[:, 1] / prediction.probabilities[:, 0]
    # a logarithm of a quotient against a difference of logarithms of numbers of order one
    np.testing.assert_allclose(model.decision_function(X[:7]), np.log(odds), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_learning_raises_the_evidence_and_labels_may_be_text(cls, moons):
    X, y = moons
    names = np.array(["low", "high"])[y]
    held = cls(n_inducing=15, learn=(), random_state=0).fit(X, names)
    learned = cls(n_inducing=15, random_state=0).fit(X, names)
    assert learned.log_evidence_ > held.log_evidence_ + 1.0
    assert list(learned.classes_) == ["high", "low"]
    assert set(learned.predict(X)) == {"high", "low"}
    assert learned.score(X, names) > 0.88
    # decision_function is positive where the second class, "low", is more probable
    assert np.all((learned.decision_function(X) > 0) == (learned.predict(X) == "low"))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_training_on_mini_batches_comes_near_training_on_all_rows(cls, moons):
    X, y = moons
    settings = {"n_inducing": 20, "random_state": 0, "learn": (), "variance": 4.0, "lengthscales": 0.8}
    batch = cls(training="batch", **settings).fit(X, y)
    small = cls(training="minibatch", batch_size=30, max_iter=600, **settings).fit(X, y)
    # noise of the last batches at rates of 0.1 and less: a few hundredths of a probability
    assert np.abs(batch.predict_proba(X) - small.predict_proba(X)).max() < 0.1
    assert abs(batch.log_evidence_ - small.log_evidence_) < 1.0


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_a_pickled_classifier_predicts_the_same(cls, moons):
    X, y = moons
    model = cls(n_inducing=10, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("training", ["batch", "minibatch"])
def test_the_same_seed_gives_the_same_classifier(cls, training, moons):
    X, y = moons
    settings = {"n_inducing": 10, "training": training, "max_iter": 30}
    one, two, other = (cls(random_state=seed, **settings).fit(X, y) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert np.any(one.predict_proba(X) != other.predict_proba(X))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_more_inducing_points_than_distinct_rows_are_capped_with_a_warning(cls):
    X = np.repeat(np.array([[0.0], [1.0], [2.0], [3.0]]), 3, axis=0)
    y = np.array([0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1])
    with pytest.warns(UserWarning, match="n_inducing: found 9 inducing points for 4 distinct rows; 4 are used"):
        model = cls(n_inducing=9, learn=()).fit(X, y)
    assert model.inducing_points_.shape == (4, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cls(learn=()).fit(X, y).inducing_points_.shape == (4, 1)


def test_a_singular_matrix_raises_the_jitter_with_a_warning_and_says_how_much(moons):
    X, y = moons
    Z = np.concatenate([X[:5], X[:5]])
    with pytest.warns(RuntimeWarning, match=r"K_ZZ \(10, 10\) has no Cholesky factor: jitter raised to"):
        model = XGPClassifier(inducing_points=Z, jitter=0.0, learn=()).fit(X, y)
    assert 0.0 < model.jitter_spent_ <= 1e-7
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("cls", [XGPClassifier, SVGPClassifier])
def test_partial_fit_learns_from_batches_that_may_miss_a_class(cls, moons):
    X, y = moons
    rng = np.random.default_rng(0)
    model = cls(n_inducing=20, random_state=0, lengthscales=0.8, variance=4.0, learn=())
    order = np.argsort(y, kind="stable")
    model.partial_fit(X[order[:40]], y[order[:40]], classes=[0, 1], total_samples=120)  # only class 0
    for _ in range(150):
        rows = rng.integers(0, 120, 30)
        model.partial_fit(X[rows], y[rows], total_samples=120)
    assert model.score(X, y) > 0.88
    assert model.n_iter_ == 151


def test_partial_fit_refuses_what_it_cannot_use(moons):
    X, y = moons
    with pytest.raises(ValueError, match="classes: found None in the first call"):
        XGPClassifier().partial_fit(X, y)
    model = XGPClassifier(n_inducing=5, random_state=0).partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"y: found labels \[7\], expected only \[0, 1\]"):
        model.partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match=r"classes: found \[0, 2\]"):
        model.partial_fit(X[:2], y[:2], classes=[0, 2])


def test_fit_after_partial_fit_starts_anew(moons):
    X, y = moons
    model = XGPClassifier(n_inducing=5, random_state=0, learn=())
    model.partial_fit(X, y, classes=[0, 1])
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), again.predict_proba(X))
    assert not hasattr(model, "_online")


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_a_callback_sees_a_classifier_that_predicts(cls, moons):
    X, y = moons
    visited = []
    cls(n_inducing=10, training="minibatch", max_iter=5, random_state=0).fit(
        X, y, callback=lambda model: visited.append(model.predict_proba(X)[:, 1])
    )
    assert len(visited) == 5
    assert np.abs(visited[0] - visited[-1]).max() > 1e-4


def test_it_works_in_pipelines_searches_and_calibration(moons):
    X, y = moons
    search = GridSearchCV(
        make_pipeline(StandardScaler(), XGPClassifier(n_inducing=10, learn=(), random_state=0)),
        {"xgpclassifier__lengthscales": [0.5, 5.0]},
        cv=3,
        scoring="neg_log_loss",
    ).fit(X, y)
    assert search.best_params_ == {"xgpclassifier__lengthscales": 0.5}
    calibrated = CalibratedClassifierCV(XGPClassifier(n_inducing=10, learn=(), random_state=0), cv=3).fit(X, y)
    assert calibrated.score(X, y) > 0.85


def test_feature_names_are_kept_and_checked(moons):
    pd = pytest.importorskip("pandas")
    X, y = moons
    frame = pd.DataFrame(X, columns=["left", "right"])
    model = XGPClassifier(n_inducing=5, learn=(), random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == ["left", "right"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["right", "left"]])


def test_a_memory_map_is_trained_on_as_the_array_is(tmp_path, moons):
    X, y = moons
    stored = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=X.shape)
    stored[:] = X
    settings = {"n_inducing": 10, "training": "minibatch", "max_iter": 40, "random_state": 0}
    np.testing.assert_array_equal(
        XGPClassifier(**settings).fit(stored, y).predict_proba(X), XGPClassifier(**settings).fit(X, y).predict_proba(X)
    )


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"training": "both"}, "training: found 'both', expected one of 'auto', 'batch', 'minibatch'"),
        ({"training": ["batch"]}, r"^training: found \['batch'\]"),
        ({"training": np.array(["batch", "minibatch"])}, "^training: found"),
        ({"training": None}, "^training: found None"),
        ({"n_inducing": 0}, "n_inducing: found 0, expected 'auto' or an integer >= 1, or None"),
        ({"n_inducing": 2.5}, "n_inducing: found 2.5"),
        ({"n_inducing": None, "training": "minibatch"}, "n_inducing: found None with training on mini-batches"),
        ({"inducing_points": np.zeros((3, 5))}, r"inducing_points: found shape \(3, 5\), expected \(m, 2\)"),
        ({"lengthscales": "long"}, "lengthscales: found 'long', expected 'median'"),
        ({"lengthscales": -1.0}, "lengthscales: found"),
        ({"variance": 0.0}, "variance: found 0.0"),
        ({"learn": ("period",)}, r"learn: found \('period',\)"),
        ({"max_iter": 0}, "max_iter: found 0"),
        ({"batch_size": 0, "training": "minibatch"}, "batch_size: found 0"),
    ],
)
def test_bad_settings_are_refused_by_name_in_fit(settings, match, moons):
    X, y = moons
    with pytest.raises(ValueError, match=match):
        XGPClassifier(random_state=0, **settings).fit(X, y)


def test_before_fit_there_is_nothing_to_predict(moons):
    with pytest.raises(NotFittedError):
        XGPClassifier().predict_proba(moons[0])


def test_three_classes_are_refused_and_one_is(moons):
    X, _ = moons
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        XGPClassifier().fit(X, np.arange(120) % 3)
    with pytest.raises(ValueError, match="y: found one class, 1"):
        XGPClassifier().fit(X, np.ones(120, dtype=int))


def test_verbose_says_how_training_ended(moons, capsys):
    X, y = moons
    XGPClassifier(n_inducing=5, learn=(), verbose=1, random_state=0).fit(X, y)
    assert "XGPClassifier: " in capsys.readouterr().out


@pytest.mark.parametrize("cls", [XGPClassifier, EPClassifier, SVIClassifier, RobustVIClassifier])
def test_all_rows_are_seen_in_every_step_by_default_also_where_they_are_thousands(cls):
    X, y = make_moons(2500, noise=0.25, random_state=0)
    settings = {"inducing_points": X[:8], "variance": 4.0, "lengthscales": 0.8, "learn": (), "random_state": 0}
    auto, batch = (cls(training=training, **settings).fit(X, y) for training in ("auto", "batch"))
    np.testing.assert_array_equal(auto.predict_proba(X[:50]), batch.predict_proba(X[:50]))
    assert auto.stop_reason_ == batch.stop_reason_
    small = cls(training="minibatch", max_iter=30, **settings).fit(X, y)
    assert np.abs(small.predict_proba(X[:50]) - auto.predict_proba(X[:50])).max() > 1e-6


def test_rows_whose_projections_have_no_place_are_seen_batch_by_batch():
    X = np.linspace(-1.0, 1.0, 340_000)[:, None]
    model = XGPClassifier(max_iter=3, lengthscales=0.5, learn=(), random_state=0).fit(X, X[:, 0] > 0.0)
    assert model.n_iter_ == 3
    assert "3 steps" in model.stop_reason_
    assert len(model.inducing_points_) == 100
