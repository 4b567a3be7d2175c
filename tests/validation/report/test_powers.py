"""Curves over the power alpha in the report."""

from __future__ import annotations

import numpy as np

from validation import Solution, problems
from validation.report import sections
from validation.screen import figures


def answer(alpha: float, method: str = "pep") -> Solution:
    p = problems.get("two-points-3-sparse-errors")
    assert p.X_test is not None
    shape = (len(p.X_test), p.n_classes)
    return Solution(
        problem=p,
        implementation="fast",
        method=method,
        log_evidence=-3.0 + alpha,
        probabilities=np.full(shape, 1.0 / 3.0),
        settings={"alpha": alpha},
    )


def drawn(solutions: list[Solution]) -> list[str]:
    with figures.style():
        return [
            str(facet.picture)
            for value in sections._powers(solutions, "x")
            for group in value.groups
            for facet in group.facets
        ]


def test_three_powers_make_a_curve_and_two_do_not() -> None:
    assert not drawn([answer(0.25), answer(0.5)])
    panels = drawn([answer(0.5), answer(1.0), answer(0.25)])
    assert len(panels) == 1
    assert "log Z: pep, fast" in panels[0]


def test_distances_are_drawn_beside_a_truth_that_has_what_is_compared() -> None:
    base = answer(0.5)
    truth = Solution(
        problem=base.problem,
        implementation="quadrature",
        method="exact",
        log_evidence=-2.5,
        log_evidence_kind="exact",
        probabilities=base.probabilities,
    )
    panels = drawn([answer(alpha, method) for method in ("pep", "apep") for alpha in (0.0, 0.5, 1.0)] + [truth])
    titles = [panel.split("<title>")[1].split(":")[0] for panel in panels]
    # each for both methods
    assert titles == [*["log Z"] * 2, *["largest difference in probability"] * 2]
    # the level of the truth lies in the picture, in its own colour
    assert "var(--truth)" in panels[0]
