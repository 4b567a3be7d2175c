"""Recorded runs: a record for every run, three numbers that tell arrays apart, no verdict on other draws."""

import importlib

import numpy as np
import pytest

from validation.checks import recorded_runs
from validation.checks.core import Compared, Context, Skipped


def _ways():
    return [way for table in recorded_runs.TABLES for way in importlib.import_module(table).WAYS]


def test_every_run_has_a_record_and_every_record_a_run():
    table = recorded_runs.recorded()
    held = {(method, label) for method, rows in table.items() if method != "numbers" for label in rows}
    assert held == {(way.method, way.label) for way in _ways()}
    assert len(_ways()) == len(held)


def test_an_answer_is_taken_apart_into_its_numbers_and_clocks_are_left_out():
    result = recorded_runs.leaves({"a": (1, 2.5), "word": "x", "none": None, "seconds": 3.0, "b": {"c": np.eye(2)}})
    assert sorted(result) == ["a", "b.c"]
    np.testing.assert_array_equal(result["a"], [1.0, 2.5])


def test_rows_of_one_kind_are_stacked_field_by_field():
    from gibbs.chains.chain import Progress

    result = recorded_runs.leaves({"told": [Progress(k, 9, 0, 0.1) for k in range(3)]})
    np.testing.assert_array_equal(result["told.sweep"], [0.0, 1.0, 2.0])
    assert "told.seconds" not in result


@pytest.mark.parametrize(
    ("other", "observed"),
    [
        ([1.0, 2.0, 3.0, 4.0], False),
        ([1.0, 2.0, 3.0, 4.0 + 1e-6], False),
        ([2.0, 1.0, 3.0, 4.0], True),
        ([1.0, 2.0, 3.0, 4.001], True),
        ([1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0, np.nan], True),
    ],
)
def test_three_numbers_tell_arrays_apart(other, observed):
    wanted, results = ({"x": recorded_runs.printed(np.array(entry))} for entry in ([1.0, 2.0, 3.0, 4.0], other))
    apart, _ = recorded_runs.distance(results, wanted, ())
    assert (apart > recorded_runs.LIMIT) is observed


@pytest.mark.parametrize(("count", "observed"), [(50, False), (51, False), (55, False), (57, True), (44, True)])
def test_a_count_may_move_by_a_tenth(count, observed):
    wanted, results = ({"iterations": recorded_runs.printed(np.array([float(k)]))} for k in (50, count))
    apart, _ = recorded_runs.distance(results, wanted, ("iterations",))
    assert (apart > recorded_runs.LIMIT) is observed


def test_a_name_that_is_new_or_gone_is_no_small_difference():
    entry = recorded_runs.printed(np.ones(2))
    assert recorded_runs.distance({"x": entry}, {"x": entry, "y": entry}, ()) == (np.inf, "y")


def test_nothing_is_compared_where_the_generators_draw_other_numbers(monkeypatch):
    way = next(way for way in _ways() if way.method == "gibbs-logit")
    assert isinstance(next(iter(recorded_runs.outcomes(Context(), [way]))), Compared)
    monkeypatch.setattr(recorded_runs, "numbers", lambda: (1, 2.0, 3.0))
    assert isinstance(next(iter(recorded_runs.outcomes(Context(), [way]))), Skipped)
