"""Entry points of the binary logit truth: chains for the full GP and for FITC, with averages and their errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from gibbs.chain import Progress, Record, Run, State, fingerprint, run, spawn_generators
from gibbs.diagnostics import Convergence, convergence, standard_error, variance_influence
from gibbs.errors import Array, _cholesky, _count, _inputs, _lengthscales, _scalar, _signs
from gibbs.kernels import squared_exponential
from gibbs.logit import (
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
from gibbs.quadrature import QUADRATURE_ERROR, logistic_normal_mean

PURPOSES = ("start", "auxiliary", "latent", "scale", "ellipse")
MOVES = ("scale", "ellipse")
Generators = Mapping[str, np.random.Generator]


class LogitChains(NamedTuple):
    """Averages over all chains and draws, Rao-Blackwellised over f (and u) given ω; each `_se` is a Monte Carlo s.e."""

    latent_mean: Array  # (n,) E[f_i | y], noise included in f
    latent_mean_se: Array
    latent_var: Array  # (n,)
    latent_var_se: Array
    inducing_mean: Array | None  # (m,), FITC only
    inducing_mean_se: Array | None
    inducing_cov: Array | None  # (m, m)
    inducing_cov_se: Array | None  # from the spread between chains
    test_latent_mean: Array  # (t,)
    test_latent_mean_se: Array
    test_latent_var: Array
    test_latent_var_se: Array
    probabilities: Array  # (t,) p(y* = 1)
    probabilities_se: Array
    quadrature_error: float  # absolute, of each probability given ω
    convergence: dict[str, Convergence]  # "latent", "latent_square", "log_joint"; "inducing", "inducing_square" (FITC)
    gate: bool  # >= 4 chains, >= 100 autocorrelation times per chain, and Convergence.gate of all
    latent_draws: Array  # (r, s, n)
    omega_draws: Array  # (r, s, n), the ω the moments were conditioned on; drawn given the latent draw before
    inducing_draws: Array | None  # (r, s, m)
    log_joint: (
        Array  # (r, s) log p(y|f) + log N(white; 0, I), white the standardised latent (FITC: inducing and residual)
    )
    n_sweeps: int  # per chain, warm-up included
    seconds: float
    sweeps_per_second: float  # of all chains together advancing one sweep


class _Full(NamedTuple):
    K_XX: Array
    factor: Array
    K_TX: Array
    k_tt: Array
    y_sign: Array
    moves: tuple[str, ...]

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        white = _overdispersed(rng, (n_chains, self.y_sign.size))
        latent = white @ self.factor.T
        return {"latent": latent, "omega": draw_omega(rng, latent)}

    def white(self, latent: Array) -> Array:
        return solve_triangular(self.factor, latent.T, lower=True, check_finite=False).T

    def step(self, state: State, rngs: Generators) -> State:
        omega = draw_omega(rngs["auxiliary"], state["latent"])
        latent = draw_latent(rngs["latent"], self.K_XX, self.factor, self.y_sign, omega)
        if "scale" in self.moves:
            latent = latent * scale_move(rngs["scale"], self.white(latent), latent, self.y_sign)[:, None]
        if "ellipse" in self.moves:
            prior = rngs["ellipse"].standard_normal(latent.shape) @ self.factor.T
            cos, sin = ellipse_move(rngs["ellipse"], latent, prior, self.y_sign)
            latent = cos[:, None] * latent + sin[:, None] * prior
        return {"latent": latent, "omega": omega}

    def record(self, state: State) -> Record:
        latent, test = latent_moments(self.K_XX, self.K_TX, self.k_tt, self.y_sign, state["omega"])
        white = self.white(state["latent"])
        kept = {
            "latent": state["latent"],
            "omega": state["omega"],
            "log_joint": log_likelihood(state["latent"], self.y_sign) + _log_normal(white),
            "latent_mean": latent.mean,
            "latent_var": latent.var,
            "test_mean": test.mean,
            "test_var": test.var,
            "probability": logistic_normal_mean(test.mean, test.var),
        }
        return Record(kept, {})


class _Fitc(NamedTuple):
    factor: Array
    white_rows: Array
    cond_var: Array
    white_rows_test: Array
    cond_var_test: Array
    y_sign: Array
    moves: tuple[str, ...]

    def latent(self, inducing: Array, residual: Array) -> Array:
        return inducing @ self.white_rows.T + np.sqrt(self.cond_var) * residual

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        n, m = self.white_rows.shape
        white = _overdispersed(rng, (n_chains, m + n))
        omega = draw_omega(rng, self.latent(white[:, :m], white[:, m:]))
        return {"inducing": white[:, :m], "residual": white[:, m:], "omega": omega}

    def step(self, state: State, rngs: Generators) -> State:
        omega = draw_omega(rngs["auxiliary"], self.latent(state["inducing"], state["residual"]))
        inducing = draw_inducing(rngs["latent"], self.white_rows, self.cond_var, self.y_sign, omega)
        projected = inducing @ self.white_rows.T
        residual = draw_residual(rngs["latent"], projected, self.cond_var, self.y_sign, omega)
        white = np.concatenate([inducing, residual], axis=1)
        m = inducing.shape[1]
        if "scale" in self.moves:
            latent = self.latent(white[:, :m], white[:, m:])
            white = white * scale_move(rngs["scale"], white, latent, self.y_sign)[:, None]
        if "ellipse" in self.moves:
            prior = rngs["ellipse"].standard_normal(white.shape)
            latent, latent_prior = (self.latent(w[:, :m], w[:, m:]) for w in (white, prior))
            cos, sin = ellipse_move(rngs["ellipse"], latent, latent_prior, self.y_sign)
            white = cos[:, None] * white + sin[:, None] * prior
        return {"inducing": white[:, :m], "residual": white[:, m:], "omega": omega}

    def record(self, state: State) -> Record:
        got = inducing_moments(
            self.white_rows, self.cond_var, self.white_rows_test, self.cond_var_test, self.y_sign, state["omega"]
        )
        latent = self.latent(state["inducing"], state["residual"])
        kept = {
            "latent": latent,
            "omega": state["omega"],
            "inducing": state["inducing"] @ self.factor.T,
            "log_joint": log_likelihood(latent, self.y_sign)
            + _log_normal(state["inducing"])
            + _log_normal(state["residual"]),
            "white_mean": got.white_mean,
            "latent_mean": got.latent.mean,
            "latent_var": got.latent.var,
            "test_mean": got.test.mean,
            "test_var": got.test.var,
            "probability": logistic_normal_mean(got.test.mean, got.test.var),
        }
        return Record(kept, {"white_cov": got.white_cov})


def _log_normal(white: Array) -> Array:
    """log N(white; 0, I), (r, p) -> (r,)."""
    return -0.5 * np.einsum("rp,rp->r", white, white) - 0.5 * white.shape[1] * np.log(2.0 * np.pi)


def _overdispersed(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Start states: prior draws scaled per chain by factors spread evenly over [1/4, 2], in random order."""
    factors = rng.permutation(np.geomspace(0.25, 2.0, shape[0])) if shape[0] > 1 else np.ones(1)
    return factors[:, None] * rng.standard_normal(shape)


def _moves(moves: Sequence[str]) -> tuple[str, ...]:
    unknown = [] if isinstance(moves, str) else [move for move in moves if move not in MOVES]
    if isinstance(moves, str) or unknown:
        raise ValueError(f"moves: found {moves!r}, expected a sequence out of {MOVES}")
    return tuple(move for move in MOVES if move in moves)


class _Common(NamedTuple):
    X: Array
    X_test: Array
    y_sign: Array
    variance: float
    lengthscales: Array
    noise: float
    jitter: float

    def kernel(self, X1: Array, X2: Array) -> Array:
        return squared_exponential(X1, X2, self.variance, self.lengthscales)


def _common(
    X: ArrayLike,
    y_sign: ArrayLike,
    variance: float,
    lengthscales: ArrayLike,
    noise: float,
    jitter: float,
    X_test: ArrayLike | None,
) -> _Common:
    inputs = _inputs("X", X)
    d = inputs.shape[1]
    return _Common(
        inputs,
        np.empty((0, d)) if X_test is None else _inputs("X_test", X_test, d, empty=True),
        _signs(y_sign, inputs.shape[0]),
        _scalar("variance", variance, positive=True),
        _lengthscales(lengthscales, d),
        _scalar("noise", noise, positive=False),
        _scalar("jitter", jitter, positive=False),
    )


def full_covariance(X: ArrayLike, variance: float, lengthscales: ArrayLike, noise: float, jitter: float) -> Array:
    """K_XX (n, n) = k(X, X) + (noise + jitter) I of the full GP.

    X (n, d); variance > 0; lengthscales (d,) > 0; noise, jitter >= 0. Raises ValueError on bad input.
    """
    p = _common(X, np.ones(np.shape(X)[0]), variance, lengthscales, noise, jitter, None)
    return p.kernel(p.X, p.X) + (p.noise + p.jitter) * np.eye(p.X.shape[0])


def _conditional_variance(prior: float, white_rows: Array, name: str) -> Array:
    """prior - |white_row|², a variance: what rounding leaves below zero is zero, more is an error."""
    var = prior - np.einsum("nm,nm->n", white_rows, white_rows)
    if var.size and var.min() < -1e-6 * prior:
        raise ValueError(f"jitter: found conditional variance {var.min():.3g} at {name}, expected >= 0; raise jitter")
    return np.maximum(var, 0.0)


def sample_full(
    X: ArrayLike,
    y_sign: ArrayLike,
    variance: float,
    lengthscales: ArrayLike,
    noise: float,
    jitter: float,
    X_test: ArrayLike | None = None,
    *,
    n_chains: int = 16,
    n_draws: int,
    n_warmup: int,
    thin: int = 1,
    seed: int,
    moves: Sequence[str] = ("scale",),
    callback: Callable[[Progress], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    max_kept_bytes: int = 2_000_000_000,
) -> LogitChains:
    """Sample p(f, ω | y) of the full GP with binary logit likelihood: wenzel2019, section 5.1.

    X (n, d), y_sign (n,) of -1 and +1, X_test (t, d) or None; k = variance · SE(lengthscales (d,)); noise is part of
    every latent value at data and test points, jitter stands on K_XX only. n_chains >= 1 run side by side from
    overdispersed starts; each gives n_draws draws, one every `thin` sweeps, after n_warmup sweeps. seed fixes all
    randomness (one generator per purpose, the chains share it; n_chains is part of what it fixes).
    moves: further exact moves after each Gibbs sweep, out of "scale" and "ellipse".
    callback, checkpoint, checkpoint_every, max_kept_bytes: see `gibbs.chain.run`.
    Time O(r n³) per sweep and as much again per kept draw; memory O(n² + r s (n + t)).

    Raises ValueError on bad input, NotPositiveDefiniteError if K_XX has no Cholesky factor.
    """
    p = _common(X, y_sign, variance, lengthscales, noise, jitter, X_test)
    K_XX = p.kernel(p.X, p.X) + (p.noise + p.jitter) * np.eye(p.y_sign.size)
    chol_K = _cholesky("K_XX", K_XX, "raise noise or jitter, or remove duplicate rows of X")
    k_tt = np.full(p.X_test.shape[0], p.variance + p.noise)
    model = _Full(K_XX, chol_K, p.kernel(p.X_test, p.X), k_tt, p.y_sign, _moves(moves))
    return _sample(
        model, p, "full", None, n_chains, n_draws, n_warmup, thin, seed,
        callback, checkpoint, checkpoint_every, max_kept_bytes,
    )  # fmt: skip


def sample_fitc(
    X: ArrayLike,
    y_sign: ArrayLike,
    Z: ArrayLike,
    variance: float,
    lengthscales: ArrayLike,
    noise: float,
    jitter: float,
    X_test: ArrayLike | None = None,
    *,
    n_chains: int = 16,
    n_draws: int,
    n_warmup: int,
    thin: int = 1,
    seed: int,
    moves: Sequence[str] = ("scale",),
    callback: Callable[[Progress], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    max_kept_bytes: int = 2_000_000_000,
) -> LogitChains:
    """Sample p(u, f, ω | y) of the model whose f_i are independent given u = f(Z): FITC with logit likelihood.

    Z (m, d): inducing inputs, jitter on the diagonal of K_ZZ only. u is drawn with f integrated out, then f given u.
    X (n, d), y_sign (n,), variance, lengthscales, noise, X_test, n_chains, n_draws, n_warmup, thin, seed, moves,
    callback, checkpoint, checkpoint_every, max_kept_bytes: as in `sample_full`. Time O(r n m²) per sweep.

    Raises ValueError on bad input, NotPositiveDefiniteError if K_ZZ has no Cholesky factor.
    """
    p = _common(X, y_sign, variance, lengthscales, noise, jitter, X_test)
    inducing = _inputs("Z", Z, p.X.shape[1])
    white = fitc_white(p.X, inducing, p.variance, p.lengthscales, p.noise, p.jitter)
    test = fitc_white(p.X_test, inducing, p.variance, p.lengthscales, p.noise, p.jitter)
    model = _Fitc(
        white.factor, white.white_rows, white.cond_var, test.white_rows, test.cond_var, p.y_sign, _moves(moves)
    )
    return _sample(
        model, p, "fitc", inducing, n_chains, n_draws, n_warmup, thin, seed,
        callback, checkpoint, checkpoint_every, max_kept_bytes,
    )  # fmt: skip


class FitcWhite(NamedTuple):
    """The FITC prior in white coordinates: u = factor v, f = white_rows v + √cond_var e."""

    factor: Array  # (m, m) lower Cholesky factor of K_ZZ
    white_rows: Array  # (n, m)
    cond_var: Array  # (n,)


def fitc_white(
    X: ArrayLike, Z: ArrayLike, variance: float, lengthscales: ArrayLike, noise: float, jitter: float
) -> FitcWhite:
    """White rows and conditional variances of f(X) given u = f(Z).

    X (n, d), Z (m, d), variance, lengthscales (d,), noise in every f(x), jitter on K_ZZ. A conditional variance that
    rounding leaves below zero by less than 1e-6 of the prior variance is zero. Raises ValueError on bad input and
    NotPositiveDefiniteError if K_ZZ has no Cholesky factor.
    """
    inputs = _inputs("X", X, empty=True)
    p = _common(np.zeros((1, inputs.shape[1])), np.ones(1), variance, lengthscales, noise, jitter, None)
    inducing = _inputs("Z", Z, inputs.shape[1])
    K_ZZ = p.kernel(inducing, inducing) + p.jitter * np.eye(inducing.shape[0])
    chol_ZZ = _cholesky("K_ZZ", K_ZZ, "raise jitter or remove duplicate rows of Z")
    rows = solve_triangular(chol_ZZ, p.kernel(inducing, inputs), lower=True).T
    return FitcWhite(chol_ZZ, rows, _conditional_variance(p.variance + p.noise, rows, "X"))


def _sample(
    model: _Full | _Fitc,
    p: _Common,
    kind: str,
    Z: Array | None,
    n_chains: int,
    n_draws: int,
    n_warmup: int,
    thin: int,
    seed: int,
    callback: Callable[[Progress], object] | None,
    checkpoint: str | os.PathLike[str] | None,
    checkpoint_every: int,
    max_kept_bytes: int,
) -> LogitChains:
    _count("n_chains", n_chains, 1)
    _count("n_draws", n_draws, 4)
    rngs = spawn_generators(seed, PURPOSES)
    arrays = {"X": p.X, "X_test": p.X_test, "y_sign": p.y_sign, "lengthscales": p.lengthscales}
    if Z is not None:
        arrays["Z"] = Z
    settings = {
        "model": f"logit {kind}", "variance": p.variance, "noise": p.noise, "jitter": p.jitter, "moves": model.moves,
        "n_chains": int(n_chains), "n_draws": int(n_draws), "n_warmup": int(n_warmup), "thin": int(thin),
        "seed": int(seed),
    }  # fmt: skip
    finished = run(
        model.start(rngs["start"], n_chains),
        model.step,
        model.record,
        rngs,
        n_draws=n_draws,
        n_warmup=n_warmup,
        thin=thin,
        callback=callback,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        mark=fingerprint(settings, arrays),
        max_kept_bytes=max_kept_bytes,
    )
    return _summary(model, finished, n_chains, n_draws, thin)


def _summary(model: _Full | _Fitc, finished: Run, n_chains: int, n_draws: int, thin: int) -> LogitChains:
    kept = finished.kept
    spread = variance_influence(kept["latent_mean"], kept["latent_var"])
    test_spread = variance_influence(kept["test_mean"], kept["test_var"])
    columns = {
        "latent": kept["latent"],
        "latent_square": np.square(kept["latent"]),
        "log_joint": kept["log_joint"],
    }
    inducing_mean = inducing_mean_se = inducing_cov = inducing_cov_se = None
    if isinstance(model, _Fitc):
        means = kept["white_mean"] @ model.factor.T  # E[u | ω, y]
        inducing_mean, inducing_mean_se = means.mean(axis=(0, 1)), standard_error(means)
        centred = means - inducing_mean
        per_chain = model.factor @ (finished.totals["white_cov"] / n_draws) @ model.factor.T
        per_chain += np.einsum("rsm,rsp->rmp", centred, centred) / n_draws
        inducing_cov = per_chain.mean(axis=0)
        if n_chains > 1:
            inducing_cov_se = per_chain.std(axis=0, ddof=1) / np.sqrt(n_chains)
        columns |= {"inducing": kept["inducing"], "inducing_square": np.square(kept["inducing"])}
    trust = {name: convergence(draws, thin) for name, draws in columns.items()}
    per_chain_sweeps = n_draws * thin
    long_enough = all(bool(np.all(per_chain_sweeps >= 100.0 * q.autocorrelation_time)) for q in trust.values())
    return LogitChains(
        latent_mean=kept["latent_mean"].mean(axis=(0, 1)),
        latent_mean_se=standard_error(kept["latent_mean"]),
        latent_var=spread.mean(axis=(0, 1)),
        latent_var_se=standard_error(spread),
        inducing_mean=inducing_mean,
        inducing_mean_se=inducing_mean_se,
        inducing_cov=inducing_cov,
        inducing_cov_se=inducing_cov_se,
        test_latent_mean=kept["test_mean"].mean(axis=(0, 1)),
        test_latent_mean_se=standard_error(kept["test_mean"]),
        test_latent_var=test_spread.mean(axis=(0, 1)),
        test_latent_var_se=standard_error(test_spread),
        probabilities=kept["probability"].mean(axis=(0, 1)),
        probabilities_se=standard_error(kept["probability"]),
        quadrature_error=QUADRATURE_ERROR,
        convergence=trust,
        gate=n_chains >= 4 and long_enough and all(q.gate() for q in trust.values()),
        latent_draws=kept["latent"],
        omega_draws=kept["omega"],
        inducing_draws=kept.get("inducing"),
        log_joint=kept["log_joint"],
        n_sweeps=finished.n_sweeps,
        seconds=finished.seconds,
        sweeps_per_second=finished.n_sweeps / max(finished.seconds, 1e-9),
    )
