"""Power EP of villacampa2020 by `reference`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior
from reference.villacampa2020.fit_pep import Fit, Options, fit_pep
from reference.villacampa2020.hyper import cross_covariances, inducing_covariances
from reference.villacampa2020.prediction import predict, predictive_latent_distribution
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution

Array = NDArray[np.float64]


def _require(problem: Problem, who: str) -> None:
    """Refuse a problem that the method cannot answer."""
    if problem.likelihood != "threshold":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'threshold' for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}; Z = X is an ordinary case")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found one, expected None for {who}")


def _diagonal(var: Array) -> Array:
    return var[:, :, None] * np.eye(var.shape[1])


def _gradients(result: dict[str, Array], shared: bool) -> dict[str, Any]:
    """Shared: every row holds the sum over the classes."""
    return {
        name: np.broadcast_to(np.sum(value, axis=0), value.shape) if shared else value for name, value in result.items()
    }


def _predicted(problem: Problem, fit: Fit) -> dict[str, Any]:
    """Latents and probabilities at the test points, if there are any."""
    if problem.X_test is None:
        return {}
    K_ZZ, cross = inducing_covariances(fit.prior), cross_covariances(problem.X_test, fit.prior)
    latents = predictive_latent_distribution(fit.posterior, cross.k_tt, cross.K_TZ, K_ZZ)
    labels = predict(fit.posterior, cross.k_tt, cross.K_TZ, K_ZZ, problem.epsilon)
    return {
        "test_latent_mean": latents.mean,
        "test_latent_cov": _diagonal(latents.var),
        "probabilities": labels.probability,
        "probability_mass": labels.probability_mass,
    }


def _pep(
    problem: Problem,
    *,
    alpha: float = 0.5,
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 2000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Sequence[str] = (),
    scheme: str | None = None,
    optimizer: str | None = None,
    rate: float | None = None,
    learn_tolerance: float = 1e-5,
    gradient_rule: str = "28",
    form: str | None = None,
    gradients: bool = True,
    seed: int = 0,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "reference pep")
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    alpha = arguments.real(alpha, "alpha")
    options = Options(
        tolerance, max_iterations, batches, batch_size, n_steps, learn, scheme, optimizer, rate,
        learn_tolerance, gradient_rule, gradients, seed, trace, callback, form,
    )  # fmt: skip
    prior = Prior(*(np.array(getattr(problem, name)) for name in Prior._fields))
    fit = fit_pep(problem.X, problem.y, prior, problem.epsilon, alpha, damping, problem.shared, options)
    fields = (learn,) if isinstance(learn, str) else tuple(learn)
    solved = problem.replace(**{name: getattr(fit.prior, name) for name in fields}) if fields else problem
    return Solution(
        problem=solved,
        implementation="reference",
        method="pep",
        log_evidence=fit.log_evidence,
        log_evidence_kind="lower bound" if alpha == 0.0 else "estimate",
        evidence_target="log p(y)",
        evidence_prior_model="full" if alpha == 0.0 else "fitc",
        latent_mean=fit.latents.mean,
        latent_cov=_diagonal(fit.latents.var),
        inducing_mean=fit.posterior.mean,
        inducing_cov=fit.posterior.cov,
        gradients=None if fit.gradients is None else _gradients(fit.gradients, problem.shared),
        local={
            "site_precision": fit.coefficients.c1,
            "site_shift": fit.coefficients.c2,
            "log_tilted_norm": fit.log_norm,
        },
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        n_improper=fit.n_improper,
        iterations=fit.iterations,
        settings={"alpha": alpha, "damping": damping, "tolerance": tolerance, "form": fit.form}
        | ({"reason": fit.reason} if fit.reason else {}),
        **_predicted(solved, fit),
    )


TABLE = {"pep": _pep}
