"""pep, apep, arpep, rpapep and bb-alpha of villacampa2020 in `fast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fast.methods import apep, bb_alpha, pep
from fast.sparse_classes.alpha_runs import data_moments
from fast.sparse_classes.inference import diagonal_covariances
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution

TIED_FACTORS = ("any", "gaussian")
EXPECTATIONS = ("quadrature", "monte-carlo")


def _require(problem: Problem, who: str) -> None:
    """Refuse a problem that the methods cannot answer."""
    if problem.likelihood != "threshold":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'threshold' for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found {shown(dict(problem.hyperprior))}, expected None for {who}")


def _arrays(problem: Problem) -> tuple[Any, ...]:
    return (
        problem.X, problem.y, problem.n_classes, problem.variance, problem.lengthscales, problem.noise,
        problem.jitter, problem.Z, problem.epsilon,
    )  # fmt: skip


def _solution(
    problem: Problem,
    method: str,
    posterior: Any,
    *,
    alpha: float,
    learned: bool,
    settings: dict[str, Any],
    **fields: Any,
) -> Solution:
    run, trained = posterior.run, posterior.trained
    if learned:
        hyper = run.points.hyper
        problem = problem.replace(
            variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise, Z=run.points.Z
        )
    if problem.X_test is not None:
        found = pep.predict(posterior, problem.X_test) if method == "pep" else apep.predict(posterior, problem.X_test)
        fields |= {
            "test_latent_mean": found.latent_mean,
            "test_latent_cov": found.latent_cov,
            "probabilities": found.probabilities,
            "probability_mass": found.probability_mass,
        }
    at_data = [data_moments(run.law, block.view) for block in run.data.blocks(run.points)]
    mean, cov = run.points.inducing_moments(run.law)
    fields.setdefault("log_evidence", posterior.log_evidence)
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        log_evidence_kind="lower bound" if alpha == 0.0 else "estimate",
        evidence_target="log p(y)",
        evidence_prior_model="full" if alpha == 0.0 else "fitc",
        latent_mean=np.concatenate([part.mean for part in at_data]),
        latent_cov=diagonal_covariances(np.concatenate([part.var for part in at_data])),
        inducing_mean=mean,
        inducing_cov=cov,
        trace=trained.trace if np.isfinite(trained.trace).all() else np.zeros(0),
        residual=finite_or_none(trained.residual),
        converged=trained.converged,
        n_improper=trained.n_improper,
        iterations=trained.iterations,
        settings={"alpha": alpha, **settings, "reason": trained.reason, "diverged": trained.diverged},
        **fields,
    )


def _pep(
    problem: Problem,
    *,
    alpha: float = 0.5,
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
    gradient_rule: str = "28",
    gradients: bool = True,
    seed: int = 0,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "fast pep")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    posterior = pep.fit(
        *_arrays(problem),
        alpha=alpha,
        shared=problem.shared,
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
        gradient_rule=gradient_rule,
        seed=seed,
        trace=trace,
        callback=callback,
    )
    slopes = None
    if gradients and posterior.log_evidence is not None:
        slopes = dict(pep.gradients(posterior)._asdict())
    return _solution(
        problem,
        "pep",
        posterior,
        alpha=alpha,
        learned=bool(learn),
        gradients=slopes,
        local={**posterior.sites, "log_tilted_norm": pep.log_norms(posterior)},
        settings={"damping": damping, "tolerance": tolerance, "gradient_rule": gradient_rule, "seed": seed},
    )


def _tied(posterior: apep.EnergyPosterior) -> dict[str, Any]:
    """V^-1 - K^-1 and V^-1 m of each class."""
    precision, shift = posterior.run.tied()
    return {"tied_precision": precision, "tied_shift": shift}


def _energy(
    method: str,
    problem: Problem,
    *,
    alpha: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    rate: float = 0.001,
    learn_tolerance: float = 1e-5,
    tied_factor: str = "any",
    gradients: bool = True,
    seed: int = 0,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, f"fast {method}")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    arguments.choice(tied_factor, TIED_FACTORS, "tied_factor")
    if tied_factor == "gaussian":
        raise ValueError("tied_factor: found 'gaussian', expected 'any' for fast; reference has it")
    posterior = apep.fit(
        *_arrays(problem),
        energy=method,
        alpha=alpha,
        shared=problem.shared,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=learn,
        optimizer=optimizer,
        rate=rate,
        learn_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        callback=callback,
    )
    slopes = None
    if gradients and posterior.log_evidence is not None:
        slopes = dict(apep.gradients(posterior)._asdict())
    local = {"log_tilted_norm": apep.log_norms(posterior)}
    if method == "apep":
        local |= _tied(posterior)
    return _solution(
        problem,
        method,
        posterior,
        alpha=alpha,
        learned=bool(learn),
        gradients=slopes,
        local=local,
        settings={"tolerance": tolerance, "optimum": posterior.optimum, "seed": seed},
    )


def _bb_alpha(
    problem: Problem,
    *,
    alpha: float = 0.5,
    expectation: str = "quadrature",
    n_draws: int = 1000,
    seed: int = 0,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    learn_tolerance: float = 1e-5,
    n_steps: int | None = None,
    gradients: bool = True,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "fast bb-alpha")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    arguments.choice(expectation, EXPECTATIONS, "expectation")
    arguments.integer(n_draws, "n_draws", at_least=2)
    if expectation == "monte-carlo" and learn:
        raise ValueError(f"learn: found {shown(learn)}, expected () with expectation='monte-carlo'")
    posterior = apep.fit(
        *_arrays(problem),
        energy="apep",
        alpha=alpha,
        shared=problem.shared,
        tolerance=tolerance,
        max_iterations=max_iterations,
        n_steps=n_steps,
        learn=learn,
        learn_tolerance=learn_tolerance,
        trace=trace,
        callback=callback,
    )
    settings: dict[str, Any] = {"tolerance": tolerance, "optimum": posterior.optimum, "expectation": expectation}
    common: dict[str, Any] = {"alpha": alpha, "learned": bool(tuple(learn))}
    if expectation == "quadrature":
        energy = bb_alpha.quadrature_energy(posterior)
        slopes = None
        if gradients and energy is not None:
            slopes = dict(apep.gradients(posterior)._asdict())
        local = {"log_tilted_norm": apep.log_norms(posterior), **_tied(posterior)}
        return _solution(
            problem, "bb-alpha", posterior, log_evidence=None if energy is None else -energy, gradients=slopes,
            local=local, settings=settings, **common,
        )  # fmt: skip
    found = bb_alpha.monte_carlo_energy(posterior, n_draws=n_draws, seed=seed)
    settings |= {"n_draws": n_draws, "seed": seed, "zero_expectations": found.zero_expectations}
    settings["log_evidence_se"] = finite_or_none(found.standard_error)
    return _solution(
        problem, "bb-alpha", posterior, log_evidence=None if found.energy is None else -found.energy,
        local={"log_tilted_norm": np.where(np.isfinite(found.log_norm), found.log_norm, 0.0)}
        if found.zero_expectations
        else {"log_tilted_norm": found.log_norm},
        settings=settings, **common,
    )  # fmt: skip


TABLE = {
    "pep": _pep,
    "apep": partial(_energy, "apep"),
    "arpep": partial(_energy, "arpep"),
    "rpapep": partial(_energy, "rpapep"),
    "bb-alpha": _bb_alpha,
}
