"""x-gpc-svi of `fast`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fast.methods import x_gpc_svi
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.fast.one_latent import on_batches
from validation.implementations.witness import Adapter


def _x_gpc_svi(problem: Problem, options: x_gpc_svi.XGPCSteps) -> Solution:
    def settings(run: Any) -> dict[str, Any]:
        drawn = {} if options.batches is not None else {"batch_size": options.batch_size, "seed": options.seed}
        return {
            "rate": options.rate,
            "learn": tuple(options.learn),
            "learning_rate": options.learning_rate,
            "last_rate": float(run.rates[-1]) if run.rates.size else None,
        } | drawn

    return on_batches(
        problem, options, method="x-gpc-svi", module=x_gpc_svi, settings=settings,
        local=lambda run, train: {"c": np.hypot(train.latent_mean, np.sqrt(train.latent_var)), "rates": run.rates},
    )  # fmt: skip


TABLE = {"x-gpc-svi": Adapter(x_gpc_svi.XGPCSteps, _x_gpc_svi)}
