"""x-gpc-svi of `fast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fast.methods import x_gpc_svi
from validation import arguments
from validation.implementations.common import refuse_callback, refuse_switches, require_binary_logit
from validation.implementations.fast.svgpc import learned, stopping
from validation.problem import Problem
from validation.solution import Solution


def _x_gpc_svi(
    problem: Problem,
    *,
    batches: Sequence[Any] | None = None,
    batch_size: int = 100,
    n_steps: int | None = None,
    init_batches: Sequence[Any] | None = None,
    rate: Any = "adaptive",
    learn: Sequence[str] = (),
    learning_rate: float = 0.01,
    seed: int = 0,
    window: int = 5,
    stop: float | str | None = "default",
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_logit(problem, "fast x-gpc-svi")
    refuse_switches(trace=trace)
    refuse_callback(callback)
    arguments.integer(batch_size, "batch_size", at_least=1)
    if problem.Z is None:
        raise ValueError("Z: found None, expected inducing points for fast x-gpc-svi")
    posterior = x_gpc_svi.fit(
        problem.X,
        problem.y,
        problem.variance[0],
        problem.lengthscales[0],
        problem.noise[0],
        problem.jitter[0],
        problem.Z[0],
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
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
    train = x_gpc_svi.predict(posterior, problem.X)
    predictions: dict[str, Any] = {}
    settings: dict[str, Any] = {
        "rate": rate,
        "learn": tuple(learn),
        "learning_rate": learning_rate,
        "reason": posterior.reason,
        "diverged": posterior.diverged,
        "last_rate": float(posterior.rates[-1]) if posterior.rates.size else None,
    }
    if batches is None:
        settings |= {"batch_size": batch_size, "seed": seed}
    if problem.X_test is not None:
        found = x_gpc_svi.predict(posterior, problem.X_test)
        predictions = {
            "test_latent_mean": found.latent_mean[:, None],
            "test_latent_cov": found.latent_var[:, None, None],
            "probabilities": found.probabilities,
            "probability_mass": found.probability_mass,
        }
        settings["quadrature_error"] = found.quadrature_error
    return Solution(
        problem=learned(problem, posterior.hyper, posterior.Z),
        implementation="fast",
        method="x-gpc-svi",
        log_evidence=x_gpc_svi.bound(posterior, problem.X, problem.y),
        log_evidence_kind="lower bound",
        latent_mean=train.latent_mean[:, None],
        latent_cov=train.latent_var[:, None, None],
        inducing_mean=posterior.inducing_mean[None],
        inducing_cov=posterior.inducing_cov[None],
        local={"c": np.hypot(train.latent_mean, np.sqrt(train.latent_var)), "rates": posterior.rates},
        trace=posterior.trace,
        converged=posterior.converged,
        iterations=posterior.iterations,
        settings=settings,
        **predictions,
    )


TABLE = {"x-gpc-svi": _x_gpc_svi}
