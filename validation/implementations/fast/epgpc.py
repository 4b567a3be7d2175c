"""epgpc of `fast`: parallel EP to the fixed point, or mini-batches where batches, batch_size or n_steps are given."""

from __future__ import annotations

from typing import Any

from fast.core.options import Gradients, Optimizer
from fast.methods import epgpc, epgpc_svi
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.common import finite_or_none, refuse_learning
from validation.implementations.fast.one_latent import given, learned, moments, predictions, to_fixed_point
from validation.implementations.witness import Adapter


def _fields(posterior: Any) -> dict[str, Any]:
    return {
        "log_evidence": posterior.log_evidence,
        "evidence_prior_model": "fitc" if hasattr(posterior.prior, "Z") else "full",
        "local": {"site_precision": posterior.site_precision, "site_shift": posterior.site_shift},
        "n_improper": posterior.n_improper,
    }


def _epgpc(problem: Problem, options: Any) -> Solution:
    refuse_learning(options.learn, options.optimizer, options.stochastic)
    settings = {"block_size": options.block_size, "damping": options.damping}
    if not options.stochastic:
        return to_fixed_point(
            problem, options, method="epgpc", module=epgpc, own=_fields, settings=settings, log_evidence_kind="estimate"
        )
    run = epgpc_svi.fit(*given(problem), options)
    posterior, problem = run.posterior, learned(problem, run.hyper, run.Z)
    settings |= {"reason": run.reason, "diverged": run.diverged, "seed": options.seed}
    settings["rebuild_every"] = options.rebuild_every
    return Solution(
        problem=problem,
        implementation="fast",
        method="epgpc",
        log_evidence_kind="estimate",
        trace=posterior.trace,
        residual=finite_or_none(posterior.residual),
        converged=posterior.converged,
        iterations=run.iterations,
        settings=settings,
        **_fields(posterior),
        **moments(posterior),
        **predictions(epgpc, posterior, problem, block_size=options.block_size),
    )


TABLE = {"epgpc": Adapter(epgpc.EPGPCLearning.joined(epgpc_svi.EPGPCSteps, Optimizer, Gradients), _epgpc)}
