"""x-gpc: Pólya-Gamma coordinate ascent for binary logit GP classification, batch. wenzel2019."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.errors import NotPositiveDefiniteError
from fast.core.inputs import Hyper
from fast.core.linalg import solve_rows
from fast.core.options import checked_options
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.likelihood.polya_gamma import pg_mean, update_local
from fast.one_latent.fixed_point import Progress, ascend
from fast.one_latent.hyper import full_gradients, sparse_gradients
from fast.one_latent.learning import Learned, maximise
from fast.one_latent.predict import Prediction, full_latent, logit_prediction, sparse_latent
from fast.one_latent.prior import Evaluation, FullPrior, SparsePrior
from fast.solve.adam import Packing

Prior = SparsePrior | FullPrior


@dataclass(frozen=True, eq=False)
class XGPCPosterior:
    """q(u) prod PG(omega_i | 1, c_i) at the fixed point."""

    prior: Prior
    evaluation: Evaluation
    c: FloatArray  # (n,)
    elbo: float  # lower bound on log p(y), every constant in it
    trace: FloatArray  # bound after each sweep
    residual: float  # estimated relative distance of c from the fixed point
    converged: bool

    @property
    def iterations(self) -> int:
        """Sweeps made."""
        return self.trace.size

    @property
    def latent_mean(self) -> FloatArray:
        """Mean of q(f_i): (n,)."""
        return self.evaluation.latent_mean

    @property
    def latent_var(self) -> FloatArray:
        """Variance of q(f_i), noise included: (n,)."""
        return self.evaluation.latent_var

    @property
    def theta(self) -> FloatArray:
        """E[omega_i]: (n,)."""
        return pg_mean(self.c)

    @property
    def inducing_mean(self) -> FloatArray:
        """mu: (m,); the latent means for a full GP."""
        if isinstance(self.prior, FullPrior):
            return self.latent_mean.copy()
        return self.prior.chol_K @ self.evaluation.weights

    @property
    def inducing_cov(self) -> FloatArray:
        """Sigma: (m, m), computed when asked for in O(m^3); of all latent values for a full GP."""
        prior, factor = self.prior, self.evaluation.factor
        if isinstance(prior, FullPrior):
            explained = solve_rows(factor, prior.K * np.sqrt(self.theta))  # row i: R^-1 S k_i
            return prior.K - explained @ explained.T
        # a copy even for m = 1, where one order of memory is the other: the solve is in place
        spread = solve_rows(factor, np.array(prior.chol_K, order="C"))  # row i: R^-1 (row i of L)
        return spread @ spread.T


class Sweep(NamedTuple):
    """One sweep of coordinate ascent."""

    c: FloatArray  # updated local parameters
    evaluation: Evaluation  # q(u) and the bound at the local parameters that were given


@checked_options("x-gpc")
def prepare(
    X: Any,
    y: Any,
    variance: float,
    lengthscales: Any,
    noise: float,
    jitter: float,
    Z: Any = None,
    *,
    smoothness: float | None = None,
    block_size: int = 4096,
    memory_budget: int = 2**30,
) -> Prior:
    """Check the data and compute what every sweep needs: A = L^-1 K_ZX, or K_XX.

    Time O(n m (m + d)) sparse, O(n^2 d) full.

    Parameters
    ----------
    X : (n, d)              real, finite; may be a numpy.memmap, read in blocks
    y : (n,)                ints 0, 1
    variance : float        > 0
    lengthscales : (d,)     > 0
    noise : float           >= 0
    jitter : float          >= 0
    Z : (m, d) or None      None: full GP
    smoothness : float      of a Matérn kernel; None: squared exponential
    block_size : int        data points handled at a time, at most (sparse: fewer if a block of A would leave the cache)
    memory_budget : int     bytes: A is kept if n m numbers fit, else computed again in every pass

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    X = inputs.inputs("X", X)
    hyper = inputs.hyper(variance, lengthscales, noise, jitter, X.shape[1], smoothness)
    y_sign = inputs.labels(y, X.shape[0])
    block_size = inputs.count("block_size", block_size)
    if Z is None:
        return FullPrior(X, y_sign, hyper, block_size)
    Z = inputs.finite_rows("Z", inputs.inputs("Z", Z, X.shape[1]))
    budget = int(inputs.scalar("memory_budget", memory_budget, positive=False))
    return SparsePrior(X, y_sign, Z, hyper, block_size, budget)


def sweep(prior: Prior, c: FloatArray) -> Sweep:
    """One sweep of coordinate ascent: q(u) given c, then c given q(u). wenzel2019, section 4.3 and A.4.

    Sparse: two passes over A, time 2 n m^2 + m^3/3. Full: 4 n^3 / 3.

    Parameters
    ----------
    prior      from `prepare`
    c : (n,)   local parameters, > 0
    """
    evaluation = prior.evaluate(c)
    return Sweep(update_local(evaluation.latent_mean, evaluation.latent_var), evaluation)


@checked_options("x-gpc")
def fit(
    X: Any,
    y: Any,
    variance: float,
    lengthscales: Any,
    noise: float,
    jitter: float,
    Z: Any = None,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    block_size: int = 4096,
    callback: Callable[[Progress], None] | None = None,
    initial_c: Any = None,
    accelerate: bool = True,
    memory_budget: int = 2**30,
) -> XGPCPosterior:
    """Coordinate ascent on the bound (10) of wenzel2019 to its fixed point, hyper-parameters held.

    Stays stable because B = I + (positive semi-definite) is all that is factorised besides K_ZZ, and adds no jitter
    of its own.

    Parameters
    ----------
    X, y, variance, lengthscales, noise, jitter, Z, block_size, memory_budget   see `prepare`
    tolerance : float        relative distance of every c_i from the fixed point at which to stop
    max_iterations : int     sweeps after which to give up; `converged` is False then
    callback : callable      called with a Progress after every sweep
    initial_c : (n,)         > 0; default: the prior standard deviation of f_i
    accelerate : bool        guarded Anderson mixing of the sweeps, or plain sweeps; the fixed point is the same

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    tolerance = inputs.scalar("tolerance", tolerance, positive=True)
    max_iterations = inputs.count("max_iterations", max_iterations)
    prior = prepare(X, y, variance, lengthscales, noise, jitter, Z, block_size=block_size, memory_budget=memory_budget)
    n = prior.y_sign.size
    start = np.sqrt(prior.prior_var) if initial_c is None else inputs.local(initial_c, n)
    end = ascend(prior.evaluate, start, tolerance, max_iterations, bool(accelerate), callback)
    return XGPCPosterior(prior, end.evaluation, end.c, end.evaluation.elbo, end.trace, end.residual, end.converged)


@checked_options("x-gpc")
def predict(posterior: XGPCPosterior, X_test: Any, *, block_size: int = 4096) -> Prediction:
    """Latent moments (13) and class probabilities (14) of wenzel2019 at test points.

    Time O(t m (m + d)), with n for m if full. The rows do not depend on the block size to 1e-12.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time

    Raises
    ------
    ValueError           bad input; or class probabilities that miss 1 by more than the stated quadrature error
    """
    prior, evaluation = posterior.prior, posterior.evaluation
    X_test = inputs.inputs("X_test", X_test, prior.hyper.lengthscales.size, allow_empty=True)
    block_size = inputs.count("block_size", block_size)
    if isinstance(prior, FullPrior):
        mean, var = full_latent(
            X_test, prior.X, prior.hyper, posterior.theta, evaluation.factor, evaluation.weights, block_size
        )
    else:
        mean, var = sparse_latent(
            X_test, prior.Z, prior.hyper, prior.chol_K, evaluation.factor, evaluation.weights, block_size
        )
    return logit_prediction(mean, var)


def gradients(posterior: XGPCPosterior) -> Gradients:
    """Gradient of the bound, q(u) and c at their optimum, with respect to variance, lengthscales, noise and Z.

    Exact at the fixed point; off it the error is of the order of the residual. Time O(n m (m + d)) or O(n^3).

    Parameters
    ----------
    posterior    from `fit`

    Returns
    -------
    variance float, lengthscales (d,), noise float, Z (m, d) or None
    """
    prior, evaluation = posterior.prior, posterior.evaluation
    if isinstance(prior, FullPrior):
        return full_gradients(prior, posterior.c, evaluation.factor, evaluation.weights)
    return sparse_gradients(prior, posterior.c, evaluation.factor, evaluation.weights, evaluation.latent_mean)


@checked_options("x-gpc")
def fit_learning(
    X: Any,
    y: Any,
    variance: float,
    lengthscales: Any,
    noise: float,
    jitter: float,
    Z: Any = None,
    *,
    learn: Iterable[str],
    learning_iterations: int = 200,
    learning_tolerance: float = 1e-5,
    restarts: int = 0,
    seed: int = 0,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    block_size: int = 4096,
    memory_budget: int = 2**30,
) -> tuple[XGPCPosterior, Learned]:
    """Maximise the bound over q and over parameters of the prior, by L-BFGS-B: wenzel2019, section 4.3, batch.

    Each evaluation is coordinate ascent to its fixed point, started from the local parameters of the one before; there
    the gradient of the bound needs none of q (`gradients`).

    Parameters
    ----------
    X, y, variance, lengthscales, noise, jitter, Z, tolerance, max_iterations, block_size, memory_budget    see `fit`
    learn                         names out of variance, lengthscales, noise, Z
    learning_iterations : int     of L-BFGS-B
    learning_tolerance : float    on the gradient in logarithms (Z as it is)
    restarts : int                further searches, from logarithms of the scales moved by N(0, 1); the best end counts
    seed : int                    of the restarts

    Raises
    ------
    ValueError, NotPositiveDefiniteError    bad input, by name; a start that the prior refuses

    Returns
    -------
    posterior at the best parameters, and how the best search went
    """
    X = inputs.inputs("X", X)
    hyper = inputs.hyper(variance, lengthscales, noise, jitter, X.shape[1])
    Z = None if Z is None else inputs.finite_rows("Z", inputs.inputs("Z", Z, X.shape[1])).copy()
    packing = Packing(learn, hyper, Z)
    if packing.size == 0:
        raise ValueError("learn: found no name, expected some of variance, lengthscales, noise, Z")
    restarts = inputs.whole("restarts", restarts)
    rng = np.random.default_rng(inputs.whole("seed", seed))
    start: FloatArray | None = None

    def posterior_at(hyper: Hyper, Z: FloatArray | None) -> XGPCPosterior:
        return fit(
            X,
            y,
            *hyper[:4],
            Z,
            tolerance=tolerance,
            max_iterations=max_iterations,
            block_size=block_size,
            initial_c=start,
            memory_budget=memory_budget,
        )

    def evaluate(hyper: Hyper, Z: FloatArray | None) -> tuple[float, Gradients]:
        nonlocal start
        posterior = posterior_at(hyper, Z)
        start = posterior.c
        return posterior.elbo, gradients(posterior)

    best: tuple[XGPCPosterior, Learned] | None = None
    for k in range(1 + restarts):
        moved = packing
        if k > 0:
            scales = Packing([name for name in packing.names if name != "Z"], hyper, Z)
            vector = scales.vector(hyper, Z) + rng.standard_normal(scales.size)
            moved = Packing(packing.names, *scales.parameters(vector, hyper, Z))
        try:
            found = maximise(
                evaluate,
                moved,
                max_iterations=inputs.count("learning_iterations", learning_iterations),
                tolerance=inputs.scalar("learning_tolerance", learning_tolerance, positive=True),
            )
        except NotPositiveDefiniteError:
            if k == 0:
                raise
            continue  # a restart that the prior refuses is none
        posterior = posterior_at(found.hyper, found.Z)
        if best is None or posterior.elbo > best[0].elbo:
            best = posterior, found
    assert best is not None
    return best
