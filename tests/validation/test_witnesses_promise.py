"""What every method of both witnesses promises, whatever it computes: a property each over the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from random_problems import binary, classes, conditioned, full_binary, full_classes
from validation import Problem, solve
from validation.catalogue import ALL_ROWS, METHODS, Method
from validation.options import options_of

ROWS = [(witness, row) for row in METHODS for witness in ("reference", "fast")]
CUT = 12  # iterations: enough for a tolerance of 1e-2 of most methods


def problem(row: Method) -> Problem:
    """A few data that the method takes, and one test point."""
    drawn = _drawn(row)
    return drawn.replace(X_test=drawn.X[:1] + 0.1)


def _drawn(row: Method) -> Problem:
    likelihood = row.likelihoods[0]
    if likelihood in ("logit", "probit"):
        if row.points == ALL_ROWS:
            return conditioned(lambda rng: full_binary(rng, likelihood), 3)
        return conditioned(lambda rng: binary(rng, likelihood, sparse=True), 3)
    if row.points == ALL_ROWS:
        return conditioned(lambda rng: full_classes(rng, likelihood), 3)
    epsilon = 0.05 if row.errors or (row.paper == "villacampa2020" and likelihood == "threshold") else 0.0
    return conditioned(lambda rng: classes(rng, 2, True, (0.1, 0.3), epsilon=epsilon, likelihood=likelihood), 3)


def asking(*names: str) -> list[Any]:
    """Rows whose methods have these options, as parameters."""
    return [
        pytest.param(witness, row, id=f"{witness}-{row.method}")
        for witness, row in ROWS
        if set(names) <= set(options_of(witness, row.method))
    ]


def same(left: Any, right: Any) -> bool:
    """Whether two solutions have the same numbers to the last bit."""
    names = ("log_evidence", "test_latent_mean", "test_latent_cov", "probabilities")
    return all(
        np.array_equal(np.asarray(getattr(left, name), float), np.asarray(getattr(right, name), float), equal_nan=True)
        for name in names
    )


@pytest.mark.parametrize(("witness", "row"), asking("tolerance", "max_iterations"))
@pytest.mark.parametrize("tolerance", [1e-2, 1e-300])
def test_converged_means_a_residual_within_the_tolerance(witness: str, row: Method, tolerance: float) -> None:
    asked: Mapping[str, Any] = {"tolerance": tolerance, "max_iterations": CUT}
    result = solve(witness, row.method, problem(row), **asked)
    assert result.residual is not None
    assert result.residual >= 0.0
    assert not result.converged or result.residual <= tolerance


@pytest.mark.parametrize(("witness", "row"), asking("gradients"))
def test_gradients_are_there_if_and_only_if_they_are_asked_for(witness: str, row: Method) -> None:
    asked: dict[str, Any] = {"max_iterations": 2} if "max_iterations" in options_of(witness, row.method) else {}
    if row.method == "qep":
        asked["lambda_"] = "full"  # of diagonal sites of three classes no gradient is claimed
    without, given = (solve(witness, row.method, problem(row), gradients=wanted, **asked) for wanted in (False, True))
    assert not without.gradients
    assert given.gradients
    assert same(without, given)


@pytest.mark.parametrize(("witness", "row"), asking("batch_size", "seed", "n_steps"))
def test_a_seed_fixes_a_run_and_another_seed_is_another_run(witness: str, row: Method) -> None:
    learn = {"learn": ("variance",), "rate": 0.01} if row.likelihoods[0] == "threshold" else {}
    asked: Mapping[str, Any] = {"batch_size": 2, "n_steps": 3, **learn}
    first, again, other = (solve(witness, row.method, problem(row), seed=seed, **asked) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)
