"""Threads of linear algebra: one where matrices are small, the user's own number elsewhere, and always put back."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fast.core.threads
import gibbs.core.threads
import validation.threads
from fast.estimators import LaplaceClassifier, SVGPClassifier, XGPClassifier
from gibbs.chains.chain import Plan, Record, run, spawn_generators
from validation import Problem, problems, solve
from validation.bench import blas_threads as bench
from validation.compare import compare
from validation.threads import step_rows


def counts():
    return {value["num_threads"] for value in threadpool_info() if value["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def _two():
    """Two threads, whatever the environment of the tests says."""
    with threadpool_limits(2, user_api="blas"):
        if counts() != {2}:
            pytest.skip("this machine gives linear algebra one thread")
        yield
        assert counts() == {2}


SMALL, LARGE = (30, None), (1000, None)
ENTER = {
    "validation": lambda small: validation.threads.blas_threads(*(SMALL if small else LARGE)),
    "fast": lambda small: fast.core.threads._blas_threads(*(SMALL if small else LARGE)),
    "gibbs": lambda small: gibbs.core.threads._blas_threads(30 if small else 1000),
}


@pytest.mark.parametrize("package", ENTER)
def test_small_matrices_get_one_thread_and_large_ones_the_users_own(package):
    with ENTER[package](small=True) as threads:
        assert (threads, counts()) == (1, {1})
    assert counts() == {2}
    with ENTER[package](small=False) as threads:
        assert (threads, counts()) == (2, {2})


@pytest.mark.parametrize("package", ENTER)
def test_the_count_is_put_back_after_an_error_and_by_the_last_of_nested_blocks(package):
    with pytest.raises(KeyboardInterrupt), ENTER[package](small=True):
        raise KeyboardInterrupt
    assert counts() == {2}
    with ENTER[package](small=True):
        with ENTER[package](small=True):
            pass
        assert counts() == {1}
    assert counts() == {2}


@pytest.mark.parametrize("package", ENTER)
def test_fewer_threads_than_that_are_left_alone(package):
    with threadpool_limits(1, user_api="blas"):
        for small in (True, False):
            with ENTER[package](small=small) as threads:
                assert (threads, counts()) == (1, {1})
        assert counts() == {1}


@pytest.mark.parametrize("others", ENTER)
def test_blocks_that_overlap_in_several_threads_leave_the_first_count_behind(others):
    entered, leave = threading.Event(), threading.Event()

    def other():
        with ENTER[others](small=True):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with ENTER["validation"](small=True):
        thread.start()
        assert entered.wait(30)
    leave.set()
    thread.join()
    assert counts() == {2}


def test_solve_states_the_threads_it_had_and_restores_them_after_an_error():
    visited = set()
    solution = solve("fast", "x-gpc", problems.get("toy"), callback=lambda state: visited.update(counts()))
    assert visited == {1}
    assert solution.settings["blas_threads"] == 1

    def stop(state):
        assert counts() == {1}
        raise LookupError("stop")

    with pytest.raises(LookupError, match="stop"):
        solve("fast", "x-gpc", problems.get("toy"), callback=stop)
    assert counts() == {2}


@pytest.mark.parametrize(("implementation", "method"), [("reference", "x-gpc"), ("gibbs", "gibbs-logit")])
def test_every_witness_has_them(implementation, method):
    options = {"n_chains": 2, "n_draws": 20, "n_warmup": 10, "evidence": "none"} if implementation == "gibbs" else {}
    assert solve(implementation, method, problems.get("toy"), **options).settings["blas_threads"] == 1


def test_a_large_problem_keeps_the_users_own_number_and_comparing_does_not_mind():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    made = Problem(name="large", X=X, y=(X[:, 0] > 0).astype(int), n_classes=2, likelihood="logit", variance=1.0,
                   lengthscales=1.0, jitter=1e-6)  # fmt: skip
    options = {"tolerance": 1e-3, "gradients": False}
    own = solve("fast", "x-gpc", made, **options)
    assert own.settings["blas_threads"] == 2
    with threadpool_limits(1, user_api="blas"):
        one = solve("fast", "x-gpc", made, **options)
    assert one.settings["blas_threads"] == 1
    # sums in another order: 600 terms leave some 600 eps of the largest entry, times the condition of what is solved
    np.testing.assert_allclose(own.latent_mean, one.latent_mean, rtol=0, atol=1e-9)
    assert not [row for row in compare(own, one) if "blas_threads" in row.why]


def test_a_step_on_a_batch_is_as_large_as_the_batch():
    problem = problems.get("toy-sparse")
    assert step_rows("x-gpc", problem, {}) == problem.n
    assert step_rows("x-gpc-svi", problem, {}) == min(problem.n, 100)
    assert step_rows("svgpc", problem, {"batch_size": 7}) == 7
    assert step_rows("svgpc", problem, {"batches": [[0, 1, 2], [3]]}) == 3


@pytest.mark.parametrize("make", [XGPClassifier, SVGPClassifier, LaplaceClassifier])
def test_classifiers_have_them_in_training_and_prediction_and_keep_the_number(make):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    visited = set()
    model = make(random_state=0).fit(X, y, callback=lambda model: visited.update(counts()))
    assert visited == {1}
    assert model.blas_threads_ == 1
    assert counts() == {2}
    predict = model._predict
    model._predict = lambda X: visited.add(("predicting", *counts())) or predict(X)
    model.predict(X)
    assert ("predicting", 1) in visited
    with pytest.raises(ValueError, match="expected"):
        make(variance=-1.0).fit(X, y)
    assert counts() == {2}


@pytest.mark.parametrize(("order", "expected"), [(6, {1}), (600, {2})])
def test_a_chain_called_directly_has_them(order, expected):
    visited = set()

    def step(state, rngs):
        visited.update(counts())
        return state

    def record(state):
        return Record(kept={"f": state["f"]}, totals={})

    rngs = spawn_generators(4, ("walk",))
    run({"f": np.zeros((2, order))}, step, record, rngs, Plan(8, 1))
    assert visited == expected


def test_batches_that_hold_themselves_are_left_to_the_check_of_options():
    itself = []
    itself.append(itself)
    problem = problems.get("toy-sparse")
    assert step_rows("svgpc", problem, {"batches": itself}) == 1
    assert step_rows("svgpc", problem, {"batches": [3, None]}) == problem.n
    assert step_rows("svgpc", problem, {"batches": [[0, 1], np.arange(3)]}) == 3


def test_the_bench_asks_both_sides_of_the_rule_and_puts_the_count_back(monkeypatch):
    threads = []
    for _, n_rows, n_inducing, _work in bench._cases():
        with validation.threads.blas_threads(n_rows, n_inducing) as count:
            threads.append((n_inducing is None, count))
    assert {(False, 1), (False, 2), (True, 1), (True, 2)} == set(threads)
    monkeypatch.setattr(bench, "_LONG", 0.0)
    monkeypatch.setattr(bench, "_SPARSE", bench._SPARSE[:1])
    monkeypatch.setattr(bench, "_FULL", bench._FULL[:1])
    rows = list(bench.rule(repeats=1))
    assert [row.quantity for row in rows] == ["x-gpc sweep, n = 100, m = 10", "nested-ep step, n = 60, C = 3"]
    assert all(np.isfinite(row.value) and row.met == (row.value <= 1.1) for row in rows)
    assert counts() == {2}
