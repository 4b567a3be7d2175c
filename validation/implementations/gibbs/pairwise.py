"""The pairwise model of villacampa2017 (7): the truth that EP with pairwise factors approximates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gibbs.core.options import HELD, PairwiseOptions
from gibbs.evidence import pairwise as bridge
from gibbs.evidence import sequential
from gibbs.evidence.result import LogEvidence
from gibbs.models import pairwise
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.gibbs.asked import by_keywords, moments_of, values
from validation.implementations.gibbs.diagnosis import diagnosed
from validation.implementations.gibbs.multilatent import best_route


@by_keywords(HELD["gibbs-pairwise"])
def _gibbs_pairwise(problem: Problem, options: Any) -> Solution:
    who = "gibbs gibbs-pairwise"
    if problem.likelihood != "threshold":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'threshold' for {who}")
    if problem.epsilon != 0.0:
        raise ValueError(f"epsilon: found {problem.epsilon:.6g}, expected 0 for {who}: (7) has no labelling errors")
    seed, target_error = options.seed, options.target_error
    data, prior = values(problem)
    lengths = {name: getattr(options, name) for name in ("n_chains", "n_draws", "n_warmup", "thin")}
    chains = pairwise.sample(data, prior, PairwiseOptions.of(vars(options)))
    routes: dict[str, LogEvidence] = {}
    if options.evidence != "none":
        first, second = (np.random.default_rng(child) for child in np.random.SeedSequence([seed, 1]).spawn(2))
        model = pairwise.prepare(data, prior)
        if options.by_draws:
            draws = chains.white_draws
            routes["bridge"] = bridge.log_evidence(second, model.loadings, draws, target_error=target_error)
        if options.by_particles:
            G = pairwise.moments_of_margins(model)
            routes["sequential"] = sequential.log_evidence_margins(
                first, G, problem.n_classes, options=replace(sequential.DEFAULTS, target_error=target_error)
            )
    best = best_route(routes)
    diagnosis = diagnosed(chains, chains.convergence, options.n_chains)
    return Solution(
        problem=problem,
        implementation="gibbs",
        method="gibbs-pairwise",
        log_evidence=None if best is None else best.value,
        log_evidence_se=None if best is None else best.standard_error,
        log_evidence_kind="sampled",
        evidence_target="pairwise model" if problem.n_classes > 2 else "log p(y)",  # one factor a datum: (7) is exact
        ess=diagnosis.ess,
        r_hat=diagnosis.r_hat,
        converged=diagnosis.converged,
        local={
            **{f"log_evidence_{name}": np.array([q.value, q.standard_error]) for name, q in routes.items()},
            "log_joint": chains.log_joint,
        },
        trace=chains.log_joint[0],
        iterations=chains.n_sweeps,
        settings={
            **lengths,
            "seed": seed,
            "acceptance": chains.acceptance,
            "quadrature_error": chains.quadrature_error,
            "sampling_seconds": chains.seconds,
            "sweeps_per_second": chains.sweeps_per_second,
            **diagnosis.settings,
            **{f"trusted_{name}": bool(q.trusted) for name, q in routes.items()},
        },
        **moments_of(chains, problem),
    )


TABLE = {"gibbs-pairwise": _gibbs_pairwise}
