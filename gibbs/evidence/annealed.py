"""log Z by annealing many particles over the power of the likelihood.

Neal (2001) with resampling (Del Moral, Doucet & Jasra 2006): the path is p(ξ) p(y|ξ)^β in white coordinates, f = A ξ,
ξ ~ N(0, I). Weights are bounded, since the likelihood is. Every power is followed by elliptical slice moves (Murray,
Adams & MacKay 2010), alternately around a Gaussian close to the target at that power and around the prior (Nishihara,
Murray & Adams 2014; any fixed Gaussian leaves the target invariant). Each of several islands gives an unbiased
estimate of Z; their spread is the standard error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from gibbs.core.declare import checked_options
from gibbs.core.errors import _count, _in_reach, _numbers
from gibbs.core.linalg import cholesky
from gibbs.core.options import Particles
from gibbs.core.threads import one_thread
from gibbs.evidence.result import LogEvidence, Part, Workers, _of_annealed, _worked_apart

Array = NDArray[np.float64]
DEFAULTS = Particles()
_KEEP = 0.9  # effective fraction kept from one power to the next


class _Gaussian(NamedTuple):
    """N(centre, (R Rᵀ)⁻¹), the reference of a slice move."""

    centre: Array  # (p,)
    R: Array  # (p, p) lower


def _log_sigmoid_sum(t: Array) -> Array:
    """Σ log σ(t) along the last axis; 1 + e^-|t| lies in (1, 2], so the plain log errs by 1e-16 at most."""
    return (np.minimum(t, 0.0) - np.log(1.0 + np.exp(-np.abs(t)))).sum(axis=-1)


_GRID = np.linspace(-7.0, 7.0, 57)
_LOG_PHI = -0.5 * _GRID**2


def _tilted(y_sign: Array, beta: float, mean: Array, var: Array) -> tuple[Array, Array]:
    """Mean and variance of N(f; mean, var) σ(y f)^β, entry by entry."""
    f = mean[:, None] + np.sqrt(var)[:, None] * _GRID
    t = y_sign[:, None] * f
    log_weight = _LOG_PHI + beta * (np.minimum(t, 0.0) - np.log1p(np.exp(-np.abs(t))))
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    centre = (weight * f).sum(axis=1)
    return centre, (weight * (f - centre[:, None]) ** 2).sum(axis=1)


def _match(A: Array, y_sign: Array, beta: float, sites: Array) -> tuple[_Gaussian, Array]:
    """A Gaussian near p(ξ) p(y|ξ)^β: a few damped parallel sweeps of expectation propagation from sites (2, n).

    It only centres the slice moves, which are exact around any Gaussian: no convergence is needed. Returns it with its
    sites, precisions over shifts.
    """
    for _ in range(8):
        precision, shift = sites
        R = cholesky("I + AᵀTA", np.eye(A.shape[1]) + (A.T * precision) @ A, "lower variance")
        whitened = solve_triangular(R, A.T, lower=True)  # R⁻¹Aᵀ
        var = np.square(whitened).sum(axis=0)
        mean = whitened.T @ (whitened @ shift)
        cavity_var = 1.0 / np.maximum(1.0 / var - precision, 1e-3 / var)
        cavity_mean = cavity_var * (mean / var - shift)
        new_mean, new_var = _tilted(y_sign, beta, cavity_mean, cavity_var)
        new_precision = np.maximum(1.0 / new_var - 1.0 / cavity_var, 0.0)
        new_shift = new_mean * (new_precision + 1.0 / cavity_var) - cavity_mean / cavity_var
        sites = 0.2 * sites + 0.8 * np.stack([new_precision, new_shift])
    R = cholesky("I + AᵀTA", np.eye(A.shape[1]) + (A.T * sites[0]) @ A, "lower variance")
    centre = solve_triangular(R, solve_triangular(R, A.T @ sites[1], lower=True), lower=True, trans=1)
    return _Gaussian(centre, R), sites


def _slice_moves(
    rng: np.random.Generator,
    A: Array,
    y_sign: Array,
    beta: float,
    around: _Gaussian | None,
    xi: Array,
    latent: Array,
) -> tuple[Array, Array]:
    """One elliptical slice step per particle (P, p), latent = ξ Aᵀ, for p(ξ) p(y|ξ)^β; around=None: the prior."""
    size = xi.shape[0]
    normals = rng.standard_normal(xi.shape)
    if around is None:
        centre, latent_centre = np.zeros(xi.shape[1]), np.zeros(latent.shape[1])
        here, other = xi, normals
        dots: list[Array] = []
    else:
        centre, latent_centre = around.centre, A @ around.centre
        here, other = xi - centre, solve_triangular(around.R, normals.T, lower=True, trans=1).T
        scaled = here @ around.R
        # log p(ξ) - log q(ξ) on the ellipse ξ = centre + cos · here + sin · other needs inner products only
        dots = [
            np.einsum("ij,ij->i", normals, normals) - np.einsum("ij,ij->i", other, other),
            np.einsum("ij,ij->i", scaled, scaled) - np.einsum("ij,ij->i", here, here),
            np.einsum("ij,ij->i", scaled, normals) - np.einsum("ij,ij->i", here, other),
            here @ centre,
            other @ centre,
        ]
    latent_here, latent_other = latent - latent_centre, other @ A.T

    def log_rest(rows: NDArray[np.intp], cos: Array, sin: Array) -> Array:
        at = cos[:, None] * latent_here[rows] + sin[:, None] * latent_other[rows] + latent_centre
        out = beta * _log_sigmoid_sum(y_sign * at)
        if dots:
            out += 0.5 * (sin**2 * dots[0][rows] + cos**2 * dots[1][rows]) + cos * sin * dots[2][rows]
            out -= cos * dots[3][rows] + sin * dots[4][rows]
        return out

    live = np.arange(size)
    level = log_rest(live, np.ones(size), np.zeros(size)) + np.log1p(-rng.random(size))
    angle = rng.uniform(0.0, 2.0 * np.pi, (size,))
    low, high = angle - 2.0 * np.pi, angle.copy()
    while live.size:
        live = live[log_rest(live, np.cos(angle[live]), np.sin(angle[live])) < level[live]]
        below = angle[live] < 0.0
        low[live[below]] = angle[live[below]]
        high[live[~below]] = angle[live[~below]]
        angle[live] = low[live] + (high[live] - low[live]) * rng.random(live.size)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    return centre + cos * here + sin * other, latent_centre + cos * latent_here + sin * latent_other


def _systematic(rng: np.random.Generator, weights: Array) -> NDArray[np.intp]:
    positions = (rng.random() + np.arange(weights.size)) / weights.size
    return np.minimum(np.searchsorted(np.cumsum(weights), positions), weights.size - 1)


def _next_power(log_lik: Array, log_weights: Array, beta: float) -> float:
    """Largest power at which the conditional effective fraction of the particles is still _KEEP."""
    weights = np.exp(log_weights - logsumexp(log_weights))

    def fraction(step: float) -> float:
        inc = step * (log_lik - log_lik.max())
        first = float(weights @ np.exp(inc))
        return first * first / float(weights @ np.exp(2.0 * inc))

    if fraction(1.0 - beta) >= _KEEP:
        return 1.0
    low, high = 0.0, 1.0 - beta
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fraction(middle) >= _KEEP else (low, middle)
    return min(beta + max(low, 1e-6), 1.0)


class _Annealed(NamedTuple):
    log_z: Array  # (islands,)
    ladder: list[float]
    references: list[_Gaussian]
    ess_fraction: float  # at the last power


def _anneal(
    rng: np.random.Generator,
    A: Array,
    y_sign: Array,
    ladder: list[float] | None,
    references: list[_Gaussian],
    shape: tuple[int, int],
    n_steps: int,
) -> _Annealed:
    """Run islands of particles along the ladder; without one, choose it on the way (then Z is slightly biased)."""
    xi = rng.standard_normal((shape[0] * shape[1], A.shape[1]))
    latent = xi @ A.T
    log_weights = np.full(shape, -np.log(shape[1]))  # normalised within each island
    log_z = np.zeros(shape[0])
    beta, used = 0.0, [0.0]
    around: list[_Gaussian] = []
    sites = np.zeros((2, y_sign.size))
    while True:
        log_lik = _log_sigmoid_sum(y_sign * latent).reshape(shape)
        target = _next_power(log_lik.ravel(), log_weights.ravel(), beta) if ladder is None else ladder[len(used)]
        log_weights = log_weights + (target - beta) * log_lik
        gain = logsumexp(log_weights, axis=1)
        log_z += gain
        log_weights -= gain[:, None]
        beta = target
        used.append(beta)
        weights = np.exp(log_weights)
        fractions = 1.0 / np.square(weights).sum(axis=1) / shape[1]
        if beta >= 1.0:
            return _Annealed(log_z, used, around, float(fractions.mean()))
        for k in np.flatnonzero(fractions < 0.5):
            rows = slice(k * shape[1], (k + 1) * shape[1])
            chosen = k * shape[1] + _systematic(rng, weights[k])
            xi[rows], latent[rows] = xi[chosen], latent[chosen]
            log_weights[k] = -np.log(shape[1])
        if ladder is None:
            reference, sites = _match(A, y_sign, beta, sites)
            around.append(reference)
        else:
            around.append(references[len(around)])
        for step in range(n_steps):
            xi, latent = _slice_moves(rng, A, y_sign, beta, around[-1] if step % 2 == 0 else None, xi, latent)


class Schedule(NamedTuple):
    """What all islands have in common: the model in white coordinates, powers, and Gaussians of the slice moves."""

    A: Array  # (n, p): f = A ξ
    y_sign: Array
    ladder: list[float]
    references: list[_Gaussian]
    n_steps: int


@one_thread
def island(part: Part) -> Array:
    """log Z of one island, and its effective fraction at the last power: (2,). part: what island it is."""
    done = _run(np.random.default_rng(part.seed), part.common, (1, part.n_particles))
    return np.array([done.log_z[0], done.ess_fraction])


def _run(rng: np.random.Generator, common: Schedule, shape: tuple[int, int]) -> _Annealed:
    return _anneal(rng, common.A, common.y_sign, common.ladder, common.references, shape, common.n_steps)


def _islands(
    rng: np.random.Generator, common: Schedule, workers: Workers | None, shape: tuple[int, int]
) -> tuple[Array, float]:
    """log Z of islands (count, particles) and their mean fraction: side by side from one stream, or by `workers`."""
    if workers is None:
        done = _run(rng, common, shape)
        return done.log_z, done.ess_fraction
    log_z, fractions = _worked_apart(rng, island, common, workers, shape).T
    return log_z, float(fractions.mean())


def _schedule(rng: np.random.Generator, A: Array, y_sign: Array, n_pilot: int, n_steps: int) -> Schedule:
    _count("n_pilot", n_pilot, 2)
    _count("n_steps", n_steps, 1)
    pilot = _anneal(rng, A, y_sign, None, [], (1, n_pilot), n_steps)
    return Schedule(A, y_sign, pilot.ladder, pilot.references, n_steps)


@one_thread
def estimate(
    rng: np.random.Generator,
    common: Schedule,
    workers: Workers | None = None,
    options: Particles = DEFAULTS,
) -> LogEvidence:
    """log Z by islands that follow one schedule.

    common: of `choose_schedule` or `choose_schedule_fitc`. workers: how islands are worked, each from a stream of its
    own (see `gibbs.evidence.result`); None: side by side, all from rng. options: as in `log_evidence`, but
    n_steps are those of the schedule.
    """
    return _of_annealed(
        lambda size: _islands(rng, common, workers, (options.n_islands, size)), options, len(common.ladder),
        "ess_fraction",
    )  # fmt: skip


def _checked(name: str, value: ArrayLike, shape: tuple[int, ...] | None) -> Array:
    array = _numbers(name, value)
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name}: found shape {array.shape}, expected {shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: found NaN or infinite entries, expected 0")
    return _in_reach(name, array)


def _checked_signs(y_sign: ArrayLike) -> Array:
    signs = _checked("y_sign", y_sign, None)
    if signs.ndim != 1 or signs.size == 0 or not np.all(np.abs(signs) == 1.0):
        raise ValueError(f"y_sign: found shape {signs.shape}, expected a vector of -1 and +1")
    return signs


@checked_options()
def log_evidence(
    rng: np.random.Generator,
    K_XX: ArrayLike,
    y_sign: ArrayLike,
    options: Particles = DEFAULTS,
) -> LogEvidence:
    """log ∫ N(f; 0, K_XX) Π σ(y_i f_i) df by annealed particles: the full GP.

    K_XX (n, n), noise and jitter included; y_sign (n,) of -1, +1. options: n_particles in each of n_islands >= 4
    islands; n_steps slice moves per power; target_error asked for, in nats. The powers are chosen by a pilot run of
    half the particles; while the error is above target_error, the particles are multiplied, max_rounds rounds in all,
    and only the last round counts; `trusted` says whether it was met. rng: how many numbers it gives is not fixed.

    Raises ValueError on bad input, NotPositiveDefiniteError if K_XX has no Cholesky factor.
    """
    common = choose_schedule(
        rng, K_XX, y_sign, n_pilot=options.n_particles * options.n_islands // 2, n_steps=options.n_steps
    )
    return estimate(rng, common, options=options)


@checked_options()
def log_evidence_fitc(
    rng: np.random.Generator,
    K_ZZ: ArrayLike,
    K_XZ: ArrayLike,
    k_xx: ArrayLike,
    y_sign: ArrayLike,
    options: Particles = DEFAULTS,
) -> LogEvidence:
    """log p(y) of FITC, f_i independent given u ~ N(0, K_ZZ), by annealed particles over (u, f) jointly.

    K_ZZ (m, m), jitter included; K_XZ (n, m); k_xx (n,) prior variances, noise included; y_sign (n,). rng and
    options as in `log_evidence`.

    Raises ValueError on bad input (also if some k_xx is less than the part explained by u by more than rounding),
    NotPositiveDefiniteError if K_ZZ has no Cholesky factor.
    """
    common = choose_schedule_fitc(
        rng, K_ZZ, K_XZ, k_xx, y_sign, n_pilot=options.n_particles * options.n_islands // 2, n_steps=options.n_steps
    )
    return estimate(rng, common, options=options)


@one_thread
def choose_schedule(
    rng: np.random.Generator, K_XX: ArrayLike, y_sign: ArrayLike, *, n_pilot: int = 512, n_steps: int = 2
) -> Schedule:
    """Powers and Gaussians of the slice moves for the full GP, by a pilot run.

    rng, K_XX, y_sign, n_steps: as in `log_evidence`; n_pilot: particles of the pilot. Raises too.
    """
    signs = _checked_signs(y_sign)
    K = _checked("K_XX", K_XX, (signs.size, signs.size))
    return _schedule(
        rng, cholesky("K_XX", K, "raise noise or jitter, or remove duplicate rows of X"), signs, n_pilot, n_steps
    )


@one_thread
def choose_schedule_fitc(
    rng: np.random.Generator,
    K_ZZ: ArrayLike,
    K_XZ: ArrayLike,
    k_xx: ArrayLike,
    y_sign: ArrayLike,
    *,
    n_pilot: int = 512,
    n_steps: int = 2,
) -> Schedule:
    """Powers and Gaussians of the slice moves for FITC, by a pilot run.

    rng, K_ZZ, K_XZ, k_xx, y_sign, n_steps: as in `log_evidence_fitc`; n_pilot: particles of the pilot. Raises too.
    """
    signs = _checked_signs(y_sign)
    prior = _checked("k_xx", k_xx, (signs.size,))
    cross = _checked("K_XZ", K_XZ, None)
    if cross.ndim != 2 or cross.shape[0] != signs.size or cross.shape[1] == 0:
        raise ValueError(f"K_XZ: found shape {cross.shape}, expected ({signs.size}, m)")
    inducing = _checked("K_ZZ", K_ZZ, (cross.shape[1], cross.shape[1]))
    rows = solve_triangular(
        cholesky("K_ZZ", inducing, "raise jitter or remove duplicate rows of Z"), cross.T, lower=True
    ).T
    rest = prior - np.square(rows).sum(axis=1)
    if rest.min() < -1e-6 * prior.max():
        raise ValueError(f"k_xx: found {rest.min():.3g} below the part explained by u, expected >= 0; raise jitter")
    A = np.concatenate([rows, np.diag(np.sqrt(np.maximum(rest, 0.0)))], axis=1)
    return _schedule(rng, A, signs, n_pilot, n_steps)
