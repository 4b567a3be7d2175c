"""The adapter of mh-softmax: certified by quadrature, shapes, routes to log Z, options, refusals."""

import numpy as np
import pytest

from validation import Problem, solve

X = np.array([[0.0, 0.3], [0.8, -0.4]])
SHORT = {"n_chains": 16, "n_draws": 600, "n_warmup": 150, "seed": 3}


def problem(prior_model="full", **changes):
    fields = {
        "name": "two", "X": X, "y": np.array([0, 2]), "n_classes": 3, "likelihood": "softmax",
        "variance": np.array([3.0, 1.0, 5.0]), "lengthscales": np.array([0.9, 1.4]), "noise": 0.2, "jitter": 1e-3,
        "Z": np.array([[0.2, 0.0], [-0.7, 0.4]]) if prior_model == "fitc" else None, "prior_model": prior_model,
        "X_test": np.array([[0.3, 0.1], [-1.5, 1.0]]),
    }  # fmt: skip
    return Problem(**(fields | changes))


@pytest.mark.parametrize(
    ("prior_model", "kernel"),
    [("full", {}), ("fitc", {}), ("full", {"kernel": "matern", "smoothness": np.array([0.5, 1.7, 4.0])})],
)
def test_moments_probabilities_and_both_routes_to_the_evidence_meet_quadrature(prior_model, kernel):
    asked = problem(prior_model, **kernel)
    truth = solve("quadrature", "exact", asked, digits=5.0)
    got = solve("gibbs", "mh-softmax", asked, evidence="all", **SHORT)
    statistics = []
    for name in ("bridge", "annealed"):
        value, error = got.local[f"log_evidence_{name}"]
        assert 0.0 < error <= 0.05
        assert got.settings[f"trusted_{name}"]
        statistics.append((value - truth.log_evidence) / error)
    names = ["latent_mean", "test_latent_mean", "test_latent_cov", "probabilities"]
    names += ["inducing_mean", "inducing_cov"] if prior_model == "fitc" else []
    for name in names:
        assert getattr(got, f"{name}_se").shape == getattr(got, name).shape == getattr(truth, name).shape
        # the quadrature's error of 1e-5 and less is far below the chains'
        statistics += list(((getattr(got, name) - getattr(truth, name)) / getattr(got, f"{name}_se")).ravel())
    # two-sided, Bonferroni at 1e-4 over at most 60 statistics
    assert np.abs(statistics).max() < 4.9
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=1e-8)  # quadrature given a draw
    best = min((got.local[f"log_evidence_{name}"] for name in ("bridge", "annealed")), key=lambda pair: pair[1])
    assert [got.log_evidence, got.log_evidence_se] == list(best)
    assert got.log_evidence_kind == "sampled"
    assert got.settings["settled"]
    assert not got.settings["gate"]  # too few draws for the gate
    assert not got.converged
    assert "(at least 10000)" in got.settings["reason"]
    assert got.ess > 1000


def test_evidence_is_left_out_when_asked_and_a_seed_fixes_every_number():
    asked = problem(X_test=None)
    runs = [solve("gibbs", "mh-softmax", asked, evidence="none", **(SHORT | {"n_draws": 40})) for _ in range(2)]
    assert runs[0].log_evidence is None
    assert runs[0].probabilities is None
    assert np.array_equal(runs[0].latent_mean, runs[1].latent_mean)
    other = solve("gibbs", "mh-softmax", asked, evidence="none", **(SHORT | {"n_draws": 40, "seed": 4}))
    assert not np.array_equal(runs[0].latent_mean, other.latent_mean)
    # too few draws to fit a Gaussian: no bridge, and no number made up for it
    assert solve("gibbs", "mh-softmax", asked, **(SHORT | {"n_draws": 40})).log_evidence is None


def test_other_moves_reach_the_adapter_and_progress_is_seen():
    visited = []
    short = SHORT | {"n_draws": 60}
    got = solve(
        "gibbs", "mh-softmax", problem(), moves=["ellipse", "scaled"], evidence="none", callback=visited.append, **short
    )
    assert got.settings["moves"] == ["ellipse", "scaled"]
    assert "acceptance_flow" not in got.settings
    assert 0.0 < got.settings["acceptance_scaled"] < 1.0
    assert visited


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"likelihood": "multinomial-probit"}, {}, "likelihood: found 'multinomial-probit', expected 'softmax'"),
        ({}, {"seed": -1}, "seed: found -1"),
        ({}, {"evidence": "some"}, "evidence: found 'some'"),
        ({}, {"moves": ["jump"]}, "moves: found"),
        ({}, {"moves": []}, "moves: found"),
        ({}, {"n_draws": 2}, "n_draws: found 2"),
        ({}, {"wibble": 1}, "wibble"),
        ({"X": X[[0, 0]], "noise": 0.0, "jitter": 0.0}, {}, "K_XX .*expected > 0"),
    ],
)
def test_what_the_method_cannot_answer_is_refused_by_name(changes, options, message):
    with pytest.raises((ValueError, TypeError, np.linalg.LinAlgError), match=message):
        solve("gibbs", "mh-softmax", problem(**changes), **(SHORT | options))
