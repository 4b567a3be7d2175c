"""ep and sep of villacampa2017 in `fast`: scalable EP for several classes with inducing points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fast.methods import ep, sep
from fast.sparse_classes.inference import diagonal_covariances
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution


def require_threshold(problem: Problem, who: str, *, robust: bool = False) -> None:
    """Refuse a problem that a sparse method for the threshold likelihood cannot answer."""
    if problem.likelihood != "threshold":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'threshold' for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}")
    if robust != (problem.epsilon > 0.0):
        raise ValueError(f"epsilon: found {shown(problem.epsilon)}, expected {'> 0' if robust else '0'} for {who}")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found {shown(dict(problem.hyperprior))}, expected None for {who}")


def _arrays(problem: Problem) -> tuple[Any, ...]:
    return (
        problem.X,
        problem.y,
        problem.n_classes,
        problem.variance,
        problem.lengthscales,
        problem.noise,
        problem.jitter,
        problem.Z,
    )


def _solution(
    problem: Problem,
    method: str,
    module: Any,
    posterior: Any,
    *,
    learned: bool,
    pairwise: bool,
    gradients: bool,
    gradient_rule: str,
    local: dict[str, Any],
    settings: dict[str, Any],
) -> Solution:
    points, trained = posterior.run.points, posterior.trained
    if learned:
        hyper = points.hyper
        problem = problem.replace(
            variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise, Z=points.Z
        )
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        found = module.predict(posterior, problem.X_test)
        fields = {
            "test_latent_mean": found.latent_mean,
            "test_latent_cov": found.latent_cov,
            "probabilities": found.probabilities,
            "probability_mass": found.probability_mass,
        }
    slopes = None
    if gradients and posterior.log_evidence is not None:
        slopes = dict(module.gradients(posterior, gradient_rule=gradient_rule)._asdict())
    at_data = module.latents(posterior)
    mean, cov = points.inducing_moments(posterior.run.law)
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        log_evidence=posterior.log_evidence,
        evidence_target="pairwise model" if pairwise and problem.n_classes > 2 else "log p(y)",
        evidence_prior_model="fitc",
        latent_mean=at_data.mean,
        latent_cov=diagonal_covariances(at_data.var),
        inducing_mean=mean,
        inducing_cov=cov,
        gradients=slopes,
        local={**local, "log_tilted_norm": at_data.log_tilted_norm},
        trace=trained.trace,
        residual=finite_or_none(trained.residual),
        converged=trained.converged,
        n_improper=trained.n_improper,
        iterations=trained.iterations,
        settings={**settings, "reason": trained.reason, "diverged": trained.diverged},
        **fields,
    )


def _ep(
    problem: Problem,
    *,
    factors: str = "pairwise",
    schedule: str = "parallel",
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Sequence[str] = (),
    scheme: str | None = None,
    optimizer: str | None = None,
    rate: float | None = None,
    learn_tolerance: float = 1e-5,
    gradient_rule: str = "10",
    gradients: bool = True,
    seed: int = 0,
    trace: bool = False,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_threshold(problem, "fast ep")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    arguments.choice(gradient_rule, ("10", "exact"), "gradient_rule")
    posterior = ep.fit(
        *_arrays(problem),
        shared=problem.shared,
        factors=factors,
        schedule=schedule,
        damping=damping,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=learn,
        scheme=scheme,
        optimizer=optimizer,
        rate=rate,
        learn_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        block_size=block_size,
        callback=callback,
    )
    return _solution(
        problem,
        "ep",
        ep,
        posterior,
        learned=bool(learn),
        pairwise=factors == "pairwise",
        gradients=gradients,
        gradient_rule=gradient_rule,
        local=dict(posterior.sites),
        settings={"factors": factors, "schedule": schedule, "damping": damping, "tolerance": tolerance}
        | {"gradient_rule": gradient_rule, "seed": seed},
    )


def _sep(
    problem: Problem,
    *,
    count: str = "all",
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Sequence[str] = (),
    scheme: str | None = None,
    optimizer: str | None = None,
    rate: float | None = None,
    gradient_rule: str = "10",
    gradients: bool = True,
    seed: int = 0,
    trace: bool = False,
    block_size: int = 4096,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_threshold(problem, "fast sep")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    arguments.choice(gradient_rule, ("10", "exact"), "gradient_rule")
    posterior = sep.fit(
        *_arrays(problem),
        shared=problem.shared,
        count=count,
        damping=damping,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=learn,
        scheme=scheme,
        optimizer=optimizer,
        rate=rate,
        seed=seed,
        trace=trace,
        block_size=block_size,
        callback=callback,
    )
    tied_precision, tied_shift = posterior.tied
    return _solution(
        problem,
        "sep",
        sep,
        posterior,
        learned=bool(learn),
        pairwise=True,
        gradients=gradients,
        gradient_rule=gradient_rule,
        local={"tied_precision": tied_precision, "tied_shift": tied_shift},
        settings={"count": count, "damping": damping, "tolerance": tolerance}
        | {"gradient_rule": gradient_rule, "seed": seed},
    )


TABLE = {"ep": _ep, "sep": _sep}
