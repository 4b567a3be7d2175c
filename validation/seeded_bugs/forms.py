"""Bugs of one form of `reference` alone: the other form must show them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds(
    checks="identity/{}/forms",
    problems="two-points-3-sparse-threshold",
    package="reference.villacampa2017.",
    label="forms-",
)
_robust = replace(_bug, problems="two-points-3-sparse-errors")


def _sign_of_print(original: Any) -> Any:
    return lambda beta, *rest: original(-beta, *rest)


def _without_shift(original: Any) -> Any:
    return lambda projected, c1, c2: original(projected, c1, 0.0 * c2)


def _other_class_dropped(original: Any) -> Any:
    def matched(*args: Any) -> Any:
        correct = original(*args)
        return correct._replace(coefficients=(*correct.coefficients[:3], 0.0))

    return matched


def _halved_curvature(original: Any) -> Any:
    def refined(cavities: Any, *rest: Any) -> Any:
        coefficients, tilted = original(cavities, *rest)
        return coefficients._replace(c1_other=0.5 * coefficients.c1_other), tilted

    return refined


def _halved_variance(original: Any) -> Any:
    def marginal(*args: Any) -> Any:
        correct = original(*args)
        return correct._replace(var=0.5 * correct.var)

    return marginal


def _nothing_open(original: Any) -> Any:
    return lambda posterior, upsilon, cond_var: original(posterior, upsilon, 0.0 * cond_var)


def _noise_forgotten(original: Any) -> Any:
    def directions(X: Any, prior: Any, K: Any, *rest: Any) -> Any:
        correct = original(X, prior, K, *rest)
        return {
            name: along if name != "noise" else along._replace(k_xx=0.0 * along.k_xx) for name, along in correct.items()
        }

    return directions


def _louder(original: Any) -> Any:
    return lambda *args: tuple(part if k else (1.0 + 1e-6) * part for k, part in enumerate(original(*args)))


FAULTS: tuple[SeededBug, ...] = (
    _bug(
        "gfitc",
        "printed-noise",
        "(10) for GFITC forgets that the noise moves the prior variances",
        "gfitc_printed:fitc_directions",
        _noise_forgotten,
    ),
    _bug(
        "gfitc",
        "projected-precisions",
        "sums of GFITC's site precisions a millionth too large",
        "gfitc:site_sums",
        _louder,
    ),
    _bug(
        "ep",
        "printed-sign",
        "the loop as printed runs (53) with the printed sign of beta",
        "factors:update_c2_other",
        _sign_of_print,
    ),
    _bug(
        "ep",
        "projected-cavity",
        "the contracted cavity keeps the factor's linear part",
        "scalar:scalar_cavities",
        _without_shift,
    ),
    _robust(
        "vi-robust",
        "printed-marginals",
        "(17) as printed has half of its size in the answer",
        "vi_fit:vi_latent_marginal",
        _halved_variance,
    ),
    _robust(
        "vi-robust",
        "projected-marginals",
        "the contracted marginals forget what the inducing values leave open",
        "vi_fit:latent_moments",
        _nothing_open,
    ),
    _bug(
        "sep",
        "printed-class-k",
        "SEP as printed forgets the linear part of class k",
        "printed:matched_factor",
        _other_class_dropped,
    ),
    _bug(
        "sep",
        "projected-curvature",
        "contracted SEP halves the precision of class k",
        "tied:sep_refine_factors",
        _halved_curvature,
    ),
)
