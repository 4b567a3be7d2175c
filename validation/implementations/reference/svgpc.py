"""svgpc of `reference`: the probit bound by natural gradients, in batches of all data or of some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reference.wenzel2019.fit_svgpc import fit_svgpc, fit_svgpc_svi, predict_probit
from reference.wenzel2019.svgpc import svgpc_gradients, svgpc_gradients_at_maximum
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_learning, refuse_switches
from validation.implementations.reference.x_gpc_svi import (
    as_gradients,
    as_learned,
    names,
    prior_of,
)
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution


def require_binary_probit(problem: Problem, who: str) -> None:
    """Refuse a problem that a method for the probit link cannot answer."""
    if problem.likelihood != "probit":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'probit' for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")


def probit_predictions(problem: Problem, inducing_mean: Any, inducing_cov: Any) -> dict[str, Any]:
    """Predictions at the test points of a problem as solved."""
    if problem.X_test is None:
        return {}
    prediction = predict_probit(inducing_mean, inducing_cov, problem.X, problem.X_test, *prior_of(problem))
    return {
        "test_latent_mean": prediction.latent_mean[:, None],
        "test_latent_cov": prediction.latent_var[:, None, None],
        "probabilities": prediction.probability,
        "probability_mass": prediction.probability_mass,
    }


def _gradients(problem: Problem, hyper: Any, q: tuple[Any, Any], stochastic: bool) -> dict[str, Any]:
    """Slopes at q(u): a run of so many steps ends anywhere, a fixed point is a maximum."""
    if stochastic:
        return as_gradients(svgpc_gradients(problem.X, problem.y_sign, hyper, *q, np.arange(problem.n)))
    return as_gradients(svgpc_gradients_at_maximum(problem.X, problem.y_sign, hyper, *q))


def _svgpc(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    init_batches: Sequence[Any] | None = None,
    rate: Any = 0.1,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    learning_rate: float = 0.01,
    seed: int = 0,
    window: int = 5,
    stop: float | str | None = "default",
    trace: bool = False,
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_probit(problem, "reference svgpc")
    refuse(tolerance, max_iterations)
    refuse_switches(trace=trace, gradients=gradients)
    refuse_callback(callback)
    stochastic = batches is not None or batch_size is not None or n_steps is not None
    refuse_learning(learn, optimizer, stochastic)
    prior = prior_of(problem)
    data = problem.X, problem.y_sign, *prior
    if not stochastic:
        fit: Any = fit_svgpc(*data, tolerance=tolerance, max_iterations=max_iterations, learn=learn)
        local = {}
    else:
        fit = fit_svgpc_svi(
            *data,
            batches=batches,
            batch_size=100 if batch_size is None else batch_size,
            n_steps=n_steps,
            init_batches=init_batches,
            rate=rate,
            learn=learn,
            learning_rate=learning_rate,
            seed=seed,
            window=window,
            stop=stop,
            trace=trace,
            callback=callback,
        )
        local = {"rates": fit.rates}
    solved = as_learned(problem, fit.hyper, names(learn))
    q = fit.inducing_mean, fit.inducing_cov
    return Solution(
        problem=solved,
        implementation="reference",
        method="svgpc",
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        evidence_prior_model="full",
        latent_mean=fit.latent_mean[:, None],
        latent_cov=fit.latent_var[:, None, None],
        inducing_mean=fit.inducing_mean[None],
        inducing_cov=fit.inducing_cov[None],
        gradients=_gradients(problem, fit.hyper, q, stochastic) if gradients else None,
        local=local,
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        iterations=fit.iterations,
        settings={"tolerance": tolerance} | ({} if stochastic or not fit.reason else {"reason": fit.reason}),
        **probit_predictions(solved, *q),
    )


TABLE = {"svgpc": _svgpc}
