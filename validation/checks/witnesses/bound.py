"""Bounds: a lower bound lies below log Z, never falls along coordinate ascent, and is tight where theory says so."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from validation.checks.core import Compared, Context, Outcome, Skipped
from validation.checks.subjects import (
    DRAWN,
    FEW,
    LARGER,
    QUICK,
    REAL,
    SUBJECTS,
    THIRD,
    TINY,
    Asked,
    Subject,
    add,
    truth,
)
from validation.door.problem import Problem
from validation.door.solution import Solution


def _below_log_evidence(context: Context, subject: Subject, problem: Problem, *, prior_model: str) -> Iterable[Outcome]:
    return below(context, subject, problem, truth(context, subject, problem.replace(prior_model=prior_model)))


def below(context: Context, subject: Subject, problem: Problem, exact: Solution) -> Iterable[Outcome]:
    """Both witnesses' bounds against a log Z."""
    error = exact.log_evidence_se or 0.0
    if exact.log_evidence is None or error > 0.05:
        yield Skipped(f"log Z: found a standard error of {error:.3g} nat, expected at most 0.05")
        return
    for implementation in ("reference", "fast"):
        bound = context.solve(implementation, subject.method, problem)
        assert bound.log_evidence is not None
        yield Compared(
            observed=bound.log_evidence - exact.log_evidence,
            # rounding of two sums over the data: 1e-9 of their size
            limit=4.0 * error + 1e-9 * abs(exact.log_evidence),
            why=f"a lower bound exceeds log Z only by the error of log Z, 4 s.e. = {4.0 * error:.2g} nat",
            left=implementation,
            right=f"{exact.label}, {exact.problem.prior_model} prior",
            unit="bound minus log Z, nat",
        )


def monotone(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """No sweep lowers the bound."""
    # extrapolated sweeps may be rejected on the way; what theory promises is promised of plain ones
    for implementation, plain in (("reference", {}), ("fast", {"accelerate": False})):
        trace = context.solve(implementation, subject.method, problem, **plain).trace
        if len(trace) < 2:
            yield Skipped("trace: found fewer than two values, expected one for each iteration", implementation)
            continue
        yield Compared(
            observed=float(np.max(-np.diff(trace), initial=0.0)),
            limit=1e-10 * float(np.abs(trace).max()),
            why="each update maximises the bound in one block: a fall beyond rounding is a wrong update",
            left=implementation,
            right="previous sweep",
            unit="largest fall, nat",
        )


def equality(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Where the prior variance vanishes the bound is log Z."""
    # f = 0 almost surely as the prior variance vanishes: p(y) = 2^-n and every step of the bound is an equality
    flat = problem.replace(variance=1e-12, noise=0.0, jitter=1e-14 if problem.Z is None else 1e-16)
    for implementation in ("reference", "fast"):
        bound = context.solve(implementation, subject.method, flat)
        assert bound.log_evidence is not None
        yield Compared(
            observed=abs(bound.log_evidence + problem.n * np.log(2.0)) / (problem.n * np.log(2.0)),
            limit=1e-10,
            why="a prior variance of 1e-12 moves log Z by less than 1e-12 n; a lost constant moves it by 0.1 or more",
            left=implementation,
            right="-n log 2",
        )


def _below(prior_model: str = "") -> Asked:
    return lambda context, subject, problem: _below_log_evidence(
        context, subject, problem, prior_model=prior_model or problem.prior_model
    )


for _subject in SUBJECTS:
    _add = partial(add, __name__, "bound", _subject)
    _add("log_evidence", "The lower bound stays below log Z.", _below(), FEW + DRAWN + REAL, THIRD + LARGER)
    # The bound knows p(f | u) by its marginals alone, which the full and the FITC prior share: it bounds both.
    _add("log_evidence_full_prior", "The sparse bound stays below the log Z of the full prior as well.",
         _below("full"), ("three-points-fitc",), ("toy-sparse", "wine", "digits"))  # fmt: skip
    _add("monotone", "Coordinate ascent never lowers the bound.", monotone, QUICK, LARGER)
    _add("equality", "When the prior variance vanishes, the bound is log Z = -n log 2.", equality, TINY)
