"""svgpc of `fast`: batch to the fixed point, or mini-batches where batches, batch_size or n_steps are given."""

from __future__ import annotations

from typing import Any

from fast.core.options import Gradients, Optimizer
from fast.methods import svgpc, svgpc_svi
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.common import refuse_learning
from validation.implementations.fast.one_latent import on_batches, to_fixed_point
from validation.implementations.witness import Adapter


def _svgpc(problem: Problem, options: Any) -> Solution:
    refuse_learning(options.learn, options.optimizer, options.stochastic)
    if options.stochastic:
        return on_batches(
            problem, options, method="svgpc", module=svgpc_svi,
            settings=lambda _: {"block_size": options.block_size, "rate": repr(options.rate), "seed": options.seed},
            local=lambda run, _: {"rates": run.rates}, block_size=options.block_size, evidence_prior_model="full",
        )  # fmt: skip
    return to_fixed_point(
        problem,
        options,
        method="svgpc",
        module=svgpc,
        log_evidence=lambda posterior: posterior.elbo,
        log_evidence_kind="lower bound",
        evidence_prior_model="full",
        local=lambda posterior: {"site_precision": posterior.site_precision, "site_shift": posterior.site_shift},
    )


TABLE = {"svgpc": Adapter(svgpc.SVGPCLearning.joined(svgpc_svi.SVGPCSteps, Optimizer, Gradients), _svgpc)}
