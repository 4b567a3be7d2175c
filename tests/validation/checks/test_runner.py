"""Selections, verdicts, interrupts and processes, with checks that are made up."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from validation.checks import core, runner
from validation.checks.core import Compared, Outcome, Skipped, Tested, check
from validation.checks.multiple import critical_values
from validation.checks.runner import NOT_RUN, SelectionError, run, select
from validation.door.solution import Solution


@pytest.fixture(autouse=True)
def _made_up(problems: object) -> None:
    """Problems and a register of this module's own."""


def register(id: str, answer: Any, problems: tuple[str, ...] = ("easy",), **changes: Any) -> None:
    """A check that gives (or raises, or calls) `answer`."""

    def function(context: Any, problem: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer(context, problem) if callable(answer) else answer

    arguments: dict[str, Any] = {"paper": "wenzel2019", "question": "It is so.", "problems": problems} | changes
    check(id, **arguments)(function)


def compared(observed: float, limit: float = 1.0) -> Outcome:
    return Compared(observed, limit, "because", "reference", "fast")


def statistics(*z: float) -> Outcome:
    return Tested(np.array(z), "because", "gibbs", "quadrature", "2 % of the mean would show")


def verdicts(**options: Any) -> dict[str, str]:
    return {result.check: result.verdict for result in run(select(), jobs=1, **options).results}


# -- selection ---------------------------------------------------------------------------------------------------


def select_ids(**asked: Any) -> list[tuple[str, str]]:
    return [(pair.check, pair.problem) for pair in select(**asked).pairs]


@pytest.fixture
def three_checks():
    register("bound/x-gpc/elbo", compared(0.0), ("hard", "easy"))
    register("identity/x-gpc/elbo", compared(0.0), ("easy",), full=("huge",))
    register("identity/vi-jj/elbo", compared(0.0), ("-",), paper="izmailov2016")


@pytest.mark.usefixtures("three_checks")
def test_pairs_stand_by_kind_method_and_the_order_of_problems():
    assert select_ids() == [
        ("identity/vi-jj/elbo", "-"),
        ("identity/x-gpc/elbo", "easy"),
        ("bound/x-gpc/elbo", "easy"),
        ("bound/x-gpc/elbo", "hard"),
    ]


@pytest.mark.usefixtures("three_checks")
@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"full": True}, 5),
        ({"paper": ["izmailov2016"]}, 1),
        ({"method": ["x-gpc"]}, 3),
        ({"check": ["*/x-gpc/elbo"], "problem": ["easy"]}, 2),
        ({"check": ["bound/*", "identity/vi-jj/*"]}, 3),
        ({"problem": ["huge"], "full": True}, 1),
    ],
)
def test_every_given_pattern_narrows_the_selection(asked, count):
    assert len(select(**asked).pairs) == count


@pytest.mark.usefixtures("three_checks")
@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"check": ["identity/x-gcp/elbo"]}, r"check: found .*did you mean 'identity/x-gpc/elbo'"),
        ({"paper": ["wenzel2091"]}, r"paper: found .*did you mean 'wenzel2019'"),
        ({"method": ["x-gp"]}, r"method: found .*did you mean 'x-gpc'"),
        ({"problem": ["eazy"]}, r"problem: found .*did you mean 'easy'"),
        ({"problem": ["huge"]}, r"found no check for problem huge, expected at least one; 1 match with --full"),
        ({"method": ["vi-jj"], "problem": ["easy"]}, r"found no check for method vi-jj, problem easy"),
    ],
)
def test_an_unknown_or_empty_selection_is_an_error_with_near_misses(asked, match):
    with pytest.raises(SelectionError, match=match):
        select(**asked)


def test_no_checks_at_all_is_an_error():
    with pytest.raises(SelectionError, match="found no check for all"):
        select()


# -- verdicts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "limit", "verdict", "ratio"),
    [
        (0.5, 1.0, "PASS", 0.5),
        (1.0, 1.0, "PASS", 1.0),
        (1.5, 1.0, "FAIL", 1.5),
        (math.nan, 1.0, "FAIL", math.nan),
        (0.0, math.nan, "FAIL", math.nan),
        (math.inf, 1.0, "FAIL", math.inf),
        (-0.2, 0.0, "PASS", math.nan),
        (0.2, 0.0, "FAIL", math.inf),
        (np.float64(0.5), np.float64(1.0), "PASS", 0.5),
    ],
)
def test_a_comparison_passes_iff_observed_is_at_most_the_limit(observed, limit, verdict, ratio):
    register("identity/x-gpc/elbo", compared(observed, limit))
    (result,) = run(select(), jobs=1).results
    assert result.verdict == verdict
    assert result.ratio == ratio or (math.isnan(result.ratio) and math.isnan(ratio))


def test_several_outcomes_are_several_results_that_share_the_time():
    register("identity/x-gpc/elbo", [compared(0.5), compared(2.0), Skipped("no gradient")])
    outcome = run(select(), jobs=1)
    assert [result.verdict for result in outcome.results] == ["PASS", "FAIL", "SKIP"]
    assert len({result.seconds for result in outcome.results}) == 1


def test_a_generator_of_outcomes_is_read_and_its_error_is_an_error():
    def answer(context, problem):
        yield compared(0.5)
        raise ValueError("sites: found nan, expected numbers")

    register("identity/x-gpc/elbo", answer)
    (result,) = run(select(), jobs=1).results
    assert result.verdict == "ERROR"
    assert result.why == "ValueError: sites: found nan, expected numbers"
    assert "Traceback" in result.details


def test_holm_is_held_over_the_statistics_of_the_whole_run():
    # alone, |z| = 4 would be rejected at 1e-4 (3.89); among 1001 statistics it is not (5.33)
    register("exactness/gibbs-logit/mean", statistics(4.0))
    register("exactness/gibbs-logit/var", statistics(*np.zeros(1000)))
    by_check = {result.check: result for result in run(select(), jobs=1).results}
    mean = by_check["exactness/gibbs-logit/mean"]
    assert mean.verdict == "PASS"
    assert mean.limit == critical_values(1001)[0]
    assert mean.observed == 4.0
    assert mean.power == "2 % of the mean would show"
    alone = run(select(check=["*/mean"]), jobs=1).results[0]
    assert (alone.verdict, alone.limit) == ("FAIL", critical_values(1)[0])


def test_a_rejected_statistic_lowers_the_limit_of_the_others():
    register("exactness/gibbs-logit/mean", statistics(9.0, 0.0))
    register("exactness/gibbs-logit/var", statistics(-1.0))
    results = run(select(), jobs=1).results
    assert [result.verdict for result in results] == ["FAIL", "PASS"]
    assert {result.limit for result in results} == {critical_values(3)[1]}


@pytest.mark.parametrize("z", [math.nan, math.inf, -math.inf])
def test_a_statistic_that_is_no_number_fails(z):
    register("exactness/gibbs-logit/mean", statistics(0.1, z))
    assert verdicts() == {"exactness/gibbs-logit/mean": "FAIL"}


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (statistics(), "found no statistics"),
        ([], "found no outcome"),
        ([0.3], "found float, expected Compared"),
        (None, "TypeError"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_a_check_that_answers_nothing_is_an_error(answer, match):
    register("identity/x-gpc/elbo", (lambda c, p: answer) if answer is None else answer)
    (result,) = run(select(), jobs=1).results
    assert result.verdict == "ERROR"
    assert result.failed
    assert match in result.why


def test_a_problem_that_cannot_be_made_is_an_error_of_its_checks():
    register("identity/x-gpc/elbo", compared(0.0), ("absent",))
    (result,) = run(select(), jobs=1).results
    assert result.verdict == "ERROR"
    assert "the problem cannot be made: KeyError" in result.why


def test_skip_is_not_passed_and_fails_no_run():
    register("exactness/gibbs-logit/log_evidence", Skipped("s.e. 0.08, expected <= 0.05 nat", "gibbs", "quadrature"))
    result = run(select(), jobs=1)
    assert (result.count("SKIP"), result.count("PASS"), result.failed) == (1, 0, False)


def test_a_check_without_a_problem_gets_none():
    visited = []
    register("limit/x-gpc/pg_mean", lambda context, problem: visited.append(problem) or compared(0.0), ("-",))
    assert verdicts() == {"limit/x-gpc/pg_mean": "PASS"}
    assert visited == [None]


def test_checks_of_one_problem_share_a_context_and_its_solutions_reach_the_run(monkeypatch):
    asked = []

    def solve(implementation, method, problem, **options):
        asked.append(problem.name)
        return Solution(problem=problem, implementation=implementation, method=method, versions={"numpy": "2"})

    monkeypatch.setattr(core, "solve", solve)

    def answer(context, problem):
        context.solve("fast", "x-gpc", problem)
        return compared(0.0)

    for quantity in ("elbo", "mean"):
        register(f"identity/x-gpc/{quantity}", answer, ("easy", "hard"))
    result = run(select(), jobs=1)
    assert sorted(asked) == ["easy", "hard"]
    assert asked[0] == "hard"  # the costlier problem starts
    assert [solution.problem.name for solution in result.solutions] == ["easy", "hard"]
    assert result.versions["numpy"] == "2"


@pytest.mark.parametrize("full", [False, True])
def test_the_context_knows_whether_the_run_is_quick(full):
    visited = []
    register("identity/x-gpc/elbo", lambda context, problem: visited.append(context.quick) or compared(0.0))
    run(select(full=full), jobs=1)
    assert visited == [not full]


def test_a_failure_of_the_full_run_says_so_in_its_command():
    register("identity/x-gpc/elbo", compared(2.0), ("easy",), full=("huge",))
    commands = [result.reproduce for result in run(select(full=True), jobs=1).results]
    assert commands == [
        "triad verify --full --check identity/x-gpc/elbo --problem easy",
        "triad verify --full --check identity/x-gpc/elbo --problem huge",
    ]


# -- interrupts --------------------------------------------------------------------------------------------------


def test_an_interrupt_keeps_what_was_answered_and_names_the_rest():
    register("identity/x-gpc/a", compared(0.0))
    register("identity/x-gpc/b", KeyboardInterrupt())
    register("identity/x-gpc/c", compared(0.0))
    outcome = run(select(), jobs=1)
    assert outcome.interrupted
    assert [result.verdict for result in outcome.results] == ["PASS", "SKIP", "SKIP"]
    assert outcome.results[2].why == NOT_RUN


# -- processes ---------------------------------------------------------------------------------------------------

MODULE = """
import os, signal, sys, time
import multiprocessing
import numpy as np
from validation import problems
from validation.checks.core import Compared, Skipped, Tested, check
from validation.door.problem import Problem


X = np.linspace(-1.0, 1.0, 4)[:, None]

def get(name):
    return Problem(name=name, X=X, y=np.array([0, 1, 0, 1]), n_classes=2, likelihood="logit", variance=1.0,
                   lengthscales=1.0, X_test=X)

if multiprocessing.parent_process() is not None:
    problems.get, problems.names = get, lambda: ()

def ask(id, *problems):
    return check(id, paper="wenzel2019", question="It is so.", problems=problems)
"""


@pytest.fixture
def module(tmp_path, monkeypatch) -> Callable[[str], str]:
    """Write a module of checks where this process and fresh ones can import it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        name = f"made_up_checks_{os.getpid()}_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(MODULE + textwrap.dedent(text))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


def test_the_answer_does_not_depend_on_the_number_of_processes(module):
    name = module("""
        @ask("identity/x-gpc/dot", "easy", "hard")
        def dot(context, problem):
            rng = np.random.default_rng(len(problem.name))
            A = rng.standard_normal((300, 300))
            return Compared(float((A @ A).sum()), 1e9, "", problem.name, "")

        @ask("exactness/x-gpc/z", "easy", "hard", "huge")
        def z(context, problem):
            return Tested(np.arange(3.0), "", "", "", "")

        @ask("limit/x-gpc/error", "-")
        def error(context, problem):
            raise RuntimeError("broken")
        """)
    selection = select(modules=[name])
    alone, spread = run(selection, jobs=1), run(selection, jobs=2)

    def essence(actual):
        return [
            (r.check, r.problem, r.observed, r.limit, r.verdict, r.why)
            for r in actual.results
            if r.observed == r.observed
        ]

    assert essence(alone) == essence(spread)
    assert [r.verdict for r in spread.results] == [r.verdict for r in alone.results]
    assert sum(r.verdict == "ERROR" for r in spread.results) == 1


def test_checks_without_a_problem_are_spread_by_module_and_start_first(module):
    first, second = (
        module(f"""
        @ask("limit/x-gpc/{name}", "-")
        def {name}(context, problem):
            return Compared(float(os.getpid()), float("inf"), "", "", "")

        @ask("limit/x-gpc/{name}_too", "-")
        def too(context, problem):
            time.sleep(0.5)  # the other process takes what is left
            return Compared(float(os.getpid()), float("inf"), "", "", "")
        """)
        for name in ("one", "two")
    )
    register("identity/x-gpc/elbo", compared(0.0), ("easy",))
    selection = select(modules=[first, second])
    assert [(job.name, len(job.unit.pairs)) for job in runner._units(selection)] == [
        ("easy", 1),
        (f"- {first}", 2),
        (f"- {second}", 2),
    ]
    told = []
    outcome = run(select(check=["limit/*"], modules=[first, second]), jobs=2, listen=told.append)
    processes = {result.quantity: result.observed for result in outcome.results}
    assert processes["one"] == processes["one_too"] != processes["two"] == processes["two_too"]
    # of what stands under one name in the progress the last unit is the end
    assert [event.problem for event in told if event.what == "finished"] == ["-"]
    assert runner.cost("-") > runner.cost("hard")


def test_a_process_that_dies_is_an_error_of_what_it_had_not_answered(module):
    name = module("""
        @ask("identity/x-gpc/first", "hard")
        def first(context, problem):
            return Compared(0.0, 1.0, "", "", "")

        @ask("limit/x-gpc/dies", "hard")
        def dies(context, problem):
            time.sleep(0.5)  # lets what was told arrive
            os._exit(3)

        @ask("limit/x-gpc/other", "easy")
        def other(context, problem):
            return Compared(0.0, 1.0, "", "", "")
        """)
    results = {result.check: result for result in run(select(modules=[name]), jobs=2).results}
    assert results["limit/x-gpc/dies"].verdict == "ERROR"
    assert "the process that worked on hard was lost" in results["limit/x-gpc/dies"].why
    assert results["identity/x-gpc/first"].verdict == "PASS"


def test_an_interrupt_stops_the_processes_and_keeps_what_they_told(module):
    name = module("""
        @ask("identity/x-gpc/quick", "easy")
        def quick(context, problem):
            return Compared(0.0, 1.0, "", "", "")

        @ask("identity/x-gpc/slow", "hard")
        def slow(context, problem):
            time.sleep(600)
        """)

    def listen(event):
        if event.what == "finished":
            raise KeyboardInterrupt

    others = set(multiprocessing.active_children())  # of whoever ran before in this process
    outcome = run(select(modules=[name]), jobs=2, listen=listen)
    assert outcome.interrupted
    assert [result.verdict for result in outcome.results] == ["PASS", "SKIP"]
    # the executor's own thread reaps them too, so that for a moment neither side knows
    deadline = time.monotonic() + 20.0
    while set(multiprocessing.active_children()) - others and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(multiprocessing.active_children()) - others


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_linear_algebra_has_as_many_threads_as_asked_and_the_environment_is_left_as_it_was(
    module, monkeypatch, threads, jobs
):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    name = module(f"""
        import threadpoolctl

        @ask("identity/x-gpc/threads", "easy", "hard")
        def threads(context, problem):
            threads = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
            wrong = sum(number != {threads} for number in threads)  # Accelerate has no such pool
            if {jobs} > 1:  # a process of its own is told by its environment as well
                wrong += os.environ["OMP_NUM_THREADS"] != "{threads}"
            return Compared(float(wrong), 0.5, "", "", "")
        """)
    outcome = run(select(modules=[name]), jobs=jobs, threads=threads)
    assert [result.verdict for result in outcome.results] == ["PASS", "PASS"]
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_no_threads_are_refused():
    register("identity/x-gpc/elbo", compared(0.0))
    with pytest.raises(ValueError, match="threads: found 0, expected at least 1"):
        run(select(), jobs=1, threads=0)


def test_no_processes_is_refused():
    register("identity/x-gpc/elbo", compared(0.0))
    with pytest.raises(ValueError, match="jobs: found 0, expected at least 1"):
        run(select(), jobs=0)


def test_events_tell_what_starts_and_what_is_done():
    register("identity/x-gpc/elbo", compared(0.0))
    told = []
    run(select(), jobs=1, listen=told.append)
    assert [(event.what, event.problem, event.check) for event in told] == [
        ("start", "easy", "identity/x-gpc/elbo"),
        ("done", "easy", "identity/x-gpc/elbo"),
        ("finished", "easy", ""),
    ]
    assert isinstance(told[1].answered, runner.Answered)
