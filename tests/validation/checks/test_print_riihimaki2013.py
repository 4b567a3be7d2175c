"""The printed equations of riihimaki2013 hold on fast's fixed points, and an altered one turns its check red."""

from __future__ import annotations

import pytest

from reference.riihimaki2013 import complexity, errata, experiments, laplace, model, posterior, quadrature_ep, sites
from validation.checks import print_riihimaki2013 as checks
from validation.checks.core import Context


@pytest.fixture(autouse=True)
def problems():
    """The real ones, in place of those of this folder."""


@pytest.fixture(scope="module")
def context():
    return Context()


def red(context, function):
    return [one for one in checks.outcomes(context, (function,)) if not one.observed <= one.limit]


@pytest.mark.parametrize("function", checks.CHECKS, ids=lambda function: function.__name__)
def test_the_printed_equations_hold(context, function):
    assert not red(context, function)


@pytest.mark.parametrize(
    ("module", "name", "function"),
    [
        (model, "log_posterior", checks.printed_model),
        (model, "log_marginal_likelihood", checks.printed_model),
        (laplace, "tierney_kadane_ratio", checks.printed_model),
        (sites, "tilted_mean", checks.printed_sites),
        (posterior, "ep_log_determinant", checks.printed_sites),
        (quadrature_ep, "tilted_mean_g", checks.printed_quadrature),
        (errata, "lambda_from_moments_as_printed", checks.printed_quadrature),
    ],
)
def test_an_altered_equation_turns_red(context, monkeypatch, module, name, function):
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: right(*args) * (1.0 + 1e-6) + 1e-6)
    assert red(context, function)


@pytest.mark.parametrize(
    ("module", "name", "function"),
    [
        (experiments, "compare_tilted_moments", checks.study),
        (complexity, "complexity_table", checks.counts),
        (sites, "match_moments", checks.printed_sites),
    ],
)
def test_one_answer_for_every_datum_or_method_turns_red(context, monkeypatch, module, name, function):
    right, kept = getattr(module, name), []

    def first(*args):
        kept.append(right(*args))
        return kept[0]

    monkeypatch.setattr(module, name, first)
    assert red(context, function)
