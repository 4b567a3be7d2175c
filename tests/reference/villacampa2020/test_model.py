"""Section 2: the rule, the likelihoods and the noise from their definitions."""

import numpy as np
import pytest
from scipy.stats import gumbel_r

from reference.villacampa2020.model import add_latent_noise, hard_max_likelihood, label_from_latents, robust_likelihood
from reference.villacampa2020.power_likelihood import expected_power_likelihood


@pytest.mark.verifies("villacampa2020", "u1-labelling-rule", route="cases by hand")
def test_the_label_is_the_place_of_the_largest_value():
    f = np.array([[0.3, 1.2, -0.4], [2.0, -1.0, 1.9], [-3.0, -2.0, -1.0]])
    np.testing.assert_array_equal(label_from_latents(f), [1, 0, 2])


@pytest.mark.verifies("villacampa2020", "1", route="the labelling rule")
def test_the_hard_likelihood_is_one_for_the_labels_of_the_rule_and_zero_for_any_other(rng):
    f = rng.normal(size=(4, 3))
    y = label_from_latents(f)
    assert hard_max_likelihood(f, y) == 1.0
    for i in range(4):
        wrong = y.copy()
        wrong[i] = (wrong[i] + 1) % 3
        assert hard_max_likelihood(f, wrong) == 0.0


@pytest.mark.verifies("villacampa2020", "1", "2", route="equal values as a limit of nearly equal ones, averaged")
@pytest.mark.parametrize("equal", [2, 3, 4])
def test_equal_largest_values_share_the_label(rng, equal):
    f = np.array([0.7] * equal + [-0.2])
    C, epsilon = equal + 1, 0.1
    wanted = np.append(np.full(equal, 1.0 / equal), 0.0)
    # values that differ by a little, in every order once: each of the largest wins as often
    nearly = f + 1e-9 * np.array([np.append(np.roll(np.arange(equal), shift), 0.0) for shift in range(equal)])
    share = np.mean([label_from_latents(nearly) == c for c in range(C)], axis=1)
    np.testing.assert_allclose(share, wanted, rtol=1e-14, atol=0)
    hard = [hard_max_likelihood(f[None], np.array([c])) for c in range(C)]
    np.testing.assert_allclose(hard, wanted, rtol=1e-14, atol=0)
    robust = [robust_likelihood(f, c, epsilon) for c in range(C)]
    np.testing.assert_allclose(robust, (1.0 - epsilon) * wanted + epsilon / C, rtol=1e-14, atol=0)
    # and so have integrals over latent values without variance
    power = [expected_power_likelihood(f, np.zeros(C), c, epsilon, 1.0) for c in range(equal)]
    np.testing.assert_allclose(power, robust[:equal], rtol=1e-12, atol=0)


@pytest.mark.verifies("villacampa2020", "2", route="law of total probability over the origin of the label")
def test_the_robust_likelihood_is_a_mixture():
    f = np.array([0.3, 1.2, -0.4])
    got = [robust_likelihood(f, c, 0.05) for c in range(3)]
    # three roundings
    np.testing.assert_allclose(got, [0.05 / 3, 0.95 + 0.05 / 3, 0.05 / 3], rtol=1e-14, atol=0)


@pytest.mark.verifies("villacampa2020", "u2-latent-noise", route="second moment of a sum by a product rule")
def test_noise_adds_to_the_prior_variance_exactly():
    k_xx, noise = np.array([[1.0, 2.0], [0.5, 0.7]]), np.array([0.3, 2.0])
    x, w = np.polynomial.hermite_e.hermegauss(4)
    w = np.outer(w, w) / np.sum(np.outer(w, w))
    got = add_latent_noise(k_xx, noise)
    for k in range(2):
        for i in range(2):
            f, e = np.meshgrid(np.sqrt(k_xx[k, i]) * x, np.sqrt(noise[k]) * x, indexing="ij")
            assert got[k, i] == pytest.approx(np.sum(w * (f + e) ** 2), rel=1e-13, abs=0)  # exact up to degree seven


@pytest.mark.verifies(
    "villacampa2020", "u2-latent-noise", route="sample variance of sums, entry by entry", resolves=0.1
)
def test_noise_adds_to_the_prior_variance(rng):
    k_xx, noise = np.array([[1.0, 2.0], [0.5, 0.7]]), np.array([0.3, 2.0])
    draws = 40_000
    sums = rng.normal(scale=np.sqrt(k_xx), size=(draws, 2, 2)) + rng.normal(
        scale=np.sqrt(noise)[:, None], size=(draws, 2, 2)
    )
    wanted = add_latent_noise(k_xx, noise)
    # a sample variance has the relative standard error √(2/draws) = 0.0071; four entries at a level of 1e-5: 4.6 errors
    np.testing.assert_array_less(np.abs(np.var(sums, axis=0) / wanted - 1.0), 4.6 * np.sqrt(2.0 / draws))


def test_gumbel_noise_in_place_of_the_gaussian_makes_the_rule_a_soft_max(rng):
    f = np.array([0.5, -0.3, 1.0])
    labels = label_from_latents(f + gumbel_r.rvs(size=(40_000, 3), random_state=rng))
    soft = np.exp(f) / np.sum(np.exp(f))
    share = np.bincount(labels, minlength=3) / len(labels)
    # binomial standard errors; three statistics at a level of 1e-5: 4.6 errors
    np.testing.assert_array_less(np.abs(share - soft), 4.6 * np.sqrt(soft * (1.0 - soft) / len(labels)))
