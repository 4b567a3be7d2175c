"""Who is checked on what: each method's paper, the problems that exercise it, and where its truth comes from."""

from __future__ import annotations

from typing import NamedTuple

from validation.checks.core import Context
from validation.problem import Problem
from validation.solution import Solution

# n <= 3: quadrature knows everything about these
TINY = ("two-points", "three-points", "three-points-fitc")
DRAWN = ("toy", "toy-steep", "toy-sparse")
REAL = ("iris", "wine", "digits", "breast-cancer")
LARGER = ("iris-steep", "breast-cancer-full")
QUICK = TINY + DRAWN + REAL
SPARSE = ("three-points-fitc", "toy-sparse", "wine", "digits", "breast-cancer")


class Subject(NamedTuple):
    """A method of `reference` and `fast` and the sampler that is its truth."""

    method: str
    paper: str
    sampler: str


SUBJECTS = (Subject("x-gpc", "wenzel2019", "gibbs-logit"),)


class Chains(NamedTuple):
    """Lengths of the chains that a truth is made of."""

    n_chains: int
    n_draws: int
    n_warmup: int
    thin: int


# Sweeps per kept draw in a quick run, by measurement: strong coupling and log variances of 4 make chains mix slowly,
# and a draw that is kept costs as much as a sweep. So thinned, 24 000 draws meet the gate of 10 000 effective ones.
_THIN = {"toy-steep": 4, "toy-sparse": 4, "iris": 2, "wine": 2, "digits": 3, "breast-cancer": 3, "iris-steep": 10}


def lengths(problem: Problem, *, quick: bool) -> Chains:
    """How long the chains of a problem run; where they miss the gate all the same, its check says so."""
    thin = _THIN.get(problem.name, 1)
    if quick:
        return Chains(n_chains=16, n_draws=1500, n_warmup=300, thin=thin)
    return Chains(n_chains=16, n_draws=5000, n_warmup=1000, thin=2 * thin)


# annealed particles see no chain at all, but cost a minute beyond some forty latent values
_ANNEALED = (*TINY, "toy", "toy-steep")

# one seed for all truths: a rerun gives the same numbers, and no check chooses its own
SEED = 20190127


def chain(context: Context, sampler: str, problem: Problem) -> Solution:
    """The Gibbs truth of a problem, with its routes to log Z."""
    evidence = "all" if problem.name in _ANNEALED else "chains"
    return context.solve(
        "gibbs", sampler, problem, seed=SEED, evidence=evidence, **lengths(problem, quick=context.quick)._asdict()
    )


def truth(context: Context, subject: Subject, problem: Problem) -> Solution:
    """Quadrature where n <= 3, certified chains elsewhere."""
    if problem.n <= 3:
        return context.solve("quadrature", "exact", problem)
    return chain(context, subject.sampler, problem)
