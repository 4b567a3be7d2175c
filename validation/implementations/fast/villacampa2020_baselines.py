"""label-regression and laplace-sparse, the baselines of villacampa2020's appendix C, in `fast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fast.methods import label_regression, laplace_sparse
from fast.sparse_classes.alpha_runs import data_moments
from fast.sparse_classes.inference import diagonal_covariances
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution


def _require(problem: Problem, likelihood: str, who: str) -> None:
    """Refuse a problem that a baseline cannot answer."""
    if problem.likelihood != likelihood:
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected {likelihood!r} for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found {shown(dict(problem.hyperprior))}, expected None for {who}")


def _arrays(problem: Problem) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    return (
        problem.X, problem.y, problem.n_classes, problem.variance, problem.lengthscales, problem.noise,
        problem.jitter, problem.Z,
    )  # fmt: skip


def _predicted(found: Any) -> dict[str, Any]:
    return {
        "test_latent_mean": found.latent_mean,
        "test_latent_cov": found.latent_cov,
        "probabilities": found.probabilities,
        "probability_mass": found.probability_mass,
    }


def _label_regression(
    problem: Problem,
    *,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    rate: float | None = None,
    n_steps: int | None = None,
    learn_tolerance: float = 1e-5,
    gradients: bool = True,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "threshold", "fast label-regression")
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    posterior = label_regression.fit(
        *_arrays(problem),
        problem.epsilon,
        shared=problem.shared,
        learn=learn,
        optimizer=optimizer,
        rate=rate,
        n_steps=n_steps,
        learn_tolerance=learn_tolerance,
        trace=trace,
        callback=callback,
    )
    run, trained = posterior.run, posterior.trained
    fields: dict[str, Any] = {}
    if tuple(learn):
        hyper = run.points.hyper
        problem = problem.replace(
            variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise, Z=run.points.Z
        )
    if problem.X_test is not None:
        fields = _predicted(label_regression.predict(posterior, problem.X_test))
    at_data = [data_moments(run.law, block.view) for block in run.data.blocks(run.points)]
    mean, cov = run.points.inducing_moments(run.law)
    precision, shift = run.sites()
    return Solution(
        problem=problem,
        implementation="fast",
        method="label-regression",
        log_evidence=posterior.log_evidence,
        log_evidence_kind="exact",
        evidence_target="regression",
        evidence_prior_model="fitc",
        latent_mean=np.concatenate([part.mean for part in at_data]),
        latent_cov=diagonal_covariances(np.concatenate([part.var for part in at_data])),
        inducing_mean=mean,
        inducing_cov=cov,
        gradients=dict(label_regression.gradients(posterior)._asdict()) if gradients else None,
        local={"site_precision": precision, "site_shift": shift},
        trace=trained.trace if np.isfinite(trained.trace).all() else np.zeros(0),
        residual=finite_or_none(trained.residual),
        converged=trained.converged,
        iterations=trained.iterations,
        settings={"reason": trained.reason, "diverged": trained.diverged},
        **fields,
    )


def _laplace_sparse(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 100,
    prediction_nodes: int | None = None,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "softmax", "fast laplace-sparse")
    refuse(tolerance, max_iterations)
    refuse_callback(callback)
    posterior = laplace_sparse.fit(
        *_arrays(problem),
        shared=problem.shared,
        tolerance=tolerance,
        max_iterations=max_iterations,
        callback=callback,
    )
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        fields = _predicted(laplace_sparse.predict(posterior, problem.X_test, prediction_nodes=prediction_nodes))
    return Solution(
        problem=problem,
        implementation="fast",
        method="laplace-sparse",
        log_evidence=posterior.log_evidence,
        log_evidence_kind="estimate",
        evidence_target="log p(y)",
        evidence_prior_model="fitc",
        latent_mean=posterior.latent_mean,
        latent_cov=posterior.latent_cov,
        inducing_mean=posterior.inducing_mean,
        inducing_cov=posterior.inducing_cov,
        gradients=None,
        local={"pi": posterior.pi},
        residual=posterior.residual,
        converged=posterior.converged,
        iterations=posterior.iterations,
        settings={"tolerance": tolerance},
        **fields,
    )


TABLE = {
    "label-regression": _label_regression,
    "laplace-sparse": _laplace_sparse,
}
