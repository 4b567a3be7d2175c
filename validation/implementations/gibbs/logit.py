"""Binary logit: Pólya-Gamma chains with three routes to log Z, and an ensemble sampler."""

from __future__ import annotations

from typing import Any

import numpy as np

from gibbs.core.options import HELD
from gibbs.evidence import annealed, bridge, chib
from gibbs.evidence.result import LogEvidence, Workers
from gibbs.models import sampling
from gibbs.models.ensemble import sample_ensemble
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import two_columns
from validation.implementations.gibbs.asked import by_keywords, one_latent
from validation.implementations.gibbs.diagnosis import diagnosed
from validation.implementations.gibbs.hyper import learning
from validation.implementations.gibbs.multilatent import best_route, run_settings


def _require_logit(problem: Problem, who: str) -> None:
    """Refuse another likelihood; both kernels are sampled."""
    if problem.likelihood != "logit":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'logit' for {who}")


@by_keywords(HELD["gibbs-logit"])
def _gibbs_logit(problem: Problem, options: Any) -> Solution:
    _require_logit(problem, "gibbs gibbs-logit")
    chains = sampling.sample(*one_latent(problem), options)
    routes = _log_evidence(problem, chains, options)
    best = best_route(routes)
    diagnosis = diagnosed(chains, chains.convergence, options.n_chains)
    inducing: dict[str, Any] = {}
    if chains.inducing_mean is not None:
        names = ("inducing_mean", "inducing_mean_se", "inducing_cov", "inducing_cov_se")
        inducing = {name: getattr(chains, name)[None] for name in names}
    predictions: dict[str, Any] = {}
    if problem.X_test is not None:
        predictions = {
            "test_latent_mean": chains.test_latent_mean[:, None],
            "test_latent_mean_se": chains.test_latent_mean_se[:, None],
            "test_latent_cov": chains.test_latent_var[:, None, None],
            "test_latent_cov_se": chains.test_latent_var_se[:, None, None],
            "probabilities": two_columns(chains.probabilities),
            "probabilities_se": np.stack([chains.probabilities_se] * 2, axis=1),
            "probability_mass": np.ones(problem.t),
        }
    return Solution(
        problem=problem,
        implementation="gibbs",
        method="gibbs-logit",
        log_evidence=None if best is None else best.value,
        log_evidence_se=None if best is None else best.standard_error,
        log_evidence_kind="sampled",
        latent_mean=chains.latent_mean[:, None],
        latent_mean_se=chains.latent_mean_se[:, None],
        latent_cov=chains.latent_var[:, None, None],
        latent_cov_se=chains.latent_var_se[:, None, None],
        ess=diagnosis.ess,
        r_hat=diagnosis.r_hat,
        converged=diagnosis.converged,
        local={
            **{f"log_evidence_{name}": np.array([r.value, r.standard_error]) for name, r in routes.items()},
            "log_joint": chains.log_joint,
        },
        trace=chains.log_joint[0],
        iterations=chains.n_sweeps,
        settings={
            "n_chains": options.n_chains,
            "thin": options.thin,
            "moves": list(options.moves),
            "seed": options.seed,
            **run_settings(chains),
            **diagnosis.settings,
            **{f"trusted_{name}": bool(r.trusted) for name, r in routes.items()},
        },
        **inducing,
        **predictions,
    )


def _log_evidence(problem: Problem, chains: sampling.LogitChains, options: Any) -> dict[str, LogEvidence]:
    """log Z by each route asked for, "chains": the bridge and Chib's method from the draws; "particles"; "all".

    Each takes arrays and a generator of its own, so that they share no code; particles never see the draws.
    """
    if options.evidence == "none":
        return {}
    matrices = _matrices(problem)
    results: dict[str, LogEvidence] = {}
    if options.by_draws:
        results |= _of_draws(matrices, chains, options.seed)
    if options.by_particles:
        results |= _annealed(matrices, options.seed, options.target_error)
    return results


def _of_draws(matrices: tuple[Any, ...], chains: sampling.LogitChains, seed: int) -> dict[str, LogEvidence]:
    """By the bridge and by Chib's method; matrices of `_matrices`, four for FITC."""
    second = np.random.default_rng(np.random.SeedSequence([seed, 1]).spawn(2)[1])
    results: dict[str, LogEvidence] = {}
    if len(matrices) == 4:
        assert chains.inducing_draws is not None
        K_ZZ, K_XZ, k_xx, y_sign = matrices
        results["bridge"] = bridge.log_evidence_fitc(second, K_ZZ, K_XZ, k_xx, y_sign, chains.inducing_draws)
        results["chib"] = chib.log_evidence_fitc(K_ZZ, K_XZ, k_xx, y_sign, chains.omega_draws)
    else:
        K_XX, y_sign = matrices
        results["bridge"] = bridge.log_evidence_full(second, K_XX, y_sign, chains.latent_draws)
        results["chib"] = chib.log_evidence_full(K_XX, y_sign, chains.omega_draws)
    return results


def _matrices(problem: Problem) -> tuple[Any, ...]:
    """What an estimator of log Z is given: K_XX and the labels, or for FITC K_ZZ, K_XZ, k_xx and the labels."""
    data, prior = one_latent(problem)
    if problem.prior_model != "fitc":
        return sampling.full_covariance(data, prior), problem.y_sign
    white = sampling.fitc_white(data, prior)
    K_ZZ, K_XZ = white.factor @ white.factor.T, white.white_rows @ white.factor.T
    return K_ZZ, K_XZ, np.full(problem.n, prior.variance + prior.noise), problem.y_sign


def particles(
    problem: Problem, seed: int, target_error: float, workers: Workers | None = None
) -> dict[str, LogEvidence]:
    """log Z by annealed particles, under the name of the route; workers: how islands are worked."""
    return _annealed(_matrices(problem), seed, target_error, workers)


def _annealed(
    matrices: tuple[Any, ...], seed: int, target_error: float, workers: Workers | None = None
) -> dict[str, LogEvidence]:
    first = np.random.default_rng(np.random.SeedSequence([seed, 1]).spawn(2)[0])
    choose: Any = annealed.choose_schedule if len(matrices) == 2 else annealed.choose_schedule_fitc
    plan = choose(first, *matrices)
    return {"annealed": annealed.estimate(first, plan, workers, annealed.Particles(target_error=target_error))}


@by_keywords(HELD["ensemble-logit"])
def _ensemble_logit(problem: Problem, options: Any) -> Solution:
    _require_logit(problem, "gibbs ensemble-logit")
    data, prior = one_latent(problem)
    if problem.prior_model == "fitc":
        white = sampling.fitc_white(data, prior)
        K_XX = white.white_rows @ white.white_rows.T + np.diag(white.cond_var)
    else:
        K_XX = sampling.full_covariance(data, prior)
    lengths = {name: getattr(options, name) for name in ("n_walkers", "n_draws", "n_warmup")}
    result = sample_ensemble(np.random.default_rng(options.seed), K_XX, problem.y_sign, **lengths)
    return Solution(
        problem=problem,
        implementation="gibbs",
        method="ensemble-logit",
        log_evidence_kind="sampled",
        latent_mean=result.latent_mean[:, None],
        latent_mean_se=result.latent_mean_se[:, None],
        latent_cov=result.latent_var[:, None, None],
        latent_cov_se=result.latent_var_se[:, None, None],
        iterations=options.n_draws + options.n_warmup,
        settings={
            "n_walkers": options.n_walkers,
            "n_draws": options.n_draws,
            "seed": options.seed,
            "acceptance": result.acceptance,
        },
    )


TABLE = {"gibbs-logit": learning("gibbs-logit", _gibbs_logit), "ensemble-logit": _ensemble_logit}
