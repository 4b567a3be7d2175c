"""Invariance: what must not matter does not matter."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from validation.checks.apart import apart
from validation.checks.core import Context, Outcome
from validation.checks.subjects import DRAWN, REAL, SUBJECTS, Subject, add
from validation.door.problem import Problem
from validation.judge.compare import identity_limit

_PROBLEMS = DRAWN + REAL


def permuted_data(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """The same data in another order."""
    order = np.random.default_rng(11).permutation(problem.n)
    shuffled = problem.replace(X=problem.X[order], y=problem.y[order])
    limit, why = identity_limit(problem)
    for implementation in ("reference", "fast"):
        plain = context.solve(implementation, subject.method, problem)
        other = context.solve(implementation, subject.method, shuffled)
        assert plain.latent_mean is not None
        pairs = {
            "log_evidence": (other.log_evidence, plain.log_evidence),
            "latent_mean": (other.latent_mean, plain.latent_mean[order]),
            "probabilities": (other.probabilities, plain.probabilities),
        }
        yield from apart(pairs, limit, f"the data come in no order; {why}", implementation, "data permuted")


def flipped_classes(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """The same data with the classes swapped."""
    flipped = problem.replace(y=1 - problem.y, y_test=None if problem.y_test is None else 1 - problem.y_test)
    limit, why = identity_limit(problem)
    for implementation in ("reference", "fast"):
        plain = context.solve(implementation, subject.method, problem)
        other = context.solve(implementation, subject.method, flipped)
        assert other.latent_mean is not None
        assert other.probabilities is not None
        pairs = {
            "log_evidence": (other.log_evidence, plain.log_evidence),
            "latent_mean": (-other.latent_mean, plain.latent_mean),
            "latent_cov": (other.latent_cov, plain.latent_cov),
            "probabilities": (other.probabilities[:, ::-1], plain.probabilities),
        }
        yield from apart(
            pairs, limit, f"swapping the classes mirrors the posterior; {why}", implementation, "classes swapped"
        )


for _subject in SUBJECTS:
    _add = partial(add, __name__, "invariance", _subject)
    _add("data_order", "The answer does not depend on the order of the data.", permuted_data, _PROBLEMS)
    _add("classes", "Swapping the classes mirrors the answer.", flipped_classes, _PROBLEMS)
