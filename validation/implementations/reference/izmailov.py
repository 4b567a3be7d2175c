"""The methods of izmailov2016 by `reference`: svi, vi-jj, vi-jj-full, vi-jj-hybrid, vi-taylor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reference.common.options import options_of
from reference.izmailov2016.fit import VIFit, fit_svi_batches, fit_vi, gradients, predict
from reference.izmailov2016.model import Prior
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.common import finite_or_none
from validation.implementations.reference.one_latent import (
    as_gradients,
    as_learned,
    prior_of,
    variational_evidence,
)
from validation.implementations.witness import Adapter

KERNELS = ("se", "matern")


def _hyper(problem: Problem) -> Prior:
    smoothness = None if problem.smoothness is None else float(problem.smoothness[0])
    return Prior(*prior_of(problem), problem.kernel, smoothness)


def _solution(problem: Problem, method: str, fit: VIFit, options: Any) -> Solution:
    solved = as_learned(problem, fit.hyper, options.learn)
    results: dict[str, Any] = {}
    if options.moments != "none":
        results |= {"latent_mean": fit.latent_mean[:, None], "latent_cov": fit.latent_var[:, None, None]}
    if problem.X_test is not None:
        there = predict(fit, problem.X, problem.X_test, problem.likelihood)
        results |= {"probabilities": there.probability, "probability_mass": there.probability_mass}
        if options.moments != "none":
            results["test_latent_mean"] = there.latent_mean[:, None]
            results["test_latent_cov"] = there.latent_var[:, None, None]
    if options.gradients:
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
        settings={"tolerance": options.tolerance} | ({"reason": fit.reason} if fit.reason else {}),
        **results,
    )


def _given(problem: Problem) -> tuple[Any, ...]:
    return problem.X, problem.y_sign, _hyper(problem), problem.likelihood


def _on_all_data(method: str, problem: Problem, options: Any) -> Solution:
    fit = fit_vi(method, *_given(problem), options=options)
    return _solution(problem, method, fit, options)


def _svi(problem: Problem, options: Any) -> Solution:
    if not options.in_parts:
        return _on_all_data("svi", problem, options)
    return _solution(problem, "svi", fit_svi_batches(*_given(problem), options=options), options)


TABLE = {
    "svi": Adapter(options_of("svi"), _svi, KERNELS),
    **{
        method: Adapter(options_of(method), partial(_on_all_data, method), KERNELS)
        for method in ("vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")
    },
}
