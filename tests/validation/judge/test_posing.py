"""The judge's choice of problems: every feature that a method can be asked is asked, by small problems."""

import numpy as np
import pytest

from validation import problems, solve
from validation.door import catalogue
from validation.judge.posing import RARE, all_features, features, posed, questions_for


def program(method, problem):
    raise NotImplementedError("asked for its questions only")


@pytest.mark.parametrize("method", [entry.method for entry in catalogue.METHODS])
def test_every_feature_of_a_method_is_asked(method):
    (asked,) = questions_for(program, method)
    assert frozenset().union(*map(features, asked.problems)) == all_features(method)


@pytest.mark.parametrize("method", [e.method for e in catalogue.METHODS if e.points == catalogue.EITHER])
def test_a_method_of_either_points_is_asked_both(method):
    (asked,) = questions_for(program, method)
    sparse = [name for name in asked.problems if posed(name).Z is not None]
    assert any("jitter" in feature for name in sparse for feature in features(name))
    assert len(sparse) < len(asked.problems)
    assert any(posed(name).jitter.any() for name in asked.problems)


def test_problems_of_the_judge_are_no_problems_of_verify():
    assert not set(problems.judged()) & set(problems.names())
    for name in problems.judged():
        problem = problems.get(name)
        assert problem.name == name
        assert problems.purpose(name)
        assert np.bincount(problem.y, minlength=problem.n_classes).min() >= 2


@pytest.mark.parametrize("name", [name for name in problems.judged() if any("below" in f for f in features(name))])
def test_problems_with_rare_classes_have_them(name):
    problem = posed(name)
    likely = {"logit": "x-gpc", "probit": "svgpc", "multinomial-probit": "nested-ep", "threshold": "ep"}
    assert solve("fast", likely[problem.likelihood], problem).probabilities.min() < RARE


def test_the_kernels_of_a_program_bound_its_questions():
    def smooth(method, problem):
        raise NotImplementedError("asked for its questions only")

    smooth.kernels = ("se",)
    (asked,) = questions_for(smooth, "svi")
    assert {posed(name).kernel for name in asked.problems} == {"se"}
    assert any("Matérn" in feature for feature in all_features("svi"))
