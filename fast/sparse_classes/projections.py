"""Inducing values of several classes in whitened coordinates: projections of the data, and their derivatives by hand.

For class k, u = L v with L = chol(K), K = k(Z_k, Z_k) + jitter I, v ~ N(0, I) a priori, and for every datum

    a_i = L^-1 k_i,   upsilon_i = K^-1 k_i = L^-T a_i,   s_i = variance + noise - |a_i|^2,

so a projection upsilon_i'u = a_i'v never meets an inverse. What stands here, for all classes at once:

    points = InducingClasses(hyper, Z, shared)         K, L and the kernel of each class; one of each if shared
    view = points.view(X)                              rows a_i, cond_var s_i (b, C), for a block or a batch of data
    q = ClassDistribution.of(precision, shift)         q(v) = N(P^-1 w, P^-1) of each class, P = R R'
    moments = q.project(view)                          mean p_i = upsilon_i'm and var q_i = upsilon_i'V upsilon_i (b, C)
    vjp = VectorJacobianProduct(points)                gradients of a scalar F through (upsilon, s, K):
    vjp.add(view, by_upsilon, by_cond_var)               of a block: L^-1 dF/dupsilon_i, dF/ds_i
    vjp.finish(by_K)                                    of K: L' (dF/dK) L; gives variance, lengthscales, noise, Z

Cotangents are whitened too: where F sees upsilon_i through upsilon_i'u, u = L v, its L^-1 dF/dupsilon_i is a multiple
of v, and no solve is made. With W_i and s_i the cotangents of upsilon_i and cond_var_i,

    dF/dk_i = L^-T (W_i - 2 s_i a_i),   L' (dF/dK) L = by_K - sym sum_i (W_i - s_i a_i) a_i',   dF/dkappa = sum_i s_i.

A function of (a_i, s_i) alone that no rotation of all a_i changes has W_i = dF/da_i, by_K = sym sum_i W_i a_i' / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.spatial.distance import cdist

from fast.core.blocks import in_tiles
from fast.core.hyper import ClassHyper
from fast.core.linalg import cholesky, factorise, invert_lower, solve_rows, solve_vector, squared_norms
from fast.core.results import ScalarMoments
from fast.core.types import FloatArray
from fast.kernel.kernels import KernelGradient, PreparedKernel, ProductSums, gram
from fast.solve.natural import factor_precision

REMEDY = "raise jitter or remove duplicate rows of Z"
# From so many inputs on, distances come from matrix products where their error is bounded (see `fast.kernel.kernels`).
_PRODUCTS_FROM = 64


class PointGradients(NamedTuple):
    """Gradient of a scalar with respect to the priors of all classes; shared: every row holds the sum."""

    variance: FloatArray  # (C,)
    lengthscales: FloatArray  # (C, d)
    noise: FloatArray  # (C,)
    Z: FloatArray  # (C, m, d)


class ClassView(NamedTuple):
    """Data seen through the inducing points; arrays of one class each, or one for all if the kernel is shared."""

    X: FloatArray  # (b, d)
    rows: tuple[FloatArray, ...]  # (b, m) each: a_i
    cond_var: FloatArray  # (b, C): s_i
    K_XZ: tuple[FloatArray, ...]  # (b, m) each, or empty


class _StepKernel(PreparedKernel):
    """A kernel of one step: nothing is prepared that products do not need, and the last inputs are scaled once."""

    def __init__(self, Z: FloatArray, variance: float, lengthscales: FloatArray) -> None:
        self._last: tuple[FloatArray, FloatArray | None] | None = None
        super().__init__(Z, variance, lengthscales)

    def _scale(self, X: FloatArray) -> FloatArray:
        return X

    def _squared(self, X: FloatArray) -> FloatArray:
        scaled, centres = PreparedKernel._scale(self, X), PreparedKernel._scale(self, self.Z)
        squared: FloatArray = cdist(scaled, centres, "sqeuclidean", w=self._weights)
        return squared

    def _units(self, X: FloatArray) -> FloatArray | None:
        if X is self.Z and "_t_Z" in self.__dict__:
            return self._t_Z
        if self._last is None or self._last[0] is not X:
            self._last = (X, super()._units(X))
        return self._last[1]


class InducingClasses:
    """Kernel, K_ZZ and its factor for each class; with one kernel for all classes they exist once.

    hyper          parameters of the classes
    Z              (C, m, d)
    shared         one parameter vector and one Z: the rows of both are equal, and the first is used
    in_a_step      the factorisation is one of many: its condition is not estimated
    """

    def __init__(self, hyper: ClassHyper, Z: FloatArray, shared: bool, *, in_a_step: bool = False) -> None:
        self.hyper, self.Z, self.shared = hyper, Z, shared
        self.n_classes, self.m, self.d = Z.shape
        self.kind = [0] * self.n_classes if shared else list(range(self.n_classes))
        self.n_kinds = 1 if shared else self.n_classes
        self.kernels: list[PreparedKernel] = []
        self.K_ZZ: list[FloatArray] = []  # k(Z, Z), no jitter
        self.chol_K: list[FloatArray] = []
        self.by_product = self.d >= _PRODUCTS_FROM
        for k in range(self.n_kinds):
            one = hyper.of(k)
            kernel = (_StepKernel if self.by_product else PreparedKernel)(Z[k], one.variance, one.lengthscales)
            if in_a_step and self.by_product:
                K_ZZ = kernel.cross_by_product(kernel.Z)
            else:
                K_ZZ = gram(Z[k], one.variance, one.lengthscales, 0.0, 0.0)
            matrix = np.array(K_ZZ, order="F")
            matrix.flat[:: self.m + 1] += one.jitter
            name = "K_ZZ" if shared else f"K_ZZ of class {k}"
            self.kernels.append(kernel)
            self.K_ZZ.append(K_ZZ)
            self.chol_K.append((factorise if in_a_step else cholesky)(matrix, name, REMEDY))

    @property
    def prior_var(self) -> FloatArray:
        """kappa, noise included: (C,)."""
        return self.hyper.variance + self.hyper.noise

    def view(self, X: FloatArray, *, with_cross: bool = False, whole_tiles: bool = False) -> ClassView:
        """Project a block of data. Time O(b m (m + d)) for each distinct kernel.

        Parameters
        ----------
        X : (b, d)             finite
        with_cross : bool      keep k(X, Z), which a gradient needs
        whole_tiles : bool     pad to whole tiles: rows then do not depend on how the data are cut
        """
        b = X.shape[0]
        rows, kept, norms = [], [], np.empty((b, self.n_kinds))
        for k in range(self.n_kinds):
            K_XZ = self.kernels[k].cross_by_product(X) if self.by_product else self.kernels[k].cross(X)
            work = in_tiles(K_XZ) if whole_tiles else K_XZ.copy() if with_cross else K_XZ  # the solve overwrites it
            if with_cross:
                kept.append(K_XZ)
            a = solve_rows(self.chol_K[k], work)[:b]
            rows.append(a)
            norms[:, k] = squared_norms(a)
        left = self.hyper.variance[: self.n_kinds] - norms  # rounding may leave less than nothing
        cond_var = np.maximum(left, 0.0) + self.hyper.noise[: self.n_kinds]
        if self.shared:
            cond_var = np.repeat(cond_var, self.n_classes, axis=1)
        return ClassView(X, tuple(rows), cond_var, tuple(kept))

    def inducing_moments(self, q: ClassDistribution) -> tuple[FloatArray, FloatArray]:
        """Mean L p (C, m) and covariance L P^-1 L' (C, m, m) of u under q.

        Parameters
        ----------
        q      q(v)
        """
        C, m = self.n_classes, self.m
        mean, cov = np.empty((C, m)), np.empty((C, m, m))
        for k in range(C):
            L = self.chol_K[self.kind[k]]
            whitened = solve_rows(q.factor[k], np.array(L, order="C"))
            mean[k], cov[k] = L @ q.weights[k], whitened @ whitened.T
        return mean, cov


class ClassDistribution:
    """q(v) of each class by its natural parameters: precision P (C, m, m) and shift w (C, m)."""

    def __init__(self, precision: FloatArray, shift: FloatArray, factor: list[FloatArray]) -> None:
        self.precision, self.shift, self.factor = precision, shift, factor
        self.half_shift = np.array([solve_vector(R, w) for R, w in zip(factor, shift, strict=True)])  # R^-1 w
        self.weights = np.array(
            [solve_vector(R, w, transposed=True) for R, w in zip(factor, self.half_shift, strict=True)]
        )
        self._covariance: dict[int, FloatArray] = {}
        self._halved: tuple[ClassView, list[FloatArray]] | None = None  # R^-1 a_i of the batch projected last

    def __getstate__(self) -> dict[str, Any]:
        """What can be had again is not pickled, least of all rows of data."""
        return {**self.__dict__, "_covariance": {}, "_halved": None}

    @classmethod
    def of(cls, precision: FloatArray, shift: FloatArray) -> ClassDistribution:
        """Factorise every class. Time C m^3 / 3.

        Parameters
        ----------
        precision : (C, m, m)    P >= I
        shift : (C, m)           w
        """
        return cls(precision, shift, [factor_precision(P) for P in precision])

    @classmethod
    def prior(cls, n_classes: int, m: int) -> ClassDistribution:
        """q = p.

        Parameters
        ----------
        n_classes : int
        m : int            inducing points of a class
        """
        return cls.of(np.tile(np.eye(m), (n_classes, 1, 1)), np.zeros((n_classes, m)))

    @property
    def log_det(self) -> FloatArray:
        """log|P| of each class: (C,)."""
        return np.array([2.0 * float(np.log(R.diagonal()).sum()) for R in self.factor])

    @property
    def shift_norm(self) -> FloatArray:
        """w'P^-1 w of each class: (C,)."""
        return squared_norms(self.half_shift)

    def project(self, view: ClassView) -> ScalarMoments:
        """Mean a_i'p and variance |R^-1 a_i|^2 of every projection: (b, C). Time C b m^2.

        Parameters
        ----------
        view    data
        """
        mean, var = np.empty(view.cond_var.shape), np.empty(view.cond_var.shape)
        work = np.empty(view.rows[0].shape)  # of all classes, one after the other
        kept: list[FloatArray] | None = [] if self._few(view) else None
        for k in range(len(self.factor)):
            if kept is not None:
                work = np.empty(view.rows[0].shape)
                kept.append(work)
            work[:] = view.rows[k if len(view.rows) > 1 else 0]
            halved = solve_rows(self.factor[k], work)
            mean[:, k] = halved @ self.half_shift[k]
            var[:, k] = squared_norms(halved)
        self._halved = None if kept is None else (view, kept)
        return ScalarMoments(mean, var)

    @staticmethod
    def _few(view: ClassView) -> bool:
        """Whether solves for the rows of a view are cheaper than the inverse and a product with it."""
        b, m = view.rows[0].shape
        return b <= 2 * m

    def covariance(self, k: int) -> FloatArray:
        """S = P^-1 of a class: (m, m), not to be written to. Time m^3 / 2, once.

        Parameters
        ----------
        k : int    class
        """
        S = self._covariance.get(k)
        if S is None:
            inverse = invert_lower(self.factor[k])
            S = self._covariance[k] = inverse.T @ inverse
        return S

    def times_covariance(self, view: ClassView, k: int) -> FloatArray:
        """S a_i of a class in rows: (b, m), to be written to. Time b m^2, and m^3 / 2 where S is needed for it.

        Parameters
        ----------
        view       data
        k : int    class
        """
        rows = view.rows[k if len(view.rows) > 1 else 0]
        if k in self._covariance or not self._few(view):
            product: FloatArray = rows @ self.covariance(k)
            return product
        if self._halved is not None and self._halved[0] is view:
            halved = self._halved[1][k].copy()
        else:
            halved = solve_rows(self.factor[k], np.array(rows))
        return solve_rows(self.factor[k], halved, transposed=True)


def add_projected(
    precision: FloatArray, shift: FloatArray, view: ClassView, delta: FloatArray, mu_tilde: FloatArray
) -> None:
    """Add sum_i delta_i a_i a_i' to P and sum_i mu_tilde_i a_i to w, in place, class by class. Time C b m^2.

    In coordinates of u this is Upsilon Delta Upsilon' and Upsilon mu_tilde of villacampa2017 (25).

    Parameters
    ----------
    precision : (C, m, m)      symmetric; C order
    shift : (C, m)
    view                       data
    delta, mu_tilde : (b, C)   of any sign
    """
    scaled = np.empty(view.rows[0].shape)  # of all classes, one after the other
    for k in range(precision.shape[0]):
        rows, weight = view.rows[k if len(view.rows) > 1 else 0], delta[:, k]
        shift[k] += rows.T @ mu_tilde[:, k]
        # of one sign: an array and its transpose, of which BLAS computes one triangle
        if (weight >= 0.0).all():
            np.multiply(rows, np.sqrt(weight)[:, None], out=scaled)
            precision[k] += scaled.T @ scaled
        elif (weight <= 0.0).all():
            np.multiply(rows, np.sqrt(-weight)[:, None], out=scaled)
            precision[k] -= scaled.T @ scaled
        else:
            added = rows.T @ np.multiply(rows, weight[:, None], out=scaled)
            precision[k] += 0.5 * (added + added.T)


class VectorJacobianProduct:
    """Gradient of a scalar through (upsilon, s, K) of all classes, block by block; see the text of the module."""

    def __init__(self, points: InducingClasses) -> None:
        self.points = points
        kinds, m, d = points.n_kinds, points.m, points.d
        self._variance, self._noise = np.zeros(kinds), np.zeros(kinds)
        # P't of the sums, then the gradient in Z: with many inputs nothing else is as large
        self._lengthscales, self._Z = np.zeros((kinds, d)), np.empty((kinds, m, d))
        self._cross = np.zeros((kinds, m, m))
        # of blocks near enough for products: one pass over the inputs of Z then serves k(X, Z) and k(Z, Z)
        self._sums: dict[int, ProductSums] = {}
        self._far: dict[int, FloatArray] = {}  # the gradient in Z through other blocks

    def add(self, view: ClassView, by_upsilon: Callable[[int], FloatArray], by_cond_var: FloatArray) -> None:
        """Take in the cotangents of a block. Time O(b m (m + d)) for each distinct kernel.

        Parameters
        ----------
        view                        with k(X, Z)
        by_upsilon : callable       class -> (b, m), L^-1 dF/dupsilon_i in rows; overwritten
        by_cond_var : (b, C)        dF/ds_i
        """
        points = self.points
        for kind in range(points.n_kinds):
            classes = range(points.n_classes) if points.shared else (kind,)
            by_s = by_cond_var.sum(axis=1) if points.shared else by_cond_var[:, kind]
            W: FloatArray | None = None
            for k in classes:
                part = by_upsilon(k)
                if W is None:
                    W = part
                else:
                    W += part
            assert W is not None
            a, moved = view.rows[kind], by_s[:, None] * view.rows[kind]
            W -= moved
            self._cross[kind] -= W.T @ a
            W -= moved
            W = solve_rows(points.chol_K[kind], W, transposed=True)
            total = float(by_s.sum())
            self._variance[kind] += total
            self._noise[kind] += total
            W *= view.K_XZ[kind]
            kernel, before = points.kernels[kind], self._sums.get(kind)
            sums = kernel.sums(W, view.X, self._Z[kind] if before is None else None)
            if sums is None:
                part_k = kernel.vjp(W, view.X)
                self._take(kind, part_k)
                self._far[kind] = self._far.get(kind, 0.0) + part_k.X2
            elif before is None:
                self._sums[kind] = sums
            else:
                before.add(sums)

    def _take(self, kind: int, part: KernelGradient) -> None:
        self._variance[kind] += part.variance
        self._lengthscales[kind] += part.lengthscales

    def add_distribution(
        self,
        view: ClassView,
        q: ClassDistribution,
        by_mean: FloatArray,
        by_covariance: FloatArray,
        by_cond_var: FloatArray,
    ) -> None:
        """Take in a block that looks at the inducing values through upsilon_i'm and upsilon_i'V, q held still.

        L^-1 dF/dupsilon_i is by_mean_i times the mean of v plus by_covariance_i times S a_i; a variance upsilon'V
        upsilon has twice its derivative for by_covariance. Time O(C b m^2 + b m d).

        Parameters
        ----------
        view                                    with k(X, Z)
        q                                       of v
        by_mean, by_covariance, by_cond_var : (b, C)
        """

        def by_upsilon(k: int) -> FloatArray:
            W = q.times_covariance(view, k)
            W *= by_covariance[:, k, None]
            W += np.multiply.outer(by_mean[:, k], q.weights[k])
            return W

        self.add(view, by_upsilon, by_cond_var)

    def finish(self, by_K: Callable[[int], FloatArray]) -> PointGradients:
        """The gradient, with what F owes to K directly. Time O(m^2 (m + d)) for each distinct kernel.

        Parameters
        ----------
        by_K : callable    class -> (m, m), L' (dF/dK) L, symmetric
        """
        points, C = self.points, self.points.n_classes
        for kind in range(points.n_kinds):
            cross = self._cross[kind]
            total = 0.5 * (cross + cross.T)
            for k in range(C) if points.shared else (kind,):
                total += by_K(k)
            L = points.chol_K[kind]
            outer = dtrsm(1.0, L, total.T, side=0, lower=1, trans_a=1, overwrite_b=1)
            outer = dtrsm(1.0, L, outer, side=1, lower=1, overwrite_b=1).T
            kernel = points.kernels[kind]
            outer *= points.K_ZZ[kind]
            sums = self._sums.pop(kind, None)
            if sums is None:
                part = kernel.vjp(outer, kernel.Z)
                # each entry of K_ZZ holds two inducing points: the product in the second argument is half of it
                np.multiply(part.X2, 2.0, out=self._Z[kind])
            else:
                part = kernel.vjp_of_sums(sums, outer)  # its X2 is self._Z[kind]
            self._take(kind, part)
            if kind in self._far:
                self._Z[kind] += self._far.pop(kind)
        results = (self._variance, self._lengthscales, self._noise, self._Z)
        if points.shared:
            return PointGradients(*(np.repeat(part, C, axis=0) for part in results))
        return PointGradients(*results)
