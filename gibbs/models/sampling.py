"""Entry points of the binary logit truth: chains for the full GP and for FITC, with averages and their errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from gibbs.chains.chain import Measures, Plan, Record, Run, State, Storage, counts, run
from gibbs.chains.diagnostics import (
    Convergence,
    chain_movement,
    convergence,
    least_ess,
    variance_influence,
)
from gibbs.chains.moments import Estimate, batch_covariance
from gibbs.chains.starts import start_factors
from gibbs.chains.summary import Averages, _run_fields, _with_errors
from gibbs.core.checks import shown
from gibbs.core.declare import takes_values
from gibbs.core.errors import Array, _inputs, _labels, _lengthscales, _scalar
from gibbs.core.generators import Generators, spawn_streams
from gibbs.core.kernels import covariance
from gibbs.core.linalg import cholesky
from gibbs.core.options import LogitOptions
from gibbs.core.values import Data, Prior
from gibbs.models.logit import (
    Moments,
    _each,
    draw_inducing,
    draw_latent,
    draw_omega,
    draw_residual,
    ellipse_move,
    inducing_moments,
    latent_moments,
    log_likelihood,
    scale_move,
)
from gibbs.models.quadrature import QUADRATURE_ERROR, logistic_normal_mean

PURPOSES = ("start", "auxiliary", "latent", "scale", "ellipse")


class LogitChains(NamedTuple):
    """Averages over all chains and draws, Rao-Blackwellised over f (and u) given ω; each `_se` is a Monte Carlo s.e."""

    latent_mean: Array  # (n,) E[f_i | y], noise included in f
    latent_mean_se: Array
    latent_var: Array  # (n,)
    latent_var_se: Array
    inducing_mean: Array | None  # (m,), FITC only
    inducing_mean_se: Array | None
    inducing_cov: Array | None  # (m, m)
    inducing_cov_se: Array | None
    test_latent_mean: Array  # (t,)
    test_latent_mean_se: Array
    test_latent_var: Array
    test_latent_var_se: Array
    probabilities: Array  # (t,) p(y* = 1)
    probabilities_se: Array
    quadrature_error: float  # absolute, of each probability given ω
    convergence: dict[str, Convergence]  # "latent", "latent_square", "log_joint"; "inducing", "inducing_square" (FITC)
    # >= 4 chains, all moving, >= 100 autocorrelation times per chain, Convergence.gate of all; warm-up and target met
    gate: bool
    latent_draws: Array  # (r, s, n), every keep_every-th draw
    omega_draws: Array  # (r, s, n), the ω the moments were conditioned on; drawn given the latent draw before
    inducing_draws: Array | None  # (r, s, m)
    log_joint: (
        Array  # (r, s) log p(y|f) + log N(white; 0, I), white the standardised latent (FITC: inducing and residual)
    )
    n_sweeps: int  # per chain, warm-up included
    seconds: float
    sweeps_per_second: float  # of all chains together advancing one sweep
    movement: Array  # (r,) least share of kept draws in which a latent value differs from the draw before
    settled: bool  # False: a chain stands still in at least one latent value
    n_draws: int  # per chain; the averages are over all of them
    n_warmup: int  # sweeps
    keep_every: int  # draws per kept draw
    warmed_up: bool  # False: n_warmup "auto" ended at max_warmup before the chains agreed
    target_reached: bool  # False: max_draws came before target_ess


class _Full(NamedTuple):
    K_XX: Array
    factor: Array
    K_TX: Array
    k_tt: Array
    y_sign: Array
    moves: tuple[str, ...]

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        white = _overdispersed(rng, (n_chains, self.y_sign.size))
        latent = _each(self.factor, white)
        return {"latent": latent, "omega": draw_omega(rng, latent)}

    def white(self, latent: Array) -> Array:
        return solve_triangular(self.factor, latent.T, lower=True, check_finite=False).T

    def step(self, state: State, rngs: Generators) -> State:
        omega = draw_omega(rngs["auxiliary"], state["latent"])
        latent = draw_latent(rngs["latent"], self.K_XX, self.factor, self.y_sign, omega)
        if "scale" in self.moves:
            latent = latent * scale_move(rngs["scale"], self.white(latent), self.y_sign * latent)[:, None]
        if "ellipse" in self.moves:
            prior = _each(self.factor, rngs["ellipse"].standard_normal(latent.shape))
            cos, sin = ellipse_move(rngs["ellipse"], latent, prior, self.y_sign)
            latent = cos[:, None] * latent + sin[:, None] * prior
        return {"latent": latent, "omega": omega}

    def monitor(self, state: State) -> State:
        log_joint = log_likelihood(state["latent"], self.y_sign) + _log_normal(self.white(state["latent"]))
        return {"latent": state["latent"], "log_joint": log_joint}

    def record(self, state: State) -> Record:
        latent, test = latent_moments(self.K_XX, self.K_TX, self.k_tt, self.y_sign, state["omega"])
        return Record({**self.monitor(state), "omega": state["omega"]}, {}, _terms(latent, test))


class _Fitc(NamedTuple):
    factor: Array
    white_rows: Array
    cond_var: Array
    white_rows_test: Array
    cond_var_test: Array
    y_sign: Array
    moves: tuple[str, ...]

    def latent(self, inducing: Array, residual: Array) -> Array:
        return _each(self.white_rows, inducing) + np.sqrt(self.cond_var) * residual

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        n, m = self.white_rows.shape
        white = _overdispersed(rng, (n_chains, m + n))
        omega = draw_omega(rng, self.latent(white[:, :m], white[:, m:]))
        return {"inducing": white[:, :m], "residual": white[:, m:], "omega": omega}

    def step(self, state: State, rngs: Generators) -> State:
        omega = draw_omega(rngs["auxiliary"], self.latent(state["inducing"], state["residual"]))
        inducing = draw_inducing(rngs["latent"], self.white_rows, self.cond_var, self.y_sign, omega)
        projected = _each(self.white_rows, inducing)
        residual = draw_residual(rngs["latent"], projected, self.cond_var, self.y_sign, omega)
        white = np.concatenate([inducing, residual], axis=1)
        m = inducing.shape[1]
        if "scale" in self.moves:
            latent = self.latent(white[:, :m], white[:, m:])
            white = white * scale_move(rngs["scale"], white, self.y_sign * latent)[:, None]
        if "ellipse" in self.moves:
            prior = rngs["ellipse"].standard_normal(white.shape)
            latent, latent_prior = (self.latent(w[:, :m], w[:, m:]) for w in (white, prior))
            cos, sin = ellipse_move(rngs["ellipse"], latent, latent_prior, self.y_sign)
            white = cos[:, None] * white + sin[:, None] * prior
        return {"inducing": white[:, :m], "residual": white[:, m:], "omega": omega}

    def monitor(self, state: State) -> State:
        latent = self.latent(state["inducing"], state["residual"])
        white = _log_normal(state["inducing"]) + _log_normal(state["residual"])
        return {
            "latent": latent,
            "inducing": state["inducing"] @ self.factor.T,
            "log_joint": log_likelihood(latent, self.y_sign) + white,
        }

    def record(self, state: State) -> Record:
        got = inducing_moments(
            self.white_rows, self.cond_var, self.white_rows_test, self.cond_var_test, self.y_sign, state["omega"]
        )
        terms = _terms(got.latent, got.test)
        second = got.white_mean[:, :, None] * got.white_mean[:, None, :]
        terms |= {"white_mean": got.white_mean, "white_second": second, "white_cov": got.white_cov}
        return Record({**self.monitor(state), "omega": state["omega"]}, {}, terms)


def _terms(latent: Moments, test: Moments) -> State:
    """What is averaged: E[f | ω], its square and Var(f | ω), at data and test points, and p(y* = 1 | ω)."""
    return {
        "latent_mean": latent.mean, "latent_second": np.square(latent.mean), "latent_var": latent.var,
        "test_mean": test.mean, "test_second": np.square(test.mean), "test_var": test.var,
        "probability": logistic_normal_mean(test.mean, test.var),
    }  # fmt: skip


def _add_up(terms: State) -> State:
    return {name: value.sum(axis=0) for name, value in terms.items()}


def _log_normal(white: Array) -> Array:
    """log N(white; 0, I), (r, p) -> (r,)."""
    return -0.5 * np.einsum("rp,rp->r", white, white) - 0.5 * white.shape[1] * np.log(2.0 * np.pi)


def _overdispersed(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Start states: prior draws, those of each chain scaled by a factor of its own."""
    return start_factors(shape[0])[:, None] * rng.standard_normal(shape)


class _Common(NamedTuple):
    X: Array
    X_test: Array
    y_sign: Array
    variance: float
    lengthscales: Array
    noise: float
    jitter: float
    smoothness: float | None

    def kernel(self, X1: Array, X2: Array) -> Array:
        return covariance(X1, X2, self.variance, self.lengthscales, self.smoothness)


def _common(data: Data, prior: Prior) -> _Common:
    inputs = _inputs("X", data.X)
    n, d = inputs.shape
    return _Common(
        inputs,
        np.empty((0, d)) if data.X_test is None else _inputs("X_test", data.X_test, d, empty=True),
        2.0 * _labels(data.y, n, 2).astype(np.float64) - 1.0,
        _scalar("variance", prior.variance, positive=True),
        _lengthscales(prior.lengthscales, d),
        _scalar("noise", prior.noise, positive=False),
        _scalar("jitter", prior.jitter, positive=False),
        None if prior.smoothness is None else _scalar("smoothness", prior.smoothness, positive=True),
    )


def full_covariance(data: Data, prior: Prior) -> Array:
    """K_XX (n, n) = k(X, X) + (noise + jitter) I of the full GP of one latent function.

    data, prior: see `gibbs.core.values`. Raises ValueError on bad input.
    """
    p = _common(data, prior)
    return p.kernel(p.X, p.X) + (p.noise + p.jitter) * np.eye(p.X.shape[0])


def _conditional_variance(prior: float, white_rows: Array, name: str) -> Array:
    """prior - |white_row|², a variance: what rounding leaves below zero is zero, more is an error."""
    var = prior - np.einsum("nm,nm->n", white_rows, white_rows)
    if var.size and var.min() < -1e-6 * prior:
        raise ValueError(f"jitter: found conditional variance {var.min():.3g} at {name}, expected >= 0; raise jitter")
    return np.maximum(var, 0.0)


@takes_values
def sample(data: Data, prior: Prior, options: LogitOptions) -> LogitChains:
    """Sample p(f, ω | y) under the binary logit likelihood: wenzel2019, section 5.1.

    data, prior: see `gibbs.core.values`, one latent function. prior_model "fitc": f_i independent given u = f(Z); u is
    drawn with f integrated out, then f given u. options: as in `gibbs.models.multinomial_probit.sample`; moves are
    further exact moves after each Gibbs sweep. Time O(r n³) per sweep (FITC: O(r n m²)) and as much again per draw;
    memory O(n² + r (n + t)) and the budget.

    Raises ValueError on bad input, NotPositiveDefiniteError if K_XX (FITC: K_ZZ) has no Cholesky factor.
    """
    if not isinstance(prior.prior_model, str) or prior.prior_model not in ("full", "fitc"):
        raise ValueError(f"prior_model: found {shown(prior.prior_model)}, expected 'full' or 'fitc'")
    p = _common(data, prior)
    model = _fitc(p, data, prior, options) if prior.prior_model == "fitc" else _full(p, options)
    arrays = {"X": p.X, "X_test": p.X_test, "y_sign": p.y_sign, "lengthscales": p.lengthscales}
    if isinstance(model, _Fitc):
        arrays["Z"] = _inputs("Z", prior.Z)
    if p.smoothness is not None:
        arrays["smoothness"] = np.array(p.smoothness)
    plan, n_chains = Plan.of(options), options.n_chains
    settings = {
        "model": f"logit {prior.prior_model}", "variance": p.variance, "noise": p.noise, "jitter": p.jitter,
        "moves": model.moves, **counts(options, plan),
    }  # fmt: skip

    def effective(kept: State, keep_every: int) -> float:
        return least_ess({name: convergence(draws) for name, draws in _columns(kept).items()})

    rngs = spawn_streams(options.seed, PURPOSES, n_chains)
    finished = run(
        model.start(rngs["start"], n_chains),
        model.step,
        model.record,
        rngs,
        plan,
        measures=Measures(_add_up, model.monitor, effective),
        callback=options.callback,
        storage=Storage.of(options, settings, arrays),
    )
    return _summary(model, finished, n_chains, plan.thin)


def _full(p: _Common, options: LogitOptions) -> _Full:
    K_XX = p.kernel(p.X, p.X) + (p.noise + p.jitter) * np.eye(p.y_sign.size)
    chol_K = cholesky("K_XX", K_XX, "raise noise or jitter, or remove duplicate rows of X")
    k_tt = np.full(p.X_test.shape[0], p.variance + p.noise)
    return _Full(K_XX, chol_K, p.kernel(p.X_test, p.X), k_tt, p.y_sign, tuple(options.moves))


def _fitc(p: _Common, data: Data, prior: Prior, options: LogitOptions) -> _Fitc:
    white = fitc_white(data, prior)
    test = _white(p, _inputs("Z", prior.Z, p.X.shape[1]), p.X_test)
    return _Fitc(
        white.factor, white.white_rows, white.cond_var, test.white_rows, test.cond_var, p.y_sign, tuple(options.moves)
    )


class FitcWhite(NamedTuple):
    """The FITC prior in white coordinates: u = factor v, f = white_rows v + √cond_var e."""

    factor: Array  # (m, m) lower Cholesky factor of K_ZZ
    white_rows: Array  # (n, m)
    cond_var: Array  # (n,)


def fitc_white(data: Data, prior: Prior) -> FitcWhite:
    """White rows and conditional variances of f(X) given u = f(Z), one latent function.

    data, prior: see `gibbs.core.values`. A conditional variance that rounding leaves below zero by less than 1e-6 of
    the prior variance is zero. Raises ValueError on bad input and NotPositiveDefiniteError if K_ZZ has no Cholesky
    factor.
    """
    p = _common(data, prior)
    return _white(p, _inputs("Z", prior.Z, p.X.shape[1]), p.X)


def _white(p: _Common, inducing: Array, inputs: Array) -> FitcWhite:
    K_ZZ = p.kernel(inducing, inducing) + p.jitter * np.eye(inducing.shape[0])
    chol_ZZ = cholesky("K_ZZ", K_ZZ, "raise jitter or remove duplicate rows of Z")
    rows = solve_triangular(chol_ZZ, p.kernel(inducing, inputs), lower=True).T
    return FitcWhite(chol_ZZ, rows, _conditional_variance(p.variance + p.noise, rows, "X"))


def _columns(kept: State) -> State:
    """What effective sizes are asked of."""
    columns = {"latent": kept["latent"], "latent_square": np.square(kept["latent"]), "log_joint": kept["log_joint"]}
    if "inducing" in kept:
        columns |= {"inducing": kept["inducing"], "inducing_square": np.square(kept["inducing"])}
    return columns


def _variance(averages: Averages, name: str) -> Estimate:
    """E[Var(f | ω)] + Var(E[f | ω]): within each batch the law of total variance, between them the influence terms."""
    batches = averages.batches
    means = batches.means(f"{name}_mean")
    within = batches.means(f"{name}_var") + (batches.means(f"{name}_second") - np.square(means))
    return averages.average(variance_influence(means, within))


def _summary(model: _Full | _Fitc, finished: Run, n_chains: int, thin: int) -> LogitChains:
    kept = finished.kept
    trust = {name: convergence(draws, thin * finished.keep_every) for name, draws in _columns(kept).items()}
    averages = Averages.of(finished, trust, n_chains, thin)
    batches = averages.batches
    inducing = inducing_cov = None
    if isinstance(model, _Fitc):
        factor = model.factor
        means = batches.means("white_mean") @ factor.T  # E[u | ω, y]
        second, cond = (factor @ batches.means(f"white_{name}") @ factor.T for name in ("second", "cov"))
        inducing = averages.average(means)
        inducing_cov = batch_covariance(means, second, cond, batches.widths)
    return LogitChains(
        **_with_errors(
            latent_mean=averages.mean("latent_mean"),
            latent_var=_variance(averages, "latent"),
            inducing_mean=inducing,
            inducing_cov=inducing_cov,
            test_latent_mean=averages.mean("test_mean"),
            test_latent_var=_variance(averages, "test"),
            probabilities=averages.mean("probability"),
        ),
        **_run_fields(finished, trust, chain_movement(kept["latent"]), n_chains, thin),
        quadrature_error=QUADRATURE_ERROR,
        latent_draws=kept["latent"],
        omega_draws=kept["omega"],
        inducing_draws=kept.get("inducing"),
        log_joint=kept["log_joint"],
    )
