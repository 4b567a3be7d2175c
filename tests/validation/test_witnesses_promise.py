"""What every method of both witnesses promises, whatever it computes: a property each over the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from in_every_run import others_slow
from random_problems import binary, classes, conditioned, full_binary, full_classes
from validation import Problem, solve
from validation.door.catalogue import ALL_ROWS, METHODS
from validation.door.options import options_of

ROWS = {row.method: row for row in METHODS}
ASKED = [(witness, method) for method in ROWS for witness in ("reference", "fast")]
CUT = 40  # iterations: most of these fixed points are at rounding after as many
# methods whose iterations take longest
SLOW = ("vi-robust", "apep", "arpep", "rpapep", "bb-alpha", "laplace-tkp")


def problem(method: str) -> Problem:
    """A few data that the method takes, and one test point."""
    drawn = _drawn(method)
    return drawn.replace(X_test=drawn.X[:1] + 0.1)


def _drawn(method: str) -> Problem:
    row = ROWS[method]
    likelihood = row.likelihoods[0]
    if likelihood in ("logit", "probit"):
        if row.points == ALL_ROWS:
            return conditioned(lambda rng: full_binary(rng, likelihood), 3)
        return conditioned(lambda rng: binary(rng, likelihood, sparse=True), 3)
    if row.points == ALL_ROWS:
        return conditioned(lambda rng: full_classes(rng, likelihood), 3)
    epsilon = 0.05 if row.errors or (row.paper == "villacampa2020" and likelihood == "threshold") else 0.0
    return conditioned(lambda rng: classes(rng, 2, True, (0.1, 0.3), epsilon=epsilon, likelihood=likelihood), 3)


def asking(*names: str) -> list[tuple[str, str]]:
    """Witnesses and their methods that have these options."""
    return [(witness, method) for witness, method in ASKED if set(names) <= set(options_of(witness, method))]


def same(left: Any, right: Any) -> bool:
    """Whether two solutions have the same numbers to the last bit."""
    names = ("log_evidence", "test_latent_mean", "test_latent_cov", "probabilities")
    return all(
        np.array_equal(np.asarray(getattr(left, name), float), np.asarray(getattr(right, name), float), equal_nan=True)
        for name in names
    )


@pytest.mark.parametrize(
    ("witness", "method", "tolerance"),
    others_slow(
        [(*asked, tolerance) for asked in asking("tolerance", "max_iterations") for tolerance in (1e-2, 1e-300)],
        lambda witness, method, tolerance: tolerance > 1e-300 or method not in SLOW,
    ),
)
def test_converged_means_a_residual_within_the_tolerance(witness: str, method: str, tolerance: float) -> None:
    result = solve(witness, method, problem(method), tolerance=tolerance, max_iterations=CUT)
    assert result.residual is not None
    assert result.residual >= 0.0
    assert not result.converged or result.residual <= tolerance


@pytest.mark.parametrize(("witness", "method"), asking("gradients"))
def test_gradients_are_there_if_and_only_if_they_are_asked_for(witness: str, method: str) -> None:
    asked: dict[str, Any] = {"max_iterations": 2} if "max_iterations" in options_of(witness, method) else {}
    if method == "qep":
        asked["lambda_"] = "full"  # of diagonal sites of three classes no gradient is claimed
    without, given = (solve(witness, method, problem(method), gradients=wanted, **asked) for wanted in (False, True))
    assert not without.gradients
    assert given.gradients
    assert same(without, given)


@pytest.mark.parametrize(("witness", "method"), asking("batch_size", "seed", "n_steps"))
def test_a_seed_fixes_a_run_and_another_seed_is_another_run(witness: str, method: str) -> None:
    learn = {"learn": ("variance",), "rate": 0.01} if ROWS[method].likelihoods[0] == "threshold" else {}
    asked: Mapping[str, Any] = {"batch_size": 2, "n_steps": 3, **learn}
    first, again, other = (solve(witness, method, problem(method), seed=seed, **asked) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)
