"""Bugs of the chains for the softmax: the shift of all classes, the moves, labels and predictions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds

_METHOD = "mh-softmax"
_MOMENTS = tuple(
    f"exactness/{_METHOD}/{name}"
    for name in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities")
)
_PLAIN = (f"exactness/{_METHOD}/plain_sweeps",)


_bug = partial(Seeds(checks=_MOMENTS, problems="two-points-3-softmax"), _METHOD)


def _prior_shift(original: Any) -> Any:
    def distribution(cov: Any) -> Any:
        correct = original(cov)
        return correct._replace(cov=cov[0], root=np.linalg.cholesky(cov[0]))

    return distribution


def _reference_energy(original: Any) -> Any:
    def energy(white_ref: Any, target: Any, reference: Any) -> Any:
        potential, gradient = original(white_ref, target, reference)
        # the acceptance forgets what the likelihood adds; the kicks keep it
        return 0.5 * np.square(white_ref).sum(axis=1) + 0.0 * potential, gradient

    return energy


def _walk(original: Any) -> Any:
    """ξ + ε η accepted by the likelihood alone: the prior is in neither."""

    def scaled(rng: Any, white: Any, target: Any, step_size: float, n_steps: int) -> Any:
        log_lik, accepted = target.log_likelihood(white), np.zeros(len(white))
        for _ in range(n_steps):
            proposal = white + step_size * rng.standard_normal(white.shape)
            new = target.log_likelihood(proposal)
            take = np.log(rng.random(len(white))) < new - log_lik
            white, log_lik = np.where(take[:, None], proposal, white), np.where(take, new, log_lik)
            accepted += take
        return white, accepted / n_steps

    return scaled


def _without_residual(original: Any) -> Any:
    def conditionals(*arguments: Any) -> Any:
        correct = original(*arguments)
        return correct._replace(test_var=0.8 * correct.test_var)

    return conditionals


FAULTS = (
    _bug(
        "shift-of-prior-covariance",
        "the common shift is drawn with the prior covariance of one class, as if the contrasts said nothing of it",
        "gibbs.models.softmax:shift_distribution",
        _prior_shift,
    ),
    _bug(
        "shift-of-equal-classes",
        "the common shift has mean zero whatever the kernels of the classes",
        ("gibbs.models.softmax:shift_mean", "gibbs.moves.softmax:shift_mean"),
        lambda original: lambda latent_values, distribution: -latent_values.mean(axis=-2),
    ),
    _bug(
        "energy-of-reference",
        "a path is accepted by the energy of the Gaussian that it turns around, without the likelihood",
        "gibbs.moves.softmax:energy",
        _reference_energy,
    ),
    _bug(
        "labels-exchanged",
        "every label is taken for the next class",
        "gibbs.models.softmax:make_target",
        lambda original: lambda cov, y: original(cov, (y + 1) % len(cov)),
    ),
    _bug(
        "residual-variance-shrunk",
        "test latents keep four fifths of their variance given those at the data",
        "gibbs.models.softmax:conditionals",
        _without_residual,
    ),
    _bug(
        "scaled-step-not-scaled",
        "Neal's proposal without its factor √(1 - ε²): the prior is forgotten",
        "gibbs.models.softmax:scaled_move",
        _walk,
        checks=_PLAIN,
    ),
)
