"""gfitc and vi-robust in `fast`: what villacampa2017 compares EP and SEP with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fast.methods import gfitc, vi_robust
from fast.sparse_classes.inference import diagonal_covariances
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.implementations.fast.villacampa import require_threshold
from validation.problem import Problem
from validation.solution import Solution


def _arguments(problem: Problem) -> dict[str, Any]:
    fields = ("X", "y", "n_classes", "variance", "lengthscales", "noise", "jitter", "Z", "shared")
    return {name: getattr(problem, name) for name in fields}


def _solution(
    problem: Problem,
    method: str,
    module: Any,
    posterior: Any,
    *,
    learned: bool,
    gradients: bool,
    latents: Any,
    fields: dict[str, Any],
    settings: dict[str, Any],
) -> Solution:
    points, trained = posterior.run.points, posterior.trained
    if learned:
        hyper = points.hyper
        problem = problem.replace(
            variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise, Z=points.Z
        )
    if problem.X_test is not None:
        found = module.predict(posterior, problem.X_test)
        fields |= {
            "test_latent_mean": found.latent_mean,
            "test_latent_cov": found.latent_cov,
            "probabilities": found.probabilities,
            "probability_mass": found.probability_mass,
        }
    slopes = None
    if gradients and posterior.log_evidence is not None:
        slopes = dict(module.gradients(posterior)._asdict())
    mean, cov = points.inducing_moments(posterior.run.law)
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        log_evidence=posterior.log_evidence,
        evidence_target="log p(y)",
        latent_mean=latents.mean,
        latent_cov=diagonal_covariances(latents.var),
        inducing_mean=mean,
        inducing_cov=cov,
        gradients=slopes,
        trace=trained.trace if np.isfinite(trained.trace).all() else np.zeros(0),
        residual=finite_or_none(trained.residual),
        converged=trained.converged,
        n_improper=trained.n_improper,
        iterations=trained.iterations,
        settings={**settings, "reason": trained.reason, "diverged": trained.diverged},
        **fields,
    )


def _gfitc(
    problem: Problem,
    *,
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    learn: Sequence[str] = (),
    learn_tolerance: float = 1e-5,
    n_steps: int | None = None,
    gradients: bool = True,
    trace: bool = False,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_threshold(problem, "fast gfitc")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    posterior = gfitc.fit(
        **_arguments(problem),
        damping=damping,
        tolerance=tolerance,
        max_iterations=max_iterations,
        learn=learn,
        learn_tolerance=learn_tolerance,
        n_steps=n_steps,
        trace=trace,
        block_size=block_size,
        callback=callback,
    )
    at_data = gfitc.latents(posterior)
    return _solution(
        problem,
        "gfitc",
        gfitc,
        posterior,
        learned=bool(learn),
        gradients=gradients,
        latents=at_data,
        fields={
            "evidence_prior_model": "fitc",
            "local": {**posterior.sites, "log_tilted_norm": at_data.log_tilted_norm},
        },
        settings={"damping": damping, "tolerance": tolerance},
    )


def _vi_robust(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    nat_rate: float = 0.1,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    rate: float = 0.001,
    learn_tolerance: float = 1e-5,
    gradients: bool = True,
    seed: int = 0,
    trace: bool = False,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_threshold(problem, "fast vi-robust", robust=True)
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    posterior = vi_robust.fit(
        **_arguments(problem),
        epsilon=problem.epsilon,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        nat_rate=nat_rate,
        learn=learn,
        optimizer=optimizer,
        rate=rate,
        learn_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        block_size=block_size,
        callback=callback,
    )
    at_data = vi_robust.latents(posterior)
    return _solution(
        problem,
        "vi-robust",
        vi_robust,
        posterior,
        learned=bool(learn),
        gradients=gradients,
        latents=at_data,
        fields={
            "log_evidence_kind": "lower bound",
            "evidence_prior_model": "full",
            "local": {"label_probability": at_data.label_probability},
        },
        settings={"tolerance": tolerance, "nat_rate": nat_rate, "rate": rate, "seed": seed},
    )


TABLE = {"gfitc": _gfitc, "vi-robust": _vi_robust}
