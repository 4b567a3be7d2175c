"""The formula of an entry, out of a docstring."""

import pytest

from validation.ledger.formula import display, formula
from validation.ledger.registry import Function

TWO = """Two displays.

    a = b                      (1)
    c = d +
        e                      (2), first form

In words.

Parameters
----------
x : (n,)
    indented, and no formula
"""


@pytest.mark.parametrize(
    ("id", "shown"),
    [
        ("1", "a = b                      (1)"),
        ("2", "c = d +\n    e                      (2), first form"),
        ("3", "a = b                      (1)\nc = d +\n    e                      (2), first form"),
    ],
)
def test_a_numbered_display_is_told_from_its_neighbours(id, shown):
    assert display(TWO, id) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("φ = Φ(α) = p(f_y > f_k | f̄): (33) of villacampa2017.", "φ = Φ(α) = p(f_y > f_k | f̄)"),
        ("a_i = υᵀm: (35) of villacampa2017, and (36) for class k.", "a_i = υᵀm"),
        ("What precedes each step: section 2.3 and Figure 1 of villacampa2017.", "What precedes each step"),
        ("E_{p: q}[x].", "E_{p: q}[x]."),
    ],
)
def test_the_first_line_serves_without_its_address(line, shown):
    there = Function("reference", "r.f", (("toy", "9"),), False, "", 0, docstring=line)
    assert formula([there], "9") == shown
    assert formula([], "9") == ""
