"""Exact draws and log Z of the probit family."""

from __future__ import annotations

from typing import Any

from gibbs.core.options import ExactOptions
from gibbs.models import exact_probit
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.gibbs.asked import by_keywords, moments_of, values


@by_keywords(ExactOptions)
def _exact_probit(problem: Problem, options: Any) -> Solution:
    who = "gibbs exact-probit"
    if problem.likelihood not in exact_probit.LIKELIHOODS:
        raise ValueError(
            f"likelihood: found {shown(problem.likelihood)}, expected one of {exact_probit.LIKELIHOODS} for {who}"
        )
    if problem.epsilon:
        raise ValueError(f"epsilon: found {problem.epsilon:.6g}, expected 0 for {who}")
    arguments.integer(options.n_draws, "n_draws", at_least=4)
    result = exact_probit.sample_exact(problem.likelihood, *values(problem), options)
    asked = {name: getattr(options, name) for name in ("seed", "n_draws", "target_error", "max_proposals")}
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
            **asked,
            "acceptance": result.acceptance,
            "dimension": result.dimension,
            "log_evidence_bound": result.log_evidence_bound,
            "quadrature_error": result.quadrature_error,
        },
        **moments_of(result, problem),
    )


TABLE = {"exact-probit": _exact_probit}
