"""Algorithm 1 and its variants: vi-JJ, vi-JJ-full, vi-JJ-hybrid (section 4.1) and vi-Taylor (section 4.2)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._search import REACH, Limits, maximise
from reference.common.ledger import equation
from reference.izmailov2016 import _prior
from reference.izmailov2016._prior import Matrices
from reference.izmailov2016.jaakkola_jordan import (
    jj_collapsed_bound,
    jj_collapsed_gradient,
    jj_optimal_covariance,
    jj_optimal_mean,
    jj_optimal_xi,
)
from reference.izmailov2016.model import Prior
from reference.izmailov2016.record import Alternation, AlternationState, Rounds, Sweeps, Variational, largest_move
from reference.izmailov2016.sparse import marginal_moments
from reference.izmailov2016.taylor import (
    taylor_collapsed_bound,
    taylor_collapsed_gradient,
    taylor_optimal_covariance,
    taylor_optimal_mean,
    taylor_xi,
)

Array = NDArray[np.float64]


class Adapted(NamedTuple):
    """Hyper-parameters after a second stage."""

    hyper: Prior
    xi: Array  # (n,)
    bound: float
    evaluations: int


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

    It is Newton's method on log p(u) + Σ_i log p(y_i|κ_i u), in which Σ plays no part.

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

    mu, Sigma = inducing_mean, inducing_cov
    # fmt: off
    for _ in range(n_upd):
        m, _ = marginal_moments(mu, Sigma, K_ZZ, K_XZ, k_xx)                         # (10)
        xi = taylor_xi(m)                                                            # below (18)
        mu = taylor_optimal_mean(xi, y_sign, K_ZZ, K_XZ, likelihood)                 # (18)
        Sigma = taylor_optimal_covariance(xi, y_sign, K_ZZ, K_XZ, likelihood)        # (17)
    # fmt: on
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


def taylor_stage_two(
    X: Array, y_sign: Array, hyper: Prior, xi: Array, learn: Sequence[str], n_fun: int, likelihood: str = "logit"
) -> Adapted:
    """The same with J̃_ξ of (19) in the place of Ĵ: izmailov2016, section 4.2.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ, where the search starts; logarithms move
    xi : (n,)                 ξ, held
    learn : names             of "variance", "lengthscales", "noise"
    n_fun : int               evaluations of J̃ and its gradient
    likelihood : str          "logit" or "probit"
    """
    names = tuple(learn)
    if not names:  # θ held: there is nothing to search
        return Adapted(hyper, xi, taylor_collapsed_bound(xi, y_sign, *_prior.matrices(X, hyper), likelihood), 1)

    def objective(where: Array) -> tuple[float, Array]:
        there = _prior.moved(hyper, names, where)
        K = _prior.matrices(X, there)
        derivatives = taylor_collapsed_gradient(xi, y_sign, *K, likelihood)
        gradient = _prior.log_derivatives(there, names, _prior.through_kernel(derivatives, X, there, names))
        return taylor_collapsed_bound(xi, y_sign, *K, likelihood), gradient

    optimum = maximise(objective, _prior.coordinates(hyper, names), Limits(evaluations=n_fun), REACH)
    return Adapted(_prior.moved(hyper, names, optimum.where), xi, optimum.value, optimum.evaluations)


def jj_fixed_point(q: Variational, y_sign: Array, K: Matrices, sweeps: Sweeps) -> Variational:
    """(15), (13), (12) until μ and Σ stand still, at given θ: there all variants of vi-JJ maximise (14).

    Parameters
    ----------
    q : Variational           where to start
    y_sign : (n,)             y, labels -1 or +1
    K : Matrices              of the prior
    sweeps : Sweeps           new
    """
    while not sweeps.ended:
        before, q = q, vi_jj_stage_one(*q[:2], y_sign, *K, 1)
        sweeps.made(q, before, K, jj_collapsed_bound(q.xi, y_sign, *K))
    return q


def taylor_fixed_point(
    q: Variational, y_sign: Array, K: Matrices, sweeps: Sweeps, likelihood: str = "logit"
) -> Variational:
    """ξ = m, (18), (17) until μ and Σ stand still, at given θ.

    Parameters
    ----------
    q : Variational           where to start
    y_sign : (n,)             y, labels -1 or +1
    K : Matrices              of the prior
    sweeps : Sweeps           new
    likelihood : str          "logit" or "probit"
    """
    while not sweeps.ended:
        before, q = q, taylor_stage_one(*q[:2], y_sign, *K, 1, likelihood)
        sweeps.made(q, before, K, taylor_collapsed_bound(q.xi, y_sign, *K, likelihood))
    return q


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
    K = _prior.matrices(X, hyper)
    # fmt: off
    q = Variational(*vi_jj_init(len(K.K_ZZ)), np.full(len(X), np.nan))                        # μ, Σ ← 0, I
    rounds = Rounds(tolerance, max_iterations, callback)
    while not rounds.ended:
        before, q = q, vi_jj_stage_one(*q[:2], y_sign, *K, n_upd)                 # stage 1
        move = largest_move(q, before, K)
        hyper, xi, bound, _ = vi_jj_stage_two(X, y_sign, hyper, q.xi, learn, n_fun)          # stage 2
        K, q = _prior.matrices(X, hyper), q._replace(xi=xi)
        rounds.made(bound, move, hyper, q)
    # fmt: on
    return rounds.result(hyper, q)


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
    K = _prior.matrices(X, hyper)
    # fmt: off
    q = Variational(*vi_jj_init(len(K.K_ZZ)), np.full(len(X), np.nan))                        # μ, Σ ← 0, I
    rounds = Rounds(tolerance, max_iterations, callback)
    while not rounds.ended:
        before, q = q, vi_jj_stage_one(*q[:2], y_sign, *K, n_upd)                 # stage 1
        move = largest_move(q, before, K)
        hyper, xi, bound, _ = vi_jj_stage_two(                                                # 4.1, over θ and ξ
            X, y_sign, hyper, q.xi, learn, n_fun, joint=True)
        K, q = _prior.matrices(X, hyper), q._replace(xi=xi)
        rounds.made(bound, move, hyper, q)
    # fmt: on
    return rounds.result(hyper, q)


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
    K = _prior.matrices(X, hyper)
    # fmt: off
    q = Variational(*vi_jj_init(len(K.K_ZZ)), np.full(len(X), np.nan))                        # μ, Σ ← 0, I
    rounds = Rounds(tolerance, max_iterations, callback)
    while not rounds.ended:
        before, q = q, taylor_stage_one(*q[:2], y_sign, *K, n_upd, likelihood)    # stage 1
        move = largest_move(q, before, K)
        hyper, xi, bound, _ = taylor_stage_two(X, y_sign, hyper, q.xi, learn, n_fun, likelihood)   # (19)
        K, q = _prior.matrices(X, hyper), q._replace(xi=xi)
        rounds.made(bound, move, hyper, q)
    # fmt: on
    return rounds.result(hyper, q)
