"""log Z under the softmax likelihood by annealing many particles over the power of the likelihood.

Neal (2001) with resampling (Del Moral, Doucet & Jasra 2006), as in gibbs.evidence.annealed for the logit. The
likelihood depends on the C - 1 differences e_c = f_c - f_{C-1} only, whose prior covariance is δ_ab K_a + K_{C-1}; the
path is p(ξ) p(y | ξ)^β in their white coordinates. Between two powers every particle goes one Hamiltonian path around
a Gaussian fitted to the particles of a pilot run at that power (Shahbaba, Lan, Johnson & Neal 2014). Ladder, Gaussians
and steps are those of the pilot, so that each island of the runs that count gives an unbiased estimate of Z.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.special import logsumexp

from gibbs.core.declare import checked_options
from gibbs.core.errors import _count, _labels, _reachable
from gibbs.core.linalg import cholesky
from gibbs.core.options import Particles
from gibbs.core.threads import one_thread
from gibbs.evidence.annealed import _next_power, _systematic
from gibbs.evidence.result import LogEvidence, Part, Workers, _of_annealed, _worked_apart

Array = NDArray[np.float64]
DEFAULTS = Particles(n_steps=1)


_BLOCK = 512  # particles at a time, for the cache


class _Around(NamedTuple):
    """N(mean, root rootᵀ) of ξ, and the step of the paths around it."""

    mean: Array
    root: Array
    step: float


class _Model(NamedTuple):
    y: NDArray[np.int64]
    n_classes: int
    factor: Array  # (p, p): e = factor ξ, data fastest

    def log_lik(self, e: Array, with_gradient: bool = False) -> tuple[Array, Array]:
        """log p(y | e), (k,), for differences e (k, p); with_gradient: also its gradient, else nothing."""
        score = np.zeros((len(e), self.n_classes, self.y.size))
        score[:, :-1] = e.reshape(len(e), self.n_classes - 1, self.y.size)
        columns = np.arange(self.y.size)
        score -= score.max(axis=1, keepdims=True)
        own = score[:, self.y, columns]
        np.exp(score, out=score)
        total = score.sum(axis=1)
        value = (own - np.log(total)).sum(axis=1)
        if not with_gradient:
            return value, np.empty(0)
        score /= -total[:, None]
        score[:, self.y, columns] += 1.0
        return value, score[:, :-1].reshape(len(e), -1)


def _path(
    rng: np.random.Generator, model: _Model, beta: float, around: _Around, xi: Array, n_turns: int
) -> tuple[Array, float]:
    """One Hamiltonian path per particle for p(ξ) p(y | ξ)^β; also the mean probability of acceptance."""
    forward, gram = model.factor @ around.root, around.root.T @ around.root
    centre, shift = model.factor @ around.mean, around.root.T @ around.mean

    def height(z: Array) -> tuple[Array, Array]:
        """-log [p(ξ) p(y | ξ)^β] up to a constant at ξ = mean + root z, and its gradient less z."""
        value, gradient = model.log_lik(centre + z @ forward.T, with_gradient=True)
        along = z @ gram
        prior = 0.5 * np.einsum("kp,kp->k", along, z) + z @ shift
        return prior - beta * value, along + shift - beta * (gradient @ forward) - z

    out, total = np.empty_like(xi), 0.0
    for begin in range(0, len(xi), _BLOCK):
        block = xi[begin : begin + _BLOCK]
        z = solve_triangular(around.root, (block - around.mean).T, lower=True).T
        angle, v = around.step * rng.uniform(0.8, 1.2, (len(z), 1)), rng.standard_normal(z.shape)
        cos, sin = np.cos(angle), np.sin(angle)
        level, force = height(z)
        before = level + 0.5 * np.einsum("kp,kp->k", v, v)
        for _ in range(n_turns):
            v -= 0.5 * angle * force
            z, v = cos * z + sin * v, cos * v - sin * z
            level, force = height(z)
            v -= 0.5 * angle * force
        probability = np.exp(np.minimum(before - level - 0.5 * np.einsum("kp,kp->k", v, v), 0.0))
        take = rng.random(len(z)) < probability
        out[begin : begin + _BLOCK] = np.where(take[:, None], around.mean + z @ around.root.T, block)
        total += float(probability.sum())
    return out, total / len(xi)


def _turns(step: float) -> int:
    return int(min(np.ceil(1.5 / step), 60))


def _fit(xi: Array, weights: Array, before: _Around) -> _Around:
    """Mean and covariance of weighted particles, averaged with the Gaussian before, which counts as 2 p particles."""
    p = xi.shape[1]
    count = 1.0 / float(np.square(weights).sum())
    worth = count / (count + 2.0 * p)
    mean = weights @ xi
    centred = xi - mean
    cov = worth * (centred.T * weights) @ centred + (1.0 - worth) * before.root @ before.root.T
    root = cholesky("covariance of the particles", 0.5 * (cov + cov.T), "lower variance or take more particles")
    return _Around(worth * mean + (1.0 - worth) * before.mean, root, before.step)


class _Annealed(NamedTuple):
    log_z: Array  # (islands,)
    ladder: list[float]
    around: list[_Around]
    acceptance: float  # least over the powers


def _anneal(
    rng: np.random.Generator,
    model: _Model,
    plan: Schedule | None,
    shape: tuple[int, int],
    n_steps: int,
) -> _Annealed:
    """Islands of particles along the ladder of a plan; without one, choose ladder, Gaussians and steps on the way."""
    p = len(model.factor)
    xi = rng.standard_normal((shape[0] * shape[1], p))
    log_weights = np.full(shape, -np.log(shape[1]))
    log_z, beta, least = np.zeros(shape[0]), 0.0, 1.0
    ladder, used = [0.0], list[_Around]()
    here = _Around(np.zeros(p), np.eye(p), 0.5)
    while True:
        log_lik = model.log_lik(xi @ model.factor.T)[0].reshape(shape)
        if plan is None:
            beta_next = _next_power(log_lik.ravel(), log_weights.ravel(), beta)
        else:
            beta_next = plan.ladder[len(ladder)]
        log_weights = log_weights + (beta_next - beta) * log_lik
        gain = logsumexp(log_weights, axis=1)
        log_z, log_weights, beta = log_z + gain, log_weights - gain[:, None], beta_next
        ladder.append(beta)
        if beta >= 1.0:
            return _Annealed(log_z, ladder, used, least)
        weights = np.exp(log_weights)
        here = _fit(xi, weights.ravel() / shape[0], here) if plan is None else plan.around[len(used)]
        for k in np.flatnonzero(1.0 / np.square(weights).sum(axis=1) < 0.5 * shape[1]):
            xi[k * shape[1] : (k + 1) * shape[1]] = xi[k * shape[1] + _systematic(rng, weights[k])]
            log_weights[k] = -np.log(shape[1])
        for _ in range(n_steps):
            xi, rate = _path(rng, model, beta, here, xi, _turns(here.step))
            if plan is None:
                here = here._replace(step=float(np.clip(here.step * np.exp(rate - 0.85), 0.01, 0.8)))
        least = min(least, rate)
        used.append(here)


class Schedule(NamedTuple):
    """What all islands have in common: the model, powers, and Gaussians and steps of the paths."""

    model: _Model
    ladder: list[float]
    around: list[_Around]
    n_steps: int


@one_thread
def island(part: Part) -> Array:
    """log Z of one island, and its least acceptance over the powers: (2,). part: what island it is."""
    done = _run(np.random.default_rng(part.seed), part.common, (1, part.n_particles))
    return np.array([done.log_z[0], done.acceptance])


def _run(rng: np.random.Generator, common: Schedule, shape: tuple[int, int]) -> _Annealed:
    return _anneal(rng, common.model, common, shape, common.n_steps)


def _islands(
    rng: np.random.Generator, common: Schedule, workers: Workers | None, shape: tuple[int, int]
) -> tuple[Array, float]:
    """log Z of islands (count, particles) and least acceptance: side by side from one stream, or by `workers`."""
    if workers is None:
        done = _run(rng, common, shape)
        return done.log_z, done.acceptance
    log_z, acceptance = _worked_apart(rng, island, common, workers, shape).T
    return log_z, float(acceptance.min())


@one_thread
def choose_schedule(
    rng: np.random.Generator, cov: ArrayLike, y: ArrayLike, *, n_pilot: int = 512, n_steps: int = 1
) -> Schedule:
    """Powers, Gaussians and steps of the paths, by a pilot run.

    rng, cov, y, n_steps: as in `log_evidence`; n_pilot: particles of the pilot, 256 at least. Raises as it does.
    """
    _count("n_pilot", n_pilot, 2)
    _count("n_steps", n_steps, 1)
    model = _model(cov, y)
    pilot = _anneal(rng, model, None, (1, max(n_pilot, 256)), 2 * n_steps)
    return Schedule(model, pilot.ladder, pilot.around, n_steps)


@checked_options()
def log_evidence(
    rng: np.random.Generator,
    cov: ArrayLike,
    y: ArrayLike,
    options: Particles = DEFAULTS,
) -> LogEvidence:
    """log ∫ Π_c N(f_c; 0, cov_c) Π_i softmax_{y_i}(f_i) df by annealed particles, riihimaki2013 (1).

    cov (C, n, n) prior covariances of f at the data, noise included (of FITC: with u integrated out); y (n,) ints
    below C. options: n_particles in each of n_islands >= 4 islands; n_steps Hamiltonian paths per power; target_error
    asked for, in nats. A pilot run of half the particles chooses the powers; while the error is above
    target_error, or the islands spread by more than half a nat, the particles are multiplied, max_rounds rounds in
    all, and only the last round counts; `trusted` says whether both were met. rng: how many numbers it gives is not
    fixed.

    Raises ValueError on bad input, NotPositiveDefiniteError if the covariance of the differences has no Cholesky
    factor.
    """
    common = choose_schedule(rng, cov, y, n_pilot=options.n_particles * options.n_islands // 2, n_steps=options.n_steps)
    return estimate(rng, common, options=options)


@one_thread
def estimate(
    rng: np.random.Generator,
    common: Schedule,
    workers: Workers | None = None,
    options: Particles = DEFAULTS,
) -> LogEvidence:
    """log Z by islands that follow one schedule.

    common: of `choose_schedule`. workers: how islands are worked, each from a stream of its own (see
    `gibbs.evidence.result`); None: side by side, all from rng. options: as in `log_evidence`, but n_steps are those of
    the schedule.
    """
    return _of_annealed(
        lambda size: _islands(rng, common, workers, (options.n_islands, size)), options, len(common.ladder),
        "acceptance", least=0.3,
    )  # fmt: skip


def _model(cov: ArrayLike, y: ArrayLike) -> _Model:
    K = _reachable("cov", cov, 3)
    if K.shape[0] < 2 or K.shape[1] != K.shape[2] or K.shape[1] == 0:
        raise ValueError(f"cov: found shape {K.shape}, expected (C, n, n) with C >= 2")
    labels = _labels(y, K.shape[1], len(K))
    joint = block_diag(*K[:-1]) + np.tile(K[-1], (len(K) - 1, len(K) - 1))
    return _Model(labels, len(K), cholesky("differences of cov", joint, "raise noise or jitter"))
