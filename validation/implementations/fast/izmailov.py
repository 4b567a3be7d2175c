"""svi, vi-jj, vi-jj-full, vi-jj-hybrid and vi-taylor of `fast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fast.methods import svi, vi_jj, vi_taylor
from validation import arguments
from validation.implementations.common import (
    binary_gradients,
    finite_or_none,
    refuse,
    refuse_callback,
    refuse_switches,
)
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution

_MOMENTS = ("none", "diag", "full")


def _require_binary(problem: Problem, who: str, likelihoods: tuple[str, ...]) -> None:
    if problem.likelihood not in likelihoods:
        raise ValueError(
            f"likelihood: found {shown(problem.likelihood)}, expected {' or '.join(likelihoods)} for {who}"
        )


def _parameters(problem: Problem) -> tuple[Any, ...]:
    return (
        problem.X,
        problem.y,
        problem.variance[0],
        problem.lengthscales[0],
        problem.noise[0],
        problem.jitter[0],
        None if problem.Z is None else problem.Z[0],
    )


def _smoothness(problem: Problem) -> float | None:
    return None if problem.smoothness is None else float(problem.smoothness[0])


def _learned(problem: Problem, hyper: Any) -> Problem:
    return replace(
        problem,
        variance=np.atleast_1d(hyper.variance),
        lengthscales=hyper.lengthscales[None],
        noise=np.atleast_1d(hyper.noise),
    )


def _test_fields(found: Any) -> dict[str, Any]:
    return {
        "test_latent_mean": found.latent_mean[:, None],
        "test_latent_cov": found.latent_var[:, None, None],
        "probabilities": found.probabilities,
        "probability_mass": found.probability_mass,
    }


def _solution(
    method: str, problem: Problem, posterior: Any, kind: str, moments: str, settings: dict[str, Any], **fields: Any
) -> Solution:
    if moments != "none":
        fields |= {
            "latent_mean": posterior.latent_mean[:, None],
            "latent_cov": posterior.latent_var[:, None, None],
        }
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        log_evidence=posterior.elbo,
        log_evidence_kind=kind,
        evidence_prior_model="full",
        inducing_mean=posterior.inducing_mean[None],
        inducing_cov=posterior.inducing_cov[None],
        trace=posterior.trace,
        residual=finite_or_none(posterior.residual),
        converged=posterior.converged,
        iterations=posterior.iterations,
        settings=settings,
        **fields,
    )


def _quadratic(
    method: str,
    module: Any,
    problem: Problem,
    fit: Callable[..., Any],
    options: dict[str, Any],
    *,
    kind: str,
    moments: str,
    gradients: bool,
) -> Solution:
    """A method of local quadratics, its fit and what follows."""
    refuse(options["tolerance"], options["max_iterations"])
    refuse_switches(gradients=gradients)
    refuse_callback(options["callback"])
    arguments.choice(moments, _MOMENTS, "moments")
    posterior = fit(*_parameters(problem), smoothness=_smoothness(problem), **options)
    settings = {name: value for name, value in options.items() if name not in ("callback", "learn")}
    settings["learn"] = list(options["learn"])
    if posterior.learning is not None:
        problem = _learned(problem, posterior.prior.hyper)
        settings |= {"learning": posterior.learning.reason, "evaluations": posterior.learning.n_evaluations}
    fields: dict[str, Any] = {"local": {"xi": posterior.xi}}
    if gradients:
        fields["gradients"] = binary_gradients(module.gradients(posterior))
    if problem.X_test is not None:
        fields |= _test_fields(module.predict(posterior, problem.X_test, block_size=options["block_size"]))
    return _solution(method, problem, posterior, kind, moments, settings, **fields)


def _vi_jj(
    problem: Problem,
    *,
    n_upd: int = 3,
    n_fun: int = 5,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    moments: str = "diag",
    gradients: bool = True,
    accelerate: bool = True,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require_binary(problem, "fast vi-jj", ("logit",))
    refuse_switches(accelerate=accelerate)
    options = {
        "n_upd": n_upd,
        "n_fun": n_fun,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "learn": learn,
        "accelerate": accelerate,
        "block_size": block_size,
        "callback": callback,
    }
    return _quadratic(
        "vi-jj", vi_jj, problem, vi_jj.fit, options, kind="lower bound", moments=moments, gradients=gradients
    )


def _vi_jj_full(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    moments: str = "diag",
    gradients: bool = True,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require_binary(problem, "fast vi-jj-full", ("logit",))
    options = {
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "learn": learn,
        "block_size": block_size,
        "callback": callback,
    }
    return _quadratic(
        "vi-jj-full", vi_jj, problem, vi_jj.fit_full, options, kind="lower bound", moments=moments, gradients=gradients
    )


def _staged(
    method: str,
    module: Any,
    fit: Callable[..., Any],
    kind: str,
    likelihoods: tuple[str, ...],
    problem: Problem,
    *,
    n_upd: int = 3,
    n_fun: int = 5,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    moments: str = "diag",
    gradients: bool = True,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    """A method that alternates closed updates and searches."""
    _require_binary(problem, f"fast {method}", likelihoods)
    options = {
        "n_upd": n_upd,
        "n_fun": n_fun,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "learn": learn,
        "block_size": block_size,
        "callback": callback,
    }
    if len(likelihoods) > 1:
        options["likelihood"] = problem.likelihood
    return _quadratic(method, module, problem, fit, options, kind=kind, moments=moments, gradients=gradients)


_vi_jj_hybrid = partial(_staged, "vi-jj-hybrid", vi_jj, vi_jj.fit_hybrid, "lower bound", ("logit",))
_vi_taylor = partial(_staged, "vi-taylor", vi_taylor, vi_taylor.fit, "estimate", ("logit", "probit"))


def _svi(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    rate: float = 1.0,
    learn: Sequence[str] = (),
    seed: int = 0,
    moments: str = "diag",
    gradients: bool = True,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require_binary(problem, "fast svi", ("logit", "probit"))
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients)
    refuse_callback(callback)
    arguments.choice(moments, _MOMENTS, "moments")
    arguments.integer(block_size, "block_size", at_least=1)
    common: dict[str, Any] = {"likelihood": problem.likelihood, "smoothness": _smoothness(problem), "learn": learn}
    settings: dict[str, Any] = {"learn": list(learn), "block_size": block_size}
    if batches is None and batch_size is None and n_steps is None:
        posterior, hyper = svi.fit(
            *_parameters(problem),
            **common,
            tolerance=tolerance,
            max_iterations=max_iterations,
            block_size=block_size,
            callback=callback,
        )
        problem = _learned(problem, hyper) if learn else problem
        settings["tolerance"] = tolerance
        fields: dict[str, Any] = {}
        if gradients:
            fields["gradients"] = binary_gradients(svi.gradients(posterior))
        if problem.X_test is not None:
            fields |= _test_fields(
                svi.predict(posterior, problem.X_test, likelihood=problem.likelihood, block_size=block_size)
            )
        return _solution("svi", problem, posterior, "lower bound", moments, settings, **fields)
    run = svi.fit_stochastic(
        *_parameters(problem),
        **common,
        batch_size=100 if batch_size is None else batch_size,
        n_steps=n_steps,
        batches=batches,
        rate=rate,
        seed=seed,
        callback=callback,
    )
    problem = _learned(problem, run.hyper) if learn else problem
    settings |= {"rate": rate, "seed": seed}
    fields = {}
    if moments != "none":
        mean, var = svi.latent(run, problem.X, block_size=block_size)
        fields = {"latent_mean": mean[:, None], "latent_cov": var[:, None, None]}
    if problem.X_test is not None:
        fields |= _test_fields(svi.predict_run(run, problem.X_test, block_size=block_size))
    return Solution(
        problem=problem,
        implementation="fast",
        method="svi",
        log_evidence=svi.bound(run, problem.X, problem.y, block_size=block_size),
        log_evidence_kind="lower bound",
        evidence_prior_model="full",
        inducing_mean=run.inducing_mean[None],
        inducing_cov=run.inducing_cov[None],
        local={"chol_cov": run.chol_cov},
        trace=run.trace,
        converged=False,
        iterations=run.iterations,
        settings=settings,
        **fields,
    )


TABLE = {
    "svi": _svi,
    "vi-jj": _vi_jj,
    "vi-jj-full": _vi_jj_full,
    "vi-jj-hybrid": _vi_jj_hybrid,
    "vi-taylor": _vi_taylor,
}
