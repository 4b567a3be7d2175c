"""EP on one factor a datum: the probability that the label's latent value is the largest, by `fast.winner`.

villacampa2017 (3), whose integral the paper avoids and Hernandez-Lobato et al. (2011) take. The factor of datum i sees
one projection of each class, all removed together; its site has two numbers a class, site_precision and site_shift.
"""

from __future__ import annotations

import numpy as np

from fast._types import BoolArray, FloatArray, IntArray
from fast.class_projections import ScalarMoments
from fast.inner_ep import standardised_change
from fast.pairwise_factors import Cotangents, Side, Totals, Visit, log_site_integral, scalar_cotangents
from fast.sites import match_moments
from fast.winner import WinnerMoments, winner


class Datum:
    """One factor a datum, behind the interface that `fast.class_ep` works with."""

    names = ("site_precision", "site_shift")
    signed = False  # precisions of sites are never negative

    def groups(self, y: int, n_classes: int) -> list[tuple[int, ...]]:
        """Classes that each factor of a datum sees, in the order of a sequential sweep."""
        return [tuple(range(n_classes))]

    def scales(self, y: IntArray, var: FloatArray) -> tuple[FloatArray, ...]:
        """Variances of the projections that the precisions of the sites belong to."""
        return (var,)

    def totals(self, y: IntArray, sites: tuple[FloatArray, ...]) -> Totals:
        """delta and mu_tilde of each datum and class: the site itself."""
        return Totals(sites[0], sites[1])

    def _tilted(
        self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: tuple[FloatArray, ...]
    ) -> tuple[Side, BoolArray, WinnerMoments]:
        left = 1.0 - sites[0] * moments.var
        proper: BoolArray = np.asarray((left > 0.0).all(axis=1, keepdims=True))
        safe = np.where(proper, left, 1.0)
        mean = np.where(proper, (moments.mean - sites[1] * moments.var) / safe, 0.0)
        var = moments.var / safe
        side = Side(mean, var, safe, sites[1] - sites[0] * moments.mean)
        return side, proper, winner(mean, cond_var + var, y)

    def visit(self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: tuple[FloatArray, ...]) -> Visit:
        """Proposals of all factors of some data from one q, and what they add to log Z_q."""
        side, proper, tilted = self._tilted(y, moments, cond_var, sites)
        new = match_moments(side.mean, side.var, tilted.slope, tilted.curvature)
        for part in new:
            proper = proper & np.isfinite(part).all(axis=1, keepdims=True)
        target = tuple(np.where(proper, after, before) for after, before in zip(new, sites, strict=True))
        change = standardised_change(*moments, target[0] - sites[0], target[1] - sites[1])
        improper = int(proper.size - np.count_nonzero(proper))
        value = np.nan
        if not improper:
            value = float(tilted.log_mass.sum() - log_site_integral(side, sites[0], sites[1]).sum())
        return Visit(target, float(change.max()), improper, tilted.log_mass, value)

    def cotangents(
        self,
        y: IntArray,
        moments: ScalarMoments,
        cond_var: FloatArray,
        sites: tuple[FloatArray, ...],
        gradient_rule: str,
    ) -> Cotangents:
        """What a gradient needs of the factors, see `fast.pairwise_factors`; NaN where a cavity is improper."""
        side, proper, tilted = self._tilted(y, moments, cond_var, sites)
        by_var = tilted.by_variance
        by_mean, by_spread = scalar_cotangents(side, sites[0], tilted.slope, by_var, gradient_rule)
        return Cotangents(*(np.where(proper, part, np.nan) for part in (by_mean, by_spread, by_var)))

    def latents(
        self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: tuple[FloatArray, ...]
    ) -> ScalarMoments:
        """Tilted mean and variance of the latent values at the data: e + (s + v) g, (s + v) - (s + v)^2 h."""
        side, _, tilted = self._tilted(y, moments, cond_var, sites)
        total = cond_var + side.var
        return ScalarMoments(side.mean + total * tilted.slope, total + total * total * tilted.curvature)
