"""The adapter of the exact probit truth: what it fills in and refuses, and the judge's own quadrature beside it."""

import numpy as np
import pytest

from validation import Solution, solve

THREE = {"likelihood": "multinomial-probit", "n_classes": 3, "y": np.array([0, 1, 2, 0, 1])}


@pytest.mark.parametrize("prior_model", ["full", "fitc"])
@pytest.mark.parametrize("likelihood", ["probit", "multinomial-probit", "threshold"])
def test_an_answer_has_every_field_with_its_error_and_survives_storage(make_problem, tmp_path, likelihood, prior_model):
    changes = {} if likelihood == "probit" else THREE
    Z = None if prior_model == "full" else [[0.0, 0.5], [1.0, -0.5]]
    problem = make_problem(**(changes | {"likelihood": likelihood}), Z=Z, jitter=1e-3, prior_model=prior_model)
    got = solve("gibbs", "exact-probit", problem, n_draws=200, seed=3)
    assert (got.log_evidence_kind, got.evidence_target, got.prior_model) == ("sampled", "log p(y)", prior_model)
    assert 0.0 < got.log_evidence_se <= 0.01
    assert got.log_evidence < got.settings["log_evidence_bound"]
    assert got.ess == 200.0
    assert got.settings["dimension"] == (5 if likelihood == "probit" else 10)
    names = ["latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"]
    names += ["inducing_mean", "inducing_cov"] if prior_model == "fitc" else []
    for name in names:
        assert np.all(getattr(got, f"{name}_se") > 0.0), name
    got.save(tmp_path / "truth.npz")
    again = Solution.load(tmp_path / "truth.npz")
    np.testing.assert_array_equal(again.latent_cov, got.latent_cov)
    assert again.log_evidence == solve("gibbs", "exact-probit", problem, n_draws=200, seed=3).log_evidence


@pytest.mark.parametrize("kernel", [{}, {"kernel": "matern", "smoothness": 1.7}])
@pytest.mark.parametrize("prior_model", ["full", "fitc"])
def test_it_agrees_with_the_quadrature_of_the_judge(make_problem, prior_model, kernel):
    Z = None if prior_model == "full" else [[0.0, 0.5], [1.0, -0.5]]
    problem = make_problem(
        X=np.array([[0.0, 1.0], [0.5, -1.0]]), y=np.array([0, 1]), likelihood="probit", variance=9.0, Z=Z,
        prior_model=prior_model, jitter=1e-3, **kernel,
    )  # fmt: skip
    exact = solve("quadrature", "exact", problem)
    got = solve("gibbs", "exact-probit", problem, n_draws=4000, seed=1, target_error=0.002)
    z = [np.ravel((got.log_evidence - exact.log_evidence) / got.log_evidence_se)]
    for name in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"):
        gap = getattr(got, name) - getattr(exact, name)
        z.append(np.ravel(gap / getattr(got, f"{name}_se")))
    # 17 statistics at 1e-5 together: |z| below 5
    assert np.abs(np.concatenate(z)).max() < 5.0


@pytest.mark.parametrize(
    ("changes", "options", "match"),
    [
        ({}, {}, "likelihood: found 'logit'"),
        (THREE | {"likelihood": "threshold", "epsilon": 0.1}, {}, "epsilon: found 0.1, expected 0"),
        (THREE, {"n_draws": 1}, "n_draws: found 1"),
        (THREE, {"seed": -1}, "seed: found -1"),
        (THREE, {"n_draws": 2000, "max_proposals": 10}, "acceptance of .* in dimension 10"),
    ],
)
def test_what_it_cannot_answer_is_refused_by_name(make_problem, changes, options, match):
    with pytest.raises(ValueError, match=match):
        solve("gibbs", "exact-probit", make_problem(**changes), **options)
