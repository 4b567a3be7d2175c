"""Threads of linear algebra: one library at most has several while we compute, and what was set before is put back.

What a library has is looked at from inside: in callbacks, and by Python's own profiler in functions of the witnesses.
"""

import inspect
import pkgutil
import sys
import threading
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import fast.core.values
import fast.estimators
import fast.methods
import gibbs.core.values
from gibbs.chains.chain import Plan, Record, run, spawn_generators
from gibbs.core.options import LogitOptions
from gibbs.models import exact_probit, sampling
from validation import Problem, problems, solve
from validation.bench import blas_threads as bench
from validation.door import catalogue
from validation.implementations.fast import step_rows
from validation.judge.compare import compare

LIBRARIES = [value for value in ThreadpoolController().lib_controllers if value.user_api == "blas"]


def counts():
    return [value.num_threads for value in LIBRARIES]


def several():
    """How many libraries have more than one thread."""
    return sum(count > 1 for count in counts())


@pytest.fixture(autouse=True)
def _two():
    """Two threads in every library, whatever the environment of the tests says."""
    with threadpool_limits(2, user_api="blas"):
        if set(counts()) != {2}:
            pytest.skip("this machine gives linear algebra one thread")
        yield
        assert set(counts()) == {2}


class Enough(Exception):  # noqa: N818
    """Raised from inside a computation that has been looked at for long enough."""


#: Parts of the witnesses that check and declare; all others compute.
BEFORE_WORK = ("declare", "threads", "checks", "options", "errors", "values", "inputs", "ledger")


def watched(call, looks=150):
    """Numbers of libraries with several threads, sampled in functions of the witnesses until there are enough."""
    seen = []

    def look(frame, event, _):
        module = str(frame.f_globals.get("__name__", "")).split(".")
        if event == "call" and module[0] in ("reference", "fast", "gibbs") and module[-1] not in BEFORE_WORK:
            code = frame.f_code
            if code.co_name.startswith("<") or code.co_flags & inspect.CO_GENERATOR:  # run wherever they are asked
                return
            seen.append(several())
            if len(seen) >= looks:
                raise Enough

    sys.setprofile(look)
    try:
        return seen, call()
    except Enough:
        return seen, None
    finally:
        sys.setprofile(None)


def made(n_classes, n=14):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)), np.arange(n) % n_classes


# -- classifiers -----------------------------------------------------------------------------------

CLASSIFIERS = [name for name in fast.estimators.__all__ if name.endswith("Classifier")]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_has_one_thread_in_training_and_prediction(name):
    X, y = made(2)
    seen = []
    model = getattr(fast.estimators, name)(random_state=0).fit(X, y, callback=lambda _: seen.append(several()))
    assert seen
    assert set(seen) == {0}
    assert model.blas_threads_ == 1
    assert set(counts()) == {2}
    looks, _ = watched(lambda: model.predict_proba(X), looks=10_000)
    inside = looks[looks.index(0) :]  # checks come before
    assert inside
    assert set(inside) == {0}

    def stop(_):
        raise LookupError("stop")

    with pytest.raises(LookupError, match="stop"):
        getattr(fast.estimators, name)(random_state=0).fit(X, y, callback=stop)
    assert set(counts()) == {2}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_has_one_thread_on_hundreds_of_rows(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(210, 2))
    seen = []

    def stop(_):
        seen.append(several())
        raise LookupError("stop")

    with pytest.raises(LookupError, match="stop"):
        getattr(fast.estimators, name)(learn=(), random_state=0).fit(X, (X[:, 0] > 0).astype(int), callback=stop)
    assert seen == [0]


@pytest.mark.parametrize(
    "name", [name for name in CLASSIFIERS if hasattr(getattr(fast.estimators, name), "partial_fit")]
)
def test_a_stream_has_one_thread(name):
    X, y = made(2)
    model = getattr(fast.estimators, name)(random_state=0)
    for _ in range(2):
        seen, _ = watched(lambda: model.partial_fit(X, y, classes=[0, 1]), looks=10_000)
        inside = seen[seen.index(0) :]
        assert set(inside) == {0}
    assert model.blas_threads_ == 1


# -- methods of fast -------------------------------------------------------------------------------

METHODS = [value.name for value in pkgutil.iter_modules(fast.methods.__path__)]
FITS = [
    (name, function)
    for name in METHODS
    for function in vars(import_module(f"fast.methods.{name}"))
    if function.startswith("fit")
]


def asked(module, function):
    """Data, prior and options of a fit: of a full GP if it takes one, else on inducing points."""
    annotated = inspect.signature(function).parameters["options"].annotation
    options = getattr(module, annotated)
    for n_classes in (3, 2):
        X, y = made(n_classes)
        for Z in (None, X[:4]):
            shared = n_classes > 2
            prior = fast.core.values.Prior(1.5, np.full(2, 1.2), 0.1, 1e-6, Z, shared=shared)
            yield fast.core.values.Data(X, y, n_classes), prior, options


def posterior_of(name, function_name="fit"):
    module = import_module(f"fast.methods.{name}")
    function = getattr(module, function_name)
    refused = []
    for data, prior, options in asked(module, function):
        try:
            extra = {"epsilon": 0.01} if "epsilon" in options.declared() else {}
            if function_name == "fit_learning":
                extra["learn"] = ("variance",)
            if "max_iterations" in options.declared():
                extra["max_iterations"] = 3
            fit = partial(function, data, prior, options(**extra))
            return fit, fit(), data
        except (ValueError, TypeError) as error:  # of another number of classes, or of the other kind of GP
            refused.append(str(error))
    raise AssertionError(refused)


@pytest.mark.parametrize(("name", "function"), FITS)
def test_a_fit_of_a_method_has_one_thread(name, function):
    again, _, _ = posterior_of(name, function)
    seen, _ = watched(again)
    assert seen
    assert set(seen) == {0}
    assert set(counts()) == {2}


#: Functions of a posterior, with what else they take: those without it, and those of test points.
OF_POSTERIOR = [
    (name, function)
    for name in METHODS
    for function, value in vars(import_module(f"fast.methods.{name}")).items()
    if inspect.isfunction(value)
    and value.__module__ == f"fast.methods.{name}"
    and not function.startswith("_")
    and hasattr(import_module(f"fast.methods.{name}"), "fit")
    and next(iter(inspect.signature(value).parameters), "") == "posterior"
]


@pytest.mark.parametrize(("name", "function"), OF_POSTERIOR)
def test_what_is_asked_of_a_posterior_has_one_thread(name, function):
    _, posterior, data = posterior_of(name)
    posterior = posterior[0] if isinstance(posterior, tuple) else posterior
    asked_for = getattr(import_module(f"fast.methods.{name}"), function)
    given = {"X_test": data.X, "X": data.X, "y": data.y, "blocks": [data.X], "cross": [np.ones(len(data.X)) * 0.1] * 3,
             "learn": ("variance",)}  # fmt: skip
    needed = [
        one.name for one in inspect.signature(asked_for).parameters.values() if one.default is one.empty
    ][1:]  # fmt: skip

    def call():
        answer = asked_for(posterior, **{key: given[key] for key in needed})
        return list(answer) if inspect.isgenerator(answer) else answer

    seen, _ = watched(call)
    assert set(seen) <= {0}
    assert set(counts()) == {2}


# -- solve, and chains -----------------------------------------------------------------------------


def problem_of(entry):
    likelihood = entry.likelihoods[0]
    n_classes = 2 if likelihood in ("logit", "probit") else 3
    X, y = made(n_classes)
    Z = X[:4] if entry.points == catalogue.INDUCING else None
    return Problem(name="small", X=X, y=y, n_classes=n_classes, likelihood=likelihood, variance=1.5, lengthscales=1.2,
                   jitter=1e-6, noise=0.1, Z=Z, X_test=X[:2] + 0.1, epsilon=0.01 if entry.errors else 0.0,
                   prior_model="full" if Z is None else "fitc")  # fmt: skip


@pytest.mark.parametrize("implementation", ["reference", "fast"])
@pytest.mark.parametrize("entry", catalogue.METHODS, ids=lambda entry: entry.method)
def test_solve_has_one_thread_and_puts_back_what_was_there(implementation, entry):
    problem = problem_of(entry)
    seen, solution = watched(lambda: solve(implementation, entry.method, problem), looks=400)
    assert seen
    assert set(seen) == {0}
    assert solution is None or solution.settings["blas_threads"] == 1
    assert set(counts()) == {2}


@pytest.mark.parametrize("entry", catalogue.TRUTHS, ids=lambda entry: f"{entry.implementation} {entry.method}")
def test_truths_have_one_thread(entry):
    known = [name for name in problems.names() if problems.get(name).likelihood in entry.likelihoods]
    seen, answered = [], False
    for name in known[:3]:
        try:
            looks, _ = watched(lambda name=name: solve(entry.implementation, entry.method, problems.get(name)))
        except ValueError:  # a problem that this truth does not take
            continue
        seen, answered = seen + looks, True
        break
    assert answered
    assert set(seen) <= {0}
    assert set(counts()) == {2}


def test_what_gibbs_offers_has_one_thread_without_solve():
    X, y = made(2, 6)
    data, prior = gibbs.core.values.Data(X, y, 2), gibbs.core.values.Prior(1.0, np.ones(2), 0.1, 1e-6)
    options = LogitOptions(n_chains=2, n_draws=8, n_warmup=4)
    for call in (lambda: sampling.sample(data, prior, options),
                 lambda: exact_probit.log_evidence("probit", data, prior, exact_probit.Proposed())):  # fmt: skip
        seen, _ = watched(call)
        assert seen
        assert set(seen) == {0}
        assert set(counts()) == {2}


def walk(seen, order=6, meanwhile=lambda: None):
    def step(state, rngs):
        seen.append(several())
        meanwhile()
        return state

    def record(state):
        return Record(kept={"f": state["f"]}, totals={})

    return run({"f": np.zeros((2, order))}, step, record, spawn_generators(4, ("walk",)), Plan(8, 1))


@pytest.mark.parametrize("order", [6, 600])
def test_a_chain_called_directly_has_one_thread(order):
    seen = []
    walk(seen, order)
    assert set(seen) == {0}


# -- what was there before -------------------------------------------------------------------------


def test_fewer_threads_are_left_alone():
    X, y = made(2)
    with threadpool_limits(1, user_api="blas"):
        fast.estimators.XGPClassifier(random_state=0).fit(X, y)
        solve("reference", "x-gpc", problems.get("toy"))
        walk([])
        assert set(counts()) == {1}


def test_a_callback_that_raises_the_number_changes_neither_a_nested_fit_nor_the_end():
    X, y = made(2)
    seen = []

    def nested(_):
        with threadpool_limits(2, user_api="blas"):
            fast.estimators.XGPClassifier(random_state=0).fit(X, y, callback=lambda _: seen.append(several()))
            assert set(counts()) == {2}
        assert set(counts()) == {1}

    fast.estimators.XGPClassifier(random_state=0).fit(X, y, callback=nested)
    assert set(seen) == {0}


def a_fit(seen, meanwhile):
    X, y = made(2)
    calls = []

    def callback(_):
        seen.append(several())
        if not calls:
            meanwhile()
        calls.append(None)

    fast.estimators.SVGPClassifier(random_state=0, max_iter=3).fit(X, y, callback=callback)


def a_solve(seen, meanwhile):
    calls = []

    def callback(_):
        seen.append(several())
        if not calls:
            meanwhile()
        calls.append(None)

    solve("fast", "x-gpc", problems.get("toy"), callback=callback)


def a_chain(seen, meanwhile):
    calls = []
    walk(seen, meanwhile=lambda: calls or (calls.append(None), meanwhile()))


DOORS = {"fit": a_fit, "solve": a_solve, "chain": a_chain}


@pytest.mark.parametrize("first", DOORS)
@pytest.mark.parametrize("second", DOORS)
def test_two_python_threads_that_overlap_leave_what_was_there(first, second):
    """The first one begins first and ends first."""
    began, joined, ended = threading.Event(), threading.Event(), threading.Event()
    seen = {"first": [], "second": []}

    def early():
        DOORS[first](seen["first"], lambda: (began.set(), joined.wait(60)))
        ended.set()

    def late():
        assert began.wait(60)
        DOORS[second](seen["second"], lambda: (joined.set(), ended.wait(60)))

    workers = [threading.Thread(target=early), threading.Thread(target=late)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert ended.is_set()
    assert set(seen["first"]) == {0}
    if "chain" not in (first, second) or first == second:  # packages that do not know of each other may raise early
        assert set(seen["second"]) == {0}
    assert set(counts()) == {2}


def test_a_fit_in_another_python_thread_has_one_thread_while_the_main_one_holds_the_limits():
    seen = []
    worker = threading.Thread(target=lambda: a_fit(seen, lambda: None))
    worker.start()
    worker.join(60)
    assert set(seen) == {0}


# -- sizes that gain -------------------------------------------------------------------------------


def test_a_large_problem_keeps_the_threads_of_one_library_and_comparing_does_not_mind():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    made = Problem(name="large", X=X, y=(X[:, 0] > 0).astype(int), n_classes=2, likelihood="logit", variance=1.0,
                   lengthscales=1.0, jitter=1e-6)  # fmt: skip
    seen = []
    options = {"max_iterations": 2, "gradients": False}
    own = solve("fast", "x-gpc", made, callback=lambda _: seen.append(several()), **options)
    assert own.settings["blas_threads"] == 2
    assert set(seen) == {1}
    with threadpool_limits(1, user_api="blas"):
        one = solve("fast", "x-gpc", made, **options)
    assert one.settings["blas_threads"] == 1
    # sums in another order: 2000 terms leave some 2000 eps of the largest entry, times the condition of what is solved
    np.testing.assert_allclose(own.latent_mean, one.latent_mean, rtol=0, atol=1e-8)
    assert not [row for row in compare(own, one) if "blas_threads" in row.why]


def test_a_step_on_a_batch_is_as_large_as_the_batch():
    problem = problems.get("toy-sparse")
    assert step_rows("x-gpc", problem, {}) == problem.n
    assert step_rows("x-gpc-svi", problem, {}) == min(problem.n, 100)
    assert step_rows("svgpc", problem, {"batch_size": 7}) == 7
    assert step_rows("svgpc", problem, {"batches": [[0, 1, 2], [3]]}) == 3


def test_batches_that_hold_themselves_are_left_to_the_check_of_options():
    itself = []
    itself.append(itself)
    problem = problems.get("toy-sparse")
    assert step_rows("svgpc", problem, {"batches": itself}) == 1
    assert step_rows("svgpc", problem, {"batches": [3, None]}) == problem.n
    assert step_rows("svgpc", problem, {"batches": [[0, 1], np.arange(3)]}) == 3


@pytest.mark.slow
def test_the_bench_times_fits_in_processes_of_their_own(monkeypatch):
    monkeypatch.setattr(bench, "FITS", {"EPGP, 240 x 4": bench.FITS["EPGP, 240 x 4"]})
    rows = list(bench.rule(repeats=1))
    assert [row.quantity for row in rows] == ["EPGP, 240 x 4, idle", "EPGP, 240 x 4, beside a busy process"]
    assert all(row.met == (row.value <= 1.1) and row.value > 0.0 for row in rows)
