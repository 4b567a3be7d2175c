"""epgpc of `reference`: expectation propagation with a probit link, in batches of all data or of some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reference.wenzel2019.epgpc import epgpc_gradients
from reference.wenzel2019.fit_epgpc import fit_epgpc, fit_epgpc_batches
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_learning, refuse_switches
from validation.implementations.reference.svgpc import probit_predictions, require_binary_probit
from validation.implementations.reference.x_gpc_svi import as_gradients, as_learned, names, prior_of
from validation.problem import Problem
from validation.solution import Solution


def _epgpc(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    damping: float = 1.0,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    parallel: bool = True,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    learning_rate: float = 0.01,
    seed: int = 0,
    trace: bool = False,
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_probit(problem, "reference epgpc")
    refuse(tolerance, max_iterations)
    refuse_switches(parallel=parallel, trace=trace, gradients=gradients)
    refuse_callback(callback)
    stochastic = batches is not None or batch_size is not None or n_steps is not None
    refuse_learning(learn, optimizer, stochastic)
    prior = prior_of(problem)
    data = problem.X, problem.y_sign, *prior
    if not stochastic:
        fit = fit_epgpc(*data, tolerance, max_iterations, damping, learn, callback)
    else:
        fit = fit_epgpc_batches(
            *data,
            batches=batches,
            batch_size=100 if batch_size is None else batch_size,
            n_steps=n_steps,
            damping=damping,
            learn=learn,
            learning_rate=learning_rate,
            seed=seed,
            parallel=parallel,
            trace=trace,
            callback=callback,
        )
    solved = as_learned(problem, fit.hyper, names(learn))
    sites = fit.site_precision, fit.site_shift
    everything = np.arange(problem.n)
    return Solution(
        problem=solved,
        implementation="reference",
        method="epgpc",
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        evidence_prior_model="full" if problem.Z is None else "fitc",
        latent_mean=fit.latent_mean[:, None],
        latent_cov=fit.latent_var[:, None, None],
        inducing_mean=fit.inducing_mean[None],
        inducing_cov=fit.inducing_cov[None],
        gradients=as_gradients(epgpc_gradients(problem.X, problem.y_sign, fit.hyper, *sites, everything))
        if gradients
        else None,
        local={"site_precision": sites[0], "site_shift": sites[1]},
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        n_improper=fit.n_improper,
        iterations=fit.iterations,
        settings={"tolerance": tolerance} | ({} if stochastic or not fit.reason else {"reason": fit.reason}),
        **probit_predictions(solved, fit.inducing_mean, fit.inducing_cov),
    )


TABLE = {"epgpc": _epgpc}
