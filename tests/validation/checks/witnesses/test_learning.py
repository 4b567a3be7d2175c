"""What the checks of learning paths compare, and that they turn red."""

from __future__ import annotations

import numpy as np
import pytest

from validation.checks.core import Context
from validation.checks.witnesses import learning, settings
from validation.door.catalogue import METHODS


def test_no_method_is_left_out():
    assert {entry.method for entry in METHODS} <= {*learning.RUNS, *settings.RUNS}


def test_every_check_of_paths_has_a_row_in_a_quick_run():
    assert all(any(not run.full for run in runs) for runs in learning.RUNS.values())
    assert all(any(not run.full for run in runs) for runs in settings.RUNS.values())


def test_the_ordinary_problem_hides_nothing():
    problem = learning.tiny("threshold")
    assert (problem.noise > 0.0).all()
    assert (problem.jitter > 0.0).all()
    for name in ("variance", "noise", "jitter"):
        assert len(set(getattr(problem, name))) == problem.n_classes
    assert len({tuple(row) for row in problem.lengthscales}) == problem.n_classes
    assert any(len(set(batch)) < len(batch) for batch in learning.BATCHES)


@pytest.fixture
def pair():
    context = Context()
    options = {"max_iterations": 2, "damping": 0.7}
    return [context.solve(witness, "ep", learning.tiny("threshold"), **options) for witness in learning.WITNESSES]


def test_equal_solutions_are_not_apart(pair):
    assert learning.farthest(*pair)[0] < 1e-10


@pytest.mark.parametrize("name", ["log_evidence", "latent_mean", "iterations"])
def test_one_quantity_that_differs_is_found_and_named(pair, name):
    left, right = pair
    object.__setattr__(right, name, getattr(right, name) * 2)
    observed, worst, _ = learning.farthest(left, right)
    # one of two equal numbers was doubled; they differ by rounding
    assert abs(observed - 0.5) < 1e-12
    assert worst == name


def test_a_quantity_that_is_no_number_is_worst(pair):
    left, right = pair
    broken = np.array(right.latent_mean)
    broken[0, 0] = np.nan
    object.__setattr__(right, "latent_mean", broken)
    observed, name, _ = learning.farthest(left, right)
    assert np.isnan(observed)
    assert name == "latent_mean"


def test_a_quantity_that_is_missing_or_of_another_shape_is_infinitely_far(pair):
    left, right = pair
    object.__setattr__(right, "latent_cov", right.latent_cov[:-1])
    assert learning.farthest(left, right)[:2] == (np.inf, "latent_cov")
    object.__setattr__(right, "probabilities", None)
    assert learning.farthest(left, right)[0] == np.inf


def test_a_full_run_asks_more():
    runs = [learning.RUNS["nested-ep"][-1]]
    assert runs[0].full
    assert list(learning.side_by_side(Context(quick=True), "nested-ep", runs)) == []
