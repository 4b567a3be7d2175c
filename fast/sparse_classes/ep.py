"""EP with a site for every factor of several classes: parallel sweeps, batches, sequential sweeps, log Z_q, gradients.

villacampa2017, section 2.2 and 2.3. q(v_k) = N(P^-1 w, P^-1), P = I + A Delta A', w = A mu_tilde (see
`fast.sparse_classes.projections`), and log Z_q = sum_k (w'P^-1 w - log|P|)/2 + sum of (log Z - psi) over the factors.

What the factors are stands behind an interface (`fast.sparse_classes.pairwise_factors.Pairwise`,
`fast.sparse_classes.datum_factors.Datum`). Sites are one array (4 or 2, n, C), in memory or in a file; a pass reads and
writes them block by block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyper import ClassHyper
from fast.core.results import ScalarMoments
from fast.core.types import FloatArray, IntArray
from fast.ledger import equation
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.pairwise_factors import Cotangents, Totals, Visit
from fast.sparse_classes.projections import (
    ClassDistribution,
    ClassView,
    InducingClasses,
    PointGradients,
    VectorJacobianProduct,
    add_projected,
)

Sites = tuple[FloatArray, ...]


class Factors(Protocol):
    """What EP needs of a kind of factors."""

    names: tuple[str, ...]
    signed: bool  # whether the precision of a site may be negative

    def groups(self, y: int, n_classes: int) -> list[tuple[int, ...]]:
        """Classes that each factor of a datum sees, in the order of a sequential sweep."""

    def scales(self, y: IntArray, var: FloatArray) -> Sites:
        """Variances of the projections that the precisions of the sites belong to."""

    def totals(self, y: IntArray, sites: Sites) -> Totals:
        """delta and mu_tilde of each datum and class."""

    def visit(self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: Sites) -> Visit:
        """Proposals from one q."""

    def cotangents(
        self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: Sites, gradient_rule: str
    ) -> Cotangents:
        """What a gradient needs."""


class ImproperCavityError(ValueError):
    """There is no gradient: dividing q by a site leaves no distribution."""


class Swept(NamedTuple):
    """What a sweep or a step says of itself."""

    residual: float
    n_improper: int
    why: str = ""  # there is nothing to come to, and why: the residual is infinite then
    later: Callable[[], float] | None = None  # the residual, NaN above, where it would be a good part of the step


@equation("villacampa2017", "u12-damping")
def damped(old: FloatArray, target: FloatArray, damping: float) -> FloatArray:
    """(1 - damping) old + damping target of natural parameters: villacampa2017, supplement E.

    Parameters
    ----------
    old, target        arrays
    damping : float    in (0, 1]
    """
    mixed: FloatArray = (1.0 - damping) * old + damping * target
    return mixed


@equation("villacampa2017", "64")
def prior_cotangent(covariance: FloatArray, weights: FloatArray) -> FloatArray:
    """-(I - S - p p')/2 = -L' M L/2, M = K^-1 - K^-1 V K^-1 - K^-1 m m'K^-1: villacampa2017 (63), (64), whitened.

    Parameters
    ----------
    covariance : (m, m)     S = P^-1
    weights : (m,)      p
    """
    value: FloatArray = 0.5 * (covariance + np.outer(weights, weights))
    value.flat[:: weights.size + 1] -= 0.5
    return value


def distribution_cotangent(
    covariance: FloatArray, weights: FloatArray, by_mean: FloatArray, by_covariance: FloatArray
) -> FloatArray:
    """S B S + sym(S b p'): what K owes to the mean and covariance of q where sites are held. Time O(m^3).

    Parameters
    ----------
    covariance : (m, m)       S
    weights : (m,)        p
    by_mean : (m,)        b, sum_i of by_mean_i a_i
    by_covariance : (m, m)    B, sum_i of by_var_i a_i a_i'
    """
    moved = np.outer(covariance @ by_mean, weights)
    value: FloatArray = covariance @ by_covariance @ covariance + 0.5 * (moved + moved.T)
    return value


@equation("villacampa2017", "60")
def ep_log_evidence(q: ClassDistribution, values: float) -> float:
    """log Z_q = sum_k (w'P^-1 w - log|P|)/2 + sum over factors of (log Z - psi): villacampa2017 (57), (60).

    m'V^-1 m = w'P^-1 w and log|V| - log|K| = -log|P|; the print of (60) has |K| without its logarithm.

    Parameters
    ----------
    q                 q(v)
    values : float    sum over the factors
    """
    return 0.5 * float(q.shift_norm.sum() - q.log_det.sum()) + values


def refreshed(
    factors: Factors, q: ClassDistribution, view: ClassView, y: IntArray, old: Sites, damping: float
) -> tuple[Sites, Visit]:
    """Sites of some data after a damped step from one q, and what their factors say. Time C b m^2.

    Parameters
    ----------
    factors              their kind
    q                    q(v)
    view, y              data
    old                  their sites
    damping : float      in (0, 1]
    """
    result = factors.visit(y, q.project(view), view.cond_var, old)
    return tuple(damped(a, b, damping) for a, b in zip(old, result.target, strict=True)), result


class SiteRun:
    """Sites, q and the priors that they stand on.

    fresh            the sites are zero, and q need not be built from them
    sequential       q is refreshed after each factor, not after all
    damping          in (0, 1], of `refresh`
    gradient_rule    "10" or "exact", of `gradient`
    """

    sweeps_contract = True  # linearly: the last change alone says little of the distance left
    may_mix = True  # the sites of all data are here

    def __init__(
        self,
        data: ClassData,
        points: InducingClasses,
        factors: Factors,
        sites: FloatArray,
        *,
        fresh: bool = False,
        sequential: bool = False,
        damping: float = 0.5,
        gradient_rule: str = "10",
    ) -> None:
        self.data, self.points, self.factors, self.sites = data, points, factors, sites
        self.sequential, self.damping, self.gradient_rule = sequential, damping, gradient_rule
        self._touched = not fresh
        self.rebuild()
        self._touched = True

    def of(self, rows: Any) -> Sites:
        """Sites of some data: copies for indices, views for slices.

        Parameters
        ----------
        rows    slice or indices
        """
        return tuple(np.asarray(table[rows]) for table in self.sites)

    def _empty(self) -> tuple[FloatArray, FloatArray]:
        points = self.points
        return np.tile(np.eye(points.m), (points.n_classes, 1, 1)), np.zeros((points.n_classes, points.m))

    def rebuild(self) -> None:
        """q from all sites at the present priors. Time C n m^2 + C m^3 / 3."""
        precision, shift = self._empty()
        for block in self.data.blocks(self.points) if self._touched else ():
            add_projected(precision, shift, block.view, *self.factors.totals(block.y, self.of(block.part)))
        self.q = ClassDistribution.of(precision, shift)

    def move(self, hyper: ClassHyper, Z: FloatArray) -> None:
        """Other priors under the same coefficients.

        Parameters
        ----------
        hyper            parameters of the classes
        Z : (C, m, d)
        """
        points = InducingClasses(hyper, Z, self.points.shared, in_a_step=True)
        before = self.points, self.q
        self.points = points
        try:
            self.rebuild()
        except (ValueError, NotPositiveDefiniteError):
            self.points, self.q = before
            raise

    def refresh(self, batch: IntArray | None = None) -> Swept:
        """Visit the factors of a batch, or of all data, as schedule and damping of the run are.

        Parameters
        ----------
        batch : (b,)    indices, none twice; None: all data
        """
        if self.sequential:
            return self.in_order(batch, self.damping)
        return self.sweep(self.damping) if batch is None else self.step(batch, self.damping)

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues."""
        return {"sites": self.sites, "precision": self.q.precision, "shift": self.q.shift}

    def restore(self, arrays: Mapping[str, Any], hyper: ClassHyper, Z: FloatArray, moved: bool) -> None:
        """Continue where `state` was taken.

        Parameters
        ----------
        arrays           from `state`
        hyper            parameters of the classes then
        Z : (C, m, d)    inducing points then
        moved : bool     whether the priors are learned
        """
        self.points = InducingClasses(hyper, Z, self.points.shared, in_a_step=moved)
        self.sites[...] = arrays["sites"]
        self.q = ClassDistribution.of(np.array(arrays["precision"]), np.array(arrays["shift"]))

    def sweep(self, damping: float) -> Swept:
        """All sites from one q, then q. One pass: time 2 C n m^2 + C m^3 / 3.

        Parameters
        ----------
        damping : float    in (0, 1]
        """
        precision, shift = self._empty()
        residual, improper = 0.0, 0
        for block in self.data.blocks(self.points):
            new, result = refreshed(self.factors, self.q, block.view, block.y, self.of(block.part), damping)
            for table, part in zip(self.sites, new, strict=True):
                table[block.part] = part
            residual, improper = max(residual, result.gap), improper + result.n_improper
            add_projected(precision, shift, block.view, *self.factors.totals(block.y, new))
        self.q = ClassDistribution.of(precision, shift)
        return Swept(residual, improper)

    def step(self, batch: IntArray, damping: float) -> Swept:
        """The sites of a batch from one q, then q: time 3 C b m^2 + C m^3 / 3, whatever n is.

        Parameters
        ----------
        batch : (b,)       indices, none twice
        damping : float    in (0, 1]
        """
        view, y, old = self.data.take(self.points, batch), self.data.labels(batch), self.of(batch)
        new, result = refreshed(self.factors, self.q, view, y, old, damping)
        self._replace(batch, view, y, old, new)
        return Swept(result.gap, result.n_improper)

    def _replace(self, batch: IntArray, view: ClassView, y: IntArray, old: Sites, new: Sites) -> None:
        before, after = self.factors.totals(y, old), self.factors.totals(y, new)
        precision, shift = self.q.precision.copy(), self.q.shift.copy()
        add_projected(precision, shift, view, after.delta - before.delta, after.mu_tilde - before.mu_tilde)
        self.q = ClassDistribution.of(precision, shift)
        for table, part in zip(self.sites, new, strict=True):
            table[batch] = part

    def in_order(self, batch: IntArray | None, damping: float) -> Swept:
        """One factor after the other, q after each by rank-one updates. Time O(C m^2) a datum.

        Parameters
        ----------
        batch : (b,)       indices in their order; None: all data
        damping : float    in (0, 1]
        """
        S = np.array([self.q.covariance(k) for k in range(self.points.n_classes)])
        weights = self.q.weights.copy()
        residual, improper = 0.0, 0
        for part, view, y in self.data.chunks(self.points, batch):
            for at, i in enumerate(np.arange(part.start, part.stop) if isinstance(part, slice) else part):
                rows = [part[at] for part in view.rows]
                here = self._visit_one(int(i), int(y[at]), rows, view.cond_var[at], S, weights, damping)
                residual, improper = max(residual, here.residual), improper + here.n_improper
        self.rebuild()
        return Swept(residual, improper)

    def _visit_one(
        self,
        i: int,
        y: int,
        rows: list[FloatArray],
        cond_var: FloatArray,
        S: FloatArray,
        weights: FloatArray,
        damping: float,
    ) -> Swept:
        """The factors of one datum in order, each among its own classes; S and weights are changed in place."""
        kind, residual, improper = self.points.kind, 0.0, 0
        for classes in self.factors.groups(y, self.points.n_classes):
            label, members = np.array([classes.index(y)]), list(classes)
            covariance = [S[k] @ rows[kind[k]] for k in classes]
            mean = np.array([[rows[kind[k]] @ weights[k] for k in classes]])
            var = np.array([[rows[kind[k]] @ moved for k, moved in zip(classes, covariance, strict=True)]])
            old = tuple(np.array(table[i, members])[None] for table in self.sites)
            result = self.factors.visit(label, ScalarMoments(mean, var), cond_var[None, members], old)
            residual, improper = max(residual, result.gap), improper + result.n_improper
            new = tuple(damped(a, b, damping) for a, b in zip(old, result.target, strict=True))
            before, after = self.factors.totals(label, old), self.factors.totals(label, new)
            for at, k in enumerate(classes):
                by_precision = float(after.delta[0, at] - before.delta[0, at])
                by_shift = float(after.mu_tilde[0, at] - before.mu_tilde[0, at])
                gain = 1.0 + by_precision * var[0, at]
                weights[k] += covariance[at] * ((by_shift - by_precision * mean[0, at]) / gain)
                S[k] -= np.outer(covariance[at], covariance[at] * (by_precision / gain))
            for table, part in zip(self.sites, new, strict=True):
                table[i, members] = part[0]
        return Swept(residual, improper)

    def log_evidence(self) -> float | None:
        """log Z_q of all data at the present q, cavities recomputed; None if one is improper. One pass."""
        value = self.factor_value()
        return ep_log_evidence(self.q, value) if np.isfinite(value) else None

    def factor_value(self) -> float:
        """sum over the factors of log Z - psi at the present q; NaN if a cavity is improper. One pass."""
        value = 0.0
        for block in self.data.blocks(self.points):
            moments = self.q.project(block.view)
            value += self.factors.visit(block.y, moments, block.view.cond_var, self.of(block.part)).value
        return value

    @equation("villacampa2017", "10", "62")
    def gradient(self, batch: IntArray | None = None, gradient_rule: str | None = None) -> PointGradients:
        """Gradient of log Z_q by rule "10" or "exact"; data terms of a batch count n / b times.

        "10": time O(C b m (m + d) + C m^3). "exact" meets all data: upsilon of every datum moves q.

        Parameters
        ----------
        batch : (b,)           indices; None: all data
        gradient_rule : str    "10" or "exact"; None: that of the run

        Raises
        ------
        ImproperCavityError    if a cavity among these data is no distribution
        """
        gradient_rule = self.gradient_rule if gradient_rule is None else gradient_rule
        points, q, C = self.points, self.q, self.points.n_classes
        covariance = [q.covariance(k) for k in range(C)]
        by_K = [prior_cotangent(covariance[k], q.weights[k]) for k in range(C)]
        vjp = VectorJacobianProduct(points)
        exact = gradient_rule == "exact"
        scale = 1.0 if batch is None else self.data.n / batch.size
        by_mean, by_covariance = np.zeros((C, points.m)), np.zeros((C, points.m, points.m))

        for rows, view, y in self.data.chunks(points, batch, with_cross=True):
            result = self.factors.cotangents(y, q.project(view), view.cond_var, self.of(rows), gradient_rule)
            if not np.isfinite(result.by_cond_var).all():
                raise ImproperCavityError("sites: found an improper cavity, expected proper ones; lower damping")
            cot = Cotangents(*(scale * part for part in result))
            if exact:
                add_projected(by_covariance, by_mean, view, cot.by_var, cot.by_mean)
            vjp.add_distribution(view, q, cot.by_mean, (2.0 if exact else 1.0) * cot.by_var, cot.by_cond_var)
        if exact:
            extra = [
                distribution_cotangent(covariance[k], q.weights[k], by_mean[k], by_covariance[k]) for k in range(C)
            ]
            by_K = [a + b for a, b in zip(by_K, extra, strict=True)]
            for block in self.data.blocks(points, with_cross=True):
                totals = self.factors.totals(block.y, self.of(block.part))

                def of_distribution(k: int, view: ClassView = block.view, totals: Totals = totals) -> FloatArray:
                    by_precision = -by_K[k]
                    by_precision.flat[:: points.m + 1] -= 0.5
                    W: FloatArray = view.rows[points.kind[k]] @ by_precision
                    W *= 2.0 * totals.delta[:, k, None]
                    W += np.multiply.outer(totals.mu_tilde[:, k], q.weights[k] + covariance[k] @ by_mean[k])
                    return W

                vjp.add(block.view, of_distribution, np.zeros(block.view.cond_var.shape))
        return vjp.finish(lambda k: by_K[k])


def empty_sites(
    factors: Factors, n: int, n_classes: int, site_file: str | os.PathLike[str] | None = None
) -> FloatArray:
    """Sites at zero, (4 or 2, n, C), in memory or in a new file.

    Parameters
    ----------
    factors              their kind
    n, n_classes : int
    site_file : path     None: in memory
    """
    shape = (len(factors.names), n, n_classes)
    return np.zeros(shape) if site_file is None else np.memmap(site_file, np.float64, "w+", shape=shape)
