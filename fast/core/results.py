"""What several families hand on: moments, gradients, predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fast.core.types import FloatArray


class ScalarMoments(NamedTuple):
    """Distribution of upsilon_i'u under q, for every datum and class."""

    mean: FloatArray  # (b, C): p
    var: FloatArray  # (b, C): q


class Differences(NamedTuple):
    """Distribution of h_i = B_i'f_i, or of g_i."""

    mean: FloatArray  # (n, D), D = C - 1
    cov: FloatArray  # (n, D, D)


class Gradients(NamedTuple):
    """Gradient of the bound."""

    variance: float
    lengthscales: FloatArray  # (d,)
    noise: float
    Z: FloatArray | None  # (m, d); None for a full GP


class ClassPrediction(NamedTuple):
    """Predictions at t points."""

    latent_mean: FloatArray  # (t, C)
    latent_cov: FloatArray  # (t, C, C), noise included
    probabilities: FloatArray  # (t, C), rows sum to one
    probability_mass: FloatArray  # (t,) their sum before normalising

    @property
    def latent_var(self) -> FloatArray:
        """(t, C)."""
        return np.einsum("tcc->tc", self.latent_cov)
