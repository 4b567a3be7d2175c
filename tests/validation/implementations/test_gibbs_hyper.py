"""The adapters of chains: kernel parameters learnt with them, evidence beside them, and how long they run."""

import inspect

import numpy as np
import pytest

from validation import Problem, solve
from validation.implementations.gibbs import answer

X = np.random.default_rng(5).normal(size=(6, 2))
Y = np.array([0, 1, 2, 0, 1, 1])
PRIOR = {
    "variance": ("half-student-t", 4.0, 3.0),
    "lengthscales": ("log-normal", 0.8, 0.9),
    "noise": ("log-normal", 0.5, 0.3),
}
METHODS = {
    "logit": "gibbs-logit", "probit": "gibbs-probit", "multinomial-probit": "gibbs-probit",
    "threshold": "gibbs-threshold", "softmax": "mh-softmax",
}  # fmt: skip
SHORT = {"n_chains": 4, "n_draws": 16, "n_warmup": 8, "seed": 1}


def problem(likelihood, prior_model="full", **changes):
    C = 2 if likelihood in ("logit", "probit") else 3
    fields = {
        "name": "small", "X": X, "y": Y % C, "n_classes": C, "likelihood": likelihood, "variance": 3.0,
        "lengthscales": 1.0, "noise": 0.2, "jitter": 1e-4, "Z": X[:2] + 0.1, "prior_model": prior_model,
        "X_test": X[:3] + 0.3, "hyperprior": PRIOR, "epsilon": 0.1 if likelihood == "threshold" else 0.0,
    }  # fmt: skip
    return Problem(**(fields | changes))


# -- parameters learnt -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prior_model", "shared"), [("full", True), ("fitc", False)])
@pytest.mark.parametrize("likelihood", METHODS)
def test_learnt_fields_come_with_draws_moments_and_errors(likelihood, prior_model, shared):
    asked = problem(likelihood, prior_model, shared=shared)
    got = solve("gibbs", METHODS[likelihood], asked, learn=("variance", "lengthscales"), **SHORT)
    L = asked.n_latents
    B = 1 if shared else L
    assert got.local["variance_draws"].shape == (4, 16, B)
    assert got.local["lengthscales_draws"].shape == (4, 16, B, 2)
    for name, shape in (("variance", (L,)), ("lengthscales", (L, 2))):
        for entry in (f"{name}_mean", f"{name}_se", f"log_{name}_mean", f"log_{name}_mean_se", f"log_{name}_var"):
            assert got.local[entry].shape == shape
            assert np.all(np.isfinite(got.local[entry]))
        expected = np.exp(got.local[f"log_{name}_mean"])
        np.testing.assert_array_equal(getattr(got.problem, name), expected)
        draws = np.log(got.local[f"{name}_draws"]).mean(axis=(0, 1))
        # one average in another order: rounding
        np.testing.assert_allclose(got.local[f"log_{name}_mean"], np.broadcast_to(draws, shape), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(got.problem.noise, asked.noise)
    np.testing.assert_allclose(got.probabilities.sum(axis=1), 1.0, rtol=1e-12)  # normalised
    assert got.probabilities_se.shape == got.probabilities.shape
    assert got.settings["learn"] == ["variance", "lengthscales"]
    assert got.method == METHODS[likelihood]
    assert not got.settings["gate"]  # 64 draws are too few
    assert got.log_evidence is None


def test_one_field_can_be_given_as_text_and_none_is_the_method_as_it_was():
    asked = problem("probit")
    got = solve("gibbs", "gibbs-probit", asked, learn="noise", **SHORT)
    assert "noise_draws" in got.local
    np.testing.assert_array_equal(got.problem.variance, asked.variance)
    held = [solve("gibbs", "gibbs-probit", asked, **SHORT, **more) for more in ({}, {"learn": ()})]
    np.testing.assert_array_equal(held[0].latent_mean, held[1].latent_mean)
    np.testing.assert_array_equal(held[0].problem.noise, asked.noise)


def test_a_prior_on_the_root_is_another_prior():
    asked = problem("probit", hyperprior={"variance": ("log-normal", 0.3, 3.0)})
    first, second = (
        solve("gibbs", "gibbs-probit", asked, learn=("variance",), prior_on=where, n_chains=16, n_draws=80, n_warmup=20)
        for where in ("field", "root")
    )
    gap = second.local["log_variance_mean"] - first.local["log_variance_mean"]
    error = np.hypot(first.local["log_variance_mean_se"], second.local["log_variance_mean_se"])
    # six labels say little: the prior of the logarithm is at 2 log 3 instead of log 3
    assert np.all(gap > 5.0 * error)
    assert np.all(np.abs(gap - np.log(3.0)) < 0.5)


def test_the_answer_is_that_of_the_likelihoods_posterior_whatever_the_start():
    # where chains start is no part of the model: the field learnt may stand anywhere
    means, errors = [], []
    for variance in (0.3, 30.0):
        asked = problem("probit", variance=variance)
        got = solve("gibbs", "gibbs-probit", asked, learn=("variance",), n_chains=16, n_draws=150, n_warmup=60)
        means.append(got.probabilities)
        errors.append(got.probabilities_se)
    assert np.abs((means[0] - means[1]) / np.hypot(*errors))[:, 0].max() < 4.9  # three statistics: once in 300 000


@pytest.mark.parametrize(
    ("method", "likelihood", "options", "message"),
    [
        ("gibbs-logit", "logit", {"learn": ("variance",), "evidence": "none"}, r"option: found 'evidence'.*with learn"),
        ("gibbs-probit", "probit", {"n_steps": 3}, r"option: found 'n_steps'.*\(gibbs gibbs-probit\)"),
        ("gibbs-probit", "probit", {"learn": ("jitter",)}, r"learn: found \('jitter',\), expected"),
        ("gibbs-probit", "logit", {"learn": ("variance",)}, r"likelihood: found 'logit', expected one of"),
        ("mh-softmax", "softmax", {"learn": ("noise",), "prior_on": "top"}, r"prior_on: found 'top'"),
    ],
)
def test_options_of_the_other_kind_and_bad_ones_are_refused_by_name(method, likelihood, options, message):
    with pytest.raises(ValueError, match=message):
        solve("gibbs", method, problem(likelihood), **options)


def test_a_field_without_a_prior_is_refused():
    with pytest.raises(ValueError, match=r"hyperprior: found no entry for 'variance'"):
        solve("gibbs", "gibbs-probit", problem("probit", hyperprior=None), learn=("variance",))


def test_the_signature_shows_the_options_of_both():
    for module in ("logit", "multilatent", "softmax"):
        table = __import__(f"validation.implementations.gibbs.{module}", fromlist=["TABLE"]).TABLE
        for method, function in table.items():
            if method != "ensemble-logit":
                assert {"learn", "prior_on", "moves"} <= set(inspect.signature(function).parameters)
    assert {"gibbs-logit", "gibbs-probit", "gibbs-threshold", "mh-softmax"} <= set(answer.methods)


# -- how long chains run ---------------------------------------------------------------------------------------------

HELD = {"logit": {"evidence": "none"}, "multinomial-probit": {}, "threshold": {}}


@pytest.mark.parametrize("likelihood", HELD)
def test_a_target_and_a_warm_up_by_diagnostics_are_passed_on_and_reported(likelihood):
    asked = problem(likelihood)
    run = HELD[likelihood] | {"n_chains": 8, "seed": 3}
    got = solve("gibbs", METHODS[likelihood], asked, n_draws=60, n_warmup="auto", target_ess=600.0, **run)
    assert got.settings["target_reached"]
    assert got.ess >= 600.0
    assert got.settings["draws_made"] > 60
    assert got.settings["warmup_made"] >= 100
    assert got.settings["warmed_up"]
    assert got.settings["keep_every"] == 1
    assert got.settings["settled"]
    assert not got.converged  # the gate is far
    assert "ESS" in got.settings["reason"]
    assert 0.0 < got.settings["movement"] <= 1.0
    cut = solve("gibbs", METHODS[likelihood], asked, n_draws=20, n_warmup=10, target_ess=1e6, max_draws=40, **run)
    assert not cut.settings["target_reached"]
    assert cut.settings["draws_made"] == 40
    plain = solve("gibbs", METHODS[likelihood], asked, n_draws=64, n_warmup=10, max_kept_bytes=20_000, **run)
    assert plain.settings["n_draws"] == plain.settings["draws_made"] == 64
    assert plain.settings["keep_every"] >= 2


@pytest.mark.parametrize("learn", [(), ("variance",)])
@pytest.mark.parametrize("likelihood", HELD)
def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path, likelihood, learn):
    asked = problem(likelihood)
    run = SHORT | ({"learn": learn} if learn else HELD[likelihood])

    def stop(progress):
        if progress.sweep == 13:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        solve("gibbs", METHODS[likelihood], asked, callback=stop, checkpoint=path, checkpoint_every=5, **run)
    resumed = solve("gibbs", METHODS[likelihood], asked, checkpoint=path, checkpoint_every=5, **run)
    whole = solve("gibbs", METHODS[likelihood], asked, **run)
    np.testing.assert_array_equal(resumed.latent_mean, whole.latent_mean)
    np.testing.assert_array_equal(resumed.probabilities, whole.probabilities)


def test_inducing_covariances_of_the_logit_have_errors():
    got = solve("gibbs", "gibbs-logit", problem("logit", "fitc"), n_chains=8, n_draws=100, n_warmup=20, evidence="none")
    assert got.inducing_cov_se.shape == got.inducing_cov.shape == (1, 2, 2)
    assert np.all(got.inducing_cov_se > 0.0)


# -- log Z -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["probit", "multinomial-probit", "threshold"])
def test_chains_answer_with_log_evidence_by_the_routes_asked_for(likelihood):
    asked = problem(likelihood, X=X[:2], y=np.array([0, 1]), X_test=None)
    run = {"n_chains": 16, "n_draws": 300, "n_warmup": 50, "seed": 2}
    got = solve("gibbs", METHODS[likelihood], asked, evidence="all", target_error=0.03, **run)
    routes = {name[13:]: value for name, value in got.local.items() if name.startswith("log_evidence_")}
    assert set(routes) == {"bridge", "sequential"}
    truth = solve("quadrature", "exact", asked).log_evidence
    for name, (value, error) in routes.items():
        assert got.settings[f"trusted_{name}"]
        assert abs(value - truth) < 4.5 * error  # six statistics: once in 25 000
    least = min(routes.values(), key=lambda pair: pair[1])
    np.testing.assert_array_equal([got.log_evidence, got.log_evidence_se], least)
    chains = solve("gibbs", METHODS[likelihood], asked, evidence="chains", **run)
    assert "log_evidence_sequential" not in chains.local
    assert chains.log_evidence == chains.local["log_evidence_bridge"][0]


def test_an_unknown_choice_of_evidence_is_refused_before_any_sweep():
    with pytest.raises(ValueError, match=r"evidence: found 'some', expected one of none, chains, particles, all"):
        solve("gibbs", "gibbs-probit", problem("probit"), evidence="some", n_draws=10**9)
