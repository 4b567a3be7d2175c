"""Limits: two methods, or two forms of one, that must coincide where theory says so."""

from __future__ import annotations

from collections.abc import Iterable

from validation.checks.apart import apart, fields
from validation.checks.core import Context, Outcome, check
from validation.checks.subjects import SUBJECTS, Subject
from validation.door.problem import Problem
from validation.judge.compare import identity_limit


def _inducing_at_data(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    full = problem.replace(Z=None, prior_model="full")
    sparse = full.replace(Z=problem.X)
    limit, why = identity_limit(full)
    for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
        a = context.solve(left, subject.method, sparse)
        b = context.solve(right, subject.method, full)
        yield from apart(
            fields(a, b, ("log_evidence", "latent_mean", "latent_cov", "test_latent_cov", "probabilities")),
            limit,
            f"with Z = X and neither noise nor jitter the sparse model is the full one; {why}",
            f"{left}, Z = X",
            f"{right}, full",
        )


def _register(subject: Subject) -> None:
    @check(
        f"limit/{subject.method}/inducing_at_data",
        paper=subject.paper,
        question="The sparse form with Z = X is the full one.",
        problems=("two-points", "toy-spread"),
    )
    def inducing_at_data(context: Context, problem: Problem) -> Iterable[Outcome]:
        return _inducing_at_data(context, subject, problem)


for _subject in SUBJECTS:
    _register(_subject)
