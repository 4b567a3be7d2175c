"""Bugs of single kernels of chains and exact draws, seen through whole answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import seeded
from validation.selftest import SeededBug


def _centred(original: Any) -> Any:
    def energy(white_ref: Any, target: Any, reference: Any) -> Any:
        potential, derivative = original(white_ref, target, reference)
        return potential - white_ref @ reference.shift, derivative

    return energy


def _flatter(original: Any) -> Any:
    def log_density(self: Any, zeta: Any) -> Any:
        return original(self, zeta) + 0.25 * np.square(self.xi(zeta)).sum(axis=1)

    return log_density


def _of_the_target(original: Any) -> Any:
    def propose(rng: Any, tilting: Any, n_draws: int) -> Any:
        white, log_weight = original(rng, tilting, n_draws)
        return white, log_weight - 0.5 * tilting.mean @ tilting.mean

    return propose


FAULTS: tuple[SeededBug, ...] = (
    seeded("mh-softmax", "energy-of-a-centred-reference", "the energy forgets where the reference stands",
           "gibbs.moves.softmax:energy", _centred, "exactness/mh-softmax/latent_mean", "two-points-3-softmax"),
    seeded("gibbs-pairwise", "flatter-prior-in-paths", "paths and slices see half the curvature of the prior",
           "gibbs.models.pairwise:_Sampler.log_density", _flatter, "exactness/gibbs-pairwise/draws"),
    seeded("exact-probit", "squares-of-the-tilt-lost", "weights of proposals lack half the square of the tilt",
           "gibbs.draws.truncated_normal:propose", _of_the_target, "exactness/exact-probit/log_evidence", "two-points"),
)  # fmt: skip
