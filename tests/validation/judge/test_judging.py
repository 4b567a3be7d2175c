"""`judge`: right programs agree, wrong ones are told what is wrong, and what was not judged is named."""

from dataclasses import replace

import numpy as np
import pytest

from validation import Solution, solve
from validation.command.judge import page
from validation.door import catalogue
from validation.judge.judging import FLOAT32, judge
from validation.judge.posing import questions_for
from validation.judge.verdict import lines

TINY = ("two-points", "two-points-probit")


def right(method, problem):
    return replace(solve("fast", method, problem), implementation="mine")


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


def probabilities_alone(method, problem):
    return Solution(problem, "mine", method, probabilities=solve("fast", method, problem).probabilities)


def test_what_a_run_could_not_see_is_the_whole_list_less_what_it_saw():
    some = judge(probabilities_alone, "x-gpc", problems=["judge-sparse", "toy"])
    whole = judge(right, "x-gpc", problems=["judge-sparse", "toy"])
    assert some.verdict == whole.verdict == "AGREE"
    assert set(some.seen) | set(some.unseen) == set(whole.seen) | set(whole.unseen)
    assert {"constant n log 2", "sd for variance", "latent_cov 5 % off", "sign"} <= set(some.unseen) - set(whole.unseen)
    # of the method's features those that no problem here has
    assert "noise (logit, inducing points)" in whole.seen
    assert "more than 100 rows (logit, all rows)" in whole.unseen


def test_gradients_and_learning_that_were_not_judged_are_named():
    told = judge(probabilities_alone, "x-gpc", problems="two-points", power=False).not_judged
    assert told["x-gpc/gradients"] == "the program does not give it"
    assert "holds the hyper-parameters" in told["x-gpc/learning of hyper-parameters"]
    assert "x-gpc/gradients" not in judge(right, "x-gpc", problems="two-points", power=False).not_judged


def mode(method, problem):
    """Laplace's approximation under a name of its own."""
    return replace(solve("fast", "laplace-binary", problem), implementation="mine", method=method)


def shrunk(method, problem):
    """Consistent, of no method of `fast`, and far from the truth."""
    solution = mode(method, problem)
    return Solution(problem, "mine", method, latent_mean=0.5 * solution.latent_mean, latent_cov=solution.latent_cov)


mode.likelihoods = shrunk.likelihoods = ("logit",)


def test_a_method_of_another_name_is_judged_as_the_one_of_fast_that_gives_its_answers():
    verdict = judge(mode, "newton", problems=["toy", "toy-steep"], power=False)
    assert verdict.verdict == "AGREE", [case.name for case in verdict.failed]
    assert verdict.twins["newton"].method == "laplace-binary"
    assert {case.row.kind for case in verdict.passed} >= {"identity", "discrepancy"}
    assert "newton gives the answers of fast laplace-binary" in str(verdict)


def test_a_bias_of_a_method_that_fast_does_not_have_is_inexact_and_no_failure():
    verdict = judge(shrunk, "shrunk", problems=["toy", "toy-steep"], power=False)
    assert not verdict.twins
    assert (verdict.verdict, verdict.failed) == ("INEXACT", ())
    (case,) = [case for case in verdict.inexact if case.name == "shrunk/toy-steep/discrepancy/latent_mean"]
    # its distance stands beside those of the methods that we have
    assert f"distance {case.row.observed:.2g} from the truth; methods here: " in case.row.why
    assert "laplace-binary" in case.row.why
    # on all rows both are Laplace's approximation
    assert "latent_cov equal those of laplace-binary, vi-taylor," in verdict.not_judged["shrunk/identity"]


def single(method, problem):
    """The right answer, computed with seven digits and not normalised in more."""
    s = solve("fast", method, problem)
    names = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities")
    arrays = {name: getattr(s, name).astype(np.float32) for name in names}
    return Solution(problem, "mine", method, log_evidence=float(np.float32(s.log_evidence)), **arrays)


def test_a_program_in_float32_is_told_so_and_held_to_what_float32_leaves():
    verdict = judge(single, "nested-ep", problems=["toy-3"], power=False)
    assert verdict.verdict == "AGREE", [case.row.why for case in verdict.failed]
    assert verdict.precision == "float32"
    assert "AGREE in float32: " in str(verdict)
    assert {case.row.limit for case in verdict.cases if case.row.kind == "identity"} == {FLOAT32}
    assert judge(right, "x-gpc", problems="two-points", power=False).precision == "float64"


def test_questions_for_which_no_time_is_left_are_named():
    verdict = judge(right, "x-gpc", problems=["two-points", "toy"], power=False, seconds=1e-9)
    assert verdict.verdict == "UNDECIDED"
    assert set(verdict.not_judged) == {"x-gpc on two-points", "x-gpc on toy"}
    with pytest.raises(ValueError, match="seconds: found 0, expected a number > 0"):
        judge(right, "x-gpc", seconds=0.0)


def test_a_limit_is_called_the_callers_only_where_the_caller_gave_it():
    def reasons(**options):
        cases = judge(right, "x-gpc", problems="toy", power=False, **options).cases
        return {case.row.why for case in cases if case.row.quantity == "latent_mean" and case.row.kind == "identity"}

    assert reasons(limit=1e-3) == {"limit given by the caller"}
    assert "stopping rules" in reasons().pop()


def test_what_a_program_does_not_give_is_named_with_the_reason():
    def little(method, problem):
        return Solution(problem, "mine", method, log_evidence=solve("fast", method, problem).log_evidence)

    told = judge(little, "x-gpc", problems=["two-points"], power=False)
    expected = {"latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities", "gradients"}
    assert {name for name, why in told.not_judged.items() if why == "the program does not give it"} == {
        f"x-gpc/{name}" for name in expected
    }
    (line,) = [line for line in lines(told) if line.endswith("the program does not give it")]
    assert "x-gpc/probabilities, x-gpc/gradients" in line


def test_a_misspelt_method_is_told_that_fast_was_not_asked():
    own.likelihoods = ("logit",)
    told = judge(own, "x-gcp", problems=["two-points"], power=False).not_judged["x-gcp/identity"]
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
    assert {"toy-2-sparse-threshold", "toy-4-sparse-steep-threshold", "toy-3-sparse-threshold"} <= set(asked.problems)
    assert not any("errors" in name for name in asked.problems)  # which `fast` refuses by that method
    (asked,) = questions_for(right, "vi-robust")
    assert all(name.endswith("-errors") for name in asked.problems)
    (asked,) = questions_for(right, "laplace")
    assert "toy-3-softmax" in asked.problems
    (asked,) = questions_for(right, "x-gpc-svi")  # every chain's truth that it takes is above the default size
    assert "toy-sparse" in asked.problems
    assert questions_for(right, "x-gpc", problems="wine")[0].problems == ("wine",)
    with pytest.raises(ValueError, match="largest: found 2, expected at least 3: the smallest problem"):
        questions_for(right, "x-gpc-svi", largest=2)
    with pytest.raises(ValueError, match=r"problems: found wine, expected some of two-points, .* at most 40 data"):
        questions_for(right, "x-gpc", problems=["wine"], largest=40)
    with pytest.raises(ValueError, match="method: found None and no attribute `methods`"):
        questions_for(right)
    with pytest.raises(TypeError, match="answer: found int, expected a callable"):
        questions_for(3)
