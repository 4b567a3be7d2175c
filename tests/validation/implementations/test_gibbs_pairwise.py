"""The adapter of gibbs-pairwise: two classes are the threshold rule, shapes, routes to log Z, options, refusals."""

import numpy as np
import pytest

from validation import Problem, solve

X = np.array([[0.0, 0.3], [0.8, -0.4]])
SHORT = {"n_chains": 16, "n_draws": 500, "n_warmup": 50, "seed": 5}


def problem(prior_model="fitc", C=2, **changes):
    fields = {
        "name": "two", "X": X, "y": np.array([0, C - 1]), "n_classes": C, "likelihood": "threshold",
        "variance": np.array([3.0, 1.0, 5.0])[:C], "lengthscales": np.array([0.9, 1.4]), "noise": 0.4, "jitter": 1e-3,
        "Z": np.array([[0.2, 0.0], [-0.7, 0.4]]) if prior_model == "fitc" else None, "prior_model": prior_model,
        "X_test": np.array([[0.3, 0.1], [-1.5, 1.0]]),
    }  # fmt: skip
    return Problem(**(fields | changes))


@pytest.mark.parametrize("kernel", [{}, {"kernel": "matern", "smoothness": np.array([0.5, 2.2])}])
def test_with_two_classes_it_is_the_threshold_rule_of_quadrature(kernel):
    asked = problem(**kernel)
    truth = solve("quadrature", "exact", asked)
    got = solve("gibbs", "gibbs-pairwise", asked, **SHORT)
    statistics = []
    for name in ("bridge", "sequential"):
        value, error = got.local[f"log_evidence_{name}"]
        assert 0.0 < error <= 0.05
        assert got.settings[f"trusted_{name}"]
        statistics.append((value - truth.log_evidence) / error)
    # given u, data and test points are independent: what is predicted and what u is are the same in both models
    for name in ("inducing_mean", "inducing_cov", "test_latent_mean", "probabilities"):
        assert getattr(got, f"{name}_se").shape == getattr(got, name).shape == getattr(truth, name).shape
        statistics += list(((getattr(got, name) - getattr(truth, name)) / getattr(got, f"{name}_se")).ravel())
    # two-sided, Bonferroni at 1e-4 over 22 statistics: 4.6
    assert np.abs(statistics).max() < 4.6
    assert got.evidence_target == "log p(y)"
    assert got.log_evidence_kind == "sampled"
    assert got.settings["settled"]
    assert not got.converged  # too few draws for the gate
    assert "(at least 10000)" in got.settings["reason"]


def test_three_classes_are_another_model_than_the_threshold_rule_and_say_so():
    got = solve("gibbs", "gibbs-pairwise", problem(C=3), **SHORT)
    first, second = (got.local[f"log_evidence_{name}"] for name in ("bridge", "sequential"))
    assert got.evidence_target == "pairwise model"
    assert abs(first[0] - second[0]) < 4.6 * np.hypot(first[1], second[1])  # two-sided at 5e-6
    threshold = solve("quadrature", "exact", problem(C=3))
    # (7) multiplies Φ of pairs as if they were independent, which lowers p(y): here by 0.36
    assert got.log_evidence < threshold.log_evidence - 5.0 * got.log_evidence_se
    np.testing.assert_allclose(got.probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-10)  # rounding


def test_the_full_prior_has_no_inducing_values_and_options_are_recorded():
    got = solve(
        "gibbs", "gibbs-pairwise", problem("full", X_test=None), evidence="chains", **(SHORT | {"n_draws": 100})
    )
    assert got.inducing_mean is None
    assert got.probabilities is None
    assert "log_evidence_sequential" not in got.local
    assert got.settings["n_draws"] == 100
    none = solve("gibbs", "gibbs-pairwise", problem("full"), evidence="none", **(SHORT | {"n_draws": 20}))
    assert none.log_evidence is None


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"likelihood": "multinomial-probit"}, {}, "likelihood: found 'multinomial-probit', expected 'threshold'"),
        ({"epsilon": 0.1}, {}, r"epsilon: found 0.1, expected 0 .*\(7\) has no labelling errors"),
        ({}, {"seed": -1}, "seed: found -1"),
        ({}, {"evidence": "some"}, "evidence: found 'some'"),
        ({}, {"n_chains": 0}, "n_chains: found 0"),
        ({}, {"moves": ()}, "moves"),
        ({"noise": 0.0, "Z": X, "jitter": 0.0}, {}, "noise: found variance .*raise noise"),
    ],
)
def test_what_the_method_cannot_answer_is_refused_by_name(changes, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        solve("gibbs", "gibbs-pairwise", problem(**changes), **(SHORT | options))
