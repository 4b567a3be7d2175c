"""q(u) at its optimum for local quadratic bounds of the likelihood, data in blocks, nothing of size n m held.

With constant_i + shift_i f - precision_i f^2 / 2 for log p(y_i | f), T = diag(precision), whitened as in
`fast.one_latent.prior`,

    B = I + A T A' = R R',   w = R^-1 A shift,   q(v) = N(R^-T w, B^-1),
    J = sum_i [constant_i - precision_i cond_var_i / 2] + |w|^2 / 2 - log|B| / 2.

izmailov2016 (12), (13), (14) for Jaakkola and Jordan's bound and (17), (18), (19) for the expansion, every constant in;
there Sigma = L B^-1 L', mu = L R^-T w, and log|K_ZZ| - log|B_paper| = -log|B|.
A sweep takes the local parameters from the q before and q from them in one visit of every block.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg.blas import dsyrk

from fast.core.blocks import block_edges, in_tiles, padded
from fast.core.inputs import Hyper
from fast.core.linalg import cholesky, solve_rows, solve_vector, squared_norms
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.kernel.kernels import gram
from fast.ledger import equation
from fast.likelihood.quadratic_bounds import Quadratic
from fast.one_latent.hyper import quadratic_gradients
from fast.one_latent.prior import _CACHED_NUMBERS, Evaluation, FullPrior, SparsePrior, Whitened
from fast.one_latent.site_gradients import full_site_gradients
from fast.one_latent.sites import condition
from fast.solve.natural import factor_precision, move_kernel


class LocalQuadratic(Protocol):
    """A family of quadratics, one local parameter xi a datum."""

    def at(self, y_sign: FloatArray, xi: FloatArray) -> Quadratic:
        """The quadratic at xi: (b,) each."""

    def local(self, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """xi from the moments of q(f_i): (b,)."""


class Collapsed(NamedTuple):
    """q(v) at its optimum given xi, and the bound there."""

    factor: FloatArray  # R, (m, m) or (n, n)
    natural: FloatArray  # A shift, (m,); full: shift (n,)
    weights: FloatArray  # p = R^-T w (m,); full: alpha (n,)
    value: float


class Factored(NamedTuple):
    """A q(v) whose moments are asked for: E f = a'R^-T w, Var f = cond_var + |R^-1 a|^2 (R' for R if transposed)."""

    factor: FloatArray
    half_mean: FloatArray  # w
    transposed: bool


class Sweep(NamedTuple):
    """Where a sweep led."""

    end: Collapsed
    change: float  # largest change of xi_i in units of sqrt(E f_i^2) under the q before


class BlockPrior(SparsePrior):
    """`prior.SparsePrior` that looks at a block when it is first needed, so that building it costs m^3/3."""

    def __init__(self, X: Any, y_sign: FloatArray, Z: FloatArray, hyper: Hyper, block_size: int, budget: int) -> None:
        n, m = y_sign.size, Z.shape[0]
        self.X, self.y_sign, self.Z, self.hyper = X, y_sign, Z, hyper
        self.budget = budget
        self.block_size = min(block_size, max(512, _CACHED_NUMBERS // m))
        self.chol_K = cholesky(
            gram(Z, hyper.variance, hyper.lengthscales, 0.0, hyper.jitter, hyper.smoothness),
            "K_ZZ",
            "raise jitter or remove duplicate rows of Z",
        )
        self.cached = np.empty((padded(n), m)) if 8 * padded(n) * m <= budget else None
        self.cond_var = np.empty(n)
        self._seen: set[int] = set()

    def look(self, start: int, stop: int) -> Whitened:
        """Rows a_i and what they leave open: (b, m), (b,); views of what is kept, or fresh."""
        if start not in self._seen:
            rows, self.cond_var[start:stop] = self._compute(start, stop)
            if self.cached is None:
                return Whitened(rows, self.cond_var[start:stop])
            self.cached[start:stop] = rows
            self._seen.add(start)
        assert self.cached is not None
        return Whitened(self.cached[start:stop], self.cond_var[start:stop])

    def rows(self, start: int, stop: int) -> FloatArray:
        """a_i for a block: (b, m)."""
        return self.look(start, stop).rows


Prepared = BlockPrior | FullPrior


def unit_covariance(prior: BlockPrior) -> Factored:
    """q(u) = N(0, I), the start of Algorithm 1: E f = 0, Var f = cond_var + |L^-T a|^2.

    Parameters
    ----------
    prior    the training data
    """
    return Factored(prior.chol_K, np.zeros(prior.Z.shape[0]), True)


def factored(end: Collapsed) -> Factored:
    """The q of a sweep, for the next one.

    Parameters
    ----------
    end    of the sweep before
    """
    return Factored(end.factor, solve_vector(end.factor, end.natural), False)


def carried(end: Collapsed, chol_K: FloatArray, new_chol_K: FloatArray) -> Factored:
    """The same mu and Sigma seen under another kernel. Time 4 m^3.

    Parameters
    ----------
    end                     of the sweep before
    chol_K : (m, m)         L it was whitened with
    new_chol_K : (m, m)     L of the new kernel
    """
    moved = move_kernel(end.natural, end.factor @ end.factor.T, chol_K, new_chol_K)
    factor = factor_precision(moved.precision)
    return Factored(factor, solve_vector(factor, moved.shift), False)


def block_moments(q: Factored, leaf_data: Whitened, buffer: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of f_i over a block: izmailov2016 (10), whitened. Time b m^2.

    Parameters
    ----------
    q                 q(v)
    leaf_data                  rows and cond_var of the block
    buffer : (b, m)        padded; overwritten
    """
    size = leaf_data.rows.shape[0]
    whitened = solve_rows(q.factor, in_tiles(leaf_data.rows, buffer), transposed=q.transposed)[:size]
    return whitened @ q.half_mean, squared_norms(whitened) + leaf_data.cond_var


@equation("izmailov2016", "12", "13", "14", "17", "18", "19")
def optimum(precision: FloatArray, natural: FloatArray, constant: float) -> Collapsed:
    """R, R^-T R^-1 natural and J: izmailov2016 (12)-(14), or (17)-(19), whitened. Time m^3/3.

    Parameters
    ----------
    precision : (m, m)    B = I + A T A', lower triangle
    natural : (m,)        A shift
    constant : float      sum_i [constant_i - precision_i cond_var_i / 2]
    """
    factor = cholesky(precision, "B = I + A T A'", "lower variance or raise jitter")
    shift = solve_vector(factor, natural)
    log_det = 2.0 * float(np.log(factor.diagonal()).sum())
    value = constant + 0.5 * (float(shift @ shift) - log_det)
    return Collapsed(factor, natural, solve_vector(factor, shift, transposed=True), value)


def sweep(prior: BlockPrior, local_quadratic: LocalQuadratic, xi: FloatArray, q: Factored | None = None) -> Sweep:
    """q at its optimum given xi; if a q is given, xi is taken from it first and written into the array.

    One visit of every block. Calls a block: (dtrsm (m, m) with (m, b), squared norms, product with a vector,) the
    bound (b,), scaling (b, m), dsyrk (m, b), product with a vector; once dpotrf (m, m). Memory O(m^2 + block m).

    Parameters
    ----------
    prior         the training data
    local_quadratic       family of quadratics
    xi : (n,)     local parameters, overwritten if a q is given
    q        q before, or None: xi as it is

    Raises
    ------
    ValueError    a local parameter that is not finite
    """
    n, m = xi.size, prior.Z.shape[0]
    buffer = np.empty((min(padded(n), padded(prior.block_size)), m))
    B, natural = np.eye(m, order="F"), np.zeros(m)
    constant = change = 0.0
    for start, stop in block_edges(n, prior.block_size):
        projected, part = prior.look(start, stop), slice(start, stop)
        if q is not None:
            mean, var = block_moments(q, projected, buffer)
            result = local_quadratic.local(mean, var)
            if not np.isfinite(result).all():
                raise ValueError(
                    f"xi: found {result[~np.isfinite(result)][0]}, expected finite numbers; rescale variance"
                )
            change = max(change, float((np.abs(result - xi[part]) / np.hypot(mean, np.sqrt(var))).max()))
            xi[part] = result
        quadratic = local_quadratic.at(prior.y_sign[part], xi[part])
        constant += float(quadratic.constant.sum()) - 0.5 * float(quadratic.precision @ projected.cond_var)
        natural += quadratic.shift @ projected.rows
        scaled = np.multiply(projected.rows, np.sqrt(quadratic.precision)[:, None], out=buffer[: stop - start])
        B = dsyrk(1.0, scaled.T, beta=1.0, c=B, lower=1, overwrite_c=1)
    return Sweep(optimum(B, natural, constant), change)


def evaluate(prior: Prepared, local_quadratic: LocalQuadratic, xi: FloatArray) -> Evaluation:
    """q at its optimum given xi, the moments of every f_i under it, and the bound.

    Sparse: time 2 n m^2 + m^3/3, in two visits. Full: 5 n^3/3.

    Parameters
    ----------
    prior         the training data
    local_quadratic       family of quadratics
    xi : (n,)     local parameters
    """
    quadratic = local_quadratic.at(prior.y_sign, xi)
    sites = condition(prior, quadratic.precision, quadratic.shift)
    # asked for after the first visit of every block
    open_var: Any = 0.0 if isinstance(prior, FullPrior) else prior.cond_var
    constant = float(quadratic.constant.sum()) - 0.5 * float(np.sum(quadratic.precision * open_var))
    value = constant + 0.5 * (sites.site_norm - sites.log_det)
    return Evaluation(sites.factor, sites.weights, sites.proj_mean, sites.proj_var + open_var, value)


def collapsed(prior: Prepared, local_quadratic: LocalQuadratic, xi: FloatArray) -> Collapsed:
    """`sweep` at given xi, or its like for a full GP.

    Parameters
    ----------
    prior         the training data
    local_quadratic       family of quadratics
    xi : (n,)     local parameters
    """
    if not isinstance(prior, FullPrior):
        return sweep(prior, local_quadratic, xi).end
    result = evaluate(prior, local_quadratic, xi)
    return Collapsed(result.factor, local_quadratic.at(prior.y_sign, xi).shift, result.weights, result.elbo)


def moments(prior: BlockPrior, q: Factored) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of every f_i: (n,) each. Time n m^2.

    Parameters
    ----------
    prior     the training data
    q    q(v)
    """
    n, m = prior.y_sign.size, prior.Z.shape[0]
    buffer = np.empty((min(padded(n), padded(prior.block_size)), m))
    mean, var = np.empty(n), np.empty(n)
    for start, stop in block_edges(n, prior.block_size):
        mean[start:stop], var[start:stop] = block_moments(q, prior.look(start, stop), buffer)
    return mean, var


@equation("izmailov2016", "u4.1-Jhat-gradient")
def gradients_at(
    prior: Prepared, local_quadratic: LocalQuadratic, xi: FloatArray, factor: FloatArray, weights: FloatArray
) -> Gradients:
    """Gradient of J, xi held and q at its optimum, in variance, lengthscales, noise and Z: izmailov2016 (14) and (19).

    J is stationary in q there, so only its explicit dependence on the kernel counts. Time O(n m (m + d) + m^3).

    Parameters
    ----------
    prior         the training data
    local_quadratic       family of quadratics
    xi : (n,)     local parameters
    factor        R at these
    weights       p, or alpha
    """
    precision, shift = np.empty(xi.size), np.empty(xi.size)
    for start, stop in block_edges(xi.size, prior.block_size):  # nothing else of length n
        quadratic = local_quadratic.at(prior.y_sign[start:stop], xi[start:stop])
        precision[start:stop], shift[start:stop] = quadratic.precision, quadratic.shift
    if isinstance(prior, FullPrior):
        return full_site_gradients(prior, factor, weights, precision)
    return quadratic_gradients(prior, precision, shift, factor, weights)
