"""vi-taylor: the log likelihood expanded to second order at xi_i = E f_i, logit or probit. izmailov2016, section 4.2.

With the parameters of the prior held, xi = m and (18) in turn are Newton's method on

    Psi(p) = sum_i log p(y_i | a_i'p) - |p|^2 / 2,        u = L p,

the log posterior of the model in which f is the projection K_XZ K_ZZ^-1 u: the fixed point is its only mode, and (17)
there the inverse of its negative Hessian. A step that lowers Psi is halved, so that the iteration always arrives.
The paper sets xi by a vanishing derivative of the approximate bound; that derivative is g'''(xi) E(f - xi)^2 / 2, which
does not vanish at xi = m: the rule defines the method, the approximate bound is not stationary in xi.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import takes_values
from fast.core.ending import ended
from fast.core.options import Blocks, Link
from fast.core.results import Gradients
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.ledger import equation
from fast.likelihood.quadratic_bounds import LogLikelihood, Quadratic, taylor
from fast.methods.vi_jj import latent
from fast.one_latent.links import link_of
from fast.one_latent.predict import Prediction, ProbitPrediction
from fast.one_latent.prior import FullPrior
from fast.one_latent.quadratic_search import (
    Alternation,
    Learning,
    QuadraticOptions,
    QuadraticPosterior,
    Rounds,
    alternate,
    checked_learn,
    prepare,
    stage_two,
)
from fast.one_latent.quadratic_sweep import Prepared, evaluate, gradients_at
from fast.one_latent.sites import condition

_SHORTEST = 2.0**-40

Position = tuple[FloatArray, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class TaylorOptions(QuadraticOptions, Rounds, Link):
    """Options of `fit`."""


DEFAULTS = TaylorOptions()


class TaylorPosterior(QuadraticPosterior):
    """q(u) at the mode of the projected posterior; `likelihood` names the link."""

    likelihood: str = "logit"

    @property
    def iterations(self) -> int:
        """Newton's steps, whose trace begins at the start; with learning, iterations of the alternation."""
        return self.trace.size - (self.learning is None)


class Expanded:
    """Taylor's quadratics, for `fast.one_latent.quadratic_sweep`."""

    def __init__(self, log_likelihood: LogLikelihood) -> None:
        self.log_likelihood = log_likelihood

    def at(self, y_sign: FloatArray, xi: FloatArray) -> Quadratic:
        """The expansion at xi: (b,) each."""
        return taylor(y_sign, xi, self.log_likelihood)

    def local(self, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """xi = m: (b,)."""
        return expansion_point(latent_mean)


@equation("izmailov2016", "u4.2-xi")
def expansion_point(latent_mean: FloatArray) -> FloatArray:
    """xi_i = m_i: izmailov2016, section 4.2.

    Parameters
    ----------
    latent_mean : (b,)
    """
    return np.array(latent_mean)


class Objective(NamedTuple):
    """Newton's method on Psi as seen at a position: arrays that are affine in p, such as p itself or A'p and p."""

    target: Callable[[Position], Position]  # where a full step leads
    height: Callable[[Position], float]  # Psi
    length: Callable[[Position, Position], float]  # largest |move| / sqrt(1 + f^2) of a datum, from (position, move)


class Top(NamedTuple):
    """Where it arrived."""

    position: Position
    trace: list[float]  # Psi
    residual: float
    converged: bool


@one_thread
def newton(
    objective: Objective,
    start: Position,
    n: int,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[Any], None] | None = None,
) -> Top:
    """Full steps, halved where Psi would fall.

    Parameters
    ----------
    objective               Psi and its steps
    start                   where to begin
    n : int                 data: rounding of Psi
    tolerance : float       on the scaled distance from the mode
    max_iterations : int    steps
    callback : callable     called with Psi after every step
    """
    position, here = start, objective.height(start)
    trace = [here]
    while True:
        move = tuple(b - a for a, b in zip(position, objective.target(position), strict=True))
        # Newton's error after the step is of second order: the step itself bounds the distance left before it
        step, length = objective.length(position, move), 1.0
        while True:
            ahead = tuple(a + length * b for a, b in zip(position, move, strict=True))
            there = objective.height(ahead)
            if there >= here - 64.0 * np.finfo(np.float64).eps * (n + abs(here)) or length < _SHORTEST:
                break
            length *= 0.5
        position, here = ahead, there
        trace.append(here)
        # a full step of size s leaves s^2, up to a constant
        residual = step * min(1.0, step) if length == 1.0 and step < 1e-3 else step
        if callback is not None:
            callback(here)
        if residual <= tolerance or length < _SHORTEST or len(trace) > max_iterations or ended():
            return Top(position, trace, residual, residual <= tolerance)


def _newton(
    prior: Prepared,
    local_quadratic: Expanded,
    start: FloatArray | None,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[Any], None] | None,
) -> tuple[FloatArray, list[float], float, bool]:
    """xi at the mode: `newton` from f = 0, or from q at the expansion at `start`."""
    y, n = prior.y_sign, prior.y_sign.size

    def condition_at(xi: FloatArray) -> Position:
        quadratic = local_quadratic.at(y, xi)
        result = condition(prior, quadratic.precision, quadratic.shift)
        return result.proj_mean, result.weights

    def height(position: Position) -> float:
        mean, weights = position
        norm = weights @ (mean if isinstance(prior, FullPrior) else weights)
        return float(local_quadratic.log_likelihood(y, mean).value.sum()) - 0.5 * float(norm)

    def length(position: Position, move: Position) -> float:
        return float(np.abs(move[0] / np.sqrt(1.0 + position[0] * position[0])).max())

    first: Position = np.zeros(n), np.zeros(n if isinstance(prior, FullPrior) else prior.Z.shape[0])
    if start is not None:
        result = condition_at(start)
        if np.isfinite(result[0]).all():
            first = result
    objective = Objective(lambda position: condition_at(position[0]), height, length)
    top = newton(objective, first, n, tolerance, max_iterations, callback)
    return top.position[0], *top[1:]


@equation("izmailov2016", "vi-taylor")
@takes_values
def fit(data: Data, prior: Prior, options: TaylorOptions = DEFAULTS) -> TaylorPosterior:
    """vi-taylor: izmailov2016, section 4.2, to its fixed point; with learning, Algorithm 1 with (19) in stage 2.

    What is maximised in stage 2, (19) with every constant, is no bound, and moves with xi: an iteration may lower it.
    Time a step 2 n m^2 + m^3/3.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function; inducing points are kept as they are
    options          tolerance on the relative change of the objective (learning) and on the scaled distance of xi from
                     the fixed point; max_iterations of the alternation, or of Newton's method

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    chosen = checked_learn(options.learn)
    prepared = prepare(data, prior, options)
    expansion = Expanded(link_of(options.likelihood).log_likelihood)
    learning: Learning | None = None
    start: FloatArray | None = None
    if chosen:
        state = Alternation.start(prepared, expansion, options.hyperprior)

        def second(state: Alternation) -> Any:
            # plain updates may have leapt past the mode: expand where Newton's method, guarded, arrives
            if _overshot(state, expansion.log_likelihood):
                state.optimise(_newton(state.prior, expansion, None, 1e-6, 100, None)[0])
            return stage_two(state, chosen, options.n_fun)

        learning = alternate(
            state,
            second,
            options,
            n_upd=options.n_upd,
            joint=False,
        )
        prepared, start = state.prior, state.xi
    xi, trace, residual, converged = _newton(
        prepared, expansion, start, options.tolerance, options.max_iterations, None if learning else options.callback
    )
    result = evaluate(prepared, expansion, xi)
    posterior = TaylorPosterior(
        prepared,
        result,
        xi,
        -expansion.log_likelihood(prepared.y_sign, xi).curvature,
        result.elbo,
        np.array(trace) if learning is None else learning.trace,
        residual,
        converged and (learning is None or learning.converged),
        learning,
    )
    object.__setattr__(posterior, "likelihood", options.likelihood)
    return posterior


def _overshot(state: Alternation, log_likelihood: LogLikelihood) -> bool:
    """The data are less likely at xi than at f = 0, which no point as high as Psi(0) is: the updates leapt."""
    y = state.prior.y_sign
    zero = float(log_likelihood(y, np.zeros(y.size)).value.sum())
    return not float(log_likelihood(y, state.xi).value.sum()) >= zero


@one_thread
def gradients(posterior: TaylorPosterior) -> Gradients:
    """Derivative of (19) at its xi held: variance float, lengthscales (d,), noise float, Z (m, d) or None.

    Parameters
    ----------
    posterior    from `fit`
    """
    value = posterior.evaluation
    local_quadratic = Expanded(link_of(posterior.likelihood).log_likelihood)
    return gradients_at(posterior.prior, local_quadratic, posterior.xi, value.factor, value.weights)


@Blocks.checks
def predict(posterior: TaylorPosterior, X_test: Any, *, block_size: int = 4096) -> Prediction | ProbitPrediction:
    """Latent moments and class probabilities at test points. Time O(t m (m + d)), with n for m if full.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    moments = latent(posterior, X_test, block_size=block_size)
    return link_of(posterior.likelihood).prediction(*moments)
