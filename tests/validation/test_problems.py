import json
import subprocess
import sys

import numpy as np
import pytest

from validation import problems
from validation.judge.compare import prior_condition
from validation.problems import inducing_points


@pytest.mark.parametrize("name", problems.names())
def test_every_problem_is_what_its_name_and_purpose_say(name):
    problem = problems.get(name)
    assert problem.name == name
    assert problems.purpose(name)
    assert problems.cost(name) > 0.0
    # two data cannot show three labels; everywhere else every class has a member
    assert len(np.unique(problem.y)) == min(problem.n, problem.n_classes)
    assert problem.t > 0
    assert (problem.prior_model == "fitc") == (problem.Z is not None)
    # identity checks ask for a condition of at most 1e5
    assert prior_condition(problem) <= 1e5


@pytest.mark.parametrize(("name", "count"), [("digits", 52), ("breast-cancer", 30), ("wine", 13)])
def test_the_number_of_features_told_is_the_number_there(name, count):
    assert problems.get(name).d == count
    assert f"{count} features" in problems.purpose(name)


def test_a_method_that_needs_a_large_variance_finds_one():
    assert sum(problems.get(name).variance[0] >= np.exp(4.0) * (1.0 - 1e-12) for name in problems.names()) >= 4


def test_several_classes_at_a_large_variance_and_more_than_three_are_there_for_every_likelihood():
    for likelihood in ("multinomial-probit", "softmax", "threshold"):
        results = [p for p in map(problems.get, problems.names()) if p.likelihood == likelihood]
        assert any(p.n_classes >= 4 and p.variance.min() >= np.exp(4.0) * (1.0 - 1e-12) for p in results)
        assert {p.prior_model for p in results} == {"full", "fitc"}
    assert any(p.epsilon > 0.0 for p in results)


def test_the_likelihoods_of_one_name_share_data_prior_and_noise():
    plain = problems.get("toy-3")
    for end, differing in [
        ("-softmax", ["likelihood"]),
        ("-threshold", ["likelihood"]),
        ("-errors", ["likelihood", "epsilon"]),
    ]:
        assert sorted(plain.differences(problems.get(f"toy-3{end}"))) == sorted(differing)
    assert problems.get("toy-3-errors").epsilon == problems.ERRORS


def test_a_near_miss_is_told():
    for ask in (problems.get, problems.purpose):
        with pytest.raises(KeyError, match=r"problem: found 'digit', expected one of .*did you mean 'digits'"):
            ask("digit")


def test_a_problem_is_made_once():
    assert problems.get("toy") is problems.get("toy")


def test_a_name_means_the_same_numbers_in_every_process():
    names = ["three-points-fitc", "toy-sparse", "wine"]
    code = (
        "import hashlib, json, sys\n"
        "from validation import problems\n"
        "def content(p): return b''.join(v.tobytes() for k, v in sorted(p.to_arrays().items()))\n"
        "print(json.dumps([hashlib.sha256(content(problems.get(n))).hexdigest() for n in sys.argv[1:]]))\n"
    )
    runs = [
        json.loads(
            subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True).stdout
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_training_and_test_rows_of_real_problems_are_apart():
    for name in ("iris", "wine", "digits", "breast-cancer"):
        problem = problems.get(name)
        assert problem.y_test is not None
        # standardised by the training part: means vanish up to rounding
        np.testing.assert_allclose(problem.X.mean(axis=0), 0.0, rtol=0, atol=1e-12)
        assert (problem.X.std(axis=0) > 0.0).all()


def test_inducing_points_are_distinct_rows():
    X = np.repeat(np.arange(6.0)[:, None], 3, axis=0)
    points = inducing_points(X, 6, seed=0)
    assert sorted(points[:, 0]) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    np.testing.assert_array_equal(inducing_points(X, 4, seed=1), inducing_points(X, 4, seed=1))


@pytest.mark.parametrize("m", [0, 7])
def test_more_inducing_points_than_distinct_rows_are_refused(m):
    with pytest.raises(ValueError, match=rf"m: found {m}, expected 1 to 6, the number of distinct rows of X"):
        inducing_points(np.repeat(np.arange(6.0)[:, None], 3, axis=0), m, seed=0)
