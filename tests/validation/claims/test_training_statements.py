"""Statements of training and of rival bounds: a program of which they are not true is seen."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import fast.sparse_classes.alpha_runs as alpha_runs
import fast.sparse_classes.sep as sep
from validation.checks import core
from validation.checks.core import Compared


def failures(name, answer=None):
    """Outcomes beyond their limit where a context gives answer(method, problem, options)."""
    context = SimpleNamespace(solve=lambda implementation, method, problem, **options: answer(method, problem, options))
    outcomes = [one for one in core.registered()[name].function(context, None) if isinstance(one, Compared)]
    assert outcomes
    return [one for one in outcomes if not one.observed <= one.limit]


def never_nearer(method, problem, options):
    return SimpleNamespace(probabilities=np.full((9, 2), 0.5 + 0.01 * (method == "svi")))


def alike_at_any_rate(method, problem, options):
    return SimpleNamespace(inducing_mean=np.full((1, 12), options.get("seed", 0) + 1.0))


def wrong_at_half(method, problem, options):
    p = np.linspace(0.0, 1.0, len(problem.X_test))
    p = p if method == "svgpc" else 1.0 - p
    # svgpc is right on three quarters of some labels at least, or the other is
    return SimpleNamespace(converged=method == "svgpc", probabilities=np.stack([1.0 - p, p], axis=1))


def pairwise_knows_nothing(method, problem, options):
    p = np.full((60, 3), 1.0 / 3.0)
    if options["factors"] == "datum":
        p = p + np.random.default_rng(problem.n).uniform(0.3, 0.31, (60, 3))
    return SimpleNamespace(probabilities=p)


def sums_far_away(method, problem, options):
    n = problem.n
    return SimpleNamespace(latent_mean=np.zeros((n, 3)), latent_cov=np.tile(np.eye(3), (n, 1, 1)),
                           local={"log_tilted_norm": np.full((n, 3), -9.0)})  # fmt: skip


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("print/x-gpc/says_asymptotically_alike", never_nearer),
        ("print/x-gpc-svi/says_rates_below_one", alike_at_any_rate),
        ("print/vi-taylor/says_taylor_other_likelihoods", wrong_at_half),
        ("print/ep/says_pairwise_approximation", pairwise_knows_nothing),
        ("print/vi-robust/says_vi_nll_reason", sums_far_away),
    ],
)
def test_other_answers_are_seen(name, answer):
    assert failures(name, answer)


def test_a_batch_that_is_not_scaled_is_seen(monkeypatch):
    monkeypatch.setattr(sep, "data_scale", lambda n, b: 1.0)
    assert failures("print/ep/says_sum_over_data")
    monkeypatch.setattr(alpha_runs.EnergyRun, "scale", lambda self, batch: 1.0)
    assert failures("print/apep/says_evidence_sum")
