"""svi: the bound (11) of izmailov2016 maximised over mu, Sigma and parameters of the prior; logit or probit.

In batch with the prior held the bound is concave in q(u), and natural gradients (`fast.methods.svgpc`, with the logit
expectations) take it to its maximum. With batches: AdaDelta on mu, the raw entries of the Cholesky factor C of Sigma,
and logarithms of the prior's parameters, all with the gradient of the batch estimate. In batch with learning: L-BFGS-B
on the same vector, finished by natural gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrmm

from fast.core import inputs
from fast.core.checks import shown
from fast.core.declare import option, takes_values
from fast.core.hyperprior import Hyperprior
from fast.core.inputs import Hyper
from fast.core.linalg import solve_rows, solve_vector, squared_norms
from fast.core.options import RATE, Blocks, Iteration, Learning, Link, Steps, Storage, Watched
from fast.core.results import Gradients
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior, checked_hyper, moved
from fast.ledger import equation
from fast.methods import svgpc
from fast.methods.svgpc import SVGPCLearning, SVGPCOptions, SVGPCPosterior
from fast.methods.x_gpc import prepare
from fast.one_latent.beginning import batches_of, steps_of
from fast.one_latent.explicit_q import Expected, batch_bound, covariance_from_factor, start_of
from fast.one_latent.learning import Learned
from fast.one_latent.links import link_of
from fast.one_latent.predict import Prediction, ProbitPrediction, full_latent, sparse_latent
from fast.one_latent.prior import FullPrior
from fast.one_latent.quadratic_search import checked_learn
from fast.one_latent.stochastic import Kernel
from fast.solve.ada_delta import AdaDeltaState, ada_delta_step
from fast.solve.adam import Packing
from fast.solve.lbfgs import Limits, Place, Search
from fast.solve.minibatch import Batch, Source
from fast.solve.steps import Stepping, run_steps


@dataclass(frozen=True, kw_only=True, eq=False)
class SVIOptions(Iteration, Watched, Storage, Learning, Link):
    """Options of `fit`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SVISteps(Watched, Steps, Learning, Link):
    """Options of `fit_stochastic`."""

    rate: float = option("number", "rate of AdaDelta's steps", RATE, default=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predicting(Link, Blocks):
    """Options of `predict`."""


DEFAULTS, STEPS = SVIOptions(), SVISteps()


class Progress(NamedTuple):
    """What a callback sees after every step."""

    iteration: int
    n_steps: int
    elbo: float  # batch estimate before the step
    run: SVIRun


@dataclass(frozen=True, eq=False)
class SVIRun:
    """q(u) = N(mu, C C') after some steps."""

    kernel: Kernel
    inducing_mean: FloatArray  # (m,)
    chol_cov: FloatArray  # C, (m, m)
    trace: FloatArray  # batch estimate of the bound before each step
    likelihood: str

    @property
    def inducing_cov(self) -> FloatArray:
        """Sigma: (m, m)."""
        return covariance_from_factor(self.chol_cov)

    @property
    def hyper(self) -> Hyper:
        """Parameters of the prior."""
        return self.kernel.hyper

    @property
    def iterations(self) -> int:
        """Steps made."""
        return self.trace.size


def _expected(likelihood: str) -> Expected:
    return link_of(likelihood).expected


class _Vector:
    """mu, the lower triangle of C and logarithms of learned parameters as one vector."""

    def __init__(self, hyper: Hyper, Z: FloatArray, learn: tuple[str, ...], hyperprior: Hyperprior | None) -> None:
        self.packing = Packing(learn, hyper, None, hyperprior)
        self.hyper, self.Z, self.m = hyper, Z, Z.shape[0]
        self.lower = np.tril_indices(self.m)
        self.parts = np.cumsum([self.m, self.lower[0].size])
        self._kernel: Kernel | None = None

    def pack(self, inducing_mean: FloatArray, chol_cov: FloatArray) -> FloatArray:
        return np.concatenate([inducing_mean, chol_cov[self.lower], self.packing.vector(self.hyper, None)])

    def unpack(self, vector: FloatArray) -> tuple[Kernel, FloatArray, FloatArray]:
        mean, entries, logs = np.split(vector, self.parts)
        chol_cov = np.zeros((self.m, self.m))
        chol_cov[self.lower] = entries
        if self._kernel is None or logs.size:
            hyper = self.packing.parameters(logs, self.hyper, None)[0] if logs.size else self.hyper
            self._kernel = Kernel(hyper, self.Z)
        return self._kernel, mean, chol_cov

    def evaluate(self, vector: FloatArray, expected: Expected, batch: Batch, scale: float) -> tuple[float, FloatArray]:
        """The estimate of the bound plus the log density of what is learned, which is kept, and its gradient."""
        kernel, mean, chol_cov = self.unpack(vector)
        learning = self.packing.size > 0
        self.log_prior, by_prior = self.packing.prior(kernel.hyper)
        result = batch_bound(kernel, expected, batch.X, batch.y, scale, mean, chol_cov, learning=learning)
        parts = [result.inducing_mean, result.chol_cov[self.lower]]
        if result.prior is not None:
            parts.append(self.packing.gradient(result.prior, kernel.hyper) + by_prior)
        return result.value + self.log_prior, np.concatenate(parts)


class _Ascent(Stepping):
    """Steps of AdaDelta on the estimates of one batch each."""

    at_least = 1  # a run without time has the bound at its start to show

    def __init__(self, form: _Vector, source: Source, options: SVISteps) -> None:
        self.form, self.source, self.expected = form, source, _expected(options.likelihood)
        self.likelihood, self.rate = options.likelihood, options.rate
        self.vector = form.pack(*start_of(form.m))
        self.state = AdaDeltaState.start(self.vector.size)
        self.trace: list[float] = []

    def draw(self) -> Batch:
        return self.source.draw()

    def step(self, batch: Batch) -> float:
        value, derivative = self.form.evaluate(self.vector, self.expected, batch, self.source.n / batch.y.size)
        number = self.iteration + 1
        if not (np.isfinite(value) and np.isfinite(derivative).all()):
            raise ValueError(
                f"rate: found {shown(self.rate)}, with which step {number} is not finite; expected a smaller one"
            )
        step, self.state = ada_delta_step(derivative, self.state, self.rate)
        self.vector = self.vector + step
        self.trace.append(value - self.form.log_prior)
        self.iteration = number
        return value

    @property
    def result(self) -> SVIRun:
        return SVIRun(*self.form.unpack(self.vector), np.array(self.trace), self.likelihood)


@equation("izmailov2016", "u3.2-svi")
@takes_values
def fit_stochastic(data: Data, prior: Prior, options: SVISteps = STEPS) -> SVIRun:
    """AdaDelta on batch estimates of (11) from mu = 0, Sigma = I: izmailov2016, 3.2 and 5.1.

    Time a step O(b m (m + d) + m^3), whatever n; memory O(m^2 + batch).

    Parameters
    ----------
    data : Data      X an array or numpy.memmap; or, with y None, blocks (X_block, y_block) that can be read again
    prior : Prior    of one latent function with inducing points, which are kept
    options          by default 10 000 steps, or all of `batches`; rate is a factor on AdaDelta's steps; Z stays

    Raises
    ------
    ValueError                  bad input, by name; a run that leaves the finite numbers
    NotPositiveDefiniteError    K_ZZ is singular
    """
    if prior.Z is None:
        raise ValueError("Z: found None, expected inducing points (m, d); the full GP is fitted in batch")
    chosen, callback = checked_learn(options.learn), options.callback
    source = batches_of(data, options)
    steps = steps_of(options, source)
    hyper = checked_hyper(prior, source.d)
    Z = inputs.finite_rows("Z", inputs.inputs("Z", prior.Z, source.d)).copy()
    run = _Ascent(_Vector(hyper, Z, chosen, options.hyperprior), source, options)

    def after(_: float) -> None:
        if callback is not None:
            callback(Progress(run.iteration, steps, run.trace[-1], run.result))

    end = run_steps(run, steps, after=after)
    if end.error is not None:
        raise end.error
    return run.result


@equation("izmailov2016", "u5.1-lbfgs-elbo")
@takes_values
def fit(data: Data, prior: Prior, options: SVIOptions = DEFAULTS) -> tuple[SVGPCPosterior, Hyper]:
    """The maximum of (11) over q(u), and over parameters of the prior if some are learned: izmailov2016, 5.1.

    Time a step 2 n m^2 + m^3/3 plus one quadrature a datum. Learning searches mu, C and logarithms together from mu =
    0, C = I (a full GP: the logarithms, q(f) at its maximum).

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function, where the search starts
    options          tolerance on the scaled distance from the maximum over q, with learning on the relative change of
                     the bound too; Z is not learned

    Returns
    -------
    posterior, parameters of the prior
    """
    chosen, expected = checked_learn(options.learn), _expected(options.likelihood)
    prepared = prepare(data, prior, options)
    hyper = prepared.hyper
    if chosen and isinstance(prepared, FullPrior):
        posterior, learned = fit_learning(data, prior, options)
        return posterior, learned.hyper
    if chosen:
        hyper = _search(prepared, expected, chosen, options.tolerance, options.max_iterations, options.hyperprior)
        prepared = prepare(data, moved(prior, hyper, prior.Z), options)
    ends = SVGPCOptions.of(vars(options))
    return svgpc.converge(prepared, ends, expected=expected), hyper


@takes_values
def fit_learning(data: Data, prior: Prior, options: SVIOptions) -> tuple[SVGPCPosterior, Learned]:
    """The maximum of (11) over the prior, that over q(u) found anew at every evaluation; the options of `fit`.

    A search over q(u) too, as `fit` has it with inducing points, moves m (m + 3)/2 numbers more.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function, where the search starts
    options          learn is not empty

    Returns
    -------
    posterior at the best parameters, how the search ended
    """
    search = SVGPCLearning(
        learn=checked_learn(options.learn),
        hyperprior=options.hyperprior,
        learning_iterations=options.max_iterations,
        learning_tolerance=1e-6,
        max_iterations=options.max_iterations,
        block_size=options.block_size,
        memory_budget=options.memory_budget,
    )
    return svgpc.learn_prior(
        partial(svgpc.converge, options=search, expected=_expected(options.likelihood)),
        lambda posterior: (posterior.elbo, gradients(posterior)),
        data,
        prior,
        search,
    )


def _search(
    prior: Any,
    expected: Expected,
    learn: tuple[str, ...],
    tolerance: float,
    max_iterations: int,
    hyperprior: Hyperprior | None = None,
) -> Hyper:
    """L-BFGS-B over mu, C and logarithms."""
    form = _Vector(prior.hyper, prior.Z, learn, hyperprior)
    whole = Batch(inputs.finite_rows("X", prior.X[:]), prior.y_sign)

    def evaluate(vector: FloatArray, _: Any) -> Place:
        return Place(*form.evaluate(vector, expected, whole, 1.0))

    limits = Limits(max_iterations, 1e-8, tolerance, 10 * max_iterations, memory=30, line_steps=20, gains=False)
    return form.unpack(Search(evaluate).round(form.pack(*start_of(prior.Z.shape[0])), limits).vector)[0].hyper


@one_thread
def gradients(posterior: SVGPCPosterior) -> Gradients:
    """Gradient of (11) at its maximum over q(u): variance float, lengthscales (d,), noise float, Z (m, d) or None.

    Parameters
    ----------
    posterior    from `fit`
    """
    return svgpc.gradients(posterior)


@_Predicting.checks
def predict(
    posterior: SVGPCPosterior, X_test: Any, *, likelihood: str = "logit", block_size: int = 4096
) -> Prediction | ProbitPrediction:
    """Latent moments and class probabilities of a batch fit at test points.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    likelihood : str     that of the fit
    block_size : int     test points at a time
    """
    prior, sites = posterior.prior, posterior.sites
    X_test = inputs.inputs("X_test", X_test, prior.hyper.lengthscales.size, allow_empty=True)
    if isinstance(prior, FullPrior):
        result = full_latent(
            X_test, prior.X, prior.hyper, posterior.site_precision, sites.factor, sites.weights, block_size
        )
    else:
        result = sparse_latent(X_test, prior.Z, prior.hyper, prior.chol_K, sites.factor, sites.weights, block_size)
    return link_of(likelihood).prediction(*result)


@Blocks.checks
def latent(run: SVIRun, X: Any, *, block_size: int = 4096) -> tuple[FloatArray, FloatArray]:
    """Mean and variance, noise included, of f under a stochastic q(u): (t,) each. Time O(t m (m + d)).

    Parameters
    ----------
    run                  from `fit_stochastic`
    X : (t, d)           t may be 0
    block_size : int     points at a time
    """
    kernel = run.kernel
    X = inputs.inputs("X", X, run.hyper.lengthscales.size, allow_empty=True)
    p = solve_vector(kernel.chol_K, run.inducing_mean)
    mean, var = np.empty(X.shape[0]), np.empty(X.shape[0])
    for start in range(0, X.shape[0], block_size):
        part = slice(start, start + block_size)
        rows = solve_rows(kernel.chol_K, kernel.of.cross(inputs.finite_rows("X", X[part], start)))
        open_var = np.maximum(run.hyper.variance - squared_norms(rows), 0.0) + run.hyper.noise
        mean[part] = rows @ p
        turned = solve_rows(kernel.chol_K, rows, transposed=True)  # kappa_i
        whitened = dtrmm(1.0, run.chol_cov, turned.T, side=0, lower=True, trans_a=True).T
        var[part] = open_var + squared_norms(whitened)
    return mean, var


@Blocks.checks
def predict_run(run: SVIRun, X_test: Any, *, block_size: int = 4096) -> Prediction | ProbitPrediction:
    """Latent moments and class probabilities of a stochastic run at test points.

    Parameters
    ----------
    run                  from `fit_stochastic`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return link_of(run.likelihood).prediction(*latent(run, X_test, block_size=block_size))


@Blocks.checks
def bound(run: SVIRun, X: Any, y: Any, *, block_size: int = 4096) -> float:
    """The bound (11) on all data for the q(u) of a run, every constant in it. Time O(n m (m + d)).

    Parameters
    ----------
    run                  from `fit_stochastic`
    X : (n, d)           may be a numpy.memmap
    y : (n,)             ints 0, 1
    block_size : int     data at a time
    """
    X = inputs.inputs("X", X, run.hyper.lengthscales.size)
    y_sign = inputs.labels(y, X.shape[0])
    expected = _expected(run.likelihood)
    # an empty sum of data leaves minus the divergence
    nothing = np.empty((0, X.shape[1]))
    q = (run.inducing_mean, run.chol_cov)
    total = batch_bound(run.kernel, expected, nothing, np.empty(0), 1.0, *q, learning=False).value
    for start in range(0, X.shape[0], block_size):
        part = slice(start, start + block_size)
        moments = latent(run, X[part], block_size=block_size)
        total += float(expected(y_sign[part], *moments).value.sum())
    return total
