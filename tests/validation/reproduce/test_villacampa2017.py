"""Experiments of villacampa2017: protocols against the reference's runs, splits counted, printed tables."""

from __future__ import annotations

import gzip
import hashlib
import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.metrics import log_loss, zero_one_loss

from reference.common.priors import Prior
from validation import Problem, datasets, solve
from validation.datasets.dataset import Dataset
from validation.datasets.splits import standardise
from validation.reproduce.published import published
from validation.reproduce.villacampa2017 import fig1, fig3, fig4, fig5, flights, setting, table2, uci
from validation.reproduce.villacampa2017.fig1 import SCHEMES, run_schedule_comparison
from validation.reproduce.villacampa2017.fig3 import boundary_of, different, inducing_point_experiment, margin
from validation.reproduce.villacampa2017.fig4 import averaged, times_of, training_time_experiment
from validation.reproduce.villacampa2017.fig5 import Parts, airline_experiment, mnist_experiment

STARTS = {"variance": 1.3, "lengthscales": np.array([0.9, 1.2]), "noise": 0.05, "jitter": 1e-6}
LEARN = ("variance", "lengthscales", "noise", "Z")


def small(n=12, t=5, m=3, seed=4):
    """Training rows of three classes in the plane as a problem with test rows, and the start of the methods."""
    rng = np.random.default_rng(seed)
    y = np.arange(n + t) % 3
    X = rng.normal(np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[y], 0.7)
    Z = np.stack([X[rng.choice(n, m, replace=False)] for _ in range(3)])
    problem = Problem(
        "small", X[:n], y[:n], 3, "threshold", **STARTS, Z=Z, X_test=X[n:], y_test=y[n:]
    )  # fmt: skip
    one = np.ones(3)
    prior = Prior(1.3 * one, np.tile(STARTS["lengthscales"], (3, 1)), 0.05 * one, 1e-6 * one, Z)
    return problem, prior


def ticking():
    """A clock that says 0, 1, 2, ...: training takes one second between two looks at it."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


# -- Fig. 1 ----------------------------------------------------------------------------------------------------------


@pytest.mark.verifies("villacampa2017", "u14-figure1-protocol", route="the reference's schedules, update by update")
def test_each_schedule_has_the_evidence_of_the_references_updates():
    problem, prior = small()
    result = run_schedule_comparison(
        problem.X, problem.y, prior, n_steps=3, rate=0.01, tolerance=1e-6, damping=0.6, clock=ticking()
    )
    assert tuple(result) == SCHEMES
    for scheme, schedule in result.items():
        theirs = solve(
            "reference", "ep", problem, learn=LEARN, scheme=scheme, optimizer="adaptive", rate=0.01, n_steps=3,
            tolerance=1e-6, damping=0.6, trace=True, gradients=False,
        )  # fmt: skip
        # three updates of the same numbers by other algebra, EP within its tolerance
        np.testing.assert_allclose(schedule.log_evidence, theirs.trace, rtol=1e-5, atol=0.0)
        np.testing.assert_array_equal(schedule.seconds, [1.0, 2.0, 3.0])
        assert schedule.notes == ()


# -- Tables 1 to 3 ---------------------------------------------------------------------------------------------------


def test_table_1_has_the_sizes_of_the_sets_known_by_name():
    drawn = datasets.make_waveform(np.random.default_rng(0))
    assert uci.uci_dataset_table("waveform") == (drawn.n, drawn.d, drawn.n_classes)
    for name in sorted(set(uci.DATASETS) - {"waveform"}):
        known = datasets.expected_counts(name)
        counts = [count for label, count in known.classes.items() if name != "vowel" or int(label) < 6]
        assert uci.uci_dataset_table(name) == (sum(counts), known.d, len(counts)), name


def test_a_set_that_table_1_does_not_have_is_refused():
    with pytest.raises(ValueError, match="name: found 'iris', expected one of"):
        uci.uci_dataset_table("iris")


def rows_of(name, n):
    """A made-up set under this name, in whose first input each row has its own number."""
    rng = np.random.default_rng(n)
    X = np.column_stack([np.arange(n), rng.normal(3.0, 2.0, n)])
    return Dataset(name, X, np.arange(n) % 3, ("a", "b", "c"), ("row", "u"), 0, "none", "made up", "")


@pytest.mark.verifies("villacampa2017", "u33-uci-protocol", route="rows counted, moments of the training rows undone")
@pytest.mark.parametrize(("name", "train"), [("glass", 0.9), ("satellite", 0.2), ("waveform", 0.3), ("wine", 0.9)])
@pytest.mark.parametrize(("fraction", "per"), [(0.05, 20), (0.2, 5)])
def test_splits_have_the_papers_shares_and_every_row_is_on_one_side(name, train, fraction, per):
    data = rows_of(name, 200)
    plan = uci.uci_protocol(data, fraction, 3, seed=1)
    n = round(train * 200)
    assert plan.y.shape == (n,)
    assert plan.y_test.shape == (200 - n,)
    assert (plan.n_inducing, plan.n_steps, plan.repetitions) == (n // per, 250, 20)
    # the first input is the row's number: sorted by it, rows are evenly spaced, and the rest is that of the data up to
    # one linear map; rounding only
    close = {"rtol": 0.0, "atol": 1e-9}
    np.testing.assert_allclose(plan.X.mean(axis=0), 0.0, **close)
    np.testing.assert_allclose(plan.X.std(axis=0), 1.0, **close)
    both = np.vstack([plan.X, plan.X_test])
    order = np.argsort(both[:, 0])
    gaps = np.diff(both[order, 0])
    np.testing.assert_allclose(gaps, gaps[0], **close)
    np.testing.assert_array_equal(np.concatenate([plan.y, plan.y_test])[order], data.y)
    second = both[order, 1]
    derivative, offset = np.polyfit(data.X[:, 1], second, 1)
    np.testing.assert_allclose(second, derivative * data.X[:, 1] + offset, **close)


def test_repetitions_have_splits_of_their_own_and_one_seed_gives_one_split():
    data = rows_of("glass", 100)
    first, again, other = (uci.uci_protocol(data, 0.1, k, seed=5) for k in (0, 0, 1))
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)


@pytest.mark.verifies(
    "villacampa2017", "u35-metrics", route="scikit-learn's losses, SciPy's standard error of the mean"
)
def test_averages_are_those_of_scikit_learns_scores_with_scipys_standard_errors():
    rng = np.random.default_rng(6)
    p = [rng.dirichlet(np.ones(3), 20) for _ in range(4)]
    y = [rng.integers(0, 3, 20) for _ in range(4)]
    seconds = [2.0, 3.0, 5.0, 4.0]
    result = uci.evaluation_metrics(p, y, seconds)
    nll = [log_loss(b, a, labels=[0, 1, 2]) for a, b in zip(p, y, strict=True)]
    error = [zero_one_loss(b, a.argmax(axis=1)) for a, b in zip(p, y, strict=True)]
    expected = [f(values) for values in (nll, error, seconds) for f in (np.mean, stats.sem)]
    # the same sums of a few terms
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=0.0)


def test_one_repetition_has_no_error_bar_and_none_at_all_is_refused():
    one = uci.evaluation_metrics([np.array([[0.5, 0.5]])], [np.array([1])], [2.0])
    assert one.nll == pytest.approx(np.log(2.0))
    assert np.isnan([one.nll_bar, one.error_bar, one.seconds_bar]).all()
    with pytest.raises(ValueError, match="probabilities: found 0, 0 and 0 repetitions"):
        uci.evaluation_metrics([], [], [])


def test_the_printed_tables_have_every_set_and_method():
    printed = published("villacampa2017", "table2")
    for fraction in uci.FRACTIONS:
        block = printed[table2._label(fraction)]
        assert len(block["seconds"]) == 4
        for score in ("nll", "error"):
            assert set(block[score]) == set(uci.DATASETS)
            assert all(len(row) == 4 and all(len(cell) == 2 for cell in row) for row in block[score].values())
    assert printed["10%"]["nll"]["glass"][3] == [2.18, 0.14]
    assert printed["20%"]["seconds"][0] == [683, 17.3]


def test_table_2_runs_at_a_tiny_size_beside_the_printed_numbers_and_says_what_was_reduced():
    result = table2.table2(datasets=("wine",), n_run=1, n_max=40, n_steps=2, n_steps_lbfgs=1, tolerance=0.1)
    rows = [dict(zip(result.tables[0].columns, row, strict=True)) for row in result.tables[0].rows]
    assert [row["method"] for row in rows[::3]] == ["GFITC", "EP", "SEP", "VI"]
    assert [row["paper"] for row in rows[::3]] == [0.08, 0.07, 0.08, 0.08]
    assert rows[1]["where"] == "Table 3"
    assert all(np.isfinite(row["here"]) for row in rows)
    text = " ".join(result.notes)
    for reduced in ("repetitions: 1 here", "iterations of EP and SEP: 2 here", "40 of 178 rows"):
        assert reduced in text
    sizes = table2.table1(names=("wine", "waveform")).tables[0].rows
    assert [row[2] for row in sizes] == [178, 13, 3, 1000, 21, 3]
    assert {row[-1] for row in sizes} == {"holds"}


# -- training --------------------------------------------------------------------------------------------------------


def test_mini_batches_of_an_epoch_are_a_partition_of_the_data():
    batches = setting.minibatches(10, 4, 7, 0)
    assert [len(b) for b in batches] == [4, 4, 2, 4, 4, 2, 4]
    for k in (0, 3):
        assert sorted(np.concatenate(batches[k : k + 3])) == list(range(10))
    assert list(np.concatenate(batches[:3])) != list(np.concatenate(batches[3:6]))


@pytest.mark.parametrize("method", setting.METHODS)
def test_a_budget_of_seconds_ends_a_run_with_the_step_that_spends_it(method):
    problem, prior = small()
    watch = setting.Watch((problem.X_test, problem.y_test), budget=3.0, growth=1.01, clock=ticking())
    result = setting.train(method, problem.X, problem.y, prior, setting.Training(30, tolerance=1e-2), watch)
    assert result.seconds == 3.0
    assert result.reason == "budget spent"
    assert result.course.seconds[-1] == 3.0
    assert np.isfinite(result.course.nll).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "svgpc"}, "method: found 'svgpc'"),
        ({"method": "gfitc", "training": setting.Training(batches=([0, 1],))}, "optimizer: found 'adam' for gfitc"),
        ({"method": "ep", "watch": setting.Watch(growth=1.0)}, "growth: found 1.0"),
        ({"method": "ep", "watch": setting.Watch(budget=0.0)}, "budget: found 0.0"),
    ],
)
def test_runs_that_cannot_be_made_are_refused(options, message):
    problem, prior = small()
    method = options.pop("method")
    with pytest.raises(ValueError, match=message):
        setting.train(method, problem.X, problem.y, prior, **options)


# -- Fig. 3 to 5 -----------------------------------------------------------------------------------------------------


@pytest.mark.verifies("villacampa2017", "u36-inducing-toy", route="the reference's inducing points after a few steps")
@pytest.mark.parametrize("method", ["ep", "sep", "vi-robust"])
def test_inducing_points_are_those_of_the_references_steps_with_the_rest_held(method):
    data = datasets.make_villacampa2017_toy(np.random.default_rng(2), 14)
    Z = np.stack([data.X[k : k + 2] for k in range(3)])
    result = inducing_point_experiment(data, Z, method, reduce=3 / 2000, rate=0.02)
    epsilon = {"epsilon": 1e-3} if method == "vi-robust" else {}
    problem = Problem("toy", data.X, data.y, 3, "threshold", 1.0, 1.0, jitter=1e-6, Z=Z, **epsilon)
    rule = "adam" if method == "vi-robust" else "adaptive"
    theirs = solve("reference", method, problem, learn=("Z",), optimizer=rule, rate=0.02, n_steps=3, gradients=False)
    assert np.abs(theirs.problem.Z - Z).max() > 1e-3
    # three steps of the same numbers by other algebra; the variational one integrates by another rule
    np.testing.assert_allclose(result.Z, theirs.problem.Z, rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(result.log_evidence, theirs.log_evidence, rtol=1e-6, atol=0.0)
    assert result.trained.iterations == 3


def test_points_on_top_of_each_other_count_once_and_margins_are_distances():
    Z = np.array([[0.0, 0.0], [0.03, 0.0], [1.0, 0.0], [1.0, 0.04], [1.0, 0.08]])
    assert different(Z, 0.05) == 3
    boundary = np.array([[0.0, 2.0], [1.0, -1.0]])
    # distances written out: 2, 1.5 to the first and 1, 1 to the second
    assert margin(np.array([[[0.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [1.0, -2.0]]]), boundary) == pytest.approx(
        (np.sqrt(2.0) + 1.5 + 1.0 + 1.0) / 4.0
    )
    line = np.linspace(-1.0, 1.0, 5)
    points = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    p = np.where(points[:, :1] < 0.2, [[0.9, 0.1]], [[0.1, 0.9]])
    assert set(boundary_of(p, points)[:, 0]) == {0.0}


def scored(problem, theirs):
    """Error and negative log-likelihood of the reference's probabilities of the test labels."""
    p = theirs.probabilities
    return zero_one_loss(problem.y_test, p.argmax(axis=1)), log_loss(problem.y_test, p, labels=[0, 1, 2])


@pytest.mark.verifies("villacampa2017", "u38-time-protocol", route="the reference stopped after each number of updates")
def test_scores_along_a_run_are_those_of_the_reference_stopped_there():
    problem, _ = small()
    plan = uci.Plan(problem.X, problem.y, problem.X_test, problem.y_test, 3, 250, 20)
    result = training_time_experiment(plan, "sep", n_steps=3, rate=0.01, growth=1.0001, seed=8, clock=ticking())
    np.testing.assert_array_equal(result.iteration, [1, 2, 3])
    np.testing.assert_array_equal(result.seconds, [1.0, 2.0, 3.0])
    start = setting.start(problem.X, 3, 3, 8)
    for k in range(3):
        theirs = solve(
            "reference", "sep", problem.replace(**start._asdict()), learn=LEARN, optimizer="adaptive", rate=0.01,
            n_steps=k + 1, gradients=False,
        )  # fmt: skip
        # the same updates by other algebra, class probabilities by two quadratures
        np.testing.assert_allclose((result.error[k], result.nll[k]), scored(problem, theirs), rtol=1e-5, atol=0.0)


def test_averages_over_runs_take_the_last_score_before_each_time():
    first = setting.Course(np.array([1, 2]), np.array([1.0, 3.0]), np.array([0.5, 0.3]), np.array([1.0, 0.8]))
    second = setting.Course(np.array([1]), np.array([2.0]), np.array([0.1]), np.array([0.6]))
    both = (first, second)
    np.testing.assert_allclose(averaged(both, "nll", np.array([1.5, 2.0, 4.0])), [np.nan, 0.8, 0.7], rtol=1e-12, atol=0)
    np.testing.assert_allclose(times_of(both, 2), [2.0, 3.0], rtol=1e-12, atol=0)


@pytest.mark.verifies("villacampa2017", "u39-mnist", route="the reference on the same mini-batches, stopped after each")
@pytest.mark.parametrize("method", ["sep", "vi-robust"])
def test_scores_on_mini_batches_are_those_of_the_reference(method):
    problem, _ = small()
    parts = Parts(problem.X, problem.y, problem.X_test, problem.y_test)
    result = mnist_experiment(
        parts,
        method,
        n_inducing=2,
        batch_size=5,
        n_steps=3,
        rate=0.05,
        nat_rate=0.1,
        growth=1.0001,
        seed=3,
        clock=ticking(),
    )
    np.testing.assert_array_equal(result.seconds, [1.0, 2.0, 3.0])
    start = setting.start(problem.X, 2, 3, 3, alike=True)
    assert len(np.unique(start.lengthscales)) == 1
    batches = setting.minibatches(12, 5, 3, 3)
    epsilon = {"epsilon": 1e-3} if method == "vi-robust" else {}
    posed = problem.replace(**start._asdict(), **epsilon)
    for k in range(3):
        theirs = solve(
            "reference", method, posed, learn=LEARN, optimizer="adam", rate=0.05, batches=batches[: k + 1],
            gradients=False,
        )  # fmt: skip
        # the same steps by other algebra and quadratures
        np.testing.assert_allclose((result.error[k], result.nll[k]), scored(problem, theirs), rtol=1e-5, atol=0.0)


def penalised(w, X, y):
    """Multinomial logistic loss with half the squared weights, the intercepts free."""
    W, b = w[:-3].reshape(-1, 3), w[-3:]
    eta = X @ W + b
    return np.sum(logsumexp(eta, axis=1) - eta[np.arange(len(y)), y]) + 0.5 * np.sum(W * W)


@pytest.mark.verifies(
    "villacampa2017", "u40-airline", route="the reference's run; the linear model by a general search"
)
def test_flight_delays_are_scored_as_the_digits_beside_a_linear_model():
    data = flights.make_synthetic_delays(24, 1)
    X, X_test = standardise(data.X[:16], data.X[16:])
    parts = Parts(X, data.y[:16], X_test, data.y[16:])
    result = airline_experiment(
        parts, ("sep",), n_inducing=2, batch_size=6, n_steps=2, rate=0.05, growth=1.0001, seed=3, clock=ticking()
    )
    start = setting.start(X, 2, 3, 3)
    problem = Problem(
        "flights", X, parts.y, 3, "threshold", **start._asdict(), X_test=X_test, y_test=parts.y_test
    )  # fmt: skip
    batches = setting.minibatches(16, 6, 2, 3)
    for k in range(2):
        theirs = solve(
            "reference", "sep", problem, learn=LEARN, optimizer="adam", rate=0.05, batches=batches[: k + 1],
            gradients=False,
        )  # fmt: skip
        course = result.courses["sep"]
        np.testing.assert_allclose((course.error[k], course.nll[k]), scored(problem, theirs), rtol=1e-5, atol=0.0)
    end = minimize(penalised, np.zeros(27), args=(X, parts.y), method="BFGS", options={"gtol": 1e-4})
    eta = X_test @ end.x[:-3].reshape(-1, 3) + end.x[-3:]
    # scikit-learn ends at a gradient of 1e-4
    np.testing.assert_allclose(
        result.linear.nll, log_loss(parts.y_test, softmax(eta, axis=1), labels=[0, 1, 2]), rtol=2e-4, atol=0.0
    )
    assert result.linear.error == zero_one_loss(parts.y_test, eta.argmax(axis=1))


def test_a_file_of_flights_is_read_through_the_data_folder_and_without_it_the_error_says_its_form(
    monkeypatch, tmp_path
):
    monkeypatch.delenv("TRIAD_DATA", raising=False)
    with pytest.raises(datasets.DatasetNotFoundError, match=r"TRIAD_DATA(.|\n)*x1..x8 are age of the aircraft(.|\n)*o"):
        fig5.fig5_airline(n=10, n_test=5)
    data = flights.make_synthetic_delays(60, 3)
    lines = [",".join([*(f"x{j + 1}" for j in range(8)), "y"])]
    lines += [",".join([*map(repr, map(float, row)), data.classes[k]]) for row, k in zip(data.X, data.y, strict=True)]
    content = gzip.compress("\n".join(lines).encode())
    (tmp_path / "flights.csv.gz").write_bytes(content)
    counts = ", ".join(f'"{label}" = {count}' for label, count in data.class_counts.items())
    (tmp_path / "manifest.toml").write_text(
        f'[[dataset]]\nname = "airline"\nfile = "flights.csv.gz"\nn = 60\nd = 8\nclasses = {{ {counts} }}\n'
        f'sha256 = "{hashlib.sha256(content).hexdigest()}"\ncitation = "made up"\n'
    )
    monkeypatch.setenv("TRIAD_DATA", str(tmp_path))
    result = fig5.fig5_airline(n=40, n_test=15, m=2, batch_size=10, n_steps=2)
    assert [row[0] for row in result.tables[0].rows] == ["SEP", "VI", "logistic regression"]
    assert result.settings["data"] == "airline: n = 40, 15 test rows"
    made_up = fig5.fig5_airline(dataset="synthetic-delays", n=40, n_test=15, m=2, batch_size=10, n_steps=2)
    assert "MADE-UP DATA" in made_up.notes[0]
    with pytest.raises(ValueError, match="dataset: found 13 attributes and 3 classes in wine, expected 8 and 3"):
        fig5.fig5_airline(dataset="wine")


def test_the_other_experiments_run_at_a_tiny_size_and_say_what_was_reduced():
    wine = fig4.fig4(dataset="wine", m=(2,), n_run=1, n_steps=2, n_steps_lbfgs=1, tolerance=0.1)
    assert [row[1] for row in wine.tables[0].rows] == ["GFITC", "SEP", "VI"]
    assert np.isfinite([row[4] for row in wine.tables[0].rows]).all()
    digits = fig5.fig5_mnist(dataset="digits", methods=("sep",), n=40, n_test=20, m=2, batch_size=20, n_steps=2)
    row = dict(zip(digits.tables[0].columns, digits.tables[0].rows[0], strict=True))
    assert (row["error (paper)"], row["nll (paper)"], row["mini-batches"]) == (0.0208, 0.0725, 2)
    toy = fig3.fig3(m=(2,), n=30, n_test=20, reduce=0.001, reduce_lbfgs=0.001)
    assert toy.tables[0].rows[0][6] == 6
    assert toy.pictures[0].panels[0].startswith("<svg")
    assert "data: 30 here" in " ".join(toy.notes)
    first = fig1.fig1(dataset="wine", n=30, n_steps=2)
    assert [row[0] for row in first.tables[0].rows] == ["EP-outer", "EP-inner-approx", "EP-inner-exact"]
    assert "updates: 2 here" in " ".join(first.notes)
