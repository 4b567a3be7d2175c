"""Algorithm 1 and its variants: vi-JJ, vi-JJ-full, vi-JJ-hybrid (section 4.1) and vi-Taylor (section 4.2)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._iteration import change
from reference.common._search import REACH, Limits, maximise
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.izmailov2016 import _prior
from reference.izmailov2016._prior import Matrices, Prior
from reference.izmailov2016.bound import kl_gaussian
from reference.izmailov2016.jaakkola_jordan import (
    jj_collapsed_bound,
    jj_collapsed_gradient,
    jj_optimal_covariance,
    jj_optimal_mean,
    jj_optimal_xi,
)
from reference.izmailov2016.model import REMEDY_Z
from reference.izmailov2016.sparse import marginal_moments
from reference.izmailov2016.taylor import (
    taylor_collapsed_bound,
    taylor_collapsed_gradient,
    taylor_log_likelihood,
    taylor_optimal_covariance,
    taylor_optimal_mean,
    taylor_xi,
)

Array = NDArray[np.float64]


class Variational(NamedTuple):
    """q(u) = N(μ, Σ) and the local parameters."""

    inducing_mean: Array  # (m,)
    inducing_cov: Array  # (m, m)
    xi: Array  # (n,)


class Adapted(NamedTuple):
    """Hyper-parameters after a second stage."""

    hyper: Prior
    xi: Array  # (n,)
    bound: float
    evaluations: int


def largest_move(new: Variational, old: Variational, K: Matrices) -> float:
    """Relative change of μ and Σ: where labels cancel, the digits of μ that are left are those of rounding.

    μ is measured against the larger of its largest entry and 1 % of what it would be if all labels pulled one way.

    Parameters
    ----------
    new, old : Variational
    K : Matrices              of the prior
    """
    kappa = K.K_XZ @ factorise(K.K_ZZ, "K_ZZ", REMEDY_Z).inverse
    uncancelled = 0.5 * float(np.max(np.sum(np.abs(new.inducing_cov @ kappa.T), axis=1)))
    mean = change(new.inducing_mean, old.inducing_mean, 0.01 * uncancelled)
    return max(mean, change(new.inducing_cov, old.inducing_cov))


class Alternation(NamedTuple):
    """Where an algorithm ended."""

    hyper: Prior
    q: Variational
    trace: Array  # bound after each iteration
    residual: float  # relative change of the bound in the last iteration
    converged: bool
    iterations: int
    moves: tuple[float, ...] = ()  # relative changes of μ and Σ from iteration to iteration


class AlternationState(NamedTuple):
    """What a callback is told after each iteration."""

    iteration: int
    elbo: float
    residual: float
    hyper: Prior
    inducing_mean: Array
    inducing_cov: Array


StageOne = Callable[[Variational, Matrices], Variational]
StageTwo = Callable[[Prior, Array], Adapted]


@equation("izmailov2016", "alg1-init")
def vi_jj_init(n_inducing: int) -> tuple[Array, Array]:
    """Starting values: izmailov2016, algorithm 1.

        μ, Σ ← 0, I

    Parameters
    ----------
    n_inducing : int          m

    Returns
    -------
    μ (m,), Σ (m, m)
    """
    return np.zeros(n_inducing), np.eye(n_inducing)


@equation("izmailov2016", "alg1-stage1")
def vi_jj_stage_one(
    inducing_mean: Array, inducing_cov: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array, n_upd: int
) -> Variational:
    """First stage: ξ, then μ and Σ, recomputed n_upd times: izmailov2016, algorithm 1.

        m_t, S_t² ← k_tᵀK_mm⁻¹μ̃, K_tt + k_tᵀK_mm⁻¹(Σ̃ - K_mm)K_mm⁻¹k_t
        ξ̃_t² ← m_t² + S_t²
        μ̃, Σ̃ ← μ̂(ξ̃), Σ̂(ξ̃)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn
    n_upd : int               rounds, at least 1

    Returns
    -------
    Variational               inducing_mean (m,), inducing_cov (m, m), xi (n,)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular

    Notes
    -----
    The algorithm prints S_t for what is the variance S_t² of (10), and squares it in its next line: see `errata`.
    """
    mu, Sigma = inducing_mean, inducing_cov
    # fmt: off
    for _ in range(n_upd):
        m, S2 = marginal_moments(mu, Sigma, K_ZZ, K_XZ, k_xx)                        # (10)
        xi = jj_optimal_xi(m, S2)                                                    # (15)
        mu = jj_optimal_mean(xi, y_sign, K_ZZ, K_XZ)                                 # (13)
        Sigma = jj_optimal_covariance(xi, K_ZZ, K_XZ)                                # (12)
    # fmt: on
    return Variational(mu, Sigma, xi)


def taylor_stage_one(
    inducing_mean: Array,
    inducing_cov: Array,
    y_sign: Array,
    K_ZZ: Array,
    K_XZ: Array,
    k_xx: Array,
    n_upd: int,
    likelihood: str = "logit",
) -> Variational:
    """The same for vi-Taylor: ξ_i = m_i, then (17) and (18), n_upd times: izmailov2016, section 4.2.

    It is Newton's method on log p(u) + Σ_i log p(y_i|κ_i u), in which Σ plays no part. Where a whole step would lower
    that (a far start under a large prior variance), ξ_i stops half-way, and again; the paper takes whole steps.

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn
    n_upd : int               rounds, at least 1
    likelihood : str          "logit" or "probit"

    Returns
    -------
    Variational               inducing_mean, inducing_cov, xi
    """

    def height(at: Array) -> float:
        f = marginal_moments(at, Sigma, K_ZZ, K_XZ, k_xx).latent_mean
        log_likelihood = float(np.sum(taylor_log_likelihood(f, f, y_sign, likelihood)))  # exact where it is expanded
        return log_likelihood - kl_gaussian(at, K_ZZ, K_ZZ)  # ½ atᵀK_mm⁻¹at

    mu, Sigma = inducing_mean, inducing_cov
    for _ in range(n_upd):
        # fmt: off
        m, _ = marginal_moments(mu, Sigma, K_ZZ, K_XZ, k_xx)                         # (10)
        xi = taylor_xi(m)                                                            # below (18)
        new = taylor_optimal_mean(xi, y_sign, K_ZZ, K_XZ, likelihood)                # (18)
        Sigma = taylor_optimal_covariance(xi, y_sign, K_ZZ, K_XZ, likelihood)        # (17)
        # fmt: on
        now, step = height(mu), 1.0
        # at the mode the height changes by rounding only
        while step > 1e-6 and not height(mu + step * (new - mu)) >= now - 1e-10 * (1.0 + abs(now)):
            step *= 0.5
        mu = (1.0 - step) * mu + step * new
    return Variational(mu, Sigma, xi)


@equation("izmailov2016", "alg1-stage2")
def vi_jj_stage_two(
    X: Array, y_sign: Array, hyper: Prior, xi: Array, learn: Sequence[str], n_fun: int, joint: bool = False
) -> Adapted:
    """Second stage: a few evaluations of L-BFGS-B on the compact bound: izmailov2016, algorithm 1.

        θ = argmax Ĵ(·, ξ), method L-BFGS-B, at most n_fun evaluations

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ, where the search starts; logarithms move
    xi : (n,)                 ξ
    learn : names             of "variance", "lengthscales", "noise"
    n_fun : int               evaluations of Ĵ and its gradient, the first at the start
    joint : bool              search ξ too: the second stage of vi-JJ-hybrid

    Returns
    -------
    Adapted                   hyper, xi, bound (never below that at the start), evaluations

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start

    Notes
    -----
    The paper writes "minimize(Ĵ(·, ξ))": with the name of the routine for its argument's sign; see `errata`.
    """
    names = tuple(learn)
    size = len(_prior.coordinates(hyper, names))
    objective = _jj_objective(X, y_sign, hyper, xi, names, joint)
    if not (names or joint):  # θ held: there is nothing to search
        return Adapted(hyper, xi, jj_collapsed_bound(xi, y_sign, *_prior.matrices(X, hyper)), 1)
    start = np.concatenate([_prior.coordinates(hyper, names), xi if joint else np.zeros(0)])
    reach = np.concatenate([np.full(size, REACH), np.full(len(start) - size, np.inf)])
    optimum = maximise(objective, start, Limits(evaluations=n_fun), reach)
    new_xi = optimum.where[size:] if joint else xi
    return Adapted(_prior.moved(hyper, names, optimum.where[:size]), new_xi, optimum.value, optimum.evaluations)


def _jj_objective(
    X: Array, y_sign: Array, hyper: Prior, xi: Array, learn: tuple[str, ...], joint: bool
) -> Callable[[Array], tuple[float, Array]]:
    """Ĵ and its gradient at logarithms of θ, followed by ξ if it moves too."""
    size = len(_prior.coordinates(hyper, learn))
    held = None if learn else _prior.matrices(X, hyper)

    def objective(where: Array) -> tuple[float, Array]:
        there = _prior.moved(hyper, learn, where[:size])
        at = where[size:] if joint else xi
        K = _prior.matrices(X, there) if held is None else held
        gradient = jj_collapsed_gradient(at, y_sign, *K)
        of_theta = _prior.log_derivatives(there, learn, _prior.through_kernel(gradient.derivatives, X, there, learn))
        parts = [of_theta, gradient.xi] if joint else [of_theta]
        return jj_collapsed_bound(at, y_sign, *K), np.concatenate(parts)

    return objective


def alternate(
    X: Array,
    hyper: Prior,
    first_stage: StageOne,
    second_stage: StageTwo,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[AlternationState], None] | None = None,
) -> Alternation:
    """The outer loop of algorithm 1, from μ = 0, Σ = I, until the relative change of the bound is below tolerance.

    Parameters
    ----------
    X : (n, d)                inputs
    hyper : Prior             θ at the start
    first_stage : callable    Variational and Matrices to a new Variational
    second_stage : callable   Prior and ξ to Adapted
    tolerance : float         of the relative change of the bound
    max_iterations : int      iterations after which the loop gives up
    callback : callable       called with an AlternationState after each

    Returns
    -------
    Alternation               μ and Σ are those of the last first stage, as in the algorithm: of the θ before the last
    step
    """
    K = _prior.matrices(X, hyper)
    q = Variational(*vi_jj_init(len(K.K_ZZ)), np.full(len(X), np.nan))  # ξ: none before the first stage
    trace: list[float] = []
    moves: list[float] = []
    residual, converged = np.inf, False
    while not converged and len(trace) < max_iterations:
        before, q = q, first_stage(q, K)
        moves.append(largest_move(q, before, K))
        adapted = second_stage(hyper, q.xi)
        hyper, q = adapted.hyper, q._replace(xi=adapted.xi)
        K = _prior.matrices(X, hyper)
        trace.append(adapted.bound)
        if len(trace) > 1:
            residual = abs(trace[-1] - trace[-2]) / max(abs(trace[-1]), abs(trace[-2]), 1.0)
            converged = residual < tolerance
        if callback is not None:
            callback(AlternationState(len(trace), trace[-1], residual, hyper, q.inducing_mean, q.inducing_cov))
    return Alternation(hyper, q, np.array(trace), residual, converged, len(trace), tuple(moves))


@equation("izmailov2016", "alg1")
def vi_jj(
    X: Array,
    y_sign: Array,
    hyper: Prior,
    learn: Sequence[str],
    n_upd: int = 3,
    n_fun: int = 5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    callback: Callable[[AlternationState], None] | None = None,
) -> Alternation:
    """vi-JJ, stage 1 and stage 2 in turn until convergence: izmailov2016, algorithm 1.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ at the start, Z
    learn : names             of "variance", "lengthscales", "noise"
    n_upd : int               rounds of the first stage
    n_fun : int               evaluations of the second
    tolerance : float         of the relative change of the bound in one iteration
    max_iterations : int      iterations at most
    callback : callable       called with an AlternationState after each iteration

    Returns
    -------
    Alternation               hyper, q, trace (never falling), residual, converged, iterations

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start

    Notes
    -----
    "Until convergence" is not said of what; here of the bound.
    """
    return alternate(
        X,
        hyper,
        lambda q, K: vi_jj_stage_one(q.inducing_mean, q.inducing_cov, y_sign, *K, n_upd),
        lambda at, xi: vi_jj_stage_two(X, y_sign, at, xi, learn, n_fun),
        tolerance,
        max_iterations,
        callback,
    )


@equation("izmailov2016", "vi-jj-hybrid")
def vi_jj_hybrid(
    X: Array,
    y_sign: Array,
    hyper: Prior,
    learn: Sequence[str],
    n_upd: int = 3,
    n_fun: int = 5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    callback: Callable[[AlternationState], None] | None = None,
) -> Alternation:
    """vi-JJ-hybrid, the first stage of algorithm 1 and a second one over θ and ξ: izmailov2016, section 4.1.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ at the start, Z
    learn : names             of "variance", "lengthscales", "noise"
    n_upd : int               rounds of the first stage
    n_fun : int               evaluations of the second
    tolerance : float         of the relative change of the bound in one iteration
    max_iterations : int      iterations at most
    callback : callable       called with an AlternationState after each iteration

    Returns
    -------
    Alternation               as `vi_jj`

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    """
    return alternate(
        X,
        hyper,
        lambda q, K: vi_jj_stage_one(q.inducing_mean, q.inducing_cov, y_sign, *K, n_upd),
        lambda at, xi: vi_jj_stage_two(X, y_sign, at, xi, learn, n_fun, joint=True),
        tolerance,
        max_iterations,
        callback,
    )


@equation("izmailov2016", "vi-jj-full")
def vi_jj_full(
    X: Array,
    y_sign: Array,
    hyper: Prior,
    learn: Sequence[str],
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    callback: Callable[[AlternationState], None] | None = None,
) -> Alternation:
    """vi-JJ-full, one gradient search over θ and ξ on the compact bound: izmailov2016, section 4.1.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ at the start, Z
    learn : names             of "variance", "lengthscales", "noise"; none searches ξ alone
    tolerance : float         of the relative change of the bound in one iteration
    max_iterations : int      iterations at most
    callback : callable       called with an AlternationState after the search

    Returns
    -------
    Alternation               q holds (12) and (13) at the last ξ

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start

    Notes
    -----
    The paper does not say where ξ starts. Here at (15) for μ = 0, Σ = I; at ξ = 0 the gradient is zero and no search
    leaves.
    """
    names = tuple(learn)
    K = _prior.matrices(X, hyper)
    start_xi = jj_optimal_xi(*marginal_moments(*vi_jj_init(len(K.K_ZZ)), *K))
    logs = _prior.coordinates(hyper, names)
    reach = np.concatenate([np.full(len(logs), REACH), np.full(len(start_xi), np.inf)])
    objective = _jj_objective(X, y_sign, hyper, start_xi, names, joint=True)
    optimum = maximise(
        objective, np.concatenate([logs, start_xi]), Limits(rise=tolerance, iterations=max_iterations), reach
    )
    xi = optimum.where[len(logs) :]
    hyper = _prior.moved(hyper, names, optimum.where[: len(logs)])
    K = _prior.matrices(X, hyper)
    q = Variational(jj_optimal_mean(xi, y_sign, K.K_ZZ, K.K_XZ), jj_optimal_covariance(xi, K.K_ZZ, K.K_XZ), xi)
    trace = optimum.trace if len(optimum.trace) else np.array([optimum.value])
    if callback is not None:
        callback(
            AlternationState(
                optimum.iterations, optimum.value, optimum.residual, hyper, q.inducing_mean, q.inducing_cov
            )
        )
    last = abs(trace[-1] - trace[-2]) / max(1.0, abs(trace[-1])) if len(trace) > 1 else 0.0
    converged = optimum.iterations < max_iterations
    return Alternation(hyper, q, trace, float(last), converged, optimum.iterations)


@equation("izmailov2016", "vi-taylor")
def vi_taylor(
    X: Array,
    y_sign: Array,
    hyper: Prior,
    learn: Sequence[str],
    n_upd: int = 3,
    n_fun: int = 5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    callback: Callable[[AlternationState], None] | None = None,
    likelihood: str = "logit",
) -> Alternation:
    """vi-Taylor, algorithm 1 with J̃_ξ of (19) in its second stage: izmailov2016, section 4.2.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ at the start, Z
    learn : names             of "variance", "lengthscales", "noise"
    n_upd : int               rounds of the first stage
    n_fun : int               evaluations of the second
    tolerance : float         of the relative change of J̃ in one iteration
    max_iterations : int      iterations at most
    callback : callable       called with an AlternationState after each iteration
    likelihood : str          "logit" or "probit"

    Returns
    -------
    Alternation               trace need not rise: ξ_i = m_i maximises nothing

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    """
    names = tuple(learn)

    def second_stage(at: Prior, xi: Array) -> Adapted:
        if not names:  # θ held: there is nothing to search
            return Adapted(at, xi, taylor_collapsed_bound(xi, y_sign, *_prior.matrices(X, at), likelihood), 1)

        def objective(where: Array) -> tuple[float, Array]:
            there = _prior.moved(at, names, where)
            K = _prior.matrices(X, there)
            derivatives = taylor_collapsed_gradient(xi, y_sign, *K, likelihood)
            gradient = _prior.log_derivatives(there, names, _prior.through_kernel(derivatives, X, there, names))
            return taylor_collapsed_bound(xi, y_sign, *K, likelihood), gradient

        start = _prior.coordinates(at, names)
        optimum = maximise(objective, start, Limits(evaluations=n_fun), REACH)
        return Adapted(_prior.moved(at, names, optimum.where), xi, optimum.value, optimum.evaluations)

    return alternate(
        X,
        hyper,
        lambda q, K: taylor_stage_one(q.inducing_mean, q.inducing_cov, y_sign, *K, n_upd, likelihood),
        second_stage,
        tolerance,
        max_iterations,
        callback,
    )
