"""What goes to other programs is JSON whatever the numbers, and holds every field."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest

from validation import Solution, problems
from validation.screen import as_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array([1.0, np.nan, np.inf]), [1.0, None, None]),
        (np.float64(-np.inf), None),
        (np.bool_(True), True),
        ({"a": (np.int64(3), None, "x")}, {"a": [3, None, "x"]}),
        (np.zeros((0, 2)), []),
    ],
)
def test_values_become_plain(value, expected):
    assert as_json.plain(value) == expected
    assert json.loads(as_json.text(value)) == expected


def test_a_solution_holds_every_field_and_its_problem():
    problem = problems.get("two-points")
    solution = Solution(problem=problem, implementation="fast", method="x-gpc", log_evidence=-1.5,
                        settings={"tolerance": 1e-10}, local={"c": np.array([0.1, np.nan])})  # fmt: skip
    values = json.loads(as_json.text(as_json.solution_values(solution)))
    assert set(values) == {field.name for field in fields(Solution)}
    assert values["problem"]["X"] == problem.X.tolist()
    assert values["local"] == {"c": [0.1, None]}
    assert values["latent_mean"] is None
