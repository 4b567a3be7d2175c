"""Exact draws and log Z of the probit family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gibbs.models import exact_probit
from validation import arguments
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution


def _exact_probit(
    problem: Problem,
    *,
    seed: int = 0,
    n_draws: int = 4000,
    target_error: float = 0.01,
    max_proposals: int = 20_000_000,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    who = "gibbs exact-probit"
    if problem.likelihood not in exact_probit.LIKELIHOODS:
        raise ValueError(
            f"likelihood: found {shown(problem.likelihood)}, expected one of {exact_probit.LIKELIHOODS} for {who}"
        )
    if problem.epsilon:
        raise ValueError(f"epsilon: found {problem.epsilon:.6g}, expected 0 for {who}")
    arguments.integer(seed, "seed", at_least=0)
    arguments.integer(n_draws, "n_draws", at_least=4)
    result = exact_probit.sample_exact(
        problem.likelihood,
        problem.X,
        problem.y,
        problem.n_classes,
        problem.variance,
        problem.lengthscales,
        problem.noise,
        problem.jitter,
        problem.Z,
        problem.prior_model,
        problem.X_test,
        n_draws=n_draws,
        seed=seed,
        target_error=target_error,
        max_proposals=max_proposals,
        callback=callback,
        smoothness=problem.smoothness,
    )
    names = ["latent_mean", "latent_cov"]
    if result.inducing_mean is not None:
        names += ["inducing_mean", "inducing_cov"]
    if problem.X_test is not None:
        names += ["test_latent_mean", "test_latent_cov", "probabilities"]
    fields: dict[str, Any] = {key: getattr(result, key) for name in names for key in (name, f"{name}_se")}
    if problem.X_test is not None:
        fields["probability_mass"] = result.probability_mass
    return Solution(
        problem=problem,
        implementation="gibbs",
        method="exact-probit",
        log_evidence=result.log_evidence,
        log_evidence_se=result.log_evidence_se,
        log_evidence_kind="sampled",
        ess=float(result.n_draws),  # independent draws
        iterations=result.n_proposals,
        settings={
            "seed": seed,
            "n_draws": n_draws,
            "target_error": target_error,
            "max_proposals": max_proposals,
            "acceptance": result.acceptance,
            "dimension": result.dimension,
            "log_evidence_bound": result.log_evidence_bound,
            "quadrature_error": result.quadrature_error,
        },
        **fields,
    )


TABLE = {"exact-probit": _exact_probit}
