"""Stochastic EP for several classes: one tied factor a class, cavities by removing its n-th part. No site is stored.

villacampa2017, section 2.3.1. In whitened coordinates (`fast.sparse_classes.projections`) the tied factor of class j is
T_j -> L'T L, t_j -> L't, q is P = I + T, w = t, and the cavity of every factor P = I + (1 - 1/n_j) T, (1 - 1/n_j) t:
all eigenvalues stay >= 1, so no cavity is ever improper. A step costs O(C b m^2 + C m^3), whatever n is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg.blas import dtrsm

from fast.core.hyper import ClassHyper
from fast.core.linalg import solve_rows, solve_vector
from fast.core.types import FloatArray, IntArray
from fast.ledger import equation
from fast.solve.natural import move_kernel
from fast.sparse_classes.data import Chunk, ClassData
from fast.sparse_classes.ep import Swept, distribution_cotangent, prior_cotangent
from fast.sparse_classes.pairwise_factors import PairTilt, gather, label_column, pair_sites, pair_tilt, pair_totals
from fast.sparse_classes.projections import (
    ClassDistribution,
    ClassView,
    InducingClasses,
    PointGradients,
    VectorJacobianProduct,
    add_projected,
)


class Tied(NamedTuple):
    """Natural parameters with a tied factor in them, whitened."""

    precision: FloatArray  # (C, m, m): I + a share of T
    shift: FloatArray  # (C, m)


@equation("villacampa2017", "u42-sep-factor-count")
def factor_counts(class_counts: FloatArray | IntArray, n: int, count: str) -> FloatArray:
    """n_j, the number of factors that share the tied one: N (C - 1) for all, or those that touch the class: (C,).

    Parameters
    ----------
    class_counts : (C,)    data of each class
    n : int                N
    count : str            "all" or "per-class"
    """
    C = class_counts.size
    if count == "all":
        return np.full(C, float(n * (C - 1)))
    touching: FloatArray = ((C - 1) * class_counts + (n - class_counts)).astype(np.float64)
    return touching


@equation("villacampa2017", "u16-sep-cavity")
def tied_cavity(precision: FloatArray, shift: FloatArray, counts: FloatArray) -> Tied:
    """q divided by the n-th root of the tied factor: villacampa2017, section 2.3.1.

    Parameters
    ----------
    precision : (C, m, m)    P of q
    shift : (C, m)           w of q
    counts : (C,)            n_j
    """
    share = 1.0 - 1.0 / counts
    left = precision * share[:, None, None]
    diagonal = np.arange(shift.shape[1])
    left[:, diagonal, diagonal] += (1.0 / counts)[:, None]  # I + (1 - 1/n)(P - I)
    return Tied(left, shift * share[:, None])


@equation("villacampa2017", "u15-sep-tied-factor", "u44-sep-batch-share")
def tied_update(
    precision: FloatArray,
    shift: FloatArray,
    added_precision: FloatArray,
    added_shift: FloatArray,
    share: FloatArray,
    damping: float,
) -> Tied:
    """P and w after T <- T + damping (T_new - r T), t likewise: villacampa2017, section 2.3.1.

    Parameters
    ----------
    precision, shift              P = I + T and w = t of q before
    added_precision, added_shift  T_new and t_new: sums over the factors of the batch
    share : (C,)                  r_j, part of the factors that the batch holds
    damping : float               in (0, 1]
    """
    keep = 1.0 - damping * share
    new = precision * keep[:, None, None] + damping * added_precision
    diagonal = np.arange(shift.shape[1])
    new[:, diagonal, diagonal] += 1.0 - keep[:, None]
    return Tied(new, shift * keep[:, None] + damping * added_shift)


def tied_change(q: ClassDistribution, added_precision: FloatArray, added_shift: FloatArray, share: FloatArray) -> float:
    """How far an undamped update moves T and t: max over classes of sqrt tr(V dT V dT) and sqrt(r'V r), r = dt - dT m.

    Time 2 C m^3.

    Parameters
    ----------
    q                             before the update
    added_precision, added_shift  T_new and t_new: sums over the factors of the batch
    share : (C,)                  r_j, part of the factors that the batch holds
    """
    worst = 0.0
    for k, R in enumerate(q.factor):
        change = added_precision[k] - share[k] * q.precision[k]
        change.flat[:: change.shape[0] + 1] += share[k]
        rest = added_shift[k] - share[k] * q.shift[k] - change @ q.weights[k]
        whitened = solve_vector(R, rest)
        worst = max(worst, float(np.sqrt(whitened @ whitened)))
        turned = solve_rows(R, np.ascontiguousarray(solve_rows(R, change).T))
        worst = max(worst, float(np.sqrt(np.vdot(turned, turned))))
    return worst


@equation("villacampa2017", "u18-minibatch-ratio")
def data_scale(n: int, batch_size: int) -> float:
    """rho = N / |S|: villacampa2017, section 2.3.2.

    Parameters
    ----------
    n : int             N
    batch_size : int    |S|
    """
    return n / batch_size


class Counted(Protocol):
    """What tied factors need of the data that they stand for."""

    @property
    def counts(self) -> FloatArray | IntArray:
        """(C,) data of each class."""

    @property
    def n(self) -> int:
        """All of them."""


class TiedFactors:
    """Tied factors as part of q, and the priors that they stand on; data are brought to each call.

    stands_for    data of each class that the factors stand for
    count         the n of the n-th root, see `factor_counts`
    q             q(v) to start from; None: the prior
    """

    def __init__(
        self, stands_for: Counted, points: InducingClasses, count: str, q: ClassDistribution | None = None
    ) -> None:
        self.stands_for, self.points, self.count = stands_for, points, count
        self.counts = factor_counts(stands_for.counts, stands_for.n, count)
        self.q = ClassDistribution.prior(points.n_classes, points.m) if q is None else q
        self._cavity: ClassDistribution | None = None

    @property
    def cavity(self) -> ClassDistribution:
        """The cavity of every factor."""
        if self._cavity is None:
            self._cavity = ClassDistribution.of(*tied_cavity(self.q.precision, self.q.shift, self.counts))
        return self._cavity

    def _set(self, q: ClassDistribution) -> None:
        self.q, self._cavity = q, None

    def tied(self) -> tuple[FloatArray, FloatArray]:
        """T (C, m, m) and t (C, m) in coordinates of u. Time C m^3."""
        points = self.points
        precision, shift = np.empty_like(self.q.precision), np.empty_like(self.q.shift)
        for k in range(points.n_classes):
            L = points.chol_K[points.kind[k]]
            T = self.q.precision[k].copy()
            T.flat[:: points.m + 1] -= 1.0
            T = dtrsm(1.0, L, T.T, side=0, lower=1, trans_a=1)
            T = dtrsm(1.0, L, T, side=1, lower=1, overwrite_b=1)
            precision[k] = 0.5 * (T + T.T)
            shift[k] = solve_vector(L, self.q.shift[k], transposed=True)
        return precision, shift

    def tilt(self, view: ClassView, y: IntArray) -> tuple[PairTilt, tuple[FloatArray, ...]]:
        """log Z of every factor with the cavity of now, and e_y, v_y, e_k, v_k.

        Parameters
        ----------
        view        data
        y : (b,)    labels
        """
        mean, var = self.cavity.project(view)
        sides = (
            np.broadcast_to(label_column(y, mean), mean.shape),
            np.broadcast_to(label_column(y, var), mean.shape),
            mean,
            var,
        )
        return pair_tilt(y, *sides, view.cond_var), sides

    def update_from(self, chunks: Iterable[Chunk], batch_size: int | None, damping: float) -> Swept:
        """The factors of some data, projected already. Time 2 C b m^2 + C m^3.

        Parameters
        ----------
        chunks            rows, projections and labels
        batch_size        number of data; None: all
        damping : float   in (0, 1]
        """
        q, C = self.q, self.points.n_classes
        added, added_shift = np.zeros_like(q.precision), np.zeros_like(q.shift)
        counts = np.zeros(C, dtype=np.int64)
        for _, view, y in chunks:
            tilt, sides = self.tilt(view, y)
            add_projected(added, added_shift, view, *pair_totals(y, pair_sites(tilt, *sides)))
            counts += np.bincount(y, minlength=C)
        share = np.ones(C)
        if batch_size is not None:
            share = factor_counts(counts, batch_size, self.count) / self.counts
        self._set(ClassDistribution.of(*tied_update(q.precision, q.shift, added, added_shift, share, damping)))
        residual = partial(tied_change, q, added, added_shift, share)
        # of a step, whose 2 C m^3 few ask for
        return Swept(residual(), 0) if batch_size is None else Swept(np.nan, 0, later=residual)

    def move(self, hyper: ClassHyper, Z: FloatArray) -> None:
        """Other priors under the same T and t: T_w <- (L^-1 L_new)' T_w (L^-1 L_new). Time 3 C m^3.

        Parameters
        ----------
        hyper            parameters of the classes
        Z : (C, m, d)
        """
        old = self.points
        points = InducingClasses(hyper, Z, old.shared, in_a_step=True)
        precision, shift = np.empty_like(self.q.precision), np.empty_like(self.q.shift)
        for k in range(points.n_classes):
            T = self.q.precision[k].copy()
            T.flat[:: points.m + 1] -= 1.0
            kind = points.kind[k]
            shift[k], precision[k] = move_kernel(self.q.shift[k], T, old.chol_K[kind], points.chol_K[kind])
        diagonal = np.arange(points.m)
        precision[:, diagonal, diagonal] += 1.0
        q = ClassDistribution.of(precision, shift)
        self.points = points
        self._set(q)

    def gradient_from(self, chunks: Iterable[Chunk], scale: float, gradient_rule: str) -> PointGradients:
        """By rule "10", which is no derivative of log Z_q here, or "exact", T and t held.

        Parameters
        ----------
        chunks                 rows, projections with k(X, Z), and labels
        scale : float          of the data terms
        gradient_rule : str    "10" or "exact"
        """
        points, q, cavity = self.points, self.q, self.cavity
        exact = gradient_rule == "exact"
        vjp = VectorJacobianProduct(points)
        by_mean, by_covariance = np.zeros_like(q.shift), np.zeros_like(q.precision)
        for _, view, y in chunks:
            tilt = self.tilt(view, y)[0]
            derivative = scale * gather(y, tilt.derivative, -tilt.derivative)
            by_var = scale * gather(y, tilt.by_var, tilt.by_var)
            if exact:
                add_projected(by_covariance, by_mean, view, by_var, derivative)
            vjp.add_distribution(view, cavity, derivative, 2.0 * by_var, by_var)

        def by_K(k: int) -> FloatArray:
            result = prior_cotangent(q.covariance(k), q.weights[k])
            if exact:  # the derivative of g in K is half of S + p p'
                S, p = cavity.covariance(k), cavity.weights[k]
                result += self.counts[k] * (prior_cotangent(S, p) - result)
                result += distribution_cotangent(S, p, by_mean[k], by_covariance[k])
            return result

        return vjp.finish(by_K)


class TiedRun(TiedFactors):
    """Tied factors, their data, and how they are refreshed.

    damping          in (0, 1], of `refresh`
    gradient_rule    "10" or "exact", of `gradient`
    """

    sweeps_contract = True  # linearly: the last change alone says little of the distance left

    def __init__(
        self, data: ClassData, points: InducingClasses, count: str, *, damping: float = 0.5, gradient_rule: str = "10"
    ) -> None:
        super().__init__(data, points, count)
        self.data, self.damping, self.gradient_rule = data, damping, gradient_rule

    def refresh(self, batch: IntArray | None = None) -> Swept:
        """The factors of a batch, or of all data, from one q. Time 2 C b m^2 + C m^3.

        Parameters
        ----------
        batch : (b,)    indices, none twice; None: all data
        """
        # k(X, Z) is kept: a step on the priors follows with the same batch
        chunks = self.data.chunks(self.points, batch, with_cross=batch is not None)
        return self.update_from(chunks, None if batch is None else batch.size, self.damping)

    def rebuild(self) -> None:
        """q is what is stored: nothing to do."""

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues."""
        return {"precision": self.q.precision, "shift": self.q.shift}

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
        self._set(ClassDistribution.of(np.array(arrays["precision"]), np.array(arrays["shift"])))

    @equation("villacampa2017", "u43-sep-log-evidence")
    def log_evidence(self) -> float | None:
        """log Z_q, villacampa2017: prior part, log Z of all factors, n_j (g of the cavity less g of q). One pass."""
        chunks = self.data.chunks(self.points)
        value = sum(float(self.tilt(view, y)[0].log_norm.sum()) for _, view, y in chunks)
        q, cavity = self.q, self.cavity
        whole = 0.5 * (q.shift_norm - q.log_det)
        part = 0.5 * (cavity.shift_norm - cavity.log_det)
        return float(whole.sum() + (self.counts * (part - whole)).sum()) + value

    def gradient(self, batch: IntArray | None = None, gradient_rule: str | None = None) -> PointGradients:
        """By rule "10", which is no derivative of log Z_q here, or "exact", T and t held; log Z of a batch n / b times.

        Parameters
        ----------
        batch : (b,)           indices; None: all data
        gradient_rule : str    "10" or "exact"; None: that of the run
        """
        scale = 1.0 if batch is None else data_scale(self.data.n, batch.size)
        rule = self.gradient_rule if gradient_rule is None else gradient_rule
        return self.gradient_from(self.data.chunks(self.points, batch, with_cross=True), scale, rule)
