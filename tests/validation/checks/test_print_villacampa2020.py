"""The printed equations of villacampa2020 on what fast found: green as they are, red when one is altered."""

import importlib

import numpy as np
import pytest

from validation.checks import core
from validation.checks.core import Context

MODULE = "validation.checks.print_villacampa2020"
CHECKS = {name: check for name, check in core.imported([MODULE]).items() if check.module == MODULE}
CONTEXT = Context()
for _check in CHECKS.values():
    for _name in _check.problems:
        CONTEXT.problem(_name)  # remembered before the tests of this folder have problems of their own


def asked(name):
    """Outcomes on all problems of the quick run."""
    check = CHECKS[name]
    return [
        outcome
        for problem in check.problems
        for outcome in check.function(CONTEXT, None if problem == "-" else CONTEXT.problem(problem))
    ]


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_printed_holds(name):
    outcomes = asked(name)
    assert outcomes
    assert [o for o in outcomes if not o.observed <= o.limit] == []


ALTERED = [
    ("print/pep/steps", "cavity", "power_cavity_mean"),
    ("print/pep/factors", "refinement", "cavity_latent_variance"),
    ("print/pep/sweeps", "refinement", "update_c1"),
    ("print/pep/evidence", "evidence", "pep_log_evidence"),
    ("print/pep/gradient", "gradients", "prior_term_gradient"),
    ("print/apep/energy", "energies", "apep_objective"),
    ("print/arpep/energy", "energies", "arpep_objective"),
    ("print/rpapep/energy", "energies", "rpapep_objective"),
    ("print/vi-robust/bounds", "variational", "vb_inner_bound"),
    ("print/pep/divergence", "divergence", "alpha_divergence_gradient"),
    ("print/pep/model", "model", "robust_likelihood"),
    ("print/pep/misprints", "errata_appendix", "update_c2_as_printed"),
]


@pytest.mark.parametrize(("name", "module", "function"), ALTERED)
def test_an_altered_equation_is_seen(name, module, function, monkeypatch):
    module = importlib.import_module(f"reference.villacampa2020.{module}")
    original = getattr(module, function)
    monkeypatch.setattr(module, function, lambda *arguments: original(*arguments) * (1.0 + 1e-6))
    assert any(not o.observed <= o.limit for o in asked(name))


def test_a_printed_form_that_hits_is_refused():
    from validation.checks.print_villacampa2020 import missed

    right = np.array([1.0, 2.0])
    exact, margin = missed("(0)", right, right, np.zeros(2))
    assert exact.observed <= exact.limit
    assert not margin.observed <= margin.limit
