"""A row of the catalogue is a promise: each one is asked of the witnesses, by solving."""

import inspect

import numpy as np
import pytest

import fast.estimators
from validation import Problem, solve
from validation.door.catalogue import ALL_ROWS, EITHER, INDUCING, METHODS, TRUTHS
from validation.door.solve import methods

LIKELIHOODS = ("logit", "probit", "softmax", "multinomial-probit", "threshold")
BINARY = ("logit", "probit")


def small_problem(likelihood, *, inducing, epsilon=0.0, n=4):
    n_classes = 2 if likelihood in BINARY else 3
    return Problem(
        name="small",
        X=np.arange(n)[:, None] / 2.0,
        y=np.arange(n) % n_classes,
        n_classes=n_classes,
        likelihood=likelihood,
        variance=1.0,
        lengthscales=1.0,
        noise=0.5 if likelihood == "threshold" else 0.0,
        jitter=1e-6,
        epsilon=epsilon,
        Z=[[0.0], [1.2]] if inducing else None,
    )


def test_every_method_of_a_witness_has_a_row_and_every_row_its_method():
    known = methods()
    names = sorted(entry.method for entry in METHODS)
    assert names == sorted(known["reference"]) == sorted(known["fast"])
    assert sorted(entry.method for entry in TRUTHS) == sorted(known["gibbs"] + known["quadrature"])


def test_every_classifier_stands_in_one_row():
    named = sorted(name for entry in METHODS for name in entry.classifiers)
    assert named == sorted(name for name in fast.estimators.__all__ if inspect.isclass(getattr(fast.estimators, name)))


@pytest.mark.parametrize("entry", METHODS, ids=lambda entry: entry.method)
def test_a_method_takes_what_its_row_lists_and_refuses_the_rest_by_name(entry):
    for likelihood in LIKELIHOODS:
        for inducing in (False, True):
            epsilon = 0.05 if entry.errors and likelihood == "threshold" else 0.0
            problem = small_problem(likelihood, inducing=inducing, epsilon=epsilon)
            fits = entry.points == EITHER or entry.points == (INDUCING if inducing else ALL_ROWS)
            # reference steps x-gpc-svi without inducing points too, which its fast twin has no need to
            witnesses = ("fast",) if entry.method == "x-gpc-svi" and not inducing else ("reference", "fast")
            for witness in witnesses:
                if likelihood in entry.likelihoods and fits:
                    assert solve(witness, entry.method, problem).log_evidence is not None
                else:
                    with pytest.raises(ValueError, match=r"^(likelihood|Z|kernel): found .*expected"):
                        solve(witness, entry.method, problem)


@pytest.mark.parametrize("entry", [entry for entry in METHODS if entry.errors], ids=lambda entry: entry.method)
def test_a_method_that_needs_labelling_errors_refuses_none(entry):
    for witness in ("reference", "fast"):
        with pytest.raises(ValueError, match=r"^epsilon: found 0"):
            solve(witness, entry.method, small_problem("threshold", inducing=True))


@pytest.mark.parametrize("entry", TRUTHS, ids=lambda entry: entry.method)
def test_a_truth_refuses_every_likelihood_that_its_row_does_not_list(entry):
    for likelihood in sorted(set(LIKELIHOODS) - set(entry.likelihoods)):
        with pytest.raises(ValueError, match=r"^likelihood: found .*expected"):
            solve(entry.implementation, entry.method, small_problem(likelihood, inducing=False, n=2))
