"""Experiments of villacampa2020: ranks by counting, protocols against runs written out, printed tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import log_loss, zero_one_loss

from gibbs_samplers import sample_threshold
from reference.common.priors import Prior
from validation import Problem, solve
from validation.datasets.dataset import Dataset
from validation.implementations import power_runs
from validation.reproduce.published import published
from validation.reproduce.villacampa2017.fig5 import Parts
from validation.reproduce.villacampa2017.setting import minibatches
from validation.reproduce.villacampa2020 import fig1, fig2, fig3, fig4, fig6, setting, tablec, uci

METHODS = ("pep", "apep", "arpep", "rpapep")


def small(n=12, t=5, m=3, seed=4):
    """Training rows of three classes in the plane as a problem with test rows, and the start of the methods."""
    rng = np.random.default_rng(seed)
    y = np.arange(n + t) % 3
    X = rng.normal(np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[y], 0.7)
    Z = np.stack([X[rng.choice(n, m, replace=False)] for _ in range(3)])
    one = np.ones(3)
    prior = Prior(1.3 * one, np.tile([0.9, 1.2], (3, 1)), 0.05 * one, 1e-6 * one, Z)
    problem = Problem("small", X[:n], y[:n], 3, "threshold", *prior[:2], noise=prior.noise, jitter=prior.jitter, Z=Z,
                      epsilon=setting.EPSILON, X_test=X[n:], y_test=y[n:])  # fmt: skip
    return problem, prior


def ticking():
    """A clock that says 0, 1, 2, ...: training takes one second between two looks at it."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


# -- splits ----------------------------------------------------------------------------------------------------------


@pytest.mark.verifies("villacampa2020", "u37-uci-protocol", route="rows counted, moments of the training rows")
@pytest.mark.parametrize(("name", "train"), [("glass", 0.9), ("satellite", 0.2), ("waveform", 0.3), ("wine", 0.9)])
@pytest.mark.parametrize(("fraction", "per"), [(0.05, 20), (0.2, 5)])
def test_splits_have_the_papers_shares_and_one_split_serves_every_alpha(name, train, fraction, per):
    rng = np.random.default_rng(2)
    X = np.column_stack([np.arange(200), rng.normal(3.0, 2.0, 200)])
    data = Dataset(name, X, np.arange(200) % 3, ("a", "b", "c"), ("row", "u"), 0, "none", "made up", "")
    plans = [uci.uci_protocol(data, fraction, alpha, 3, seed=1) for alpha in (0.0, 0.7)]
    n = round(train * 200)
    for plan, alpha in zip(plans, (0.0, 0.7), strict=True):
        assert (plan.y.size, plan.y_test.size, plan.n_inducing) == (n, 200 - n, n // per)
        assert (plan.alpha, plan.n_steps, plan.repetitions) == (alpha, 500, 20)
        assert plan.quasi_newton == ("apep", "arpep", "rpapep")
        # moments of standardised columns: rounding only
        np.testing.assert_allclose(plan.X.mean(axis=0), 0.0, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(plan.X.std(axis=0), 1.0, rtol=0.0, atol=1e-9)
        # the first input is the row's number: on a line with equal gaps every row is there once, with its label
        rows = np.concatenate([plan.X[:, 0], plan.X_test[:, 0]])
        gaps = np.diff(np.sort(rows))
        np.testing.assert_allclose(gaps, gaps[0], rtol=0.0, atol=1e-9)
        np.testing.assert_array_equal(np.concatenate([plan.y, plan.y_test])[np.argsort(rows)], data.y)
    np.testing.assert_array_equal(plans[0].X, plans[1].X)


def test_an_alpha_outside_the_unit_interval_is_refused():
    data = Dataset("glass", np.eye(20), np.arange(20) % 2, ("a", "b"), tuple("abcdefghijklmnopqrst"), 0, "", "", "")
    with pytest.raises(ValueError, match=r"alpha: found 1\.2, expected a number from 0 to 1"):
        uci.uci_protocol(data, 0.1, 1.2, 0)


# -- ranks -----------------------------------------------------------------------------------------------------------


def counted(row, k):
    """Rank of a candidate by looking at all others: those before it, and half of those beside it."""
    others = [v for j, v in enumerate(row) if j != k]
    return 1.0 + sum(v < row[k] for v in others) + 0.5 * sum(v == row[k] for v in others)


@pytest.mark.verifies("villacampa2020", "u38-average-ranks", route="pairs counted in loops; scipy.stats.rankdata")
def test_average_ranks_count_who_is_before_and_share_ties():
    scores = np.random.default_rng(3).integers(0, 5, (9, 4)).astype(float)
    scores[2, 1] = scores[2, 3] = np.inf
    result = uci.average_ranks(scores)
    expected = [np.mean([counted(row, k) for row in scores.tolist()]) for k in range(4)]
    # sums of halves
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=0.0)
    np.testing.assert_allclose(result, np.mean([stats.rankdata(row) for row in scores], axis=0), rtol=1e-14, atol=0.0)
    np.testing.assert_allclose(result.sum(), 10.0, rtol=1e-14, atol=0.0)  # 1 + 2 + 3 + 4, ties or not


def test_ranks_go_along_alphas_for_a_method_and_along_methods_for_an_alpha():
    table = np.array([[[1.0, 2.0, 3.0], [0.5, 0.5, 9.0]]])
    result = uci.rank_study(table)
    np.testing.assert_array_equal(result.among_alphas, [[1.0, 2.0, 3.0], [1.5, 1.5, 3.0]])
    np.testing.assert_array_equal(result.among_methods, [[2.0, 2.0, 1.0], [1.0, 1.0, 2.0]])


@pytest.mark.verifies("villacampa2020", "u50-error-ranks", route="pairs counted in loops")
def test_error_ranks_are_those_of_the_shares_of_wrong_labels():
    rng = np.random.default_rng(5)
    n_test = np.array([20, 7, 30, 12])
    wrong = rng.integers(0, 6, (4, 2, 3)).astype(float)
    wrong[1, 1, 2] = np.inf
    result = uci.error_rank_experiments(wrong, n_test)
    for i, j in itertools.product(range(2), range(3)):
        alphas = np.mean([counted(row[i].tolist(), j) for row in wrong])
        methods = np.mean([counted(row[:, j].tolist(), i) for row in wrong])
        # sums of halves
        np.testing.assert_allclose(result.among_alphas[i, j], alphas, rtol=1e-14, atol=0.0)
        np.testing.assert_allclose(result.among_methods[i, j], methods, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uci.average_ranks([[1.0, np.nan]]), "scores: found NaN"),
        (lambda: uci.average_ranks([1.0, 2.0]), r"scores: found shape \(2,\)"),
        (lambda: uci.rank_study([[1.0]]), r"scores: found shape \(1, 1\)"),
        (lambda: uci.error_rank_experiments([[[0.5]]], [4]), "wrong: found a value that is no count"),
        (lambda: uci.error_rank_experiments([[[5.0]]], [4]), "wrong: found more wrong labels"),
        (lambda: uci.error_rank_experiments([[[5.0]]], [4, 4]), r"n_test: found shape \(2,\)"),
    ],
)
def test_scores_that_have_no_rank_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# -- start -----------------------------------------------------------------------------------------------------------


@pytest.mark.verifies("villacampa2020", "u36-initialisation", route="membership, medians, constants; what runs hold")
def test_all_methods_start_alike():
    problem, _ = small(n=30)
    X = problem.X * [1.0, 3.0]
    prior = setting.start(X, 4, 3, 1)
    for Z in prior.Z:
        rows = [next(i for i in range(30) if np.array_equal(X[i], z)) for z in Z]
        assert len(set(rows)) == 4
    apart = [X[a] - X[b] for a in range(30) for b in range(a)]
    typical = np.median([np.linalg.norm(gap / X.std(axis=0)) for gap in apart])
    np.testing.assert_allclose(prior.lengthscales, np.tile(typical * X.std(axis=0), (3, 1)), rtol=1e-12)
    for result, value in ((prior.variance, 1.0), (prior.noise, 0.01), (prior.jitter, setting.JITTER)):
        np.testing.assert_array_equal(result, np.full(3, value))
    assert not np.array_equal(prior.Z, setting.start(X, 4, 3, 2).Z)
    together = setting.start(X, 4, 3, 1, alike=True).lengthscales
    np.testing.assert_allclose(together, np.median([np.linalg.norm(gap) for gap in apart]), rtol=1e-12)
    for method in METHODS:  # and so do their runs
        points = power_runs.begin(method, 0.5, X, problem.y, prior, epsilon=0.001, damping=0.5).points
        np.testing.assert_array_equal(points.Z, prior.Z)
        for name in ("variance", "lengthscales", "noise", "jitter"):
            np.testing.assert_array_equal(getattr(points.hyper, name), getattr(prior, name))


# -- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_run_without_learning_is_the_references_answer(method):
    problem, prior = small()
    alpha = 0.3 if method == "rpapep" else 0.6  # rpapep has several optima on this problem at 0.6
    result = setting.train(
        method, alpha, problem.X, problem.y, prior, setting.Training(learn=(), n_start=500, tolerance=1e-9)
    )  # fmt: skip
    theirs = solve("reference", method, problem, alpha=alpha, tolerance=1e-7, gradients=False)
    # both at one optimum, stopped at relative changes of 1e-7 and 1e-9
    np.testing.assert_allclose(result.probabilities(problem.X_test), theirs.probabilities, rtol=0.0, atol=1e-5)
    np.testing.assert_allclose(result.log_evidence, theirs.log_evidence, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_continues_on_more_rows_ends_where_one_from_the_start_does(method):
    problem, prior = small()
    training = setting.Training(learn=(), n_start=500, tolerance=1e-8)
    first = setting.train(method, 0.4, problem.X[:9], problem.y[:9], prior, training)
    grown = setting.train(method, 0.4, problem.X, problem.y, prior, training, before=first)
    fresh = setting.train(method, 0.4, problem.X, problem.y, prior, training)
    assert not np.allclose(first.probabilities(problem.X_test), fresh.probabilities(problem.X_test), atol=1e-3)
    # one optimum, reached twice to 1e-8 in standardised steps
    both = grown.probabilities(problem.X_test), fresh.probabilities(problem.X_test)
    np.testing.assert_allclose(*both, rtol=0.0, atol=1e-5)


def test_an_energy_without_an_optimum_is_carried_as_none():
    problem, prior = small()
    test = problem.X_test, problem.y_test
    away = prior._replace(Z=prior.Z + 3.0)  # where no datum is near, nothing holds the variance at alpha = 1
    training = setting.Training(learn=(), n_start=100)
    result = setting.train("rpapep", 1.0, problem.X[:4], problem.y[:4], away, training, setting.Watch(test))
    assert result.optimum.startswith("none: ")
    assert (result.log_evidence, result.course) == (None, None)
    assert result.scores(*test) == (np.inf, np.inf)
    assert result.notes == (f"RPAPEP at alpha = 1: {result.optimum}",)
    with pytest.raises(ValueError, match="run: found none: "):
        result.probabilities(problem.X_test)


@pytest.mark.parametrize("method", ["pep", "apep"])
def test_a_budget_of_seconds_ends_a_run_with_the_step_that_spends_it(method):
    problem, prior = small()
    watch = setting.Watch((problem.X_test, problem.y_test), budget=3.0, growth=1.01, clock=ticking())
    result = setting.train(method, 0.5, problem.X, problem.y, prior, setting.Training(n_steps=30), watch)
    assert result.iterations == 3
    assert result.notes == (f"{setting.NAMES[method]} at alpha = 0.5: 3 seconds spent after 3 steps",)
    np.testing.assert_array_equal(result.course.iteration, [1, 2, 3])
    assert np.isfinite(result.course.nll).all()


def test_fig_1_runs_at_a_tiny_size_and_says_what_was_reduced():
    result = fig1.fig1(datasets=("wine",), alphas=(0.0, 1.0), n_run=1, n_max=40, n_steps=1)
    ranks = [dict(zip(result.tables[0].columns, row, strict=True)) for row in result.tables[0].rows]
    assert len(ranks) == 8
    # at alpha = 0 the three energies are one: they share a rank, power EP stands before or after them
    assert {row["among methods"] for row in ranks if row["alpha"] == 0.0 and row["method"] != "PEP"} in ({2.0}, {3.0})
    text = " ".join(result.notes)
    for reduced in (
        "40 of 178 rows",
        "data sets: wine here",
        "alphas: ",
        "repetitions: 1 here",
        "steps: 1 here",
        "is cut: 5 here",
    ):
        assert reduced in text
    assert len(result.pictures) == 2


# -- active learning -------------------------------------------------------------------------------------------------


class Centroids:
    """A learner whose class probabilities follow from distances to the means of the classes."""

    def __init__(self, gives_up_at=None):
        self.sizes, self.gives_up_at = [], gives_up_at

    def fit(self, X, y):
        self.sizes.append(len(y))
        self.rows = X, y
        self.means = np.array([X[y == k].mean(axis=0) for k in range(3)])
        return len(y) != self.gives_up_at

    def probabilities(self, X):
        p = np.exp(-((X[:, None, :] - self.means) ** 2).sum(axis=-1))
        return p / p.sum(axis=1, keepdims=True)


@pytest.mark.verifies("villacampa2020", "u43-active-learning", route="the additions made one by one, in loops")
@pytest.mark.parametrize("rule", ["entropy", "random"])
def test_rows_are_chosen_from_those_that_are_left_and_the_error_is_taken_after_each(rule):
    pool = fig6.drawn_pool(3, n=12, n_test=40, n_pool=9)
    assert (pool.y.size, pool.y_test.size, pool.y_pool.size) == (12, 40, 9)
    np.testing.assert_allclose(pool.X.std(axis=0), 1.0, rtol=0.0, atol=1e-9)  # rounding only
    learner = Centroids()
    result = fig6.active_learning_experiment(learner, pool, rule=rule, n_additions=7, seed=2)
    assert learner.sizes == list(range(12, 20))
    mine = Centroids()
    X, y, left = pool.X.copy(), pool.y.copy(), list(range(9))
    chosen = learner.rows[0][12:]
    for k in range(8):
        mine.fit(X, y)
        p = mine.probabilities(pool.X_test)
        error = np.mean([np.argmax(row) != label for row, label in zip(p, pool.y_test, strict=True)])
        # shares of 40 rows
        np.testing.assert_allclose(result[k], error, rtol=1e-12, atol=0.0)
        if k == 7:
            break
        if rule == "entropy":
            entropies = [stats.entropy(mine.probabilities(pool.X_pool[[i]])[0]) for i in left]
            row = left.pop(int(np.argmax(entropies)))
        else:
            (row,) = [i for i in left if np.array_equal(pool.X_pool[i], chosen[k])]  # one that was left
            left.remove(row)
        np.testing.assert_array_equal(pool.X_pool[row], chosen[k])
        X, y = np.vstack([X, pool.X_pool[row]]), np.append(y, pool.y_pool[row])


def test_a_learner_without_an_optimum_ends_the_additions_as_none():
    pool = fig6.drawn_pool(3, n=12, n_test=40, n_pool=9)
    result = fig6.active_learning_experiment(Centroids(gives_up_at=14), pool, n_additions=4)
    assert np.isfinite(result[:2]).all()
    assert np.isinf(result[2:]).all()
    with pytest.raises(ValueError, match="n_additions: found 10, expected at most 9"):
        fig6.active_learning_experiment(Centroids(), pool, n_additions=10)


@pytest.mark.verifies("villacampa2020", "u43-active-learning", route="numbers of section 5.6 by eye")
def test_the_printed_schedule_gives_power_ep_a_fifth_of_the_iterations():
    for method in ("apep", "arpep", "rpapep"):
        assert fig6.printed_schedule(method) == (100, 400, 500, 100, 250, 25, 100)
    assert fig6.printed_schedule("pep") == (100, 400, 500, 100, 50, 5, 100)
    pool = fig6.drawn_pool(0)
    assert (pool.y.size, pool.y_pool.size, pool.y_test.size) == (100, 400, 500)


def test_each_method_is_trained_long_at_first_and_shortly_after_each_addition(monkeypatch):
    made, train = [], setting.train

    def counted(method, alpha, X, y, prior, training, watch, before):
        made.append((method, training.n_steps, training.optimizer))
        quick = training._replace(n_steps=1, optimizer="adaptive")
        return train(method, alpha, X, y, prior, quick, watch, before)

    monkeypatch.setattr(setting, "train", counted)
    steps = {}
    for method, suffix in (("apep", ""), ("pep", "_pep")):
        plan = fig6.printed_schedule(method)
        steps |= {f"n_first{suffix}": plan.n_first, f"n_next{suffix}": plan.n_next}
    options = {"alphas": (0.5,), "rules": ("random",), "n_additions": 2, "m": 4, "optimizer": "lbfgs"}
    result = fig6.fig6(methods=("pep", "apep"), **steps, **options)
    assert made == [
        ("pep", 50, "lbfgs"), ("pep", 5, "lbfgs"), ("pep", 5, "lbfgs"),
        ("apep", 250, "lbfgs"), ("apep", 25, "lbfgs"), ("apep", 25, "lbfgs"),
    ]  # fmt: skip
    assert not any("steps first" in note for note in result.notes)  # nothing is reduced in this


def test_fig_6_trains_each_method_on_and_on_at_a_tiny_size():
    steps = {"n_first": 2, "n_next": 1, "n_first_pep": 2, "n_next_pep": 1}
    result = fig6.fig6(methods=("pep", "rpapep"), alphas=(0.5,), n_additions=2, m=4, **steps)
    rows = [dict(zip(result.tables[0].columns, row, strict=True)) for row in result.tables[0].rows]
    assert [(row["method"], row["rule"]) for row in rows] == [
        ("PEP", "entropy"), ("PEP", "random"), ("RPAPEP", "entropy"), ("RPAPEP", "random"),
    ]  # fmt: skip
    assert all(0.0 < row["error, last"] < 0.6 for row in rows)
    assert rows[0]["error, first"] == rows[1]["error, first"]
    assert len(result.tables[1].rows) == 12
    text = " ".join(result.notes)
    for printed in ("n_first=250", "n_next=25", "n_first_pep=50", "n_next_pep=5", "n_additions=100", "optimizer=lbfgs"):
        assert f"-o {printed}" in text


# -- inducing points, training time, mini-batches --------------------------------------------------------------------


@pytest.mark.verifies("villacampa2020", "u39-inducing-toy", route="the reference's updates from the same start")
@pytest.mark.parametrize("method", ["pep", "rpapep"])
def test_inducing_points_go_where_the_references_updates_take_them(method):
    problem, prior = small()
    problem = problem.replace(variance=1.0, lengthscales=1.0, noise=0.0)
    data = Dataset("toy", problem.X, problem.y, ("a", "b", "c"), ("u", "v"), 0, "none", "made up", "")
    result = fig2.inducing_point_experiment(
        data, prior.Z, method, 0.5, reduce=0.001, batch_size=6, rate=0.02, n_start=0, seed=3
    )
    common = {"alpha": 0.5, "learn": ("Z",), "rate": 0.02, "gradients": False}
    if method == "pep":  # two of the paper's 2000 iterations
        theirs = solve("reference", method, problem, n_steps=2, scheme="inner", optimizer="adaptive", **common)
    else:  # two epochs of two mini-batches
        batches = minibatches(12, 6, 4, 3)
        theirs = solve("reference", method, problem, batches=batches, n_steps=4, optimizer="adam", **common)
    assert result.steps == (2 if method == "pep" else 4)
    # a few updates of the same numbers by other algebra
    np.testing.assert_allclose(result.Z, theirs.problem.Z, rtol=0.0, atol=1e-7)
    assert np.abs(result.Z - prior.Z).max() > 1e-3


@pytest.mark.verifies("villacampa2020", "u40-time-protocol", route="the reference's updates, scikit-learn's losses")
def test_scores_along_a_batch_run_are_those_of_the_references_updates():
    problem, _ = small()
    prior = setting.start(problem.X, 3, 3, 7)
    problem = problem.replace(**prior._asdict())
    plan = uci.Plan(problem.X, problem.y, problem.X_test, problem.y_test, 9, 0.0, 500, 20, ("apep",))
    result = fig3.training_time_experiment(plan, "pep", 0.5, 3, n_steps=3, n_start=0, growth=1.01, seed=7,
                                          clock=ticking())  # fmt: skip
    assert (result.optimum, result.course.iteration.tolist()) == ("", [1, 2, 3])
    np.testing.assert_array_equal(result.course.seconds, [1.0, 2.0, 3.0])
    for k in range(3):
        theirs = solve(
            "reference", "pep", problem, alpha=0.5, learn=setting.LEARN, n_steps=k + 1, scheme="inner",
            optimizer="adaptive", rate=0.01, gradients=False,
        )  # fmt: skip
        p = theirs.probabilities
        # a few updates of the same numbers by other algebra
        np.testing.assert_allclose(result.course.nll[k], log_loss(problem.y_test, p, labels=[0, 1, 2]), rtol=1e-6)
        np.testing.assert_allclose(result.course.error[k], zero_one_loss(problem.y_test, p.argmax(axis=1)), rtol=1e-12)


@pytest.mark.parametrize(
    ("protocol", "alike", "method"),
    [
        pytest.param(
            fig4.mnist_experiment, True, "apep",
            marks=pytest.mark.verifies("villacampa2020", "u41-mnist", route="the reference's steps of Adam"),
        ),
        pytest.param(
            fig4.airline_experiment, False, "pep",
            marks=pytest.mark.verifies("villacampa2020", "u42-airline", route="the reference's steps of Adam"),
        ),
    ],
)  # fmt: skip
def test_scores_along_mini_batches_are_those_of_the_references_steps(protocol, alike, method):
    problem, _ = small()
    prior = setting.start(problem.X, 3, 3, 7, alike=alike)
    problem = problem.replace(**prior._asdict())
    parts = Parts(problem.X, problem.y, problem.X_test, problem.y_test)
    result = protocol(parts, method, 0.5, m=3, batch_size=5, n_steps=3, rate=0.02, growth=1.01, seed=7, clock=ticking())
    np.testing.assert_array_equal(result.course.seconds, [1.0, 2.0, 3.0])
    batches = minibatches(12, 5, 3, 7)
    for k in range(3):
        own = {"scheme": "inner"} if method == "pep" else {}
        theirs = solve(
            "reference", method, problem, alpha=0.5, learn=setting.LEARN, batches=batches[: k + 1], n_steps=k + 1,
            optimizer="adam", rate=0.02, gradients=False, **own,
        )  # fmt: skip
        p = theirs.probabilities
        # a few updates of the same numbers by other algebra
        np.testing.assert_allclose(result.course.nll[k], log_loss(problem.y_test, p, labels=[0, 1, 2]), rtol=1e-6)
        np.testing.assert_allclose(result.course.error[k], zero_one_loss(problem.y_test, p.argmax(axis=1)), rtol=1e-12)


def test_made_up_flights_run_at_a_tiny_size_and_are_said_to_be_made_up():
    result = fig4.fig5(dataset="synthetic-delays", methods=("apep",), alphas=(0.5,), n=60, n_test=20, m=4, n_steps=2,
                      batch_size=20)  # fmt: skip
    assert result.notes[0].startswith("MADE-UP DATA")
    assert np.isfinite(result.tables[0].rows[0][4])
    text = " ".join(result.notes)
    for reduced in (
        "60 of 2117068 training",
        "points per class: 4 here",
        "rows in a mini-batch: 20 here",
        "alphas: 0.5 here",
    ):
        assert reduced in text


# -- baselines -------------------------------------------------------------------------------------------------------


def plan_of(problem):
    return uci.Plan(problem.X, problem.y, problem.X_test, problem.y_test, 3, 1.0, 500, 20, ())


def test_the_gibbs_baseline_samples_the_fitc_model_with_the_hyper_parameters_it_is_given():
    problem, prior = small()
    result = tablec.gibbs_baseline(
        problem.X, problem.y, problem.X_test, prior, epsilon=0.02, n_chains=4, n_draws=10, n_warmup=5, seed=5
    )
    chains = sample_threshold(
        problem.X, problem.y, 3, *prior, "fitc", problem.X_test, 0.02, n_chains=4, n_draws=10, n_warmup=5, seed=5
    )
    np.testing.assert_array_equal(result.probabilities, chains.probabilities)
    np.testing.assert_array_equal(result.latent_mean, chains.latent_mean)


@pytest.mark.verifies(
    "villacampa2020", "u48-mcmc", route="importance-weighted draws from the prior, z-tests", resolves=0.2
)
def test_the_gibbs_baseline_has_the_probabilities_of_weighted_draws_from_the_prior():
    problem, prior = small(n=4, t=2)
    result = tablec.gibbs_baseline(problem.X, problem.y, problem.X_test, prior, epsilon=0.1, n_chains=8, n_draws=400,
                                  n_warmup=50, seed=2)  # fmt: skip
    rng = np.random.default_rng(8)
    X = np.vstack([problem.X, problem.X_test])
    draws = np.empty((60_000, 6, 3))
    for k in range(3):

        def kernel(a, b, ell=prior.lengthscales[k]):
            return 1.3 * np.exp(-0.5 * (((a[:, None] - b) / ell) ** 2).sum(axis=-1))

        K, cross = kernel(prior.Z[k], prior.Z[k]) + 1e-6 * np.eye(3), kernel(X, prior.Z[k])
        back = np.linalg.solve(K, cross.T).T
        spread = 1.3 + 0.05 - np.einsum("im,im->i", back, cross)
        u = rng.standard_normal((60_000, 3)) @ np.linalg.cholesky(K).T
        draws[:, :, k] = u @ back.T + np.sqrt(spread) * rng.standard_normal((60_000, 6))
    label = draws.argmax(axis=-1)
    weight = np.where(label[:, :4] == problem.y, 0.9 + 0.1 / 3, 0.1 / 3).prod(axis=1)
    weight /= weight.sum()
    for i, k in itertools.product(range(2), range(3)):
        p = np.where(label[:, 4 + i] == k, 0.9 + 0.1 / 3, 0.1 / 3)
        mean = weight @ p
        error = np.sqrt(np.sum((weight * (p - mean)) ** 2))
        # six statistics at 1e-5 two-sided each; chains: at least 800 effective draws of a number in [0, 1]
        limit = stats.norm.isf(0.5e-5) * np.hypot(error, np.sqrt(mean * (1.0 - mean) / 800.0))
        assert abs(result.probabilities[i, k] - mean) < limit


@pytest.mark.verifies("villacampa2020", "u49-baseline-comparison", route="each method by itself, scikit-learn's losses")
def test_baselines_take_what_power_ep_has_learned_and_are_scored_on_the_same_rows():
    problem, _ = small()
    prior = setting.start(problem.X, 3, 3, 4)
    options = {"n_steps": 3, "rate": 0.01}
    result = tablec.baseline_comparison(plan_of(problem), 3, n_chains=2, n_draws=8, seed=4, clock=ticking(), **options)
    assert tuple(result.scores) == tablec.COLUMNS
    p = {}
    for alpha in (0.0, 0.5, 1.0):
        run = setting.train("pep", alpha, problem.X, problem.y, prior, setting.Training(**options))
        p[f"pep {alpha:g}"] = run.probabilities(problem.X_test)
    points = run.run.points
    learned = problem.replace(**points.hyper._asdict(), Z=points.Z)
    p["laplace-sparse"] = solve(
        "fast", "laplace-sparse", learned.replace(likelihood="softmax", epsilon=0.0), tolerance=1e-8
    ).probabilities
    p["gibbs-threshold"] = sample_threshold(
        problem.X, problem.y, 3, *points.hyper, points.Z, "fitc", problem.X_test, setting.EPSILON,
        n_chains=2, n_draws=8, n_warmup=200, seed=4,
    ).probabilities  # fmt: skip
    p["label-regression"] = solve(
        "fast", "label-regression", problem.replace(**prior._asdict()), learn=setting.LEARN, optimizer="adaptive",
        **options,
    ).probabilities  # fmt: skip
    for name, score in result.scores.items():
        # the same runs, Laplace's mode to 1e-6
        np.testing.assert_allclose(score.nll, log_loss(problem.y_test, p[name], labels=[0, 1, 2]), rtol=1e-5)
        np.testing.assert_allclose(score.error, zero_one_loss(problem.y_test, p[name].argmax(axis=1)), rtol=1e-12)
        assert score.seconds >= 1.0


def test_the_printed_tables_have_every_set_and_method():
    printed = published("villacampa2020", "tablec")
    assert tuple(printed["methods"]) == tablec.COLUMNS
    for fraction, score in itertools.product(("5%", "10%", "20%"), ("error", "nll")):
        block = printed[fraction][score]
        assert set(block) == {*uci.DATASETS, "seconds"}
        assert all(len(row) == 6 and all(len(cell) == 2 for cell in row) for row in block.values())
        # one mean time for both tables
        times = [[cell[0] for cell in printed[fraction][name]["seconds"]] for name in ("error", "nll")]
        assert times[0] == times[1]
    assert printed["5%"]["nll"]["glass"][3] == [2.05, 0.07]
    assert printed["20%"]["error"]["vowel"][4] == [0.02, 0]


def test_tables_c_run_at_a_tiny_size_beside_the_printed_numbers():
    result = tablec.tablec(datasets=("wine",), methods=("pep 1", "label-regression"), n_run=1, n_max=60, n_steps=2)
    rows = [dict(zip(result.tables[0].columns, row, strict=True)) for row in result.tables[0].rows]
    assert [(row["method"], row["score"], row["paper"]) for row in rows] == [
        ("PEP (alpha = 1)", "nll", 0.49), ("PEP (alpha = 1)", "error", 0.05), ("PEP (alpha = 1)", "seconds", 1495.37),
        ("Label regression", "nll", 0.09), ("Label regression", "error", 0.03), ("Label regression", "seconds", 131.61),
    ]  # fmt: skip
    text = " ".join(result.notes)
    for reduced in ("60 of 178 rows", "data sets: wine here", "repetitions: 1 here", "2 steps"):
        assert reduced in text
