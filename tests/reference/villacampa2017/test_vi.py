"""Section 3: sampling-free integrals of the robust likelihood, and bounds that are met by an exact posterior."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.villacampa2017.errata import log_evidence_as_printed
from reference.villacampa2017.posterior import Gaussians
from reference.villacampa2017.vi import (
    record_jensen_gap,
    robust_likelihood,
    variational_elbo,
    vi_inner_bound,
    vi_latent_marginal,
    vi_marginal_mean,
    vi_marginal_variance,
    vi_outer_bound,
)
from validation.ledger.numbers import assert_recorded, told_apart

EPSILON = 0.05


@pytest.mark.verifies("villacampa2017", "13", route="law of total probability over the origin of the label")
def test_the_robust_likelihood_is_a_mixture():
    f = np.array([0.3, 1.2, -0.4])
    got = [robust_likelihood(f, c, EPSILON) for c in range(3)]
    np.testing.assert_allclose(got, [0.05 / 3, 0.95 + 0.05 / 3, 0.05 / 3], rtol=1e-14, atol=0)
    assert sum(got) == pytest.approx(1.0, rel=1e-14)


@pytest.mark.verifies("villacampa2017", "14", route="evidence of a Gaussian likelihood in closed form", printed=True)
def test_the_first_line_of_the_bound_lacks_its_logarithm():
    K = np.array([[[1.3]], [[0.8]]])
    target, var = np.array([0.7, -0.4]), np.array([2.3, 3.6])

    def log_likelihood(values):
        return float(np.sum(norm.logpdf(target, values[:, 0], np.sqrt(var))))

    wanted = float(np.sum(norm.logpdf(target, 0.0, np.sqrt(K[:, 0, 0] + var))))
    cov = 1.0 / (1.0 / K[:, 0, 0] + 1.0 / var)
    posterior = Gaussians((cov * target / var)[:, None], cov[:, None, None])
    # at the posterior the bound is log p(y); the printed equality has p(y) there
    got = vi_outer_bound(posterior, log_likelihood, K, 3)
    assert got == pytest.approx(wanted, rel=1e-12, abs=0)
    printed = log_evidence_as_printed(log_likelihood, K, 40)
    # likelihoods wider than the prior: forty nodes are exact to rounding
    assert printed == pytest.approx(np.exp(wanted), rel=1e-12, abs=0)
    assert abs(printed - wanted) > 1.0
    told_apart("villacampa2017", "14", printed, got)
    assert_recorded("villacampa2017", "14", wanted, printed)


@pytest.mark.verifies("villacampa2017", "14", route="equality for the exact posterior of a Gaussian likelihood")
def test_the_outer_bound_is_met_by_the_posterior_and_missed_by_another_distribution():
    K = np.array([[[1.3]], [[0.8]]])
    target, var = np.array([0.7, -0.4]), np.array([0.5, 0.9])

    def log_likelihood(values):
        return float(np.sum(norm.logpdf(target, values[:, 0], np.sqrt(var))))

    wanted = np.sum(norm.logpdf(target, 0.0, np.sqrt(K[:, 0, 0] + var)))
    cov = 1.0 / (1.0 / K[:, 0, 0] + 1.0 / var)
    posterior = Gaussians((cov * target / var)[:, None], cov[:, None, None])
    # quadratic integrands are exact for any rule of two nodes
    assert vi_outer_bound(posterior, log_likelihood, K, 3) == pytest.approx(wanted, rel=1e-12, abs=0)
    shifted = posterior._replace(mean=posterior.mean + 0.3)
    gap = np.sum(0.5 * 0.3**2 / cov)  # KL between Gaussians of equal covariance
    assert vi_outer_bound(shifted, log_likelihood, K, 3) == pytest.approx(wanted - gap, rel=1e-12, abs=0)
    with pytest.raises(ValueError, match="nodes"):
        vi_outer_bound(Gaussians(np.zeros((4, 3)), np.stack([np.eye(3)] * 4)), log_likelihood, K, 20)


def test_the_smallest_probability_of_an_error_has_a_logarithm():
    K = np.array([[[1.3]], [[0.8]]])
    posterior = Gaussians(np.zeros((2, 1)), K)
    k_xx, K_XZ = np.full((2, 1), 1.5), np.full((2, 1, 1), 0.4)
    values = [variational_elbo(posterior, np.array([0]), k_xx, K_XZ, K, epsilon) for epsilon in (5e-324, 1e-300)]
    assert np.all(np.isfinite(values))
    # half of q wins: each factor e of epsilon costs half a nat, and epsilon / 2 is no number any more
    assert values[1] - values[0] == pytest.approx(0.5 * (np.log(1e-300) - np.log(5e-324)), rel=0.2)


@pytest.mark.verifies("villacampa2017", "u45-inner-bound", route="orthant probabilities; equality without variance")
def test_the_inner_bound_is_below_the_likelihood_given_inducing_values(rng):
    Z = np.array([[[0.0], [1.5]], [[-0.5], [1.0]]])
    X, y, noise = np.array([[0.3], [0.8]]), np.array([0, 1]), 0.2

    def k(A, B):
        return 1.7 * np.exp(-0.5 * (A - B.T) ** 2)

    K_ZZ, K_XZ = np.stack([k(z, z) for z in Z]), np.stack([k(X, z) for z in Z])
    values = rng.normal(size=(2, 2))
    mean, cov = np.zeros(2), np.zeros((2, 2))  # of f^0 - f^1 at both inputs, all of p(f|f̄)
    for c, sign in ((0, 1.0), (1, -1.0)):
        gain = np.linalg.solve(K_ZZ[c], K_XZ[c].T).T
        mean += sign * gain @ values[c]
        cov += k(X, X) + noise * np.eye(2) - gain @ K_XZ[c].T
    signs = np.where(y == 0, 1.0, -1.0)
    wins = norm.cdf(signs * mean / np.sqrt(np.diag(cov)))
    right, wrong = 1.0 - EPSILON / 2.0, EPSILON / 2.0
    expected = np.sum(wins * np.log(right) + (1.0 - wins) * np.log(wrong))
    k_xx = np.full((2, 2), 1.7 + noise)
    result = vi_inner_bound(values, y, k_xx, K_XZ, K_ZZ, EPSILON)
    assert result == pytest.approx(expected, rel=1e-10, abs=0)  # quadratures to 1e-11
    both = bivariate_normal_cdf(signs * mean, np.outer(signs, signs) * cov)
    likelihood = right**2 * both + right * wrong * (wins.sum() - 2.0 * both) + wrong**2 * (1.0 - wins.sum() + both)
    assert result < np.log(likelihood) - 0.1
    # latent values that are inducing values: nothing is left to integrate
    same = np.stack([k(X, X)] * 2)
    exact = sum(np.log(robust_likelihood(values[:, i], int(y[i]), EPSILON)) for i in range(2))
    assert vi_inner_bound(values, y, np.full((2, 2), 1.7), same, same, EPSILON) == pytest.approx(exact, rel=1e-6, abs=0)


@pytest.mark.verifies("villacampa2017", "16", route="affine map of a joint Gaussian, term by term")
@pytest.mark.verifies("villacampa2017", "17", route="affine map of a joint Gaussian, term by term")
@pytest.mark.verifies("villacampa2017", "u22-vi-latent-marginal", route="affine map of a joint Gaussian, term by term")
def test_marginals_of_the_latent_values(model):
    s = model
    posterior = Gaussians(np.stack([s.mean] * 3), np.stack([s.cov] * 3))
    whole = vi_latent_marginal(posterior, s.k_xx, s.K_XZ, s.K_ZZ)
    for k in range(s.C):
        for i in range(s.n):
            u = s.upsilon[k, i]
            mean = sum(u[j] * s.mean[j] for j in range(s.m))
            var = s.cond_var[k, i] + sum(u[j] * u[t] * s.cov[j, t] for j in range(s.m) for t in range(s.m))
            got = vi_marginal_mean(s.K_XZ[k, i], s.K_ZZ[k], s.mean)
            np.testing.assert_allclose([got, whole.mean[i, k]], mean, rtol=1e-10, atol=1e-12)
            got = vi_marginal_variance(s.k_xx[k, i], s.K_XZ[k, i], s.K_ZZ[k], s.cov)
            np.testing.assert_allclose([got, whole.var[i, k]], var, rtol=1e-10, atol=1e-12)


@pytest.mark.verifies("villacampa2017", "15", route="divergence and orthant probabilities by scipy")
def test_the_variational_objective(model):
    s = model
    posterior = Gaussians(np.stack([s.mean, s.mean_other, 0.5 * s.mean]), np.stack([s.cov, s.cov_other, 0.7 * s.cov]))
    data = 0.0
    distributions = vi_latent_marginal(posterior, s.k_xx, s.K_XZ, s.K_ZZ)
    for i, y in enumerate(s.y):
        others = [k for k in range(3) if k != y]
        cov = np.diag(distributions.var[i, others]) + distributions.var[i, y]
        win = bivariate_normal_cdf(distributions.mean[i, y] - distributions.mean[i, others], cov)
        data += win * np.log(1 - EPSILON + EPSILON / 3) + (1 - win) * np.log(EPSILON / 3)
    divergence = 0.0
    for m, S, K in zip(posterior.mean, posterior.cov, s.K_ZZ, strict=True):
        # E_q[log q] - E_q[log p] by entropies and a quadratic form
        divergence -= multivariate_normal(m, S).entropy()
        divergence -= multivariate_normal.logpdf(m, np.zeros(3), K) - 0.5 * np.trace(np.linalg.solve(K, S))
    got = variational_elbo(posterior, s.y, s.k_xx, s.K_XZ, s.K_ZZ, EPSILON)
    assert got == pytest.approx(data - divergence, rel=1e-8, abs=0)  # the bivariate normal's accuracy


@pytest.mark.verifies("villacampa2017", "15", route="below the outer bound of the same distribution, two classes")
def test_the_inner_bound_is_below_the_outer_one():
    K = np.array([[[1.2]], [[0.9]]])
    K_XZ = np.array([[[0.9], [0.4]], [[0.8], [-0.5]]])
    k_xx, y = np.array([[1.5, 1.5], [1.3, 1.3]]), np.array([0, 1])
    posterior = Gaussians(np.array([[0.4], [-0.3]]), np.array([[[0.7]], [[0.5]]]))
    cond_var = k_xx - K_XZ[:, :, 0] ** 2 / K[:, 0]

    def log_likelihood(values):
        gap = K_XZ[0, :, 0] / K[0, 0, 0] * values[0, 0] - K_XZ[1, :, 0] / K[1, 0, 0] * values[1, 0]
        win = norm.cdf(np.array([1, -1]) * gap / np.sqrt(cond_var.sum(axis=0)))
        return float(np.sum(np.log((1 - EPSILON) * win + EPSILON / 2)))

    outer = vi_outer_bound(posterior, log_likelihood, K, 30)
    inner = variational_elbo(posterior, y, k_xx, K_XZ, K, EPSILON)
    assert inner < outer - 0.05
    # the same distribution without Jensen's second step: the difference of both is that of the data terms
    marginal = vi_latent_marginal(posterior, k_xx, K_XZ, K)
    win = norm.cdf(np.array([1, -1]) * (marginal.mean[:, 0] - marginal.mean[:, 1]) / np.sqrt(marginal.var.sum(axis=1)))
    data = np.sum(win * np.log(1 - EPSILON / 2) + (1 - win) * np.log(EPSILON / 2))
    zero = vi_outer_bound(posterior, lambda values: 0.0, K, 3)
    assert inner == pytest.approx(data + zero, rel=1e-10, abs=0)


@pytest.mark.verifies("villacampa2017", "u41-jensen-record", route="two classes in closed form")
def test_the_two_averages_of_the_record():
    mean, var = np.array([[0.4, -0.3], [-1.0, 0.2]]), np.array([[0.7, 0.5], [0.9, 0.6]])
    win = norm.cdf((mean[:, 0] - mean[:, 1]) / np.sqrt(var.sum(axis=1)))  # both labels are 0
    got = record_jensen_gap(mean, var, np.array([0, 0]), EPSILON)
    outside = np.mean(np.log((1 - EPSILON) * win + EPSILON / 2))
    inside = np.mean(win * np.log(1 - EPSILON / 2) + (1 - win) * np.log(EPSILON / 2))
    np.testing.assert_allclose(got, [outside, inside], rtol=1e-11, atol=0)  # panels of 24 nodes
    assert got.expected_log < got.log_expected
