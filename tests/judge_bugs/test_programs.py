"""The right programs agree, and every mistake of the table can be planted."""

import importlib

import pytest

from judge_bugs.measure import BUGS, PROGRAMS, planted
from validation.judge.judging import judge


@pytest.mark.parametrize(("program", "method"), PROGRAMS.items())
def test_a_right_program_agrees_on_all_that_it_is_asked(program, method):
    answer = importlib.import_module(f"judge_bugs.programs.{program}").answer
    verdict = judge(answer, method, power=False)
    assert verdict.verdict == "AGREE", [(case.name, case.row.observed) for case in verdict.failed]
    assert not any(problem.startswith(method + " on") for problem in verdict.not_judged)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.program}: {bug.name}")
def test_every_mistake_can_be_planted(bug):
    assert callable(planted(bug))


def test_the_table_has_enough_of_both_kinds():
    listed = [bug for bug in BUGS if bug.suspects]
    assert len(BUGS) >= 60
    assert 3 * (len(BUGS) - len(listed)) >= len(BUGS)  # a third at least is none of the suspects
    assert {bug.program for bug in BUGS} == set(PROGRAMS)
