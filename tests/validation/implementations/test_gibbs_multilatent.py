"""The adapters of gibbs-probit and gibbs-threshold: shapes, errors beside every quantity, refusals."""

import numpy as np
import pytest

from validation import Problem, problems, solve

X = np.random.default_rng(5).normal(size=(6, 2))
Y = np.array([0, 1, 2, 0, 1, 1])


def problem(likelihood, prior_model, **changes):
    C = 2 if likelihood == "probit" else 3
    fields = {
        "name": "small", "X": X, "y": Y % C, "n_classes": C, "likelihood": likelihood, "variance": 3.0,
        "lengthscales": 1.0, "noise": 0.2, "jitter": 1e-4, "Z": X[:2] + 0.1, "prior_model": prior_model,
        "X_test": X[:3] + 0.3,
    } | changes  # fmt: skip
    return Problem(**fields)


@pytest.mark.parametrize("prior_model", ["full", "fitc"])
@pytest.mark.parametrize("likelihood", ["probit", "multinomial-probit", "threshold"])
def test_every_likelihood_and_prior_gets_moments_with_errors(likelihood, prior_model):
    method = "gibbs-threshold" if likelihood == "threshold" else "gibbs-probit"
    epsilon = 0.1 if likelihood == "threshold" else 0.0
    got = solve("gibbs", method, problem(likelihood, prior_model, epsilon=epsilon), n_draws=60, n_chains=8, seed=1)
    names = ["latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"]
    names += ["inducing_mean", "inducing_cov"] if prior_model == "fitc" else []
    for name in names:
        assert np.all(np.isfinite(getattr(got, name)))
        assert getattr(got, f"{name}_se").shape == getattr(got, name).shape
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=1e-8)  # quadrature error, a few classes
    assert got.ess > 100
    assert got.settings["settled"]
    assert not got.settings["gate"]  # 480 draws are too few
    assert not got.converged
    assert "(at least 10000)" in got.settings["reason"]
    assert got.log_evidence is None


def test_two_adapters_agree_where_one_model_has_two_names():
    probit = solve("gibbs", "gibbs-probit", problem("multinomial-probit", "full", noise=0.0), n_draws=500, seed=1)
    cut = solve("gibbs", "gibbs-threshold", problem("threshold", "full", noise=1.0), n_draws=500, seed=2)
    z = (probit.probabilities - cut.probabilities) / np.hypot(probit.probabilities_se, cut.probabilities_se)
    assert np.abs(z).max() < 4.9  # nine statistics: once in 100 000 runs


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("gibbs-probit", {"likelihood": "threshold"}, r"likelihood: found 'threshold', expected one of .*gibbs-probit"),
        ("gibbs-threshold", {"likelihood": "softmax"}, r"likelihood: found 'softmax', expected one of .*gibbs-thresh"),
    ],
)
def test_a_problem_that_a_method_cannot_answer_is_refused(method, changes, message):
    with pytest.raises(ValueError, match=message):
        solve("gibbs", method, problem(changes.pop("likelihood", "multinomial-probit"), "full", **changes))


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_a_matern_prior_has_the_moments_of_quadrature(likelihood):
    base = problems.get("two-points").replace(
        name="two-points-matern", likelihood=likelihood, kernel="matern", smoothness=1.7
    )
    truth = solve("quadrature", "exact", base)
    method = {"logit": "gibbs-logit", "probit": "gibbs-probit"}[likelihood]
    # 6400 draws resolve some 5 % of a standard deviation; a squared exponential in the kernel's place moves more
    chains = solve("gibbs", method, base, seed=5, evidence="none", n_chains=16, n_draws=400, n_warmup=100)
    smooth = solve("quadrature", "exact", base.replace(kernel="se", smoothness=None))
    assert np.abs(smooth.test_latent_mean - truth.test_latent_mean).max() > 8.0 * chains.test_latent_mean_se.max()
    for field in ("latent_mean", "test_latent_mean", "probabilities"):
        z = (getattr(chains, field) - getattr(truth, field)) / np.maximum(getattr(chains, f"{field}_se"), 1e-12)
        # at most 10 statistics: Holm at 1e-4 over them is |z| about 4.4
        assert np.abs(z).max() < 4.4, field
