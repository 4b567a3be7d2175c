"""What the samplers with one latent function per class share: priors per class, a run, and averages with their errors.

Everything Gaussian is linear in the vector h that the constraints of the labels cut: f, u and f* given h have constant
covariances, so they are factorised once and no sweep holds a Cholesky factor. Arrays inside a run are (r, L, n).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from gibbs.chains.chain import Measures, Plan, Record, Run, State, Storage, counts, run
from gibbs.chains.diagnostics import Convergence, chain_movement, convergence, least_ess
from gibbs.chains.starts import start_factors
from gibbs.chains.summary import Averages, _run_fields, _with_errors
from gibbs.core.checks import shown
from gibbs.core.errors import Array, _array, _count, _in_range, _inputs, _labels, _reachable
from gibbs.core.generators import Generators, spawn_streams
from gibbs.core.kernels import covariance
from gibbs.core.linalg import cholesky, solve_factored, substitute
from gibbs.core.options import LatentOptions
from gibbs.core.values import Data, Prior
from gibbs.moves.region import Labels

PRIOR_MODELS = ("full", "fitc")
_PER_LATENT = ("variance", "lengthscales", "smoothness", "noise", "jitter", "Z")

# Absolute error of `argmax_probability` where standard deviations of the classes differ by less than 500 times;
# beyond that the smaller ones are raised to 1/500 of the largest, which moves a probability by less than 1e-5.
QUADRATURE_ERROR = 1e-9
_WIDEST_RATIO = 500.0
_RANGE = 7.0  # leaves out a mass of 3e-12
# trapezoid: the spectrum of φ(x) Π Φ(a_j + b_j x) falls like exp(-½ ω²/(1 + Σ b_j²)), this step leaves out 1e-11 of it
_STEP = 0.85
_VALUES = 2_000_000  # entries of one block of the integrand


class MultiLatentChains(NamedTuple):
    """Averages over all chains and draws, Rao-Blackwellised given the auxiliary h; each `_se` is a Monte Carlo s.e."""

    latent_mean: Array  # (n, L) E[f_i | y], noise included in f
    latent_mean_se: Array
    latent_cov: Array  # (n, L, L)
    latent_cov_se: Array
    inducing_mean: Array | None  # (L, m), FITC only
    inducing_mean_se: Array | None
    inducing_cov: Array | None  # (L, m, m)
    inducing_cov_se: Array | None
    test_latent_mean: Array  # (t, L)
    test_latent_mean_se: Array
    test_latent_cov: Array  # (t, L, L)
    test_latent_cov_se: Array
    probabilities: Array  # (t, C) p(y* = c)
    probabilities_se: Array
    probability_mass: Array  # (t,) sum over the classes before normalising
    quadrature_error: float  # absolute, of each probability given h
    error_probability: Array | None  # (n,) p(the label was drawn at random | y), threshold only
    error_probability_se: Array | None
    convergence: dict[str, Convergence]  # "latent", "latent_square", "log_joint"; "inducing" and its square (FITC)
    movement: Array  # (r,) least share of kept draws in which an entry of h differs from the draw before
    # >= 4 chains, all moving, >= 100 autocorrelation times per chain, Convergence.gate of all; warm-up and target met
    gate: bool
    latent_draws: Array  # (r, s, n, L), every keep_every-th draw
    auxiliary_draws: Array  # (r, s, n, L) h; equal to latent_draws for the threshold likelihood
    log_joint: Array  # (r, s) log p(y, h), everything else integrated out
    events_per_sweep: float  # constraints met by a path of the bounce move, on average
    n_sweeps: int  # per chain, warm-up included
    seconds: float
    sweeps_per_second: float  # of all chains together advancing one sweep
    settled: bool  # False: a chain stands still in at least one latent value
    n_draws: int  # per chain; the averages are over all of them
    n_warmup: int  # sweeps
    keep_every: int  # draws per kept draw
    warmed_up: bool  # False: n_warmup "auto" ended at max_warmup before the chains agreed
    target_reached: bool  # False: max_draws came before target_ess


class LatentPrior(NamedTuple):
    """Prior covariances per latent, noise included; those that all latents share are stored once."""

    K_XX: Array  # (L, n, n) of f at the data, jitter included for a full GP
    K_TX: Array  # (L, t, n)
    k_tt: Array  # (L, t)
    K_ZX: Array | None  # (L, m, n), FITC
    K_ZZ: Array | None  # (L, m, m)


class Setting(NamedTuple):
    """Checked inputs."""

    y: Labels
    prior: LatentPrior
    arrays: dict[str, Array]  # everything a run depends on, for its fingerprint


class Conditionals(NamedTuple):
    """Distributions given h: means gain · h and constant covariances."""

    cov: Array  # (L, n, n) of h under the prior
    chol_cov: Array
    test_gain: Array  # (L, t, n)
    test_var: Array  # (L, t)
    inducing_gain: Array | None  # (L, m, n)
    inducing_cov: Array | None  # (L, m, m)


class Model(Protocol):
    """What a likelihood gives to a run."""

    @property
    def conditionals(self) -> Conditionals:
        """Distributions given h."""

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        """A state inside the constraints."""

    def step(self, state: State, rngs: Generators) -> State:
        """One sweep."""

    def log_joint(self, auxiliary: Array) -> Array:
        """log p(y, h), (r,)."""

    def latent(self, auxiliary: Array) -> tuple[Array, Array]:
        """E[f | h], (..., L, n), and Var(f | h), (L, n)."""

    def class_probabilities(self, latent_mean: Array, latent_var: Array) -> Array:
        """p(y* = c) before normalising, (k, C), from Gaussians (k, L) and (L,)."""


# -- inputs ------------------------------------------------------------------------------------------------------


def _per_latent(name: str, value: ArrayLike, n_latents: int, *, positive: bool) -> Array:
    array = _array(name, value, None)
    if array.shape not in ((), (n_latents,)):
        raise ValueError(f"{name}: found shape {array.shape}, expected () or ({n_latents},)")
    if np.any(array < 0.0) or (positive and np.any(array == 0.0)):
        raise ValueError(f"{name}: found {array.min():.6g}, expected {'> 0' if positive else '>= 0'}")
    _in_range(name, array)
    return np.broadcast_to(array, (n_latents,)).copy()


def _scales(value: ArrayLike, n_latents: int, d: int) -> Array:
    array = _array("lengthscales", value, None)
    if array.shape not in ((), (d,), (n_latents, d)):
        raise ValueError(f"lengthscales: found shape {array.shape}, expected ({d},) or ({n_latents}, {d})")
    if np.any(array <= 0.0):
        raise ValueError(f"lengthscales: found {array.min():.6g}, expected > 0")
    _in_range("lengthscales", array)
    return np.broadcast_to(array, (n_latents, d)).copy()


def check(data: Data, prior: Prior, n_latents: int) -> Setting:
    """Checked labels and prior covariances of n_latents independent latent functions.

    data, prior: see `gibbs.core.values`; "full" does not look at Z.
    Raises ValueError on bad input and NotPositiveDefiniteError if K_ZZ has no Cholesky factor.
    """
    inputs = _inputs("X", data.X)
    n, d = inputs.shape
    _count("n_classes", data.n_classes, 2)
    test = np.empty((0, d)) if data.X_test is None else _inputs("X_test", data.X_test, d, empty=True)
    if not isinstance(prior.prior_model, str) or prior.prior_model not in PRIOR_MODELS:
        raise ValueError(f"prior_model: found {shown(prior.prior_model)}, expected one of {PRIOR_MODELS}")
    amplitude = _per_latent("variance", prior.variance, n_latents, positive=True)
    scales = _scales(prior.lengthscales, n_latents, d)
    noises = _per_latent("noise", prior.noise, n_latents, positive=False)
    jitters = _per_latent("jitter", prior.jitter, n_latents, positive=False)
    labels = _labels(data.y, n, data.n_classes)
    arrays = {"X": inputs, "y": labels.astype(np.float64), "variance": amplitude, "lengthscales": scales,
              "noise": noises, "jitter": jitters, "X_test": test}  # fmt: skip
    orders: list[float | None] = [None] * n_latents
    if prior.smoothness is not None:
        arrays["smoothness"] = _per_latent("smoothness", prior.smoothness, n_latents, positive=True)
        orders = arrays["smoothness"].tolist()
    inducing = None
    if prior.prior_model == "fitc":
        inducing = _inducing(prior.Z, n_latents, d)
        arrays["Z"] = inducing
    columns = [arrays[name] for name in _PER_LATENT if name in arrays]
    shared = all(bool(np.all(column == column[:1])) for column in columns)
    blocks = [
        _block(
            inputs,
            test,
            (amplitude[k], scales[k], orders[k]),
            noises[k],
            jitters[k],
            None if inducing is None else inducing[k],
        )
        for k in range(1 if shared else n_latents)
    ]

    def stack(parts: list[Array]) -> Array:
        return np.broadcast_to(parts[0], (n_latents, *parts[0].shape)) if shared else np.stack(parts)

    stacked = [None if column[0] is None else stack(list(column)) for column in zip(*blocks, strict=True)]
    return Setting(labels, LatentPrior(*stacked), arrays)  # type: ignore[arg-type]


def _inducing(Z: ArrayLike | None, n_latents: int, d: int) -> Array:
    if Z is None:
        raise ValueError("Z: found None, expected inducing inputs for the prior model 'fitc'")
    array = _array("Z", Z, None)
    if array.ndim not in (2, 3):
        raise ValueError(f"Z: found shape {array.shape}, expected (m, d) or ({n_latents}, m, d)")
    if array.ndim == 2:
        array = np.broadcast_to(array, (n_latents, *array.shape)).copy()
    if array.shape[0] != n_latents or array.shape[1] == 0 or array.shape[2] != d:
        raise ValueError(f"Z: found shape {array.shape}, expected ({n_latents}, m, {d}) with m >= 1")
    return array


def _block(
    X: Array, X_test: Array, kernel: tuple[float, Array, float | None], noise: float, jitter: float, Z: Array | None
) -> LatentPrior:
    """The prior of one latent function, without the leading axis: kernel is variance, lengthscales, smoothness."""
    variance = kernel[0]

    def k(X1: Array, X2: Array) -> Array:
        return covariance(X1, X2, *kernel)

    k_tt = np.full(X_test.shape[0], variance + noise)
    if Z is None:
        K_XX = k(X, X) + (noise + jitter) * np.eye(X.shape[0])
        return LatentPrior(K_XX, k(X_test, X), k_tt, None, None)
    K_ZZ = k(Z, Z) + jitter * np.eye(Z.shape[0])
    chol = cholesky("K_ZZ", K_ZZ, "raise jitter or remove duplicate rows of Z")
    K_ZX, K_ZT = k(Z, X), k(Z, X_test)
    rows = solve_triangular(chol, K_ZX, lower=True)
    K_XX = rows.T @ rows
    explained = np.diagonal(K_XX)
    if np.any(explained > variance * (1.0 + 1e-6)):
        raise ValueError(
            f"jitter: found conditional variance {(variance - explained).min():.3g} at X, expected >= 0; raise jitter"
        )
    np.fill_diagonal(K_XX, np.maximum(variance, explained) + noise)
    return LatentPrior(K_XX, solve_triangular(chol, K_ZT, lower=True).T @ rows, k_tt, K_ZX, K_ZZ)


def conditionals(prior: LatentPrior, auxiliary_noise: float) -> Conditionals:
    """Distributions given h = f + e, e ~ N(0, auxiliary_noise I): one factorisation per different latent.

    prior: a LatentPrior; auxiliary_noise >= 0 (1 for probit, 0 for threshold). Raises NotPositiveDefiniteError if
    the covariance of h has no Cholesky factor.
    """
    shared = prior.K_XX.strides[0] == 0

    def one(k: int) -> Conditionals:
        S = prior.K_XX[k] + auxiliary_noise * np.eye(prior.K_XX.shape[1])
        chol = cholesky("K_XX", S, "raise noise or jitter, or remove duplicate rows of X")
        test_gain = solve_factored(chol, prior.K_TX[k].T).T
        test_var = prior.k_tt[k] - np.einsum("tn,tn->t", test_gain, prior.K_TX[k])
        inducing_gain = inducing_cov = None
        if prior.K_ZX is not None:
            assert prior.K_ZZ is not None
            inducing_gain = solve_factored(chol, prior.K_ZX[k].T).T
            inducing_cov = prior.K_ZZ[k] - inducing_gain @ prior.K_ZX[k].T
            inducing_cov = 0.5 * (inducing_cov + inducing_cov.T)
        return Conditionals(S, chol, test_gain, np.maximum(test_var, 0.0), inducing_gain, inducing_cov)

    L = prior.K_XX.shape[0]
    blocks = [one(k) for k in range(1 if shared else L)]

    def stack(parts: list[Array]) -> Array:
        return np.broadcast_to(parts[0], (L, *parts[0].shape)) if shared else np.stack(parts)

    return Conditionals(*(None if c[0] is None else stack(list(c)) for c in zip(*blocks, strict=True)))  # type: ignore[arg-type]


def log_prior(chol_cov: Array, auxiliary: Array) -> Array:
    """log N(h; 0, S) summed over the latents: chol_cov (L, n, n) lower factors of S, auxiliary h (r, L, n) -> (r,)."""
    total = np.zeros(auxiliary.shape[0])
    for k in range(auxiliary.shape[1]):
        white = substitute(chol_cov[k], auxiliary[:, k].T)
        total -= 0.5 * np.einsum("nr,nr->r", white, white) + np.log(np.diagonal(chol_cov[k])).sum()
    return total - 0.5 * auxiliary[0].size * np.log(2.0 * np.pi)


# -- class probabilities -------------------------------------------------------------------------------------------


def argmax_probability(latent_mean: ArrayLike, latent_var: ArrayLike) -> Array:
    """P(value c is the largest) for independent Gaussians: ∫ N(x; m_c, v_c) Π_{j≠c} Φ((x - m_j)/√v_j) dx.

    latent_mean (k, C); latent_var (C,) >= 0, one for all rows. Returns (k, C), not normalised: rows sum to one up to
    QUADRATURE_ERROR, which the trapezoid rule keeps because its step follows the ratios of the standard deviations
    (see there for ratios above 500). Raises ValueError for entries that are not finite or negative variances.
    """
    mean, var = _reachable("latent_mean", latent_mean, 2), _reachable("latent_var", latent_var, 1)
    if var.shape != mean.shape[1:] or np.any(var < 0.0):
        raise ValueError(f"latent_var: found shape {var.shape}, expected ({mean.shape[1]},) with entries >= 0")
    sd = np.sqrt(var)
    least = sd.max() / _WIDEST_RATIO if sd.max() > 0.0 else 1e-12 * (1.0 + np.abs(mean).max(initial=0.0))
    sd = np.maximum(sd, least)
    out = np.empty_like(mean)
    for c in range(mean.shape[1]):
        others = np.delete(np.arange(mean.shape[1]), c)
        ratios = sd[c] / sd[others]
        half_count = int(np.ceil(_RANGE * np.sqrt(1.0 + np.square(ratios).sum()) / _STEP))
        x = _RANGE * np.arange(-half_count, half_count + 1) / half_count
        weight = np.exp(-0.5 * x * x)
        weight /= weight.sum()  # makes constants exact
        offset = (mean[:, [c]] - mean[:, others]) / sd[others]
        rows = max(1, _VALUES // x.size)
        for first in range(0, mean.shape[0], rows):
            block = offset[first : first + rows]
            product = ndtr(block[:, :1] + ratios[0] * x)
            for j in range(1, others.size):
                product *= ndtr(block[:, j : j + 1] + ratios[j] * x)
            out[first : first + rows, c] = product @ weight
    return out


# -- runs ----------------------------------------------------------------------------------------------------------


def overdispersed(rng: np.random.Generator, chol_cov: Array, n_chains: int) -> Array:
    """Start states (r, L, n): prior draws, those of each chain scaled by a factor of its own (`start_factors`).

    chol_cov (L, n, n); n_chains r. rng gives exactly r L n normals.
    """
    white = rng.standard_normal((n_chains, *chol_cov.shape[:2]))
    drawn: Array = np.matmul(chol_cov, white[..., None])[..., 0]
    return start_factors(n_chains)[:, None, None] * drawn


def sample_model(
    model: Model,
    arrays: Mapping[str, Array],
    settings: Mapping[str, object],
    purposes: tuple[str, ...],
    options: LatentOptions,
) -> MultiLatentChains:
    """Run a model and average.

    model: start, step and conditional distributions of a likelihood; arrays, settings: what the run depends on;
    purposes: streams spawned from the seed, one for each chain (the model must draw rows per chain, see
    `gibbs.core.generators`); options: n_draws >= 4, target_ess the least bulk or tail effective size of latents, their
    squares and the log joint, the rest as in `gibbs.chains.chain.run`. Raises ValueError for counts out of range.
    """
    plan, n_chains = Plan.of(options), options.n_chains
    rngs: Generators = spawn_streams(options.seed, purposes, n_chains)

    def monitor(state: State) -> State:
        watched = {"latent": state.get("latent", state["auxiliary"])}
        return watched | {"log_joint": model.log_joint(state["auxiliary"])}

    def record(state: State) -> Record:
        kept: State = {name: state[name] for name in ("auxiliary", "latent") if name in state}
        kept["log_joint"] = model.log_joint(state["auxiliary"])
        terms: State = {name: state[name] for name in ("auxiliary", "error") if name in state}
        return Record(kept, {"events": state["events"]}, terms)

    def effective(kept: State, keep_every: int) -> float:
        return least_ess({name: convergence(draws) for name, draws in _columns(model.conditionals, kept).items()})

    finished = run(
        model.start(rngs["start"], n_chains),
        model.step,
        record,
        rngs,
        plan,
        measures=Measures(lambda terms: _block_sums(model, terms), monitor, effective),
        callback=options.callback,
        storage=Storage.of(options, {**settings, **counts(options, plan), "per_chain": True}, dict(arrays)),
    )
    return _summary(model, finished, n_chains, plan.thin)


def _outer_sum(values: Array) -> Array:
    """Σ_k x xᵀ over the first axis of values (k, ..., p)."""
    last = np.moveaxis(values, 0, -1)  # (..., p, k)
    return np.matmul(last, np.swapaxes(last, -1, -2))


def _block_sums(model: Model, terms: State) -> State:
    """Sums (r, ...) over a block of draws: given h, means of f, f*, u and their outer products, and probabilities."""
    given, auxiliary = model.conditionals, terms["auxiliary"]
    k, r = auxiliary.shape[:2]
    latent = np.moveaxis(model.latent(auxiliary)[0], 2, 3)  # (k, r, n, L)
    test = np.moveaxis(np.matmul(given.test_gain, auxiliary[..., None])[..., 0], 2, 3)
    sums = {
        "latent_mean": latent.sum(axis=0), "latent_second": _outer_sum(latent),
        "test_mean": test.sum(axis=0), "test_second": _outer_sum(test),
    }  # fmt: skip
    parts = [
        model.class_probabilities(test[:, :, i].reshape(k * r, -1), given.test_var[:, i]) for i in range(test.shape[2])
    ]
    raw = np.stack(parts, axis=1) if parts else np.empty((k * r, 0, max(2, test.shape[3])))
    mass = raw.sum(axis=2)
    sums["probability"] = (raw / mass[..., None]).reshape(k, r, *raw.shape[1:]).sum(axis=0)
    sums["mass"] = mass.reshape(k, r, -1).sum(axis=0)
    if given.inducing_gain is not None:
        inducing = np.matmul(given.inducing_gain, auxiliary[..., None])[..., 0]
        sums |= {"inducing_mean": inducing.sum(axis=0), "inducing_second": _outer_sum(inducing)}
    if "error" in terms:
        sums["error"] = terms["error"].sum(axis=0)
    return sums


def _columns(given: Conditionals, kept: State) -> State:
    """What effective sizes are asked of."""
    draws = kept.get("latent", kept["auxiliary"])
    columns = {"latent": draws, "latent_square": np.square(draws), "log_joint": kept["log_joint"]}
    if given.inducing_gain is not None:
        inducing = np.matmul(given.inducing_gain, kept["auxiliary"][..., None])[..., 0]
        columns |= {"inducing": inducing, "inducing_square": np.square(inducing)}
    return columns


def _diagonal(var: Array) -> Array:
    """(L, n) -> (n, L, L)."""
    return var.T[:, :, None] * np.eye(var.shape[0])


def _summary(model: Model, finished: Run, n_chains: int, thin: int) -> MultiLatentChains:
    kept, given = finished.kept, model.conditionals
    auxiliary = kept["auxiliary"]
    trust = {name: convergence(values, thin * finished.keep_every) for name, values in _columns(given, kept).items()}
    averages = Averages.of(finished, trust, n_chains, thin)
    mean, cov = averages.mean, averages.cov
    inducing = inducing_cov = None
    if given.inducing_cov is not None:
        inducing, inducing_cov = mean("inducing_mean"), cov("inducing", given.inducing_cov)
    return MultiLatentChains(
        **_with_errors(
            latent_mean=mean("latent_mean"),
            latent_cov=cov("latent", _diagonal(model.latent(auxiliary[:, :1])[1])),
            inducing_mean=inducing,
            inducing_cov=inducing_cov,
            test_latent_mean=mean("test_mean"),
            test_latent_cov=cov("test", _diagonal(given.test_var)),
            probabilities=mean("probability"),
            error_probability=mean("error") if "error" in averages.batches.sums else None,
        ),
        **_run_fields(finished, trust, chain_movement(auxiliary), n_chains, thin),
        probability_mass=mean("mass").mean,
        quadrature_error=QUADRATURE_ERROR,
        latent_draws=np.moveaxis(kept.get("latent", auxiliary), 2, 3),
        auxiliary_draws=np.moveaxis(auxiliary, 2, 3),
        log_joint=kept["log_joint"],
        events_per_sweep=float(finished.totals["events"].mean() / finished.n_draws),
    )
