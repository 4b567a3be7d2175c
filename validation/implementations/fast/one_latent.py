"""What the methods of one latent function share: a problem as `fast` takes it, and an answer from a posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fast.core.values import Data, Prior
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.common import binary_gradients, finite_or_none


def given(problem: Problem) -> tuple[Data, Prior]:
    """Data and prior of a problem of two classes."""
    prior = Prior(
        problem.variance[0],
        problem.lengthscales[0],
        problem.noise[0],
        problem.jitter[0],
        None if problem.Z is None else problem.Z[0],
        smoothness=None if problem.smoothness is None else float(problem.smoothness[0]),
    )
    return Data(problem.X, problem.y), prior


def learned(problem: Problem, hyper: Any, Z: Any) -> Problem:
    """The problem with the values that were learned."""
    return replace(
        problem,
        variance=np.atleast_1d(hyper.variance),
        lengthscales=hyper.lengthscales[None],
        noise=np.atleast_1d(hyper.noise),
        Z=None if Z is None else np.asarray(Z)[None],
    )


def predictions(module: Any, posterior: Any, problem: Problem, **options: Any) -> dict[str, Any]:
    """Fields of a Solution from predictions at the test points, if there are some.

    module    of the method: predict
    options   of the predictions
    """
    if problem.X_test is None:
        return {}
    at_test = module.predict(posterior, problem.X_test, **options)
    return {
        "test_latent_mean": at_test.latent_mean[:, None],
        "test_latent_cov": at_test.latent_var[:, None, None],
        "probabilities": at_test.probabilities,
        "probability_mass": at_test.probability_mass,
    }


def moments(posterior: Any, at_data: Any = None) -> dict[str, Any]:
    """The same from q at the data and at the inducing points; at_data: where the posterior does not know them."""
    at_data = posterior if at_data is None else at_data
    return {
        "latent_mean": at_data.latent_mean[:, None],
        "latent_cov": at_data.latent_var[:, None, None],
        "inducing_mean": posterior.inducing_mean[None],
        "inducing_cov": posterior.inducing_cov[None],
    }


def projections(problem: Problem, posterior: Any) -> dict[str, str]:
    """The setting that states whether projections were kept between sweeps; empty for a full process."""
    return {} if problem.Z is None else {"projections": "recomputed" if posterior.prior.cached is None else "kept"}


def to_fixed_point(
    problem: Problem, options: Any, *, method: str, module: Any, own: Any = None, settings: Any = None, **fields: Any
) -> Solution:
    """An answer on all data at once, parameters of the prior learned or not.

    module      of the method: fit, fit_learning, gradients, predict
    own         posterior -> more fields of the Solution
    settings    more of them
    fields      of the Solution; what is a function is called with the posterior
    """
    kept = (name for name in ("tolerance", "block_size", "accelerate") if hasattr(options, name))
    settings = {name: getattr(options, name) for name in kept} | (settings or {})
    search: Any = None
    if options.learn:
        posterior, search = module.fit_learning(*given(problem), options)
        problem = learned(problem, search.hyper, search.Z)
        settings |= {"learning": search.reason, "evaluations": search.n_evaluations}
    else:
        posterior = module.fit(*given(problem), options)
    settings |= projections(problem, posterior)
    fields = {name: value(posterior) if callable(value) else value for name, value in fields.items()}
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        gradients=binary_gradients(module.gradients(posterior)) if options.gradients else None,
        trace=search.trace if search else posterior.trace,
        residual=finite_or_none(posterior.residual),
        converged=posterior.converged and (search is None or search.converged),
        iterations=len(search.trace) if search else posterior.iterations,
        settings=settings,
        **moments(posterior),
        **fields,
        **({} if own is None else own(posterior)),
        **predictions(module, posterior, problem, block_size=options.block_size),
    )


def on_batches(
    problem: Problem,
    options: Any,
    *,
    method: str,
    module: Any,
    settings: Any,
    local: Any,
    block_size: int = 4096,
    **fields: Any,
) -> Solution:
    """An answer from natural gradients on mini-batches.

    module      of the method: fit, predict, bound
    settings    run -> what the Solution says of it
    local       run and latent values at the data -> local parameters
    block_size  of predictions and of the bound
    fields      of the Solution
    """
    run = module.fit(*given(problem), options)
    problem = learned(problem, run.hyper, run.Z)
    train = module.predict(run, problem.X, block_size=block_size)
    return Solution(
        problem=problem,
        implementation="fast",
        method=method,
        log_evidence=module.bound(run, problem.X, problem.y, block_size=block_size),
        log_evidence_kind="lower bound",
        local=local(run, train),
        trace=run.trace,
        converged=run.converged and not run.diverged,
        iterations=run.iterations,
        settings={"reason": run.reason, "diverged": run.diverged} | settings(run),
        **moments(run, train),
        **fields,
        **predictions(module, run, problem, block_size=block_size),
    )
