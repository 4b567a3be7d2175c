"""The classifiers for several classes: scikit-learn's own checks, and what those do not ask."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

from fast.core.values import Data, Prior
from fast.estimators import LaplaceClassifier, NestedEPClassifier, NestedIEPClassifier, VBProbitClassifier, multiclass
from fast.methods import laplace, nested_ep, nested_iep, vb_probit
from in_every_run import others_slow

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


@parametrize_with_checks([VBProbitClassifier(learn=("variance", "lengthscales"))])
def test_scikit_learn_has_nothing_to_object(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [cls(hyperparameters="fixed") for cls in MODULES]
    + [NestedEPClassifier(), NestedIEPClassifier(), LaplaceClassifier(), VBProbitClassifier()]
)
def test_scikit_learn_has_nothing_to_object_to_the_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", MODULES)
def test_with_parameters_fixed_it_is_the_method_and_nothing_else(cls, iris):
    X, y = iris
    model = cls(hyperparameters="fixed", variance=2.0, lengthscales=1.5, noise=0.1).fit(X, y)
    module = MODULES[cls]
    options = type(module.DEFAULTS)(tolerance=1e-8, max_iterations=100)
    posterior = module.fit(Data(X, y, 3), Prior(2.0, np.full(4, 1.5), 0.1, 1e-6, shared=True), options)
    predict = laplace.predict_mean_corrected if module is laplace else module.predict
    prediction = predict(posterior, X[:7])
    # one and the same computation
    np.testing.assert_array_equal(model.predict_proba(X[:7]), prediction.probabilities)
    mean, var = model.latent_mean_and_variance(X[:7])
    np.testing.assert_array_equal(mean, prediction.latent_mean)
    np.testing.assert_array_equal(var, prediction.latent_var)
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


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(569)
    return X[rows[:80]], y[rows[:80]], X[rows[80:240]], y[rows[80:240]]


@pytest.mark.parametrize("cls", others_slow(MODULES, lambda cls: cls in (LaplaceClassifier, VBProbitClassifier)))
def test_the_units_of_the_inputs_do_not_count(cls, cancer):
    X, y, X_test, y_test = cancer  # lengthscales of 1e-2 to 1e3
    model, scaled = cls(random_state=0).fit(X, y), cls(random_state=0).fit(1e4 * X, y)
    # the same numbers up to rounding at the start; a search of some 30 steps may magnify that, found 1e-11
    np.testing.assert_allclose(scaled.predict_proba(1e4 * X_test), model.predict_proba(X_test), rtol=0, atol=1e-6)
    np.testing.assert_allclose(scaled.lengthscales_, 1e4 * model.lengthscales_, rtol=1e-5, atol=0)
    # the larger class has 0.63 of the rows
    assert model.score(X_test, y_test) > 0.9
    assert model.converged_


def test_the_literal_prior_on_lengthscales_is_another_one(cancer):
    X, y, X_test, _ = cancer
    absolute = LaplaceClassifier(prior="half-student-t-absolute").fit(X, y)
    distribution = ("half-student-t", 4.0, 10.0)
    named = LaplaceClassifier(prior={"variance": distribution, "lengthscales": distribution}).fit(X, y)
    # the same prior under two names
    np.testing.assert_array_equal(absolute.predict_proba(X_test), named.predict_proba(X_test))
    start = LaplaceClassifier(hyperparameters="fixed").fit(X, y).lengthscales_
    own = {"variance": distribution, "lengthscales": ("half-student-t", 4.0, 10.0 * start)}
    np.testing.assert_array_equal(
        LaplaceClassifier(prior=own).fit(X, y).predict_proba(X_test),
        LaplaceClassifier(prior="half-student-t").fit(X, y).predict_proba(X_test),
    )


def test_a_noise_of_zero_that_is_learned_starts_small(iris):
    X, y = iris
    model = LaplaceClassifier(noise=0.0, learn="noise").fit(X, y)
    assert 0.0 < model.noise_ < 1.0
    assert LaplaceClassifier(noise=0.0, learn=()).fit(X, y).noise_ == 0.0


def test_a_run_that_did_not_converge_is_the_reason(iris, monkeypatch):
    X, y = iris
    whole = nested_ep.converge

    def restless(prior, options, start=None):
        return whole(prior, replace(options, tolerance=1e-300, max_iterations=60), start=start)

    monkeypatch.setattr(nested_ep, "converge", restless)
    model = NestedEPClassifier(max_iter=2).fit(X[::2], y[::2])
    assert not model.converged_
    assert model.stop_reason_.startswith("the method did not converge at the best parameters")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"lengthscales": [1.0, 2.0]}, r"^lengthscales: found shape \(2,\), expected 'median', a number or \(4,\)"),
        ({"lengthscales": [1j, 1j, 1j, 1j]}, r"^lengthscales: found dtype complex128"),
        ({"lengthscales": [[1.0], [1.0, 2.0]]}, r"^lengthscales: found no array"),
        ({"noise": [0.1, 0.2]}, r"^noise: found"),
        ({"learn": None}, r"^learn: found None"),
        ({"learn": (1,)}, r"^learn: found \(1,\)"),
        (
            {"prior": 5},
            r"^prior: found 5, expected one of 'weak', .* or a mapping field -> .*, or None",
        ),
        (
            {"prior": "cauchy"},
            r"^prior: found 'cauchy', expected one of 'weak', 'half-student-t', 'half-student-t-absol",
        ),
        ({"prior": ("half-student-t", 4.0)}, r"^prior: found \('half"),
        ({"prior": {"period": ("half-student-t", 4.0, 1.0)}}, r"^prior: found field 'period'"),
        ({"prior": {"variance": ("half-student-t", 4.0)}}, r"^prior\['variance'\]: found"),
        ({"prior": {"variance": ("cauchy", 4.0, 1.0)}}, r"^prior\['variance'\]: found 'cauchy'"),
        ({"prior": {"variance": ("half-student-t", -4.0, 1.0)}}, r"^prior\['variance'\] df: found -4.0"),
        ({"prior": {"variance": ("half-student-t", 4.0, 0.0)}}, r"^prior\['variance'\] scale: found 0.0"),
        (
            {"prior": {"lengthscales": ("half-student-t", 4.0, [1.0, -1.0, 1.0, 1.0])}},
            r"^prior\['lengthscales'\] scale: found",
        ),
    ],
)
def test_what_no_prior_can_be_is_refused_by_name(settings, match, iris):
    with pytest.raises(ValueError, match=match):
        LaplaceClassifier(**settings).fit(*iris)


def test_a_mapping_of_priors_is_checked_where_nothing_is_learned(iris):
    distributions = {"noise": ("half-student-t", 4.0, 0.0)}
    with pytest.raises(ValueError, match=r"^prior\['noise'\] scale: found 0.0"):
        LaplaceClassifier(prior=distributions, hyperparameters="fixed").fit(*iris)


def test_no_hyperprior_is_a_flat_one(iris):
    X, y = iris
    flat = LaplaceClassifier(prior=None).fit(X, y)
    empty = LaplaceClassifier(prior={}).fit(X, y)
    np.testing.assert_array_equal(flat.predict_proba(X), empty.predict_proba(X))
    # the maximum of the evidence alone is higher than the evidence where the evidence times a prior is largest
    assert flat.log_evidence_ > LaplaceClassifier().fit(X, y).log_evidence_


def test_a_callback_that_cannot_be_called_is_refused(iris):
    with pytest.raises(ValueError, match=r"^callback: found 5"):
        LaplaceClassifier().fit(*iris, callback=5)


def test_senseless_parameters_are_refused_by_name(iris):
    with pytest.raises(ValueError, match=r"^hyperparameters: found"):
        LaplaceClassifier(hyperparameters="guess").fit(*iris)
    with pytest.raises(ValueError, match=r"^prior: found"):
        LaplaceClassifier(prior="flat").fit(*iris)
    with pytest.raises(ValueError, match=r"^learn: found"):
        LaplaceClassifier(learn=("Z",)).fit(*iris)


@pytest.mark.parametrize("cls", [LaplaceClassifier, NestedEPClassifier])
def test_a_part_of_many_rows_decides_on_the_parameters_and_all_rows_on_the_rest(cls, iris, monkeypatch):
    X, y = iris
    parts = []

    def sampled(*asked):
        parts.append(multiclass_sample(*asked))
        return parts[-1]

    multiclass_sample, ending = multiclass.sample, multiclass.ending
    worth = []
    monkeypatch.setattr(multiclass, "sample", sampled)

    def begun(seconds, **given):
        worth.extend(given.values())
        return ending(seconds, **given)

    monkeypatch.setattr(multiclass, "ending", begun)
    cls(random_state=0).fit(X, y)
    assert parts == []  # as few rows as here are all looked at
    monkeypatch.setattr(multiclass, "_PART", 30)
    cls(random_state=0, learn=("variance", "scale"), max_iter=1).fit(X, y)
    assert parts == []  # and all there are where it is said what is learned
    model = cls(random_state=0).fit(X, y)
    (rows,) = parts
    assert rows.size == 30
    assert worth == [30 * multiclass.ROW_WORTH]
    assert np.bincount(y[rows]).min() >= 9
    assert model.variance_ != 1.0
    held = cls(hyperparameters="fixed", variance=model.variance_, lengthscales=model.lengthscales_).fit(X, y)
    # nested EP starts at the part's sites and ends where five steps do not change log Z by 2e-4 a row
    np.testing.assert_allclose(held.predict_proba(X), model.predict_proba(X), atol=1e-3)
    assert held.log_evidence_ == pytest.approx(model.log_evidence_, abs=X.shape[0] * multiclass.ROW_WORTH)
    short = cls(random_state=0, max_iter=1).fit(X, y)  # the part's search is cut, the posterior is there
    assert not short.converged_
    assert "limit" in short.stop_reason_.lower()
    hurried = cls(random_state=0, max_time=1e-9).fit(X, y)
    assert "max_time" in hurried.stop_reason_
    assert not hurried.converged_
    assert np.isfinite(hurried.predict_proba(X)).all()


def test_parameters_at_which_the_method_does_not_converge_are_refused(iris, monkeypatch):
    """Of a fixed point that was not reached nothing is known: the search stays where they are."""
    X, y = iris
    asked = {"learn": ("variance",), "variance": 2.0, "lengthscales": 1.0, "prior": None}
    assert NestedEPClassifier(**asked).fit(X, y).variance_ > 3.0
    monkeypatch.setattr(multiclass, "_LEARNING_ITERATIONS", 3)
    assert NestedEPClassifier(**asked).fit(X, y).variance_ == 2.0
