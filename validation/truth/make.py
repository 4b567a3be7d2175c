"""Make a truth: run a sampler until its effective draws suffice, ask a second route, write down both.

A chain that falls short is run again with twice the draws (or four, eight, sixteen times: as many as its effective
draws and R-hat ask for), from the same seed, so that the file that is kept is one run that anybody can repeat; the
time lost is at most that of the last run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from validation.door import arguments, storage
from validation.door.premises import GATE_R_HAT as R_HAT
from validation.door.premises import LEAST_INDEPENDENT, chain_gate
from validation.door.problem import Problem, digest
from validation.door.quoting import shown
from validation.door.solution import SCHEMA, Solution
from validation.door.solve import solve
from validation.door.statistics import LEVEL, QUANTITIES, same_evidence, z_statistics
from validation.truth.card import EvidenceCard

MAX_DRAWS = 64_000


class Route(NamedTuple):
    """One route to the moments of a posterior.

    kind          "chains", "independent" (every draw counts in full) or "exact" (nothing is sampled)
    likelihoods   that it can answer; epsilon says whether it knows labelling errors
    options       that make it this route, on top of lengths and seed
    most          largest n, where there is one
    """

    implementation: str
    method: str
    kind: str
    likelihoods: tuple[str, ...]
    options: Mapping[str, Any] = MappingProxyType({})
    n_chains: int = 32
    epsilon: bool = True
    most: int | None = None
    named_draws: str = "n_draws"

    def answers(self, problem: Problem) -> str | None:
        """Why it cannot answer a problem, or None if it can."""
        if problem.likelihood not in self.likelihoods:
            return f"likelihood: found {shown(problem.likelihood)}, expected one of {', '.join(self.likelihoods)}"
        if problem.epsilon and not self.epsilon:
            return f"epsilon: found {problem.epsilon:.6g}, expected 0"
        if self.most is not None and problem.n > self.most:
            return f"X: found n = {problem.n}, expected at most {self.most}"
        return None


_PROBIT = ("probit", "multinomial-probit")

# A new sampler needs a line here, one among the routes that follow it in SECOND, and problems in `store.RECIPES`.
ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        "exact-probit": Route("gibbs", "exact-probit", "independent", (*_PROBIT, "threshold"), epsilon=False),
        "gibbs-probit": Route("gibbs", "gibbs-probit", "chains", _PROBIT),
        "gibbs-threshold": Route("gibbs", "gibbs-threshold", "chains", ("threshold",)),
        # univariate conditionals alone: slower, and without a line of the moves that follow the constraints
        "gibbs-threshold-components": Route(
            "gibbs", "gibbs-threshold", "chains", ("threshold",), MappingProxyType({"moves": ["components"]})
        ),
        # both: coordinate draws between the paths move the chain wherever the paths alone would go wrong
        "gibbs-threshold-both": Route(
            "gibbs", "gibbs-threshold", "chains", ("threshold",), MappingProxyType({"moves": ["components", "bounce"]})
        ),
        # with both of their routes to log Z
        "gibbs-probit-evidence": Route(
            "gibbs", "gibbs-probit", "chains", _PROBIT, MappingProxyType({"evidence": "all"})
        ),
        "gibbs-threshold-evidence": Route(
            "gibbs", "gibbs-threshold", "chains", ("threshold",), MappingProxyType({"evidence": "all"})
        ),
        "gibbs-logit": Route(
            "gibbs", "gibbs-logit", "chains", ("logit",), MappingProxyType({"evidence": "all"}), n_chains=16
        ),
        "gibbs-logit-plain": Route(
            "gibbs",
            "gibbs-logit",
            "chains",
            ("logit",),
            MappingProxyType({"evidence": "none", "moves": []}),
            n_chains=16,
        ),
        # kernel parameters sampled with the latent values: no route to log Z
        "gibbs-logit-learnt": Route("gibbs", "gibbs-logit", "chains", ("logit",)),
        "ensemble-logit": Route("gibbs", "ensemble-logit", "chains", ("logit",), most=6),
        "mh-softmax": Route("gibbs", "mh-softmax", "chains", ("softmax",), MappingProxyType({"evidence": "chains"})),
        # Neal's scaled Metropolis steps alone
        "mh-softmax-scaled": Route(
            "gibbs",
            "mh-softmax",
            "chains",
            ("softmax",),
            MappingProxyType({"evidence": "none", "moves": ["scaled"]}),
        ),
        "mh-softmax-ellipse": Route(
            "gibbs",
            "mh-softmax",
            "chains",
            ("softmax",),
            MappingProxyType({"evidence": "none", "moves": ["ellipse"]}),
        ),
        "quadrature": Route("quadrature", "exact", "exact", ("logit", "probit"), most=3),
        "quadrature-classes": Route("quadrature", "exact", "exact", ("multinomial-probit", "threshold"), most=2),
        "quadrature-softmax": Route("quadrature", "exact", "exact", ("softmax",), most=2),
    }
)

# routes to be asked second, the best first
SECOND: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "exact-probit": ("quadrature", "quadrature-classes", "gibbs-probit", "gibbs-threshold"),
        "gibbs-probit": ("quadrature", "quadrature-classes", "exact-probit"),
        "gibbs-threshold": ("quadrature-classes", "exact-probit", "gibbs-threshold-both"),
        "gibbs-logit": ("quadrature", "ensemble-logit", "gibbs-logit-plain"),
        "mh-softmax": ("quadrature-softmax", "mh-softmax-ellipse"),
        "quadrature": ("gibbs-logit", "exact-probit"),
        "quadrature-classes": ("exact-probit", "gibbs-threshold"),
        "quadrature-softmax": ("mh-softmax",),
    }
)


class Truth(NamedTuple):
    """What a truth file holds: moments with their errors, and the card."""

    solution: Solution
    card: EvidenceCard

    @property
    def problem(self) -> Problem:
        """The question; where parameters were sampled, with them at the exponential of their mean logarithm."""
        return self.solution.problem

    def to_arviz(self, draws: str | PathLike[str] | None = None) -> Any:
        """Draws of the latent values as ArviZ wants them.

        draws    a file that `triad truth show NAME --draws FILE` wrote; None: that of the distribution gpc-triad-truths

        No draws are in the package itself. Raises ValueError where None finds none, ImportError without ArviZ (the
        extra `arviz`).
        """
        from validation.truth import draws as drawing

        draws = draws or drawing.installed(self.card.problem)
        if draws is None:
            raise ValueError(
                "draws: found None, and none of this posterior in an installed gpc-triad-truths, expected a file of "
                f"draws, as `triad truth show {self.card.problem} --draws FILE` writes it"
            )
        return drawing.to_arviz(drawing.Draws.load(draws, self.problem))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the .npz and, beside it, the card: the same name with .toml."""
        self.card.save_with(Path(path), storage.npz_bytes(SCHEMA, self.solution.to_arrays()))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Truth:
        """Read what `save` wrote; a pair that does not belong together is refused."""
        path = Path(path)
        card = EvidenceCard.load(path.with_suffix(".toml"))
        if path.is_file():
            card.check_moments(path)
        return cls(Solution.load(path), card)


class Pair(NamedTuple):
    """A truth with all that its two routes answered, draws and traces left out of neither."""

    truth: Truth
    first: Solution
    second: Solution | None


class Attempt(NamedTuple):
    """What a listener hears: a run begins ("run", "second") or has ended short of its target ("extend")."""

    what: str
    route: str
    n_draws: int
    ess: float | None = None
    r_hat: float | None = None


Listener = Callable[[Attempt], object]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a truth shall be, and what may be spent on it.

    second       a name of ROUTES, "none", or None for the best that can answer
    second_ess   effective draws of the second route, by default a fifth of target_ess; it may take up to four times
                 the draws of the first, and is compared with the errors that it has then
    first_draws  draws per chain to begin with, where it is known that fewer will not do
    thin         sweeps per draw of chains, of both routes: a kept draw may cost as much as a sweep
    options      of the first sampler, in place of those of its route
    """

    target_ess: float
    seed: int = 0
    second: str | None = None
    second_ess: float | None = None
    max_draws: int = MAX_DRAWS
    first_draws: int | None = None
    thin: int = 1
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not arguments.real(self.target_ess, "target_ess") > 0.0:
            raise ValueError(f"target_ess: found {shown(self.target_ess)}, expected a number > 0")
        arguments.integer(self.seed, "seed", at_least=0)
        arguments.integer(self.max_draws, "max_draws", at_least=4)
        arguments.integer(self.thin, "thin", at_least=1)
        if self.first_draws is not None:
            arguments.integer(self.first_draws, "first_draws", at_least=4)


def make_truth(
    problem: Problem,
    method: str,
    *,
    listen: Listener | None = None,
    callback: Callable[[Any], None] | None = None,
    **how: Any,
) -> Truth:
    """The truth of `make_pair` alone; how: the fields of `Request`."""
    return make_pair(problem, method, Request(**how), listen=listen, callback=callback).truth


def make_pair(
    problem: Problem,
    method: str,
    request: Request,
    *,
    listen: Listener | None = None,
    callback: Callable[[Any], None] | None = None,
) -> Pair:
    """Sample a problem until the effective draws suffice or max_draws a chain are spent, and ask a second route.

    method       a name of ROUTES; "quadrature" finds the rule for the problem by itself
    request      effective draws, seed, second route and limits
    listen       told of every `Attempt`; callback is handed to the samplers
    """
    hear: Listener = listen or (lambda attempt: None)
    name, route = find_route(method, problem, "method")
    target_ess, max_draws = request.target_ess, request.max_draws
    chosen = _second(request.second, name, problem)
    if chosen is not None and chosen[0] == name:
        raise ValueError(f"second: found {shown(request.second)}, the first route itself, expected another one")
    thinning = {"thin": request.thin} if request.thin > 1 else {}
    route = _with_options(route, {**(request.options or {}), **thinning})
    wanted = _Wanted(target_ess, request.seed, max_draws, request.first_draws)
    sampled = _run(problem, name, route, wanted, hear, callback)
    met, reason = gate(sampled.solution, route, sampled.n_draws, target_ess)
    agreement: dict[str, Any] = {"second_route": "none"}
    other = None
    if chosen is not None:
        asked = 0.2 * target_ess if request.second_ess is None else request.second_ess
        # another seed through another generator: the routes share no randomness
        other_seed = int(np.random.SeedSequence([request.seed, 1]).generate_state(1)[0])
        hear(Attempt("second", chosen[0], 0))
        most = min(max_draws, max(1000, 4 * sampled.n_draws))
        chosen = chosen[0], _with_options(chosen[1], thinning)
        other = _run(problem, *chosen, _Wanted(asked, other_seed, most), hear, callback)
        z = agreement_statistics(sampled.solution, other.solution)
        agreement = {
            "second_route": _described(chosen[0], chosen[1], other),
            "second_z": float(np.abs(z).max()),
            "second_count": int(z.size),
            "second_limit": float(-ndtri(0.5 * LEVEL / z.size)),
        }
    solution = slim(sampled.solution)
    card = EvidenceCard(
        problem=problem.name,
        problem_sha256=digest(problem),
        model=describe_model(problem),
        route=_described(name, route, sampled),
        chains=0 if route.kind == "exact" else 1 if route.kind == "independent" else route.n_chains,
        draws=sampled.n_draws,
        target_ess=float(target_ess),
        gate="met" if met else "not met",
        gate_reason=reason,
        seed=request.seed,
        seconds=round(sampled.seconds, 2),
        date=datetime.now(UTC).date().isoformat(),
        ess=solution.ess,
        r_hat=solution.r_hat,
        versions=dict(solution.versions),
        **agreement,
    )
    return Pair(Truth(solution, card), sampled.solution, None if other is None else other.solution)


def find_route(method: str, problem: Problem, argument: str) -> tuple[str, Route]:
    """The route of that name, which can answer the problem.

    Raises ValueError naming `argument` for an unknown name, and what is in the way for a route that cannot answer.
    """
    if method == "quadrature":  # one name for the three rules
        for name in ("quadrature", "quadrature-classes", "quadrature-softmax"):
            if problem.likelihood in ROUTES[name].likelihoods:
                method = name
    if method not in ROUTES:
        close = get_close_matches(str(method), list(ROUTES), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{argument}: found {shown(method)}, expected one of {', '.join(ROUTES)}{hint}")
    if (reason := ROUTES[method].answers(problem)) is not None:
        raise ValueError(f"{reason} for {method}")
    return method, ROUTES[method]


def gate(solution: Solution, route: Route, n_draws: int, target_ess: float) -> tuple[bool, str]:
    """Whether a run may be called a truth, and the sentence for its card."""
    if route.kind == "exact":
        return solution.converged, "quadrature: its error is in the settings of the file"
    if route.kind == "independent":
        least = max(target_ess, LEAST_INDEPENDENT)
        return n_draws >= least, f"{n_draws} independent draws" + (
            "" if n_draws >= least else f", expected at least {least:.0f}"
        )
    if solution.ess is None or solution.r_hat is None:  # an ensemble states errors, and no effective number
        return False, "no effective number of draws: expected a sampler that states it"
    numbers = f"ESS {solution.ess:.0f} of {target_ess:.0f} asked for, R-hat {solution.r_hat:.4f} (at most {R_HAT})"
    # whatever was asked for, others may be judged by nothing less than the gate
    against = "" if solution.settings.get("settled", solution.converged) else "a chain stands still"
    result = chain_gate("gate", route.n_chains, solution.r_hat, solution.ess, against)
    met = result.met and enough(solution, target_ess)
    return met, numbers if result.met else f"{numbers}; {result.why}"


def enough(solution: Solution, target_ess: float) -> bool:
    """Whether chains have the effective draws that were asked for, and R-hat: of the gate, what more draws mend."""
    assert solution.ess is not None
    assert solution.r_hat is not None
    return bool(solution.ess >= target_ess and solution.r_hat <= R_HAT)


def agreement_statistics(left: Solution, right: Solution) -> np.ndarray[Any, np.dtype[np.float64]]:
    """z of every mean, covariance, probability and of log Z that both sides have, at least one with an error."""
    results = []
    for quantity in QUANTITIES:
        if quantity == "log_evidence" and same_evidence(left, right) is not None:
            continue
        statistics = z_statistics(left, right, quantity)
        if statistics is not None:
            results.append(statistics[0].ravel())
    if not results:
        raise ValueError("second: found no quantity that both routes give with an error, expected at least one")
    return np.concatenate(results)


def slim(solution: Solution) -> Solution:
    """What a file keeps: moments, probabilities and log Z with their errors; no draws, no traces."""
    learnt = solution.settings.get("learn", ())
    heads = ("log_evidence_", *(f"{name}_{end}" for name in learnt for end in ("mean", "se")),
             *(f"log_{name}_" for name in learnt))  # fmt: skip
    kept = {key: value for key, value in solution.local.items() if key.startswith(heads)}
    return replace(solution, local=kept, trace=np.zeros(0))


def describe_model(problem: Problem) -> str:
    """Likelihood, labelling errors, prior and size, as a line."""
    errors = f" (epsilon {problem.epsilon:g})" if problem.epsilon else ""
    sparse = "" if problem.m is None else f", {problem.m} inducing points"
    size = f"n = {problem.n}, C = {problem.n_classes}"
    return f"{problem.likelihood}{errors}, {problem.prior_model} prior{sparse}, {size}"


class _Sampled(NamedTuple):
    solution: Solution
    n_draws: int
    seconds: float


class _Wanted(NamedTuple):
    """Effective draws of one route, its seed, and draws per chain: at most, and to begin with."""

    target_ess: float
    seed: int
    max_draws: int
    first_draws: int | None = None


def _run(
    problem: Problem,
    name: str,
    route: Route,
    wanted: _Wanted,
    hear: Listener,
    callback: Callable[[Any], None] | None,
) -> _Sampled:
    """Run a route, with twice the draws each time, until its gate is met or max_draws a chain are spent."""
    target_ess, seed, max_draws, first_draws = wanted
    began = time.perf_counter()
    if route.kind == "exact":
        hear(Attempt("run", name, 0))
        return _Sampled(solve(route.implementation, route.method, problem), 0, time.perf_counter() - began)
    n_draws = int(np.ceil(target_ess / (1 if route.kind == "independent" else route.n_chains)))
    # log Z of a chain by its paths needs 128 draws of each
    n_draws = max(4 if route.kind == "independent" else 128, n_draws, first_draws or 0)
    if route.kind == "chains":
        n_draws = min(n_draws, max_draws)
    options: dict[str, Any] = {**route.options, "seed": seed}
    if route.kind == "chains" and route.method != "ensemble-logit":
        options["n_chains"] = route.n_chains
    if callback is not None and route.method != "ensemble-logit":
        options["callback"] = callback
    while True:
        hear(Attempt("run", name, n_draws))
        began = time.perf_counter()
        solution = solve(route.implementation, route.method, problem, n_draws=n_draws, **options)
        seconds = time.perf_counter() - began
        if route.kind == "independent" or solution.ess is None or n_draws >= max_draws or enough(solution, target_ess):
            return _Sampled(solution, n_draws, seconds)
        hear(Attempt("extend", name, n_draws, solution.ess, solution.r_hat))
        n_draws = min(_more(solution, target_ess) * n_draws, max_draws)


def _with_options(route: Route, options: Mapping[str, Any]) -> Route:
    """A route with further options; quadrature and ensembles know nothing of chains."""
    if route.kind != "chains" or route.method == "ensemble-logit":
        return route
    return route._replace(options=MappingProxyType({**route.options, **options}))


def _more(solution: Solution, target_ess: float) -> int:
    """The power of two, at least 2 and at most 16, with which ESS would suffice and R-hat - 1 shrink as 1/draws."""
    assert solution.ess is not None
    assert solution.r_hat is not None
    wanted = max(target_ess / max(solution.ess, 1.0), (solution.r_hat - 1.0) / (R_HAT - 1.0), 2.0)
    return int(2 ** min(4, int(np.ceil(np.log2(wanted)))))


def _second(second: str | None, first: str, problem: Problem) -> tuple[str, Route] | None:
    if second == "none":
        return None
    if second is not None:
        return find_route(second, problem, "second")
    for name in SECOND.get(first, ()):
        if ROUTES[name].answers(problem) is None:
            return name, ROUTES[name]
    return None


def _described(name: str, route: Route, sampled: _Sampled) -> str:
    options = "".join(f" {key}={_plain(value)}" for key, value in route.options.items())
    if route.kind == "exact":
        return f"{route.implementation} {route.method}{options}"
    chains = "" if route.kind == "independent" else f"{route.n_chains} chains x "
    return f"{route.implementation} {route.method}{options}, {chains}{sampled.n_draws} draws"


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
