"""Limits: two methods, or two forms of one, that must coincide where theory says so."""

from __future__ import annotations

from collections.abc import Iterable

from validation.checks.apart import apart, fields
from validation.checks.core import Context, Outcome
from validation.checks.subjects import SUBJECTS, Subject, add
from validation.door.problem import Problem
from validation.judge.compare import identity_limit


def inducing_at_data(context: Context, subject: Subject, problem: Problem, noise: float = 0.0) -> Iterable[Outcome]:
    """Z = X against no Z, without jitter; FITC's prior is the full one with noise as well."""
    full = problem.replace(Z=None, prior_model="full", noise=noise, jitter=0.0)
    sparse = full.replace(Z=problem.X)
    limit, why = identity_limit(full)
    for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
        a = context.solve(left, subject.method, sparse)
        b = context.solve(right, subject.method, full)
        yield from apart(
            fields(a, b, ("log_evidence", "latent_mean", "latent_cov", "test_latent_cov", "probabilities")),
            limit,
            f"with Z = X and no jitter the sparse model is the full one; {why}",
            f"{left}, Z = X",
            f"{right}, full",
        )


for _subject in SUBJECTS:
    add(__name__, "limit", _subject, "inducing_at_data", "The sparse form with Z = X is the full one.",
        inducing_at_data, ("two-points", "toy-spread"))  # fmt: skip
