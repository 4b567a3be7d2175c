"""The bridges between models, by quadrature: no sampler is needed to see that both sides are one model."""

from __future__ import annotations

import numpy as np
import pytest

from validation import problems, solve
from validation.checks.against_truth.bridges import Bridge, inducing_at_data, two_classes, unit_noise
from validation.checks.against_truth.truths import problem_of, question_of
from validation.checks.subjects import CERTIFICATES, as_probit
from validation.truth import ROUTES, store


def both(bridge: Bridge):
    return bridge.translate(solve("quadrature", "exact", bridge.left)), solve("quadrature", "exact", bridge.right)


def held(bridge: Bridge, quantities: tuple[str, ...]) -> None:
    left, right = both(bridge)
    for quantity in quantities:
        a, b = getattr(left, quantity), getattr(right, quantity)
        # the rules state errors below 1e-6 of what they give, most of them far less
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=quantity)


LATENTS = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov")


def test_two_classes_of_unequal_variance_are_the_binary_probit_of_the_averages():
    bridge = two_classes(problems.get("two-points").replace(noise=0.3))
    assert len(set(bridge.left.variance)) == len(set(bridge.left.noise)) == 2
    held(bridge, ("log_evidence", "probabilities", *LATENTS))


@pytest.mark.parametrize("wrong", ["variance", "noise"])
def test_the_average_and_not_the_sum_is_the_parameter_of_the_difference(wrong):
    bridge = two_classes(problems.get("two-points").replace(noise=0.3))
    doubled = bridge.right.replace(**{wrong: 2.0 * getattr(bridge.right, wrong)})
    with pytest.raises(AssertionError, match="latent_cov"):
        held(bridge._replace(right=doubled), ("latent_cov",))


def test_unit_noise_turns_the_probit_into_the_threshold_rule():
    held(
        unit_noise(problems.get("two-points-3")),
        ("log_evidence", "probabilities", "test_latent_mean", "test_latent_cov"),
    )


def test_fitc_with_the_data_for_inducing_points_is_the_full_prior():
    held(inducing_at_data(problems.get("two-points-3")), ("log_evidence", "probabilities", *LATENTS))


# -- the tables of certificates and of stored truths -----------------------------------------------------------------


def test_every_sampler_of_several_classes_is_certified_at_a_large_variance_and_with_four_classes():
    for sampler in ("exact-probit", "gibbs-probit", "gibbs-threshold"):
        names = [name for entry in CERTIFICATES if entry.sampler == sampler for name in (*entry.problems, *entry.full)]
        names += [name for name, recipe in store.RECIPES.items() if recipe.method == sampler]
        results = [problems.get(name.removesuffix("-probit")) for name in names]
        # to rounding of exp(log(...))
        assert any(p.n_classes >= 3 and p.variance.max() >= np.exp(4.0) * (1.0 - 1e-12) for p in results)
        assert any(p.n_classes >= 4 for p in results)


def test_every_stored_truth_is_asked_on_the_problem_of_its_name():
    for name, recipe in store.RECIPES.items():
        assert recipe.method in ROUTES
        asked = question_of(problems.get(problem_of(name)), recipe.method)
        assert asked.name == name
        assert store.same_question(asked, store.question(name))


def test_the_probit_link_replaces_the_logistic_one_only():
    toy = problems.get("toy")
    assert as_probit(toy).name == "toy-probit"
    assert toy.differences(as_probit(toy)) == ["likelihood"]
    assert as_probit(problems.get("toy-3")) is problems.get("toy-3")
