"""The printed equations of wenzel2019 hold on fast's fixed point, and an altered one turns its check red."""

from __future__ import annotations

import pytest

from reference.wenzel2019 import augmentation, bound, errata, experiments, quality, updates
from validation.checks import print_wenzel2019 as checks
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
        (augmentation, "pg_log_tilt", checks.printed_model),
        (bound, "evidence_bound_chain", checks.printed_bound),
        (quality, "augmentation_gap", checks.printed_bound),
        (errata, "xgpc_bound_as_printed", checks.misprints),
        (updates, "gradient_sigma", checks.printed_updates),
        (updates, "local_curvature", checks.printed_updates),
        (experiments, "kmeanspp_inducing_points", checks.measures),
    ],
)
def test_an_altered_equation_turns_red(context, monkeypatch, module, name, function):
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: right(*args) * (1.0 + 1e-6) + 1e-6)
    assert red(context, function)


def test_a_misprint_that_meets_the_right_value_is_red(context, monkeypatch):
    monkeypatch.setattr(errata, "xgpc_bound_as_printed", bound.xgpc_bound)
    assert any("must miss" in one.why for one in red(context, checks.misprints))
