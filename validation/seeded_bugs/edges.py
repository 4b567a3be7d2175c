"""Bugs at edges that ordinary problems do not reach: ties, full tables, failed factorisations, rare decisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import seeded


def _ties_win(original: Any) -> Any:
    def argmax_moments(mean: Any, var: Any, y: Any, *, moments: bool = True) -> Any:
        moved = np.array(mean, dtype=float)
        index = np.arange(len(moved))
        exact = var[index, y] == 0.0
        moved[index[exact], y[exact]] += 1e-12
        return original(moved, var, y, moments=moments)

    return argmax_moments


def _neighbours_fail(original: Any) -> Any:
    def factors(matrices: Any) -> Any:
        lower, good = original(matrices)
        if not good.all():
            lower, good = np.broadcast_to(np.eye(lower.shape[-1]), lower.shape).copy(), np.zeros_like(good)
        return lower, good

    return factors


def _takes_all(original: Any) -> Any:
    def accepts(x: Any, uniform: Any) -> Any:
        return np.ones(x.size, dtype=bool)

    return accepts


def _best_is_unbounded(original: Any) -> Any:
    def start(self: Any, n: int) -> None:
        original(self, n)
        self._best = float("inf")

    return start


def _of_one(original: Any) -> Any:
    def energy(posterior: Any, *, n_draws: int = 1000, seed: int = 0) -> Any:
        correct = original(posterior, n_draws=n_draws, seed=seed)
        return correct._replace(standard_error=correct.standard_error * (posterior.run.energy.alpha or 1.0))

    return energy


def _fastest(original: Any) -> Any:
    def slowest(moves: Any) -> float:
        left, sizes, right = np.linalg.svd(moves[:-1].T, full_matrices=False)
        kept = sizes > max(1e-8 * sizes[0], 1e-14)
        factors = np.abs(np.linalg.eigvals(left[:, kept].T @ moves[1:].T @ right[kept].T / sizes[kept]))
        return float(factors[factors < 1.0].min(initial=1.0))

    return slowest


def _alternating(original: Any) -> Any:
    def distance(self: Any) -> float:
        correct, residual = original(self), self.here.change.residual
        rate = 1.0 - residual / correct if correct > 0.0 else 0.0
        return float(residual / (1.0 + rate))

    return distance


FAULTS = (
    seeded(
        "bb-alpha",
        "error-of-the-power",
        "the stated error of an energy from draws is that of the powers, not of their logarithms over alpha",
        "fast.methods.bb_alpha:monte_carlo_energy",
        _of_one,
        "exactness/bb-alpha/drawn_energies",
    ),
    seeded(
        "gfitc",
        "restored-with-past-steps",
        "a run that is set back mixes in steps that it made elsewhere",
        "fast.sparse_classes.fitc_latents:LatentRun._forget",
        lambda original: lambda self: None if hasattr(self, "_past") else original(self),
        "invariance/gfitc/restored",
    ),
    seeded(
        "ep",
        "ties-win",
        "a value that is known exactly beats its equals",
        "fast.likelihood.largest:argmax_moments",
        _ties_win,
        "identity/ep/known_exactly",
    ),
    seeded(
        "nested-ep",
        "one-failure-fails-all",
        "a matrix without a factor takes the factors of its neighbours away",
        "fast.core.linalg:stacked_cholesky",
        _neighbours_fail,
        "identity/nested-ep/no_factor",
    ),
    seeded(
        "gibbs-logit",
        "series-takes-all",
        "the alternating series of a Pólya-Gamma draw never rejects",
        "gibbs.draws.polya_gamma:_series_accepts",
        _takes_all,
        "identity/gibbs-logit/series",
    ),
    seeded(
        "x-gpc-svi",
        "falls-however-little",
        "six falling means end a run, however little they have fallen",
        "fast.solve.stopping:Falling.__init__",
        _best_is_unbounded,
        "identity/x-gpc-svi/falling",
    ),
    seeded(
        "ep",
        "fastest-factor-for-slowest",
        "the smallest factor of the moves is taken for the slowest, so that runs end early",
        "reference.common._sweeps:_slowest",
        _fastest,
        "identity/ep/slowest_factor",
    ),
    seeded(
        "apep",
        "distance-of-alternating-steps",
        "the steps that are left are summed as if their signs alternated: 1 + the rate for 1 - the rate",
        "fast.sparse_classes.alpha_runs:EnergyRun.distance",
        _alternating,
        "identity/apep/distance",
    ),
    seeded(
        "gibbs-pairwise",
        "far-derivative-of-the-other-tail",
        "far out the derivative of log Phi is taken from the other tail, where it is 0",
        "gibbs.models.pairwise:_hazard",
        lambda original: lambda alpha: np.where(alpha < -1e3, 0.0, original(alpha)),
        "identity/gibbs-pairwise/far_derivatives",
    ),
)
