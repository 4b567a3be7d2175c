"""epgpc of `fast`: parallel EP to the fixed point, or mini-batches where batches, batch_size or n_steps are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fast.methods import epgpc, epgpc_svi
from validation import arguments
from validation.implementations.common import (
    binary_gradients,
    finite_or_none,
    refuse,
    refuse_callback,
    refuse_learning,
    refuse_switches,
)
from validation.implementations.fast.svgpc import (
    learned,
    parameters,
    predictions,
    require_binary_probit,
)
from validation.problem import Problem
from validation.solution import Solution


def _epgpc(
    problem: Problem,
    *,
    damping: float = 1.0,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    gradients: bool = True,
    block_size: int = 4096,
    accelerate: bool = True,
    parallel: bool = True,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    learning_rate: float = 0.01,
    rebuild_every: int = 1,
    seed: int = 0,
    window: int = 5,
    stop: float | None = None,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_probit(problem, "fast epgpc")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, accelerate=accelerate, trace=trace, parallel=parallel)
    refuse_callback(callback)
    arguments.integer(block_size, "block_size", at_least=1)
    stochastic = batches is not None or batch_size is not None or n_steps is not None
    refuse_learning(learn, optimizer, stochastic)
    search: Any = None
    settings: dict[str, Any] = {"block_size": block_size, "damping": damping}
    if stochastic:
        run = epgpc_svi.fit(
            *parameters(problem),
            damping=damping,
            parallel=parallel,
            batch_size=100 if batch_size is None else batch_size,
            n_steps=n_steps,
            batches=batches,
            learn=learn,
            learning_rate=learning_rate,
            rebuild_every=rebuild_every,
            seed=seed,
            window=window,
            stop=stop,
            trace=trace,
            block_size=block_size,
            callback=callback,
        )
        posterior, iterations = run.posterior, run.iterations
        problem = learned(problem, run.hyper, run.Z)
        settings |= {"reason": run.reason, "diverged": run.diverged, "seed": seed, "rebuild_every": rebuild_every}
    else:
        batch: dict[str, Any] = {"damping": damping, "tolerance": tolerance, "block_size": block_size}
        batch |= {"max_iterations": max_iterations}
        settings |= {"tolerance": tolerance, "accelerate": accelerate}
        if learn:
            posterior, search = epgpc.fit_learning(*parameters(problem), learn=learn, **batch)
            problem = learned(problem, search.hyper, search.Z)
            settings |= {"learning": search.reason, "evaluations": search.n_evaluations}
        else:
            posterior = epgpc.fit(*parameters(problem), accelerate=accelerate, callback=callback, **batch)
        iterations = len(search.trace) if search else posterior.iterations
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        fields = predictions(epgpc.predict(posterior, problem.X_test, block_size=block_size))
    return Solution(
        problem=problem,
        implementation="fast",
        method="epgpc",
        log_evidence=posterior.log_evidence,
        log_evidence_kind="estimate",
        evidence_prior_model="full" if problem.Z is None else "fitc",
        latent_mean=posterior.latent_mean[:, None],
        latent_cov=posterior.latent_var[:, None, None],
        inducing_mean=posterior.inducing_mean[None],
        inducing_cov=posterior.inducing_cov[None],
        gradients=binary_gradients(epgpc.gradients(posterior)) if gradients and not stochastic else None,
        local={"site_precision": posterior.site_precision, "site_shift": posterior.site_shift},
        trace=search.trace if search else posterior.trace,
        residual=finite_or_none(posterior.residual),
        converged=posterior.converged and (search is None or search.converged),
        n_improper=posterior.n_improper,
        iterations=iterations,
        settings=settings,
        **fields,
    )


TABLE = {"epgpc": _epgpc}
