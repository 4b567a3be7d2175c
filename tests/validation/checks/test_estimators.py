"""Checks of the classifiers: every classifier has them, they are green, and what they compare with is what it says."""

import numpy as np
import pytest

from fast import estimators as classifiers
from in_every_run import asked_by_verify
from validation.checks import core, estimator_starts, estimator_streams, estimators, runner
from validation.checks.core import NO_PROBLEM, Context
from validation.checks.estimator_answers import direct, worst
from validation.checks.estimator_settings import ENTRIES, data, difference
from validation.checks.estimator_streams import Points, Steps, logit, probit
from validation.checks.selection import Pair

MODULES = [
    f"validation.checks.{name}"
    for name in ("estimators", "estimator_starts", "estimator_streams", "estimator_class_streams")
]
CHECKS = [check for check in core.imported(MODULES).values() if check.module in MODULES]


def test_every_classifier_is_judged():
    assert sorted(entry.name for entry in ENTRIES) == sorted(classifiers.__all__)
    for entry in ENTRIES:
        asked = {check.quantity for check in CHECKS if check.method == entry.method}
        assert {"classifier", "classifier_learned", "classifier_settings", "classifier_starts"} <= asked


@asked_by_verify
def test_all_are_green(monkeypatch):
    monkeypatch.setattr(core, "_registry", {check.id: check for check in CHECKS})  # tests have one of their own
    pairs = [Pair(check.id, NO_PROBLEM, False) for check in CHECKS]
    answers = [runner.ask(check, Context(), None, pair) for check, pair in zip(CHECKS, pairs, strict=True)]
    assert [(r.check, r.why) for r in runner.judge(answers, MODULES) if r.verdict != "PASS"] == []


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.method)
def test_each_setting_moves_the_answer(entry):
    problem = data(entry.n_classes)
    ways = [estimators.changed(entry, problem, max_iter=2)]
    if entry.family == "classes":
        ways = [ways[0] | {"shared": True, "inducing_points": problem.X[::5]}]
    ways += [ways[0] | {"training": "minibatch"}] if entry.steps else []
    still = []
    for name in ways[0]:
        default = {**entry.defaults, "lengthscales": 1.3, "random_state": 8, "inducing_points": problem.X[::3]}[name]
        if name == "tol":
            default = 0.5  # ends after one iteration
        if name == "max_iter":
            default = 3
        if name == "learn":  # "auto" has EP find the parameters, and the method move none
            default = ("lengthscales",)
        answers = (
            [
                direct(entry, {**way, name: value}, problem.X, problem.codes, problem.X_new)
                for value in (way[name], default)
            ]
            for way in ways
        )
        if not any(worst(one, other)[0] > 1e-9 for one, other in answers):
            still.append(name)
    drawn = entry.steps or entry.family == "adadelta"
    assert still == ([] if drawn or "random_state" not in ways[0] else ["random_state"])


# -- the judge's own definitions -------------------------------------------------------------------------------------


def test_a_difference_is_of_the_largest_entry_and_infinite_where_shapes_or_gaps_differ():
    assert difference([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert difference([np.nan, 1.0], [np.nan, 1.0]) == 0.0
    assert difference([np.nan, 1.0], [0.0, 1.0]) == np.inf
    assert difference([1.0], [1.0, 1.0]) == np.inf
    assert difference(None, None) == 0.0
    assert difference(None, 1.0) == np.inf
    assert difference("a", "b") == np.inf
    assert difference(True, False) == np.inf


def test_the_median_is_that_of_all_pairs():
    X = data(3).X[:9]
    s = X.std(axis=0)
    apart = [np.linalg.norm((X[i] - X[j]) / s) for i in range(9) for j in range(i)]
    # one sum of two squares in another order
    np.testing.assert_allclose(estimator_starts.median_lengthscales(X), s * np.median(apart), rtol=1e-14, atol=0)


def test_points_without_data_are_the_prior_and_new_ones_change_nothing():
    X = data(2).X
    points = Points(X[:4], 2.0, np.array([0.9, 2.5]), 0.1, 1e-9)
    # K_ZZ of condition 1e2 and a jitter of 1e-9
    np.testing.assert_allclose(points.latent(X), [np.zeros(len(X)), np.full(len(X), 2.1)], rtol=0, atol=1e-8)
    points.precision, points.shift = np.diag([1.0, 2.0, 0.5, 3.0]), np.arange(4.0)
    before = points.latent(X[:4])
    points.grow(X[9:11])
    np.testing.assert_allclose(points.latent(X[:4]), before, rtol=0, atol=1e-7)
    np.testing.assert_allclose(points.left(X[:4], X[:0]), 0.0, rtol=0, atol=1e-7)


@pytest.mark.parametrize("sites", [logit, probit])
def test_sites_are_derivatives_of_the_expected_log_density(sites):
    y, mean, var, h = np.array([1.0, -1.0]), np.array([0.3, -1.2]), np.array([0.7, 2.0]), 1e-5
    shift, precision, _ = sites(y, mean, var)
    by_mean = (sites(y, mean + h, var)[2] - sites(y, mean - h, var)[2]) / (2 * h)
    by_var = (sites(y, mean, var + h)[2] - sites(y, mean, var - h)[2]) / (2 * h)
    # central differences at 1e-5 leave 1e-10 of the third derivative and 1e-11 of rounding
    np.testing.assert_allclose(precision, -2.0 * by_var, rtol=0, atol=1e-9)
    np.testing.assert_allclose(shift - precision * mean, by_mean, rtol=0, atol=1e-9)


def test_a_whole_step_on_all_rows_reaches_its_target():
    problem = data(2)
    steps = Steps(Points(problem.X[::6], 2.0, np.array([0.9, 2.5]), 0.1, 1e-3), logit)
    signs = estimator_streams._signs(problem)
    wanted = None
    for _ in range(60):
        steps.step(problem.X, signs, len(signs), 1.0)
        wanted = steps.target(problem.X, signs)
    # at the fixed point of all rows a step on them moves nothing
    np.testing.assert_allclose(steps.at.precision, wanted[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(steps.at.shift, wanted[1], rtol=0, atol=1e-9)
