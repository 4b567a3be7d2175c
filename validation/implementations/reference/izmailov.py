"""The methods of izmailov2016 by `reference`: svi, vi-jj, vi-jj-full, vi-jj-hybrid, vi-taylor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reference.izmailov2016._prior import Prior
from reference.izmailov2016.fit import VIFit, fit_svi_batches, fit_vi, gradients, predict
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.implementations.reference.x_gpc_svi import (
    as_gradients,
    as_learned,
    names,
    prior_of,
    variational_evidence,
)
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution

MOMENTS = ("none", "diag", "full")


def _require(problem: Problem, method: str, moments: Any) -> None:
    """Refuse what the method cannot answer."""
    allowed = ("logit", "probit") if method in ("svi", "vi-taylor") else ("logit",)
    if problem.likelihood not in allowed:
        expected = " or ".join(repr(name) for name in allowed)
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected {expected} for reference {method}")
    if moments not in MOMENTS:
        raise ValueError(f"moments: found {shown(moments)}, expected one of {', '.join(MOMENTS)}")


def _hyper(problem: Problem) -> Prior:
    smoothness = None if problem.smoothness is None else float(problem.smoothness[0])
    return Prior(*prior_of(problem), problem.kernel, smoothness)


def _solution(
    problem: Problem, method: str, fit: VIFit, learn: Any, moments: str, slopes: bool, settings: dict[str, Any]
) -> Solution:
    solved = as_learned(problem, fit.hyper, names(learn))
    results: dict[str, Any] = {}
    if moments != "none":
        results |= {"latent_mean": fit.latent_mean[:, None], "latent_cov": fit.latent_var[:, None, None]}
    if problem.X_test is not None:
        there = predict(fit, problem.X, problem.X_test, problem.likelihood)
        results |= {"probabilities": there.probability, "probability_mass": there.probability_mass}
        if moments != "none":
            results["test_latent_mean"] = there.latent_mean[:, None]
            results["test_latent_cov"] = there.latent_var[:, None, None]
    if slopes:
        results["gradients"] = as_gradients(gradients(method, fit, problem.X, problem.y_sign, problem.likelihood))
    return Solution(
        problem=solved,
        implementation="reference",
        method=method,
        log_evidence=fit.elbo,
        log_evidence_kind="estimate" if method == "vi-taylor" else "lower bound",
        evidence_prior_model=variational_evidence(problem),
        inducing_mean=fit.inducing_mean[None],
        inducing_cov=fit.inducing_cov[None],
        local={} if fit.xi is None else {"xi": fit.xi if method == "vi-taylor" else np.abs(fit.xi)},
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        iterations=fit.iterations,
        settings=settings | ({"reason": fit.reason} if fit.reason else {}),
        **results,
    )


def _alternating(method: str) -> Callable[..., Solution]:
    def solve(
        problem: Problem,
        *,
        tolerance: float = 1e-10,
        max_iterations: int = 10_000,
        n_upd: int = 3,
        n_fun: int = 5,
        learn: Sequence[str] = (),
        moments: str = "diag",
        gradients: bool = True,
        callback: Callable[[Any], None] | None = None,
    ) -> Solution:
        _require(problem, method, moments)
        refuse(tolerance, max_iterations)
        refuse_switches(gradients=gradients)
        refuse_callback(callback)
        fit = fit_vi(
            method,
            problem.X,
            problem.y_sign,
            _hyper(problem),
            likelihood=problem.likelihood,
            learn=learn,
            n_upd=n_upd,
            n_fun=n_fun,
            tolerance=tolerance,
            max_iterations=max_iterations,
            callback=callback,
            X_test=problem.X_test,
        )
        return _solution(problem, method, fit, learn, moments, gradients, {"tolerance": tolerance})

    return solve


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
    trace: bool = False,
    moments: str = "diag",
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "svi", moments)
    refuse(tolerance, max_iterations)
    refuse_switches(trace=trace, gradients=gradients)
    refuse_callback(callback)
    data = problem.X, problem.y_sign, _hyper(problem)
    if batches is None and batch_size is None:
        fit = fit_vi(
            "svi",
            *data,
            likelihood=problem.likelihood,
            learn=learn,
            tolerance=tolerance,
            max_iterations=max_iterations,
            callback=callback,
            X_test=problem.X_test,
        )
    else:
        fit = fit_svi_batches(
            *data,
            likelihood=problem.likelihood,
            batches=batches,
            batch_size=100 if batch_size is None else batch_size,
            n_steps=n_steps,
            rate=rate,
            learn=learn,
            seed=seed,
            trace=trace,
            callback=callback,
        )
    return _solution(problem, "svi", fit, learn, moments, gradients, {"tolerance": tolerance})


TABLE = {
    "svi": _svi,
    **{method: _alternating(method) for method in ("vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")},
}
