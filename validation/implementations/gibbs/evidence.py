"""log Z of the probit and threshold chains by two routes that share no code: from their draws, and by particles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gibbs.evidence import fitted, sequential
from gibbs.evidence.result import LogEvidence, Workers
from gibbs.models.multilatent import MultiLatentChains, check
from validation.door.problem import Problem
from validation.implementations.gibbs.asked import values


def probit_routes(problem: Problem, chains: MultiLatentChains, options: Any) -> dict[str, LogEvidence]:
    """log p(y) by each route asked for: "bridge" from the draws of the chains, "sequential" by particles of its own.

    options: evidence, which says by which; seed; target_error
    """
    if options.evidence == "none":
        return {}
    cov, epsilon = _asked(problem)
    results: dict[str, LogEvidence] = {}
    if options.by_draws:
        second = np.random.default_rng(np.random.SeedSequence([options.seed, 1]).spawn(2)[1])
        draws, error = np.moveaxis(chains.auxiliary_draws, 2, 3), options.target_error
        results["bridge"] = fitted.log_evidence(second, cov, problem.y, draws, epsilon, target_error=error)
    if options.by_particles:
        results |= _sequential(problem, cov, epsilon, options.seed, options.target_error)
    return results


def particles(
    problem: Problem, seed: int, target_error: float, workers: Workers | None = None
) -> dict[str, LogEvidence]:
    """log Z by sequential particles, under the name of the route; workers: how islands are worked."""
    return _sequential(problem, *_asked(problem), seed, target_error, workers)


def _sequential(
    problem: Problem,
    cov: NDArray[np.float64],
    epsilon: float,
    seed: int,
    target_error: float,
    workers: Workers | None = None,
) -> dict[str, LogEvidence]:
    first = np.random.default_rng(np.random.SeedSequence([seed, 1]).spawn(2)[0])
    plan = sequential.choose_schedule_of_labels(cov, problem.y, epsilon)
    return {
        "sequential": sequential.estimate(first, plan, workers, replace(sequential.DEFAULTS, target_error=target_error))
    }


def _asked(problem: Problem) -> tuple[NDArray[np.float64], float]:
    """Covariance of what the label is the largest of, and the probability of a label drawn at random."""
    p = problem
    n_latents = 1 if p.likelihood == "probit" else p.n_classes
    data, prior = values(p)
    setting = check(replace(data, X_test=None), prior, n_latents)
    unit = 0.0 if p.likelihood == "threshold" else 1.0
    return setting.prior.K_XX + unit * np.eye(p.n), p.epsilon if p.likelihood == "threshold" else 0.0
