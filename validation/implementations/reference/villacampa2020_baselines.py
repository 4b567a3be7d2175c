"""label-regression and laplace-sparse, the baselines of villacampa2020's appendix C, by `reference`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior
from reference.common._product import check_nodes
from reference.villacampa2020.fit_pep import Seen
from reference.villacampa2020.hyper import cross_covariances, inducing_covariances
from reference.villacampa2020.label_regression import (
    CERTAIN,
    OPTIMIZERS,
    RegressionFit,
    RegressionOptions,
    label_regression_baseline,
)
from reference.villacampa2020.laplace_sparse import laplace_baseline, predict_laplace
from reference.villacampa2020.posterior import Gaussians
from reference.villacampa2020.prediction import predict, predictive_latent_distribution
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution

Array = NDArray[np.float64]


def _require(problem: Problem, likelihood: str, who: str) -> None:
    """Refuse a problem that the method cannot answer."""
    if problem.likelihood != likelihood:
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected {likelihood!r} for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}; Z = X is an ordinary case")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found one, expected None for {who}")


def _prior(problem: Problem) -> Prior:
    return Prior(*(np.array(getattr(problem, name)) for name in Prior._fields))


def _diagonal(var: Array) -> Array:
    """(n, C, C) of independent latents."""
    return var[:, :, None] * np.eye(var.shape[1])


def _regression_predicted(problem: Problem, posterior: Gaussians, prior: Prior) -> dict[str, Any]:
    if problem.X_test is None:
        return {}
    new, K_ZZ = cross_covariances(problem.X_test, prior), inducing_covariances(prior)
    latents = predictive_latent_distribution(posterior, *new, K_ZZ)
    labels = predict(posterior, *new, K_ZZ, problem.epsilon)
    return {
        "test_latent_mean": latents.mean,
        "test_latent_cov": _diagonal(latents.var),
        "probabilities": labels.probability,
        "probability_mass": labels.probability_mass,
    }


def _doubt(fit: RegressionFit, learned: bool) -> dict[str, str]:
    """Why the closed form is not claimed; nothing where it is."""
    if fit.converged or learned:
        return {}
    return {
        "reason": f"last digits of variance and lengthscales change the answer by {fit.residual:.1e}, expected at most "
        f"{CERTAIN:.0e}: raise jitter or noise"
    }


def _label_regression(
    problem: Problem,
    *,
    learn: Sequence[str] = (),
    optimizer: str = "lbfgs",
    rate: float = 0.01,
    n_steps: int | None = None,
    learn_tolerance: float = 1e-5,
    gradients: bool = True,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "threshold", "reference label-regression")
    refuse_switches(gradients=gradients, trace=trace)
    refuse_callback(callback)
    arguments.choice(optimizer, OPTIMIZERS, "optimizer")
    options = RegressionOptions(learn, optimizer, rate, n_steps, learn_tolerance, gradients, trace, callback)
    fit = label_regression_baseline(problem.X, problem.y, _prior(problem), problem.shared, options)
    fields = (learn,) if isinstance(learn, str) else tuple(learn)
    solved = problem.replace(**{name: getattr(fit.prior, name) for name in fields}) if fields else problem
    slopes = fit.gradients
    if slopes is not None and problem.shared:  # every row holds the sum over the classes
        slopes = {name: np.broadcast_to(np.sum(value, axis=0), value.shape) for name, value in slopes.items()}
    return Solution(
        problem=solved,
        implementation="reference",
        method="label-regression",
        log_evidence=fit.log_evidence,
        log_evidence_kind="exact",
        evidence_target="regression",
        evidence_prior_model="fitc",
        latent_mean=fit.latents.mean,
        latent_cov=_diagonal(fit.latents.var),
        inducing_mean=fit.posterior.mean,
        inducing_cov=fit.posterior.cov,
        gradients=slopes,
        local={"site_precision": fit.coefficients.c1, "site_shift": fit.coefficients.c2},
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        iterations=fit.iterations,
        settings={"epsilon": problem.epsilon, **_doubt(fit, bool(fields))},
        **_regression_predicted(solved, fit.posterior, fit.prior),
    )


def _laplace_sparse(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 100,
    prediction_nodes: int | None = None,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "softmax", "reference laplace-sparse")
    refuse(tolerance, max_iterations)
    refuse_callback(callback)
    if prediction_nodes is not None:
        check_nodes(arguments.integer(prediction_nodes, "prediction_nodes", at_least=2), problem.n_classes - 1)
    prior = _prior(problem)
    fit = laplace_baseline(problem.X, problem.y, prior, tolerance, max_iterations)
    if callback is not None:
        callback(Seen(fit.mode.iterations, fit.mode.residual, 0))
    predicted: dict[str, Any] = {}
    if problem.X_test is not None:
        prediction = predict_laplace(fit, problem.X, problem.X_test, prior, prediction_nodes)
        predicted = {
            "test_latent_mean": prediction.latent_mean,
            "test_latent_cov": prediction.latent_cov,
            "probabilities": prediction.probability,
            "probability_mass": prediction.probability_mass,
        }
    return Solution(
        problem=problem,
        implementation="reference",
        method="laplace-sparse",
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        evidence_target="log p(y)",
        evidence_prior_model="fitc",
        latent_mean=fit.mode.latent_values,
        latent_cov=fit.latent_cov,
        inducing_mean=fit.inducing.mean,
        inducing_cov=fit.inducing.cov,
        local={"pi": fit.pi},
        residual=finite_or_none(fit.mode.residual),
        converged=fit.mode.converged,
        iterations=fit.mode.iterations,
        settings={"tolerance": tolerance} | ({"reason": fit.reason} if fit.reason else {}),
        **predicted,
    )


TABLE = {"label-regression": _label_regression, "laplace-sparse": _laplace_sparse}
