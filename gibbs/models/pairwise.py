"""The pairwise model of villacampa2017 (6), (7): its sampler, the truth for EP with pairwise factors.

p(y, u) = Π_i Π_{k≠y_i} Φ(α_i^k) Π_k N(u^k; 0, K_ZZ^k), α_i^k = (m_i^y - m_i^k)/√(s_i^y + s_i^k), with mean m = υᵀu and
variance s of f(x_i) given u. The product treats the events f^y > f^k of a datum as independent given u, so for C > 2
this is another model than FITC with the threshold rule; for C = 2 it is the same. log p(u | y) is concave. In white
coordinates u = chol(K_ZZ) ξ it is turned by the Hessian at its mode, and there drawn by Hamiltonian paths, whose step
is tuned up from one that is stable everywhere (log Φ has curvature below one), and by elliptical slices around the mode
(Nishihara et al. 2014).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import erfcx, log_ndtr

from gibbs.chains.chain import Plan, Record, State, Storage, run, spawn_generators
from gibbs.chains.diagnostics import Convergence, convergence, long_enough, standard_error
from gibbs.core.checks import shown
from gibbs.core.declare import takes_values
from gibbs.core.errors import Array, _count, _inputs
from gibbs.core.linalg import cholesky, smallest_and_largest
from gibbs.core.options import PairwiseOptions
from gibbs.core.values import Data, Prior
from gibbs.ledger import equation
from gibbs.models.multilatent import QUADRATURE_ERROR, Generators, argmax_probability, check
from gibbs.moves.region import Labels

PURPOSES = ("start", "tune", "path", "slice")
_LOG_ROOT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_FAR = -1e3  # of the argument of Φ: below, log φ - log Φ is a difference of numbers above 5e5
_STEP = 1.2  # of 2, the limit of stability for the steepest curvature possible: where the tuning begins
_LENGTH = 1.6  # of a path, a quarter of a turn at the mode
_MOST_STEPS = 200


class PairwiseChains(NamedTuple):
    """Averages over all chains and draws of u; each `_se` is a Monte Carlo standard error."""

    inducing_mean: Array  # (L, m)
    inducing_mean_se: Array
    inducing_cov: Array  # (L, m, m)
    inducing_cov_se: Array
    latent_mean: Array  # (n, L) of f drawn from p(f_i | u), u from the posterior; noise included
    latent_mean_se: Array
    latent_cov: Array  # (n, L, L)
    latent_cov_se: Array
    test_latent_mean: Array  # (t, L)
    test_latent_mean_se: Array
    test_latent_cov: Array  # (t, L, L)
    test_latent_cov_se: Array
    probabilities: Array  # (t, C) of the largest latent value, f* given u by FITC
    probabilities_se: Array
    probability_mass: Array  # (t,) sum over the classes before normalising
    quadrature_error: float
    convergence: dict[str, Convergence]  # "inducing", "inducing_square", "log_joint"
    gate: bool  # >= 4 chains that all move, >= 100 autocorrelation times, and Convergence.gate of all
    white_draws: Array  # (r, s, L m) ξ
    log_joint: Array  # (r, s) log p(y, ξ)
    acceptance: float  # of the Hamiltonian paths
    settled: bool  # False: a chain stands still
    n_sweeps: int
    seconds: float
    sweeps_per_second: float


class PairwiseModel(NamedTuple):
    """Everything linear: α = loadings ξ."""

    y: Labels
    loadings: Array  # (n (C - 1), L m), rows in the order of the data
    factor: Array  # (L, m, m) chol(K_ZZ)
    white_rows: Array  # (L, n, m) K_XZ chol(K_ZZ)^-T
    cond_var: Array  # (L, n) s
    white_rows_test: Array  # (L, t, m)
    cond_var_test: Array  # (L, t)
    arrays: dict[str, Array]


@equation("villacampa2017", "6")
def pairwise_probability(latent_mean: Array, latent_var: Array, y: Labels) -> Array:
    """Π_{k≠y} Φ((m^y - m^k)/√(s^y + s^k)), villacampa2017 (6), for each datum.

    latent_mean, latent_var (n, C), means and variances of independent latent values; y (n,). Returns (n,).
    """
    data = np.arange(y.size)
    sd = np.sqrt(latent_var[data, y][:, None] + latent_var)
    log_p = log_ndtr((latent_mean[data, y][:, None] - latent_mean) / sd)
    log_p[data, y] = 0.0
    return np.asarray(np.exp(log_p.sum(axis=1)))


@equation("villacampa2017", "7")
def log_joint(loadings: Array, white: Array) -> Array:
    """log p(y, ξ) = Σ log Φ(α) + log N(ξ; 0, I), α = loadings ξ: the logarithm of (7), unnormalised.

    loadings (n (C - 1), L m), white (r, L m). Returns (r,).
    """
    at = log_ndtr(white @ loadings.T).sum(axis=1)
    return np.asarray(at - 0.5 * np.square(white).sum(axis=1) - white.shape[1] * _LOG_ROOT_2PI)


def _hazard(alpha: Array) -> Array:
    """φ(α)/Φ(α), the derivative of log Φ."""
    near = np.clip(alpha, _FAR, -_FAR)
    hazard = np.exp(-0.5 * np.square(near) - _LOG_ROOT_2PI - log_ndtr(near))
    # beyond, the two logarithms cancel to rounding of α²
    return np.asarray(np.where(alpha < _FAR, np.sqrt(2.0 / np.pi) / erfcx(-alpha / np.sqrt(2.0)), hazard))


def log_joint_gradient(loadings: Array, white: Array) -> Array:
    """Gradient of `log_joint`: loadingsᵀ φ(α)/Φ(α) - ξ. loadings (D, p), white (r, p). Returns (r, p)."""
    return np.asarray(_hazard(white @ loadings.T) @ loadings - white)


def prepare(data: Data, prior: Prior) -> PairwiseModel:
    """Checked inputs in white coordinates.

    data, prior: see `gibbs.core.values`, L = n_classes; prior_model "full" is Z = X, the noise then the variance of f
    given u.
    Raises ValueError on bad input, and where two latent values have no variance given u: there is no Φ without one.
    """
    _count("n_classes", data.n_classes, 2)
    if not isinstance(prior.prior_model, str) or prior.prior_model not in ("full", "fitc"):
        raise ValueError(f"prior_model: found {shown(prior.prior_model)}, expected 'full' or 'fitc'")
    n_classes = data.n_classes
    inputs = _inputs("X", data.X)
    d = inputs.shape[1]
    test = np.empty((0, d)) if data.X_test is None else _inputs("X_test", data.X_test, d, empty=True)
    fitc = replace(prior, Z=inputs if prior.prior_model == "full" else prior.Z, prior_model="fitc")
    setting = check(Data(inputs, data.y, n_classes, test), fitc, n_classes)
    latent = setting.prior
    assert latent.K_ZZ is not None
    assert latent.K_ZX is not None
    factor = np.stack([cholesky("K_ZZ", K, "raise jitter or remove duplicate rows of Z") for K in latent.K_ZZ])
    white_rows = np.stack([solve_triangular(c, K, lower=True).T for c, K in zip(factor, latent.K_ZX, strict=True)])
    # Cov(f*, u) as that of data at the test points
    white_test = np.empty((n_classes, len(test), factor.shape[1]))
    if len(test):
        cross = check(Data(test, np.zeros(len(test), dtype=np.int64), n_classes), fitc, n_classes).prior.K_ZX
        assert cross is not None
        white_test = np.stack([solve_triangular(c, K, lower=True).T for c, K in zip(factor, cross, strict=True)])
    cond_var = np.maximum(np.einsum("lnn->ln", latent.K_XX) - np.square(white_rows).sum(axis=2), 0.0)
    cond_test = np.maximum(latent.k_tt - np.square(white_test).sum(axis=2), 0.0)
    n, (C, m) = setting.y.size, factor.shape[:2]
    loadings = np.zeros((n, C, C, m))  # datum, rival, latent
    label, datum = setting.y, np.arange(n)
    own, total_var = white_rows[label, datum], cond_var[label, datum] + cond_var  # (n, m), (C, n)
    ceiling = np.einsum("lnn->ln", latent.K_XX)
    if np.any(total_var <= 1e-10 * (ceiling[label, datum] + ceiling)):
        raise ValueError(f"noise: found variance {total_var.min():.3g} of f given u, expected > 0; raise noise")
    for k in range(C):
        scale = np.sqrt(total_var[k])[:, None]
        loadings[datum, k, label] += own / scale
        loadings[:, k, k] -= white_rows[k] / scale
    rows = loadings[np.arange(C) != label[:, None]].reshape(n * (C - 1), C * m)
    return PairwiseModel(label, rows, factor, white_rows, cond_var, white_test, cond_test, setting.arrays)


class _Peak(NamedTuple):
    """Mode ξ₀ of the posterior and the root of its precision there: ξ = ξ₀ + R⁻ᵀ ζ."""

    mode: Array  # (p,)
    R: Array  # (p, p) lower
    turned: Array  # (D, p) loadings R⁻ᵀ
    centre: Array  # (D,) loadings ξ₀
    inverse: Array  # (p, p) R⁻¹
    step: float


def _peak(loadings: Array) -> _Peak:
    p = loadings.shape[1]
    mode = np.zeros(p)
    for _ in range(200):
        alpha = loadings @ mode
        hazard = _hazard(alpha)
        weight = hazard * (hazard + alpha)  # -(log Φ)'', between 0 and 1
        R = cholesky("I + AᵀWA", np.eye(p) + (loadings.T * weight) @ loadings, "lower variance")
        gradient = log_joint_gradient(loadings, mode[None])[0]
        whitened = solve_triangular(R, gradient, lower=True)
        if whitened @ whitened < 1e-18 * (1.0 + p):
            break
        direction = solve_triangular(R, whitened, lower=True, trans=1)
        size, here = 1.0, log_joint(loadings, mode[None])[0]
        while size > 1e-8 and log_joint(loadings, (mode + size * direction)[None])[0] < here:
            size *= 0.5
        mode = mode + size * direction
    turned = solve_triangular(R, loadings.T, lower=True).T
    # prior and likelihood curvature in the turned coordinates, the latter at most |turned|² : stable for every state
    inverse = solve_triangular(R, np.eye(p), lower=True)
    steepest = smallest_and_largest("curvature", inverse @ inverse.T + turned.T @ turned)[1]
    return _Peak(mode, R, turned, loadings @ mode, inverse, float(_STEP / np.sqrt(steepest)))


class _Sampler(NamedTuple):
    loadings: Array
    peak: _Peak
    step_size: float

    def xi(self, zeta: Array) -> Array:
        out: Array = self.peak.mode + zeta @ self.peak.inverse
        return out

    def log_density(self, zeta: Array) -> Array:
        """log p(y, ξ) up to a constant."""
        at = log_ndtr(self.peak.centre + zeta @ self.peak.turned.T).sum(axis=1)
        return np.asarray(at - 0.5 * np.square(self.xi(zeta)).sum(axis=1))

    def gradient(self, zeta: Array) -> Array:
        by_alpha = _hazard(self.peak.centre + zeta @ self.peak.turned.T)
        out: Array = by_alpha @ self.peak.turned - self.xi(zeta) @ self.peak.inverse.T
        return out

    def tuned(self, rng: np.random.Generator) -> _Sampler:
        """With the longest step, doubled from one that is stable everywhere, that four paths in five accept."""
        zeta = rng.standard_normal((32, self.loadings.shape[1]))
        best = self
        while best.step_size < _LENGTH / 2.0:
            trial = best._replace(step_size=2.0 * best.step_size)
            accepted = 0.0
            for _ in range(4):
                zeta, result = trial.path(rng, zeta)
                accepted += float(result.mean()) / 4.0
            if accepted < 0.8:
                break
            best = trial
        return best

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        zeta = 2.0 * rng.standard_normal((n_chains, self.loadings.shape[1]))
        return {"zeta": zeta, "accepted": np.zeros(n_chains)}

    def step(self, state: State, rngs: Generators) -> State:
        zeta, accepted = self.path(rngs["path"], state["zeta"])
        return {"zeta": self.slices(rngs["slice"], zeta), "accepted": accepted}

    def path(self, rng: np.random.Generator, zeta: Array) -> tuple[Array, Array]:
        """One Hamiltonian path per chain, its step drawn between a half and the whole of step_size."""
        velocity = rng.standard_normal(zeta.shape)
        step = self.step_size * rng.uniform(0.5, 1.0, (len(zeta), 1))
        before = self.log_density(zeta) - 0.5 * np.square(velocity).sum(axis=1)
        position, force = zeta, self.gradient(zeta)
        # a path that leaves float64 ends at a density of 0, or at none: either is refused below
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(int(min(np.ceil(_LENGTH / self.step_size), _MOST_STEPS))):
                velocity = velocity + 0.5 * step * force
                position = position + step * velocity
                force = self.gradient(position)
                velocity = velocity + 0.5 * step * force
            after = self.log_density(position) - 0.5 * np.square(velocity).sum(axis=1)
        accept = np.log1p(-rng.random(len(zeta))) < after - before
        return np.where(accept[:, None], position, zeta), accept.astype(np.float64)

    def slices(self, rng: np.random.Generator, zeta: Array) -> Array:
        """One elliptical slice step per chain around N(0, I), the Gaussian at the mode."""
        other = rng.standard_normal(zeta.shape)

        def log_rest(at: Array) -> Array:
            return self.log_density(at) + 0.5 * np.square(at).sum(axis=1)

        level = log_rest(zeta) + np.log1p(-rng.random(len(zeta)))
        angle = rng.uniform(0.0, 2.0 * np.pi, len(zeta))
        low, high = angle - 2.0 * np.pi, angle.copy()
        out, live = zeta.copy(), np.arange(len(zeta))
        while live.size:
            cos, sin = np.cos(angle[live])[:, None], np.sin(angle[live])[:, None]
            out[live] = cos * zeta[live] + sin * other[live]
            live = live[log_rest(out[live]) < level[live]]
            below = angle[live] < 0.0
            low[live[below]], high[live[~below]] = angle[live[below]], angle[live[~below]]
            angle[live] = low[live] + (high[live] - low[live]) * rng.random(live.size)
        return out


@takes_values
def sample(data: Data, prior: Prior, options: PairwiseOptions) -> PairwiseChains:
    """Sample u of the pairwise model, villacampa2017 (7), n_classes = C >= 2, L = C.

    data, prior: see `prepare`. options: n_chains from starts twice as wide as the posterior; each gives n_draws >= 4
    draws, one every `thin` sweeps, after n_warmup; the seed fixes all randomness. callback, checkpoint,
    checkpoint_every, max_kept_bytes: see `gibbs.chains.chain.run`. A sweep is one path and one slice, O(r n C² m) for
    each of the path's steps. Raises ValueError on bad input, NotPositiveDefiniteError if K_ZZ has no Cholesky factor.
    """
    plan, n_chains = Plan.of(options), options.n_chains
    model = prepare(data, prior)
    peak = _peak(model.loadings)
    rngs = spawn_generators(options.seed, PURPOSES)
    sampler = _Sampler(model.loadings, peak, peak.step).tuned(rngs["tune"])
    lengths = {name: getattr(options, name) for name in ("n_chains", "n_draws", "n_warmup", "thin", "seed")}
    settings = {"model": f"pairwise {prior.prior_model}", "n_classes": int(data.n_classes), **lengths}

    def record(state: State) -> Record:
        white = sampler.xi(state["zeta"])
        kept: State = {"white": white, "log_joint": log_joint(model.loadings, white)}
        return Record(kept, {"accepted": state["accepted"]})

    finished = run(
        sampler.start(rngs["start"], n_chains), sampler.step, record, rngs, plan,
        storage=Storage.of(options, settings, model.arrays), callback=options.callback,
    )  # fmt: skip
    C, m = model.factor.shape[:2]
    white = finished.kept["white"]
    by_latent = white.reshape(*white.shape[:2], C, m)
    u = np.einsum("lmk,rslk->rslm", model.factor, by_latent)
    columns = {"inducing": u, "inducing_square": np.square(u), "log_joint": finished.kept["log_joint"]}
    trust = {name: convergence(values, plan.thin) for name, values in columns.items()}
    inducing = _average(u, np.zeros((C, m, m)))
    latent = _average(np.einsum("lnk,rslk->rsnl", model.white_rows, by_latent), _diagonal(model.cond_var))
    test_mean = np.einsum("ltk,rslk->rstl", model.white_rows_test, by_latent)
    test = _average(test_mean, _diagonal(model.cond_var_test))
    raw = np.empty((*white.shape[:2], test_mean.shape[2], C))
    for i in range(test_mean.shape[2]):
        flat = argmax_probability(test_mean[:, :, i].reshape(-1, C), model.cond_var_test[:, i])
        raw[:, :, i] = flat.reshape(*white.shape[:2], C)
    mass = raw.sum(axis=3)
    probability = raw / mass[..., None]
    settled = bool(np.all(np.ptp(finished.kept["log_joint"], axis=1) > 0.0))
    trusted = long_enough(trust, plan.n_draws * plan.thin) and all(q.gate() for q in trust.values())
    return PairwiseChains(
        *inducing,
        *latent,
        *test,
        probabilities=probability.mean(axis=(0, 1)),
        probabilities_se=standard_error(probability),
        probability_mass=mass.mean(axis=(0, 1)),
        quadrature_error=QUADRATURE_ERROR,
        convergence=trust,
        gate=n_chains >= 4 and settled and trusted,
        white_draws=white,
        log_joint=finished.kept["log_joint"],
        acceptance=float(finished.totals["accepted"].mean() / plan.n_draws),
        settled=settled,
        n_sweeps=finished.n_sweeps,
        seconds=finished.seconds,
        sweeps_per_second=finished.n_sweeps / max(finished.seconds, 1e-9),
    )


class _Average(NamedTuple):
    mean: Array
    mean_se: Array
    cov: Array
    cov_se: Array


def _diagonal(var: Array) -> Array:
    """(L, n) -> (n, L, L)."""
    return np.asarray(var.T[:, :, None] * np.eye(var.shape[0]))


def _average(means: Array, cond_cov: Array) -> _Average:
    """Mean and E[Cov] + Cov[E] over the last axis of means (r, s, a, b); the covariance's error from >= 32 batches.

    It leaves out the error of the grand mean, which enters in second order only.
    """
    r, s = means.shape[:2]
    per_chain = min(-(-32 // r), s)
    length = s // per_chain
    grand = means.mean(axis=(0, 1))
    cov, cov_se = cond_cov.copy(), np.empty_like(cond_cov)
    for a in range(means.shape[2]):
        centred = means[:, :, a] - grand[a]
        flat = centred.reshape(r * s, -1)
        cov[a] += flat.T @ flat / (r * s)
        batch = centred[:, s - per_chain * length :].reshape(r * per_chain, length, -1)
        outer = np.matmul(batch.transpose(0, 2, 1), batch) / length
        cov_se[a] = outer.std(axis=0, ddof=1) / np.sqrt(len(outer))
    return _Average(grand, standard_error(means), cov, cov_se)


def moments_of_margins(model: PairwiseModel) -> Array:
    """Covariance I + loadings loadingsᵀ of margins whose signs are the labels of the pairwise model, (D, D).

    model: from `prepare`. Φ(α) = P(α + e > 0) with an e of its own for every pair: Z of (7) is the probability that all
    margins α + e are positive, exact by any orthant method.
    """
    return np.asarray(model.loadings @ model.loadings.T + np.eye(len(model.loadings)))
