"""Who is checked on what: each method's paper, the problems that exercise it, and where its truth comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from validation.checks.core import Context, Outcome, check
from validation.door.problem import Problem
from validation.door.solution import Solution

# n <= 3: quadrature knows everything about these
TINY = ("two-points", "three-points", "three-points-fitc")
DRAWN = ("toy", "toy-steep", "toy-sparse")
REAL = ("iris", "wine", "digits", "breast-cancer")
LARGER = ("iris-steep", "breast-cancer-full")
QUICK = TINY + DRAWN + REAL
# against sampled truths: chains on a third point take seconds, and two points and FITC of three run the same code
FEW, THIRD = ("two-points", "three-points-fitc"), ("three-points",)
SPARSE = ("three-points-fitc", "toy-sparse", "wine", "digits", "breast-cancer")


class Subject(NamedTuple):
    """A method of `reference` and `fast` and the sampler that is its truth."""

    method: str
    paper: str
    sampler: str


SUBJECTS = (Subject("x-gpc", "wenzel2019", "gibbs-logit"),)
Asked = Callable[[Context, Subject, Problem], Iterable[Outcome]]


def add(
    module: str,
    kind: str,
    subject: Subject,
    quantity: str,
    question: str,
    function: Asked,
    problems: tuple[str, ...],
    full: tuple[str, ...] = (),
) -> None:
    """Register a check of one method; `module` is the one whose import registers it."""

    def asked(context: Context, problem: Problem) -> Iterable[Outcome]:
        return function(context, subject, problem)

    asked.__module__ = module
    check(f"{kind}/{subject.method}/{quantity}", paper=subject.paper, question=question, problems=problems, full=full)(
        asked
    )


class Chains(NamedTuple):
    """Lengths of the chains that a truth is made of."""

    n_chains: int
    n_draws: int
    n_warmup: int
    thin: int


# Problems whose long chains run in every run: those that cost seconds. For the rest they are stored.
LIVE = (*TINY, "toy")


def lengths(problem: Problem, *, quick: bool) -> Chains:
    """How long the chains of a problem run; where they miss the gate all the same, its check says so."""
    thin = 4 if problem.n > 24 else 1  # a kept draw costs as much as a sweep, and more data mix more slowly
    if quick:
        return Chains(n_chains=16, n_draws=1500, n_warmup=300, thin=thin)
    return Chains(n_chains=16, n_draws=5000, n_warmup=1000, thin=2 * thin)


# one seed for all truths: a rerun gives the same numbers, and no check chooses its own
SEED = 20190127


def chain(context: Context, sampler: str, problem: Problem) -> Solution:
    """The Gibbs truth of a problem, with its routes to log Z: stored, but for LIVE problems and what is not stored.

    `exactness/.../stored` holds stored chains against fresh ones.
    """
    stored = None if problem.name in LIVE else context.stored(problem)
    if stored is not None and stored.method == sampler:
        return stored
    # annealed particles see no chain at all, but cost the most
    evidence = "all" if problem.name in TINY else "chains"
    return context.solve(
        "gibbs", sampler, problem, seed=SEED, evidence=evidence, **lengths(problem, quick=context.quick)._asdict()
    )


def truth(context: Context, subject: Subject, problem: Problem) -> Solution:
    """Quadrature where n <= 3, certified chains elsewhere."""
    if problem.n <= 3:
        return context.solve("quadrature", "exact", problem)
    return chain(context, subject.sampler, problem)


# -- truths with several latents, and of the probit family -------------------------------------------------------


class Certificate(NamedTuple):
    """A sampler held against something better on some problems.

    sampler     method id of `gibbs`
    paper       key of the paper that describes it
    truth       "quadrature" or "exact-probit": whose moments are right; a quick run takes the stored draws of the
                latter, which `exactness/exact-probit/stored` holds against fresh ones
    digits      of the quadrature: beyond what any chain resolves, below its own eight, which cost up to ten times more
    problems    names of problems in every run; `full` those that a full run adds
    options     of the sampler in a quick run; a full run takes `longer`
    """

    sampler: str
    paper: str
    truth: str
    problems: tuple[str, ...]
    full: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    longer: Mapping[str, Any] = MappingProxyType({})
    digits: float = 6.0


# 32 chains x 60 draws: reflected paths make every draw count, so 2 % differences show after two seconds
_SHORT = MappingProxyType({"n_chains": 32, "n_draws": 60, "n_warmup": 20})
# two data, where a sweep costs least: 1 % differences show
_TINY_CHAINS = MappingProxyType({"n_chains": 32, "n_draws": 400, "n_warmup": 50})
# labelling errors are found and forgotten slowly: five to fifteen sweeps for each effective draw
_ERRORS = MappingProxyType({"n_chains": 32, "n_draws": 300, "n_warmup": 50})
_LONG = MappingProxyType({"n_chains": 32, "n_draws": 1000, "n_warmup": 100})
_MANY = MappingProxyType({"n_draws": 20_000})

CERTIFICATES = (
    Certificate(
        "exact-probit",
        "riihimaki2013",
        "quadrature",
        (*FEW, "two-points-3", "two-points-3-steep", "two-points-3-threshold", "two-points-3-steep-threshold"),
        THIRD,
        longer=_MANY,
    ),
    Certificate(
        "gibbs-probit",
        "riihimaki2013",
        "quadrature",
        (*FEW, "two-points-3", "two-points-3-steep"),
        THIRD,
        options=_TINY_CHAINS,
        longer=_LONG,
    ),
    Certificate(
        "gibbs-probit",
        "riihimaki2013",
        "exact-probit",
        ("toy-3", "toy-3-sparse"),
        ("toy-4-steep", "iris-3"),
        _SHORT,
        _LONG,
    ),
    Certificate(
        "gibbs-threshold",
        "villacampa2017",
        "quadrature",
        ("two-points-3-threshold", "two-points-3-errors", "two-points-3-steep-errors"),
        options=_ERRORS,
        longer=_LONG,
    ),
    Certificate(
        "gibbs-threshold",
        "villacampa2017",
        "exact-probit",
        ("toy-3-sparse-threshold",),
        ("toy-3-threshold", "toy-4-steep-threshold", "iris-3-threshold"),
        _SHORT,
        _LONG,
    ),
    Certificate(
        "mh-softmax",
        "riihimaki2013",
        "quadrature",
        ("two-points-3-softmax",),
        options=_TINY_CHAINS | {"evidence": "none"},
        longer=_LONG | {"evidence": "none"},
        # a rule in four dimensions: its cost goes with the fourth power of the digits, and chains resolve three
        digits=5.0,
    ),
)

# Exact HMC makes a sweep nearly an independent draw, which hides a wrong conditional beside them; so
# the plain samplers are asked alone, where they mix: (method, problem, options).
PLAIN: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("gibbs-probit", "two-points-3", {"n_chains": 32, "n_draws": 600, "n_warmup": 200, "moves": ()}),
    (
        "gibbs-threshold",
        "two-points-3-errors",
        {"n_chains": 32, "n_draws": 600, "n_warmup": 200, "moves": ("components",)},
    ),
    (
        "mh-softmax",
        "two-points-3-softmax",
        {"n_chains": 32, "n_draws": 600, "n_warmup": 200, "moves": ("scaled", "ellipse"), "evidence": "none"},
    ),
)


def certificates(sampler: str) -> tuple[Certificate, ...]:
    """What a sampler is held against, one entry for each kind of truth."""
    return tuple(value for value in CERTIFICATES if value.sampler == sampler)


def as_probit(problem: Problem) -> Problem:
    """A problem with the logistic link with the probit link in its place; any other problem as it is."""
    if problem.likelihood != "logit":
        return problem
    return problem.replace(name=f"{problem.name}-probit", likelihood="probit")


def exact(context: Context, problem: Problem, digits: float | None = None) -> Solution:
    """Quadrature, with its own eight digits or as many as asked for."""
    options = {} if digits is None else {"digits": digits}
    return context.solve("quadrature", "exact", problem, **options)


def certified(context: Context, certificate: Certificate, problem: Problem) -> tuple[Solution, Solution]:
    """What the sampler says of a problem, and the truth it is held against."""
    question = as_probit(problem)
    options = certificate.options if context.quick else certificate.longer
    solution = context.solve("gibbs", certificate.sampler, question, seed=SEED, **options)
    if certificate.truth == "quadrature":
        return solution, exact(context, question, certificate.digits)
    return solution, exact_draws(context, question)


def exact_draws(context: Context, problem: Problem) -> Solution:
    """Independent draws, enough not to be the weaker side of a comparison: in a quick run those that are stored."""
    stored = context.stored(problem) if context.quick else None
    if stored is not None and stored.method == "exact-probit":
        return stored
    return context.solve("gibbs", "exact-probit", problem, seed=SEED, n_draws=4000 if context.quick else 20_000)


# -- log Z of chains -------------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """log Z of a sampler on one problem, by all its routes: "quadrature", "stored" (exact draws, or other chains)."""

    sampler: str
    problem: str
    truth: str
    options: Mapping[str, Any]
    digits: float | None = None
    slow: bool = False  # left to a full run: another problem asks the same routes


_FOR_EVIDENCE = MappingProxyType({"n_chains": 32, "n_draws": 150, "n_warmup": 30, "evidence": "all"})
EVIDENCES = (
    Evidence("gibbs-probit", "two-points-3", "quadrature", _FOR_EVIDENCE),
    Evidence("gibbs-probit", "toy-3", "stored", _FOR_EVIDENCE, slow=True),
    Evidence("gibbs-threshold", "two-points-3-threshold", "quadrature", _FOR_EVIDENCE),
    Evidence("gibbs-threshold", "two-points-3-errors", "quadrature", _FOR_EVIDENCE, slow=True),
    Evidence("gibbs-threshold", "toy-3-threshold", "stored", _FOR_EVIDENCE, slow=True),
    Evidence("mh-softmax", "two-points-3-softmax", "quadrature", _FOR_EVIDENCE, 5.0),
    Evidence("mh-softmax", "toy-3-softmax", "stored", _FOR_EVIDENCE | {"target_error": 0.05}, slow=True),
)
