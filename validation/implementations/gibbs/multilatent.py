"""Chains with one latent function per class, for probit and threshold likelihoods, with log Z by two routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gibbs.core.options import HELD
from gibbs.evidence.result import LogEvidence
from gibbs.models import multinomial_probit, threshold
from gibbs.models.multilatent import MultiLatentChains
from gibbs.models.sampling import LogitChains
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.gibbs.asked import by_keywords, moments_of, values
from validation.implementations.gibbs.diagnosis import diagnosed
from validation.implementations.gibbs.evidence import probit_routes
from validation.implementations.gibbs.hyper import learning


def run_settings(chains: MultiLatentChains | LogitChains) -> dict[str, Any]:
    """How a run went. The options asked for may replace n_draws and n_warmup, so what was done has names of its own."""
    return {
        "n_draws": chains.n_draws,
        "n_warmup": chains.n_warmup,
        "draws_made": chains.n_draws,
        "warmup_made": chains.n_warmup,
        "keep_every": chains.keep_every,
        "warmed_up": bool(chains.warmed_up),
        "target_reached": bool(chains.target_reached),
        "movement": float(chains.movement.min()),
        "quadrature_error": chains.quadrature_error,
        "sampling_seconds": chains.seconds,
        "sweeps_per_second": chains.sweeps_per_second,
    }


def best_route(routes: dict[str, LogEvidence]) -> LogEvidence | None:
    """The one with the least standard error of those trusted, of all where none is; None without routes."""
    trusted = [value for value in routes.values() if value.trusted] or list(routes.values())
    return min(trusted, key=lambda value: value.standard_error, default=None)


def _adapter(
    method: str,
    likelihoods: tuple[str, ...],
    sampler: Callable[..., MultiLatentChains],
    own: Callable[[Problem], dict[str, Any]],
) -> Callable[..., Solution]:
    """The adapter of a sampler: own(problem) has the arguments that it alone takes."""

    @by_keywords(HELD[method])
    def answer(problem: Problem, options: Any) -> Solution:
        if problem.likelihood not in likelihoods:
            who = f"gibbs {method}"
            raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected one of {likelihoods} for {who}")
        chains = sampler(*values(problem), options, **own(problem))
        routes = probit_routes(problem, chains, options)
        asked = {name: getattr(options, name) for name in ("n_chains", "thin", "seed")} | {"moves": list(options.moves)}
        return _multilatent_solution(problem, method, chains, routes, asked)

    return answer


def _multilatent_solution(
    problem: Problem,
    method: str,
    chains: MultiLatentChains,
    routes: dict[str, LogEvidence],
    asked: dict[str, Any],
) -> Solution:
    best = best_route(routes)
    diagnosis = diagnosed(chains, chains.convergence, asked["n_chains"])
    local: dict[str, Any] = {f"log_evidence_{name}": [r.value, r.standard_error] for name, r in routes.items()}
    local["log_joint"] = chains.log_joint
    if chains.error_probability is not None and chains.error_probability_se is not None:
        local["error_probability"] = chains.error_probability
        local["error_probability_se"] = chains.error_probability_se
    return Solution(
        problem=problem,
        implementation="gibbs",
        method=method,
        log_evidence=None if best is None else best.value,
        log_evidence_se=None if best is None else best.standard_error,
        log_evidence_kind="sampled",
        ess=diagnosis.ess,
        r_hat=diagnosis.r_hat,
        converged=diagnosis.converged,
        local=local,
        trace=chains.log_joint[0],
        iterations=chains.n_sweeps,
        settings={
            **asked,
            **run_settings(chains),
            "events_per_sweep": chains.events_per_sweep,
            **diagnosis.settings,
            **{f"trusted_{name}": bool(r.trusted) for name, r in routes.items()},
        },
        **moments_of(chains, problem),
    )


_gibbs_probit = _adapter(
    "gibbs-probit", multinomial_probit.LIKELIHOODS, multinomial_probit.sample, lambda p: {"likelihood": p.likelihood}
)
_gibbs_threshold = _adapter("gibbs-threshold", ("threshold",), threshold.sample, lambda p: {"epsilon": p.epsilon})

TABLE = {
    "gibbs-probit": learning("gibbs-probit", _gibbs_probit),
    "gibbs-threshold": learning("gibbs-threshold", _gibbs_threshold),
}
