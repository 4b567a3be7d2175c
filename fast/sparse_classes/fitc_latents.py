"""EP on the latent values themselves under the FITC prior of several classes, in O(n m^2). villacampa2017, section 3.

The inducing values are integrated out, f_k ~ N(0, Q_k + diag(s_k)), Q = K_XZ K_ZZ^-1 K_ZX, and one factor
Theta(f_y - f_k) stands for each datum and class but its own: a factor of `fast.sparse_classes.pairwise_factors` whose
projections are latent values and whose conditional variances are zero. Given the sites, Delta and mu_tilde (n, C) in
all,

    D = Delta/(1 + s Delta),   beta = mu_tilde/(1 + s Delta),   P = I + A D A',   w = A beta,   q(v) = N(P^-1 w, P^-1),
    mu_i = (p_i + s_i mu_tilde_i)/(1 + s_i Delta_i),   sig_i = s_i/(1 + s_i Delta_i) + q_i/(1 + s_i Delta_i)^2,
    log|I + (Q + S) Delta| = log|P| + sum log(1 + s_i Delta_i),

with p_i, q_i mean and variance of upsilon_i'u (see `fast.sparse_classes.projections`): nothing of size (n, n), nothing
cancels.

The first 50 sweeps of a run are damped steps in order. Where more are allowed, proposals of `fast.solve.mixing` follow,
until one of them makes the change that an undamped sweep wants grow twofold: damped sweeps then go on from the point
before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fast.core.hyper import ClassHyper
from fast.core.results import ScalarMoments
from fast.core.types import FloatArray, IntArray
from fast.ledger import equation
from fast.solve.mixing import Mixing
from fast.sparse_classes.data import Block, ClassData
from fast.sparse_classes.ep import Sites, Swept, damped, prior_cotangent
from fast.sparse_classes.pairwise_factors import Pairwise, Totals, Visit
from fast.sparse_classes.projections import (
    ClassDistribution,
    ClassView,
    InducingClasses,
    PointGradients,
    VectorJacobianProduct,
    add_projected,
)

_PLAIN = 50  # sweeps up to which a run follows the printed order
_LARGEST = 2**20  # site parameters up to which past ones are kept for mixing


class EffectiveSites(NamedTuple):
    """What the sites on f_i say of upsilon_i'u once the rest of f_i is integrated out."""

    delta: FloatArray  # (b, C) D
    mu_tilde: FloatArray  # (b, C) beta
    shrink: FloatArray  # (b, C) 1 + s Delta


def effective_sites(cond_var: FloatArray, totals: Totals) -> EffectiveSites:
    """D and beta. Time O(b C).

    Parameters
    ----------
    cond_var : (b, C)    s
    totals               Delta and mu_tilde of each datum and class
    """
    shrink = 1.0 + cond_var * totals.delta
    return EffectiveSites(totals.delta / shrink, totals.mu_tilde / shrink, shrink)


@equation("villacampa2017", "u20-gfitc")
def latent_marginals(moments: ScalarMoments, cond_var: FloatArray, totals: Totals) -> ScalarMoments:
    """mu and sig, mean and variance of every latent value under q: villacampa2017, section 3, GFITC. Time O(b C).

    Parameters
    ----------
    moments              p and q of the projections, all sites included
    cond_var : (b, C)    s
    totals               Delta and mu_tilde
    """
    shrink = 1.0 + cond_var * totals.delta
    mean = (moments.mean + cond_var * totals.mu_tilde) / shrink
    return ScalarMoments(mean, (cond_var + moments.var / shrink) / shrink)


@equation("villacampa2017", "u20-gfitc")
def latent_log_evidence(q: ClassDistribution, linear: float, log_shrink: float, values: float) -> float:
    """log Z = sum_k [mu_tilde'mu - log|I + (Q + S) Delta|]/2 + sum over factors of (log Z - psi): section 3, GFITC.

    Parameters
    ----------
    q                     q(v)
    linear : float        sum of mu_tilde mu
    log_shrink : float    sum of log(1 + s Delta)
    values : float        sum over the factors
    """
    return 0.5 * (linear - log_shrink - float(q.log_det.sum())) + values


def latent_visit(
    factors: Pairwise, q: ClassDistribution, view: ClassView, y: IntArray, old: Sites
) -> tuple[Visit, ScalarMoments, Totals]:
    """Proposals of the factors of some data, with marginals of the latent values and the sums of the sites.

    Time C b m^2.

    Parameters
    ----------
    factors    their kind
    q          q(v)
    view, y    data
    old        their sites
    """
    s, totals = view.cond_var, factors.totals(y, old)
    marginals = latent_marginals(q.project(view), s, totals)
    return factors.visit(y, marginals, np.zeros_like(s), old), marginals, totals


class LatentValues(NamedTuple):
    """What the data add to log Z: `latent_log_evidence`."""

    linear: float
    log_shrink: float
    values: float

    @classmethod
    def of(cls, visit: Visit, marginals: ScalarMoments, totals: Totals, cond_var: FloatArray) -> LatentValues:
        """Of some data, from `latent_visit`."""
        linear = float(np.vdot(totals.mu_tilde, marginals.mean))
        return cls(linear, float(np.log1p(cond_var * totals.delta).sum()), visit.value)


class _Past(NamedTuple):
    """The point before."""

    sites: FloatArray
    gap: FloatArray  # target less sites
    residual: float


class LatentRun:
    """Sites on the latent values, q(v), and the priors that they stand on; sites start at zero.

    damping    in (0, 1]
    mixed      whether proposals may be mixed after some sweeps
    """

    def __init__(self, data: ClassData, points: InducingClasses, *, damping: float = 0.5, mixed: bool = False) -> None:
        self.data, self.points, self.factors, self.damping = data, points, Pairwise(), damping
        self._mixed = mixed and 4 * data.n * data.n_classes <= _LARGEST
        self._forget()
        self.sites = np.zeros((len(self.factors.names), data.n, data.n_classes))
        self.q = ClassDistribution.prior(points.n_classes, points.m)

    def of(self, rows: Any) -> Sites:
        """Sites of some data.

        Parameters
        ----------
        rows    slice or indices
        """
        return tuple(np.asarray(table[rows]) for table in self.sites)

    def visit(self, block: Block) -> tuple[Visit, ScalarMoments, Totals]:
        """Proposals of the factors of a block, with marginals of its latent values and the sums of its sites.

        Parameters
        ----------
        block    consecutive data
        """
        return latent_visit(self.factors, self.q, block.view, block.y, self.of(block.part))

    def _start(self) -> tuple[FloatArray, FloatArray]:
        points = self.points
        return np.tile(np.eye(points.m), (points.n_classes, 1, 1)), np.zeros((points.n_classes, points.m))

    def rebuild(self) -> None:
        """q(v) from all sites at the present priors. Time C n m^2 + C m^3 / 3."""
        precision, shift = self._start()
        for block in self.data.blocks(self.points):
            result = effective_sites(block.view.cond_var, self.factors.totals(block.y, self.of(block.part)))
            add_projected(precision, shift, block.view, result.delta, result.mu_tilde)
        self.q = ClassDistribution.of(precision, shift)

    def _forget(self) -> None:
        self._sweeps, self._was_mixed, self._mixing = 0, False, Mixing()
        self._past: _Past | None = None

    def refresh(self) -> Swept:
        """All sites from one q, then q: the evidence is no sum over the data. Time 2 C n m^2 + C m^3 / 3."""
        target = np.empty_like(self.sites)
        mean, var = np.empty(self.sites.shape[1:]), np.empty(self.sites.shape[1:])
        residual, improper = 0.0, 0
        for block in self.data.blocks(self.points):
            result, marginals, _ = self.visit(block)
            target[:, block.part] = result.target
            mean[block.part], var[block.part] = marginals
            residual, improper = max(residual, result.gap), improper + result.n_improper
        self._sweeps += 1
        if self._mixed and self._sweeps > _PLAIN:
            self._advance(target - self.sites, mean, var, residual, improper)
        else:
            self.sites[...] = damped(self.sites, target, self.damping)
        self.rebuild()
        return Swept(residual, improper)

    def _advance(self, gap: FloatArray, mean: FloatArray, var: FloatArray, residual: float, improper: int) -> None:
        past, damping = self._past, self.damping
        if past is not None and self._was_mixed and (improper or not residual <= 2.0 * past.residual):
            self.sites[...] = damped(past.sites, past.sites + past.gap, damping)
            self._mixing.clear()
            self._past, self._was_mixed = None, False
            return
        if past is not None:
            self._mixing.learn((self.sites - past.sites).ravel(), (gap - past.gap).ravel())
        self._past = _Past(self.sites.copy(), gap, residual)
        label = np.take_along_axis(mean, self.data.labels(slice(None))[:, None], axis=1)
        label_var = np.take_along_axis(var, self.data.labels(slice(None))[:, None], axis=1)

        def measure(part: FloatArray) -> FloatArray:
            c1_y, c2_y, c1_k, c2_k = part.reshape(self.sites.shape)
            pairs = ((c1_y, c2_y, label, label_var), (c1_k, c2_k, mean, var))
            scaled = [table for c1, c2, m, v in pairs for table in (c1 * v, (c2 - c1 * m) * np.sqrt(v))]
            return np.concatenate([table.ravel() for table in scaled])

        step = self._mixing.step(gap.ravel(), measure, damping)
        self._was_mixed = step is not None
        plain = damped(self.sites, self.sites + gap, damping)
        if step is None:
            self.sites[...] = plain
            return
        moved = self.sites + step.reshape(self.sites.shape)
        # an extrapolation that leaves the positive numbers falls back, datum by datum
        bad = (moved[0] < 0.0) | (moved[2] < 0.0)
        self.sites[...] = np.where(bad, plain, moved)

    def log_evidence(self) -> float | None:
        """log Z at the present sites, cavities recomputed; None if one is improper. One pass."""
        sums = self.factor_values()
        return latent_log_evidence(self.q, *sums) if np.isfinite(sums.values) else None

    def factor_values(self) -> LatentValues:
        """What all data add to log Z at the present q. One pass."""
        linear = log_shrink = values = 0.0
        for block in self.data.blocks(self.points):
            one = LatentValues.of(*self.visit(block), block.view.cond_var)
            linear, log_shrink, values = linear + one.linear, log_shrink + one.log_shrink, values + one.values
        return LatentValues(linear, log_shrink, values)

    def gradient(self) -> PointGradients:
        """Gradient of log Z, sites held, which is all of it at the fixed point. Time O(C n m (m + d) + C m^3).

        With b = beta - D p and T = (Q + S + Delta^-1)^-1, of which diag T = D - D^2 q is needed: b'd(Q + S) b/2 -
        tr(T d(Q + S))/2. Through Q, dF/da_i = b_i p - D_i P^-1 a_i and L'(dF/dK) L = (P^-1 + p p' - I)/2, as
        A b = p and A T = P^-1 A D; through s_i, (b_i^2 - T_ii)/2.
        """
        points, q = self.points, self.q
        covariance = [q.covariance(k) for k in range(points.n_classes)]
        vjp = VectorJacobianProduct(points)
        for block in self.data.blocks(points, with_cross=True):
            view = block.view
            D, beta, _ = effective_sites(view.cond_var, self.factors.totals(block.y, self.of(block.part)))
            moments = q.project(view)
            b = beta - D * moments.mean
            by_s = 0.5 * (b * b - D * (1.0 - D * moments.var))

            def by_upsilon(k: int, view: Any = view, D: FloatArray = D, b: FloatArray = b) -> FloatArray:
                W: FloatArray = view.rows[points.kind[k]] @ covariance[k]
                W *= -D[:, k, None]
                W += np.multiply.outer(b[:, k], q.weights[k])
                return W

            vjp.add(view, by_upsilon, by_s)
        return vjp.finish(lambda k: prior_cotangent(covariance[k], q.weights[k]))

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
        self._forget()
        self._sweeps = _PLAIN  # near the end of another run
        self.q = ClassDistribution.of(np.array(arrays["precision"]), np.array(arrays["shift"]))
