"""The classifiers of izmailov2016: scikit-learn's own checks, and that they are the methods."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.utils.estimator_checks import parametrize_with_checks

from fast.core.values import Data, Prior
from fast.estimators import JJClassifier, JJFullClassifier, JJHybridClassifier, SVIClassifier, TaylorClassifier
from fast.estimators._base import cluster_centres
from fast.methods import vi_jj, vi_taylor
from values_given import options_of

FITS = {
    JJClassifier: vi_jj.fit,
    JJFullClassifier: vi_jj.fit_full,
    JJHybridClassifier: vi_jj.fit_hybrid,
    TaylorClassifier: vi_taylor.fit,
}
CLASSIFIERS = (*FITS, SVIClassifier)


@pytest.fixture(scope="module")
def moons():
    return make_moons(100, noise=0.25, random_state=0)


@parametrize_with_checks([JJClassifier(max_iter=3)])
def test_scikit_learn_has_nothing_to_object(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        JJFullClassifier(max_iter=20),
        JJHybridClassifier(max_iter=3),
        TaylorClassifier(max_iter=3),
        SVIClassifier(training="minibatch", max_iter=60),
        SVIClassifier(max_iter=5),
    ]
)
def test_scikit_learn_has_nothing_to_object_to_the_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", FITS)
def test_with_parameters_held_it_is_the_method_and_nothing_else(cls, moons):
    X, y = moons
    settings = {"variance": 2.0, "lengthscales": [0.8, 1.1], "noise": 0.1, "jitter": 1e-6}
    model = cls(inducing_points=X[:15], **settings, learn=(), smoothness=1.5, tol=1e-10, max_iter=500).fit(X, y)
    prior = Prior(2.0, np.array([0.8, 1.1]), 0.1, 1e-6, X[:15], smoothness=1.5)
    options = options_of(FITS[cls])(tolerance=1e-10, max_iterations=500)
    posterior = FITS[cls](Data(X, y), prior, options)
    prediction = (vi_taylor if cls is TaylorClassifier else vi_jj).predict(posterior, X[:7])
    # one and the same computation
    np.testing.assert_array_equal(model.predict_proba(X[:7]), prediction.probabilities)
    assert model.log_evidence_ == posterior.elbo


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_it_learns_predicts_and_survives_a_pickle(cls, moons):
    X, y = moons
    names = np.array(["low", "high"])[y]
    model = cls(n_inducing=12, random_state=0, max_iter=300 if cls is SVIClassifier else 20).fit(X, names)
    assert model.score(X, names) > 0.85
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_inducing_points_are_centres_of_k_means(moons):
    X, y = moons
    model = JJClassifier(n_inducing=6, random_state=0, learn=()).fit(X, y)
    Z = model.inducing_points_
    distances = (X[:, None] - Z[None]) / model.lengthscales_  # those of the kernel
    nearest = (distances**2).sum(axis=2).argmin(axis=1)
    # each centre is the mean of the rows that are nearest to it
    np.testing.assert_allclose(Z, [X[nearest == k].mean(axis=0) for k in range(6)], rtol=0, atol=1e-3)
    assert cluster_centres(X, model.lengthscales_, 3, np.random.RandomState(0)).shape == (3, 2)


def test_a_callback_sees_a_classifier_that_predicts(moons):
    X, y = moons
    visited = []
    SVIClassifier(n_inducing=5, training="minibatch", max_iter=4, random_state=0).fit(
        X, y, callback=lambda model: visited.append(model.predict_proba(X)[0, 1])
    )
    assert len(visited) == 4
    model = JJClassifier(n_inducing=5, random_state=0, learn=())
    model.fit(X, y, callback=lambda actual: visited.append(actual.predict_proba(X)[0, 1]))
    assert len(visited) == 5


def test_what_cannot_be_trained_is_refused_by_name(moons):
    X, y = moons
    with pytest.raises(ValueError, match="n_inducing: found None"):
        SVIClassifier(n_inducing=None, training="minibatch").fit(X, y)
    with pytest.raises(ValueError, match="learn: found 'Z'"):
        JJClassifier(learn=("Z",)).fit(X, y)
    with pytest.raises(ValueError, match="lengthscales: found 'long'"):
        TaylorClassifier(lengthscales="long").fit(X, y)


def test_batch_training_of_svi_ends_above_its_mini_batches_and_at_a_maximum(moons):
    X, y = moons
    settings = {"n_inducing": 12, "random_state": 0, "learn": ("variance", "lengthscales"), "prior": None}
    whole = SVIClassifier(**settings).fit(X, y)
    steps = SVIClassifier(training="minibatch", max_iter=300, **settings).fit(X, y)
    assert whole.converged_
    assert whole.log_evidence_ > steps.log_evidence_
    # q(u) is at its maximum there: another fit that holds the parameters finds the same bound
    held = SVIClassifier(
        inducing_points=whole.inducing_points_, variance=whole.variance_, lengthscales=whole.lengthscales_, learn=()
    ).fit(X, y)
    # both within 1e-10 of the maximum in the units of q, where the bound is flat
    np.testing.assert_allclose(held.log_evidence_, whole.log_evidence_, rtol=1e-8, atol=0)
    assert SVIClassifier(n_inducing=None, learn=()).fit(X[:40], y[:40]).score(X, y) > 0.8


@pytest.mark.parametrize("cls", [JJClassifier, JJHybridClassifier, TaylorClassifier])
def test_stages_end_where_predictions_no_longer_change(cls, moons, monkeypatch):
    X, y = moons
    model = cls(n_inducing=10, random_state=0).fit(X, y)
    monkeypatch.setattr("fast.estimators._base.ROW_WORTH", 0.0)
    longer = cls(n_inducing=10, random_state=0).fit(X, y)
    assert model.stop_reason_ == "further iterations would not change predictions"
    assert longer.stop_reason_ == "the bound has settled"
    assert model.converged_
    assert model.n_iter_ < longer.n_iter_
    np.testing.assert_allclose(model.predict_proba(X), longer.predict_proba(X), rtol=0.0, atol=0.02)
