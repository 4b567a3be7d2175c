"""The printed equations of izmailov2016 hold on what fast found, and an altered one turns its check red."""

from __future__ import annotations

import pytest

from reference.izmailov2016 import bound, errata, experiments, kernels, model, sparse, taylor
from validation.checks import core
from validation.checks import print_izmailov2016 as checks
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
        (model, "log_evidence", checks.printed_model),
        (kernels, "kernel_matern", checks.printed_kernels),
        (sparse, "elbo_generic", checks.printed_inducing),
        (bound, "kl_joint", checks.printed_inducing),
        (errata, "lambda_matrix_as_printed", checks.printed_bound),
        (taylor, "taylor_bound", checks.printed_taylor),
        (experiments, "kmeans_inducing_points", checks.printed_settings),
    ],
)
def test_an_altered_equation_turns_red(context, monkeypatch, module, name, function):
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: right(*given) * (1.0 + 1e-6) + 1e-6)
    assert red(context, function)


def test_a_misprint_that_meets_the_right_value_is_red(context, monkeypatch):
    monkeypatch.setattr(errata, "taylor_xi_slope_as_printed", taylor.taylor_xi_slope)
    assert red(context, checks.printed_taylor)
