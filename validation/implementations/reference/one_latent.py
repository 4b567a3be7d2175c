"""The methods of one latent function in `reference`, wenzel2019 and Laplace's: x-gpc, x-gpc-svi, svgpc, epgpc."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reference.common.laplace_binary import (
    LaplaceFit,
    LearnedFit,
    fit_laplace_binary,
    laplace_binary_gradients,
    laplace_derivatives,
    learn_laplace_binary,
    predict_laplace_binary,
)
from reference.common.options import options_of
from reference.common.priors import Hyper
from reference.wenzel2019 import fit as wenzel2019
from reference.wenzel2019.epgpc import epgpc_gradients
from reference.wenzel2019.fit_epgpc import fit_epgpc, fit_epgpc_batches
from reference.wenzel2019.fit_svgpc import fit_svgpc, fit_svgpc_svi, predict_probit
from reference.wenzel2019.fit_svi import fit_xgpc_svi, optimise_hyperparameters
from reference.wenzel2019.svgpc import svgpc_gradients, svgpc_gradients_at_maximum
from reference.wenzel2019.svi import batch_bound_gradients
from reference.wenzel2019.updates import Gaussian
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.common import finite_or_none, refuse_learning, two_columns
from validation.implementations.witness import Adapter

# of the bound where the ascent ended, in the order of `Derivatives`; the natural gradient is that in eta_1 and eta_2
DERIVATIVES = (
    "derivative_c",
    "second_derivative_c",
    "derivative_inducing_mean",
    "derivative_inducing_cov",
    "natural_gradient_1",
    "natural_gradient_2",
)


def prior_of(problem: Problem) -> tuple[Any, Any, Any, Any, Any]:
    """variance, lengthscales, noise, jitter, Z of a problem with one latent function."""
    Z = None if problem.Z is None else problem.Z[0]
    return float(problem.variance[0]), problem.lengthscales[0], float(problem.noise[0]), float(problem.jitter[0]), Z


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
    return {
        name: shaped.get(name, lambda v: np.asarray(v)[None])(value)
        for name, value in result.items()
        if value is not None
    }


def variational_evidence(problem: Problem) -> str | None:
    """A sparse variational bound is one on the full model's evidence."""
    return "full" if problem.Z is not None else None


def _given(problem: Problem) -> tuple[Any, ...]:
    return problem.X, problem.y_sign, *prior_of(problem)


def _predicted(new: Any) -> dict[str, Any]:
    columns = new.probability if new.probability.ndim == 2 else two_columns(new.probability)
    return {
        "test_latent_mean": new.latent_mean[:, None],
        "test_latent_cov": new.latent_var[:, None, None],
        "probabilities": columns,
        "probability_mass": new.probability_mass,
    }


def _at_test(problem: Problem, fit: Any) -> dict[str, Any]:
    """Predictions of a problem as solved, through the link of its likelihood."""
    if problem.X_test is None:
        return {}
    X, _, *prior = _given(problem)
    if problem.likelihood == "probit":
        return _predicted(predict_probit(Gaussian(fit.inducing_mean, fit.inducing_cov), X, problem.X_test, *prior))
    return _predicted(wenzel2019.predict_xgpc(fit, X, problem.X_test, *prior))


def _solution(method: str, problem: Problem, fit: Any, **fields: Any) -> Solution:
    """What all answers have, of a problem as solved."""
    given = {
        "trace": fit.trace,
        "residual": finite_or_none(fit.residual),
        "converged": fit.converged,
        "iterations": fit.iterations,
        "latent_mean": fit.latent_mean[:, None],
        "latent_cov": fit.latent_var[:, None, None],
        "inducing_mean": fit.inducing_mean[None],
        "inducing_cov": fit.inducing_cov[None],
        **_at_test(problem, fit),
    }
    return Solution(problem=problem, implementation="reference", method=method, **(given | fields))


def _settings(fit: Any, options: Any) -> dict[str, Any]:
    reason = getattr(fit, "reason", "")
    return {"tolerance": options.tolerance} | ({"reason": reason} if reason else {})


def _x_gpc(problem: Problem, options: Any) -> Solution:
    refuse_learning(options.learn, options.optimizer, stochastic=False)
    own: dict[str, Any] = {}
    if options.learn:
        top = optimise_hyperparameters(*_given(problem), options=options)
        fit, solved = top.fit, as_learned(problem, top.hyper, options.learn)
        own = {
            "trace": top.trace,
            "residual": finite_or_none(top.residual),
            "converged": top.converged and fit.converged,
            "iterations": top.iterations,
        }
        local, prior = {}, top.hyper
    else:
        fit, solved, prior = wenzel2019.fit_xgpc(*_given(problem), options=options), problem, Hyper(*prior_of(problem))
        local = dict(zip(DERIVATIVES, fit.derivatives, strict=True))
    gradients = None
    if options.gradients:
        gradients = wenzel2019.bound_gradients(fit, problem.X, problem.y_sign, *prior)._asdict()
    return _solution(
        "x-gpc",
        solved,
        fit,
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        gradients=None if gradients is None else as_gradients(gradients),
        local={"c": np.abs(fit.c)} | local,
        settings=_settings(fit, options),
        **own,
    )


def _x_gpc_svi(problem: Problem, options: Any) -> Solution:
    fit = fit_xgpc_svi(*_given(problem), options=options)
    at = fit.hyper, fit.inducing_mean, fit.inducing_cov, np.arange(problem.n)
    return _solution(
        "x-gpc-svi",
        as_learned(problem, fit.hyper, options.learn),
        fit,
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        gradients=as_gradients(batch_bound_gradients(problem.X, problem.y_sign, *at)) if options.gradients else None,
        local={"rates": fit.rates},
    )


def _in_steps(options: Any) -> bool:
    """Whether mini-batches, or a number of steps, were asked for."""
    stochastic = options.in_parts or options.n_steps is not None
    refuse_learning(options.learn, options.optimizer, stochastic)
    return bool(stochastic)


def _svgpc(problem: Problem, options: Any) -> Solution:
    stochastic = _in_steps(options)
    fit: Any = (fit_svgpc_svi if stochastic else fit_svgpc)(*_given(problem), options=options)
    at = problem.X, problem.y_sign, fit.hyper, fit.inducing_mean, fit.inducing_cov
    gradients = None
    if options.gradients:  # a run of so many steps ends anywhere, a fixed point is a maximum
        gradients = svgpc_gradients(*at, np.arange(problem.n)) if stochastic else svgpc_gradients_at_maximum(*at)
    return _solution(
        "svgpc",
        as_learned(problem, fit.hyper, options.learn),
        fit,
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        evidence_prior_model="full",
        gradients=None if gradients is None else as_gradients(gradients),
        local={"rates": fit.rates} if stochastic else {},
        settings=_settings(fit, options),
    )


def _epgpc(problem: Problem, options: Any) -> Solution:
    fit = (fit_epgpc_batches if _in_steps(options) else fit_epgpc)(*_given(problem), options=options)
    sites = fit.site_precision, fit.site_shift
    at = problem.X, problem.y_sign, fit.hyper, *sites, np.arange(problem.n)
    return _solution(
        "epgpc",
        as_learned(problem, fit.hyper, options.learn),
        fit,
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        evidence_prior_model="full" if problem.Z is None else "fitc",
        gradients=as_gradients(epgpc_gradients(*at)) if options.gradients else None,
        local={"site_precision": sites[0], "site_shift": sites[1]},
        n_improper=fit.n_improper,
        settings=_settings(fit, options),
    )


def _laplace_binary(problem: Problem, options: Any) -> Solution:
    data = problem.X, problem.y_sign, Hyper(*prior_of(problem)), problem.likelihood
    way: LaplaceFit | LearnedFit
    if options.learn:
        end = learn_laplace_binary(*data, options=options)
        fit, way, converged = end.fit, end, end.converged and end.fit.converged
    else:
        fit = way = fit_laplace_binary(*data, options=options)
        converged = fit.converged
    labels = problem.y_sign, problem.likelihood
    predicted: dict[str, Any] = {}
    if problem.X_test is not None:
        there = predict_laplace_binary(fit, problem.X, problem.y_sign, problem.X_test, problem.likelihood)
        predicted = {
            "test_latent_mean": there.latent_mean[:, None],
            "test_latent_cov": there.latent_var[:, None, None],
            "probabilities": there.probabilities,
            "probability_mass": there.probability_mass,
        }
    return Solution(
        problem=as_learned(problem, fit.hyper, options.learn),
        implementation="reference",
        method="laplace-binary",
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        latent_mean=fit.latent_mean[:, None],
        latent_cov=np.diagonal(fit.latent_cov)[:, None, None].copy(),
        inducing_mean=fit.latent_mean[None],
        inducing_cov=fit.latent_cov[None],
        gradients=as_gradients(laplace_binary_gradients(fit, problem.X, *labels)) if options.gradients else None,
        local={"site_precision": -laplace_derivatives(fit.latent_mean, *labels).second},
        trace=way.trace,
        residual=finite_or_none(way.residual),
        converged=converged,
        iterations=way.iterations,
        settings={"tolerance": options.tolerance},
        **predicted,
    )


_METHODS = {
    "x-gpc": _x_gpc,
    "x-gpc-svi": _x_gpc_svi,
    "svgpc": _svgpc,
    "epgpc": _epgpc,
    "laplace-binary": _laplace_binary,
}

TABLE = {method: Adapter(options_of(method), run) for method, run in _METHODS.items()}
