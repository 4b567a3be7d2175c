"""A sampler's chains in groups, each worked by itself: processes of this machine, or workers of a cluster.

A group is a run of its own, with its share of the chains and a stream that belongs to it, so the digits depend on the
number of groups and on nothing else: not on how many workers there are, nor on who ends first. Annealed and sequential
particles are split island by island, all of them along one schedule that is made here once. What comes back is one
solution, which has to meet the gates that a run of all chains together has to meet.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from validation.door import arguments
from validation.door.premises import chain_gate
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.door.solve import solve, versions
from validation.door.statistics import LEVEL, QUANTITIES
from validation.implementations import gibbs
from validation.jobs import place as places
from validation.jobs import run as jobs_run
from validation.jobs.job import Hear, Job
from validation.jobs.place import Place
from validation.jobs.run import Engine
from validation.jobs.store import Store

# what groups have a share of: independent draws have no chains
SHARED: Mapping[str, str] = {"exact-probit": "n_draws"} | dict.fromkeys(gibbs.CHAINS, "n_chains")
# methods whose particles are split by islands, and the module that knows how
PARTICLES: Mapping[str, str] = {
    "gibbs-logit": "logit",
    "gibbs-probit": "evidence",
    "gibbs-threshold": "evidence",
    "mh-softmax": "softmax",
}
# a file of a run would be one of several groups
REFUSED = ("checkpoint", "callback")


class Group(NamedTuple):
    """One group: what `solve` is asked."""

    method: str
    problem: Problem
    options: Mapping[str, Any]


class Route(Protocol):
    """log Z by one route."""

    @property
    def value(self) -> float:
        """The estimate."""

    @property
    def standard_error(self) -> float:
        """Its error."""

    @property
    def trusted(self) -> bool:
        """Whether the route trusts its error."""


class Island(NamedTuple):
    """One island: a function of a module, and the share that it is called with."""

    module: str
    function: str
    share: Any


def kept_in(folder: Path) -> Store:
    """A store for groups and islands: whoever asks the same again finds those that are done."""
    return Store(folder, "groups of chains", (Solution,))


def solve_groups(
    method: str,
    problem: Problem,
    engine: Engine,
    *,
    groups: int = 4,
    store: Store | None = None,
    **options: Any,
) -> Solution:
    """What `solve("gibbs", method, problem)` answers, its chains in `groups` runs that share nothing.

    Parameters
    ----------
    method : str          a sampler of `gibbs`
    problem : Problem     the question
    engine : Engine       `validation.jobs.run.engine`: processes, or a cluster
    groups : int          runs; n_chains (n_draws of exact-probit) is a multiple of it
    store : Store         where groups and islands are kept (`kept_in`); None: nowhere
    **options             those of the method; seed is that of the whole, from which groups and islands have their own

    Raises
    ------
    ValueError, TypeError    a method without chains, an option that belongs to one run alone, or what `solve` raises
    JobLostError             a group whose workers died
    """
    arguments.integer(groups, "groups", at_least=1)
    if method not in SHARED:
        raise ValueError(f"method: found {shown(method)}, expected one of {', '.join(SHARED)} for groups of chains")
    for name in REFUSED:
        if options.get(name) not in (None, (), []):
            raise ValueError(f"{name}: found {shown(options[name])} with groups, expected it with one run alone")
    defaults = gibbs.defaults(method, sampled=len(options.get("learn") or ()) > 0)
    name = SHARED[method]
    whole = arguments.integer(options.get(name, defaults[name]), name, at_least=groups)
    if whole % groups:
        raise ValueError(f"{name}: found {whole}, expected a multiple of {groups} groups")
    seed = arguments.integer(options.get("seed", 0), "seed", at_least=0)
    evidence = options.get("evidence", defaults.get("evidence"))
    apart = method in PARTICLES and evidence in ("particles", "all")
    asked = {**options, name: whole // groups}
    if apart:
        asked["evidence"] = "chains" if evidence == "all" else "none"
    if options.get("target_ess") is not None:  # of all chains together
        asked["target_ess"] = options["target_ess"] / groups
    seeds = np.random.SeedSequence([seed, 2]).generate_state(groups, dtype=np.uint32)
    jobs = [Job(f"group-{k}", Group(method, problem, {**asked, "seed": int(own)})) for k, own in enumerate(seeds)]
    began = time.perf_counter()
    where: list[Place] = []
    runs = _values(_group, jobs, engine, store, where)
    particles: dict[str, Route] = {}
    if apart:
        module = importlib.import_module(f"validation.implementations.gibbs.{PARTICLES[method]}")
        target = options.get("target_error", defaults["target_error"])
        particles = module.particles(problem, seed, target, _spread(engine, store, where))
    given = {**options, name: whole, "seed": seed, "groups": groups}
    return pooled(runs, particles, given, where, time.perf_counter() - began)


def _group(unit: Group, hear: Hear) -> Solution:
    """The work of one group."""
    return solve("gibbs", unit.method, unit.problem, **unit.options)


def _island(unit: Island, hear: Hear) -> Any:
    """The work of one island."""
    return getattr(importlib.import_module(unit.module), unit.function)(unit.share)


def _values(
    work: Callable[[Any, Hear], Any], jobs: Sequence[Job], engine: Engine, store: Store | None, where: list[Place]
) -> list[Any]:
    """Values of jobs in the order of the list; `where` is told the places."""
    values: dict[str, Any] = {}
    with closing(jobs_run.run(work, jobs, engine, store=store)) as results:
        for done in results:
            if done.lost is not None:
                raise done.lost
            values[done.job.name] = done.value
            if done.place is not None:
                where.append(done.place)
    return [values[job.name] for job in jobs]


def _spread(engine: Engine, store: Store | None, where: list[Place]) -> Callable[..., Iterable[NDArray[np.float64]]]:
    """Islands as jobs of an engine; a second round of an estimate has other names than the first."""
    rounds = 0

    def spread(function: Callable[[Any], NDArray[np.float64]], shares: Sequence[Any]) -> Iterable[NDArray[np.float64]]:
        nonlocal rounds
        rounds += 1
        jobs = [
            Job(f"island-{rounds}-{k}", Island(function.__module__, function.__name__, share))
            for k, share in enumerate(shares)
        ]
        return _values(_island, jobs, engine, store, where)

    return spread


# -- one solution of several -----------------------------------------------------------------------------------------


def pooled(
    runs: Sequence[Solution],
    particles: Mapping[str, Route],
    given: Mapping[str, Any],
    where: Sequence[Place],
    seconds: float,
) -> Solution:
    """Runs of equal length of one sampler on one problem, as one.

    Means and probabilities are averages, covariances averages within runs plus the covariance of the runs' means, and
    standard errors those of an average of independent numbers. ESS is the sum; R-hat the largest of the runs' own and
    of that between runs, sqrt(1 + variance of the runs' means / posterior variance). log Z is the average over runs,
    route by route, and trusted only if each run trusts it and the runs agree at level 1e-4.

    particles    routes to log Z that no run has, by name
    given        options of the whole
    where        who worked
    """
    first, G = runs[0], len(runs)
    fields: dict[str, Any] = {}
    for name in (*QUANTITIES, "probability_mass"):
        if name == "log_evidence" or getattr(first, name) is None:
            continue
        values = np.stack([getattr(run, name) for run in runs])
        fields[name] = values.mean(axis=0)
        if name.endswith("_cov"):
            mean = np.stack([getattr(run, f"{name.removesuffix('_cov')}_mean") for run in runs])
            fields[name] = fields[name] + _covariance_of_means(name, mean)
        if getattr(first, f"{name}_se", None) is not None:
            errors = np.stack([getattr(run, f"{name}_se") for run in runs])
            fields[f"{name}_se"] = np.sqrt(np.square(errors).sum(axis=0)) / G
    routes, trusted = _routes(runs)
    routes |= {name: (route.value, route.standard_error) for name, route in particles.items()}
    trusted |= {name: bool(route.trusted) for name, route in particles.items()}
    best = min((name for name in routes if trusted[name]), key=lambda name: routes[name][1], default=None)
    if best is None and routes:
        best = min(routes, key=lambda name: routes[name][1])
    local: dict[str, Any] = {f"log_evidence_{name}": np.array(pair) for name, pair in routes.items() if name}
    if "log_joint" in first.local:
        local["log_joint"] = np.concatenate([run.local["log_joint"] for run in runs])
    sampled = first.settings.get("learn", ())
    for name in sampled:
        local |= _parameter(name, runs)
    verdict = _verdict(runs, int(given.get("n_chains", 0)))
    return Solution(
        problem=first.problem.replace(**{name: np.exp(local[f"log_{name}_mean"]) for name in sampled}),
        implementation="gibbs",
        method=first.method,
        log_evidence=None if best is None else routes[best][0],
        log_evidence_se=None if best is None else routes[best][1],
        log_evidence_kind=first.log_evidence_kind,
        ess=verdict.ess,
        r_hat=verdict.r_hat,
        converged=verdict.converged,
        n_improper=sum(run.n_improper for run in runs),
        local=local,
        trace=first.trace,
        iterations=max(run.iterations for run in runs),
        seconds=seconds,
        settings={
            **_common(runs),
            **{key: list(value) if isinstance(value, tuple) else value for key, value in given.items()},
            **verdict.settings,
            **{f"trusted_{name}": value for name, value in trusted.items() if name},
            "computed": places.summary([(place, 1) for place in where]),
            "unlike": places.unlike(where),
        },
        versions=versions(),
        **fields,
    )


def _covariance_of_means(name: str, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance of the runs' means, in the shape of one covariance; mean (G, ...)."""
    away = mean - mean.mean(axis=0)
    # inducing values vary together, (L, m, m); latent values only over the latent functions, (n, L, L)
    return np.asarray(np.einsum("g...i,g...j->...ij", away, away) / len(mean))


def _parameter(name: str, runs: Sequence[Solution]) -> dict[str, NDArray[np.float64]]:
    """Draws and moments of a parameter that was sampled: chains of all runs, averages, the variance of the whole."""

    def of(entry: str) -> NDArray[np.float64]:
        return np.stack([run.local[entry] for run in runs])

    def error(entry: str) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(np.square(of(entry)).sum(axis=0)) / len(runs))

    log_mean = of(f"log_{name}_mean")
    return {
        f"{name}_draws": np.concatenate([run.local[f"{name}_draws"] for run in runs]),
        f"{name}_mean": of(f"{name}_mean").mean(axis=0),
        f"{name}_se": error(f"{name}_se"),
        f"log_{name}_mean": log_mean.mean(axis=0),
        f"log_{name}_mean_se": error(f"log_{name}_mean_se"),
        f"log_{name}_var": of(f"log_{name}_var").mean(axis=0) + log_mean.var(axis=0),
        f"log_{name}_var_se": error(f"log_{name}_var_se"),
    }


def _routes(runs: Sequence[Solution]) -> tuple[dict[str, tuple[float, float]], dict[str, bool]]:
    """log Z and its error by route, and whether to trust it; a run without named routes has one named ""."""
    names = [key.removeprefix("log_evidence_") for key in runs[0].local if key.startswith("log_evidence_")]
    routes: dict[str, tuple[float, float]] = {}
    trusted: dict[str, bool] = {}
    for name in names or ([""] if runs[0].log_evidence is not None else []):
        pairs = np.array(
            [run.local[f"log_evidence_{name}"] if name else (run.log_evidence, run.log_evidence_se) for run in runs],
            dtype=float,
        )
        value, errors = float(pairs[:, 0].mean()), pairs[:, 1]
        routes[name] = value, float(np.sqrt(np.square(errors).sum()) / len(runs))
        own = all(run.settings.get(f"trusted_{name}", True) for run in runs)
        weights = 1.0 / np.maximum(np.square(errors), np.finfo(float).tiny)
        centre = float(weights @ pairs[:, 0] / weights.sum())
        apart = float(weights @ np.square(pairs[:, 0] - centre))
        trusted[name] = own and apart <= float(chi2.isf(LEVEL, max(len(runs) - 1, 1)))
    return routes, trusted


class _Verdict(NamedTuple):
    ess: float | None
    r_hat: float | None
    converged: bool
    settings: dict[str, Any]


def _verdict(runs: Sequence[Solution], n_chains: int) -> _Verdict:
    """ESS, R-hat and the gate of all runs together."""
    known = [run.ess for run in runs]
    ess = None if None in known else float(sum(value for value in known if value is not None))
    own = [run.r_hat for run in runs]
    if all(value is None for value in own):  # independent draws, whose runs have nothing to forget
        against = [f"group {k}: {run.settings.get('reason')}" for k, run in enumerate(runs) if not run.converged]
        return _Verdict(ess, None, not against, {"reason": "; ".join(against)} if against else {})
    r_hat = None
    if None not in own:
        r_hat = float(np.max([*(value for value in own if value is not None), _between(runs)]))
    against = [f"group {k}: {run.settings['against']}" for k, run in enumerate(runs) if run.settings.get("against")]
    gate = chain_gate("gate not met", n_chains, r_hat, ess, "; ".join(against))
    settings: dict[str, Any] = {"gate": gate.met, "settled": all(run.settings.get("settled", True) for run in runs)}
    if not gate.met:
        settings["reason"] = gate.why.removeprefix("gate not met: ")
    return _Verdict(ess, r_hat, gate.met, settings)


def _between(runs: Sequence[Solution]) -> float:
    """The largest R-hat between runs over latent values and logarithms of sampled parameters.

    sqrt(1 + variance of means / mean variance)
    """
    if len(runs) < 2:
        return 1.0
    pairs = [([run.latent_mean for run in runs], [run.latent_var for run in runs])] + [
        ([run.local[f"log_{name}_mean"] for run in runs], [run.local[f"log_{name}_var"] for run in runs])
        for name in runs[0].settings.get("learn", ())
    ]
    largest = 0.0
    for means, spreads in pairs:
        between = np.stack([mean for mean in means if mean is not None]).var(axis=0, ddof=1)
        within = np.stack([spread for spread in spreads if spread is not None]).mean(axis=0)
        largest = max(largest, float((between / np.maximum(within, np.finfo(float).tiny)).max()))
    return float(np.sqrt(1.0 + largest))


def _common(runs: Sequence[Solution]) -> dict[str, Any]:
    """Settings that all runs have alike, and the effective sizes of each quantity added up."""
    result = {
        key: value
        for key, value in runs[0].settings.items()
        if all(run.settings.get(key) == value for run in runs) and key not in ("gate", "settled", "reason", "against")
    }
    sizes = [key for key in runs[0].settings if key.startswith("ess_")]
    return result | {key: float(sum(run.settings[key] for run in runs)) for key in sizes}
