"""svgpc of `fast`: batch to the fixed point, or mini-batches where batches, batch_size or n_steps are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fast.methods import svgpc, svgpc_svi
from validation import arguments
from validation.implementations.common import (
    binary_gradients,
    finite_or_none,
    refuse,
    refuse_callback,
    refuse_learning,
    refuse_switches,
)
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution


def require_binary_probit(problem: Problem, who: str) -> None:
    """Refuse a problem that a method of the probit link cannot answer."""
    if problem.likelihood != "probit":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'probit' for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")


def stopping(stop: float | str | None) -> float | None:
    """What `fast` calls it: its None is its default, its 0 is never."""
    if isinstance(stop, str):
        arguments.choice(stop, ("default",), "stop")
        return None
    return 0.0 if stop is None else stop


def parameters(problem: Problem) -> tuple[Any, ...]:
    """What the methods of one latent function take."""
    Z = None if problem.Z is None else problem.Z[0]
    return (
        problem.X,
        problem.y,
        problem.variance[0],
        problem.lengthscales[0],
        problem.noise[0],
        problem.jitter[0],
        Z,
    )


def learned(problem: Problem, hyper: Any, Z: Any) -> Problem:
    """The problem with the values that were learned."""
    return replace(
        problem,
        variance=np.atleast_1d(hyper.variance),
        lengthscales=hyper.lengthscales[None],
        noise=np.atleast_1d(hyper.noise),
        Z=None if Z is None else np.asarray(Z)[None],
    )


def predictions(found: Any) -> dict[str, Any]:
    """Fields of a Solution from a prediction."""
    return {
        "test_latent_mean": found.latent_mean[:, None],
        "test_latent_cov": found.latent_var[:, None, None],
        "probabilities": found.probabilities,
        "probability_mass": found.probability_mass,
    }


def _svgpc(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    gradients: bool = True,
    block_size: int = 4096,
    accelerate: bool = True,
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
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_probit(problem, "fast svgpc")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, accelerate=accelerate, trace=trace)
    refuse_callback(callback)
    arguments.integer(block_size, "block_size", at_least=1)
    stochastic = batches is not None or batch_size is not None or n_steps is not None
    refuse_learning(learn, optimizer, stochastic)
    settings: dict[str, Any] = {"block_size": block_size}
    if stochastic:
        run = svgpc_svi.fit(
            *parameters(problem),
            batch_size=100 if batch_size is None else batch_size,
            n_steps=n_steps,
            batches=batches,
            init_batches=init_batches,
            rate=rate,
            learn=learn,
            learning_rate=learning_rate,
            seed=seed,
            window=window,
            stop=stopping(stop),
            trace=trace,
            callback=callback,
        )
        problem = learned(problem, run.hyper, run.Z)
        latent = svgpc_svi.predict(run, problem.X, block_size=block_size)
        settings |= {"reason": run.reason, "diverged": run.diverged, "rate": repr(rate), "seed": seed}
        fields: dict[str, Any] = {
            "log_evidence": svgpc_svi.bound(run, problem.X, problem.y, block_size=block_size),
            "latent_mean": latent.latent_mean[:, None],
            "latent_cov": latent.latent_var[:, None, None],
            "local": {"rates": run.rates},
            "trace": run.trace,
            "converged": run.converged and not run.diverged,
            "iterations": run.iterations,
        }
        posterior: Any = run
        if problem.X_test is not None:
            fields |= predictions(svgpc_svi.predict(run, problem.X_test, block_size=block_size))
    else:
        batch: dict[str, Any] = {"tolerance": tolerance, "max_iterations": max_iterations, "block_size": block_size}
        settings |= {"tolerance": tolerance, "accelerate": accelerate}
        search: Any = None
        if learn:
            posterior, search = svgpc.fit_learning(*parameters(problem), learn=learn, **batch)
            problem = learned(problem, search.hyper, search.Z)
            settings |= {"learning": search.reason, "evaluations": search.n_evaluations}
        else:
            posterior = svgpc.fit(*parameters(problem), accelerate=accelerate, callback=callback, **batch)
        fields = {
            "log_evidence": posterior.elbo,
            "latent_mean": posterior.latent_mean[:, None],
            "latent_cov": posterior.latent_var[:, None, None],
            "gradients": binary_gradients(svgpc.gradients(posterior)) if gradients else None,
            "local": {"site_precision": posterior.site_precision, "site_shift": posterior.site_shift},
            "trace": search.trace if search else posterior.trace,
            "residual": finite_or_none(posterior.residual),
            "converged": posterior.converged and (search is None or search.converged),
            "iterations": len(search.trace) if search else posterior.iterations,
        }
        if problem.X_test is not None:
            fields |= predictions(svgpc.predict(posterior, problem.X_test, block_size=block_size))
    return Solution(
        problem=problem,
        implementation="fast",
        method="svgpc",
        log_evidence_kind="lower bound",
        evidence_prior_model="full",
        inducing_mean=posterior.inducing_mean[None],
        inducing_cov=posterior.inducing_cov[None],
        settings=settings,
        **fields,
    )


TABLE = {"svgpc": _svgpc}
