"""Bugs of single kernels and of pieces of routes to log Z."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds()


def _centred(original: Any) -> Any:
    def energy(white_ref: Any, target: Any, reference: Any) -> Any:
        potential, derivative = original(white_ref, target, reference)
        return potential - white_ref @ reference.shift, derivative

    return energy


def _flatter(original: Any) -> Any:
    def log_density(self: Any, zeta: Any) -> Any:
        return original(self, zeta) + 0.25 * np.square(self.xi(zeta)).sum(axis=1)

    return log_density


def _without_jacobian(original: Any) -> Any:
    def move(rng: Any, white: Any, *rest: Any, **options: Any) -> Any:
        return original(rng, white[:, :1], *rest, **options)

    return move


def _half_logs(original: Any) -> Any:
    def index(log_weights: Any) -> float:
        return float(original(0.5 * log_weights))

    return index


def _of_the_target(original: Any) -> Any:
    def propose(rng: Any, tilting: Any, n_draws: int) -> Any:
        white, log_weight = original(rng, tilting, n_draws)
        return white, log_weight - 0.5 * tilting.mean @ tilting.mean

    return propose


def _about_the_mean(original: Any) -> Any:
    def tilted(y_sign: Any, beta: float, mean: Any, var: Any) -> Any:
        centre, spread = original(y_sign, beta, mean, var)
        return centre, spread + np.square(centre - mean)

    return tilted


def _rounded(_original: Any) -> Any:
    def systematic(rng: Any, weights: Any) -> Any:
        counts = np.round(weights * weights.size).astype(int)
        return np.resize(np.repeat(np.arange(weights.size), counts), weights.size)

    return systematic


FAULTS: tuple[SeededBug, ...] = (
    _bug("mh-softmax", "energy-of-a-centred-reference", "the energy forgets where the reference stands",
           "gibbs.moves.softmax:energy", _centred, "exactness/mh-softmax/one_step"),
    _bug("gibbs-pairwise", "flatter-prior-in-paths", "paths and slices see half the curvature of the prior",
           "gibbs.models.pairwise:_Sampler.log_density", _flatter, "exactness/gibbs-pairwise/one_step"),
    _bug("gibbs-logit", "scale-of-one-coordinate", "the change of scale counts one white coordinate",
           "gibbs.models.logit:scale_move", _without_jacobian, "exactness/gibbs-logit/one_step"),
    _bug("gibbs-logit", "tail-of-the-roots", "the tail index is that of the square roots of the weights",
           "gibbs.evidence.chib:_pareto_k", _half_logs, "identity/gibbs-logit/tail_index"),
    _bug("gibbs-logit", "tilted-about-the-cavity", "the tilted variance is taken about the cavity's mean",
           "gibbs.evidence.annealed:_tilted", _about_the_mean, "identity/gibbs-logit/evidence_parts"),
    _bug("gibbs-logit", "particles-by-rounding", "particles are copied by rounded weights, the first ones first",
           "gibbs.evidence.sequential:_systematic", _rounded, "identity/gibbs-logit/evidence_parts"),
    _bug("exact-probit", "squares-of-the-tilt-lost", "weights of proposals lack half the square of the tilt",
           "gibbs.draws.truncated_normal:propose", _of_the_target, "identity/exact-probit/boxes"),
)  # fmt: skip
