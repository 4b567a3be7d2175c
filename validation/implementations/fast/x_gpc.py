"""x-gpc of `fast`; with learn, hyper-parameters at the maximum of the fitted bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fast.methods import x_gpc
from validation import arguments
from validation.implementations.common import (
    binary_gradients,
    finite_or_none,
    refuse,
    refuse_callback,
    refuse_learning,
    refuse_switches,
    require_binary_logit,
)
from validation.implementations.fast.svgpc import learned, parameters
from validation.problem import Problem
from validation.solution import Solution


def _x_gpc(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    gradients: bool = True,
    block_size: int = 4096,
    accelerate: bool = True,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    learning_iterations: int = 200,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_logit(problem, "fast x-gpc")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, accelerate=accelerate)
    refuse_callback(callback)
    arguments.integer(block_size, "block_size", at_least=1)
    refuse_learning(learn, optimizer, stochastic=False)
    search: Any = None
    settings: dict[str, Any] = {"tolerance": tolerance, "block_size": block_size, "accelerate": accelerate}
    limits: dict[str, Any] = {"tolerance": tolerance, "max_iterations": max_iterations, "block_size": block_size}
    if learn:
        posterior, search = x_gpc.fit_learning(
            *parameters(problem), learn=learn, learning_iterations=learning_iterations, **limits
        )
        problem = learned(problem, search.hyper, search.Z)
        settings |= {"learning": search.reason, "evaluations": search.n_evaluations}
    else:
        posterior = x_gpc.fit(*parameters(problem), accelerate=accelerate, callback=callback, **limits)
    predictions: dict[str, Any] = {}
    if problem.X_test is not None:
        found = x_gpc.predict(posterior, problem.X_test, block_size=block_size)
        predictions = {
            "test_latent_mean": found.latent_mean[:, None],
            "test_latent_cov": found.latent_var[:, None, None],
            "probabilities": found.probabilities,
            "probability_mass": found.probability_mass,
        }
        settings["quadrature_error"] = found.quadrature_error
    return Solution(
        problem=problem,
        implementation="fast",
        method="x-gpc",
        log_evidence=posterior.elbo,
        log_evidence_kind="lower bound",
        latent_mean=posterior.latent_mean[:, None],
        latent_cov=posterior.latent_var[:, None, None],
        inducing_mean=posterior.inducing_mean[None],
        inducing_cov=posterior.inducing_cov[None],
        gradients=binary_gradients(x_gpc.gradients(posterior)) if gradients else None,
        local={"c": np.abs(posterior.c)},
        trace=search.trace if search else posterior.trace,
        residual=finite_or_none(posterior.residual),
        converged=posterior.converged and (search is None or search.converged),
        iterations=len(search.trace) if search else posterior.iterations,
        settings=settings,
        **predictions,
    )


TABLE = {"x-gpc": _x_gpc}
