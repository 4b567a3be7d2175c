"""x-gpc and vi-jj on data in parts: q(u) by sums over leaves. wenzel2019, 4.3; izmailov2016, (10), (12)-(15).

A sweep takes the local parameters from the q before, so no number a datum is kept between sweeps. Of each leaf come

    sum_i precision_i a_i a_i',   sum_i shift_i a_i,   sum_i [constant_i - precision_i cond_var_i / 2]

(`fast.one_latent.quadratic_sweep`): m (m + 1) / 2 + m + 1 numbers up a node, as many down to each worker for q. Plain
sweeps from the prior; their fixed point is that of `fast.methods.x_gpc` and `fast.methods.vi_jj`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from fast.blockwise.classes import packed, unpacked
from fast.blockwise.engines import Visit, spread, streamed
from fast.blockwise.kept import kept
from fast.blockwise.rows import Leaf, Rows
from fast.core import inputs
from fast.core.blocks import block_edges, padded
from fast.core.inputs import Hyper
from fast.core.linalg import cholesky, solve_rows, solve_vector
from fast.core.types import FloatArray
from fast.core.values import Prior, checked_hyper
from fast.kernel.kernels import gram
from fast.likelihood.polya_gamma import log_cosh, pg_mean, update_local
from fast.likelihood.quadratic_bounds import Quadratic
from fast.methods.vi_jj import Bound
from fast.one_latent.links import link_of
from fast.one_latent.predict import Prediction, ProbitPrediction, sparse_latent
from fast.one_latent.prior import Whitened, whiten
from fast.one_latent.quadratic_sweep import Collapsed, LocalQuadratic, block_moments, factored, optimum
from fast.one_latent.quadratic_sweep import Factored as Given

_TILE = 1024  # rows that are projected at a time
_PATIENCE = 20  # sweeps without a smaller step, after which rounding is what is left
ROUNDED = 1e-9  # below this step, ratios of steps may show rounding rather than contraction


class PolyaGamma:
    """The bound of x-gpc as quadratics in f: wenzel2019 (10), every constant in it."""

    def at(self, y_sign: FloatArray, xi: FloatArray) -> Quadratic:
        """-log 2 + c^2 theta / 2 - log cosh(c / 2), y / 2 and theta = E[omega]: (b,) each."""
        constant = 0.25 * xi * np.tanh(0.5 * xi) - log_cosh(0.5 * xi) - np.log(2.0)
        return Quadratic(constant=constant, shift=0.5 * y_sign, precision=pg_mean(xi))

    def local(self, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """(11): (b,)."""
        return update_local(latent_mean, latent_var)


# with the prior held, what tells vi-jj-hybrid and vi-jj-full from vi-jj is not asked for: one fixed point, plain sweeps
METHODS: dict[str, Callable[[], LocalQuadratic]] = {
    "x-gpc": PolyaGamma,
    "vi-jj": Bound,
    "vi-jj-full": Bound,
    "vi-jj-hybrid": Bound,
}


@dataclass(frozen=True, eq=False)
class Inducing:
    """The prior seen through inducing points, as every worker has it."""

    Z: FloatArray  # (m, d)
    hyper: Hyper
    chol_K: FloatArray  # noqa: N815 - (m, m)

    def whiten(self, X: FloatArray) -> Whitened:
        """Rows of A' and what they leave open, of some inputs (b, d)."""
        hyper = self.hyper
        return whiten(X, self.Z, self.chol_K, hyper.variance, hyper.lengthscales, hyper.noise, hyper.smoothness)


class Seen(NamedTuple):
    """A leaf where it lives: its rows are read, or read again, tile by tile."""

    leaf: Leaf
    X: Any  # (b, d), as the leaf gives it
    y_sign: FloatArray  # (b,)
    points: Inducing
    method: str

    def tiles(self) -> Iterator[tuple[int, int, Whitened]]:
        """First and last row of a tile, and its rows of A'. Time O(b m (m + d))."""
        for start, stop in block_edges(self.leaf.size, _TILE):
            rows = inputs.finite_rows("X", self.X[start:stop], self.leaf.first + start)
            yield start, stop, self.points.whiten(rows)


class State(NamedTuple):
    """What a sweep brings: q before, its factor as a packed lower triangle."""

    packed: FloatArray  # (m (m + 1) / 2,)
    half_mean: FloatArray  # (m,)


def look(leaf: Leaf, *, points: Inducing, method: str) -> Seen:
    """Labels checked, inputs found where they are.

    Parameters
    ----------
    leaf           of the data
    points         inducing points
    method : str   its id

    Raises
    ------
    ValueError    by name, with the number of the row among all
    """
    X, y = leaf.inputs(), leaf.labels()
    if X.shape[0] != leaf.size or y.shape != (leaf.size,):
        raise ValueError(f"X: found {X.shape[0]} rows and {y.shape} labels from row {leaf.first}, expected {leaf.size}")
    if y.dtype.kind not in "iub":
        raise ValueError(f"y: found dtype {y.dtype} from row {leaf.first}, expected integers 0 and 1")
    wrong = (y != 0) & (y != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"y: found {y[row]} in row {leaf.first + row}, expected 0 or 1")
    for start, stop in block_edges(leaf.size, _TILE):
        inputs.finite_rows("X", X[start:stop], leaf.first + start)
    return Seen(leaf, X, np.where(y == 1, 1.0, -1.0), points, method)


def given_of(state: State) -> Given:
    """The q that a sweep brings, its factor as a matrix.

    Parameters
    ----------
    state    of the sweep
    """
    return Given(unpacked(state.packed, state.half_mean.size), state.half_mean, False)


def leaf_sums(leaf_data: Seen, given: Given) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The sums of one leaf. Time 2 b m^2 and the kernel, memory O(m^2 + a tile).

    Parameters
    ----------
    leaf_data    the leaf
    given    q before
    """
    points, local_quadratic = leaf_data.points, METHODS[leaf_data.method]()
    m = points.Z.shape[0]
    buffer = np.empty((padded(min(_TILE, leaf_data.leaf.size)), m))
    B, natural = np.zeros((m, m), order="F"), np.zeros(m)
    constant = 0.0
    for start, stop, part in leaf_data.tiles():
        xi = local_quadratic.local(*block_moments(given, part, buffer))
        if not np.isfinite(xi).all():
            row = leaf_data.leaf.first + start + int(np.argmin(np.isfinite(xi)))
            raise ValueError(f"xi: found {xi[~np.isfinite(xi)][0]} at row {row}, expected a number; rescale variance")
        quadratic = local_quadratic.at(leaf_data.y_sign[start:stop], xi)
        constant += float(quadratic.constant.sum()) - 0.5 * float(quadratic.precision @ part.cond_var)
        natural += quadratic.shift @ part.rows
        scaled = np.multiply(part.rows, np.sqrt(quadratic.precision)[:, None], out=buffer[: stop - start])
        B = dsyrk(1.0, scaled.T, beta=1.0, c=B, lower=1, overwrite_c=1)
    return packed(B), natural, np.array([constant])


SWEEP = Visit(given_of, leaf_sums)


@dataclass(frozen=True, eq=False)
class BlockwisePosterior:
    """q(u) where the sweeps stopped; nothing of the size of the data."""

    points: Inducing
    method: str
    end: Collapsed
    trace: FloatArray  # bound after each sweep; vi-taylor: Psi at the start and after each step
    residual: float  # estimated relative distance of every local parameter from the fixed point
    converged: bool
    likelihood: str = "logit"  # link of the predictions

    @property
    def elbo(self) -> float:
        """Lower bound on log p(y), every constant in it."""
        return self.end.value

    @property
    def inducing_mean(self) -> FloatArray:
        """mu: (m,)."""
        return self.points.chol_K @ self.end.weights

    @property
    def inducing_cov(self) -> FloatArray:
        """Sigma: (m, m)."""
        whitened = solve_rows(self.end.factor, np.array(self.points.chol_K, order="C"))
        return whitened @ whitened.T


@dataclass(frozen=True)
class BlockwiseOptions:
    """How a batch method on data in parts iterates.

    tolerance         largest relative distance of a local parameter from the fixed point
    max_iterations    sweeps after which to give up
    callback          called with (sweep, bound, step) after every sweep
    """

    tolerance: float = 1e-8
    max_iterations: int = 1000
    callback: Callable[[int, float, float], None] | None = None


DEFAULTS = BlockwiseOptions()


def checked_options(options: object) -> tuple[float, int]:
    """Tolerance and most sweeps.

    Parameters
    ----------
    options    how to iterate

    Raises
    ------
    TypeError     options of the array path, which may ask for more
    ValueError    by name
    """
    if not isinstance(options, BlockwiseOptions):
        raise TypeError(
            f"options: found {type(options).__name__}, expected BlockwiseOptions: on data in parts sweeps are plain, "
            "and nothing is learned"
        )
    most = inputs.count("max_iterations", options.max_iterations)
    return inputs.scalar("tolerance", options.tolerance, positive=True), most


def inducing(prior: Prior, n_columns: int) -> Inducing:
    """The prior checked, and K_ZZ factorised. Time m^3 / 3.

    Parameters
    ----------
    prior : Prior    of one latent function, with inducing points
    n_columns : int  inputs, d
    """
    if prior.Z is None:
        raise ValueError("Z: found None, expected inducing points (m, d): data in parts have no full Gaussian process")
    hyper = checked_hyper(prior, n_columns)
    Z = inputs.finite_rows("Z", inputs.inputs("Z", prior.Z, n_columns))
    K_ZZ = gram(Z, hyper.variance, hyper.lengthscales, 0.0, hyper.jitter, hyper.smoothness)
    return Inducing(Z, hyper, cholesky(K_ZZ, "K_ZZ", "raise jitter or remove duplicate rows of Z"))


def fit(
    method: str,
    rows: Rows,
    prior: Prior,
    options: BlockwiseOptions = DEFAULTS,
    *,
    client: Any = None,
    checkpoint: str | PathLike[str] | None = None,
) -> BlockwisePosterior:
    """x-gpc, vi-jj or its kin to the fixed point, on leaves here or on the workers of a Dask cluster.

    Parameters
    ----------
    method : str     one of `METHODS`
    rows : Rows      from `fast.blockwise.rows.rows_of`, labels 0 and 1
    prior : Prior    of one latent function, with inducing points
    options          how to iterate
    client           a dask.distributed.Client; None: this process. The digits are the same
    checkpoint : path  folder where sums of sweeps are kept, from which the same call goes on; None: nowhere

    Raises
    ------
    ValueError                  bad input, by name and row
    NotPositiveDefiniteError    K_ZZ is singular
    ClusterLostError            the scheduler is lost
    OSError                     no room for a checkpoint
    """
    inputs.one_of("method", method, tuple(METHODS))
    tolerance, most = checked_options(options)
    points = inducing(prior, rows.d)
    m = points.Z.shape[0]
    before = Collapsed(np.eye(m, order="F"), np.zeros(m), np.zeros(m), -np.inf)
    B_before = np.eye(m)
    trace: list[float] = []
    steps: list[float] = []
    with spread(rows, partial(look, points=points, method=method), client) as leaves:
        leaves = kept(leaves, checkpoint, method, prior, options)
        while True:
            given = factored(before)
            B, natural, constant = leaves.total(SWEEP, State(packed(given.factor), given.half_mean))
            precision = unpacked(B, m)
            precision.flat[:: m + 1] += 1.0
            end = optimum(precision, natural, float(constant[0]))
            full = np.tril(precision) + np.tril(precision, -1).T
            steps.append(_step(before, end, full - B_before, natural - before.natural))
            trace.append(end.value)
            before, B_before = end, full
            residual = estimated_distance(steps)
            if options.callback is not None:
                options.callback(len(trace), end.value, steps[-1])
            stalled = len(steps) > _PATIENCE and steps[-1] <= ROUNDED and min(steps[-_PATIENCE:]) > min(steps)
            if residual <= tolerance or stalled or len(trace) >= most:
                return BlockwisePosterior(points, method, end, np.array(trace), residual, residual <= tolerance)


def _step(before: Collapsed, end: Collapsed, moved: FloatArray, natural: FloatArray) -> float:
    """An upper bound on the relative change of every c_i, to first order in the change of B and of A shift.

    c_i^2 = mean_i^2 + var_i, the change of a mean is at most |R^-1 a_i| times |R^-1 (d natural - dB p)|, that of a
    variance at most |R^-1 a_i|^2 times |R^-1 dB R^-T|, and |R^-1 a_i| at most c_i. Time 2 m^3.
    """
    R = before.factor
    turned = solve_rows(R, np.ascontiguousarray(solve_rows(R, np.ascontiguousarray(moved)).T))
    rest = solve_vector(R, natural - moved @ before.weights)
    return float(np.linalg.norm(rest)) + 0.5 * float(np.linalg.norm(turned))


def estimated_distance(changes: list[float]) -> float:
    """Estimated distance left after the last step, by the slowest of the last ratios; unknown before there is one.

    Parameters
    ----------
    changes    sizes of all steps, the last one at the end
    """
    if changes[-1] == 0.0:
        return 0.0
    ratios = [b / a for a, b in pairwise(changes) if b > ROUNDED]
    rate = max(ratios[-5:], default=1.0)
    return changes[-1] / (1.0 - rate) if rate < 1.0 else np.inf


def predictions(
    posterior: BlockwisePosterior, rows: Rows, *, client: Any = None
) -> Iterator[tuple[int, Prediction | ProbitPrediction]]:
    """(first row, predictions) leaf by leaf, in order. wenzel2019 (13), (14).

    Parameters
    ----------
    posterior        from `fit`, or `fast.blockwise.taylor.fit`
    rows : Rows      test inputs
    client           a dask.distributed.Client; None: this process
    """
    yield from streamed(rows, partial(_predict, posterior), client)


def _predict(posterior: BlockwisePosterior, leaf: Leaf) -> Prediction | ProbitPrediction:
    points = posterior.points
    block = inputs.finite_rows("X_test", leaf.inputs(), leaf.first)
    mean, var = sparse_latent(
        block, points.Z, points.hyper, points.chol_K, posterior.end.factor, posterior.end.weights, _TILE
    )
    return link_of(posterior.likelihood).prediction(mean, var)
