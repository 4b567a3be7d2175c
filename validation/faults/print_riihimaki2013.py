"""Faults of riihimaki2013's printed equations that no loop runs, and of the sites that they are held against."""

from __future__ import annotations

from typing import Any

from validation.selftest import Fault

_PROBLEMS = ("two-points-3",)


def _softer(original: Any) -> Any:
    def covariance(cavity_cov: Any, B: Any, alpha: Any) -> Any:
        return original(cavity_cov, B, alpha / (1.0 + 1e-6 * alpha))

    return covariance


def _smaller(original: Any) -> Any:
    def moments(*arguments: Any) -> Any:
        found = original(*arguments)
        return found._replace(cov=(1.0 - 1e-6) * found.cov)

    return moments


FAULTS: tuple[Fault, ...] = (
    Fault(
        "print-riihimaki2013/inner-precision",
        "reference",
        "nested-ep",
        "(10) with a millionth added to each inner variance, which no loop of reference calls",
        ("reference.riihimaki2013.sites:tilted_covariance",),
        _softer,
        _PROBLEMS,
        ("print/nested-ep/sites",),
    ),
    Fault(
        "print-riihimaki2013/tilted-covariance",
        "fast",
        "qep",
        "tilted covariances of the differences a millionth too small: Lambda is not what (6) and (18) say",
        ("fast.methods.quadrature_ep:white_moments",),
        _smaller,
        _PROBLEMS,
        ("print/qep/tilted",),
    ),
)
