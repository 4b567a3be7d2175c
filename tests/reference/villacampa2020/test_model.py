"""Section 2: the rule, the likelihoods and the noise from their definitions."""

import numpy as np
import pytest
from scipy.stats import gumbel_r

from reference.villacampa2020.model import add_latent_noise, hard_max_likelihood, label_from_latents, robust_likelihood


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


@pytest.mark.verifies("villacampa2020", "2", route="law of total probability over the origin of the label")
def test_the_robust_likelihood_is_a_mixture():
    f = np.array([0.3, 1.2, -0.4])
    got = [robust_likelihood(f, c, 0.05) for c in range(3)]
    # three roundings
    np.testing.assert_allclose(got, [0.05 / 3, 0.95 + 0.05 / 3, 0.05 / 3], rtol=1e-14, atol=0)


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
