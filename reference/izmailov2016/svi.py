"""Sections 3.2 and 5.1: maximising (11) over μ, the factor of Σ and θ, by AdaDelta on mini-batches or L-BFGS-B."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._search import REACH, Limits, maximise
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.common.ledger import equation
from reference.izmailov2016 import _prior
from reference.izmailov2016._prior import Matrices
from reference.izmailov2016.bound import elbo, elbo_gradient, expectations, expected_log_likelihood, kl_gaussian
from reference.izmailov2016.model import REMEDY_Z, Prior
from reference.izmailov2016.record import Sweeps, Variational
from reference.izmailov2016.sparse import marginal_moments

Array = NDArray[np.float64]
Batch = NDArray[np.intp]

RATE = 0.5  # of natural-gradient steps: whole ones overshoot for "probit" at prior variances above some 20


class Parameters(NamedTuple):
    """What is optimised numerically."""

    inducing_mean: Array  # (m,)
    inducing_chol: Array  # (m, m)  lower triangular L
    hyper: Prior


class AdaDeltaMemory(NamedTuple):
    """Running averages of squares."""

    gradient: Array  # (p,)
    step: Array  # (p,)


class AdaDeltaStep(NamedTuple):
    """The step to add, and the averages after it."""

    step: Array  # (p,)
    memory: AdaDeltaMemory


class Trajectory(NamedTuple):
    """A run of AdaDelta."""

    parameters: Parameters  # at the end
    positions: Array  # (steps, p)  μ, entries of L row by row, logarithms of what is learned, after each step
    trace: Array  # (steps,)  the mini-batch's estimate of the bound after each step; empty unless asked for


class StepState(NamedTuple):
    """What a callback is told after every step."""

    iteration: int
    elbo: float | None  # the mini-batch's estimate, where it is traced
    parameters: Parameters


class BoundSearch(NamedTuple):
    """Where a search over all parameters ended."""

    parameters: Parameters
    elbo: float
    derivative: float  # largest entry of the gradient
    trace: Array
    iterations: int


@equation("izmailov2016", "u5.1-cholesky")
def covariance_from_cholesky(inducing_chol: Array) -> Array:
    """Covariance of the inducing values from its factor: izmailov2016, section 5.1.

        Σ = L Lᵀ

    Parameters
    ----------
    inducing_chol : (m, m)    L, lower triangular; its diagonal may have any sign
    """
    lower = np.tril(inducing_chol)
    return lower @ lower.T


def as_vector(parameters: Parameters, learn: Sequence[str]) -> Array:
    """μ, the lower triangle of L row by row, and the logarithms of what learn names, as one vector (p,).

    Parameters
    ----------
    parameters : Parameters   inducing_mean, inducing_chol, hyper
    learn : names             of "variance", "lengthscales", "noise"
    """
    m = len(parameters.inducing_mean)
    logs = _prior.coordinates(parameters.hyper, learn)
    return np.concatenate([parameters.inducing_mean, parameters.inducing_chol[np.tril_indices(m)], logs])


def from_vector(position: Array, parameters: Parameters, learn: Sequence[str]) -> Parameters:
    """Inverse of `as_vector`; what is not learned is taken from the parameters.

    Parameters
    ----------
    position : (p,)           the vector
    parameters : Parameters   gives sizes and what is held
    learn : names             of "variance", "lengthscales", "noise"
    """
    m = len(parameters.inducing_mean)
    lower = np.tril_indices(m)
    L = np.zeros((m, m))
    L[lower] = position[m : m + len(lower[0])]
    return Parameters(position[:m], L, _prior.moved(parameters.hyper, learn, position[m + len(lower[0]) :]))


def batch_bound(parameters: Parameters, X: Array, y_sign: Array, batch: Batch, likelihood: str = "logit") -> float:
    """Estimate of (11) of izmailov2016 from a mini-batch S: (n/s) Σ_S E log p(y_i|f_i) - KL(q(u)||p(u)).

    Parameters
    ----------
    parameters : Parameters   μ, L, θ
    X : (n, d)                inputs of all data
    y_sign : (n,)             labels of all data
    batch : (b,)              S, indices; all of them give (11) itself
    likelihood : str          "logit" or "probit"
    """
    mu, L, hyper = parameters
    Sigma = covariance_from_cholesky(L)
    rows = X if hyper.Z is None else X[batch]
    K = _prior.matrices(rows, hyper)
    q = marginal_moments(mu, Sigma, *K)
    chosen = slice(None) if hyper.Z is not None else batch
    data = expected_log_likelihood(q.latent_mean[chosen], q.latent_var[chosen], y_sign[batch], likelihood)
    return len(y_sign) / len(batch) * data - kl_gaussian(mu, Sigma, K.K_ZZ)


def batch_gradient(
    parameters: Parameters, X: Array, y_sign: Array, batch: Batch, learn: Sequence[str], likelihood: str = "logit"
) -> Array:
    """Gradient of `batch_bound` in μ, L and the logarithms of what is learned, one vector (p,).

    Parameters
    ----------
    parameters : Parameters   μ, L, θ
    X : (n, d)                inputs of all data
    y_sign : (n,)             labels of all data
    batch : (b,)              S, indices
    learn : names             of "variance", "lengthscales", "noise"
    likelihood : str          "logit" or "probit"
    """
    mu, L, hyper = parameters
    m = len(mu)
    weight = len(y_sign) / len(batch)
    if hyper.Z is None:  # u = f: rows of K_nn are data
        K = _prior.matrices(X, hyper)
        gradients = elbo_gradient(mu, L, y_sign[batch], K.K_ZZ, K.K_XZ[batch], K.k_xx[batch], weight, likelihood)
        by_nm, by_diagonal = np.zeros_like(K.K_XZ), np.zeros(len(X))
        np.add.at(by_nm, batch, gradients.derivatives.by_nm)
        np.add.at(by_diagonal, batch, gradients.derivatives.by_diagonal)
        theta = _prior.through_kernel(
            gradients.derivatives._replace(by_nm=by_nm, by_diagonal=by_diagonal), X, hyper, learn
        )
    else:
        K = _prior.matrices(X[batch], hyper)
        gradients = elbo_gradient(mu, L, y_sign[batch], *K, weight, likelihood)
        theta = _prior.through_kernel(gradients.derivatives, X[batch], hyper, learn)
    lower = gradients.inducing_chol[np.tril_indices(m)]
    return np.concatenate([gradients.inducing_mean, lower, _prior.log_derivatives(hyper, learn, theta)])


@equation("izmailov2016", "u3.2-svi")
def svi_step(
    parameters: Parameters,
    X: Array,
    y_sign: Array,
    batch: Batch,
    learn: Sequence[str],
    step: Callable[[Array], Array],
    likelihood: str = "logit",
) -> Parameters:
    """One step of stochastic maximisation of (11) over μ, Σ and θ: izmailov2016, section 3.2.

    The gradient is that of (n/s) Σ_{i in S} E log p(y_i|f_i) - KL(q(u)||p(u)), whose mean over mini-batches S is that
    of (11).

    Parameters
    ----------
    parameters : Parameters   μ, L with Σ = LLᵀ, θ
    X : (n, d)                inputs of all data
    y_sign : (n,)             labels of all data
    batch : (b,)              S, indices
    learn : names             of "variance", "lengthscales", "noise", whose logarithms move
    step : callable           gradient (p,) to what is added (p,), as `as_vector` orders them
    likelihood : str          "logit", the paper's, or "probit"

    Returns
    -------
    Parameters                after the step

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) or LLᵀ is singular
    """
    gradient = batch_gradient(parameters, X, y_sign, batch, learn, likelihood)
    return from_vector(as_vector(parameters, learn) + step(gradient), parameters, learn)


@equation("izmailov2016", "u5.1-adadelta")
def adadelta_step(gradient: Array, memory: AdaDeltaMemory, rate: float) -> AdaDeltaStep:
    """One step of ascent by AdaDelta: izmailov2016, section 5.1 (by reference), Zeiler (2012), algorithm 1.

        G ← ρ G + (1 - ρ) g²,   s = √(D + ε)/√(G + ε) · g,   D ← ρ D + (1 - ρ) s²,   step = rate · s

    with ρ = 0.95, ε = 10⁻⁶.

    Parameters
    ----------
    gradient : (p,)           g, of what is maximised
    memory : AdaDeltaMemory   G and D, zeros at the start
    rate : float              learning rate, 1 in Zeiler (2012)

    Returns
    -------
    AdaDeltaStep              step (p,), to be added; memory

    Notes
    -----
    The paper speaks of a learning rate, which Zeiler's algorithm lacks; it is a factor of the step, and D is that
    without it.
    """
    squares = 0.95 * memory.gradient + 0.05 * gradient**2
    plain = np.sqrt(memory.step + 1e-6) / np.sqrt(squares + 1e-6) * gradient
    return AdaDeltaStep(rate * plain, AdaDeltaMemory(squares, 0.95 * memory.step + 0.05 * plain**2))


@equation("izmailov2016", "u5.1-adadelta")
def svi_adadelta(
    X: Array,
    y_sign: Array,
    hyper: Prior,
    batches: Iterable[Batch],
    rate: float = 1.0,
    learn: Sequence[str] = (),
    likelihood: str = "logit",
    trace: bool = False,
    callback: Callable[[StepState], None] | None = None,
) -> Trajectory:
    """The stochastic baseline: AdaDelta on mini-batches, from μ = 0, Σ = I: izmailov2016, section 5.1.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ at the start, Z
    batches : lists of ints   the mini-batch of each step
    rate : float              learning rate
    learn : names             of "variance", "lengthscales", "noise"
    likelihood : str          "logit", the paper's, or "probit"
    trace : bool              whether the mini-batch's estimate of the bound is worked out after each step
    callback : callable       called with a StepState after each step

    Returns
    -------
    Trajectory                parameters, positions (steps, p), trace

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    ValueError                if the rate drives a parameter out of range, or a matrix to singularity
    """
    m = len(_prior.support(X, hyper))
    now = Parameters(np.zeros(m), np.eye(m), hyper)
    size = len(as_vector(now, learn))
    memory = AdaDeltaMemory(np.zeros(size), np.zeros(size))
    positions: list[Array] = []
    values: list[float] = []

    def step(gradient: Array) -> Array:
        nonlocal memory
        if not np.all(np.isfinite(gradient)):
            raise ValueError(f"rate: found {rate:.6g} and a gradient that is not finite, expected a smaller one")
        result = adadelta_step(gradient, memory, rate)
        memory = result.memory
        return result.step

    for count, batch in enumerate(batches, start=1):
        try:
            now = svi_step(now, X, y_sign, batch, learn, step, likelihood)
        except NotPositiveDefiniteError as error:
            if count == 1:
                raise
            raise ValueError(
                f"rate: found {rate:.6g}, with which {count - 1} steps led to a singular matrix ({error}); "
                "expected a smaller one, or a larger jitter"
            ) from error
        positions.append(as_vector(now, learn))
        if trace:
            values.append(batch_bound(now, X, y_sign, batch, likelihood))
        if callback is not None:
            callback(StepState(count, values[-1] if values else None, now))
    return Trajectory(now, np.array(positions), np.array(values))


@equation("izmailov2016", "u5.1-lbfgs-elbo")
def svi_lbfgs(
    X: Array,
    y_sign: Array,
    hyper: Prior,
    learn: Sequence[str] = (),
    likelihood: str = "logit",
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
) -> BoundSearch:
    """Deterministic maximisation of (11) over μ, L and θ by L-BFGS-B, from μ = 0, L = I: izmailov2016, section 5.1.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ at the start, Z
    learn : names             of "variance", "lengthscales", "noise"
    likelihood : str          "logit", the paper's, or "probit"
    tolerance : float         relative rise of the bound in one iteration at which the search ends
    max_iterations : int      iterations at most

    Returns
    -------
    BoundSearch               parameters, elbo, derivative, trace, iterations

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    """
    m = len(_prior.support(X, hyper))
    first = Parameters(np.zeros(m), np.eye(m), hyper)
    everything = np.arange(len(X))
    start = as_vector(first, learn)
    free = m + m * (m + 1) // 2

    def objective(where: Array) -> tuple[float, Array]:
        there = from_vector(where, first, learn)
        gradient = batch_gradient(there, X, y_sign, everything, learn, likelihood)
        return batch_bound(there, X, y_sign, everything, likelihood), gradient

    reach = np.concatenate([np.full(free, np.inf), np.full(len(start) - free, REACH)])
    optimum = maximise(objective, start, Limits(rise=tolerance, iterations=max_iterations), reach)
    ended = from_vector(optimum.where, first, learn)
    return BoundSearch(ended, optimum.value, optimum.residual, optimum.trace, optimum.iterations)


def svi_fixed_point(y_sign: Array, K: Matrices, likelihood: str, sweeps: Sweeps) -> Variational:
    """The maximum of (11) over μ and Σ at given θ, by natural-gradient steps of rate ½ from q(u) = p(u).

    In (Σ⁻¹μ, Σ⁻¹) a whole step goes to (κᵀ(p - 2 s m), K_mm⁻¹ - 2 κᵀdiag(s)κ), with p, s of `elbo_gradient`: the
    maximum of (11) is its fixed point. As s < 0, Σ stays positive definite. The paper searches by L-BFGS-B over μ and L
    (`svi_lbfgs`), which the bound's own digits stop at half of those of μ and Σ.

    Parameters
    ----------
    y_sign : (n,)             y, labels -1 or +1
    K : Matrices              of the prior
    likelihood : str          "logit" or "probit"
    sweeps : Sweeps           new
    """
    # fmt: off
    K_inverse = factorise(K.K_ZZ, "K_ZZ", REMEDY_Z).inverse
    kappa = K.K_XZ @ K_inverse
    precision, shift = K_inverse, np.zeros(len(K.K_ZZ))                              # q(u) = p(u)
    q = Variational(shift, K.K_ZZ, np.zeros(len(y_sign)))
    while not sweeps.ended:
        m, S2 = marginal_moments(q.inducing_mean, q.inducing_cov, *K)                # (10)
        data = expectations(m, S2, y_sign, likelihood)                               # of (11), and derivatives
        precision = (1.0 - RATE) * precision + RATE * (K_inverse - 2.0 * (kappa.T * data.by_var) @ kappa)
        shift = (1.0 - RATE) * shift + RATE * kappa.T @ (data.by_mean - 2.0 * data.by_var * m)
        Sigma = factorise(0.5 * (precision + precision.T), "precision of q(u)", REMEDY_Z).inverse
        before, q = q, q._replace(inducing_mean=Sigma @ shift, inducing_cov=Sigma)
        sweeps.made(q, before, K, elbo(q.inducing_mean, Sigma, y_sign, *K, likelihood), RATE)   # (11)
    # fmt: on
    return q
