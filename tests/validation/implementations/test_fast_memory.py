"""Answers of `fast` state whether projections are kept between sweeps."""

import numpy as np
import pytest

from validation import problems, solve

_TILE = 64  # rows are padded to whole tiles
CASES = [
    ("ep", "toy-2-sparse-threshold"), ("gfitc", "toy-2-sparse-threshold"), ("vi-robust", "toy-2-sparse-errors"),
    ("x-gpc", "toy-sparse"), ("svgpc", "toy-sparse"), ("vi-jj", "toy-sparse"), ("svi", "toy-sparse"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "name"), CASES)
def test_projections_are_kept_where_they_alone_fit_the_budget(method, name):
    problem = problems.get(name)
    if method == "svgpc":
        problem = problem.replace(likelihood="probit")
    latents, m, _ = problem.Z.shape
    kinds = 1 if problem.shared else latents
    size = 8 * -(-problem.X.shape[0] // _TILE) * _TILE * m * kinds
    whole = solve("fast", method, problem)
    assert whole.settings["projections"] == "kept"
    for memory_budget, expected in ((size, "kept"), (size - 1, "recomputed")):
        solution = solve("fast", method, problem, memory_budget=memory_budget)
        assert solution.settings["projections"] == expected
        np.testing.assert_array_equal(solution.latent_mean, whole.latent_mean)  # to the bit
        assert solution.log_evidence == whole.log_evidence


def test_full_processes_have_no_projections():
    assert "projections" not in solve("fast", "x-gpc", problems.get("toy")).settings
