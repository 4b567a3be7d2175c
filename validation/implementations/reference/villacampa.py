"""EP and SEP of villacampa2017 by `reference`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior
from reference.villacampa2017.prediction import predict
from reference.villacampa2017.settings import Options
from reference.villacampa2017.training import Fit, fit_ep, fit_sep
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
    if problem.epsilon != 0.0:
        raise ValueError(f"epsilon: found {shown(problem.epsilon)}, expected 0 for {who}")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found one, expected None for {who}")


def _prior(problem: Problem) -> Prior:
    return Prior(*(np.array(getattr(problem, name)) for name in Prior._fields))


def _diagonal(var: Array) -> Array:
    return var[:, :, None] * np.eye(var.shape[1])


def _moments(problem: Problem, fit: Fit) -> dict[str, Any]:
    """What follows from q(u): inducing moments, latents at test points, probabilities."""
    results: dict[str, Any] = {"inducing_mean": fit.posterior.mean, "inducing_cov": fit.posterior.cov}
    if problem.X_test is not None:
        new = predict(fit.posterior, problem.X_test, fit.prior)
        results |= {
            "test_latent_mean": new.latent_mean,
            "test_latent_cov": _diagonal(new.latent_var),
            "probabilities": new.probability,
            "probability_mass": new.probability_mass,
        }
    return results


def _learned(problem: Problem, fit: Fit, learn: Sequence[str]) -> Problem:
    given = (learn,) if isinstance(learn, str) else tuple(learn)
    return problem.replace(**{name: getattr(fit.prior, name) for name in given})


def _solution(
    problem: Problem, method: str, target: str, fit: Fit, local: dict[str, Any], options: Options
) -> Solution:
    solved = _learned(problem, fit, options.learn)
    slopes = None
    if fit.gradients is not None:
        slopes = {
            name: np.broadcast_to(np.sum(value, axis=0), value.shape) if problem.shared else value
            for name, value in fit.gradients.items()
        }
    return Solution(
        problem=solved,
        implementation="reference",
        method=method,
        log_evidence=fit.log_evidence,
        evidence_target=target,
        evidence_prior_model="fitc",
        latent_mean=fit.latent_mean,
        latent_cov=_diagonal(fit.latent_var),
        gradients=slopes,
        local=local | {"log_tilted_norm": fit.log_norm},
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        n_improper=fit.n_improper,
        iterations=fit.iterations,
        settings={"form": fit.form, **({"reason": fit.reason} if fit.reason else {})},
        **_moments(solved, fit),
    )


def _options(problem: Problem, who: str, **given: Any) -> Options:
    _require(problem, who)
    refuse(given["tolerance"], given["max_iterations"])
    refuse_switches(gradients=given["gradients"], trace=given["trace"])
    refuse_callback(given["callback"])
    return Options(**given)


def _ep(
    problem: Problem,
    *,
    form: str | None = None,
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
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    options = _options(
        problem,
        "reference ep",
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
        gradients=gradients,
        seed=seed,
        trace=trace,
        callback=callback,
        form=form,
    )
    fit = fit_ep(problem.X, problem.y, _prior(problem), factors, schedule, damping, problem.shared, options)
    target = "pairwise model" if factors == "pairwise" and problem.n_classes > 2 else "log p(y)"
    return _solution(problem, "ep", target, fit, fit.sites._asdict(), options)


def _sep(
    problem: Problem,
    *,
    form: str | None = None,
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
    learn_tolerance: float = 1e-5,
    gradient_rule: str = "10",
    gradients: bool = True,
    seed: int = 0,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    options = _options(
        problem,
        "reference sep",
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
        gradients=gradients,
        seed=seed,
        trace=trace,
        callback=callback,
        form=form,
    )
    fit = fit_sep(problem.X, problem.y, _prior(problem), count, damping, problem.shared, options)
    target = "pairwise model" if problem.n_classes > 2 else "log p(y)"
    local = {
        "tied_precision": np.array([each.precision for each in fit.sites]),
        "tied_shift": np.array([each.shift for each in fit.sites]),
    }
    return _solution(problem, "sep", target, fit, local, options)


TABLE = {"ep": _ep, "sep": _sep}
