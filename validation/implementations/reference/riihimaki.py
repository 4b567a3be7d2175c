"""The methods of riihimaki2013 of `reference`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.riihimaki2013 import fit as ep
from reference.riihimaki2013 import laplace, type2, variational
from reference.riihimaki2013.fit import Gradients, Prediction, Prior
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution

PREDICTIONS = ("inner-ep", "quadrature")


def _require(problem: Problem, likelihood: str, who: str) -> None:
    """Refuse a problem that the method cannot answer."""
    if problem.likelihood != likelihood:
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected {likelihood!r} for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is not None or problem.prior_model != "full":
        raise ValueError(f"Z: found inducing inputs, expected None: {who} is a full Gaussian process")


def _prior(problem: Problem) -> Prior:
    return Prior(*(np.array(getattr(problem, name)) for name in Prior._fields))


def _gradients(result: Gradients, shared: bool) -> dict[str, Any]:
    """Shared: every row holds the sum over the classes."""
    return {
        name: np.broadcast_to(np.sum(value, axis=0), value.shape) if shared else value
        for name, value in result._asdict().items()
    }


def _predicted(value: Prediction | None) -> dict[str, Any]:
    if value is None:
        return {}
    return {
        "test_latent_mean": value.latent_mean,
        "test_latent_cov": value.latent_cov,
        "probabilities": value.probability,
        "probability_mass": value.probability_mass,
    }


def _search(
    problem: Problem,
    evidence: type2.Evidence,
    learn: Sequence[str],
    optimizer: str,
    max_iterations: int,
    learn_tolerance: float,
    sits_on: str,
    map_density: str,
) -> type2.Found:
    arguments.choice(optimizer, ("lbfgs",), "optimizer")
    return type2.type2_map(
        evidence,
        _prior(problem),
        problem.hyperprior,
        learn,
        problem.shared,
        sits_on,
        map_density,
        max_iterations,
        learn_tolerance,
    )


def _as_learned(problem: Problem, prior: Prior, learn: Sequence[str]) -> Problem:
    given = (learn,) if isinstance(learn, str) else tuple(learn)
    return problem.replace(**{name: getattr(prior, name) for name in given})


def _ep(
    problem: Problem,
    method: str,
    settings: dict[str, Any],
    prediction: str,
    prediction_nodes: int | None,
    learn: Sequence[str],
    search: dict[str, Any],
    gradients: bool,
) -> Solution:
    """One of the four variants of EP."""
    who = f"reference {method}"
    _require(problem, "multinomial-probit", who)
    refuse(settings["tolerance"], settings["max_iterations"])
    refuse_switches(gradients=gradients, trace=settings["trace"])
    refuse_callback(settings["callback"])
    arguments.choice(prediction, PREDICTIONS, "prediction")
    solved, value = problem, None
    if len(learn):
        steps = settings["max_iterations"]
        settings = settings | {"max_iterations": 1000}

        def evidence(prior: Prior) -> tuple[float, Gradients]:
            fit = ep.fit_ep(method, problem.X, problem.y, problem.n_classes, prior, **settings)
            if fit.log_evidence is None or not fit.converged:
                raise ep.NotPositiveDefiniteError(f"{who}: found no fixed point, expected one; lower damping")
            return fit.log_evidence, ep.ep_gradients(fit, problem.X, prior)

        value = _search(problem, evidence, learn, max_iterations=steps, **search)
        solved = _as_learned(problem, value.prior, learn)
    prior = _prior(solved)
    fit = ep.fit_ep(method, solved.X, solved.y, solved.n_classes, prior, **settings)
    stationary = method != "qep" or not settings["diagonal"]
    slopes = None
    if gradients and stationary and fit.log_evidence is not None:
        slopes = _gradients(ep.ep_gradients(fit, solved.X, prior), solved.shared)
    predicted = None
    if solved.X_test is not None:
        predicted = ep.predict_ep(fit, solved.X, solved.X_test, prior, prediction, prediction_nodes)
    independent = method in ("nested-iep", "qiep")
    return Solution(
        problem=solved,
        implementation="reference",
        method=method,
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        latent_mean=fit.latent_mean,
        latent_cov=fit.latent_cov * np.eye(solved.n_classes) if independent else fit.latent_cov,
        gradients=slopes,
        local=fit.local
        | {
            "site_precision": fit.site_precision,
            "site_location": fit.site_location,
            "log_tilted_norm": fit.log_tilted_norm,
        }
        | ({} if fit.moment_gap is None else {"moment_gap": np.array(fit.moment_gap)}),
        trace=fit.trace if value is None else value.trace,
        residual=finite_or_none(fit.residual if value is None else value.residual),
        converged=fit.converged and (value is None or value.converged),
        n_improper=fit.n_improper,
        iterations=fit.iterations if value is None else value.iterations,
        settings={"tolerance": settings["tolerance"], "damping": settings["damping"], "form": fit.form},
        **_predicted(predicted),
    )


def _nested(
    problem: Problem,
    *,
    method: str,
    schedule: str = "parallel",
    inner: str = "converged",
    inner_schedule: str = "sequential",
    inner_damping: float = 1.0,
    damping: float = 0.8,
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    prediction: str = "inner-ep",
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    learn_tolerance: float = 1e-5,
    optimizer: str = "lbfgs",
    sits_on: str = "field",
    map_density: str = "value",
    trace: bool = False,
    form: str | None = None,
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    settings = {
        "form": form,
        "schedule": schedule,
        "inner": inner,
        "inner_schedule": inner_schedule,
        "inner_damping": inner_damping,
        "damping": damping,
        "tolerance": tolerance,
        "max_iterations": _default(max_iterations, 200 if len(learn) else 1000),
        "trace": trace,
        "callback": callback,
    }
    search = {
        "learn_tolerance": learn_tolerance,
        "optimizer": optimizer,
        "sits_on": sits_on,
        "map_density": map_density,
    }
    return _ep(problem, method, settings, prediction, prediction_nodes, learn, search, gradients)


def _quadrature(
    problem: Problem,
    method: str,
    nodes: int,
    diagonal: bool,
    options: dict[str, Any],
    prediction: str,
    prediction_nodes: int | None,
    learn: Sequence[str],
    gradients: bool,
) -> Solution:
    if len(learn):
        raise ValueError(f"learn: found {shown(learn)}, expected (): the evidence of {method} has no exact gradient")
    settings = options | {"nodes": nodes, "diagonal": diagonal}
    return _ep(problem, method, settings, prediction, prediction_nodes, (), {}, gradients)


def _qep(
    problem: Problem,
    *,
    schedule: str = "parallel",
    damping: float = 0.8,
    nodes: int = 10,
    lambda_: str = "diagonal",
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    prediction: str = "quadrature",
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    trace: bool = False,
    form: str | None = None,
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    arguments.choice(lambda_, ("diagonal", "full"), "lambda_")
    options = {
        "form": form,
        "schedule": schedule,
        "damping": damping,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "trace": trace,
        "callback": callback,
    }
    return _quadrature(
        problem, "qep", nodes, lambda_ == "diagonal", options, prediction, prediction_nodes, learn, gradients
    )


def _qiep(
    problem: Problem,
    *,
    schedule: str = "parallel",
    damping: float = 0.8,
    nodes: int = 10,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    prediction: str = "quadrature",
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    trace: bool = False,
    form: str | None = None,
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    options = {
        "form": form,
        "schedule": schedule,
        "damping": damping,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "trace": trace,
        "callback": callback,
    }
    return _quadrature(problem, "qiep", nodes, True, options, prediction, prediction_nodes, learn, gradients)


def _default(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _mass_of_ratios(scores: npt.NDArray[np.float64], variance: float) -> npt.NDArray[np.float64]:
    """Sum of the evidence ratios (t, C) of every test point over its classes, near 1; at variances where no mode is
    reached it is 0 or not finite, and then no probability comes of it: ValueError."""
    mass = np.sum(scores, axis=1)
    if not np.all((mass > 0.0) & np.isfinite(mass)):
        at = int(np.flatnonzero(~((mass > 0.0) & np.isfinite(mass)))[0])
        raise ValueError(
            f"variance: found {variance:g}, at which the evidences of the data with test point {at} "
            f"add up to {mass[at]:g} times that without, expected a ratio near 1: their modes are not reached"
        )
    return mass


def _laplace(
    problem: Problem,
    *,
    method: str,
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    learn_tolerance: float = 1e-5,
    optimizer: str = "lbfgs",
    sits_on: str = "field",
    map_density: str = "value",
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "softmax", f"reference {method}")
    refuse_switches(gradients=gradients)
    refuse_callback(callback)
    limit = _default(max_iterations, 200 if len(learn) else 100)
    refuse(tolerance, limit)
    data = problem.X, problem.y, problem.n_classes
    solved, value = problem, None
    if len(learn):

        def evidence(prior: Prior) -> tuple[float, Gradients]:
            at = laplace.fit_laplace(*data, prior, tolerance)
            return at.log_evidence, laplace.laplace_gradients(at, problem.X, problem.y, prior)

        value = _search(problem, evidence, learn, optimizer, limit, learn_tolerance, sits_on, map_density)
        solved = _as_learned(problem, value.prior, learn)
    prior = _prior(solved)
    fit = laplace.fit_laplace(*data, prior, tolerance, 100 if len(learn) else limit)
    if callback is not None:
        callback(ep.State(fit.iterations, fit.residual, 0))
    slopes = laplace.laplace_gradients(fit, solved.X, solved.y, prior) if gradients else None
    local: dict[str, Any] = {"pi": fit.pi}
    predicted = None
    if solved.X_test is not None:
        predicted = laplace.predict_laplace(fit, solved.X, solved.y, solved.X_test, prior, prediction_nodes)
        if method == "laplace-tkp":
            scores = np.array(
                [
                    laplace.la_tkp(
                        laplace.extended_covariance(solved.X, x, prior), solved.y, solved.n_classes, tolerance
                    )
                    for x in solved.X_test
                ]
            ).reshape(solved.t, solved.n_classes)
            mass = _mass_of_ratios(scores, prior.variance.max())
            local["tkp_scores"] = scores
            predicted = predicted._replace(probability=scores / mass[:, None], probability_mass=mass)
    return Solution(
        problem=solved,
        implementation="reference",
        method=method,
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        latent_mean=fit.latent_mean,
        latent_cov=fit.latent_cov,
        gradients=None if slopes is None else _gradients(slopes, solved.shared),
        local=local,
        trace=np.zeros(0) if value is None else value.trace,
        residual=finite_or_none(fit.residual if value is None else value.residual),
        converged=fit.converged and (value is None or value.converged),
        iterations=fit.iterations if value is None else value.iterations,
        settings={"tolerance": tolerance},
        **_predicted(predicted),
    )


def _vb(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    accelerate: bool = True,
    learn: Sequence[str] = (),
    learn_tolerance: float = 1e-5,
    optimizer: str = "lbfgs",
    sits_on: str = "field",
    map_density: str = "value",
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "multinomial-probit", "reference vb-probit")
    refuse_switches(gradients=gradients, accelerate=accelerate)
    refuse_callback(callback)
    limit = _default(max_iterations, 200 if len(learn) else 10_000)
    refuse(tolerance, limit)
    data = problem.X, problem.y, problem.n_classes
    solved, value = problem, None
    if len(learn):
        arguments.choice(optimizer, ("lbfgs", "em"), "optimizer")

        def evidence(prior: Prior) -> tuple[float, Gradients]:
            at = variational.fit_vb(*data, prior, tolerance)
            return at.log_evidence, variational.vb_gradients(at, problem.X, prior)

        start = _prior(problem)
        if optimizer == "em":
            if problem.hyperprior is not None:
                raise ValueError("optimizer: found 'em' with a hyperprior, expected 'lbfgs'")
            value = type2.vb_alternate(*data, start, learn, problem.shared, limit, learn_tolerance)
        else:
            value = _search(problem, evidence, learn, optimizer, limit, learn_tolerance, sits_on, map_density)
        solved = _as_learned(problem, value.prior, learn)
    prior = _prior(solved)
    fit = variational.fit_vb(*data, prior, tolerance, 10_000 if len(learn) else limit, accelerate)
    if callback is not None:
        callback(ep.State(fit.iterations, fit.residual, 0))
    slopes = variational.vb_gradients(fit, solved.X, prior) if gradients else None
    predicted = None if solved.X_test is None else variational.predict_vb(fit, solved.X, solved.X_test, prior)
    return Solution(
        problem=solved,
        implementation="reference",
        method="vb-probit",
        log_evidence=fit.log_evidence,
        log_evidence_kind="lower bound",
        latent_mean=fit.latent_mean,
        latent_cov=fit.latent_cov,
        gradients=None if slopes is None else _gradients(slopes, solved.shared),
        local={"expected_auxiliary": fit.expected_auxiliary},
        trace=np.zeros(0) if value is None else value.trace,
        residual=finite_or_none(fit.residual if value is None else value.residual),
        converged=fit.converged and (value is None or value.converged),
        iterations=fit.iterations if value is None else value.iterations,
        settings={"tolerance": tolerance},
        **_predicted(predicted),
    )


def _bound(function: Callable[..., Solution], method: str, *without: str) -> Callable[..., Solution]:
    """The adapter for one method, without `method` and others among its options."""
    import inspect

    bound = partial(function, method=method)
    signature = inspect.signature(function)
    kept = [p for name, p in signature.parameters.items() if name not in ("method", *without)]
    bound.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return bound


TABLE = {
    "nested-ep": _bound(_nested, "nested-ep"),
    "nested-iep": _bound(_nested, "nested-iep"),
    "qep": _qep,
    "qiep": _qiep,
    "laplace": _bound(_laplace, "laplace"),
    "laplace-tkp": _bound(_laplace, "laplace-tkp"),
    "vb-probit": _vb,
}
