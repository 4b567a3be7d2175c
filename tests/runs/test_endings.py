"""Who says `converged` is within the tolerance: every method, tolerances that can be met and one that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from in_every_run import others_slow
from validation import problems, solve
from validation.checks.runs import CATALOGUE, documents, posed

ITERATIONS = others_slow(
    [
        (witness, method)
        for method in CATALOGUE
        for witness in method.witnesses
        if documents(witness, method.name, "tolerance", "max_iterations")
    ],
    lambda witness, method: witness == "fast",
)
_UNREACHABLE = 1e-300  # below the rounding of any change


@pytest.mark.parametrize(("witness", "method"), ITERATIONS, ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, _UNREACHABLE])
def test_converged_means_a_residual_within_the_tolerance(witness: str, method: Any, tolerance: float) -> None:
    problem = posed(method, problems.get(method.problem))
    given = {"gradients": False} if documents(witness, method.name, "gradients") else {}
    for most in (1, 2, 30):
        answer = solve(witness, method.name, problem, tolerance=tolerance, max_iterations=most, **given)
        if answer.converged and answer.residual is not None:
            assert answer.residual <= tolerance
        if not answer.converged:
            assert answer.settings["reason"]
