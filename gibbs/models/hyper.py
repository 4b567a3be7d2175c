"""Entry point: kernel parameters sampled together with the latent values, averages over both, and their errors.

riihimaki2013, section 4.2: "the hyperparameters can be drawn from the conditional posterior"; the moves are in
`gibbs.models.hyper_models`, the priors in `gibbs.core.hyperpriors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, softmax

from gibbs.chains.chain import Plan, Record, Run, State, Storage, run, spawn_generators
from gibbs.chains.diagnostics import Convergence, chain_movement, convergence, long_enough, standard_error
from gibbs.core.checks import shown
from gibbs.core.declare import takes_values
from gibbs.core.errors import Array, _count, _scalar
from gibbs.core.hyperpriors import FIELDS, check_hyperprior
from gibbs.core.linalg import REMEDY, cholesky, solve_triangles
from gibbs.core.options import LearntOptions
from gibbs.core.values import Data, Prior
from gibbs.models.hyper_covariance import covariance, cross_covariance, log_normal_density, make_design
from gibbs.models.hyper_models import BINARY, LIKELIHOODS, PURPOSES, HyperModel
from gibbs.models.multilatent import argmax_probability, check
from gibbs.models.quadrature import logistic_normal_mean


class HyperChains(NamedTuple):
    """Averages over the posterior of θ and f together; each `_se` is a Monte Carlo standard error.

    Moments are Rao-Blackwellised given θ and the auxiliary (ω or h); the softmax has none, its moments are those of f.
    """

    hyper_draws: dict[str, Array]  # field -> (r, s, B) or (r, s, B, d), B = 1 where shared; what is learnt only
    hyper_mean: dict[str, Array]  # field -> (L,) or (L, d): posterior mean of the field
    hyper_mean_se: dict[str, Array]
    log_hyper_mean: dict[str, Array]  # of its logarithm: exp of it is a typical value, which the mean may not be
    log_hyper_mean_se: dict[str, Array]
    log_hyper_var: dict[str, Array]
    log_hyper_var_se: dict[str, Array]
    latent_mean: Array  # (n, L)
    latent_mean_se: Array
    latent_cov: Array  # (n, L, L)
    latent_cov_se: Array
    inducing_mean: Array | None  # (L, m), FITC
    inducing_mean_se: Array | None
    inducing_cov: Array | None  # (L, m, m)
    test_latent_mean: Array  # (t, L)
    test_latent_mean_se: Array
    test_latent_cov: Array  # (t, L, L)
    test_latent_cov_se: Array
    probabilities: Array  # (t, C)
    probabilities_se: Array
    probability_mass: Array  # (t,) before normalising
    convergence: dict[str, Convergence]  # of log θ by field, "latent", "latent_square", "log_joint"
    latent_draws: Array  # (r, s, n, L) f for logit and softmax, h for constraints
    log_joint: Array  # (r, s) log p(y, v, log θ), v = f or h
    acceptance: float  # of the Hamiltonian moves after the warm-up
    step_size: Array  # (r, B) after the warm-up
    refused: dict[str, float]  # proposals per sweep without a density in float64, by move: 0 unless S is near singular
    movement: Array  # (r,) least share of kept draws in which an entry of θ or of the latent values is a new one
    settled: bool  # False: a chain stands still
    gate: bool  # >= 4 chains, all moving, nothing refused, >= 100 autocorrelation times, and Convergence.gate of all
    n_sweeps: int
    seconds: float
    sweeps_per_second: float


class _Given(NamedTuple):
    """Moments given θ and the auxiliary, (r, L, ...)."""

    latent_mean: Array
    latent_var: Array
    test_mean: Array
    test_var: Array
    inducing_mean: Array | None
    inducing_cov: Array | None


def conditional_moments(model: HyperModel, state: State) -> _Given:
    """Moments of f, f* and u given θ and v ~ N(0, S + extra): v and extra as the sufficient move has them.

    model: a HyperModel; state: at the end of a sweep. Means are K (S + extra)⁻¹ v for the covariances K with v.
    """
    hyper = state["hyper"]
    S, cross = covariance(model.design, hyper), cross_covariance(model.design, hyper)
    n = S.shape[-1]
    v, extra = model.grouped(state["latent"]), np.full((*hyper.shape[:2], n), model.auxiliary_noise)
    if model.likelihood == "logit":
        v, extra = (0.5 * model.y_sign / state["omega"])[:, None, None], 1.0 / state["omega"][:, None]
    chol = cholesky("K_XX with the noise of v", S + extra[..., None] * np.eye(n), REMEDY)
    half_v = solve_triangles(chol, np.swapaxes(v, -1, -2))  # (r, B, n, c)

    def moments(K: Array, prior: Array) -> tuple[Array, Array, Array]:
        whitened = solve_triangles(chol, np.swapaxes(K, -1, -2))  # (r, B, n, k)
        mean = np.matmul(np.swapaxes(half_v, -1, -2), whitened)  # (r, B, c, k)
        var = np.maximum(prior - np.square(whitened).sum(axis=-2), 0.0)
        return mean.reshape(mean.shape[0], model.n_latents, -1), model.per_latent(var), whitened

    if np.any(extra > 0.0):
        latent_mean, latent_var, _ = moments(S, np.einsum("rbii->rbi", S))
    else:  # f itself
        latent_mean, latent_var = state["latent"], np.zeros_like(state["latent"])
    test_mean, test_var, _ = moments(cross.K_TX, cross.k_tt)
    u_mean = u_cov = None
    if cross.K_ZX is not None:
        assert cross.K_ZZ is not None
        u_mean, _, whitened = moments(cross.K_ZX, np.einsum("rbii->rbi", cross.K_ZZ))
        u_cov = model.per_latent(cross.K_ZZ - np.matmul(np.swapaxes(whitened, -1, -2), whitened))
    return _Given(latent_mean, latent_var, test_mean, test_var, u_mean, u_cov)


def class_probabilities(model: HyperModel, state: State, latent_mean: Array, latent_var: Array) -> Array:
    """p(y* = c | θ, auxiliary) before normalising, (r, t, C), from independent Gaussians (r, L, t).

    model, state: see `conditional_moments`; latent_mean, latent_var: of f*. The softmax has no closed form: an unbiased
    average over the normals that the state holds.
    """
    if model.likelihood == "logit":
        p = logistic_normal_mean(latent_mean[:, 0], latent_var[:, 0])
        return np.stack([1.0 - p, p], axis=-1)
    if model.likelihood == "probit":
        ratio = latent_mean[:, 0] / np.sqrt(1.0 + latent_var[:, 0])
        return np.stack([ndtr(-ratio), ndtr(ratio)], axis=-1)
    if model.likelihood == "softmax":
        values = latent_mean[:, None] + np.sqrt(latent_var)[:, None] * state["normals"]  # (r, q, L, t)
        result: Array = np.swapaxes(softmax(values, axis=2).mean(axis=1), 1, 2)
        return result
    r, C, t = latent_mean.shape
    out = np.empty((r, t, C))
    for k in range(r):
        for i in range(t):
            out[k, i] = argmax_probability(latent_mean[k, :, i][None], model.auxiliary_noise + latent_var[k, :, i])[0]
    return (1.0 - model.epsilon) * out + model.epsilon / C


def log_joint(model: HyperModel, state: State) -> Array:
    """log p(y, v, log θ), (r,), v = f or h: model a HyperModel, state of a sweep."""
    values, noise = model.grouped(state["latent"]), model.auxiliary_noise
    total = model.log_hyperprior(model.log_hyper(state["hyper"])).value
    total = total + log_normal_density(model.design, state["hyper"], values, noise).value
    result: Array = total.sum(axis=1)
    if model.likelihood == "probit":
        return result
    none = np.zeros((values.shape[0], model.y.size))
    return result + model.log_likelihood(state["latent"], np.zeros((values.shape[0], model.n_latents)), none)


def make_model(
    likelihood: str, data: Data, prior: Prior, options: LearntOptions, *, epsilon: float = 0.0
) -> tuple[HyperModel, dict[str, Array]]:
    """Check everything and prepare a HyperModel, with the arrays that a run depends on.

    likelihood, data, prior, options, epsilon: see `sample`. Raises ValueError on bad input.
    """
    n_classes, shared = data.n_classes, prior.shared
    if not isinstance(likelihood, str) or likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(likelihood)}, expected one of {LIKELIHOODS}")
    _count("n_classes", n_classes, 2)
    if likelihood in BINARY and n_classes != 2:
        raise ValueError(f"n_classes: found {shown(n_classes)}, expected 2 for the likelihood {likelihood!r}")
    error = _scalar("epsilon", epsilon, positive=False)
    if error >= 1.0 or (error > 0.0 and likelihood != "threshold"):
        raise ValueError(f"epsilon: found {error:.6g}, expected [0, 1) for 'threshold' and 0 for other likelihoods")
    if shared is not True and shared is not False:
        raise ValueError(f"shared: found {shown(shared)}, expected True or False")
    if prior.smoothness is not None:
        raise ValueError(f"smoothness: found {shown(prior.smoothness)}, expected None, the squared exponential")
    hyperpriors = check_hyperprior(prior.hyperprior, options.learn, options.prior_on)
    n_latents = 1 if likelihood in BINARY else int(n_classes)
    setting = check(data, prior, n_latents)
    arrays = setting.arrays
    hyper = np.concatenate([arrays["variance"][:, None], arrays["lengthscales"], arrays["noise"][:, None]], axis=1)
    inducing = arrays.get("Z")
    if shared:
        parts = {"variance": hyper[:, :1], "lengthscales": hyper[:, 1:-1], "noise": hyper[:, -1:],
                 "jitter": arrays["jitter"], "Z": hyper if inducing is None else inducing}  # fmt: skip
        for name, part in parts.items():
            if not np.all(part == part[:1]):
                raise ValueError(f"{name}: found entries that differ between latents, expected equal ones (shared)")
    blocks = slice(0, 1) if shared else slice(None)
    design = make_design(
        arrays["X"], arrays["X_test"], None if inducing is None else inducing[blocks], arrays["jitter"][blocks]
    )
    d = arrays["X"].shape[1]
    where = {"variance": [0], "lengthscales": list(range(1, 1 + d)), "noise": [1 + d]}
    columns = tuple(column for name in hyperpriors for column in where[name])
    per_column = tuple(hyperprior for name, hyperprior in hyperpriors.items() for _ in where[name])
    model = HyperModel(
        likelihood,
        design,
        setting.y,
        int(n_classes),
        error,
        hyper[blocks],
        columns,
        per_column,
        options.n_warmup,
        options.n_steps,
    )
    return model, arrays


@takes_values
def sample(likelihood: str, data: Data, prior: Prior, options: LearntOptions, *, epsilon: float = 0.0) -> HyperChains:
    """Sample p(θ, f | y): kernel parameters and latent values together, for every likelihood, full GP and FITC.

    likelihood: logit, probit (binary, L = 1), softmax, multinomial-probit, threshold (L = n_classes). data, prior: see
    `gibbs.core.values`: parameters of the prior are held where not learnt, else the place around which chains start;
    its hyperprior has one density for each field of options.learn, the same for every latent and input.
    epsilon for the threshold.
    options: learn, fields out of variance, lengthscales, noise; prior_on: "field", or "root" for densities of variance
    and noise on their square roots; n_steps: leapfrog steps; their size is learnt in the warm-up. n_chains, n_draws
    >= 4, n_warmup, thin, seed, callback, checkpoint, checkpoint_every, max_kept_bytes: see `gibbs.chains.chain.run`.
    Dense algebra also for FITC: a sweep takes about n_steps + 5 p factorisations, O(r B n³) each, and a bounce per
    chain where there are constraints.

    A proposal at which a covariance has no Cholesky factor in float64 has a positive density all the same: the chain
    samples the posterior without that region, `refused` counts how often it was met, and the gate is then not passed.

    Raises ValueError on bad input; NotPositiveDefiniteError if a covariance fails at the parameters given.
    """
    plan, n_chains = Plan.of(options), options.n_chains
    model, arrays = make_model(likelihood, data, prior, options, epsilon=epsilon)
    rngs = spawn_generators(options.seed, PURPOSES)
    lengths = {name: getattr(options, name) for name in ("n_steps", "n_chains", "n_draws", "n_warmup", "thin", "seed")}
    settings = {
        "model": f"hyper {likelihood} {prior.prior_model}", "n_classes": model.n_classes, "epsilon": model.epsilon,
        "columns": model.columns, "laws": [list(one) for one in model.hyperpriors], "shared": prior.shared, **lengths,
    }  # fmt: skip

    def record(state: State) -> Record:
        given = conditional_moments(model, state)
        raw = class_probabilities(model, state, given.test_mean, given.test_var)
        mass = raw.sum(axis=-1)
        kept: State = {
            "hyper": state["hyper"],
            "latent": state["latent"],
            "log_joint": log_joint(model, state),
            "latent_mean": given.latent_mean,
            "latent_var": given.latent_var,
            "test_mean": given.test_mean,
            "test_var": given.test_var,
            "probability": raw / mass[..., None],
        }
        totals: State = {name: state[name] for name in ("acceptance", "refused_gradient", "refused_slice", "log_step")}
        totals["mass"] = mass
        if given.inducing_mean is not None:
            assert given.inducing_cov is not None
            kept["inducing_mean"] = given.inducing_mean
            totals["inducing_cov"] = given.inducing_cov
        return Record(kept, totals)

    finished = run(
        model.start(rngs["start"], n_chains, arrays["X_test"].shape[0]),
        model.step,
        record,
        rngs,
        plan,
        storage=Storage.of(options, settings, arrays),
        callback=options.callback,
    )
    return _summary(model, finished, tuple(name for name in FIELDS if name in options.learn), plan, n_chains)


class _Average(NamedTuple):
    mean: Array
    mean_se: Array
    cov: Array
    cov_se: Array


def _average(mean: Array, var: Array) -> _Average:
    """E and E[Var] + Var[E] per point over draws (r, s, L, n): (n, L), (n, L, L), with their errors."""
    means = np.moveaxis(mean, 2, 3)
    centred = means - means.mean(axis=(0, 1))
    L = means.shape[3]
    terms = centred[..., :, None] * centred[..., None, :]
    terms[..., np.arange(L), np.arange(L)] += np.moveaxis(var, 2, 3)
    # the error of the grand mean enters the covariance in second order only
    return _Average(means.mean(axis=(0, 1)), standard_error(means), terms.mean(axis=(0, 1)), standard_error(terms))


def _summary(model: HyperModel, finished: Run, names: tuple[str, ...], plan: Plan, n_chains: int) -> HyperChains:
    n_draws, thin = plan.n_draws, plan.thin
    kept, totals = finished.kept, finished.totals
    where: dict[str, Any] = {"variance": 0, "lengthscales": slice(1, -1), "noise": -1}
    fields = {name: kept["hyper"][..., where[name]] for name in names}
    L, B = model.n_latents, model.hyper.shape[0]

    def each_latent(array: Array) -> Array:
        return np.repeat(array, L // B, axis=0)

    logs = {name: np.log(draws) for name, draws in fields.items()}
    squares = {name: np.square(draws - draws.mean(axis=(0, 1))) for name, draws in logs.items()}
    columns = {**logs, "latent": kept["latent"], "latent_square": np.square(kept["latent"])}
    columns["log_joint"] = kept["log_joint"]
    trust = {name: convergence(values, thin) for name, values in columns.items()}
    latent = _average(kept["latent_mean"], kept["latent_var"])
    test = _average(kept["test_mean"], kept["test_var"])
    inducing_mean = inducing_se = inducing_cov = None
    if "inducing_mean" in kept:
        u = kept["inducing_mean"]
        inducing_mean, inducing_se = u.mean(axis=(0, 1)), standard_error(u)
        centred = (u - inducing_mean).reshape(-1, *u.shape[2:])
        within = totals["inducing_cov"].mean(axis=0) / n_draws
        inducing_cov = within + np.einsum("slm,slp->lmp", centred, centred) / centred.shape[0]
    learnt = kept["hyper"][..., list(model.columns)]
    movement = np.minimum(chain_movement(learnt), chain_movement(kept["latent"]))
    refused = {
        "gradient": float(totals["refused_gradient"].mean() / n_draws),
        "slice": float(totals["refused_slice"].mean() / n_draws),
    }
    settled = bool(movement.min() > 0.0)
    trusted = long_enough(trust, n_draws * thin) and all(q.gate() for q in trust.values())
    return HyperChains(
        hyper_draws=fields,
        hyper_mean={name: each_latent(draws.mean(axis=(0, 1))) for name, draws in fields.items()},
        hyper_mean_se={name: each_latent(standard_error(draws)) for name, draws in fields.items()},
        log_hyper_mean={name: each_latent(draws.mean(axis=(0, 1))) for name, draws in logs.items()},
        log_hyper_mean_se={name: each_latent(standard_error(draws)) for name, draws in logs.items()},
        log_hyper_var={name: each_latent(draws.mean(axis=(0, 1))) for name, draws in squares.items()},
        log_hyper_var_se={name: each_latent(standard_error(draws)) for name, draws in squares.items()},
        latent_mean=latent.mean,
        latent_mean_se=latent.mean_se,
        latent_cov=latent.cov,
        latent_cov_se=latent.cov_se,
        inducing_mean=inducing_mean,
        inducing_mean_se=inducing_se,
        inducing_cov=inducing_cov,
        test_latent_mean=test.mean,
        test_latent_mean_se=test.mean_se,
        test_latent_cov=test.cov,
        test_latent_cov_se=test.cov_se,
        probabilities=kept["probability"].mean(axis=(0, 1)),
        probabilities_se=standard_error(kept["probability"]),
        probability_mass=totals["mass"].mean(axis=0) / n_draws,
        convergence=trust,
        latent_draws=np.moveaxis(kept["latent"], 2, 3),
        log_joint=kept["log_joint"],
        acceptance=float(totals["acceptance"].mean() / n_draws),
        step_size=np.exp(totals["log_step"] / n_draws),
        refused=refused,
        movement=movement,
        settled=settled,
        gate=n_chains >= 4 and settled and not any(refused.values()) and trusted,
        n_sweeps=finished.n_sweeps,
        seconds=finished.seconds,
        sweeps_per_second=finished.n_sweeps / max(finished.seconds, 1e-9),
    )
