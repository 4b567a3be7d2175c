"""x-gpc of `fast`; with learn, hyper-parameters at the maximum of the fitted bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from fast.core.options import Gradients, Optimizer
from fast.methods import x_gpc
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.common import refuse_learning
from validation.implementations.fast.one_latent import to_fixed_point
from validation.implementations.witness import Adapter


def _x_gpc(problem: Problem, options: Any) -> Solution:
    refuse_learning(options.learn, options.optimizer, stochastic=False)
    return to_fixed_point(
        problem,
        options,
        method="x-gpc",
        module=x_gpc,
        log_evidence=lambda posterior: posterior.elbo,
        log_evidence_kind="lower bound",
        local=lambda posterior: {"c": np.abs(posterior.c)},
    )


TABLE = {"x-gpc": Adapter(x_gpc.XGPCLearning.joined(Optimizer, Gradients), _x_gpc)}
