"""The classifiers for several classes: scikit-learn's own checks, and what those do not ask."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

from fast.estimators import LaplaceClassifier, NestedEPClassifier, NestedIEPClassifier, VBProbitClassifier
from fast.methods import laplace, nested_ep, nested_iep, vb_probit

MODULES = {
    NestedEPClassifier: nested_ep,
    NestedIEPClassifier: nested_iep,
    LaplaceClassifier: laplace,
    VBProbitClassifier: vb_probit,
}


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::3], y[::3]


@parametrize_with_checks([VBProbitClassifier()])
def test_scikit_learn_has_nothing_to_object(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [cls(hyperparameters="fixed") for cls in MODULES]
    + [NestedEPClassifier(), NestedIEPClassifier(), LaplaceClassifier()]
)
def test_scikit_learn_has_nothing_to_object_to_the_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", MODULES)
def test_with_parameters_fixed_it_is_the_method_and_nothing_else(cls, iris):
    X, y = iris
    model = cls(hyperparameters="fixed", variance=2.0, lengthscales=1.5, noise=0.1).fit(X, y)
    module = MODULES[cls]
    posterior = module.fit(X, y, 3, 2.0, np.full(4, 1.5), 0.1, 1e-6, shared=True, tolerance=1e-8, max_iterations=100)
    found = module.predict(posterior, X[:7])
    # one and the same computation
    np.testing.assert_array_equal(model.predict_proba(X[:7]), found.probabilities)
    mean, var = model.latent_mean_and_variance(X[:7])
    np.testing.assert_array_equal(mean, found.latent_mean)
    np.testing.assert_array_equal(var, found.latent_var)
    assert model.decision_function(X[:7]).shape == (7, 3)
    assert model.converged_
    assert model.jitter_spent_ == 0.0
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X[:3]), model.predict_proba(X[:3]))


@pytest.mark.parametrize("cls", MODULES)
def test_map_raises_the_evidence_and_labels_may_be_text(cls, iris):
    X, y = iris
    names = np.array(["low", "mid", "high"])[y]
    fixed = cls(hyperparameters="fixed").fit(X, names)
    learned = cls(learn=("variance",)).fit(X, names)
    assert learned.log_evidence_ > fixed.log_evidence_
    assert list(learned.classes_) == ["high", "low", "mid"]
    assert fixed.score(X, names) > 0.9


def test_senseless_parameters_are_refused_by_name(iris):
    with pytest.raises(ValueError, match=r"^hyperparameters: found"):
        LaplaceClassifier(hyperparameters="guess").fit(*iris)
    with pytest.raises(ValueError, match=r"^hyperprior: found"):
        LaplaceClassifier(hyperprior="flat").fit(*iris)
    with pytest.raises(ValueError, match=r"^learn: found"):
        LaplaceClassifier(learn=("Z",)).fit(*iris)
