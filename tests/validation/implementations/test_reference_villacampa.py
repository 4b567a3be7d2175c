"""`ep` and `sep` of `reference` behind the one door: shapes, targets, refusals, and answers that others give too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from validation import Problem, solve


def problem(n_classes: int = 3, **changes: Any) -> Problem:
    rng = np.random.default_rng(2017)
    X = rng.normal(size=(8, 2))
    given: dict[str, Any] = {
        "name": "few",
        "X": X,
        "y": np.arange(8) % n_classes,
        "n_classes": n_classes,
        "likelihood": "threshold",
        "variance": np.linspace(1.0, 2.0, n_classes),
        "lengthscales": np.ones((n_classes, 2)),
        "noise": 0.1,
        "jitter": 1e-4,
        "Z": np.stack([X[rng.permutation(8)[:4]] for _ in range(n_classes)]),
        "X_test": np.concatenate([X[:1], rng.normal(size=(2, 2))]),
    }
    return Problem(**(given | changes))


def test_what_is_reported() -> None:
    p = problem()
    for method, options, target in (
        ("ep", {}, "pairwise model"),
        ("ep", {"factors": "datum"}, "log p(y)"),
        ("sep", {"count": "per-class"}, "pairwise model"),
    ):
        s = solve("reference", method, p, gradient_rule="exact", trace=True, **options)
        assert (s.converged, s.evidence_target, s.prior_model) == (True, target, "fitc")
        assert s.trace[-1] == pytest.approx(s.log_evidence, rel=0, abs=1e-12)
        assert len(s.trace) == s.iterations
        assert s.gradients is not None
        assert {name: value.shape for name, value in s.gradients.items()} == {
            "variance": (3,),
            "lengthscales": (3, 2),
            "noise": (3,),
            "Z": (3, 4, 2),
        }
        assert s.probability_mass is not None
        np.testing.assert_allclose(s.probability_mass, 1.0, rtol=0, atol=1e-11)  # the rule's error
        assert s.latent_var is not None
        assert s.test_latent_var is not None
        if method == "sep" or not options:  # the first test point is the first datum
            np.testing.assert_allclose(s.test_latent_var[0], s.latent_var[0], rtol=1e-10, atol=0)
    assert solve("reference", "sep", problem(2)).evidence_target == "log p(y)"
    assert solve("reference", "ep", problem(2)).evidence_target == "log p(y)"  # one factor a datum: (7) is exact


def test_shared_gradients_are_sums_and_learned_values_stay_shared() -> None:
    p = problem(variance=1.5, Z=problem().X[:4])
    own, shared = (solve("reference", "ep", q) for q in (p, p.replace(shared=True)))
    for name, value in own.gradients.items():
        np.testing.assert_allclose(shared.gradients[name][1], np.sum(value, axis=0), rtol=1e-9, atol=1e-12)
    learned = solve("reference", "sep", p.replace(shared=True), learn=("noise", "Z"), batch_size=3, n_steps=4)
    assert learned.iterations == 4
    assert np.all(learned.problem.Z[0] == learned.problem.Z)
    assert np.any(learned.problem.Z != p.Z)


def test_inducing_points_at_the_data_and_no_noise() -> None:
    p = problem()
    s = solve("reference", "ep", p.replace(Z=p.X, noise=0.0, jitter=1e-8))
    assert s.converged
    np.testing.assert_allclose(s.inducing_mean.T, s.latent_mean, rtol=0, atol=1e-6)  # jitter apart


def test_what_cannot_be_answered_is_refused_by_name() -> None:
    p = problem()
    for method in ("ep", "sep"):
        for name, changes in (
            ("likelihood", {"likelihood": "softmax"}),
            ("kernel", {"kernel": "matern", "smoothness": 1.5}),
            ("Z", {"Z": None}),
            ("epsilon", {"epsilon": 0.1}),
            ("hyperprior", {"hyperprior": {"variance": ("log-normal", 1.0, 1.0)}}),
        ):
            with pytest.raises(ValueError, match=name):
                solve("reference", method, p.replace(**changes))
        for name, options in (
            ("damping", {"damping": 0.0}),
            ("tolerance", {"tolerance": 0.0}),
            ("rate", {"rate": -1.0}),
        ):
            with pytest.raises(ValueError, match=name):
                solve("reference", method, p, **options)
