"""The classifiers of villacampa2017 and villacampa2020: scikit-learn's own checks, and that they are the methods."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_iris, make_moons
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from fast.core.values import Data, Prior
from fast.estimators import (
    APEPClassifier,
    ARPEPClassifier,
    EPClassifier,
    GFITCClassifier,
    PEPClassifier,
    RobustVIClassifier,
    RPAPEPClassifier,
    SEPClassifier,
)
from fast.estimators._classes import _end_of_search
from fast.methods import apep, ep, gfitc, pep, sep, vi_robust
from fast.sparse_classes.alpha_runs import EnergyRun, left_out
from fast.sparse_classes.training import Trained
from values_given import fitted

ALPHA = (PEPClassifier, APEPClassifier, ARPEPClassifier, RPAPEPClassifier)
METHODS = {
    EPClassifier: (ep, {"damping": 0.5, "optimizer": "lbfgs"}),
    SEPClassifier: (sep, {"damping": 0.5}),
    GFITCClassifier: (gfitc, {"damping": 0.5}),
    RobustVIClassifier: (vi_robust, {"epsilon": 1e-2}),
    PEPClassifier: (pep, {"epsilon": 1e-3, "alpha": 0.5}),
    APEPClassifier: (apep, {"epsilon": 1e-3, "alpha": 0.5, "energy": "apep"}),
    ARPEPClassifier: (apep, {"epsilon": 1e-3, "alpha": 0.5, "energy": "arpep"}),
    RPAPEPClassifier: (apep, {"epsilon": 1e-2, "alpha": 0.05, "energy": "rpapep"}),
}


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[::5], y[::5]


@parametrize_with_checks([SEPClassifier(n_inducing=5, training="minibatch", max_iter=15)])
def test_scikit_learn_has_nothing_to_object(estimator, check):
    check(estimator)


@parametrize_with_checks([APEPClassifier(n_inducing=5, training="minibatch", max_iter=20, learning_rate=0.1)])
def test_scikit_learn_has_nothing_to_object_to_the_energies(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        EPClassifier(n_inducing=8, max_iter=3),
        SEPClassifier(n_inducing=8, max_iter=20),
        GFITCClassifier(n_inducing=8, max_iter=3),
        RobustVIClassifier(n_inducing=5, training="minibatch", max_iter=30),
        PEPClassifier(n_inducing=5, training="minibatch", max_iter=5),
        APEPClassifier(n_inducing=8, max_iter=3),
        ARPEPClassifier(n_inducing=5, training="minibatch", max_iter=20, learning_rate=0.1),
        RPAPEPClassifier(n_inducing=5, training="minibatch", max_iter=20, learning_rate=0.1),
    ]
)
def test_scikit_learn_has_nothing_to_object_to_the_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", METHODS)
def test_with_parameters_held_it_is_the_method_and_nothing_else(cls, iris):
    X, y = iris
    model = cls(inducing_points=X[::5], variance=2.0, lengthscales=2.5, noise=0.3, learn=(), max_iter=12)
    model.fit(X, y)
    module, options = METHODS[cls]
    options = {name: value for name, value in options.items() if name != "optimizer"}
    asked = type(module.DEFAULTS)(tolerance=1e-8, max_iterations=12, **options)
    posterior = module.fit(Data(X, y, 3), Prior(2.0, np.full(4, 2.5), 0.3, 1e-6, X[::5]), asked)
    prediction = module.predict(posterior, X[:7])
    # one and the same computation
    np.testing.assert_array_equal(model.predict_proba(X[:7]), prediction.probabilities)
    np.testing.assert_array_equal(model.latent_mean_and_variance(X[:7])[1], prediction.latent_var)
    assert model.log_evidence_ == posterior.log_evidence
    assert model.inducing_points_.shape == (3, 6, 4)
    assert model.jitter_spent_ == 0.0
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X[:3]), model.predict_proba(X[:3]))


@pytest.mark.parametrize("cls", METHODS)
def test_learning_raises_the_evidence_and_labels_may_be_text(cls, iris):
    X, y = iris
    names = np.array(["low", "mid", "high"])[y]
    settings = {"n_inducing": 8, "random_state": 0, "lengthscales": 6.0}
    held = cls(learn=(), max_iter=12, **settings).fit(X, names)
    own = {"learn": ("variance", "noise"), "max_iter": 60 if cls is SEPClassifier else 2}
    learned = cls(**own, **settings).fit(X, names)
    assert learned.log_evidence_ > held.log_evidence_ + 0.1
    assert list(learned.classes_) == ["high", "low", "mid"]
    assert learned.score(X, names) > 0.9
    assert learned.lengthscales_.shape == (3, 4)


@pytest.mark.parametrize("cls", [RobustVIClassifier, RPAPEPClassifier])
def test_the_probability_of_a_random_label_is_the_one_whose_cavities_predict_best(cls):
    X, y = make_moons(100, noise=0.2, random_state=0)
    flipped = np.where(np.random.default_rng(0).random(100) < 0.25, 1 - y, y)
    settings = {"n_inducing": 12, "random_state": 0}
    model = cls(**settings).fit(X, flipped)
    first = cls(epsilon=0.1, **settings).fit(X, flipped)
    right = (first.predict_proba(X)[np.arange(100), flipped] - 0.1 / 2) / 0.9

    def minus_bound(epsilon):  # of the labels at that q, and of a row more on either side
        sure, random = np.log1p(epsilon / 2 - epsilon), np.log(epsilon / 2)
        return -(1.0 + right.sum()) * sure - (1.0 + (1.0 - right).sum()) * random

    best = minimize_scalar(minus_bound, bounds=(1e-6, 0.9), method="bounded", options={"xatol": 1e-9}).x
    assert model.epsilon_ == pytest.approx(best, rel=1e-5)
    candidates = {epsilon: cls(epsilon=epsilon, **settings).fit(X, flipped) for epsilon in (0.1, 0.01, model.epsilon_)}
    scores = {epsilon: left_out(each.posterior_.run).sum() for epsilon, each in candidates.items()}
    assert max(scores, key=scores.get) == model.epsilon_
    # one starts at EP's q, the other where the first training ended: both end 1e-4 from the same optimum
    np.testing.assert_allclose(candidates[model.epsilon_].predict_proba(X), model.predict_proba(X), atol=1e-3)
    assert model.n_iter_ > first.n_iter_
    # new rows with wrong labels among them
    new, truth = make_moons(1000, noise=0.2, random_state=1)
    labels = np.where(np.random.default_rng(1).random(1000) < 0.25, 1 - truth, truth)
    assert log_loss(labels, model.predict_proba(new)) < log_loss(labels, candidates[0.01].predict_proba(new)) - 0.1


@pytest.mark.parametrize("cls", [RobustVIClassifier, RPAPEPClassifier])
def test_a_wide_posterior_is_not_taken_for_wrong_labels(cls):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(530, 100))
    y = (X[:, :3].sum(axis=1) > 0).astype(int)
    X[y == 1, :10] += 1.0
    train, new = slice(30), slice(30, None)
    model = cls(random_state=0).fit(X[train], y[train])
    usual = cls(epsilon=0.01, random_state=0).fit(X[train], y[train])
    wide = cls(epsilon=0.27, random_state=0).fit(X[train], y[train])
    assert model.epsilon_ == 0.01
    assert model.score(X[train], y[train]) == 1.0
    loss, of_usual, of_wide = (log_loss(y[new], each.predict_proba(X[new])) for each in (model, usual, wide))
    assert loss == pytest.approx(of_usual, abs=1e-3)
    assert of_wide > loss + 0.1  # what .27 costs, which the bound proposes here


@pytest.mark.parametrize("cls", [RobustVIClassifier, RPAPEPClassifier])
def test_cavities_predict_a_label_as_training_without_its_row_does(cls):
    X, y = make_moons(24, noise=0.3, random_state=0)
    settings = {
        "epsilon": 0.3, "learn": (), "lengthscales": 1.0, "variance": 4.0, "noise": 0.1, "inducing_points": X[:12],
    }  # fmt: skip
    cavities = np.exp(left_out(cls(**settings).fit(X, y).posterior_.run))
    without = [cls(**settings).fit(np.delete(X, i, 0), np.delete(y, i)) for i in range(24)]
    refitted = [model.predict_proba(X[i : i + 1])[0, y[i]] for i, model in enumerate(without)]
    own = cls(**settings).fit(X, y).predict_proba(X)[np.arange(24), y]
    # sites of the other rows stay as they are with the row: of second order in one site, which itself moves .4 here
    np.testing.assert_allclose(cavities, refitted, rtol=0, atol=0.05)
    assert np.abs(own - refitted).max() > 0.15


@pytest.mark.parametrize("cls", [RobustVIClassifier, RPAPEPClassifier])
def test_the_first_of_two_trainings_stands_where_time_is_spent(cls, iris, monkeypatch):
    X, y = iris
    monkeypatch.setattr("fast.estimators._classes.ended", lambda: "max_time of 1 s spent")
    model = cls(n_inducing=4, random_state=0).fit(X, y)
    assert model.epsilon_ == 0.1
    first = cls(n_inducing=4, random_state=0, epsilon=0.1).fit(X, y)
    np.testing.assert_array_equal(first.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("cls", [RobustVIClassifier, RPAPEPClassifier])
def test_labels_that_are_clean_have_the_usual_probability_of_a_random_one(cls):
    X, y = make_moons(60, noise=0.05, random_state=0)
    model = cls(n_inducing=8, random_state=0).fit(X, y)
    usual = cls(n_inducing=8, random_state=0, epsilon=0.01).fit(X, y)
    assert model.epsilon_ == 0.01
    # from two starts, both 1e-4 from the same optimum at the end
    np.testing.assert_allclose(usual.predict_proba(X), model.predict_proba(X), atol=1e-3)
    first = cls(n_inducing=8, random_state=0, epsilon=0.1).fit(X, y)
    assert model.n_iter_ > first.n_iter_


@pytest.mark.parametrize("cls", [RobustVIClassifier, RPAPEPClassifier])
def test_the_probability_of_a_random_label_is_the_usual_one_elsewhere(cls, iris):
    X, y = iris
    settings = {"n_inducing": 4, "random_state": 0, "max_iter": 2}
    for own in ({"learn": ()}, {"training": "minibatch"}):
        model = cls(**own, **settings).fit(X, y)
        usual = cls(epsilon=0.01, **own, **settings).fit(X, y)
        assert model.epsilon_ == usual.epsilon_ == 0.01
        np.testing.assert_array_equal(usual.predict_proba(X), model.predict_proba(X))
    again = model.set_params(epsilon=0.2).fit(X, y)
    assert again.epsilon_ == 0.2


def test_a_search_over_alpha_just_works(iris):
    X, y = iris
    for cls in ALPHA:
        model = cls(n_inducing=4, training="minibatch", max_iter=4, random_state=0, epsilon=0.05)
        search = GridSearchCV(model, {"alpha": [0.0, 0.5, 1.0]}, cv=2, scoring="neg_log_loss", error_score="raise")
        search.fit(X, y)
        assert search.best_params_["alpha"] in (0.0, 0.5, 1.0)
        assert len(set(search.cv_results_["mean_test_score"])) == 3


def test_inducing_points_are_learned_for_each_class_and_may_be_given_so(iris):
    X, y = iris
    model = SEPClassifier(n_inducing=5, learn="Z", max_iter=10, random_state=0).fit(X, y)
    Z = model.inducing_points_
    assert Z.shape == (3, 5, 4)
    assert np.abs(Z[0] - Z[1]).max() > 1e-3
    given = EPClassifier(inducing_points=Z, learn=()).fit(X, y)
    np.testing.assert_array_equal(given.inducing_points_, Z)
    one = EPClassifier(n_inducing=5, shared=True, learn=("lengthscales", "Z"), max_iter=3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(one.inducing_points_[0], one.inducing_points_[2])
    np.testing.assert_array_equal(one.lengthscales_[0], one.lengthscales_[2])
    assert EPClassifier(n_inducing=None, learn=()).fit(X, y).inducing_points_.shape == (3, len(np.unique(X, axis=0)), 4)


def test_partial_fit_is_stochastic_ep_on_those_batches(iris):
    X, y = iris
    batches = [np.arange(k % 5, 30, 5) for k in range(12)]
    for learn in ((), ("variance", "noise", "Z")):
        model = SEPClassifier(inducing_points=X[::5], lengthscales=2.0, learn=learn, prior=None)
        for batch in batches:
            model.partial_fit(X[batch], y[batch], classes=[0, 1, 2], total_samples=30)
        posterior = fitted(
            sep,
            X,
            y,
            3,
            1.0,
            np.full(4, 2.0),
            0.1,
            1e-6,
            X[::5],
            batches=batches,
            learn=learn,
            rate=0.01,
            evaluate=False,
        )
        # the same sums in another order of memory: rounding, twelve steps long
        np.testing.assert_allclose(
            model.predict_proba(X), sep.predict(posterior, X).probabilities, rtol=1e-9, atol=1e-12
        )
        assert model.n_iter_ == 12


def test_partial_fit_goes_on_from_fit_and_survives_batches_that_miss_a_class(iris):
    X, y = iris
    model = SEPClassifier(n_inducing=8, random_state=0, learn=(), lengthscales=2.0, count="per-class").fit(X, y)
    before = model.predict_proba(X)
    for k in range(3):
        model.partial_fit(X[y == k], y[y == k])  # each row a second time: twice the data
    assert np.abs(model.predict_proba(X) - before).max() < 0.2
    assert -np.log(model.predict_proba(X)[np.arange(30), y]).mean() < -np.log(before[np.arange(30), y]).mean()
    again = SEPClassifier(n_inducing=8, random_state=0, learn=(), lengthscales=2.0, count="per-class").fit(X, y)
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), again.predict_proba(X))


def test_one_pass_over_a_stream_of_unknown_length_separates_the_classes(iris):
    X, y = iris
    order = np.random.default_rng(0).permutation(30)
    settings = {"inducing_points": X[::4], "learn": (), "lengthscales": 2.0}
    model = SEPClassifier(damping=1.0, **settings)
    for rows in np.array_split(order, 10):
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    whole = SEPClassifier(max_iter=100, **settings).fit(X, y)
    # one pass against a fixed point: some hundredths of a probability
    assert np.abs(model.predict_proba(X) - whole.predict_proba(X)).mean() < 0.06
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("cls", [EPClassifier, SEPClassifier, RobustVIClassifier, PEPClassifier, APEPClassifier])
def test_two_classes_mini_batches_and_a_callback(cls):
    X, y = make_moons(80, noise=0.2, random_state=0)
    visited = []
    model = cls(n_inducing=8, training="minibatch", batch_size=20, max_iter=4, random_state=1)
    model.fit(X, y, callback=lambda actual: visited.append(actual.predict_proba(X)[:, 1]))
    assert len(visited) == 4
    assert np.abs(visited[0] - visited[-1]).max() > 1e-6
    # the callback saw the state that became the last one
    np.testing.assert_array_equal(visited[-1], model.predict_proba(X)[:, 1])
    twin = cls(n_inducing=8, training="minibatch", batch_size=20, max_iter=4, random_state=1).fit(X, y)
    np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("cls", [EPClassifier, SEPClassifier, APEPClassifier])
def test_neither_origin_nor_units_of_the_inputs_count(cls, iris):
    X, y = iris
    X = np.round(X * 1024.0) / 1024.0  # so that moved rows are exact
    settings = {"n_inducing": 8, "random_state": 0, "max_iter": 3}
    model = cls(**settings).fit(X, y)
    moved = cls(**settings).fit(X + 2.0**30, y)
    # the same rows become inducing points; lengthscales come from means that lose 2^30 eps = 2e-7, found 1e-9
    np.testing.assert_array_equal(moved.inducing_points_, model.inducing_points_ + 2.0**30)
    np.testing.assert_allclose(moved.predict_proba(X + 2.0**30), model.predict_proba(X), rtol=0, atol=1e-6)
    units = np.array([1.0, 2.0**10, 2.0**-10, 2.0**20])  # powers of two: no rounding at all
    scaled = cls(**settings).fit(X * units, y)
    np.testing.assert_allclose(scaled.inducing_points_, model.inducing_points_ * units, rtol=1e-14, atol=0)
    np.testing.assert_allclose(scaled.predict_proba(X * units), model.predict_proba(X), rtol=0, atol=1e-12)


def test_a_noise_of_zero_that_is_learned_starts_small(iris):
    X, y = iris
    assert (EPClassifier(noise=0.0, n_inducing=5, max_iter=2, random_state=0).fit(X, y).noise_ > 0.0).all()
    assert (EPClassifier(noise=0.0, n_inducing=5, learn=(), random_state=0).fit(X, y).noise_ == 0.0).all()


def test_the_reason_agrees_with_what_happened():
    rows, y = np.array([[0.0, 1.0], [2.0, 0.5]]), np.array([0, 1])
    model = EPClassifier(inducing_points=rows, max_iter=30).fit(rows, y)
    assert model.converged_ == (model.stop_reason_ == "gradient of the evidence below 0.01")


@pytest.mark.parametrize(
    ("converged", "residual", "iterations", "reason"),
    [
        (True, 0.001, 30, r"gradient of the evidence below 0.01"),
        (False, 0.001, 4, r"the iteration on q did not converge at the best parameters"),
        (False, 0.5, 30, r"iteration limit reached with a gradient of 0.5"),
        (False, 0.5, 4, r"no step raises the evidence with a gradient of 0.5"),
    ],
)
def test_a_search_says_what_ended_it(converged, residual, iterations, reason):
    trained = Trained(np.zeros(0), residual, converged, iterations, 0, False, "CONVERGENCE: whatever the search says")
    assert _end_of_search(trained, 0.01, 30).startswith(reason)


def test_rpapep_has_bounded_work_by_default(iris):
    X, y = iris
    steps = []
    step = EnergyRun.refresh
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnergyRun, "refresh", lambda *given: steps.append(0) or step(*given))
        model = RPAPEPClassifier(n_inducing=8, random_state=0).fit(X, y)
    # one way to one optimum: no search of evaluations with such a way in each
    assert len(steps) == model.n_iter_ <= 200
    assert model.score(X, y) > 0.9
    assert model.converged_


@pytest.mark.parametrize("variance", [1.0, np.array([1.0, 2.0, 3.0])], ids=["given", "by-ep"])
def test_coinciding_inducing_points_raise_the_jitter_with_a_warning(iris, variance, monkeypatch):
    X, y = iris
    monkeypatch.setattr(EPClassifier, "_guided", lambda self, X, codes, start, rng: start._replace(variance=variance))
    with pytest.warns(RuntimeWarning, match=r"K_ZZ \(6, 6\) has no Cholesky factor: jitter raised to"):
        model = EPClassifier(inducing_points=np.repeat(X[:3], 2, axis=0), jitter=0.0, learn=()).fit(X, y)
    assert model.jitter_spent_ > 0.0
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (EPClassifier(training="both"), r"^training: found 'both'"),
        (EPClassifier(factors="triple"), r"^factors: found 'triple'"),
        (SEPClassifier(count="none"), r"^count: found 'none'"),
        (
            SEPClassifier(learn="period"),
            r"^learn: found 'period', expected different names of variance, scale, lengthscales, noise, Z",
        ),
        (GFITCClassifier(damping=2.0), r"^damping: found 2.0"),
        (RobustVIClassifier(epsilon=0.0), r"^epsilon: found 0.0"),
        (PEPClassifier(alpha=1.5), r"^alpha: found 1.5, expected 0 or a number in \[1e-8, 1\]"),
        (APEPClassifier(alpha=0.0, epsilon=0.0), r"^epsilon: found 0, expected > 0 at alpha = 0"),
        (EPClassifier(inducing_points=np.zeros((2, 5, 4))), r"^inducing_points: found shape \(2, 5, 4\)"),
        (EPClassifier(lengthscales="long"), r"^lengthscales: found 'long'"),
        (EPClassifier(lengthscales=np.ones((2, 2))), r"^lengthscales: found shape \(2, 2\)"),
        (EPClassifier(noise=[0.1, 0.2]), r"^noise: found \[0.1, 0.2\]"),
        (EPClassifier(inducing_points="foo"), r"^inducing_points: found dtype <U3, expected real numbers"),
        (EPClassifier(inducing_points=np.ones((2, 4)) + 1j), r"^inducing_points: found dtype complex128"),
        (EPClassifier(shared="x"), r"^shared: found 'x', expected True or False"),
        (EPClassifier(learn=None), r"^learn: found None"),
        (EPClassifier(training="minibatch", learning_rate=None), r"^learning_rate: found None"),
        (APEPClassifier(alpha=True), r"^alpha: found True"),
        (PEPClassifier(alpha=[0.1]), r"^alpha: found \[0.1\]"),
    ],
)
def test_senseless_settings_are_refused_by_name(model, match, iris):
    with pytest.raises(ValueError, match=match):
        model.fit(*iris)


def test_partial_fit_refuses_what_it_cannot_use(iris):
    X, y = iris
    with pytest.raises(ValueError, match=r"^classes: found None in the first call"):
        SEPClassifier().partial_fit(X, y)
    model = SEPClassifier(n_inducing=5, random_state=0).partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"^y: found labels \[7\]"):
        model.partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match=r"^classes: found one class, \[0\], expected at least two classes"):
        SEPClassifier().partial_fit(X, y, classes=[0])
    before, twin = model.predict_proba(X), pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match=r"^total_samples: found 5, expected at least 30, the rows of X"):
        model.partial_fit(X, y, total_samples=5)
    # what was refused has left no trace
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_array_equal(model.partial_fit(X, y).predict_proba(X), twin.partial_fit(X, y).predict_proba(X))
    assert np.isnan(model.log_evidence_)


def test_the_active_learning_example_asks_where_the_entropy_is_largest(tmp_path):
    path = Path(__file__).resolve().parents[3] / "docs" / "examples" / "active_learning.py"
    spec = importlib.util.spec_from_file_location("active_learning", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # by hand: two outcomes of one half, and a certain one
    np.testing.assert_allclose(
        example.entropy(np.array([[0.5, 0.5], [1.0, 0.0]])), [np.log(2.0), 0.0], rtol=1e-15, atol=1e-15
    )
    asked, drawn = example.main(steps=2)
    assert len(asked) == len(drawn) == 2
    assert asked[0] == drawn[0]  # the same rows to begin with
