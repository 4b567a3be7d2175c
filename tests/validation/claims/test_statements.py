"""Statements put to numbers: a program of which they are not true is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gibbs.draws.polya_gamma as polya_gamma
import reference.izmailov2016.bound as svi_bound
from validation import solve
from validation.checks import core
from validation.checks.core import Compared


class Other:
    """A context whose answers are changed before a check sees them."""

    def __init__(self, change):
        self.change = change

    def solve(self, implementation, method, problem, **options):
        return self.change(implementation, method, problem, options)


def failures(name, context):
    outcomes = [outcome for outcome in core.registered()[name].function(context, None) if isinstance(outcome, Compared)]
    assert outcomes
    return [outcome for outcome in outcomes if not outcome.observed <= outcome.limit]


def true(implementation, method, problem, options):
    return solve(implementation, method, problem, **options)


def exchanged(implementation, method, problem, options):
    """Full EP where independent EP is asked for, and the other way round."""
    other = {"nested-ep": "nested-iep", "nested-iep": "nested-ep"}
    return solve(implementation, other.get(method, method), problem, **options)


def full_for_vb(implementation, method, problem, options):
    return solve(implementation, "nested-ep", problem)


def other_inner(implementation, method, problem, options):
    """One inner iteration ends elsewhere, and takes longer."""
    answer = solve(implementation, method, problem, **options)
    if options.get("inner") != "incremental":
        return answer
    return replace(answer, iterations=2 * answer.iterations, latent_mean=answer.latent_mean + 1e-5)


def wider(implementation, method, problem, options):
    answer = solve(implementation, method, problem, **options)
    return replace(answer, test_latent_cov=1.05 * answer.test_latent_cov)


CASES = [
    ("print/nested-iep/says_iep_underestimates", exchanged),
    ("print/vb-probit/says_vb_isotropic", full_for_vb),
    ("print/nested-ep/says_one_inner_iteration", other_inner),
    ("print/nested-ep/says_fig8_same_solution", other_inner),
    ("print/x-gpc/says_prediction_quadrature", wider),
]


@pytest.mark.parametrize(("name", "change"), CASES)
def test_a_statement_holds_of_the_program_and_not_of_another(name, change):
    assert failures(name, Other(true)) == []
    assert failures(name, Other(change))


def test_draws_of_another_distribution_are_seen(monkeypatch):
    name = "print/gibbs-logit/says_conditionally_conjugate"
    own = polya_gamma.sample_polya_gamma
    assert failures(name, Other(true)) == []
    monkeypatch.setattr(polya_gamma, "sample_polya_gamma", lambda rng, c: own(rng, 1.05 * c))
    assert failures(name, Other(true))


def test_a_rule_with_wrong_weights_is_seen(monkeypatch):
    own = svi_bound.gauss_hermite_expectation
    for name in ("print/svi/says_quadrature_effective", "print/bb-alpha/says_mc_less_efficient"):
        assert failures(name, Other(true)) == []
        with monkeypatch.context() as patch:
            patch.setattr(svi_bound, "gauss_hermite_expectation", lambda m, v, y, n: own(m, np.sqrt(2.0) * v, y, n))
            assert failures(name, Other(true))
