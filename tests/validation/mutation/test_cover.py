"""The greedy cover: pairs that were first to see a mutant, by mutants a second, with shared questions paid for once."""

import pytest

from validation.checks.runner import Answered
from validation.checks.selection import Pair, Selection
from validation.mutation import cover
from validation.mutation.baseline import Baseline, Problem
from validation.mutation.trial import Outcome


def outcome(by, state="red"):
    return Outcome("m", state, by, "", 1, 0.0)


@pytest.fixture
def healthy(tmp_path):
    """Three pairs on one problem: a and b share a question of 6 s, c is 30 s by itself; b and d ask nothing else."""
    a, b, c, d = (Pair(name, "toy", False) for name in "abcd")
    problem = Problem("toy")
    problem.answers = {pair: Answered(pair, (), own) for pair, own in ((a, 1.0), (b, 1.0), (c, 30.0), (d, 2.0))}
    problem.asked = {a: (("q",),), b: (("q",),), c: (), d: ()}
    problem.seconds = {("q",): 6.0}
    return Baseline(Selection((a, b, c, d), ()), {"toy": problem}, tmp_path)


def test_a_mutant_counts_for_the_pair_that_saw_it_first():
    outcomes = [outcome("a on toy"), outcome("a on toy", "crash"), outcome("", "crash"), outcome("", "survived")]
    assert cover.first_to_see(outcomes) == {"a on toy": 2}


def test_a_shared_question_is_paid_for_once(healthy):
    steps = cover.cover({"a on toy": 6, "b on toy": 2}, healthy)
    # 40 s in all: a with the question takes 7, b then 1
    assert [step.check for step in steps] == ["a", "b"]
    assert [step.seconds for step in steps] == pytest.approx([7 / 40, 8 / 40], rel=1e-12)
    assert [step.mutants for step in steps] == pytest.approx([0.75, 1.0], rel=1e-12)


def test_the_cover_takes_most_mutants_a_second_first(healthy):
    # 1/2 mutant a second for d, 1/30 for c, 1/7 for a
    steps = cover.cover({"a on toy": 1, "c on toy": 1, "d on toy": 1}, healthy)
    assert [step.check for step in steps] == ["d", "a", "c"]
    assert cover.markdown(steps, 4).splitlines()[2] == "| 67% | 2 of 4 | 22.5% |"
    assert cover.markdown((), 4) == ""


def test_heavy_pairs_outside_the_cover_are_named_with_what_they_alone_cost(healthy):
    result = cover.idle({"a on toy": 1}, healthy)
    # the question is shared, so leaving out b saves its own second
    assert [entry.check for entry in result] == ["c", "d", "b"]
    assert [entry.seconds for entry in result] == pytest.approx([30 / 40, 2 / 40, 1 / 40], rel=1e-12)
    assert cover.idle({f"{name} on toy": 1 for name in "abcd"}, healthy) == ()


def test_a_pair_that_is_no_longer_asked_is_no_part_of_the_cover(healthy):
    assert cover.cover({"gone on toy": 3}, healthy) == ()
