"""laplace-binary of `reference`; with learn, hyper-parameters at the maximum of log Z."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reference.common._learning import Hyper
from reference.common.laplace_binary import (
    LaplaceFit,
    fit_laplace_binary,
    laplace_binary_gradients,
    laplace_derivatives,
    learn_laplace_binary,
    predict_laplace_binary,
)
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.implementations.reference.x_gpc_svi import as_gradients, as_learned, names, prior_of
from validation.implementations.witness import refuse_problem
from validation.problem import Problem
from validation.solution import Solution

METHOD = "laplace-binary"


def _predictions(problem: Problem, fit: LaplaceFit) -> dict[str, Any]:
    if problem.X_test is None:
        return {}
    there = predict_laplace_binary(fit, problem.X, problem.y_sign, problem.X_test, problem.likelihood)
    return {
        "test_latent_mean": there.latent_mean[:, None],
        "test_latent_cov": there.latent_var[:, None, None],
        "probabilities": there.probabilities,
        "probability_mass": there.probability_mass,
    }


def _laplace_binary(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 100,
    gradients: bool = True,
    learn: Sequence[str] = (),
    learning_iterations: int = 200,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    refuse_problem(problem, METHOD, f"reference {METHOD}")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients)
    refuse_callback(callback)
    data = problem.X, problem.y_sign, Hyper(*prior_of(problem)), problem.likelihood
    way: dict[str, Any]
    if learn:
        end = learn_laplace_binary(*data, learn=learn, tolerance=tolerance, max_iterations=learning_iterations)
        fit, converged = end.fit, end.converged and end.fit.converged
        way = {"trace": end.trace, "residual": finite_or_none(end.residual), "iterations": end.iterations}
    else:
        fit = fit_laplace_binary(*data, tolerance=tolerance, max_iterations=max_iterations, callback=callback)
        converged = fit.converged
        way = {"trace": fit.trace, "residual": finite_or_none(fit.residual), "iterations": fit.iterations}
    labels = problem.y_sign, problem.likelihood
    return Solution(
        problem=as_learned(problem, fit.hyper, names(learn)),
        implementation="reference",
        method=METHOD,
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        latent_mean=fit.latent_mean[:, None],
        latent_cov=np.diagonal(fit.latent_cov)[:, None, None].copy(),
        inducing_mean=fit.latent_mean[None],
        inducing_cov=fit.latent_cov[None],
        gradients=as_gradients(laplace_binary_gradients(fit, problem.X, *labels)) if gradients else None,
        local={"site_precision": -laplace_derivatives(fit.latent_mean, *labels).second},
        converged=converged,
        settings={"tolerance": tolerance},
        **way,
        **_predictions(problem, fit),
    )


TABLE = {METHOD: _laplace_binary}
