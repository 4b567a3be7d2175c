"""x-gpc: Pólya-Gamma coordinate ascent for binary logit GP classification, batch. wenzel2019."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.blocks import kept_bytes
from fast.core.declare import option, takes_values
from fast.core.errors import NotPositiveDefiniteError
from fast.core.inputs import Hyper
from fast.core.options import Accelerated, Blocks, Iteration, Restarts, Search, Storage, Watched
from fast.core.results import Gradients
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior, checked_binary, moved
from fast.likelihood.polya_gamma import pg_mean, update_local
from fast.one_latent.fixed_point import ascend
from fast.one_latent.hyper import full_gradients, sparse_gradients
from fast.one_latent.learning import Learned, WarmSearch, starting
from fast.one_latent.predict import Prediction, full_latent, logit_prediction, sparse_latent
from fast.one_latent.prior import Evaluation, FullPrior, SparsePrior
from fast.one_latent.whitened import EvaluatedPosterior
from fast.solve.adam import Packing

Prepared = SparsePrior | FullPrior


@dataclass(frozen=True, kw_only=True, eq=False)
class XGPCOptions(Iteration, Watched, Accelerated, Storage):
    """Options of `fit`."""

    initial_c: Any = option(
        "data", "local parameters to start from, > 0; None: prior standard deviations", default=None
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class XGPCLearning(XGPCOptions, Search, Restarts):
    """Options of `fit_learning`."""


DEFAULTS = XGPCOptions()


@dataclass(frozen=True, eq=False)
class XGPCPosterior(EvaluatedPosterior):
    """q(u) prod PG(omega_i | 1, c_i) at the fixed point."""

    prior: Prepared
    evaluation: Evaluation
    c: FloatArray  # (n,)
    elbo: float  # lower bound on log p(y), every constant in it
    trace: FloatArray  # bound after each sweep
    residual: float  # estimated relative distance of c from the fixed point
    converged: bool

    @property
    def theta(self) -> FloatArray:
        """E[omega_i]: (n,)."""
        return pg_mean(self.c)

    @property
    def site_precision(self) -> FloatArray:
        """E[omega_i] too: a Gaussian site a datum."""
        return self.theta


class Sweep(NamedTuple):
    """One sweep of coordinate ascent."""

    c: FloatArray  # updated local parameters
    evaluation: Evaluation  # q(u) and the bound at the local parameters that were given


@one_thread
def prepare(data: Data, prior: Prior, options: Storage = DEFAULTS) -> Prepared:
    """Check the data and compute what every sweep needs: A = L^-1 K_ZX, or K_XX.

    Time O(n m (m + d)) sparse, O(n^2 d) full.

    Parameters
    ----------
    data : Data           labels 0, 1
    prior : Prior         of one latent function
    options : Storage     sparse blocks are smaller if one of A would leave the cache; A is kept if n m numbers fit the
                          budget, else computed again in every pass

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    X, y_sign, hyper, Z = checked_binary(data, prior)
    if Z is None:
        return FullPrior(X, y_sign, hyper, options.block_size)
    return SparsePrior(X, y_sign, Z, hyper, options.block_size, kept_bytes(options.memory_budget))


@one_thread
def sweep(prior: Prepared, c: FloatArray) -> Sweep:
    """One sweep of coordinate ascent: q(u) given c, then c given q(u). wenzel2019, section 4.3 and A.4.

    Sparse: two passes over A, time 2 n m^2 + m^3/3. Full: 4 n^3 / 3.

    Parameters
    ----------
    prior      from `prepare`
    c : (n,)   local parameters, > 0
    """
    evaluation = prior.evaluate(c)
    return Sweep(update_local(evaluation.latent_mean, evaluation.latent_var), evaluation)


@takes_values
def fit(data: Data, prior: Prior, options: XGPCOptions = DEFAULTS) -> XGPCPosterior:
    """Coordinate ascent on the bound (10) of wenzel2019 to its fixed point, hyper-parameters held.

    Stays stable because B = I + (positive semi-definite) is all that is factorised besides K_ZZ, and adds no jitter
    of its own.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function
    options          tolerance on the relative distance of every c_i from the fixed point; the callback is given a
                     Progress after every sweep

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    prepared = prepare(data, prior, options)
    start = np.sqrt(prepared.prior_var)
    if options.initial_c is not None:
        start = inputs.local(options.initial_c, start.size)
    end = ascend(
        prepared.evaluate, start, options.tolerance, options.max_iterations, options.accelerate, options.callback
    )
    return XGPCPosterior(prepared, end.evaluation, end.c, end.evaluation.elbo, end.trace, end.residual, end.converged)


@Blocks.checks
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
    if isinstance(prior, FullPrior):
        mean, var = full_latent(
            X_test, prior.X, prior.hyper, posterior.theta, evaluation.factor, evaluation.weights, block_size
        )
    else:
        mean, var = sparse_latent(
            X_test, prior.Z, prior.hyper, prior.chol_K, evaluation.factor, evaluation.weights, block_size
        )
    return logit_prediction(mean, var)


@one_thread
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


@takes_values
def fit_learning(data: Data, prior: Prior, options: XGPCLearning) -> tuple[XGPCPosterior, Learned]:
    """Maximise the bound over q and over parameters of the prior, by L-BFGS-B: wenzel2019, section 4.3, batch.

    Each evaluation is coordinate ascent to its fixed point, started from the local parameters of the one before; there
    the gradient of the bound needs none of q (`gradients`).

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function, where the search starts
    options          the tolerance of the search is on the gradient in logarithms (Z as it is); restarts start at
                     logarithms of the scales moved by N(0, 1), and the best end counts; the callback is not called

    Raises
    ------
    ValueError, NotPositiveDefiniteError    bad input, by name; a start that the prior refuses

    Returns
    -------
    posterior at the best parameters, and how the best search went
    """
    data, packing = starting(data, prior, options.learn, options.hyperprior)
    hyper, Z = packing.hyper, packing.Z
    rng = np.random.default_rng(options.seed)

    def run(hyper: Hyper, Z: FloatArray | None, start: FloatArray | None) -> XGPCPosterior:
        return fit(data, moved(prior, hyper, Z), replace(options, initial_c=start, callback=None))

    search = WarmSearch(run, lambda at: (at.elbo, gradients(at)), lambda at: at.c, options.initial_c)
    best: tuple[float, XGPCPosterior, Learned] | None = None
    for k in range(1 + options.restarts):
        here = packing
        if k > 0:
            scales = Packing([name for name in packing.names if name != "Z"], hyper, Z)
            vector = scales.vector(hyper, Z) + rng.standard_normal(scales.size)
            here = Packing(packing.names, *scales.parameters(vector, hyper, Z), options.hyperprior)
        try:
            posterior, learned = search.maximum(here, options)
        except NotPositiveDefiniteError:
            if k == 0:
                raise
            continue  # a restart that the prior refuses is none
        value = posterior.elbo + here.prior(learned.hyper)[0]
        if best is None or value > best[0]:
            best = value, posterior, learned
    assert best is not None
    return best[1:]
