"""laplace-sparse, a baseline of villacampa2020's appendix C, in `fast`."""

from __future__ import annotations

from typing import Any

from fast.core.options import Nodes
from fast.methods import laplace_sparse
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.fast.inducing import EITHER, given, predictions, refuse_rest
from validation.implementations.witness import Adapter


def _answer(problem: Problem, options: Any) -> Solution:
    refuse_rest(problem, "fast laplace-sparse", EITHER)
    posterior = laplace_sparse.fit(*given(problem), options)
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        nodes = options.prediction_nodes
        fields = predictions(laplace_sparse.predict(posterior, problem.X_test, prediction_nodes=nodes))
    return Solution(
        problem=problem,
        implementation="fast",
        method="laplace-sparse",
        log_evidence=posterior.log_evidence,
        evidence_prior_model="fitc",
        latent_mean=posterior.latent_mean,
        latent_cov=posterior.latent_cov,
        inducing_mean=posterior.inducing_mean,
        inducing_cov=posterior.inducing_cov,
        local={"pi": posterior.pi},
        residual=posterior.residual,
        converged=posterior.converged,
        iterations=posterior.iterations,
        settings={"tolerance": options.tolerance},
        **fields,
    )


TABLE = {"laplace-sparse": Adapter(laplace_sparse.SparseLaplaceOptions.joined(Nodes), _answer)}
