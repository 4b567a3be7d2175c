"""Truths are extended until their gate is met or the draws are spent, and held against another route."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from validation import Problem, Solution, problems
from validation.door.problem import digest
from validation.truth.make import R_HAT, ROUTES, SECOND, make_truth

make_module = importlib.import_module("validation.truth.make")


class Sampler:
    """Stands for validation.solve: ESS is half the draws of 32 chains, R-hat falls as 1/draws."""

    def __init__(self, problem: Problem, shift: float = 0.0) -> None:
        self.problem, self.shift = problem, shift
        self.asked: list[tuple[str, str, int | None, int | None]] = []
        self.options: list[dict[str, Any]] = []

    def __call__(self, implementation: str, method: str, problem: Problem, **options: Any) -> Solution:
        self.options.append(options)
        self.asked.append((implementation, method, options.get("n_draws"), options.get("seed")))
        exact = implementation == "quadrature"
        n_draws = options.get("n_draws", 0)
        n, L = problem.n, problem.n_latents
        moved = 0.0 if exact else self.shift
        return Solution(
            problem=problem,
            implementation=implementation,
            method=method,
            log_evidence_kind="exact" if exact else "sampled",
            latent_mean=np.full((n, L), moved),
            latent_mean_se=None if exact else np.full((n, L), 0.1),
            ess=None if exact else 16.0 * n_draws,
            r_hat=None if exact else 1.0 + 1.9 / n_draws,
            local={} if exact else {"log_joint": np.zeros(5), "log_evidence_bridge": np.zeros(2)},
            trace=np.zeros(3),
        )


@pytest.fixture
def problem() -> Problem:
    return problems.get("two-points-3-errors")


@pytest.fixture
def sampler(monkeypatch, problem) -> Sampler:
    result = Sampler(problem)
    monkeypatch.setattr(make_module, "solve", result)
    return result


def test_a_chain_is_extended_until_ess_and_r_hat_suffice(problem, sampler):
    heard = []
    truth = make_truth(problem, "gibbs-threshold", target_ess=6400, seed=3, second="none", listen=heard.append)
    # 200 draws a chain give half of what is asked for and R-hat 1.0095; twice as many give R-hat 1.00475 and 6400
    assert [draws for _, _, draws, _ in sampler.asked] == [200, 400]
    assert {seed for *_, seed in sampler.asked} == {3}
    assert [attempt.what for attempt in heard] == ["run", "extend", "run"]
    # enough for whoever asked, and not to judge others by
    assert truth.card.gate == "not met"
    assert "ESS 6400 of 6400 asked for" in truth.card.gate_reason
    assert "ESS 6400 (at least 10000)" in truth.card.gate_reason
    assert (truth.card.draws, truth.card.chains, truth.card.ess) == (400, 32, 6400.0)
    assert truth.card.r_hat <= R_HAT
    assert truth.card.problem_sha256 == digest(problem)


def test_the_gate_is_that_of_every_comparison(problem, sampler):
    truth = make_truth(problem, "gibbs-threshold", target_ess=10_000, second="none")
    assert truth.card.gate == "met"
    assert truth.card.ess >= 10_000
    few = make_truth(problems.get("two-points-3"), "exact-probit", target_ess=500, second="none")
    assert (few.card.gate, few.card.gate_reason) == ("not met", "500 independent draws, expected at least 1000")


def test_at_the_maximum_the_gate_is_not_met_and_the_truth_says_so(problem, sampler):
    truth = make_truth(problem, "gibbs-threshold", target_ess=1e6, second="none", max_draws=300)
    assert sampler.asked[-1][2] == 300
    assert truth.card.gate == "not met"
    assert "of 1000000 asked for" in truth.card.gate_reason
    assert not truth.card.certified


def test_independent_draws_are_what_was_asked_for(sampler):
    truth = make_truth(problems.get("two-points-3"), "exact-probit", target_ess=5000, second="none")
    assert sampler.asked == [("gibbs", "exact-probit", 5000, 0)]
    assert truth.card.gate == "met"
    assert truth.card.chains == 1


@pytest.mark.parametrize(("shift", "agrees"), [(0.3, True), (1.0, False)])
def test_the_second_route_decides_too(problem, sampler, shift, agrees):
    sampler.shift = shift
    truth = make_truth(problem, "gibbs-threshold", target_ess=100)
    assert sampler.asked[-1][:2] == ("quadrature", "exact")
    # six latent means with errors of 0.1 against exact zeros
    np.testing.assert_allclose(truth.card.second_z, shift / 0.1, rtol=1e-12, atol=0)
    assert truth.card.second_count == problem.n * problem.n_latents
    assert truth.card.agrees is agrees


def test_a_second_sampler_gets_another_seed(sampler):
    make_truth(problems.get("toy-3"), "exact-probit", target_ess=100, seed=5)
    seeds = {method: seed for _, method, _, seed in sampler.asked}
    first, second = seeds["exact-probit"], seeds["gibbs-probit"]
    assert first == 5
    assert second not in (0, 5)


def test_both_chains_are_thinned_and_only_the_first_has_options_of_its_own(sampler):
    truth = make_truth(
        problems.get("toy"), "gibbs-logit", target_ess=100, thin=3, first_draws=400, options={"evidence": "chains"}
    )
    first, second, *_ = sampler.options
    assert (first["n_draws"], first["thin"], first["evidence"]) == (400, 3, "chains")
    assert (second["thin"], second["evidence"]) == (3, "none")
    assert truth.card.route == "gibbs gibbs-logit evidence=chains thin=3, 16 chains x 400 draws"
    assert ROUTES["gibbs-logit"].options["evidence"] == "all"


def test_a_file_keeps_moments_and_log_z_but_no_draws(problem, sampler):
    truth = make_truth(problem, "gibbs-threshold", target_ess=100, second="none")
    assert set(truth.solution.local) == {"log_evidence_bridge"}
    assert truth.solution.trace.size == 0


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gibs-threshold", {}, r"method: found 'gibs-threshold', expected .*did you mean 'gibbs-threshold'"),
        ("exact-probit", {}, r"epsilon: found 0.1, expected 0 for exact-probit"),
        ("gibbs-logit", {}, r"likelihood: found 'threshold', expected one of logit for gibbs-logit"),
        ("gibbs-threshold", {"second": "exact-probit"}, r"epsilon: found 0.1, expected 0"),
        ("gibbs-threshold", {"second": "gibbs-threshold"}, r"second: found .*, the first route itself"),
        ("gibbs-threshold", {"target_ess": 0.0}, r"target_ess: found 0.0, expected a number > 0"),
        ("gibbs-threshold", {"seed": -1}, r"seed: found -1"),
        ("gibbs-threshold", {"thin": 0}, r"thin: found 0"),
        ("gibbs-threshold", {"first_draws": 1}, r"first_draws: found 1"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(problem, sampler, method, options, message):
    with pytest.raises(ValueError, match=message):
        make_truth(problem, method, **({"target_ess": 100.0} | options))
    assert not sampler.asked


def test_quadrature_knows_its_reach():
    with pytest.raises(ValueError, match="X: found n = 30, expected at most 2 for quadrature-classes"):
        make_truth(problems.get("toy-3"), "quadrature", target_ess=1)


def test_every_route_has_a_method_and_every_second_route_is_one():
    for name, seconds in SECOND.items():
        assert name in ROUTES
        assert set(seconds) <= set(ROUTES)
    for name in problems.names():
        problem = problems.get(name)
        assert any(route.answers(problem) is None for route in ROUTES.values()), name
