"""The register refuses what no report could show, and a context answers each question once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from validation.checks import core
from validation.checks.core import Compared, Context, check, digest
from validation.door.solution import Solution


@pytest.fixture(autouse=True)
def _made_up(problems: object) -> None:
    """Problems and a register of this module's own."""


def register(id: str = "identity/x-gpc/bound", **changes: Any) -> None:
    arguments: dict[str, Any] = {"paper": "wenzel2019", "question": "It is so.", "problems": ("easy",)} | changes
    check(id, **arguments)(lambda context, problem: Compared(0.0, 1.0, "", "", ""))


class Counting:
    """Stands for validation.door.solve.solve and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, implementation, method, problem, **options):
        self.asked.append((implementation, method, problem.name, options))
        if method == "broken":
            raise ValueError("K_ZZ: found a negative eigenvalue, expected > 0")
        return Solution(problem=problem, implementation=implementation, method=method)


@pytest.fixture
def solve(monkeypatch):
    counting = Counting()
    monkeypatch.setattr(core, "solve", counting)
    return counting


# -- the register ----------------------------------------------------------------------------------------------


def test_a_registered_check_knows_its_parts():
    register("bound/vi-jj/log_evidence", full=("huge",))
    actual = core.registered()["bound/vi-jj/log_evidence"]
    assert (actual.kind, actual.method, actual.quantity) == ("bound", "vi-jj", "log_evidence")
    assert (actual.problems, actual.full) == (("easy",), ("huge",))


@pytest.mark.parametrize("id", ["identity/x-gpc", "identity//bound", "a/b/c/d", "identity/x gpc/bound"])
def test_an_id_that_is_not_kind_method_quantity_is_refused(id):
    with pytest.raises(ValueError, match="expected kind/method/quantity"):
        register(id)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="found the kind 'equality', expected one of identity"):
        register("equality/x-gpc/bound")


def test_an_id_is_registered_once():
    register()
    with pytest.raises(ValueError, match="expected it once"):
        register()


@pytest.mark.parametrize(
    "changes",
    [{"problems": ()}, {"problems": "easy"}, {"problems": ("easy",), "full": ("easy",)}, {"problems": ("-", "easy")}],
)
def test_problems_must_be_distinct_names_in_a_tuple(changes):
    with pytest.raises(ValueError, match="problems: found"):
        register(**changes)


@pytest.mark.parametrize("question", [" ", "It is so", "Is it so?"])
def test_a_check_needs_a_statement(question):
    with pytest.raises(ValueError, match=r"question: found .*expected a statement that ends in"):
        register(question=question)


# -- the context -----------------------------------------------------------------------------------------------


def test_equal_questions_are_answered_once(solve, problems):
    context = Context()
    first = context.solve("fast", "x-gpc", problems("easy"), block_size=3)
    again = context.solve("fast", "x-gpc", problems("easy"), block_size=3)
    assert again is first
    assert len(solve.asked) == 1
    assert context.solutions == [first]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"block_size": 1}, {"block_size": 2}),
        ({"batches": [[0, 1], [2]]}, {"batches": [[0], [1, 2]]}),
        ({"start": np.zeros(2)}, {"start": np.ones(2)}),
        ({"start": np.zeros(2)}, {"start": np.zeros((1, 2))}),
        ({"flag": True}, {"flag": 1}),
        ({}, {"seed": None}),
    ],
)
def test_other_options_are_other_questions(solve, problems, left, right):
    context = Context()
    context.solve("fast", "x-gpc", problems("easy"), **left)
    context.solve("fast", "x-gpc", problems("easy"), **right)
    assert len(solve.asked) == 2


@pytest.mark.parametrize("options", [{"start": np.arange(3.0)}, {"batches": [[0, 1], [2]]}, {"map": {"a": [1]}}])
def test_equal_arrays_and_lists_are_equal_options(solve, problems, options):
    context = Context()
    context.solve("fast", "x-gpc", problems("easy"), **options)
    context.solve("fast", "x-gpc", problems("easy"), **options)
    assert len(solve.asked) == 1


def test_other_problems_are_other_questions(solve, problems):
    context = Context()
    problem = problems("easy")
    for variant in (problem, problem.replace(name="other"), problem.replace(noise=0.1), problem.replace(Z=problem.X)):
        context.solve("fast", "x-gpc", variant)
    assert len(solve.asked) == 4


def test_a_failure_is_remembered_too(solve, problems):
    context = Context()
    for _ in range(2):
        with pytest.raises(ValueError, match="K_ZZ: found a negative eigenvalue"):
            context.solve("fast", "broken", problems("easy"))
    assert len(solve.asked) == 1
    assert context.solutions == []


def test_a_problem_is_built_once(problems):
    context = Context()
    assert context.problem("easy") is context.problem("easy")


def test_the_digest_sees_every_field(problems):
    problem = problems("easy")
    assert digest(problem) == digest(problems("easy"))
    changed = [problem.replace(noise=1e-300), problem.replace(X=-problem.X), problem.replace(jitter=1e-12)]
    assert len({digest(p) for p in (problem, *changed)}) == 4
