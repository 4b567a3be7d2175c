"""Faults of one form of `reference` alone: the other form must show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validation.selftest import Fault


def _fault(method: str, name: str, description: str, target: str, make: Callable[[Any], Any], *checks: str) -> Fault:
    return Fault(
        f"{method}/forms-{name}",
        "reference",
        method,
        description,
        (f"reference.villacampa2017.{target}",),
        make,
        ("two-points-3-sparse-threshold",),
        checks or (f"identity/{method}/forms",),
    )


def _sign_of_print(original: Any) -> Any:
    return lambda beta, *rest: original(-beta, *rest)


def _without_shift(original: Any) -> Any:
    return lambda projected, c1, c2: original(projected, c1, 0.0 * c2)


def _other_class_dropped(original: Any) -> Any:
    def matched(*args: Any) -> Any:
        found = original(*args)
        return found._replace(coefficients=(*found.coefficients[:3], 0.0))

    return matched


def _halved_curvature(original: Any) -> Any:
    def refined(cavities: Any, *rest: Any) -> Any:
        coefficients, tilted = original(cavities, *rest)
        return coefficients._replace(c1_other=0.5 * coefficients.c1_other), tilted

    return refined


FAULTS: tuple[Fault, ...] = (
    _fault(
        "ep",
        "printed-sign",
        "the loop as printed runs (53) with the printed sign of beta",
        "factors:update_c2_other",
        _sign_of_print,
    ),
    _fault(
        "ep",
        "projected-cavity",
        "the contracted cavity keeps the factor's linear part",
        "scalar:scalar_cavities",
        _without_shift,
    ),
    _fault(
        "sep",
        "printed-class-k",
        "SEP as printed forgets the linear part of class k",
        "printed:matched_factor",
        _other_class_dropped,
    ),
    _fault(
        "sep",
        "projected-curvature",
        "contracted SEP halves the precision of class k",
        "tied:sep_refine_factors",
        _halved_curvature,
    ),
)
