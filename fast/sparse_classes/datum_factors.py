"""EP on one factor a datum: the probability that the label's latent value is the largest, by `fast.likelihood.largest`.

villacampa2017 (3), whose integral the paper avoids and Hernandez-Lobato et al. (2011) take. This is power EP with whole
factors and labels without errors (`fast.sparse_classes.power_factors`); what EP adds is what it says of a datum.
"""

from __future__ import annotations

import numpy as np

from fast.core.results import ScalarMoments
from fast.core.types import FloatArray, IntArray
from fast.sparse_classes.power_factors import PowerDatum, Sites


class Datum(PowerDatum):
    """One whole factor a datum, behind the interface that `fast.sparse_classes.ep` works with."""

    without_cavity = np.nan  # there is no gradient then

    def __init__(self) -> None:
        super().__init__(1.0, 0.0)

    def latents(self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: Sites) -> ScalarMoments:
        """Tilted mean and variance of the latent values at the data: e + (s + v) g, (s + v) - (s + v)^2 h."""
        side, _, tilted = self.tilted(y, moments, cond_var, sites)
        total = cond_var + side.var
        return ScalarMoments(side.mean + total * tilted.derivative, total + total * total * tilted.curvature)
