"""log Z of probit and threshold models, constraints soft or hard, by particles that meet the data one after the other.

The labels speak of margins, D Gaussian differences g between latent values, J = C - 1 of them for a datum:
p(y) = E Π_i [(1 - ε) [all margins of datum i are positive] + ε/C]. A Gaussian factor t_r(g_r) stands for what the label
says of each margin, so that

    p(y) = ∫ N(g; 0, G) Π_r t_r(g_r) dg · E_q Π_i [(1 - ε) [all positive] + ε/C] / Π_r t_r,    q ∝ N(g; 0, G) Π_r t_r,

and only the second mean, of what is nearly constant, is left to particles: each margin in turn is drawn from its q
given those before it, its own t_r taken out and cut at zero, and the weight is what that normalises to (Geweke,
Hajivassiliou and Keane; without factors it is theirs). A particle so knows of the labels ahead; weights that spread are
resampled (Ridgway 2016). The factors come from expectation propagation (Cunningham, Hennig, Lacoste-Julien 2011), but
any would do: they cancel, and every island's estimate of Z is unbiased whatever factors, order and number of particles
are. With ε > 0 an indicator per datum is proposed first: a datum whose label was drawn at random is not cut. There is
no discretisation error; the spread between islands is the standard error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr, logsumexp, ndtri, ndtri_exp

from gibbs.core.declare import checked_options
from gibbs.core.errors import Array, _count, _labels, _reachable, _scalar
from gibbs.core.linalg import cholesky
from gibbs.core.options import Islands
from gibbs.core.threads import one_thread
from gibbs.evidence.annealed import _systematic
from gibbs.evidence.result import LogEvidence, Part, Workers, _errors, _of_islands, _worked_apart

Labels = NDArray[np.int64]
DEFAULTS = Islands(n_particles=2000, max_rounds=4)
_LOG_ROOT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_MOST = 40_000_000  # entries of one island's particles: 320 MB
_WORK = 1.5e10  # entries met by a round: about a minute
_SWEEPS, _DAMPED, _NEAR = 30, 0.7, 1e-2  # of EP: at most, of each change, and where it ends, in units of q
_LEAST = 1e-4  # of what a factor leaves of a variance
# Which labels are random has several answers, and EP's q is near one of them: factors raised to this power leave q the
# width of the others, which particles would else come to seldom and with large weights.
_SOFTER = 0.3
_HOPELESS = 4.0  # a need of so many times the largest round is not worth a try


def _covariance(cov: Array, y: Labels) -> Array:
    """Covariance of the margins h_y - h_j, rows in the order of data and then of classes j."""
    L, n = cov.shape[:2]
    if L == 1:
        sign = 2.0 * y - 1.0
        return np.asarray(sign[:, None] * cov[0] * sign)
    rows = [(i, j) for i in range(n) for j in range(L) if j != y[i]]
    datum, other = np.array(rows).T
    label = y[datum]
    out = np.where(label[:, None] == label, cov[label[:, None], datum[:, None], datum], 0.0)
    out += np.where(other[:, None] == other, cov[other[:, None], datum[:, None], datum], 0.0)
    out -= np.where(label[:, None] == other, cov[label[:, None], datum[:, None], datum], 0.0)
    out -= np.where(other[:, None] == label, cov[other[:, None], datum[:, None], datum], 0.0)
    return out


def _order(covariance: Array, constraints: int) -> NDArray[np.intp]:
    """Data in the order least probable first, given that those before are inside on average (Gibson et al. 1994)."""
    rest, mean = covariance.copy(), np.zeros(len(covariance))
    data = list(range(len(covariance) // constraints))
    order: list[int] = []
    while data:
        rows = np.array(data)[:, None] * constraints + np.arange(constraints)
        log_p = log_ndtr(mean[rows] / np.sqrt(np.maximum(np.diagonal(rest)[rows], 1e-300)))
        chosen = int(log_p.sum(axis=1).argmin())
        for row in rows[chosen, log_p[chosen].argsort()]:
            sd = np.sqrt(max(rest[row, row], 1e-300))
            cut = -mean[row] / sd
            column = rest[:, row] / sd
            mean = mean + column * (np.exp(-0.5 * cut * cut - _LOG_ROOT_2PI - log_ndtr(-cut)))
            rest = rest - np.outer(column, column)
            order.append(int(row))
        del data[chosen]
    return np.array(order)


def _upper_quantile(log_p: Array) -> Array:
    """x with log P(N(0, 1) > x) = log_p; the slow function only where the probability itself would underflow."""
    deep = log_p < -600.0
    out: Array = -ndtri(np.exp(np.where(deep, -1.0, log_p)))
    out[deep] = -ndtri_exp(log_p[deep])
    return out


class Factors(NamedTuple):
    """t_r(g_r) = exp(-precision g_r² / 2 + shift g_r), what stands for the labels ahead, and q with all of them."""

    precision: Array  # (D,)
    shift: Array  # (D,)
    mean: Array  # (D,) of q
    chol: Array  # (D, D) of q's covariance, lower
    log_norm: float  # log ∫ N(g; 0, G) Π t_r dg

    @classmethod
    def of(cls, chol: Array, precision: Array, shift: Array) -> Factors:
        """q ∝ N(g; 0, L L') Π t_r; chol (D, D) L. Time O(D³)."""
        upper, lower = _roots(chol, precision)
        mean = lower @ (shift @ lower)
        return cls(precision, shift, mean, lower, float(0.5 * shift @ mean - np.log(np.diagonal(upper)).sum()))


def _roots(chol: Array, precision: Array) -> tuple[Array, Array]:
    """U, upper, of I + L' T L = U U', and W = L U^-T, lower: W W' = (G^-1 + T)^-1 without an inverse of G."""
    inner = np.eye(len(chol)) + (chol.T * precision) @ chol
    upper = cholesky("I + L' T L of the margins", inner[::-1, ::-1], "raise noise or jitter")[::-1, ::-1]
    solved: Array = solve_triangular(upper, chol.T, check_finite=False)
    return upper, solved.T


def _without(mean: Any, var: Any, precision: Any, shift: Any, *, least: float = -np.inf) -> tuple[Array, Array]:
    """Mean and variance of N(g; mean, var) / t(g); least: what a factor may leave of var over its own."""
    kept = np.maximum(1.0 - precision * var, least)
    return (mean - shift * var) / kept, var / kept


def _factors(chol: Array, constraints: int, epsilon: float, n_classes: int) -> Factors:
    """By EP, all factors at once, damped: moments of (1 - ε) [margins of the datum > 0] + ε/C under q without it.

    The margins of a datum are taken as independent there, and EP ends early: factors need not be exact. Time O(D³) a
    sweep.
    """
    precision, shift = np.zeros(len(chol)), np.zeros(len(chol))
    with np.errstate(divide="ignore"):
        log_random, log_right = np.log(epsilon / n_classes), np.log1p(-epsilon)
    for _ in range(_SWEEPS):
        lower = _roots(chol, precision)[1]
        var, mean = np.square(lower).sum(axis=1), lower @ (shift @ lower)
        # never the exact 0 that a factor of infinite precision would leave
        cavity_mean, cavity_var = _without(mean, var, precision, shift, least=_LEAST)
        sd = np.sqrt(cavity_var)
        z = cavity_mean / sd
        log_p = log_ndtr(z)
        log_cut = np.repeat(log_right + log_p.reshape(-1, constraints).sum(axis=1), constraints)
        log_share = log_cut - np.logaddexp(log_cut, log_random)  # of the label being right
        gradient = np.exp(log_share - 0.5 * z * z - _LOG_ROOT_2PI - log_p) / sd  # d log E / d cavity_mean
        curvature = np.clip(gradient * (gradient + z / sd), 0.0, (1.0 - _LEAST) / cavity_var)  # minus d gradient
        kept = 1.0 - curvature * cavity_var
        wanted = curvature / kept, (gradient + cavity_mean * curvature) / kept
        change = np.abs(wanted[0] - precision) * var
        precision, shift = (
            (1.0 - _DAMPED) * old + _DAMPED * new for old, new in zip((precision, shift), wanted, strict=True)
        )
        if change.max() < _NEAR:
            break
    power = 1.0 if epsilon == 0.0 else _SOFTER
    return Factors.of(chol, power * precision, power * shift)


def _log_cut(factors: Factors, white: Array, first: int, constraints: int) -> Array:
    """Sum of log P(g_r > 0) over the margins of a datum, each given what is known before them all: (size,)."""
    rows = slice(first, first + constraints)
    given = factors.mean[rows, None] + factors.chol[rows, :first] @ white[:first]
    var = np.square(factors.chol[rows, first:]).sum(axis=1)
    mean, free = _without(given, var[:, None], factors.precision[rows, None], factors.shift[rows, None])
    total: Array = log_ndtr(mean / np.sqrt(free)).sum(axis=0)
    return total


def _island(rng: np.random.Generator, common: Schedule, size: int) -> float:
    """One unbiased estimate of Z, as its logarithm."""
    factors, constraints, epsilon, n_classes = common
    chol, D = factors.chol, len(factors.chol)
    white = np.empty((D, size))
    log_weight = np.full(size, -np.log(size))
    log_z = factors.log_norm
    wrong = np.zeros(size, dtype=bool)
    for t in range(D):
        # N(g; given, var) / t(g) is N(g; mean, sd²) times exp(log_free), given all margins before
        var, given = chol[t, t] ** 2, factors.mean[t] + chol[t, :t] @ white[:t]
        mean, free = _without(given, var, factors.precision[t], factors.shift[t])
        sd = np.sqrt(free)
        log_free = 0.5 * (np.square(mean / sd) - np.square(given) / var + np.log(free / var))
        log_p = log_ndtr(mean / sd)
        if epsilon > 0.0 and t % constraints == 0:
            # the odds of a random label, margins taken as independent: only a proposal, its weight makes it exact
            log_odds = (
                (np.log(epsilon) - np.log(n_classes)) - np.log1p(-epsilon) - _log_cut(factors, white, t, constraints)
            )
            log_wrong = -np.logaddexp(0.0, -log_odds)
            wrong = np.log(rng.random(size)) < log_wrong
            log_weight = log_weight + np.where(
                wrong,
                (np.log(epsilon) - np.log(n_classes)) - log_wrong,
                np.log1p(-epsilon) + np.logaddexp(0.0, log_odds),
            )
        log_p = np.where(wrong, 0.0, log_p)
        log_weight = log_weight + log_p + log_free
        drawn = mean + sd * _upper_quantile(log_p + np.log1p(-rng.random(size)))
        white[t] = (drawn - given) / chol[t, t]
        last = t == D - 1
        if last or (t + 1) % constraints == 0:
            gain = float(logsumexp(log_weight))
            log_z += gain
            log_weight = log_weight - gain
            weights = np.exp(log_weight)
            if not last and np.square(weights).sum() > 2.0 / size:
                white[: t + 1] = white[: t + 1, _systematic(rng, weights)]
                log_weight = np.full(size, -np.log(size))
    return log_z


class Schedule(NamedTuple):
    """What all islands have in common: q, rows in the order in which the data come."""

    factors: Factors  # of D rows
    constraints: int  # rows a datum
    epsilon: float
    n_classes: int


@one_thread
def island(part: Part) -> Array:
    """log Z of one island: (1,). part: what island it is."""
    common: Schedule = part.common
    return np.array([_island(np.random.default_rng(part.seed), common, part.n_particles)])


def _islands(rng: np.random.Generator, common: Schedule, workers: Workers | None, shape: tuple[int, int]) -> Array:
    """log Z of islands (count, particles): one after the other from one stream, or each from its own by `workers`."""
    if workers is None:
        return np.array([_island(rng, common, shape[1]) for _ in range(shape[0])])
    return _worked_apart(rng, island, common, workers, shape)[:, 0]


@one_thread
def choose_schedule(covariance: ArrayLike, n_classes: int, epsilon: float = 0.0) -> Schedule:
    """The order of the data, and the factors in that order.

    covariance, n_classes, epsilon: as in `log_evidence_margins`. Raises as it does.
    """
    _count("n_classes", n_classes, 2)
    if not 0.0 <= _scalar("epsilon", epsilon, positive=False) < 1.0:
        raise ValueError(f"epsilon: found {epsilon:.6g}, expected a probability in [0, 1)")
    G, constraints = _reachable("covariance", covariance, 2), n_classes - 1
    if G.shape[0] != G.shape[1] or G.shape[0] == 0 or G.shape[0] % constraints:
        raise ValueError(f"covariance: found shape {G.shape}, expected a square of a multiple of {constraints}")
    remedy = "raise noise or jitter, or remove duplicate rows of X"
    cholesky("covariance", G, remedy)
    order = _order(G, constraints)
    chol = cholesky("covariance", G[np.ix_(order, order)], remedy)
    return Schedule(_factors(chol, constraints, float(epsilon), n_classes), constraints, float(epsilon), n_classes)


@one_thread
def choose_schedule_of_labels(cov: ArrayLike, y: ArrayLike, epsilon: float = 0.0) -> Schedule:
    """The same for labels that are the largest of h.

    cov, y, epsilon: as in `log_evidence`. Raises as it does.
    """
    S = _reachable("cov", cov, 3)
    n_classes = max(len(S), 2)
    if S.shape[1] != S.shape[2] or S.size == 0:
        raise ValueError(f"cov: found shape {S.shape}, expected (L, n, n)")
    return choose_schedule(_covariance(S, _labels(y, S.shape[1], n_classes)), n_classes, epsilon)


@one_thread
def estimate(
    rng: np.random.Generator,
    common: Schedule,
    workers: Workers | None = None,
    options: Islands = DEFAULTS,
) -> LogEvidence:
    """log Z by islands that follow one schedule.

    common: of `choose_schedule`. workers: how islands are worked, each from a stream of its own (see
    `gibbs.evidence.result`); None: here, from rng. options: as in `log_evidence_margins`.
    """
    n_islands, target_error = options.n_islands, options.target_error
    D = len(common.factors.mean)
    largest = int(min(_MOST / D, _WORK / (n_islands * D * (0.5 * D + 50.0))))
    size, rounds = options.n_particles, 0
    while True:
        rounds += 1
        log_z = _islands(rng, common, workers, (n_islands, size))
        error, apart = _errors(log_z)
        # the delta method needs islands within about half a nat of each other
        trusted = error <= target_error and apart <= 0.5
        if trusted or rounds == options.max_rounds:
            break
        # islands nats apart know little of their own error, but that they are too small they do know
        needed = size * 1.3 * max(error / target_error, 2.0 * apart) ** 2
        if size >= largest or needed > _HOPELESS * largest:
            break
        size = min(int(np.clip(np.ceil(needed), 2 * size, 8 * size)), largest)
    return _of_islands(
        log_z, trusted,
        {
            "island_spread": apart,
            "rounds": float(rounds),
            "n_particles": float(size * n_islands),
            "needed_particles": float(size * n_islands * max(1.0, error / target_error, 2.0 * apart) ** 2),
        },
    )  # fmt: skip


@checked_options()
def log_evidence_margins(
    rng: np.random.Generator,
    covariance: ArrayLike,
    n_classes: int,
    epsilon: float = 0.0,
    options: Islands = DEFAULTS,
) -> LogEvidence:
    """log E Π_i [(1 - ε) [the margins of datum i are positive] + ε/C], margins ~ N(0, covariance).

    covariance (D, D), D = n (n_classes - 1) rows in the order of the data; epsilon in [0, 1). options: n_particles in
    each of n_islands >= 4 islands; while the error is above target_error (nats), particles are multiplied by up to 8,
    max_rounds rounds in all, and only the last counts; `trusted` says whether it was met. A round takes a minute at
    most, and where even four of the largest would not do, none is made: `detail` has the `needed_particles`. rng: how
    many numbers it gives is not fixed. Time O(particles D²), one island of particles in memory.

    Raises ValueError on bad input, NotPositiveDefiniteError for a singular covariance.
    """
    return estimate(rng, choose_schedule(covariance, n_classes, epsilon), options=options)


@checked_options()
def log_evidence(
    rng: np.random.Generator,
    cov: ArrayLike,
    y: ArrayLike,
    epsilon: float = 0.0,
    options: Islands = DEFAULTS,
) -> LogEvidence:
    """log p(y) where the label is the largest of h, with probability ε drawn at random instead; h ~ N(0, cov).

    cov (L, n, n) of h: prior covariance of f, plus the unit matrix for a probit likelihood; L = 1 is the binary
    model, h positive for y = 1. y (n,) ints; epsilon in [0, 1). rng, options and errors: as in
    `log_evidence_margins`.
    """
    return estimate(rng, choose_schedule_of_labels(cov, y, epsilon), options=options)
