"""Bugs at edges that ordinary problems do not reach: ties, full tables, failed factorisations, rare decisions."""

from __future__ import annotations

from typing import Any

from validation.seeded_bugs._seeded import seeded


def _of_one(original: Any) -> Any:
    def energy(posterior: Any, *, n_draws: int = 1000, seed: int = 0) -> Any:
        correct = original(posterior, n_draws=n_draws, seed=seed)
        return correct._replace(standard_error=correct.standard_error * (posterior.run.energy.alpha or 1.0))

    return energy


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
)
