"""x-gpc of `reference`; with learn, hyper-parameters at the maximum of the fitted bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reference.wenzel2019 import fit as wenzel2019
from validation.implementations.common import (
    binary_gradients,
    finite_or_none,
    refuse,
    refuse_callback,
    refuse_learning,
    refuse_switches,
    require_binary_logit,
    two_columns,
)
from validation.implementations.reference.x_gpc_svi import learned_x_gpc
from validation.problem import Problem
from validation.solution import Solution

# of the bound where the ascent ended, in the order of `Slopes`; the natural gradient is that in eta_1 and eta_2
DERIVATIVES = (
    "derivative_c",
    "second_derivative_c",
    "derivative_inducing_mean",
    "derivative_inducing_cov",
    "natural_gradient_1",
    "natural_gradient_2",
)


def _x_gpc(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    gradients: bool = True,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    learning_iterations: int = 200,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_logit(problem, "reference x-gpc")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients)
    refuse_callback(callback)
    refuse_learning(learn, optimizer, stochastic=False)
    if learn:
        return learned_x_gpc(
            problem,
            learn=learn,
            tolerance=tolerance,
            learning_iterations=learning_iterations,
            gradients=gradients,
        )
    Z = None if problem.Z is None else problem.Z[0]
    prior = (problem.variance[0], problem.lengthscales[0], problem.noise[0], problem.jitter[0])
    fit = wenzel2019.fit_xgpc(
        problem.X, problem.y_sign, *prior, Z=Z, tolerance=tolerance, max_iterations=max_iterations, callback=callback
    )
    predictions: dict[str, Any] = {}
    if problem.X_test is not None:
        prediction = wenzel2019.predict_xgpc(fit, problem.X, problem.X_test, *prior, Z=Z)
        predictions = {
            "test_latent_mean": prediction.latent_mean[:, None],
            "test_latent_cov": prediction.latent_var[:, None, None],
            "probabilities": two_columns(prediction.probability),
            "probability_mass": prediction.probability_mass,
        }
    return Solution(
        problem=problem,
        implementation="reference",
        method="x-gpc",
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        latent_mean=fit.latent_mean[:, None],
        latent_cov=fit.latent_var[:, None, None],
        inducing_mean=fit.inducing_mean[None],
        inducing_cov=fit.inducing_cov[None],
        gradients=binary_gradients(wenzel2019.bound_gradients(fit, problem.X, problem.y_sign, *prior, Z=Z))
        if gradients
        else None,
        local={"c": np.abs(fit.c)} | dict(zip(DERIVATIVES, fit.slopes, strict=True)),
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        iterations=fit.iterations,
        settings={"tolerance": tolerance} | ({"reason": fit.reason} if fit.reason else {}),
        **predictions,
    )


TABLE = {"x-gpc": _x_gpc}
