"""Section 3, baseline VI: the ascent of the bound (15) over q at a given prior, by natural gradients on all data."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior
from reference.common._mixing import Mixing
from reference.common.errors import NotPositiveDefiniteError, cholesky, factorise
from reference.villacampa2017.fit import Matrices, prior_matrices
from reference.villacampa2017.posterior import Gaussians, Natural
from reference.villacampa2017.vi import kl_to_prior, variational_elbo, vi_latent_marginal
from reference.villacampa2017.vi_gradients import Expected, expected_terms, latent_moments, natural_target

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]

SMALLEST_RATE = 2.0**-40  # below it a step along the gradient changes nothing but rounding
_NEAR = 1e-3  # residual from which on the bound is a parabola, whose rounding hides a step that leads away
_SMOOTH = 0.1  # residual from which on moves are nearly linear in q, and can be extrapolated
_LEAST_CEILING = 2.0**-7
_PATIENCE = 200  # short moves, none half as long as the best before: only rounding makes them
_DEPTH = 10  # moves that an extrapolation looks back on


class VIState(NamedTuple):
    """What a callback is told after a step."""

    iteration: int
    residual: float
    rate: float


class VIFit(NamedTuple):
    """Where the ascent, and the search for hyper-parameters around it, ended."""

    posterior: Gaussians  # (C, m) and (C, m, m)
    latent_mean: Array  # (n, C)
    latent_var: Array  # (n, C)
    probability: Array  # (n,) P_i of the labels
    elbo: float  # of all data, every constant included
    trace: Array  # bound of all data after each step where asked for; with learn in batch mode, of the search
    residual: float  # whole natural-gradient step in the metric of q; of a search, slope left
    converged: bool
    iterations: int
    prior: Prior  # as learned
    reason: str = ""  # why a q with a small residual is not called converged
    form: str = "projected"  # of the equations of the bound that ran


def gaussians_of(natural: Sequence[Natural]) -> Gaussians:
    """Moments of `natural`, one a class; NotPositiveDefiniteError if they are the parameters of no distribution."""
    cov = [factorise(part.precision, "precision of q", "lower rate").inverse for part in natural]
    return Gaussians(np.array([S @ part.shift for S, part in zip(cov, natural, strict=True)]), np.array(cov))


def naturals_of(posterior: Gaussians) -> list[Natural]:
    """Natural parameters of `posterior`, one a class."""
    inverse = [factorise(S, "inducing_cov", "lower rate").inverse for S in posterior.cov]
    return [Natural(each, each @ m) for each, m in zip(inverse, posterior.mean, strict=True)]


def natural_step(natural: Sequence[Natural], target: Sequence[Natural], rate: float) -> list[Natural]:
    """η + rate (target - η) of every class: a natural-gradient step on (15) of villacampa2017.

    Parameters
    ----------
    natural : sequence        η
    target : sequence         η plus the natural gradient
    rate : float              in (0, 1]
    """
    return [
        Natural(old.precision + rate * (new.precision - old.precision), old.shift + rate * (new.shift - old.shift))
        for old, new in zip(natural, target, strict=True)
    ]


def step_size(natural: Sequence[Natural], target: Sequence[Natural], posterior: Gaussians) -> tuple[float, float]:
    """How far q would move in its own metric: the residual, and the length that a contraction shortens.

    With dT and dt the changes of precision and shift and r = dt - dT m, the residual is the largest of √tr(S dT S dT)
    and √(rᵀS r) over classes, and the length √Σ_k [½ tr(S dT S dT) + rᵀS r].

    Parameters
    ----------
    natural : sequence        η of villacampa2017's q
    target : sequence         where a whole step leads
    posterior : Gaussians     moments of q
    """
    residual, square = 0.0, 0.0
    for old, new, m, S in zip(natural, target, *posterior, strict=True):
        dT = new.precision - old.precision
        r = new.shift - old.shift - dT @ m
        by_cov, by_mean = max(float(np.sum((S @ dT) * (S @ dT).T)), 0.0), max(float(r @ S @ r), 0.0)
        residual = max(residual, np.sqrt(by_cov), np.sqrt(by_mean))
        square += 0.5 * by_cov + by_mean
    return float(residual), float(np.sqrt(square))


class Data(NamedTuple):
    """What does not change.

    The form of the bound: "printed" has (15) to (17) datum by datum; "projected" contracts (16) and (17) along υ for
    all data. The paper prints no derivatives of the bound: both forms take them from `vi_gradients`.
    """

    X: Array
    y: Labels
    epsilon: float
    form: str = "projected"

    def matrices(self, prior: Prior) -> Matrices:
        """What a prior says of the inputs."""
        return prior_matrices(self.X, prior)

    def expected(self, q: Gaussians, K: Matrices, rows: Batch | None = None) -> Expected:
        """The data term of some rows, or of all."""
        return expected_terms(q, K, self.y, self.epsilon, np.arange(len(self.y)) if rows is None else rows)

    def bound(self, q: Gaussians, K: Matrices, expected: Expected) -> float:
        """(15) at q, given K and, in the form "projected", the expected data term at q of all data."""
        if self.form == "printed":
            return variational_elbo(q, self.y, K.k_xx, K.K_XZ, K.K_ZZ, self.epsilon)  # (15) to (17)
        return expected.value - kl_to_prior(q, K.K_ZZ)

    def marginals(self, q: Gaussians, K: Matrices) -> tuple[Array, Array]:
        """Means and variances (n, C) of the latent values under q, given K."""
        if self.form == "printed":
            return vi_latent_marginal(q, K.k_xx, K.K_XZ, K.K_ZZ)  # (16), (17)
        return latent_moments(q, K.upsilon, K.cond_var)


def result(data: Data, K: Matrices, prior: Prior, posterior: Gaussians) -> VIFit:
    """What there is to say of q = posterior, given K, the matrices of the prior, and all data."""
    expected = data.expected(posterior, K)
    elbo = data.bound(posterior, K, expected)
    moments = data.marginals(posterior, K)
    outcome = VIFit(posterior, *moments, expected.probability, elbo, np.zeros(0), np.inf, False, 0, prior)
    return outcome._replace(form=data.form)


def _lengths(theta: Sequence[Natural], q: Gaussians) -> Callable[[Array], Array]:
    """Changes of η in the metric of q: with S = LLᵀ a change (dT, dt) is Lᵀ dT L/√2 and Lᵀ(dt - dT m)."""
    roots = [cholesky(S, "inducing_cov", "lower rate") for S in q.cov]

    def white(change: Array) -> Array:
        parts = []
        for L, m, part in zip(roots, q.mean, _unflat(change, theta), strict=True):
            parts += [(L.T @ part.precision @ L).ravel() / np.sqrt(2.0), L.T @ (part.shift - part.precision @ m)]
        return np.concatenate(parts)

    return white


def _flat(theta: Sequence[Natural]) -> Array:
    return np.concatenate([np.concatenate([part.precision.ravel(), part.shift]) for part in theta])


def _unflat(values: Array, like: Sequence[Natural]) -> list[Natural]:
    m = len(like[0].shift)
    rows = values.reshape(len(like), m * m + m)
    return [Natural(row[: m * m].reshape(m, m), row[m * m :]) for row in rows]


def ascend(
    data: Data,
    prior: Prior,
    start: Gaussians | None,
    tolerance: float,
    max_iterations: int,
    trace: bool,
    callback: Callable[[VIState], None] | None,
) -> VIFit:
    """The maximum of (15) of villacampa2017 over q that natural-gradient steps on all data reach from a start.

    A step is halved until q exists and the bound does not fall, and the next is twice as long, up to one. Once moves
    are short an extrapolated step goes first, under the same two conditions. Near the maximum, where rounding hides a
    step that leads away, the longest step is halved when the move grows.

    Parameters
    ----------
    data : Data               inputs, labels, ε
    prior : Prior             hyper-parameters of all classes, held
    start : Gaussians         q at first; None: the prior
    tolerance : float         residual at which the ascent ends
    max_iterations : int      steps after which it gives up
    trace : bool              whether the bound after each step is kept
    callback : callable       told a VIState after every step
    """
    K = data.matrices(prior)
    everything = np.arange(len(data.y))
    q = Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ) if start is None else start
    theta, expected = naturals_of(q), data.expected(q, K)
    elbo = data.bound(q, K, expected)
    mixing = Mixing(_DEPTH + 1, 1e-8)
    values: list[float] = []
    rate, ceiling, length, residual = 1.0, 1.0, np.inf, np.inf
    iterations, converged, extrapolated = 0, False, False
    best, since_best = np.inf, 0

    def arrive(natural: Sequence[Natural]) -> tuple[Gaussians, Expected, float] | None:
        """q there, its data term and bound; None where there is no q or the bound has fallen."""
        try:
            new = gaussians_of(natural)
            there = data.expected(new, K)
            value = data.bound(new, K, there)
        except NotPositiveDefiniteError:
            return None
        return (new, there, value) if value >= elbo - 1e-12 * (1.0 + abs(elbo)) else None

    while not converged and iterations < max_iterations:
        target = natural_target(q, K, expected, everything)
        before = length
        residual, length = step_size(theta, target, q)
        if residual < _NEAR and length > before:
            mixing.forget()
            if not extrapolated:
                ceiling = max(0.5 * ceiling, _LEAST_CEILING)
        rate = min(rate, ceiling)
        outcome, tried = None, None
        if residual < _SMOOTH:
            here = _flat(theta)
            mixing.learn(here, _flat(target) - here)
            mixed = mixing.propose(rate, _lengths(theta, q))
            tried = None if mixed is None else _unflat(mixed, theta)
            outcome = None if tried is None else arrive(tried)
        extrapolated = outcome is not None
        while outcome is None and rate >= SMALLEST_RATE:
            tried = natural_step(theta, target, rate)
            outcome = arrive(tried)
            rate *= 1.0 if outcome is not None else 0.5
        if outcome is None or tried is None:
            break  # no step along the gradient leads up
        theta, (q, expected, elbo) = tried, outcome
        iterations += 1
        converged = residual <= tolerance
        if trace:
            values.append(elbo)
        if callback is not None:
            callback(VIState(iterations, residual, rate))
        rate = min(ceiling, 2.0 * rate)
        best, since_best = (residual, 0) if residual <= 0.5 * best else (best, since_best + 1)
        if best < _NEAR and since_best >= _PATIENCE:
            break
    return result(data, K, prior, q)._replace(
        trace=np.array(values), residual=residual, converged=converged, iterations=iterations
    )
