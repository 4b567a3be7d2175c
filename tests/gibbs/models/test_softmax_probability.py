"""E[softmax] against product rules, the logistic-normal integral, Monte Carlo and its own identities."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, softmax

from gibbs.models.softmax_probability import softmax_probability


@pytest.mark.parametrize("sd", [[0.3, 0.3, 0.3], [1.0, 2.0, 0.0], [3.0, 0.2, 1.0], [0.0, 0.0, 0.0]])
def test_three_classes_agree_with_a_product_rule(rng, sd):
    mean, x = 3.0 * rng.normal(size=(4, 3)), np.linspace(-8.2, 8.2, 65)
    weight = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    nodes = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1)
    got = softmax_probability(mean, np.square(sd))
    for m, row in zip(mean, got, strict=True):
        p = softmax(m + np.array(sd) * nodes, axis=-1)
        for _ in range(3):
            p = np.tensordot(weight, p, axes=(0, 0))
        np.testing.assert_allclose(row, p, rtol=0, atol=1e-9)  # QUADRATURE_ERROR


@pytest.mark.parametrize("sd", [0.05, 1.0, 20.0])
def test_two_classes_are_the_logistic_of_the_difference(sd):
    got = softmax_probability([[0.4, -1.0]], [0.36 * sd**2, 0.64 * sd**2])
    points = [0.0] if sd > 1 else None
    expected = quad(
        lambda g: expit(g) * np.exp(-0.5 * ((g - 1.4) / sd) ** 2) / (sd * np.sqrt(2 * np.pi)),
        1.4 - 9 * sd, 1.4 + 9 * sd, points=points, epsabs=1e-12, limit=500,
    )[0]  # fmt: skip
    np.testing.assert_allclose(got[0], [expected, 1.0 - expected], rtol=0, atol=1e-9)  # QUADRATURE_ERROR


@pytest.mark.parametrize("spread", [0.01, 1.0, 50.0])
def test_twenty_classes_sum_to_one_and_follow_a_permutation(rng, spread):
    mean, var = spread * rng.normal(size=(6, 20)), np.square(spread * rng.uniform(0.3, 1.5, 20))
    got, order = softmax_probability(mean, var), rng.permutation(20)
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=0, atol=2e-8)  # QUADRATURE_ERROR, twenty of them
    np.testing.assert_allclose(softmax_probability(mean[:, order], var[order]), got[:, order], rtol=0, atol=1e-12)


def test_far_apart_means_and_bad_input_are_right_or_refused():
    np.testing.assert_allclose(softmax_probability([[0.0, 1e4, -1e4]], [1.0, 1.0, 1.0]), [[0, 1, 0]], rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="latent_var"):
        softmax_probability([[0.0, 1.0]], [1.0, -1.0])
    with pytest.raises(ValueError, match="latent_var"):
        softmax_probability([[0.0, 1.0]], [1e-12, 1e8])
    with pytest.raises(ValueError, match="latent_mean"):
        softmax_probability([[0.0, np.nan]], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"latent_mean: found an entry of size 1e\+308, expected at most 1e\+100"):
        softmax_probability([[0.0, 1e308]], [1.0, 1.0])
