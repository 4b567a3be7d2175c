"""Statements of cost: a program of which they are not true is seen."""

from __future__ import annotations

import pytest

from validation.checks import core
from validation.checks.core import Compared
from validation.checks.print import cost_statements
from validation.door.problem import Problem

STATEMENTS = {
    "print/laplace-binary/says_cost_full": lambda p: p.n**2,
    "print/x-gpc/says_cost_full": lambda p: p.n**4,
    "print/nested-iep/says_cost_full": lambda p: p.n**3 * p.n_classes**2,
    "print/laplace/says_cost_full": lambda p: p.n**3,
    "print/nested-ep/says_cost_lowrank_naive": lambda p: p.n**3 * p.n_classes**2,
    "print/vi-jj/says_cost_inducing": lambda p: p.n**2 * p.m**2,
    "print/gfitc/says_cost_fitc": lambda p: p.n * p.m,
    "print/pep/says_cost_fitc": lambda p: p.n * p.m**3,
    "print/ep/says_cost_ep_time": lambda p: p.n * p.m**3,
    "print/sep/says_cost_minibatch": lambda p: p.n + p.m**3,
    "print/apep/says_cost_minibatch": lambda p: p.n * p.m**3,
    "print/vi-robust/says_vi_same_cost": lambda p: p.m**2 * p.n_classes,
    "print/x-gpc-svi/says_cost_sparse": lambda p: p.m**2,
    "print/epgpc/says_epgpc_cost_like_svgpc": lambda p: p.m**2,
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_program_of_another_order_is_seen(name, monkeypatch):
    def other(implementation: str, method: str, problem: Problem, **options) -> float:
        return float(STATEMENTS[name](problem))

    monkeypatch.setattr(cost_statements, "_step", other)
    monkeypatch.setattr(cost_statements, "_collapsed", lambda n, m: float(n * m**2))
    monkeypatch.setattr(cost_statements, "operations", lambda run, **options: 0.0)
    outcomes = [one for one in core.registered()[name].function(None, None) if isinstance(one, Compared)]
    assert any(not one.observed <= one.limit for one in outcomes)


HELD = {
    "print/ep/says_cost_ep_memory": lambda n, m, C: n * m**2 * C,
    "print/sep/says_cost_sep_memory": lambda n, m, C: n + m**2 * C,
    "print/apep/says_cost_sep_memory": lambda n, m, C: m**2 * C**2,
    "print/apep/says_cost_memory_independent": lambda n, m, C: n * m * C,
    "print/pep/says_cost_pep_memory": lambda n, m, C: m**2 * C,
}


@pytest.mark.parametrize("name", HELD)
def test_an_answer_that_holds_more_or_less_is_seen(name, monkeypatch):
    monkeypatch.setattr(cost_statements, "_held", lambda method, n, m, C: float(HELD[name](n, m, C)))
    outcomes = [one for one in core.registered()[name].function(None, None) if isinstance(one, Compared)]
    assert any(not one.observed <= one.limit for one in outcomes)
