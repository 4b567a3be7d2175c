"""The truths that ship: small, of today's questions, vouched for by their cards, and confirmed by a fresh run."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from validation import problems, solve
from validation.checks.subjects import DRAWN, REAL
from validation.door.problem import digest
from validation.door.statistics import z_statistics
from validation.truth import store

ALL = store.names()


@pytest.mark.parametrize("name", ALL)
def test_a_stored_truth_is_of_the_question_that_its_name_means_today(name):
    truth = store.load(name)
    assert truth.card.problem == truth.solution.problem.name == name
    # the card belongs to this file: to the last bit
    assert truth.card.problem_sha256 == digest(truth.solution.problem)
    assert store.same_question(truth.solution.problem, store.question(name))


@pytest.mark.parametrize("name", ALL)
def test_a_stored_truth_is_certified_by_its_card(name):
    truth, recipe = store.load(name), store.RECIPES[name]
    card = truth.card
    assert card.certified
    assert card.target_ess == recipe.target_ess
    assert card.ess >= recipe.target_ess
    assert card.second_route != "none"
    assert card.seed == store.SEED
    assert {"numpy", "scipy", "gpc-triad", "python"} <= set(card.versions)
    assert (card.r_hat is None) == (recipe.method == "exact-probit")


@pytest.mark.parametrize("name", ALL)
def test_a_stored_truth_has_every_moment_with_its_error_and_no_draws(name):
    solution = store.load(name).solution
    for quantity in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"):
        value, error = getattr(solution, quantity), getattr(solution, f"{quantity}_se")
        assert value.shape == error.shape
        assert np.all(np.diagonal(error, axis1=-2, axis2=-1) > 0.0) if quantity.endswith("cov") else np.all(error > 0.0)
    assert (solution.inducing_mean is not None) == (solution.problem.prior_model == "fitc")
    assert all(key.startswith("log_evidence_") for key in solution.local)
    assert solution.trace.size == 0
    if store.RECIPES[name].method == "exact-probit":
        # design: log Z needs a standard error of at most 0.05 nat to be compared with
        assert solution.log_evidence_se <= 0.05


def test_the_stored_files_are_small_and_none_is_left_over():
    files = list(store.folder().iterdir())
    assert sum(file.stat().st_size for file in files) < 1_500_000
    assert {file.name for file in files} == {f"{name}{end}" for name in ALL for end in (".npz", ".toml")}


def test_every_quick_logit_problem_beyond_quadrature_has_its_truth_with_two_routes_to_log_z():
    for name in (*DRAWN, *REAL):
        result = store.stored_truth(problems.get(name))
        assert result is not None
        assert result.method == "gibbs-logit"
        routes = [key for key in result.local if key.startswith("log_evidence_")]
        assert len(routes) >= 2
        assert result.settings["gate"]


@pytest.mark.parametrize("name", ["toy-probit", "toy-3-sparse", "toy-3-threshold"])
def test_a_short_fresh_run_agrees(name):
    stored = store.load(name).solution
    fresh = solve("gibbs", "exact-probit", store.question(name), n_draws=500, seed=4711)
    z = np.concatenate(
        [
            z_statistics(fresh, stored, quantity)[0].ravel()
            for quantity in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities")
        ]
    )
    # two-sided, Bonferroni at 1e-4
    assert np.abs(z).max() < norm.isf(0.5e-4 / z.size)


def test_a_problem_finds_its_truth_by_name_and_by_content():
    problem = problems.get("toy-3")
    assert store.stored_truth(problem) is store.load("toy-3").solution
    assert store.stored_truth(problem.replace(noise=0.2)) is None
    assert store.stored_truth(problem.replace(name="toy-5")) is None
    assert store.stored_truth(problems.get("two-points")) is None


def test_questions_are_the_same_up_to_rounding_and_no_further():
    problem = problems.get("iris-3")
    assert store.same_question(problem, problem.replace(X=problem.X * (1.0 + 1e-12)))
    assert not store.same_question(problem, problem.replace(X=problem.X * (1.0 + 1e-6)))
    assert not store.same_question(problem, problem.replace(y_test=None))
    assert not store.same_question(problem, problem.replace(y=(problem.y + 1) % 3))


def test_a_truth_that_is_not_stored_is_told_with_the_near_miss():
    with pytest.raises(KeyError, match=r"stored: found 'toy-33', expected one of .*did you mean 'toy-3'"):
        store.load("toy-33")
