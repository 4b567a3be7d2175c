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


def _unit_floor(_original: Any) -> Any:
    def positive(var: Any, y: Any) -> Any:
        return np.where(var > 0.0, var, 1.0)

    return positive


def _left_as_it_is(_original: Any) -> Any:
    def factors(matrices: Any) -> Any:
        from fast.core.linalg import stacked_cholesky

        return stacked_cholesky(matrices)

    return factors


def _nothing_near_zero(_original: Any) -> Any:
    def series(x: Any, order: float) -> Any:
        return np.zeros_like(x)

    return series


def _largest_only(_original: Any) -> Any:
    def logistic(d: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-d).max(axis=2))

    return logistic


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
    _bug("ep", "known-values-widened", "a latent value that is known is given the variance one",
           "fast.likelihood.largest:_positive", _unit_floor, "identity/ep/winners"),
    _bug("gfitc", "bad-factors-kept", "a matrix without a factor leaves NaN where an identity is promised",
           "fast.core.linalg:positive_factors", _left_as_it_is, "identity/gfitc/stacked_factors"),
    _bug("x-gpc", "kernel-zero-near-zero", "a Matérn kernel vanishes where its Bessel function overflows",
           "fast.kernel.matern:_near_zero", _nothing_near_zero, "identity/x-gpc/special_functions"),
    _bug("laplace", "largest-rival-only", "the softmax sees the largest rival only",
           "fast.full_classes.predict:_logistic_of_differences", _largest_only, "identity/laplace/product_rules"),
)  # fmt: skip
