"""What the judge says of class probabilities whose sums or integrals are off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validation import problems, solve
from validation.checks.core import Context
from validation.checks.definitions import predictive_integrals as integrals
from validation.checks.witnesses.riihimaki import LAPLACE, QEP
from validation.door.solution import Solution


def test_a_stated_error_is_that_of_the_next_larger_case_and_none_is_claimed_beyond() -> None:
    assert integrals.stated(integrals.SOFTMAX_ERROR, 3, np.exp(3.9)) == 3e-4
    assert integrals.stated(integrals.SOFTMAX_ERROR, 5, 1.0) == 3e-4
    assert integrals.stated(integrals.ORTHANT_ERROR, 12, np.exp(8.0) * 0.999) == 4e-3
    assert integrals.stated(integrals.ORTHANT_ERROR, 13, 1.0) == np.inf
    assert integrals.stated(integrals.ORTHANT_ERROR, 3, np.exp(8.1)) == np.inf


def answer(method: str) -> Solution:
    """An answer of `fast` on two data."""
    end = "-softmax" if method.startswith("laplace") else ""
    return solve("fast", method, problems.get(f"two-points-3{end}"))


@pytest.mark.parametrize(("method", "lost"), [("qep", 1e-4), ("laplace", 1e-8), ("vb-probit", 1e-8)])
def test_a_lost_mass_is_seen_where_a_method_integrates(method: str, lost: float) -> None:
    result = answer(method)
    (fine,) = integrals.unit_mass(result)
    assert fine.observed <= fine.limit  # type: ignore[union-attr]
    assert result.probability_mass is not None
    (bad,) = integrals.unit_mass(replace(result, probability_mass=result.probability_mass - lost))
    assert bad.observed > bad.limit  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["nested-ep", "laplace-tkp"])
def test_normalisers_that_are_no_integrals_are_held_to_nothing(method: str) -> None:
    result = answer(method)
    assert result.probability_mass is not None
    assert np.abs(result.probability_mass - 1.0).max() > 1e-5
    assert list(integrals.unit_mass(result)) == []


@pytest.mark.parametrize("subject", [QEP, LAPLACE])
def test_probabilities_of_another_gaussian_are_seen(subject: integrals.Subject) -> None:
    context, problem = Context(), problems.get("two-points-3-softmax" if subject is LAPLACE else "two-points-3")
    fine = list(integrals.own_integral(context, subject, problem))
    assert len(fine) == 2
    assert all(outcome.observed <= outcome.limit for outcome in fine)  # type: ignore[union-attr]
    for key, solution in context._answers.items():
        assert isinstance(solution, Solution)
        assert solution.test_latent_cov is not None
        context._answers[key] = replace(solution, test_latent_cov=1.1 * solution.test_latent_cov)
    moved = list(integrals.own_integral(context, subject, problem))
    assert all(outcome.observed > outcome.limit for outcome in moved)  # type: ignore[union-attr]
