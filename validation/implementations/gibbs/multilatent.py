"""Chains with one latent function per class, for probit and threshold likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gibbs import multinomial_probit, threshold
from gibbs.multilatent import MultiLatentChains
from validation import arguments
from validation.problem import Problem
from validation.solution import Solution


def _gibbs_probit(
    problem: Problem,
    *,
    seed: int = 0,
    n_chains: int = 32,
    n_draws: int = 1000,
    n_warmup: int = 50,
    thin: int = 1,
    moves: Sequence[str] = ("bounce",),
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    lengths = {"n_chains": n_chains, "n_draws": n_draws, "n_warmup": n_warmup, "thin": thin}
    inputs = _multilatent_inputs(problem, multinomial_probit.LIKELIHOODS, "gibbs gibbs-probit", seed)
    run: dict[str, Any] = {**lengths, "seed": seed, "moves": tuple(moves), "callback": callback}
    chains = multinomial_probit.sample(**inputs, likelihood=problem.likelihood, **run)
    return _multilatent_solution(problem, "gibbs-probit", chains, {**lengths, "seed": seed, "moves": list(moves)})


def _gibbs_threshold(
    problem: Problem,
    *,
    seed: int = 0,
    n_chains: int = 32,
    n_draws: int = 1000,
    n_warmup: int = 50,
    thin: int = 1,
    moves: Sequence[str] = ("bounce",),
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    lengths = {"n_chains": n_chains, "n_draws": n_draws, "n_warmup": n_warmup, "thin": thin}
    inputs = _multilatent_inputs(problem, ("threshold",), "gibbs gibbs-threshold", seed)
    run: dict[str, Any] = {**lengths, "seed": seed, "moves": tuple(moves), "callback": callback}
    chains = threshold.sample(**inputs, epsilon=problem.epsilon, **run)
    return _multilatent_solution(problem, "gibbs-threshold", chains, {**lengths, "seed": seed, "moves": list(moves)})


def _multilatent_inputs(problem: Problem, likelihoods: tuple[str, ...], who: str, seed: Any) -> dict[str, Any]:
    """Refuse what the method cannot answer; the arguments that all samplers with several latents share."""
    if problem.likelihood not in likelihoods:
        raise ValueError(f"likelihood: found {problem.likelihood!r}, expected one of {likelihoods} for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {problem.kernel!r}, expected 'se' for {who}")
    arguments.integer(seed, "seed", at_least=0)
    names = ("X", "y", "n_classes", "variance", "lengthscales", "noise", "jitter", "Z", "prior_model", "X_test")
    return {name: getattr(problem, name) for name in names}


def _multilatent_solution(
    problem: Problem, method: str, chains: MultiLatentChains, settings: dict[str, Any]
) -> Solution:
    names = ["latent_mean", "latent_cov"]
    if chains.inducing_mean is not None:
        names += ["inducing_mean", "inducing_cov"]
    predictions: dict[str, Any] = {}
    if problem.X_test is not None:
        names += ["test_latent_mean", "test_latent_cov", "probabilities"]
        predictions["probability_mass"] = chains.probability_mass
    moments = {key: getattr(chains, key) for name in names for key in (name, f"{name}_se")}
    # an entry that never changes has no effective size: left out here, it shows in `settled`
    ess = {
        name: float(min(np.nanmin(found.ess_bulk), np.nanmin(found.ess_tail)))
        for name, found in chains.convergence.items()
        if np.any(np.isfinite(found.ess_bulk))
    }
    r_hat = [float(np.nanmax(found.r_hat)) for name, found in chains.convergence.items() if name in ess]
    local = {"log_joint": chains.log_joint}
    if chains.error_probability is not None and chains.error_probability_se is not None:
        local["error_probability"] = chains.error_probability
        local["error_probability_se"] = chains.error_probability_se
    return Solution(
        problem=problem,
        implementation="gibbs",
        method=method,
        log_evidence_kind="sampled",
        ess=min(ess.values(), default=None),
        r_hat=max(r_hat, default=None),
        converged=chains.settled,
        local=local,
        trace=chains.log_joint[0],
        iterations=chains.n_sweeps,
        settings={
            **settings,
            "gate": bool(chains.gate),
            "settled": bool(chains.settled),
            "movement": float(chains.movement.min()),
            "events_per_sweep": chains.events_per_sweep,
            "quadrature_error": chains.quadrature_error,
            "sampling_seconds": chains.seconds,
            "sweeps_per_second": chains.sweeps_per_second,
            **{f"ess_{name}": value for name, value in ess.items()},
        },
        **moments,
        **predictions,
    )


TABLE = {"gibbs-probit": _gibbs_probit, "gibbs-threshold": _gibbs_threshold}
