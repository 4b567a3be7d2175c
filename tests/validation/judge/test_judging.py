"""`judge`: right programs agree, wrong ones are told what is wrong, and what was not judged is named."""

from dataclasses import replace

import numpy as np
import pytest

from validation import Solution, solve
from validation.command.judge import lines, page
from validation.door import catalogue
from validation.judge.judging import judge, questions_for

TINY = ("two-points", "two-points-probit")


def right(method, problem):
    return replace(solve("fast", method, problem), implementation="mine")


def right_of_another_name(method, problem):
    return replace(right("x-gpc", problem), method=method)


def twice(method, problem):
    solution = solve("fast", method, problem.replace(noise=2.0 * problem.noise))
    return replace(solution, problem=problem, implementation="mine")


def own(method, problem):
    """A method that nobody has, with too little to say."""
    if problem.n > 2:
        raise NotImplementedError("two data at most")
    return Solution(problem, "mine", method, probabilities=np.full((problem.t, 2), 0.5))


def test_a_right_program_agrees_and_is_told_what_the_run_could_have_seen():
    verdict = judge(right, "x-gpc", problems=["two-points", "toy"])
    assert verdict.verdict == "AGREE", list(verdict.failed)
    assert {case.row.kind for case in verdict.passed} >= {"answer", "identity", "discrepancy", "invariance"}
    expected = {"sd for variance", "constant n log 2", "lengthscale factor 2", "another link", "noise twice"}
    assert expected | {"latent_cov 5 % off"} <= set(verdict.seen)
    assert verdict.program.endswith("test_judging:right")


def test_a_wrong_program_disagrees_and_its_mistake_is_suspected_first():
    verdict = judge(twice, "x-gpc", problems=["toy", "toy-steep"], power=False)
    assert verdict.verdict == "DISAGREE"
    assert verdict.suspicions[0].name == "noise twice"
    assert verdict.suspicions[0].problems == ("toy", "toy-steep")
    assert any(case.row.worst.startswith("latent_mean[") for case in verdict.failed)
    assert "noise is counted twice" in page(verdict)


def test_what_a_program_refuses_or_leaves_out_is_not_judged_and_no_failure():
    own.likelihoods = ("logit",)
    verdict = judge(own, "coin", problems=["two-points", "toy"])
    assert "refused: two data at most" in verdict.not_judged.values()
    assert {case.problem for case in verdict.cases if case.row.verdict == "PASS"} == {"two-points"}


def test_what_a_program_raises_is_a_failure_with_its_words():
    def broken(method, problem):
        return Solution(problem, "mine", method, probabilities=np.full((problem.t, 2), 0.6))

    verdict = judge(broken, "x-gpc", problems=["two-points"])
    (case,) = verdict.failed
    assert "found a row that sums to 1 +0.2, expected 1" in case.row.why
    assert f"({__file__}:{broken.__code__.co_firstlineno + 1})" in case.row.why
    assert "suspect" not in " ".join(lines(verdict))  # there was no answer to hold one against


def test_a_program_that_ends_the_process_has_not_agreed():
    def leaves(method, problem):
        raise SystemExit(0)

    verdict = judge(leaves, "x-gpc", problems=["two-points"])
    assert verdict.verdict == "DISAGREE"
    assert "SystemExit: 0" in verdict.failed[0].row.why


def test_what_a_program_does_not_give_is_named_with_the_reason():
    def little(method, problem):
        return Solution(problem, "mine", method, log_evidence=solve("fast", method, problem).log_evidence)

    told = judge(little, "x-gpc", problems=["two-points"], power=False)
    expected = {"latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"}
    assert {name for name, why in told.not_judged.items() if why == "the program does not give it"} == {
        f"x-gpc/{name}" for name in expected
    }
    (line,) = [line for line in lines(told) if line.startswith("not judged")]
    assert "x-gpc/probabilities: the program does not give it" in line


def test_a_misspelt_method_is_told_that_fast_was_not_asked():
    told = judge(right_of_another_name, "x-gcp", problems=["two-points"], power=False).not_judged["x-gcp/identity"]
    assert "fast has no method 'x-gcp' (did you mean 'x-gpc'?)" in told
    own.likelihoods = ("logit",)
    told = judge(own, "coin", problems=["two-points"], power=False).not_judged["coin/identity"]
    assert "fast has no method 'coin': the truth alone is asked" in told


@pytest.mark.parametrize("method", [entry.method for entry in catalogue.METHODS])
def test_every_method_can_be_judged_without_arguments(method):
    (asked,) = questions_for(right, method)
    assert asked.problems


def test_only_problems_that_the_method_takes_are_asked():
    (asked,) = questions_for(right, "ep")
    assert asked.problems == ("toy-2-sparse-threshold", "toy-4-sparse-steep-threshold", "toy-3-sparse-errors",
                              "toy-3-sparse-threshold")  # fmt: skip
    (asked,) = questions_for(right, "vi-robust")
    assert asked.problems == ("toy-3-sparse-errors",)
    (asked,) = questions_for(right, "laplace")
    assert "toy-3-softmax" in asked.problems
    (asked,) = questions_for(right, "x-gpc-svi")  # every problem that it takes is above the default size
    assert asked.problems == ("toy-sparse",)
    with pytest.raises(ValueError, match="largest: found 40, expected at least 60: the smallest problem"):
        questions_for(right, "x-gpc-svi", largest=40)
    with pytest.raises(ValueError, match="problems: found wine, expected some of two-points, "):
        questions_for(right, "x-gpc", problems=["wine"])
    with pytest.raises(ValueError, match="method: found None and no attribute `methods`"):
        questions_for(right)
    with pytest.raises(TypeError, match="answer: found int, expected a callable"):
        questions_for(3)
