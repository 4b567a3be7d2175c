"""The printed equations of villacampa2017 hold on what fast found, and an altered one turns its check red."""

from __future__ import annotations

import pytest

from reference.villacampa2017 import cavity, errata, evidence, factors, gradients, model, posterior, vi
from validation.checks import core
from validation.checks import print_villacampa2017 as checks
from validation.checks.core import NO_PROBLEM, Context

OURS = [one for one in core.imported([checks.__name__]).values() if one.module == checks.__name__]


@pytest.fixture(autouse=True)
def problems():
    """The real ones, in place of those of this folder."""


@pytest.fixture(scope="module")
def context():
    return Context()


def red(context, function):
    (asked,) = [one for one in OURS if one.function is function]
    found = []
    for name in asked.problems:
        problem = None if name == NO_PROBLEM else context.problem(name)
        found += [one for one in function(context, problem) if not one.observed <= one.limit]
    return found


@pytest.mark.parametrize("function", [one.function for one in OURS], ids=[one.id for one in OURS])
def test_the_printed_equations_hold(context, function):
    assert not red(context, function)


@pytest.mark.parametrize(
    ("module", "name", "function"),
    [
        (model, "approximate_inducing_posterior", checks.printed_model),
        (factors, "update_c2_label", checks.printed_factors),
        (factors, "factor_linear_from_moments", checks.printed_factors),
        (cavity, "cavity_latent_variance", checks.printed_factors),
        (errata, "update_c2_other_as_printed", checks.printed_factors),
        (evidence, "ep_log_evidence", checks.printed_evidence),
        (posterior, "posterior_approximation", checks.printed_evidence),
        (gradients, "minibatch_log_evidence_gradient", checks.printed_gradient),
        (vi, "vi_outer_bound", checks.printed_bound),
    ],
)
def test_an_altered_equation_turns_red(context, monkeypatch, module, name, function):
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: right(*given) * (1.0 + 1e-6) + 1e-6)
    assert red(context, function)


def test_a_misprint_that_meets_the_right_value_is_red(context, monkeypatch):
    monkeypatch.setattr(errata, "ep_log_evidence_from_moments_as_printed", evidence.ep_log_evidence_from_moments)
    assert red(context, checks.printed_evidence)
