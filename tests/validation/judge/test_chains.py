"""A sampler's chains in groups: digits that depend on the groups alone, right moments and log Z, one verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from gibbs.evidence.result import LogEvidence
from validation import Problem, problems, solve
from validation.jobs.run import Processes
from validation.judge import chains

LENGTHS = {"n_chains": 8, "n_draws": 200, "n_warmup": 100}
FIELDS = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities")


def grouped(method="gibbs-logit", name="two-points", engine=None, **options):
    return chains.solve_groups(method, problems.get(name), engine or Processes(1), **{**LENGTHS, **options})


def test_digits_depend_on_the_groups_and_not_on_the_processes():
    one, two = (grouped(engine=Processes(count), seed=4, groups=4) for count in (1, 2))
    for name in (*FIELDS, *(f"{name}_se" for name in FIELDS)):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert (one.log_evidence, one.log_evidence_se) == (two.log_evidence, two.log_evidence_se)
    other = grouped(seed=5, groups=4)
    assert not np.array_equal(one.latent_mean, other.latent_mean)


@pytest.mark.parametrize(
    ("method", "name", "options"),
    [
        ("gibbs-logit", "two-points", {}),
        ("gibbs-logit", "three-points-fitc", {}),
        ("gibbs-threshold", "two-points-3-errors", {"evidence": "all"}),
        ("gibbs-threshold", "two-points-3-errors", {"evidence": "particles"}),
        # the judge asks the same of every sampler
        pytest.param("gibbs-probit", "two-points-3", {"evidence": "all"}, marks=pytest.mark.slow),
        pytest.param("mh-softmax", "two-points-3-softmax", {"evidence": "all"}, marks=pytest.mark.slow),
    ],
)
def test_moments_and_log_z_are_those_of_quadrature(method, name, options):
    problem = problems.get(name)
    truth = solve("quadrature", "exact", problem)
    result = grouped(method, name, groups=4, **LENGTHS | {"n_draws": 400} | options)
    z = []
    for field in FIELDS:
        if getattr(truth, field) is None:
            continue
        error, gap = getattr(result, f"{field}_se"), getattr(result, field) - getattr(truth, field)
        moving = error > 0.0
        assert np.all(np.abs(gap[~moving]) < 1e-12)
        z += list((gap[moving] / error[moving]).ravel())
    routes = {key: value for key, value in result.local.items() if key.startswith("log_evidence_")}
    assert {"log_evidence_annealed", "log_evidence_sequential"} & set(routes)
    if options.get("evidence") == "particles":
        assert set(routes) == {"log_evidence_sequential"}
    assert all(result.settings[f"trusted_{key.removeprefix('log_evidence_')}"] for key in routes)
    z += [(value - truth.log_evidence) / error for value, error in routes.values()]
    assert np.abs(z).max() < norm.isf(0.5e-4 / len(z))  # two-sided, Bonferroni at 1e-4


def test_a_pool_is_the_average_of_its_runs():
    problem = problems.get("two-points")
    result = grouped(seed=7, groups=2, evidence="none")
    seeds = np.random.SeedSequence([7, 2]).generate_state(2, dtype=np.uint32)
    lengths = {**LENGTHS, "n_chains": 4, "evidence": "none"}
    a, b = (solve("gibbs", "gibbs-logit", problem, seed=int(seed), **lengths) for seed in seeds)
    np.testing.assert_allclose(result.latent_mean, 0.5 * (a.latent_mean + b.latent_mean), rtol=1e-14)
    np.testing.assert_allclose(result.latent_mean_se, 0.5 * np.hypot(a.latent_mean_se, b.latent_mean_se), rtol=1e-14)
    # the second moment about zero is an average; the covariance follows from it
    second = [run.latent_cov[:, 0, 0] + run.latent_mean[:, 0] ** 2 for run in (a, b)]
    np.testing.assert_allclose(
        result.latent_cov[:, 0, 0], 0.5 * sum(second) - result.latent_mean[:, 0] ** 2, rtol=1e-12
    )
    assert result.ess == a.ess + b.ess
    assert result.log_evidence is None
    assert (result.settings["n_chains"], result.settings["groups"]) == (8, 2)


@pytest.fixture(scope="module")
def learnt():
    """Two groups of chains over the variance too, and the whole of them."""
    rng = np.random.default_rng(5)
    problem = Problem(
        name="small", X=rng.normal(size=(6, 2)), y=np.array([0, 1, 1, 0, 1, 1]), n_classes=2, likelihood="logit",
        variance=3.0, lengthscales=1.0, noise=0.2, jitter=1e-4, hyperprior={"variance": ("log-normal", 0.5, 0.9)},
    )  # fmt: skip
    asked = {"learn": ("variance",), "n_draws": 24, "n_warmup": 8}
    whole = chains.solve_groups("gibbs-logit", problem, Processes(1), groups=2, n_chains=8, seed=7, **asked)
    seeds = np.random.SeedSequence([7, 2]).generate_state(2, dtype=np.uint32)
    return whole, [solve("gibbs", "gibbs-logit", problem, seed=int(seed), n_chains=4, **asked) for seed in seeds]


def test_parameters_that_are_sampled_are_pooled_with_their_chains(learnt):
    whole, (a, b) = learnt
    draws = whole.local["variance_draws"]
    np.testing.assert_array_equal(draws, np.concatenate([a.local["variance_draws"], b.local["variance_draws"]]))
    # groups of equal length: moments of all draws together, whose sums are taken in another order
    np.testing.assert_allclose(whole.local["variance_mean"], [draws.mean()], rtol=1e-12)
    np.testing.assert_allclose(whole.local["log_variance_mean"], [np.log(draws).mean()], rtol=0, atol=1e-12)
    second = [run.local["log_variance_var"] + run.local["log_variance_mean"] ** 2 for run in (a, b)]
    expected = 0.5 * sum(second) - whole.local["log_variance_mean"] ** 2
    np.testing.assert_allclose(whole.local["log_variance_var"], expected, rtol=1e-12)
    errors = [run.local["variance_se"] for run in (a, b)]
    np.testing.assert_allclose(whole.local["variance_se"], 0.5 * np.hypot(*errors), rtol=1e-14)
    np.testing.assert_array_equal(whole.problem.variance, np.exp(whole.local["log_variance_mean"]))
    assert whole.settings["learn"] == ["variance"]
    assert whole.log_evidence is None


def test_runs_whose_parameters_ended_elsewhere_are_no_truth(learnt):
    _, (a, b) = learnt
    local = {**b.local, "log_variance_mean": a.local["log_variance_mean"] + 5.0}
    result = chains.pooled([a, replace(b, local=local)], {}, {"n_chains": 8}, [], 1.0)
    assert result.r_hat > 1.3
    assert not result.converged


def test_covariances_of_inducing_values_and_of_classes_get_the_covariance_of_the_means():
    rng = np.random.default_rng(0)
    for name, shape in (("latent_mean", (5, 3)), ("inducing_mean", (2, 4))):
        mean = rng.standard_normal((6, *shape))
        expected = np.stack([np.cov(mean[:, k].T, bias=True) for k in range(shape[0])])
        np.testing.assert_allclose(chains._covariance_of_means(name, mean), expected, rtol=1e-12)


@pytest.fixture(scope="module")
def runs():
    lengths = {"n_chains": 8, "n_draws": 400, "n_warmup": 100, "evidence": "chains"}
    return [solve("gibbs", "gibbs-logit", problems.get("two-points"), seed=seed, **lengths) for seed in (1, 2, 3)]


def test_runs_that_ended_elsewhere_are_no_truth(runs):
    fine = chains.pooled(runs, {}, {"n_chains": 24}, [], 1.0)
    assert fine.r_hat < 1.01
    away = replace(runs[2], latent_mean=runs[2].latent_mean + 2.0)
    result = chains.pooled([*runs[:2], away], {}, {"n_chains": 24}, [], 1.0)
    assert result.r_hat > 1.3
    assert not result.converged
    assert "R-hat" in result.settings["reason"]


def test_what_one_run_has_against_itself_is_told_with_its_group(runs):
    stuck = replace(runs[1], settings={**runs[1].settings, "against": "a chain stands still"})
    result = chains.pooled([runs[0], stuck, runs[2]], {}, {"n_chains": 24}, [], 1.0)
    assert not result.converged
    assert "group 1: a chain stands still" in result.settings["reason"]


def test_log_z_that_runs_do_not_share_is_not_trusted(runs):
    value, error = runs[1].local["log_evidence_bridge"]
    local = {**runs[1].local, "log_evidence_bridge": np.array([value + 20.0 * error, error])}
    result = chains.pooled([runs[0], replace(runs[1], local=local), runs[2]], {}, {"n_chains": 24}, [], 1.0)
    assert not result.settings["trusted_bridge"]
    assert result.settings["trusted_chib"]
    assert result.log_evidence == result.local["log_evidence_chib"][0]
    # particles count beside the routes of the runs
    sure = LogEvidence(-1.0, 1e-9, -1.0, 0.0, True, {})
    assert chains.pooled(runs, {"annealed": sure}, {"n_chains": 24}, [], 1.0).log_evidence == -1.0


def test_a_short_run_misses_the_gate_and_says_so():
    result = grouped(groups=2, n_chains=2, n_draws=4, n_warmup=0, evidence="none")
    assert not result.converged
    assert "ESS" in result.settings["reason"] or "R-hat" in result.settings["reason"]


def test_independent_draws_are_split_by_number():
    result = chains.solve_groups("exact-probit", problems.get("two-points-3"), Processes(1), groups=4, n_draws=400)
    assert (result.ess, result.r_hat, result.converged) == (400.0, None, True)
    assert result.settings["n_draws"] == 400


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("ensemble-logit", {}, "method: found 'ensemble-logit', expected one of"),
        ("x-gpc", {}, "method: found 'x-gpc'"),
        ("gibbs-logit", {"n_chains": 7}, "n_chains: found 7, expected a multiple of 4 groups"),
        ("gibbs-logit", {"learn": ["variance"], "evidence": "none"}, r"option: found 'evidence'.*with learn"),
        ("gibbs-logit", {"checkpoint": "a.npz"}, "checkpoint: found 'a.npz' with groups"),
        ("gibbs-logit", {"groups": 0}, "groups: found 0"),
        ("exact-probit", {"n_draws": 3}, "n_draws: found 3"),
    ],
)
def test_what_cannot_be_split_is_refused_by_name(method, options, message):
    with pytest.raises(ValueError, match=message):
        chains.solve_groups(method, problems.get("two-points"), Processes(1), **options)


def test_what_is_done_is_not_computed_again(tmp_path, monkeypatch):
    store = chains.kept_in(tmp_path / "jobs")
    whole = grouped(groups=4, seed=3, store=store)
    files = sorted((tmp_path / "jobs").iterdir())
    assert len(files) == 4 + 16  # groups, and islands of one round
    for file in files[::2]:
        file.unlink()
    asked = []
    monkeypatch.setattr(chains, "solve", lambda *a, **k: asked.append(k["seed"]) or solve(*a, **k))
    again = grouped(groups=4, seed=3, store=store)
    assert 0 < len(asked) < 4
    np.testing.assert_array_equal(again.latent_mean, whole.latent_mean)
    assert again.log_evidence == whole.log_evidence
