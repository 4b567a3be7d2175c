"""Recorded iterations: read as they stand, and red where a witness takes another way."""

import numpy as np
import pytest

from validation import problems
from validation.checks import iterations
from validation.checks.core import Context


class Asked:
    """A context whose answers took a given number of iterations."""

    def __init__(self, extra):
        self.extra = extra

    def solve(self, witness, method, problem):
        count = iterations.recorded()[method][problem.name][witness]
        return type("Solution", (), {"iterations": count + self.extra})


def test_every_method_with_a_default_solve_has_a_record_on_a_problem_that_exists():
    table = iterations.recorded()
    assert len(table) >= 20
    for counts in table.values():
        assert set(counts) <= set(problems.names())
        assert all(count >= 1 for row in counts.values() for count in row.values())


@pytest.mark.parametrize(("extra", "green"), [(0, True), (1, True), (-1, True), (2, False), (-2, False)])
def test_one_iteration_is_rounding_and_two_of_five_are_not(extra, green):
    result = list(iterations.compared(Asked(extra), "laplace", problems.get("toy-3-softmax")))
    assert [row.left for row in result] == ["fast", "reference"]
    assert all((row.observed <= row.limit) is green for row in result)


def test_the_answers_of_today_take_what_is_recorded():
    result = list(iterations.compared(Context(quick=True), "laplace", problems.get("two-points-3-softmax")))
    assert all(row.observed <= row.limit for row in result)
    assert all(np.isfinite(row.limit) for row in result)
