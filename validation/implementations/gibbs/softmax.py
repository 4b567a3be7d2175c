"""Chains for the softmax likelihood, with log Z by the routes that share no code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gibbs.core.options import HELD, SoftmaxOptions
from gibbs.evidence import softmax_annealed, softmax_bridge
from gibbs.evidence.result import LogEvidence, Workers
from gibbs.models import softmax
from gibbs.models.multilatent import check
from gibbs.models.softmax import SoftmaxChains
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.gibbs.asked import by_keywords, moments_of, values
from validation.implementations.gibbs.diagnosis import diagnosed
from validation.implementations.gibbs.hyper import learning
from validation.implementations.gibbs.multilatent import best_route


@by_keywords(HELD["mh-softmax"])
def _mh_softmax(problem: Problem, options: Any) -> Solution:
    if problem.likelihood != "softmax":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'softmax' for gibbs mh-softmax")
    lengths = {name: getattr(options, name) for name in ("n_chains", "n_draws", "n_warmup", "thin")}
    chains = softmax.sample(*values(problem), SoftmaxOptions.of(vars(options)))
    routes = _log_evidence(problem, chains, options)
    best = best_route(routes)
    diagnosis = diagnosed(chains, chains.convergence, options.n_chains)
    return Solution(
        problem=problem,
        implementation="gibbs",
        method="mh-softmax",
        log_evidence=None if best is None else best.value,
        log_evidence_se=None if best is None else best.standard_error,
        log_evidence_kind="sampled",
        ess=diagnosis.ess,
        r_hat=diagnosis.r_hat,
        converged=diagnosis.converged,
        local={
            **{f"log_evidence_{name}": np.array([r.value, r.standard_error]) for name, r in routes.items()},
            "log_joint": chains.log_joint,
        },
        trace=chains.log_joint[0],
        iterations=chains.n_sweeps,
        settings={
            **lengths,
            "moves": list(options.moves),
            "seed": options.seed,
            "collapsed": list(chains.collapsed),
            "warmed_up": chains.warmed_up,
            "movement": float(chains.movement.min()),
            "n_kicks": chains.n_kicks,
            "quadrature_error": chains.quadrature_error,
            "sampling_seconds": chains.seconds,
            "sweeps_per_second": chains.sweeps_per_second,
            **{f"acceptance_{name}": float(value.mean()) for name, value in chains.acceptance.items()},
            **{f"step_{name}": value for name, value in chains.step_size.items()},
            **diagnosis.settings,
            **{f"trusted_{name}": bool(r.trusted) for name, r in routes.items()},
        },
        **moments_of(chains, problem),
    )


def _log_evidence(problem: Problem, chains: SoftmaxChains, options: Any) -> dict[str, LogEvidence]:
    """log Z by each route asked for, "chains": bridge sampling from the draws; "particles", annealed; "all".

    Each takes arrays and a generator of its own, so that they share no code; particles never see the draws.
    """
    if options.evidence == "none":
        return {}
    results: dict[str, LogEvidence] = {}
    cov = check(*values(problem), problem.n_classes).prior.K_XX
    p = problem.n * (problem.n_classes - 1)
    r, s = chains.latent_draws.shape[:2]
    if options.by_draws and s >= 128 and r * s >= 20 * p:  # fewer draws fit no Gaussian
        second = np.random.default_rng(np.random.SeedSequence([options.seed, 1]).spawn(2)[1])
        results["bridge"] = softmax_bridge.log_evidence(second, cov, problem.y, chains.latent_draws)
    if options.by_particles:
        results |= _annealed(problem, cov, options.seed, options.target_error)
    return results


def particles(
    problem: Problem, seed: int, target_error: float, workers: Workers | None = None
) -> dict[str, LogEvidence]:
    """log Z by annealed particles, under the name of the route; workers: how islands are worked."""
    cov = check(*values(problem), problem.n_classes).prior.K_XX
    return _annealed(problem, cov, seed, target_error, workers)


def _annealed(
    problem: Problem, cov: NDArray[np.float64], seed: int, target_error: float, workers: Workers | None = None
) -> dict[str, LogEvidence]:
    first = np.random.default_rng(np.random.SeedSequence([seed, 1]).spawn(2)[0])
    plan = softmax_annealed.choose_schedule(first, cov, problem.y)
    return {
        "annealed": softmax_annealed.estimate(
            first, plan, workers, replace(softmax_annealed.DEFAULTS, target_error=target_error)
        )
    }


TABLE = {"mh-softmax": learning("mh-softmax", _mh_softmax)}
