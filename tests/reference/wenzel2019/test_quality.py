"""The gap between the bounds of the original and of the augmented model."""

import numpy as np
import pytest

from reference.wenzel2019.bound import xgpc_bound
from reference.wenzel2019.quality import augmentation_gap


@pytest.mark.verifies("wenzel2019", "u4.3-gap", route="the two bounds, the original one by quadrature")
def test_the_gap_is_the_difference_of_the_two_bounds(model, rng, gaussian_expectation):
    root = rng.normal(size=(model.n, model.n))
    mean, cov = rng.normal(size=model.n), 0.3 * root @ root.T + 0.2 * np.eye(model.n)
    ratio = np.linalg.solve(model.K_XX, cov)
    kl = 0.5 * (np.trace(ratio) - model.n - np.linalg.slogdet(ratio)[1] + mean @ np.linalg.solve(model.K_XX, mean))
    original = -kl + sum(
        gaussian_expectation(lambda f, y=y: -np.log1p(np.exp(-y * f)), m, v)
        for y, m, v in zip(model.y, mean, np.diag(cov), strict=True)
    )
    augmented = xgpc_bound(mean, cov, model.c, model.y, model.K_XX, np.eye(model.n), np.zeros(model.n))
    # bounds of size 10, quadratures of 1e-12 and a condition below 100
    np.testing.assert_allclose(augmentation_gap(mean, np.diag(cov), model.c), original - augmented, rtol=1e-9, atol=0)


def test_no_gap_is_left_where_the_posterior_of_omega_is_known():
    f = np.array([0.3, -4.0, 900.0])
    # log cosh and its parabola cancel: rounding of numbers up to 450
    assert augmentation_gap(f, np.zeros(3), np.abs(f)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("var", [1e-12, 1.0, 1e6])
def test_the_gap_is_never_negative(var):
    mean = np.array([-1000.0, 0.0, 3.0])
    c = np.sqrt(mean**2 + var)
    # quadrature and rounding relative to terms of size c
    assert augmentation_gap(mean, np.full(3, var), c) >= -1e-10
