"""Bugs of the chains for the threshold rule with labelling errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds

_METHOD = "gibbs-threshold"
# what one run of the default chains answers; the plain sampler and the routes to log Z are runs of their own
_MOMENTS = tuple(f"exactness/{_METHOD}/{name}" for name in ("*latent_*", "probabilities"))
_PLAIN = (f"exactness/{_METHOD}/plain_sweeps",)


_bug = partial(Seeds(checks=_MOMENTS, problems="two-points-3-errors"), _METHOD)


def _other_label(original: Any) -> Any:
    def bounce(rng: Any, latent: Any, cov: Any, chol_cov: Any, y: Any, **options: Any) -> Any:
        return original(rng, latent, cov, chol_cov, (y + 1) % latent.shape[1], **options)

    return bounce


def _height(wrong: Callable[[float, int], float]) -> Callable[[Any], Any]:
    """Another ratio between the likelihood of a label that is the largest and of one that is not."""
    return lambda original: lambda epsilon, n_classes: np.log(wrong(epsilon, n_classes))


FAULTS = (
    _bug(
        "epsilon-ignored",
        "labelling errors are forgotten: every label binds",
        "gibbs.models.threshold:log_step",
        lambda original: lambda epsilon, n_classes: original(0.0, n_classes),
    ),
    _bug(
        "epsilon-of-other-classes-only",
        "(1 - ε) against ε/(C - 1), as if an error never gave the right label: 18 for 28 at ε = 0.1, C = 3",
        "gibbs.models.threshold:log_step",
        _height(lambda epsilon, n_classes: (1.0 - epsilon) * (n_classes - 1) / epsilon),
    ),
    _bug(
        "epsilon-for-each-class",
        "the floor is ε in place of ε/C",
        "gibbs.models.threshold:log_step",
        _height(lambda epsilon, n_classes: (1.0 - epsilon) / epsilon + 1.0),
    ),
    _bug(
        "prior-in-place-of-joint",
        "the constraints have no height: the latent values are those of the prior",
        "gibbs.models.threshold:log_step",
        _height(lambda epsilon, n_classes: 1.0 + 1e-9),
    ),
    _bug(
        "wrong-truncation-side",
        "the constraints keep the next class up in place of the label's",
        "gibbs.models.threshold:bounce_move",
        _other_label,
    ),
    _bug(
        "residual-variance-dropped",
        "test latents are taken for determined by those at the data",
        "gibbs.models.threshold:conditionals",
        lambda original: lambda *arguments: _without_residual(original(*arguments)),
    ),
    _bug(
        "indicator-ignored",
        "the univariate draws hold every label, whatever its indicator says",
        "gibbs.models.threshold:draw_components",
        lambda original: (
            lambda rng, latent, precision, y, indicator: original(rng, latent, precision, y, np.zeros_like(indicator))
        ),
        checks=_PLAIN,
    ),
    _bug(
        "stale-class",
        "the first class keeps the values that it had before the move",
        "gibbs.models.threshold:bounce_move",
        lambda original: lambda rng, latent, *rest, **options: _stale(original(rng, latent, *rest, **options), latent),
    ),
)


def _without_residual(value: Any) -> Any:
    return value._replace(test_var=1e-12 * value.test_var)


def _stale(value: Any, before: Any) -> Any:
    after = value.auxiliary.copy()
    after[:, 0] = before[:, 0]
    return value._replace(auxiliary=after)
