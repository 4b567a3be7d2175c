"""laplace-binary of `fast`; with learn, hyper-parameters at the maximum of log Z."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fast.core.options import Gradients
from fast.methods import laplace_binary
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.fast.one_latent import to_fixed_point
from validation.implementations.witness import Adapter


def _laplace_binary(problem: Problem, options: Any) -> Solution:
    return to_fixed_point(
        problem,
        replace(options, likelihood=problem.likelihood),
        method="laplace-binary",
        module=laplace_binary,
        log_evidence=lambda posterior: posterior.log_evidence,
        log_evidence_kind="estimate",
        local=lambda posterior: {"site_precision": posterior.site_precision},
    )


TABLE = {"laplace-binary": Adapter(laplace_binary.LaplaceBinaryLearning.joined(Gradients), _laplace_binary)}
