"""x-gpc-svi of `reference`, and x-gpc with learned hyper-parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reference.wenzel2019.fit import bound_gradients, predict_xgpc
from reference.wenzel2019.fit_svi import fit_xgpc_svi, optimise_hyperparameters
from reference.wenzel2019.svi import batch_bound_gradients
from validation.implementations.common import finite_or_none, refuse, refuse_callback, require_binary_logit, two_columns
from validation.problem import Problem
from validation.solution import Solution


def prior_of(problem: Problem) -> tuple[Any, Any, Any, Any, Any]:
    """variance, lengthscales, noise, jitter, Z of a problem with one latent function."""
    Z = None if problem.Z is None else problem.Z[0]
    return float(problem.variance[0]), problem.lengthscales[0], float(problem.noise[0]), float(problem.jitter[0]), Z


def names(learn: Any) -> tuple[str, ...]:
    """A text stands for one name."""
    return (learn,) if isinstance(learn, str) else tuple(learn)


def as_learned(problem: Problem, hyper: Any, learn: tuple[str, ...]) -> Problem:
    """The problem with the values that were learned; the others stay to the last bit."""
    values: dict[str, Any] = {
        "variance": np.atleast_1d(hyper.variance),
        "lengthscales": np.asarray(hyper.lengthscales)[None],
        "noise": np.atleast_1d(hyper.noise),
        "Z": None if hyper.Z is None else np.asarray(hyper.Z)[None],
    }
    learned: dict[str, Any] = {name: values[name] for name in learn}
    return replace(problem, **learned)


def as_gradients(result: dict[str, Any]) -> dict[str, Any]:
    """Gradients of one latent function in the shapes of a Solution."""
    shaped = {"variance": np.atleast_1d, "lengthscales": lambda v: np.asarray(v)[None], "noise": np.atleast_1d}
    return {name: shaped.get(name, lambda v: np.asarray(v)[None])(value) for name, value in result.items()}


def variational_evidence(problem: Problem) -> str | None:
    """A sparse variational bound is one on the full model's evidence."""
    return "full" if problem.Z is not None else None


def _predictions(problem: Problem, fit: Any) -> dict[str, Any]:
    if problem.X_test is None:
        return {}
    prior = prior_of(problem)
    prediction = predict_xgpc(fit, problem.X, problem.X_test, *prior)
    return {
        "test_latent_mean": prediction.latent_mean[:, None],
        "test_latent_cov": prediction.latent_var[:, None, None],
        "probabilities": two_columns(prediction.probability),
        "probability_mass": prediction.probability_mass,
    }


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
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require_binary_logit(problem, "reference x-gpc-svi")
    refuse_callback(callback)
    prior = prior_of(problem)
    fit = fit_xgpc_svi(
        problem.X,
        problem.y_sign,
        *prior,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        init_batches=init_batches,
        rate=rate,
        learn=learn,
        learning_rate=learning_rate,
        seed=seed,
        window=window,
        stop=stop,
        trace=trace,
        callback=callback,
    )
    solved = as_learned(problem, fit.hyper, names(learn))
    everything = np.arange(problem.n)
    q = fit.inducing_mean, fit.inducing_cov
    return Solution(
        problem=solved,
        implementation="reference",
        method="x-gpc-svi",
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        latent_mean=fit.latent_mean[:, None],
        latent_cov=fit.latent_var[:, None, None],
        inducing_mean=fit.inducing_mean[None],
        inducing_cov=fit.inducing_cov[None],
        gradients=as_gradients(batch_bound_gradients(problem.X, problem.y_sign, fit.hyper, *q, everything))
        if gradients
        else None,
        local={"rates": fit.rates},
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        iterations=fit.iterations,
        **_predictions(solved, fit),
    )


def learned_x_gpc(
    problem: Problem,
    *,
    learn: Sequence[str],
    tolerance: float = 1e-10,
    learning_iterations: int = 200,
    gradients: bool = True,
) -> Solution:
    """x-gpc with hyper-parameters at the maximum of the fitted bound, by L-BFGS-B."""
    require_binary_logit(problem, "reference x-gpc")
    refuse(tolerance, learning_iterations)
    prior = prior_of(problem)
    optimum = optimise_hyperparameters(
        problem.X, problem.y_sign, *prior, learn=learn, tolerance=tolerance, max_iterations=learning_iterations
    )
    solved = as_learned(problem, optimum.hyper, names(learn))
    fit = optimum.fit
    slopes = bound_gradients(fit, problem.X, problem.y_sign, *optimum.hyper)._asdict()
    return Solution(
        problem=solved,
        implementation="reference",
        method="x-gpc",
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        latent_mean=fit.latent_mean[:, None],
        latent_cov=fit.latent_var[:, None, None],
        inducing_mean=fit.inducing_mean[None],
        inducing_cov=fit.inducing_cov[None],
        gradients=as_gradients({k: v for k, v in slopes.items() if v is not None}) if gradients else None,
        local={"c": np.abs(fit.c)},
        trace=optimum.trace,
        residual=finite_or_none(optimum.residual),
        converged=optimum.converged and fit.converged,
        iterations=optimum.iterations,
        settings={"tolerance": tolerance},
        **_predictions(solved, fit),
    )


TABLE = {"x-gpc-svi": _x_gpc_svi}
