"""svi, vi-jj, vi-jj-full, vi-jj-hybrid and vi-taylor of `fast`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from fast.core.options import Gradients, Moments, Options
from fast.methods import svi, vi_jj, vi_taylor
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.common import binary_gradients, finite_or_none
from validation.implementations.fast.one_latent import given, learned, moments, predictions, projections
from validation.implementations.witness import Adapter


def _solution(method: str, problem: Problem, posterior: Any, options: Any, **fields: Any) -> Solution:
    """What all answers have; the moments of the latent values only where they are asked for."""
    at_data = fields.pop("at_data", posterior)
    known = moments(posterior, at_data)
    if options.moments == "none":
        known = {name: value for name, value in known.items() if name.startswith("inducing")}
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        evidence_prior_model="full",
        trace=posterior.trace,
        iterations=posterior.iterations,
        **known,
        **fields,
    )


def _quadratic(method: str, module: Any, fit: Any, kind: str, problem: Problem, options: Any) -> Solution:
    """A method of local quadratics."""
    if hasattr(options, "likelihood"):
        options = replace(options, likelihood=problem.likelihood)
    posterior = fit(*given(problem), options)
    names = ("n_upd", "n_fun", "tolerance", "max_iterations", "accelerate", "block_size", "likelihood")
    settings = {name: getattr(options, name) for name in names if hasattr(options, name)}
    settings["learn"] = list(options.learn)
    settings |= projections(problem, posterior)
    if posterior.learning is not None:
        problem = learned(problem, posterior.prior.hyper, getattr(posterior.prior, "Z", None))
        settings |= {"learning": posterior.learning.reason, "evaluations": posterior.learning.n_evaluations}
    return _solution(
        method,
        problem,
        posterior,
        options,
        log_evidence=posterior.elbo,
        log_evidence_kind=kind,
        local={"xi": posterior.xi},
        gradients=binary_gradients(module.gradients(posterior)) if options.gradients else None,
        residual=finite_or_none(posterior.residual),
        converged=posterior.converged,
        settings=settings,
        **predictions(module, posterior, problem, block_size=options.block_size),
    )


def _svi(problem: Problem, options: Any) -> Solution:
    options = replace(options, likelihood=problem.likelihood)
    settings = {"learn": list(options.learn), "block_size": options.block_size}
    if options.stochastic:
        return _steps(problem, options, settings)
    posterior, hyper = svi.fit(*given(problem), options)
    problem = learned(problem, hyper, None if problem.Z is None else problem.Z[0]) if options.learn else problem
    link = {"likelihood": options.likelihood, "block_size": options.block_size}
    return _solution(
        "svi",
        problem,
        posterior,
        options,
        log_evidence=posterior.elbo,
        log_evidence_kind="lower bound",
        gradients=binary_gradients(svi.gradients(posterior)) if options.gradients else None,
        residual=finite_or_none(posterior.residual),
        converged=posterior.converged,
        settings=settings | {"tolerance": options.tolerance} | projections(problem, posterior),
        **predictions(svi, posterior, problem, **link),
    )


def _steps(problem: Problem, options: Any, settings: dict[str, Any]) -> Solution:
    """svi on mini-batches."""
    run = svi.fit_stochastic(*given(problem), options)
    assert problem.Z is not None
    problem = learned(problem, run.hyper, problem.Z[0]) if options.learn else problem
    mean, var = svi.latent(run, problem.X, block_size=options.block_size)
    return _solution(
        "svi",
        problem,
        run,
        options,
        at_data=SimpleNamespace(latent_mean=mean, latent_var=var),
        log_evidence=svi.bound(run, problem.X, problem.y, block_size=options.block_size),
        log_evidence_kind="lower bound",
        local={"chol_cov": run.chol_cov},
        converged=False,
        settings=settings | {"rate": options.rate, "seed": options.seed},
        **predictions(SimpleNamespace(predict=svi.predict_run), run, problem, block_size=options.block_size),
    )


def _adapter(options: type[Options], run: Any) -> Adapter:
    return Adapter(options.joined(Moments, Gradients), run, ("se", "matern"))


def _local(method: str, options: type[Options], fit: Any, module: Any = vi_jj, kind: str = "lower bound") -> Adapter:
    return _adapter(options, partial(_quadratic, method, module, fit, kind))


TABLE = {
    "svi": _adapter(svi.SVIOptions.joined(svi.SVISteps), _svi),
    "vi-jj": _local("vi-jj", vi_jj.JJOptions, vi_jj.fit),
    "vi-jj-full": _local("vi-jj-full", vi_jj.JJFullOptions, vi_jj.fit_full),
    "vi-jj-hybrid": _local("vi-jj-hybrid", vi_jj.JJHybridOptions, vi_jj.fit_hybrid),
    "vi-taylor": _local("vi-taylor", vi_taylor.TaylorOptions, vi_taylor.fit, vi_taylor, "estimate"),
}
