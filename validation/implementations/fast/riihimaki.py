"""Methods of riihimaki2013 in `fast`: nested EP and its rivals, full GPs of several classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fast.full_classes.learning import Searched, search
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.methods import laplace, nested_ep, nested_iep, quadrature_ep, vb_probit
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution


def require(problem: Problem, likelihood: str, who: str) -> None:
    """Refuse a problem that a method of full GPs for several classes cannot answer."""
    if problem.likelihood != likelihood:
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected {likelihood!r} for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is not None or problem.prior_model != "full":
        raise ValueError(f"Z: found inducing inputs, expected None: {who} takes full GPs")


def prepared(problem: Problem) -> MulticlassPrior:
    """What the methods take."""
    return prepare(
        problem.X,
        problem.y,
        problem.n_classes,
        problem.variance,
        problem.lengthscales,
        problem.noise,
        problem.jitter,
        shared=problem.shared,
    )


def learned_problem(problem: Problem, found: Searched) -> Problem:
    """The problem with the values that were learned."""
    hyper = found.hyper
    return problem.replace(variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise)


def _learn(
    problem: Problem,
    prior: MulticlassPrior,
    module: Any,
    run: Callable[..., Any],
    value: Callable[[Any], float | None],
    warm: Callable[[Any], Any],
    learn: Sequence[str],
    max_iterations: int,
    learn_tolerance: float,
    sits_on: str,
    map_density: str,
    callback: Callable[[Any], None] | None,
) -> Searched:
    return search(
        prior,
        lambda here, start: run(here, start=start),
        lambda posterior: (value(posterior), module.gradients(posterior)),
        learn=learn,
        hyperprior=problem.hyperprior,
        sits_on=sits_on,
        map_density=map_density,
        max_iterations=max_iterations,
        learning_tolerance=learn_tolerance,
        warm_start=warm,
        callback=callback,
    )


def _predicted(found: Any) -> dict[str, Any]:
    return {
        "test_latent_mean": found.latent_mean,
        "test_latent_cov": found.latent_cov,
        "probabilities": found.probabilities,
        "probability_mass": found.probability_mass,
    }


def _gradients(found: Any) -> dict[str, Any] | None:
    return None if found is None else dict(found._asdict())


def check_learning(learn: Sequence[str], optimizer: str, allowed: tuple[str, ...] = ("lbfgs",)) -> None:
    """Refuse an optimiser that there is not."""
    arguments.choice(optimizer, allowed, "optimizer")


def _solution(
    problem: Problem,
    method: str,
    posterior: Any,
    module: Any,
    found: Searched | None,
    *,
    gradients: bool,
    local: dict[str, Any],
    fields: dict[str, Any],
    kind: str = "estimate",
    log_evidence: float | None,
    trace: Any = None,
    iterations: int | None = None,
    settings: dict[str, Any] | None = None,
) -> Solution:
    n_improper = getattr(posterior, "n_improper", 0)
    with_gradients = gradients and log_evidence is not None
    settings = dict(settings or {})
    if found is not None:
        settings |= {
            "learning": found.reason,
            "evaluations": found.n_evaluations,
            "refused": found.n_refused,
            "objective": found.objective,
        }
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        log_evidence=log_evidence,
        log_evidence_kind=kind,
        latent_mean=posterior.latent_mean,
        latent_cov=posterior.latent_cov,
        gradients=_gradients(module.gradients(posterior)) if with_gradients else None,
        local=local,
        trace=np.zeros(0) if trace is None else np.asarray(trace),
        residual=finite_or_none(posterior.residual),
        converged=bool(posterior.converged and (found is None or found.converged)),
        n_improper=n_improper,
        iterations=posterior.iterations if iterations is None else iterations,
        settings=settings,
        **fields,
    )


def _nested(
    method: str,
    module: Any,
    warm: Callable[[Any], Any],
    problem: Problem,
    *,
    schedule: str = "parallel",
    damping: float = 0.8,
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    inner: str = "converged",
    inner_schedule: str = "sequential",
    inner_damping: float = 1.0,
    prediction: str = "inner-ep",
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    optimizer: str = "lbfgs",
    learn_tolerance: float = 1e-5,
    sits_on: str = "field",
    map_density: str = "value",
    gradients: bool = True,
    accelerate: bool = True,
    trace: bool = False,
    block_size: int = 1024,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require(problem, "multinomial-probit", f"fast {method}")
    max_iterations = (200 if learn else 1000) if max_iterations is None else max_iterations
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, accelerate=accelerate, trace=trace)
    refuse_callback(callback)
    arguments.integer(block_size, "block_size", at_least=1)
    arguments.choice(prediction, ("inner-ep", "quadrature"), "prediction")
    check_learning(learn, optimizer)
    prior = prepared(problem)
    run = partial(
        module.converge,
        schedule=schedule,
        damping=damping,
        tolerance=tolerance,
        inner=inner,
        inner_schedule=inner_schedule,
        inner_damping=inner_damping,
        accelerate=accelerate,
    )
    found: Searched | None = None
    if learn:
        found = _learn(
            problem, prior, module, run, lambda at: at.log_evidence, warm, learn, max_iterations, learn_tolerance,
            sits_on, map_density, callback,
        )  # fmt: skip
        posterior, problem = found.posterior, learned_problem(problem, found)
    else:
        posterior = run(prior, max_iterations=max_iterations, callback=callback)
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        fields = _predicted(
            module.predict(
                posterior, problem.X_test, prediction=prediction, prediction_nodes=prediction_nodes,
                block_size=block_size,
            )
        )  # fmt: skip
    names = ("alpha_tilde", "beta_tilde", "site_precision", "site_location", "log_tilted_norm")
    values = found.trace if found is not None else posterior.trace
    return _solution(
        problem,
        method,
        posterior,
        module,
        found,
        gradients=gradients,
        local={name: getattr(posterior, name) for name in names},
        fields=fields,
        log_evidence=posterior.log_evidence,
        trace=values if (trace or found is not None) and np.isfinite(values).all() else None,
        iterations=None if found is None else len(found.trace),
        settings={"schedule": schedule, "damping": damping, "tolerance": tolerance, "inner": inner}
        | {"inner_schedule": inner_schedule, "prediction": prediction, "accelerate": accelerate},
    )


_nested_ep = partial(_nested, "nested-ep", nested_ep, lambda at: (at.alpha_tilde, at.beta_tilde))
_nested_iep = partial(_nested, "nested-iep", nested_iep, nested_iep.warm)


def _laplace_like(
    method: str,
    problem: Problem,
    *,
    tolerance: float,
    max_iterations: int | None,
    prediction_nodes: int | None,
    learn: Sequence[str],
    optimizer: str,
    learn_tolerance: float,
    sits_on: str,
    map_density: str,
    gradients: bool,
    block_size: int,
    callback: Callable[[Any], None] | None,
) -> Solution:
    require(problem, "softmax", f"fast {method}")
    max_iterations = (200 if learn else 100) if max_iterations is None else max_iterations
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients)
    refuse_callback(callback)
    arguments.integer(block_size, "block_size", at_least=1)
    check_learning(learn, optimizer)
    prior = prepared(problem)
    found: Searched | None = None
    if learn:
        found = _learn(
            problem, prior, laplace, partial(laplace.converge, tolerance=tolerance), lambda at: at.log_evidence,
            lambda at: at.mode.slope, learn, max_iterations, learn_tolerance, sits_on, map_density, callback,
        )  # fmt: skip
        posterior, problem = found.posterior, learned_problem(problem, found)
    else:
        posterior = laplace.converge(prior, tolerance=tolerance, max_iterations=max_iterations, callback=callback)
    fields: dict[str, Any] = {}
    local = {"pi": posterior.pi}
    converged = True
    if problem.X_test is not None and method == "laplace":
        fields = _predicted(
            laplace.predict(posterior, problem.X_test, prediction_nodes=prediction_nodes, block_size=block_size)
        )
    elif problem.X_test is not None:
        corrected = laplace.predict_tkp(posterior, problem.X_test)
        fields = _predicted(corrected.prediction)
        local["tkp_scores"], converged = corrected.scores, corrected.converged
    return _solution(
        problem,
        method,
        posterior,
        laplace,
        found,
        gradients=gradients,
        local=local,
        fields=fields,
        log_evidence=posterior.log_evidence,
        trace=None if found is None else found.trace,
        iterations=None if found is None else len(found.trace),
        settings={"tolerance": tolerance} | ({} if converged else {"extended modes": "not all converged"}),
    )


def _laplace(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    optimizer: str = "lbfgs",
    learn_tolerance: float = 1e-5,
    sits_on: str = "field",
    map_density: str = "value",
    gradients: bool = True,
    block_size: int = 1024,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    options = {name: value for name, value in locals().items() if name != "problem"}
    return _laplace_like("laplace", problem, **options)


def _laplace_tkp(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    learn: Sequence[str] = (),
    optimizer: str = "lbfgs",
    learn_tolerance: float = 1e-5,
    sits_on: str = "field",
    map_density: str = "value",
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    options = {name: value for name, value in locals().items() if name != "problem"}
    return _laplace_like("laplace-tkp", problem, prediction_nodes=None, block_size=1024, **options)


def _vb_probit(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    max_iterations: int | None = None,
    accelerate: bool = True,
    learn: Sequence[str] = (),
    optimizer: str = "lbfgs",
    learn_tolerance: float = 1e-5,
    sits_on: str = "field",
    map_density: str = "value",
    gradients: bool = True,
    trace: bool = False,
    block_size: int = 1024,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    require(problem, "multinomial-probit", "fast vb-probit")
    max_iterations = (200 if learn else 10_000) if max_iterations is None else max_iterations
    refuse(tolerance, max_iterations)
    refuse_switches(gradients=gradients, accelerate=accelerate, trace=trace)
    refuse_callback(callback)
    arguments.integer(block_size, "block_size", at_least=1)
    check_learning(learn, optimizer, ("lbfgs", "em"))
    prior = prepared(problem)
    found: Searched | None = None
    if learn and optimizer == "em":
        if problem.hyperprior is not None:
            raise ValueError("optimizer: found 'em' with a hyperprior, expected 'lbfgs'")
        found = vb_probit.alternate(
            prior, learn=learn, tolerance=tolerance, max_iterations=max_iterations, learning_tolerance=learn_tolerance,
            callback=callback,
        )  # fmt: skip
        posterior, problem = found.posterior, learned_problem(problem, found)
    elif learn:
        found = _learn(
            problem, prior, vb_probit, partial(vb_probit.converge, tolerance=tolerance), lambda at: at.elbo,
            lambda at: at.posterior.weights, learn, max_iterations, learn_tolerance, sits_on, map_density, callback,
        )  # fmt: skip
        posterior, problem = found.posterior, learned_problem(problem, found)
    else:
        posterior = vb_probit.converge(
            prior, tolerance=tolerance, max_iterations=max_iterations, accelerate=accelerate, callback=callback
        )
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        fields = _predicted(vb_probit.predict(posterior, problem.X_test, block_size=block_size))
    return _solution(
        problem,
        "vb-probit",
        posterior,
        vb_probit,
        found,
        gradients=gradients,
        local={"expected_auxiliary": posterior.expected_auxiliary},
        fields=fields,
        kind="lower bound",
        log_evidence=posterior.elbo,
        trace=found.trace if found is not None else posterior.trace if trace else None,
        iterations=None if found is None else len(found.trace),
        settings={"tolerance": tolerance, "accelerate": accelerate},
    )


def _quadrature(
    method: str, problem: Problem, fit: Callable[..., Any], settings: dict[str, Any], **options: Any
) -> Solution:
    require(problem, "multinomial-probit", f"fast {method}")
    refuse(settings["tolerance"], settings["max_iterations"])
    refuse_switches(gradients=options["gradients"], accelerate=settings["accelerate"], trace=options["trace"])
    refuse_callback(options["callback"])
    arguments.integer(options["block_size"], "block_size", at_least=1)
    arguments.choice(options["prediction"], ("inner-ep", "quadrature"), "prediction")
    if len(options["learn"]):
        names = (options["learn"],) if isinstance(options["learn"], str) else tuple(options["learn"])
        raise ValueError(f"learn: found {shown(names)}, expected (): {method} does not learn parameters")
    posterior = fit(
        problem.X,
        problem.y,
        problem.n_classes,
        problem.variance,
        problem.lengthscales,
        problem.noise,
        problem.jitter,
        shared=problem.shared,
        callback=options["callback"],
        **settings,
    )
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        fields = _predicted(
            quadrature_ep.predict(
                posterior, problem.X_test, prediction=options["prediction"],
                prediction_nodes=options["prediction_nodes"], block_size=options["block_size"],
            )
        )  # fmt: skip
    names = ("lambda_tilde", "xi", "site_precision", "site_location", "log_tilted_norm")
    values = posterior.trace
    return _solution(
        problem,
        method,
        posterior,
        quadrature_ep,
        None,
        gradients=options["gradients"],
        local={name: value for name in names if (value := getattr(posterior, name)) is not None},
        fields=fields,
        log_evidence=posterior.log_evidence,
        trace=values if options["trace"] and np.isfinite(values).all() else None,
        settings={**settings, "prediction": options["prediction"]},
    )


def _qep(
    problem: Problem,
    *,
    schedule: str = "parallel",
    damping: float = 0.8,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    nodes: int = 10,
    lambda_: str = "diagonal",
    prediction: str = "quadrature",
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    gradients: bool = True,
    accelerate: bool = True,
    trace: bool = False,
    block_size: int = 1024,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    settings: dict[str, Any] = {"schedule": schedule, "damping": damping, "tolerance": tolerance}
    settings |= {"max_iterations": max_iterations, "nodes": nodes, "lambda_": lambda_, "accelerate": accelerate}
    return _quadrature(
        "qep", problem, quadrature_ep.fit_qep, settings, prediction=prediction, prediction_nodes=prediction_nodes,
        learn=learn, gradients=gradients, trace=trace, block_size=block_size, callback=callback,
    )  # fmt: skip


def _qiep(
    problem: Problem,
    *,
    schedule: str = "parallel",
    damping: float = 0.8,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    nodes: int = 10,
    prediction: str = "quadrature",
    prediction_nodes: int | None = None,
    learn: Sequence[str] = (),
    gradients: bool = True,
    accelerate: bool = True,
    trace: bool = False,
    block_size: int = 1024,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    settings: dict[str, Any] = {"schedule": schedule, "damping": damping, "tolerance": tolerance}
    settings |= {"max_iterations": max_iterations, "nodes": nodes, "accelerate": accelerate}
    return _quadrature(
        "qiep", problem, quadrature_ep.fit_qiep, settings, prediction=prediction, prediction_nodes=prediction_nodes,
        learn=learn, gradients=gradients, trace=trace, block_size=block_size, callback=callback,
    )  # fmt: skip


TABLE = {
    "nested-ep": _nested_ep,
    "nested-iep": _nested_iep,
    "qep": _qep,
    "qiep": _qiep,
    "laplace": _laplace,
    "laplace-tkp": _laplace_tkp,
    "vb-probit": _vb_probit,
}
