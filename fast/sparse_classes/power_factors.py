r"""Power EP on one factor a datum: powered cavities, projections in scalars, and sweeps that stay distributions.

villacampa2020, section 3.1 and appendix A. The factor of datum i is p(y_i | f_i)^alpha; its site, a number
site_precision and a number site_shift for each class, is taken from q alpha times. With p, q mean and variance of a
projection under q, F_i = log E[p(y_i | f_i)^alpha]/alpha under the cavity and g, h = dF/de, -d^2F/de^2,

    D = 1 - alpha c1 q,   v = q/D,   e = (p - alpha c2 q)/D,
    c1 <- h/(1 - alpha h v),   c2 <- (g + h e)/(1 - alpha h v),
    log Z_q = sum_k (w'P^-1 w - log|P|)/2 + sum_i [F_i - sum_k psi_ik],
    psi = -log1p(alpha c1 v)/(2 alpha) + (2 c2 e + alpha c2^2 v - c1 e^2)/(2 (1 + alpha c1 v)).

No quotient by alpha is left, so that alpha = 0 is an ordinary value: there log Z_q is the variational bound at any
sites, and the fixed point that of its natural gradients. Sites may be negative where epsilon > 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fast.core.errors import NotPositiveDefiniteError
from fast.core.results import ScalarMoments
from fast.core.types import BoolArray, FloatArray, IntArray
from fast.ledger import equation
from fast.likelihood.power import PowerMoments, powered_labels
from fast.solve.site_iteration import standardised_change
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.ep import SiteRun, Swept, damped, distribution_cotangent, prior_cotangent
from fast.sparse_classes.pairwise_factors import Cotangents, Side, Totals, Visit, scalar_cotangents, site_integral
from fast.sparse_classes.projections import (
    ClassDistribution,
    InducingClasses,
    PointGradients,
    VectorJacobianProduct,
    add_projected,
)

RULES = ("28", "exact")
_HALVINGS = 60
Sites = tuple[FloatArray, ...]


class PowerTilt(NamedTuple):
    """Cavities of some data, which of them are distributions, and F with its derivatives under them."""

    side: Side
    proper: BoolArray  # (b, 1)
    powers: PowerMoments


@equation("villacampa2020", "A.17", "A.20")
def power_sites(side: Side, powers: PowerMoments, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Sites that give every projection its powered tilted moments: villacampa2020 (A.17), (A.20). Time O(b C).

    1 - alpha h v is the tilted variance over v, which is positive; nothing is divided by v or alpha.

    Parameters
    ----------
    side             cavities
    powers           derivatives of F
    alpha : float    in [0, 1]

    Returns
    -------
    site_precision, site_shift (b, C)
    """
    shrink = 1.0 + alpha * powers.curvature * side.var
    return -powers.curvature / shrink, (powers.derivative - side.mean * powers.curvature) / shrink


class PowerDatum:
    """One powered factor a datum, behind the interface that `fast.sparse_classes.ep` works with."""

    names: tuple[str, ...] = ("site_precision", "site_shift")
    without_cavity = 0.0  # what a datum with an improper cavity adds to a gradient

    def __init__(self, alpha: float, epsilon: float) -> None:
        self.alpha, self.epsilon = alpha, epsilon
        self.signed = epsilon > 0.0

    def groups(self, y: int, n_classes: int) -> list[tuple[int, ...]]:
        """Classes that each factor of a datum sees."""
        return [tuple(range(n_classes))]

    def scales(self, y: IntArray, var: FloatArray) -> Sites:
        """Variances of the projections that the precisions of the sites belong to."""
        return (var,)

    def totals(self, y: IntArray, sites: Sites) -> Totals:
        """delta and mu_tilde of each datum and class: the site itself."""
        return Totals(sites[0], sites[1])

    def tilted(self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: Sites) -> PowerTilt:
        """Powered cavities and F under them; improper ones are replaced by harmless ones. Time O(b C nodes)."""
        cavity_ratio = 1.0 - self.alpha * sites[0] * moments.var
        proper: BoolArray = np.logical_and.reduce(cavity_ratio > 0.0, axis=1, keepdims=True)
        safe = np.where(proper, cavity_ratio, 1.0)
        mean = np.where(proper, (moments.mean - self.alpha * sites[1] * moments.var) / safe, 0.0)
        var = moments.var / safe
        side = Side(mean, var, safe, sites[1] - sites[0] * moments.mean)
        return PowerTilt(side, proper, powered_labels(y, ScalarMoments(mean, cond_var + var), self.alpha, self.epsilon))

    def visit(self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: Sites) -> Visit:
        """Proposals of all factors of some data from one q, and what they add to log Z_q."""
        side, proper, tilted = self.tilted(y, moments, cond_var, sites)
        new = power_sites(side, tilted, self.alpha)
        for part in new:
            proper = proper & np.isfinite(part).all(axis=1, keepdims=True)
        target = tuple(np.where(proper, after, before) for after, before in zip(new, sites, strict=True))
        change = standardised_change(*moments, target[0] - sites[0], target[1] - sites[1])
        improper = int(proper.size - np.count_nonzero(proper))
        value = np.nan
        if not improper:
            value = float(tilted.value.sum() - site_integral(side, sites[0], sites[1], self.alpha).sum())
        return Visit(target, float(change.max()), improper, tilted.value, value)

    def cotangents(
        self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: Sites, gradient_rule: str
    ) -> Cotangents:
        """Derivatives of F - psi in p, q and s ("exact"), or those of F alone with the cavity of u held."""
        side, proper, tilted = self.tilted(y, moments, cond_var, sites)
        parts = scalar_cotangents(side, sites[0], tilted.derivative, tilted.by_variance, gradient_rule, self.alpha)
        return Cotangents(*(np.where(proper, part, self.without_cavity) for part in (*parts, tilted.by_variance)))

    def moved_moments(
        self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: Sites
    ) -> tuple[FloatArray, FloatArray]:
        """(tilted moments - those of q)/alpha: t of S t a, the change of the mean, and x of S (x a a') S, that of the
        second moment about the mean of q. (b, C) each; zero at a fixed point.
        """
        side, proper, tilted = self.tilted(y, moments, cond_var, sites)
        t = (tilted.derivative - side.miss) / side.cavity_ratio
        x = (sites[0] + tilted.curvature / side.cavity_ratio) / side.cavity_ratio + self.alpha * t * t
        return np.where(proper, t, 0.0), np.where(proper, x, 0.0)


class PowerRun(SiteRun):
    """`SiteRun` whose sweeps are shortened until q is a distribution, and whose gradient may follow (A.28)."""

    def __init__(
        self,
        data: ClassData,
        points: InducingClasses,
        factors: PowerDatum,
        sites: FloatArray,
        *,
        damping: float = 0.5,
        gradient_rule: str = "28",
    ) -> None:
        self.power = factors
        super().__init__(data, points, factors, sites, fresh=True, damping=damping, gradient_rule=gradient_rule)

    def sweep(self, damping: float) -> Swept:
        """All sites from one q, then q; damping is halved until q has a covariance. Time 2 C n m^2 + C m^3 / 3.

        Parameters
        ----------
        damping : float    in (0, 1]
        """
        target = np.empty_like(np.asarray(self.sites))
        precision, shift = self._empty()
        residual, improper = 0.0, 0
        for block in self.data.blocks(self.points):
            old = self.of(block.part)
            result = self.factors.visit(block.y, self.q.project(block.view), block.view.cond_var, old)
            for table, part in zip(target, result.target, strict=True):
                table[block.part] = part
            residual, improper = max(residual, result.gap), improper + result.n_improper
            add_projected(precision, shift, block.view, *self.factors.totals(block.y, result.target))
        damping, halvings = self._move_damped(precision - self.q.precision, shift - self.q.shift, damping)
        for table, part in zip(self.sites, target, strict=True):
            table[...] = damped(table, part, damping)
        return Swept(residual, improper + halvings)

    def step(self, batch: IntArray, damping: float) -> Swept:
        """The sites of a batch from one q, then q, damping halved as in a sweep. Time 3 C b m^2 + C m^3 / 3.

        Parameters
        ----------
        batch : (b,)       indices, none twice
        damping : float    in (0, 1]
        """
        view, y, old = self.data.take(self.points, batch), self.data.labels(batch), self.of(batch)
        result = self.factors.visit(y, self.q.project(view), view.cond_var, old)
        before, after = self.factors.totals(y, old), self.factors.totals(y, result.target)
        precision, shift = np.zeros_like(self.q.precision), np.zeros_like(self.q.shift)
        add_projected(precision, shift, view, after.delta - before.delta, after.mu_tilde - before.mu_tilde)
        damping, halvings = self._move_damped(precision, shift, damping)
        for table, start, end in zip(self.sites, old, result.target, strict=True):
            table[batch] = damped(start, end, damping)
        return Swept(result.gap, result.n_improper + halvings)

    def _move_damped(self, by_precision: FloatArray, by_shift: FloatArray, damping: float) -> tuple[float, int]:
        """Move q by the largest damping 2^-j times the given one that leaves it a distribution; j is counted."""
        for halvings in range(_HALVINGS + 1):
            try:
                q = ClassDistribution.of(self.q.precision + damping * by_precision, self.q.shift + damping * by_shift)
            except NotPositiveDefiniteError:
                if halvings == _HALVINGS:
                    raise
                damping *= 0.5
                continue
            self.q = q
            return damping, halvings
        raise AssertionError("unreachable")

    @equation("villacampa2020", "A.28")
    def gradient(self, batch: IntArray | None = None, gradient_rule: str | None = None) -> PointGradients:
        """Gradient of log Z_q: "28", villacampa2020 (A.28) with sites held as matrices, or "exact", held as numbers.

        Both are one at a fixed point. Time O(C b m (m + d) + C m^3); "exact" meets all data.

        Parameters
        ----------
        batch : (b,)           indices; None: all data
        gradient_rule : str    "28" or "exact"; None: that of the run
        """
        if (self.gradient_rule if gradient_rule is None else gradient_rule) == "exact":
            return super().gradient(batch, "exact")
        points, q, C = self.points, self.q, self.points.n_classes
        covariance = [q.covariance(k) for k in range(C)]
        scale = 1.0 if batch is None else self.data.n / batch.size
        vjp = VectorJacobianProduct(points)
        by_mean, by_second = np.zeros((C, points.m)), np.zeros((C, points.m, points.m))
        for rows, view, y in self.data.chunks(points, batch, with_cross=True):
            sites, moments = self.of(rows), q.project(view)
            cot = Cotangents(
                *(scale * part for part in self.factors.cotangents(y, moments, view.cond_var, sites, "28"))
            )
            t, x = self.power.moved_moments(y, moments, view.cond_var, sites)
            add_projected(by_second, by_mean, view, 0.5 * scale * x, scale * t)
            vjp.add_distribution(view, q, *cot)

        def by_K(k: int) -> FloatArray:
            moved = distribution_cotangent(covariance[k], q.weights[k], by_mean[k], by_second[k])
            return prior_cotangent(covariance[k], q.weights[k]) + moved

        return vjp.finish(by_K)
