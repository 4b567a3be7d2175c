"""vi-jj, vi-jj-full, vi-jj-hybrid: Jaakkola and Jordan's bound for binary logit GP classification. izmailov2016, 4.1.

With the parameters of the prior held all three have one fixed point, (12), (13) and (15): there the bound equals the
Pólya-Gamma bound of x-gpc at c = xi. They differ in how parameters of the prior are learned: by L-BFGS-B at xi held, at
xi moving too, or at both with closed updates of xi in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.declare import option, takes_values
from fast.core.ending import ended
from fast.core.options import Accelerated, Blocks
from fast.core.results import Gradients
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.ledger import equation
from fast.likelihood.quadratic_bounds import Quadratic, jaakkola_jordan, jj_coefficient_derivative, jj_local
from fast.one_latent.fixed_point import FixedPoint, ascend
from fast.one_latent.predict import Prediction, full_latent, logit_prediction, sparse_latent
from fast.one_latent.prior import Evaluation, FullPrior
from fast.one_latent.quadratic_search import (
    Alternation,
    Learning,
    QuadraticOptions,
    QuadraticPosterior,
    Rounds,
    alternate,
    checked_learn,
    initial_moments,
    joint_search,
    prepare,
    stage_two,
)
from fast.one_latent.quadratic_sweep import Prepared, evaluate, factored, gradients_at, moments

_PATIENCE = 15_000  # evaluations and iterations of a search that goes to its end


@dataclass(frozen=True, kw_only=True, eq=False)
class JJFullOptions(QuadraticOptions):
    """Options of `fit_full`."""

    initial_xi: Any = option("data", "local parameters to start from; None: mu = 0, Sigma = I", default=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class JJHybridOptions(JJFullOptions, Rounds):
    """Options of `fit_hybrid`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JJOptions(JJHybridOptions, Accelerated):
    """Options of `fit`."""


DEFAULTS, FULL, HYBRID = JJOptions(), JJFullOptions(), JJHybridOptions()


class Bound:
    """Jaakkola and Jordan's quadratics, for `fast.one_latent.quadratic_sweep`."""

    def at(self, y_sign: FloatArray, xi: FloatArray) -> Quadratic:
        """The bound at xi: (b,) each."""
        return jaakkola_jordan(y_sign, xi)

    def local(self, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """(15): (b,)."""
        return jj_local(latent_mean, latent_var)


@equation("izmailov2016", "u4.1-Jhat-gradient")
def local_gradient(xi: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
    """Derivative of the collapsed bound (14) in xi: lambda'(xi) (xi^2 - E f^2), zero at (15) and at xi = 0.

    Parameters
    ----------
    xi : (n,)
    latent_mean, latent_var : (n,)    of q(f_i) at its optimum given xi
    """
    return jj_coefficient_derivative(xi) * (xi * xi - latent_mean * latent_mean - latent_var)


def _plain(
    state: Alternation, tolerance: float, max_iterations: int, callback: Callable[[Any], None] | None
) -> tuple[list[float], float, bool]:
    """Stage 1 alone, one visit of the data an update, until xi is within the tolerance of its fixed point."""
    trace: list[float] = []
    steps: list[float] = []
    residual = np.inf
    while len(trace) < max_iterations and not (trace and ended()):
        steps.append(state.update())
        assert state.end is not None
        trace.append(state.end.value)
        if len(steps) > 3:  # the first step is from nowhere
            rate = min(max(b / a for a, b in zip(steps[-3:], steps[-2:], strict=False) if a > 0.0), 1.0 - 1e-9)
            residual = steps[-1] / (1.0 - rate)
        residual = 0.0 if steps[-1] == 0.0 else residual
        if callback is not None:
            callback(state.end.value)
        if residual <= tolerance:
            return trace, residual, True
    return trace, residual, False


def _ascend(
    prior: Prepared,
    xi: FloatArray,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[Any], None] | None,
) -> FixedPoint:
    """(12), (13), (15) to their fixed point with guarded mixing, from xi > 0."""
    return ascend(
        lambda local: evaluate(prior, Bound(), local), xi, tolerance, max_iterations, True, callback, update=jj_local
    )


def _posterior(
    prior: Prepared,
    xi: FloatArray,
    evaluation: Evaluation,
    trace: FloatArray,
    residual: float,
    converged: bool,
    learning: Learning | None,
) -> QuadraticPosterior:
    precision = jaakkola_jordan(prior.y_sign, xi).precision
    return QuadraticPosterior(prior, evaluation, xi, precision, evaluation.elbo, trace, residual, converged, learning)


def _positive(prior: Prepared, xi: FloatArray) -> FloatArray:
    """|xi|, and (15) for those at 0: a minimum of the bound in xi_i that no update of log xi would leave."""
    size = np.abs(xi)
    if (size == 0.0).any():
        result = evaluate(prior, Bound(), size)
        size = np.where(size == 0.0, jj_local(result.latent_mean, result.latent_var), size)
    return size


def _fit(
    variant: str, data: Data, prior: Prior, options: JJFullOptions, rounds: Rounds = HYBRID, accelerate: bool = True
) -> QuadraticPosterior:
    chosen = checked_learn(options.learn)
    tolerance, max_iterations, callback = options.tolerance, options.max_iterations, options.callback
    prepared, initial_xi = prepare(data, prior, options), options.initial_xi
    state = Alternation.start(prepared, Bound(), options.hyperprior)
    if initial_xi is not None:
        given = inputs.real_array("initial_xi", initial_xi, 1)
        if given.shape != (prepared.y_sign.size,):
            raise ValueError(f"initial_xi: found shape {given.shape}, expected ({prepared.y_sign.size},)")
        state.xi = np.abs(inputs.finite_rows("initial_xi", given))
    held = variant == "jj" and not chosen
    if initial_xi is not None and not (held and accelerate):  # which starts from xi alone
        state.optimise(state.xi)
    learning: Learning | None = None
    if held and not accelerate:
        trace, residual, converged = _plain(state, tolerance, max_iterations, callback)
        assert state.end is not None
        if isinstance(prepared, FullPrior):
            assert state.evaluation is not None
            last = state.evaluation
        else:
            last = Evaluation(
                state.end.factor, state.end.weights, *moments(prepared, factored(state.end)), state.end.value
            )
        return _posterior(prepared, state.xi, last, np.array(trace), residual, converged, None)
    joint = partial(joint_search, learn=chosen, local_gradient=local_gradient)
    if variant == "full":
        if state.end is None:
            state.update()
        result = joint(state, max_evaluations=_PATIENCE, max_iterations=max_iterations, tolerance=tolerance)
        state.prior, state.xi = result.prior, result.xi
        why = ended()
        learning = Learning(
            result.prior, result.xi, np.array([result.value]), 0.0, not why, why or "joint search ended",
            result.n_evaluations,
        )  # fmt: skip
    elif variant == "hybrid":
        second = partial(joint, max_evaluations=rounds.n_fun, max_iterations=rounds.n_fun, tolerance=0.0)
        learning = alternate(
            state,
            second,
            options,
            n_upd=rounds.n_upd,
            joint=True,
        )
    elif chosen:
        learning = alternate(
            state,
            lambda state: stage_two(state, chosen, rounds.n_fun),
            options,
            n_upd=rounds.n_upd,
            joint=False,
        )
    elif initial_xi is None:
        state.xi = jj_local(*initial_moments(prepared))
    start = _positive(state.prior, state.xi)
    most = _PATIENCE if learning else max_iterations
    end = _ascend(state.prior, start, tolerance, most, None if learning else callback)
    trace_ = end.trace if learning is None or not chosen else learning.trace
    return _posterior(
        state.prior,
        end.c,
        end.evaluation,
        trace_,
        end.residual,
        end.converged and (learning is None or learning.converged),
        learning,
    )


@equation("izmailov2016", "alg1")
@takes_values
def fit(data: Data, prior: Prior, options: JJOptions = DEFAULTS) -> QuadraticPosterior:
    """vi-jj: izmailov2016, Algorithm 1, from mu = 0, Sigma = I; then xi to its fixed point.

    Without learning the updates (12), (13), (15) alone, which never lower the bound (14). Time an update 3/2 n m^2
    + m^3/3 for n data, m inducing points; an evaluation of stage 2 O(n m (m + d) + m^3). Stable because B = I +
    (positive semi-definite) is all that is factorised besides K_ZZ.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function; inducing points are kept as they are
    options          tolerance on the relative change of the bound (learning) and on the relative distance of xi from
                     the fixed point; mixed updates take memory O(n) for some twenty vectors

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    return _fit("jj", data, prior, options, options, options.accelerate)


@equation("izmailov2016", "vi-jj-full")
@takes_values
def fit_full(data: Data, prior: Prior, options: JJFullOptions = FULL) -> QuadraticPosterior:
    """vi-jj-full: L-BFGS-B on (14) over xi and parameters of the prior at once; updates (15) finish what it leaves.

    Parameters
    ----------
    data, prior      see `fit`
    options          tolerance on the relative change of the bound in a step of the search, and on the relative distance
                     of xi at the end; max_iterations are steps of the search; the search starts at initial_xi, or at
                     (15) of mu = 0, Sigma = I; the callback is called after every finishing update
    """
    return _fit("full", data, prior, options)


@equation("izmailov2016", "vi-jj-hybrid")
@takes_values
def fit_hybrid(data: Data, prior: Prior, options: JJHybridOptions = HYBRID) -> QuadraticPosterior:
    """vi-jj-hybrid: stage 1 of Algorithm 1 and L-BFGS-B over xi and parameters of the prior in turn.

    Parameters
    ----------
    data, prior, options    see `fit`
    """
    return _fit("hybrid", data, prior, options, options)


@one_thread
def gradients(posterior: QuadraticPosterior) -> Gradients:
    """Derivative of the bound at the fixed point: variance float, lengthscales (d,), noise float, Z (m, d) or None.

    Parameters
    ----------
    posterior    from `fit`, `fit_full` or `fit_hybrid`
    """
    value = posterior.evaluation
    return gradients_at(posterior.prior, Bound(), posterior.xi, value.factor, value.weights)


@Blocks.checks
def predict(posterior: QuadraticPosterior, X_test: Any, *, block_size: int = 4096) -> Prediction:
    """Latent moments and class probabilities E[sigma(f)] at test points. Time O(t m (m + d)), with n for m if full.

    Parameters
    ----------
    posterior            from `fit`, `fit_full` or `fit_hybrid`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return logit_prediction(*latent(posterior, X_test, block_size=block_size))


@Blocks.checks
def latent(posterior: QuadraticPosterior, X_test: Any, *, block_size: int = 4096) -> tuple[FloatArray, FloatArray]:
    """Mean and variance, noise included, of f at test points: (t,) each. izmailov2016, 3.1.

    Parameters
    ----------
    posterior            with q(u) given by local quadratics
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    prior, value = posterior.prior, posterior.evaluation
    X_test = inputs.inputs("X_test", X_test, prior.hyper.lengthscales.size, allow_empty=True)
    if isinstance(prior, FullPrior):
        return full_latent(
            X_test, prior.X, prior.hyper, posterior.site_precision, value.factor, value.weights, block_size
        )
    return sparse_latent(X_test, prior.Z, prior.hyper, prior.chol_K, value.factor, value.weights, block_size)
