"""Shared-mode bugs: three for every method, seen by the judge's own definitions, and the same mistake in both."""

from __future__ import annotations

from collections import Counter

import pytest

from validation.checks import core, runner
from validation.door.catalogue import METHODS
from validation.judge.compare import relative_difference
from validation.seeded_bugs import shared
from validation.selftest import seeded

BY_NAME = {bug.name: bug for bug in shared.FAULTS}
FIELDS = ("log_evidence", "inducing_mean", "inducing_cov", "latent_mean", "latent_cov", "test_latent_mean",
          "test_latent_cov", "probabilities")  # fmt: skip


def test_every_method_of_both_witnesses_has_three():
    counted = Counter(bug.method for bug in shared.FAULTS)
    assert set(counted) == set(shared.METHODS)
    assert set(shared.METHODS) == {entry.method for entry in METHODS}
    assert min(counted.values()) >= 3


def test_no_shared_bug_is_left_to_a_comparison_of_the_witnesses():
    assert not [bug.name for bug in shared.FAULTS if any(check.startswith("identity") for check in bug.checks)]
    assert not [bug.name for bug in shared.FAULTS if bug.raises]


def test_every_shared_bug_has_targets_in_both_packages():
    for bug in shared.FAULTS:
        roots = {target.partition(".")[0] for target in bug.targets}
        assert {"reference", "fast"} <= roots, bug.name


@pytest.mark.parametrize(
    "name",
    [
        "shared/epgpc/tilted-curvature-halved",
        "shared/vi-jj/lambda-as-printed",
        "shared/nested-ep/tilted-mean-half-way",
        "shared/laplace/determinant-twice",
        "shared/sep/data-not-factors-counted",
        "shared/gfitc/curvature-halved",
        "shared/label-regression/targets-zero-and-one",
    ],
)
def test_both_witnesses_make_the_same_mistake(name):
    bug, context = BY_NAME[name], core.Context()
    with seeded(bug) as calls:
        for id in bug.checks:
            runner.ask(core.registered()[id], context, context.problem(bug.problems[0]), runner.Pair(id, "", False))
    assert calls.count > 0
    results = {}
    for solution in context.solutions:
        results.setdefault(str(sorted(solution.problem.to_arrays())), {})[solution.implementation] = solution
    for pair in results.values():
        for field in FIELDS:
            left, right = (getattr(pair[witness], field) for witness in ("reference", "fast"))
            if left is not None and right is not None:
                # fixed points to 1e-10, mistaken ones contract more slowly; a mistake of one alone is 1e-2
                assert relative_difference(left, right) < 1e-6, field
