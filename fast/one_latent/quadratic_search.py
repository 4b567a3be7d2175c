"""Algorithm 1 of izmailov2016: q and xi in closed form, then a few quasi-Newton steps on the prior, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core.blocks import kept_bytes
from fast.core.declare import Options, option
from fast.core.ending import ENOUGH, ended, enough, reached
from fast.core.hyperprior import Hyperprior
from fast.core.inputs import Hyper
from fast.core.options import Iteration, Storage, Watched
from fast.core.options import Learning as Learned
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.core.values import Data, Prior, checked_binary
from fast.ledger import equation
from fast.one_latent.learning import maximise
from fast.one_latent.prior import Evaluation, FullPrior
from fast.one_latent.quadratic_sweep import (
    BlockPrior,
    Collapsed,
    Factored,
    LocalQuadratic,
    Prepared,
    carried,
    collapsed,
    evaluate,
    factored,
    gradients_at,
    moments,
    sweep,
    unit_covariance,
)
from fast.one_latent.whitened import EvaluatedPosterior
from fast.solve.adam import Packing
from fast.solve.lbfgs import Limits, Place, Search

_LARGEST_LOG_MOVE = 20.0


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadraticOptions(Iteration, Watched, Storage, Learned):
    """Options of the methods of local quadratics; izmailov2016, section 3, keeps the inducing points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds(Options):
    """One round of the alternation; the defaults are those of izmailov2016, section 5.1."""

    n_upd: int = option("integer", "updates of the local parameters in a round", "[1, 10000]", default=3)
    n_fun: int = option("integer", "evaluations of the bound in a round", "[1, inf)", default=5)


DEFAULTS = Storage()


class Progress(NamedTuple):
    """What a callback sees after every iteration."""

    iteration: int
    objective: float
    hyper: Hyper
    residual: float  # relative change of the objective


class Learning(NamedTuple):
    """Where the alternation ended."""

    prior: Prepared
    xi: FloatArray  # (n,)
    trace: FloatArray  # objective after each iteration
    residual: float
    converged: bool
    reason: str
    n_evaluations: int  # of the collapsed bound in stage 2


def checked_learn(learn: Iterable[str]) -> tuple[str, ...]:
    """Names to learn, Z not among them: izmailov2016, section 3, keeps the inducing points.

    Parameters
    ----------
    learn    names out of variance, lengthscales, noise
    """
    chosen = (learn,) if isinstance(learn, str) else tuple(learn)
    if "Z" in chosen:
        raise ValueError("learn: found 'Z', expected names of variance, lengthscales, noise; inducing points are kept")
    return chosen


def prepare(data: Data, prior: Prior, options: Storage = DEFAULTS) -> Prepared:
    """Check the data; nothing that depends on them is computed but K_ZZ, or K_XX.

    Parameters
    ----------
    data : Data           labels 0, 1
    prior : Prior         of one latent function
    options : Storage     A is kept if n m numbers fit the budget, else computed again in every visit

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    X, y_sign, hyper, Z = checked_binary(data, prior)
    if Z is None:
        return FullPrior(X, y_sign, hyper, options.block_size)
    return BlockPrior(X, y_sign, Z, hyper, options.block_size, kept_bytes(options.memory_budget))


def prior_at(prior: Prepared, hyper: Hyper) -> Prepared:
    """The same data under other parameters.

    Parameters
    ----------
    prior    the training data
    hyper    parameters of the prior
    """
    if isinstance(prior, FullPrior):
        return FullPrior(prior.X, prior.y_sign, hyper, prior.block_size)
    return BlockPrior(prior.X, prior.y_sign, prior.Z, hyper, prior.block_size, prior.budget)


@equation("izmailov2016", "alg1-init")
def initial_moments(prior: Prepared) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of every f_i under q(u) = N(0, I): izmailov2016, Algorithm 1's start. Time n m^2.

    Parameters
    ----------
    prior    the training data
    """
    if isinstance(prior, FullPrior):
        return np.zeros(prior.y_sign.size), np.ones(prior.y_sign.size)
    return moments(prior, unit_covariance(prior))


@dataclass
class Alternation:
    """q(u) = N(mu, Sigma) between the stages, under a prior that moves."""

    prior: Prepared
    local_quadratic: LocalQuadratic
    xi: FloatArray  # (n,)
    end: Collapsed | None = None
    hyperprior: Hyperprior | None = None  # of what stage 2 learns
    _q: Factored | None = None
    evaluation: Evaluation | None = None  # full GP: of the last update
    _moments: tuple[FloatArray, FloatArray] | None = None  # full GP: they do not see the kernel

    @classmethod
    def start(
        cls, prior: Prepared, local_quadratic: LocalQuadratic, hyperprior: Hyperprior | None = None
    ) -> Alternation:
        """mu = 0, Sigma = I."""
        result = cls(prior, local_quadratic, np.zeros(prior.y_sign.size), hyperprior=hyperprior)
        if isinstance(prior, FullPrior):
            result._moments = initial_moments(prior)
        else:
            result._q = unit_covariance(prior)
        return result

    def update(self) -> float:
        """xi, then mu and Sigma; the largest scaled change of xi."""
        if isinstance(self.prior, FullPrior):
            assert self._moments is not None
            result = self.local_quadratic.local(*self._moments)
            size = np.hypot(self._moments[0], np.sqrt(self._moments[1]))
            change = float((np.abs(result - self.xi) / size).max())
            self.xi = result
            self._full()
            return change
        step = sweep(self.prior, self.local_quadratic, self.xi, self._q)
        self.end, self._q = step.end, factored(step.end)
        return step.change

    def _full(self) -> None:
        state = evaluate(self.prior, self.local_quadratic, self.xi)
        self.evaluation, self._moments = state, (state.latent_mean, state.latent_var)
        self.end = Collapsed(state.factor, np.empty(0), state.weights, state.elbo)

    def optimise(self, xi: FloatArray) -> None:
        """mu and Sigma at their optimum for given xi."""
        self.xi = xi
        if isinstance(self.prior, FullPrior):
            self._full()
        else:
            self.end = sweep(self.prior, self.local_quadratic, xi).end
            self._q = factored(self.end)

    def move(self, prior: Prepared) -> None:
        """Another kernel, mu and Sigma held."""
        if not isinstance(prior, FullPrior):
            assert self.end is not None
            assert isinstance(self.prior, BlockPrior)
            self._q = carried(self.end, self.prior.chol_K, prior.chol_K)
        self.prior = prior


@equation("izmailov2016", "alg1-stage1")
def stage_one(state: Alternation, n_upd: int) -> Collapsed:
    """xi from q, q from xi, n_upd times: izmailov2016, Algorithm 1. Time n_upd (3/2 n m^2 + m^3/3).

    Parameters
    ----------
    state           q(u) and xi, changed in place
    n_upd : int     updates
    """
    for _ in range(n_upd):
        state.update()
    assert state.end is not None
    return state.end


def _same(one: Hyper, two: Hyper) -> bool:
    """Equal but for the rounding of a logarithm and back."""
    here, there = (np.array([h.variance, h.noise, *h.lengthscales]) for h in (one, two))
    return bool((np.abs(here - there) <= 8.0 * np.finfo(np.float64).eps * there).all())


class Stage(NamedTuple):
    """What stage 2 found."""

    prior: Prepared
    xi: FloatArray
    value: float  # the bound and the log density of what is learned
    n_evaluations: int


class _Bound:
    """The collapsed bound as a function of the prior's parameters, and of xi if asked.

    Remembers the prior that was best by the bound and the log density of what is learned.
    """

    def __init__(self, state: Alternation, learn: tuple[str, ...]) -> None:
        self.state = state
        prior = state.prior
        self.packing = Packing(learn, prior.hyper, None, state.hyperprior)
        self.best: tuple[float, Prepared] = (-np.inf, prior)

    def at(self, hyper: Hyper, xi: FloatArray) -> tuple[Prepared, Collapsed]:
        state = self.state
        if self.packing.size == 0 or _same(hyper, state.prior.hyper):
            prior = state.prior
            known = state.end is not None and xi is state.xi
            end = state.end if known else collapsed(prior, state.local_quadratic, xi)
            assert end is not None
        else:
            prior = prior_at(state.prior, hyper)
            end = collapsed(prior, state.local_quadratic, xi)
        value = end.value + self.packing.prior(prior.hyper)[0]
        if value > self.best[0]:
            self.best = (value, prior)
        return prior, end

    def held(self, hyper: Hyper, _: Any) -> tuple[float, Gradients]:
        """Value and gradient at xi held."""
        xi = self.state.xi
        prior, end = self.at(hyper, xi)
        return end.value, gradients_at(prior, self.state.local_quadratic, xi, end.factor, end.weights)


@equation("izmailov2016", "alg1-stage2")
def stage_two(state: Alternation, learn: tuple[str, ...], n_fun: int) -> Stage:
    """About n_fun evaluations of L-BFGS-B on the collapsed bound at xi held: izmailov2016, Algorithm 1.

    The log density of what is learned counts too, if the state has one.
    The search ends with the step in which the evaluations run out (SciPy's `maxfun`). Time n_fun O(n m (m + d) + m^3).

    Parameters
    ----------
    state              q(u) at its optimum given xi; left alone
    learn              names of learned parameters
    n_fun : int
    """
    bound = _Bound(state, learn)
    optimum = maximise(bound.held, bound.packing, max_iterations=n_fun, tolerance=1e-10, max_evaluations=n_fun)
    return Stage(bound.best[1], state.xi, bound.best[0], optimum.n_evaluations)


def joint_search(
    state: Alternation,
    learn: tuple[str, ...],
    local_gradient: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
    *,
    max_evaluations: int,
    max_iterations: int,
    tolerance: float,
) -> Stage:
    """L-BFGS-B on the collapsed bound over parameters of the prior, in logarithms, and all xi together.

    Time an evaluation O(n m (m + d) + m^3), memory O(n) for some twenty past vectors.

    Parameters
    ----------
    state                        q(u) and xi to start from; left alone
    learn                        names of learned parameters, or none
    local_gradient : callable    (xi, latent_mean, latent_var) -> derivative of the bound in xi (n,)
    max_evaluations : int        of the bound; the step in which they run out is finished
    max_iterations : int
    tolerance : float            relative change of the bound in one step; 0: a part of a longer search, which
                                 knows where predictions no longer change
    """
    bound = _Bound(state, learn)
    packing = bound.packing
    size = packing.size
    hyper = state.prior.hyper
    start = np.concatenate([packing.vector(hyper, None), state.xi])

    def place(vector: FloatArray, _: Any) -> Place:
        xi = vector[size:].copy()
        moved = packing.parameters(vector[:size], hyper, None)[0]
        prior, end = bound.at(moved, xi)
        derivative = np.empty(vector.size)
        if isinstance(prior, FullPrior):
            state_at = evaluate(prior, state.local_quadratic, xi)
            mean, var = state_at.latent_mean, state_at.latent_var
        else:
            mean, var = moments(prior, factored(end))
        derivative[size:] = local_gradient(xi, mean, var)
        log_prior, by_prior = packing.prior(moved)
        if size:
            gradients = gradients_at(prior, state.local_quadratic, xi, end.factor, end.weights)
            derivative[:size] = packing.gradient(gradients, moved) + by_prior
        return Place(end.value + log_prior, derivative)

    reach = np.concatenate([np.full(size, _LARGEST_LOG_MOVE), np.full(state.xi.size, np.inf)])
    search = Search(place)
    alone = bool(learn) and tolerance > 0.0
    limits = Limits(max_iterations, 1e-10, tolerance, max_evaluations, gains=alone)
    search.round(start, limits, (start - reach, start + reach) if size else None)
    best = search.best
    assert best is not None  # the start raises, or counts
    return Stage(bound.best[1], best.vector[size:], best.place.value, search.n_evaluations)


def alternate(
    state: Alternation,
    second: Callable[[Alternation], Stage],
    options: QuadraticOptions,
    *,
    n_upd: int,
    joint: bool,
) -> Learning:
    """Stage 1 and stage 2 in turn until the bound changes by less than the tolerance, relative: izmailov2016, Alg. 1.

    As printed, stage 1 starts from mu and Sigma of the iteration before, under the new kernel: the bound after an
    iteration may then lie below the one before. If stage 2 moves xi too (joint), mu and Sigma are first brought to
    their optimum at the xi it found, or that would be lost; then no iteration lowers the bound.

    Parameters
    ----------
    state                    q(u) and xi, changed in place
    second : callable        stage 2
    options                  tolerance on the relative change of the bound after stage 2; the callback is given a
                             Progress after every iteration
    n_upd : int              updates of stage 1
    joint : bool             stage 2 moves xi as well
    """
    tolerance, max_iterations, callback = options.tolerance, options.max_iterations, options.callback
    trace: list[float] = []
    residual, evaluations = np.inf, 0
    while True:
        stage_one(state, n_upd)
        result = second(state)
        evaluations += result.n_evaluations
        if joint:
            state.prior, state.end = result.prior, None
            state.optimise(result.xi)
        else:
            state.move(result.prior)
        if trace:
            residual = abs(result.value - trace[-1]) / max(1.0, abs(result.value))
        trace.append(result.value)
        if callback is not None:
            callback(Progress(len(trace), result.value, state.prior.hyper, residual))
        settled = residual < tolerance
        flat = enough(np.maximum.accumulate(trace).tolist())  # an iteration may lower the bound
        converged = settled or flat
        reached(f"iteration {len(trace)}", result.value)
        why = ended()
        if converged or why or len(trace) >= max_iterations:
            reason = "the bound has settled" if settled else ENOUGH if flat else why or "iteration limit reached"
            return Learning(state.prior, state.xi, np.array(trace), residual, converged, reason, evaluations)


@dataclass(frozen=True, eq=False)
class QuadraticPosterior(EvaluatedPosterior):
    """q(u) at the fixed point, and how learning went."""

    prior: Prepared
    evaluation: Evaluation
    xi: FloatArray  # (n,)
    site_precision: FloatArray  # (n,)
    elbo: float  # what is maximised, every constant in it
    trace: FloatArray
    residual: float
    converged: bool
    learning: Learning | None
