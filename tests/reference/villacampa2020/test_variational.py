"""Section 2.3: both bounds where they are met, and two classes in closed form."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.villacampa2020.posterior import Gaussians
from reference.villacampa2020.variational import variational_elbo, vb_inner_bound, vb_outer_bound

EPSILON = 0.05


def test_without_label_noise_the_inner_bound_is_refused():
    with pytest.raises(ValueError, match=r"epsilon: found 0"):
        vb_inner_bound(np.zeros((1, 2)), np.ones((1, 2)), np.array([0]), 0.0)


@pytest.mark.verifies("villacampa2020", "3", route="two classes in closed form; equality for certain latent values")
def test_the_inner_bound_is_the_expected_log_likelihood_and_below_the_log_likelihood():
    mean, var, y = np.array([[0.4, -0.3], [-1.0, 0.2]]), np.array([[0.7, 0.5], [0.9, 0.6]]), np.array([0, 1])
    win = norm.cdf(np.array([1, -1]) * (mean[:, 0] - mean[:, 1]) / np.sqrt(var.sum(axis=1)))
    high, low = 1.0 - EPSILON / 2, EPSILON / 2
    wanted = np.sum(win * np.log(high) + (1.0 - win) * np.log(low))
    got = vb_inner_bound(mean, var, y, EPSILON)
    assert got == pytest.approx(wanted, rel=1e-11, abs=0)  # the one-dimensional rule
    assert got < np.sum(np.log(win * high + (1.0 - win) * low)) - 0.1
    certain = vb_inner_bound(mean, np.zeros((2, 2)), y, EPSILON)
    assert certain == pytest.approx(2.0 * np.log(high), rel=1e-11, abs=0)  # both labels are the largest


@pytest.mark.verifies("villacampa2020", "4", route="equality for the exact posterior of a Gaussian likelihood")
def test_the_outer_bound_is_met_by_the_posterior_and_missed_by_another_distribution():
    K = np.array([[[1.3]], [[0.8]]])
    target, var = np.array([0.7, -0.4]), np.array([0.5, 0.9])

    def log_likelihood(values):
        return float(np.sum(norm.logpdf(target, values[:, 0], np.sqrt(var))))

    wanted = np.sum(norm.logpdf(target, 0.0, np.sqrt(K[:, 0, 0] + var)))
    cov = 1.0 / (1.0 / K[:, 0, 0] + 1.0 / var)
    posterior = Gaussians((cov * target / var)[:, None], cov[:, None, None])
    # quadratic integrands are exact for any rule of two nodes
    assert vb_outer_bound(posterior, log_likelihood, K, 2) == pytest.approx(wanted, rel=1e-12, abs=0)
    other = Gaussians(posterior.mean + 0.2, 1.1 * posterior.cov)
    assert vb_outer_bound(other, log_likelihood, K, 2) < wanted - 0.05


@pytest.mark.verifies("villacampa2020", "5", route="multivariate normal orthants and entropies")
def test_the_bound_is_expected_log_likelihoods_minus_the_divergence(model):
    s = model
    posterior = Gaussians(s.mean, s.cov)
    data, divergence = 0.0, 0.0
    for i, y in enumerate(s.y):
        mean = np.array([s.upsilon[k, i] @ s.mean[k] for k in range(3)])
        var = np.array([s.cond_var[k, i] + s.upsilon[k, i] @ s.cov[k] @ s.upsilon[k, i] for k in range(3)])
        others = [k for k in range(3) if k != y]
        win = bivariate_normal_cdf(mean[y] - mean[others], np.diag(var[others]) + var[y])
        data += win * np.log(1 - s.epsilon + s.epsilon / 3) + (1 - win) * np.log(s.epsilon / 3)
    for m, V, K in zip(s.mean, s.cov, s.K_ZZ, strict=True):
        divergence -= multivariate_normal(m, V).entropy()
        divergence -= multivariate_normal.logpdf(m, np.zeros(2), K) - 0.5 * np.trace(np.linalg.solve(K, V))
    got = variational_elbo(posterior, s.y, s.upsilon, s.cond_var, s.K_ZZ, s.epsilon)
    assert got == pytest.approx(data - divergence, rel=1e-8, abs=0)  # the bivariate normal's accuracy
