"""GPy: expectation propagation and Laplace's approximation with its Bernoulli (probit) likelihood, on all rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.door.problem import Problem
from validation.peers.program import Program, binary, diagonal, no_jitter


def _kernel(problem: Problem) -> Any:
    import GPy

    no_jitter(problem)
    kernel = GPy.kern.RBF(
        problem.d, variance=float(problem.variance[0]), lengthscale=problem.lengthscales[0].copy(), ARD=problem.d > 1
    )
    return kernel + GPy.kern.White(problem.d, variance=float(problem.noise[0])) if problem.noise[0] > 0.0 else kernel


def _fitted(problem: Problem, inference: Any) -> Mapping[str, Any]:
    import GPy

    model = GPy.core.GP(
        problem.X.copy(), problem.y[:, None].astype(float), kernel=_kernel(problem),
        likelihood=GPy.likelihoods.Bernoulli(), inference_method=inference,
    )  # fmt: skip
    posterior = model.posterior
    fields: dict[str, Any] = {
        "log_evidence": float(model.log_likelihood()),
        "latent_mean": posterior.mean.reshape(-1, 1),
        "latent_cov": diagonal(posterior.covariance.diagonal().reshape(-1, 1)),
    }
    if problem.t:
        mean, variance = model.predict_noiseless(problem.X_test)
        fields |= {
            "test_latent_mean": mean,
            "test_latent_cov": diagonal(variance),
            "probabilities": binary(model.predict(problem.X_test)[0]),
        }
    return fields


def _ep(problem: Problem) -> Mapping[str, Any]:
    from GPy.inference.latent_function_inference.expectation_propagation import EP

    return _fitted(problem, EP(epsilon=1e-12))


def _laplace(problem: Problem) -> Mapping[str, Any]:
    from GPy.inference.latent_function_inference import Laplace

    return _fitted(problem, Laplace())


ep = Program("gpy-ep", "GPy", "GPy", ("epgpc",), ("probit",), "all rows", _ep)
laplace = Program("gpy-laplace", "GPy", "GPy", ("laplace-binary",), ("probit",), "all rows", _laplace)

PROGRAMS = (ep, laplace)
