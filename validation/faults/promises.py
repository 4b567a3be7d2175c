"""Faults of single steps: which are kept, what is carried over, what is looked at in each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.faults._seeded import seeded
from validation.selftest import Fault


def _looks_at_condition(_original: Any) -> Any:
    def factorise(matrix: Any, name: str, remedy: str) -> Any:
        from fast.core.linalg import cholesky

        return cholesky(matrix, name, remedy)

    return factorise


def _rising(monotone: bool) -> Any:
    def make(original: Any) -> Any:
        def iterate(visit: Any, start: Any, steps: Any, callback: Any = None) -> Any:
            return original(visit, start, steps._replace(monotone=monotone), callback)

        return iterate

    return make


def _brought_to_optimum(original: Any) -> Any:
    def alternate(*arguments: Any, n_upd: int, joint: bool) -> Any:
        return original(*arguments, n_upd=n_upd, joint=not joint)

    return alternate


def _from_complement(_original: Any) -> Any:
    def losing_probability(mean: Any, var: Any, y: Any) -> Any:
        from fast.likelihood.largest import argmax_moments

        return 1.0 - np.exp(argmax_moments(mean, var, y, moments=False).log_mass)

    return losing_probability


FAULTS: tuple[Fault, ...] = (
    seeded(
        "ep",
        "condition-in-steps",
        "the condition of K_ZZ is estimated in each step, which is refused where it is large",
        "fast.sparse_classes.projections:factorise",
        _looks_at_condition,
        "identity/ep/priors_of_steps",
    ),
    seeded(
        "epgpc",
        "steps-that-lower-taken-back",
        "a step of EP is taken back where its log Z falls, as if that were a bound",
        "fast.methods.epgpc:iterate_sites",
        _rising(True),
        "identity/epgpc/steps_kept",
    ),
    seeded(
        "svgpc",
        "steps-that-lower-kept",
        "a step is kept although the bound falls",
        "fast.methods.svgpc:iterate_sites",
        _rising(False),
        "identity/epgpc/steps_kept",
    ),
    *(
        seeded(
            method,
            "optimum-for-carried",
            "mean and covariance are brought to their optimum where they are carried over, and the other way round",
            f"fast.methods.{method.replace('-', '_')}:alternate",
            _brought_to_optimum,
            "identity/vi-taylor/carried_over",
        )
        for method in ("vi-taylor", "vi-jj")
    ),
    seeded(
        "apep",
        "sure-labels-from-complement",
        "what a label that is nearly sure leaves open is 1 - P, of which rounding leaves nothing",
        "fast.likelihood.power:losing_probability",
        _from_complement,
        "identity/apep/nearly_sure",
    ),
)
