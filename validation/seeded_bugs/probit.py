"""Bugs of the truths of the probit family: exact draws by minimax tilting, and Gibbs chains with conic truncation."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds

_bug = Seeds(checks="exactness/{}/*", problems="two-points")


def _negated(original: Any) -> Any:
    def constraints(*arguments: Any) -> Any:
        correct = original(*arguments)
        return correct._replace(signs=-correct.signs)

    return constraints


FAULTS = (
    _bug(
        "exact-probit",
        "wrong-truncation-side",
        "every label pulls its latent value to the other side",
        "gibbs.models.exact_probit:_constraints",
        _negated,
    ),
    _bug(
        "exact-probit",
        "unit-noise-forgotten",
        "the orthant of N(0, K) in place of N(0, K + I): a step for a link",
        "gibbs.models.exact_probit:_constraints_covariance",
        lambda original: lambda constraints, prior, unit_noise: original(constraints, prior, 0.0),
    ),
    _bug(
        "exact-probit",
        "conditional-variance-dropped",
        "the latent values are taken for determined by the truncated vector",
        "gibbs.models.exact_probit:_conditional",
        lambda original: lambda *arguments: 0.0 * original(*arguments),
    ),
    _bug(
        "gibbs-probit",
        "link-noise-twice",
        "K (K + 2I)⁻¹ in place of K (K + I)⁻¹",
        "gibbs.models.multinomial_probit:smoother",
        lambda original: lambda K_XX: original(0.5 * K_XX),
    ),
    _bug(
        "gibbs-probit",
        "auxiliary-of-wrong-covariance",
        "the auxiliary values are drawn from half of their prior covariance",
        "gibbs.models.multinomial_probit:bounce_move",
        lambda original: (
            lambda rng, auxiliary, cov, chol_cov, *more, **options: original(
                rng, auxiliary, 0.5 * cov, np.sqrt(0.5) * chol_cov, *more, **options
            )
        ),
    ),
    _bug(
        "gibbs-probit",
        "auxiliary-without-noise",
        "the auxiliary values are the latent ones: the unit noise of the link is forgotten",
        "gibbs.models.multinomial_probit:conditionals",
        lambda original: lambda prior, auxiliary_noise: original(prior, 0.0),
    ),
)
