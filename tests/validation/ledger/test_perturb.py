"""Defects of tests that the perturbation must find, and sound tests that it must leave in peace."""

import dataclasses

import pytest

from validation.ledger import audit, perturb


def run(build, functions, tests, ids="1", **options):
    """The report on one module and one file of tests."""
    sources = build({"m": functions}, {"toy/test_m": "from toy.m import *\n" + tests}, ids=ids)
    ledger = audit.build(sources)
    assert ledger.problems == ()
    return perturb.run(ledger, sources.root, **options)


def defects(report):
    """(id, test, function, reason) of each survivor, without paths."""
    return [
        (item.id, item.test.rpartition("::")[2], item.function.rpartition(".")[2], item.reason)
        for item in report.survivors
    ]


FUNCTIONS = """
import functools, itertools
import numpy as np
from typing import NamedTuple

@equation("toy", "1")
def square(x):
    return np.asarray(x) ** 2

@equation("toy", "2")
def cube(x):
    return x**3

@equation("toy", "3")
def fourth(x):
    return x**4

@equation("toy", "4")
def count(x):
    return len(x)

@equation("toy", "5")
def is_even(x):
    return x % 2 == 0

@equation("toy", "6")
def power(p):
    return lambda x: x**p

@equation("toy", "7")
def powers(x):
    return (x**p for p in itertools.count())

@equation("toy", "8")
def label():
    return "text"

@functools.lru_cache
def cached_square(x):
    return float(square(x))

@equation("toy", "9")
def lower_bound(x):
    return 2.0 * x - 1.0
"""

TESTS = """
import numpy as np
from hypothesis import given, strategies as st

@pytest.fixture(scope="session")
def nine():
    return square(3.0)

@pytest.mark.verifies("toy", "1", route="value")
def test_good():
    np.testing.assert_allclose(square([1.0, 2.0]), [1.0, 4.0], rtol=1e-12)

@pytest.mark.verifies("toy", "1", route="value of a fixture that outlives a test")
def test_through_a_fixture(nine):
    assert abs(nine - 9.0) < 1e-12

@pytest.mark.verifies("toy", "1", route="value that a cache keeps")
def test_through_a_cache():
    assert abs(cached_square(3.0) - 9.0) < 1e-12

@pytest.mark.verifies("toy", "1", route="examples")
@given(st.floats(0.1, 10.0))
def test_by_examples(x):
    assert abs(square(x) - x * x) <= 1e-12 * x * x

@pytest.mark.verifies("toy", "1", route="any case may notice")
@pytest.mark.parametrize("x", [1.0, 2.0])
def test_one_case_notices(x):
    assert x == 1.0 or abs(square(x) - 4.0) < 1e-12

@pytest.mark.verifies("toy", "2", route="none")
def test_asserts_nothing():
    cube(2.0)

@pytest.mark.verifies("toy", "3", route="none")
def test_calls_nothing():
    assert True

@pytest.mark.verifies("toy", "4", route="value")
def test_count():
    assert count([1, 2]) == 2

@pytest.mark.verifies("toy", "5", route="value")
def test_is_even():
    assert is_even(2)

@pytest.mark.verifies("toy", "6", route="value")
def test_power():
    assert abs(power(2)(3.0) - 9.0) < 1e-12

@pytest.mark.verifies("toy", "7", route="value")
def test_powers():
    assert next(powers(2.0)) == 1.0

@pytest.mark.verifies("toy", "8", route="value")
def test_label():
    assert label() == "text"

@pytest.mark.verifies("toy", "9", route="never at equality")
def test_bound_is_never_tight():
    assert lower_bound(5.0) <= 25.0
"""


def test_good_tests_notice_and_idle_ones_survive_and_no_file_is_left_behind(build, tmp_path):
    report = run(build, FUNCTIONS, TESTS, ids="1 2 3 4 5 6 7 8 9", exhaustive=True)
    assert (report.broken, report.skipped, report.problems) == ((), (), ())
    assert defects(report) == [
        ("2", "test_asserts_nothing", "cube", "passes while perturbed by 0.001 of its largest entry"),
        ("2", "", "cube", "noticed by no test"),
        ("3", "test_calls_nothing", "fourth", "passes while perturbed: it never calls the function"),
        ("3", "", "fourth", "noticed by no test"),
        ("8", "test_label", "label", "passes while perturbed: nothing in the function's output can be perturbed"),
        ("8", "", "label", "noticed by no test"),
        ("9", "test_bound_is_never_tight", "lower_bound", "passes while perturbed by 0.001 of its largest entry"),
        ("9", "", "lower_bound", "noticed by no test"),
    ]
    assert {trial.error for trial in report.trials if trial.status == "noticed"} == {"AssertionError"}
    assert len(report.failures) == len(report.survivors)
    assert not [path for path in tmp_path.rglob(".*") if path.name in (".hypothesis", ".pytest_cache")]


def test_what_is_settled_is_not_run_again_unless_asked_for(build):
    functions = (
        '@equation("toy", "1")\ndef f(x):\n    return 2.0 * x\n@equation("toy", "1")\ndef g(x):\n    return f(x)'
    )
    tests = """
@pytest.mark.verifies("toy", "1", route="value")
def test_g():
    assert g(1.0) == 2.0

@pytest.mark.verifies("toy", "1", route="value")
def test_g_again():
    assert g(1.0) == 2.0
"""
    brief = run(build, functions, tests)
    assert [trial.status for trial in brief.trials] == ["noticed", "noticed", "noticed", "not needed"]
    full = run(build, functions, tests, exhaustive=True)
    assert [trial.status for trial in full.trials] == ["noticed"] * 4
    assert defects(brief) == defects(full) == []


def test_a_test_need_notice_one_function_but_each_function_needs_a_test(build):
    functions = '@equation("toy", "1")\ndef f():\n    return 1.0\n@equation("toy", "1", "2")\ndef g():\n    return 1.0'
    tests = """
@pytest.mark.verifies("toy", "1", route="value")
def test_f():
    assert f() == 1.0

@pytest.mark.verifies("toy", "2", route="value")
def test_g():
    assert g() == 1.0
"""
    # g carries 1 as well, but no test of 1 notices it.
    assert defects(run(build, functions, tests, ids="1 2")) == [("1", "", "g", "noticed by no test")]


def test_a_case_answers_only_for_the_equations_that_it_claims(build):
    functions = '@equation("toy", "1", "2")\ndef f():\n    return 1.0'
    tests = """
@pytest.mark.parametrize("strict", [
    pytest.param(True, marks=pytest.mark.verifies("toy", "1", route="value")),
    pytest.param(False, marks=pytest.mark.verifies("toy", "2", route="value")),
])
def test_f(strict):
    assert f() == 1.0 or not strict
"""
    assert [item[:3] for item in defects(run(build, functions, tests, ids="1 2"))] == [
        ("2", "test_f", "f"),
        ("2", "", "f"),
    ]


def test_a_monte_carlo_test_is_perturbed_by_what_it_resolves(build):
    functions = '@equation("toy", "1")\ndef f():\n    return 1.0'
    tests = """
@pytest.mark.verifies("toy", "1", route="coarse", resolves=0.05)
def test_coarse():
    assert abs(f() - 1.0) < 0.03

@pytest.mark.verifies("toy", "1", route="coarse, and does not say so")
def test_silent():
    assert abs(f() - 1.0) < 0.03
"""
    report = run(build, functions, tests)
    assert [(trial.scale, trial.status) for trial in report.trials] == [(0.05, "noticed"), (0.001, "survived")]
    assert [item[1] for item in defects(report)] == ["test_silent"]


def test_an_erratum_is_judged_by_its_corrected_form(build):
    functions = """
@equation("toy", "1", as_printed=True)
def area_as_printed(r):
    return 3.0 * r**2

@equation("toy", "1")
def area(r):
    return 3.14 * r**2
"""
    tests = """
@pytest.mark.verifies("toy", "1", route="value", printed=True)
def test_the_printed_form_is_wrong():
    assert abs(area_as_printed(1.0) - 3.14) > 0.1
    assert abs(area(1.0) - 3.14) < 1e-9
"""
    report = run(build, functions, tests)
    assert [trial.function.rpartition(".")[2] for trial in report.trials] == ["area"]
    assert defects(report) == []
    blind = tests.replace("    assert abs(area(1.0) - 3.14) < 1e-9\n", "    area(1.0)\n")
    assert [item[1:3] for item in defects(run(build, functions, blind))] == [
        ("test_the_printed_form_is_wrong", "area"),
        ("", "area"),
    ]


def test_tests_that_fail_skip_or_are_slow_are_told_apart(build):
    functions = '@equation("toy", "1")\ndef f():\n    return 1.0\n@equation("toy", "2")\ndef g():\n    return 1.0'
    tests = """
@pytest.mark.verifies("toy", "1", route="value")
def test_broken():
    assert f() == 2.0

@pytest.mark.verifies("toy", "1", route="value")
def test_skipped():
    pytest.skip("not here")

@pytest.mark.verifies("toy", "1", route="value")
@pytest.mark.xfail(strict=True)
def test_expected_failure():
    assert f() == 2.0

@pytest.mark.slow
@pytest.mark.verifies("toy", "2", route="value")
def test_slow():
    assert g() == 1.0
"""
    report = run(build, functions, tests, ids="1 2")
    assert [(case.rpartition("::")[2], error) for case, error in report.broken] == [("test_broken", "AssertionError")]
    assert [case.rpartition("::")[2] for case in report.skipped] == ["test_skipped", "test_expected_failure"]
    assert [key.rpartition("::")[2] for key in report.slow] == ["test_slow"]
    assert [(item[0], item[2], "passes unperturbed" in item[3], "is slow" in item[3]) for item in defects(report)] == [
        ("1", "f", True, False),
        ("2", "g", False, True),
    ]
    with_slow = run(build, functions, tests, ids="1 2", slow=True)
    assert [item[0] for item in defects(with_slow)] == ["1"]


def test_the_type_of_exception_shows_how_a_perturbation_was_noticed(build):
    functions = """
import warnings
@equation("toy", "1")
def size():
    return 3

@equation("toy", "2")
def rate():
    return 1.0
"""
    tests = """
import warnings

@pytest.mark.verifies("toy", "1", route="index")
def test_by_an_index():
    (1, 2, 3)[size() - 1]

@pytest.mark.verifies("toy", "2", route="a warning, which the configuration makes an error")
def test_by_a_warning():
    if rate() != 1.0:
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
"""
    report = run(build, functions, tests, ids="1 2")
    assert [trial.error for trial in report.trials] == ["IndexError", "RuntimeWarning"]


def test_an_iteration_that_no_longer_ends_is_stopped_and_counts_as_noticed(build):
    functions = '@equation("toy", "1")\ndef step():\n    return 1.0'
    tests = """
@pytest.mark.verifies("toy", "1", route="ends")
def test_ends():
    while step() != 1.0:
        try:
            pass
        except Exception:
            pass

@pytest.mark.verifies("toy", "1", route="value")
def test_after_it():
    assert step() == 1.0
"""
    report = run(build, functions, tests, time_limit=0.5, exhaustive=True)
    assert [trial.error for trial in report.trials] == ["TimeLimit", "AssertionError"]


def test_a_test_of_another_package_is_told_that_no_function_is_its_own(build):
    sources = build(
        {"m": '@equation("toy", "1")\ndef f():\n    return 1.0'},
        {
            "elsewhere/test_m": """
                from toy.m import f
                @pytest.mark.verifies("toy", "1", route="value")
                def test_f():
                    assert f() == 1.0
            """
        },
        ids="1",
    )
    report = perturb.run(audit.build(sources), sources.root)
    assert [item[1:3] for item in defects(report)] == [("test_f", ""), ("", "f")]
    assert "no function of elsewhere carries the equation" in report.survivors[0].reason
    assert f"no test under tests/{sources.packages[0].name}" in report.survivors[1].reason


def test_rows_choose_what_is_run(build):
    functions = '@equation("toy", "1")\ndef f():\n    return 1.0\n@equation("toy", "2")\ndef g():\n    return 1.0'
    tests = """
        from toy.m import *

        @pytest.mark.verifies("toy", "1", "2", route="value")
        def test_both():
            assert f() + g() == 2.0

        @pytest.mark.verifies("toy", "1", route="value")
        def test_f():
            assert f() == 1.0
    """
    sources = build({"m": functions}, {"toy/test_m": tests}, ids="1 2")
    ledger = audit.build(sources)
    visited = []
    report = perturb.run(ledger, sources.root, ledger.select("toy", "2"), progress=lambda *state: visited.append(state))
    assert [trial.function.rpartition(".")[2] for trial in report.trials] == ["g"]
    assert (report.cases, visited[-1][:2]) == (1, (2, 2))


def test_a_run_that_breaks_down_is_a_problem_and_no_clean_bill(build):
    functions = '@equation("toy", "1")\ndef f():\n    return 1.0'
    tests = """
import os

@pytest.mark.verifies("toy", "1", route="value")
def test_ends_the_process():
    if f() != 1.0:
        os._exit(9)
"""
    report = run(build, functions, tests)
    assert "exit code 9" in report.problems[0]
    assert report.failures


def test_a_function_without_any_test_is_a_survivor_without_a_run(build):
    sources = build({"m": '@equation("toy", "1")\ndef f():\n    return 1.0'}, {"toy/test_m": ""}, ids="1")
    report = perturb.run(audit.build(sources), sources.root)
    assert [item[2] for item in defects(report)] == ["f"]
    assert report.trials == ()


def test_the_report_as_json_holds_every_trial(build):
    report = run(build, '@equation("toy", "1")\ndef f():\n    return 1.0', "")
    assert report.cases == 0
    data = perturb.as_json(dataclasses.replace(report, broken=(("a::b", "ValueError"),)))
    assert data["broken"] == [{"case": "a::b", "error": "ValueError"}]
    assert [item["function"].rpartition(".")[2] for item in data["survivors"]] == ["f"]
    assert data["survivors"][0]["test"] is None


@pytest.mark.parametrize("text", ["one", "two"])
def test_a_survivor_is_one_line(text):
    assert perturb.Survivor("toy", "1", "", text, "why").text == f"toy:1: {text}: why"
