"""Costs of wenzel2019, sections 3.2 and 4.3, counted in the operations themselves."""

import numpy as np
import pytest

from reference.wenzel2019.complexity import complexity_table
from reference.wenzel2019.prediction import predict_latent
from reference.wenzel2019.updates import update_eta2


@pytest.mark.verifies("wenzel2019", "u4.3-costs", route="multiplications counted one by one")
@pytest.mark.parametrize("rows", [2, 5])
def test_costs_are_those_of_the_operations(model, multiplications, rows):
    s = model
    kappa, theta = s.kappa[:rows], s.theta[:rows]
    v = multiplications.count(np.sqrt(theta)[:, None] * kappa)
    precision = v.T @ v + multiplications.count(s.K_ZZ_inv)
    whole = -2.0 * update_eta2(theta, kappa, s.K_ZZ_inv)
    np.testing.assert_allclose(multiplications.plain(precision), whole, rtol=1e-9, atol=0)  # condition below 1e4
    multiplications.inverse(precision)
    counts = complexity_table(s.m, rows)
    assert multiplications.total == counts.iteration
    # a test point, with what does not depend on it computed before
    k = multiplications.count(s.K_XZ[0])
    mean, bent = s.K_ZZ_inv @ s.mu, s.K_ZZ_inv @ (s.Sigma @ s.K_ZZ_inv - np.eye(s.m))
    multiplications.total = 0
    at = k @ multiplications.count(mean)
    assert multiplications.total == counts.mean
    multiplications.total = 0
    var = (k @ multiplications.count(bent)) @ k
    assert multiplications.total == counts.variance
    prediction = predict_latent(s.mu, s.Sigma, s.K_XZ[:1], s.K_XX[:1, 0], s.K_ZZ)
    assert at.value == pytest.approx(prediction[0][0], rel=1e-9)
    assert var.value + s.K_XX[0, 0] == pytest.approx(prediction[1][0], rel=1e-9)
    assert complexity_table(4, 2).iteration < complexity_table(4, 3).iteration
