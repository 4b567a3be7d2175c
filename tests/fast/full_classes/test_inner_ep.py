"""Inner EP and the algebra of sites on differences, against the same quantities in f, u and w with dense matrices."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import block_diag
from scipy.stats import norm

from fast.core.results import Differences
from fast.full_classes import inner_ep, nested_sites
from fast.full_classes.predict import inner_ep_probabilities, quadrature_probabilities
from fast.methods.nested_ep import inner_proposal
from fast.methods.nested_iep import independent_update
from fast.solve.outer_loop import damp

PAPER = "riihimaki2013"


def cavities(rng, n=5, C=4, scale=1.5):
    """Labels, means and covariances of f_i, inner sites."""
    y = np.arange(n) % C
    root = rng.normal(size=(n, C, C)) * scale
    cov = root @ root.transpose(0, 2, 1) + 0.3 * np.eye(C)
    alpha = rng.uniform(0.05, 0.9, size=(n, C - 1))
    return y, 1.2 * rng.normal(size=(n, C)), cov, alpha, rng.normal(size=(n, C - 1))


def loading(y, C):
    """B~ of one label: (C + 1, C - 1)."""
    B = np.zeros((C + 1, C - 1))
    for column, j in enumerate(k for k in range(C) if k != y):
        B[y, column], B[j, column], B[C, column] = 1.0, -1.0, 1.0
    return B


def augmented(y, mean, cov, alpha, beta):
    """Dense q(w): mean, covariance, and those of w without sites."""
    B, Sigma_w, mu_w = loading(y, len(mean)), block_diag(cov, 1.0), np.append(mean, 0.0)
    Sigma_q = np.linalg.inv(np.linalg.inv(Sigma_w) + B @ np.diag(alpha) @ B.T)
    return B, Sigma_q @ (np.linalg.solve(Sigma_w, mu_w) + B @ beta), Sigma_q, mu_w, Sigma_w


def printed_log_normaliser(y, mean, cov, alpha, beta):
    """log Z_q of appendix A, term by term."""
    B, mu, Sigma, mu_w, Sigma_w = augmented(y, mean, cov, alpha, beta)
    total = 0.5 * (mu @ np.linalg.solve(Sigma, mu) + np.linalg.slogdet(Sigma)[1])
    total -= 0.5 * (mu_w @ np.linalg.solve(Sigma_w, mu_w) + np.linalg.slogdet(Sigma_w)[1])
    for j in range(B.shape[1]):
        v, m = B[:, j] @ Sigma @ B[:, j], B[:, j] @ mu
        v_, m_ = 1.0 / (1.0 / v - alpha[j]), (m / v - beta[j]) / (1.0 / v - alpha[j])
        total += norm.logcdf(m_ / np.sqrt(1 + v_)) + 0.5 * (m_**2 / v_ + np.log(v_)) - 0.5 * (m**2 / v + np.log(v))
    return total


@pytest.mark.verifies(PAPER, "u3.2.1-g", route="dense B_i")
def test_differences_have_the_distribution_of_the_label_less_the_others(rng):
    y, mean, cov, *_ = cavities(rng)
    others = nested_sites.other_classes(y, 4)
    result = nested_sites.differences(y, others, mean, cov)
    for i in range(5):
        B = loading(y[i], 4)[:4]
        # sums of four numbers of order ten
        np.testing.assert_allclose(result.mean[i], B.T @ mean[i], rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(result.cov[i], B.T @ cov[i] @ B, rtol=1e-12, atol=1e-12)


@pytest.mark.verifies(PAPER, "12", "B-site", route="(11) with explicit inverses")
def test_site_matrices_are_the_low_rank_form_and_annihilate_one(rng):
    y, _, _, alpha, beta = cavities(rng)
    others = nested_sites.other_classes(y, 4)
    sites = nested_sites.outer_sites(y, others, alpha, beta)
    result = nested_sites.site_matrices(sites.precision)
    for i in range(5):
        B = loading(y[i], 4)[:4]
        direct = B @ np.linalg.inv(np.diag(1.0 / alpha[i]) + 1.0) @ B.T
        np.testing.assert_allclose(result[i], direct, rtol=1e-12, atol=1e-13)  # inverses of condition below 100
    np.testing.assert_allclose(result.sum(axis=2), 0.0, rtol=0, atol=1e-15)  # rows of numbers below one


@pytest.mark.verifies(PAPER, "12", "15", route="B (beta - alpha a), and the moment match of a Gaussian")
def test_site_locations_sum_to_zero_and_move_the_cavity_mean(rng):
    y, mean, cov, alpha, beta = cavities(rng)
    others = nested_sites.other_classes(y, 4)
    sites = nested_sites.outer_sites(y, others, alpha, beta)
    np.testing.assert_allclose(sites.location.sum(axis=1), 0.0, rtol=0, atol=1e-15)
    for i in range(5):
        _, mu, Sigma, *_ = augmented(y[i], mean[i], cov[i], alpha[i], beta[i])
        shift = np.linalg.solve(Sigma[:4, :4], mu[:4]) - np.linalg.solve(cov[i], mean[i])
        np.testing.assert_allclose(sites.location[i], shift, rtol=1e-9, atol=1e-10)  # condition of cov up to 1e3
        p = sites.precision[i]
        Pi = np.linalg.inv(Sigma[:4, :4]) - np.linalg.inv(cov[i])
        np.testing.assert_allclose(np.diag(p) - np.outer(p, p) / p.sum(), Pi, rtol=1e-9, atol=1e-10)


@pytest.mark.verifies(PAPER, "8", "17", route="dense q(w)")
def test_g_has_the_distribution_of_dense_q_of_w(rng):
    y, mean, cov, alpha, beta = cavities(rng)
    others = nested_sites.other_classes(y, 4)
    for i in range(5):
        one = slice(i, i + 1)
        B, mu, Sigma, *_ = augmented(y[i], mean[i], cov[i], alpha[i], beta[i])
        # marginal of f_i with its sites in it: what the outer posterior says
        projected = nested_sites.differences(y[one], others[one], mu[None, :4], Sigma[None, :4, :4])
        result = nested_sites.augmented_differences(projected, alpha[one], beta[one])
        np.testing.assert_allclose(result.mean[0], B.T @ mu, rtol=1e-9, atol=1e-11)  # dense inverses, condition 1e3
        np.testing.assert_allclose(result.cov[0], B.T @ Sigma @ B, rtol=1e-9, atol=1e-11)


@pytest.mark.verifies(PAPER, "u3.1-cavity", route="dense removal of a site")
def test_projected_cavities_are_those_of_f(rng):
    y, mean, cov, alpha, beta = cavities(rng)
    others = nested_sites.other_classes(y, 4)
    for i in range(5):
        one = slice(i, i + 1)
        B, mu, Sigma, *_ = augmented(y[i], mean[i], cov[i], alpha[i], beta[i])
        projected = nested_sites.differences(y[one], others[one], mu[None, :4], Sigma[None, :4, :4])
        result = nested_sites.projected_cavity(projected, alpha[one], beta[one])
        assert result.proper[0]
        np.testing.assert_allclose(result.mean[0], B[:4].T @ mean[i], rtol=1e-8, atol=1e-9)  # condition 1e3, twice
        np.testing.assert_allclose(result.cov[0], B[:4].T @ cov[i] @ B[:4], rtol=1e-8, atol=1e-9)


def test_a_site_stronger_than_the_posterior_is_no_distribution_and_is_named():
    y = np.array([0])
    distribution = Differences(np.zeros((1, 2)), 100.0 * np.eye(2)[None])
    assert not nested_sites.proper_cavities(distribution, np.ones((1, 2)))[0]
    assert nested_sites.proper_cavities(distribution, np.zeros((1, 2)))[0]
    assert nested_sites.other_classes(y, 3).tolist() == [[1, 2]]


@pytest.mark.verifies(PAPER, "A-step1", route="natural parameters")
def test_scalar_cavities_divide_by_their_site():
    mean, var, alpha, beta = np.array([0.3, -2.0]), np.array([0.8, 3.0]), np.array([0.5, 0.1]), np.array([0.2, -1.0])
    result = inner_ep.scalar_cavity(mean, var, alpha, beta)
    np.testing.assert_allclose(1 / result.var, 1 / var - alpha, rtol=1e-13)  # a few roundings
    np.testing.assert_allclose(result.mean / result.var, mean / var - beta, rtol=1e-13)
    np.testing.assert_allclose(result.cavity_ratio, var / result.var, rtol=1e-13)


@pytest.mark.verifies(PAPER, "A-step2", "A-step3", route="tilted moments by adaptive quadrature")
@pytest.mark.parametrize(("m", "v"), [(0.3, 1.4), (-2.0, 0.5), (-6.0, 4.0), (3.0, 20.0)])
def test_matched_sites_give_the_tilted_moments(m, v):
    moments = []
    for power in range(3):
        f = lambda g, p=power: g**p * norm.pdf(g, m, np.sqrt(v)) * norm.cdf(g)  # noqa: E731
        moments.append(quad(f, m - 12 * np.sqrt(v), m + 12 * np.sqrt(v), points=[0.0, m], epsabs=0, epsrel=1e-11)[0])
    mean = moments[1] / moments[0]
    var = moments[2] / moments[0] - mean**2
    alpha, beta = inner_ep.matched_site(np.array([m]), np.array([v]))
    # quadrature to 1e-11, variances lose two digits in the difference
    np.testing.assert_allclose(alpha[0], 1 / var - 1 / v, rtol=1e-7)
    np.testing.assert_allclose(beta[0], mean / var - m / v, rtol=1e-7)


def test_matched_sites_stay_in_their_range_far_out():
    m, v = np.meshgrid([-1e5, -100.0, -5.0, 0.0, 40.0, 1e4], [1e-8, 1.0, 1e4])
    alpha, beta = inner_ep.matched_site(m, v)
    assert ((alpha >= 0.0) & (alpha <= 1.0) & np.isfinite(beta)).all()


@pytest.mark.verifies(PAPER, "A-step4", route="dense refresh with explicit inverses")
def test_a_rank_one_refresh_adds_the_change_to_the_natural_parameters(rng):
    root = rng.normal(size=(3, 4, 4))
    cov, mean = root @ root.transpose(0, 2, 1) + 0.5 * np.eye(4), rng.normal(size=(3, 4))
    change, shift = np.array([0.4, -0.05, 0.0]), np.array([0.3, -1.0, 0.7])
    result = inner_ep.rank_one(mean.copy(), cov.copy(), 2, change, shift)
    e = np.eye(4)[2]
    for i in range(3):
        direct = np.linalg.inv(np.linalg.inv(cov[i]) + change[i] * np.outer(e, e))
        np.testing.assert_allclose(result.cov[i], direct, rtol=1e-9, atol=1e-11)  # condition below 1e3
        direct_mean = direct @ (np.linalg.solve(cov[i], mean[i]) + shift[i] * e)
        np.testing.assert_allclose(result.mean[i], direct_mean, rtol=1e-9, atol=1e-11)


@pytest.mark.verifies(PAPER, "A-parallel", route="dense inverses")
def test_a_parallel_refresh_is_the_dense_posterior(rng):
    y, mean, cov, alpha, beta = cavities(rng)
    others = nested_sites.other_classes(y, 4)
    cavity = inner_ep.distribution_with(nested_sites.differences(y, others, mean, cov))
    result = inner_ep.parallel_refresh(cavity, alpha, beta)
    for i in range(5):
        B, mu, Sigma, *_ = augmented(y[i], mean[i], cov[i], alpha[i], beta[i])
        np.testing.assert_allclose(result.cov[i], B.T @ Sigma @ B, rtol=1e-9, atol=1e-11)  # condition 1e3
        np.testing.assert_allclose(result.mean[i], B.T @ mu, rtol=1e-9, atol=1e-11)


@pytest.mark.verifies(PAPER, "A-logz", route="the printed formula with dense matrices")
def test_the_log_normaliser_is_the_printed_one_at_any_sites(rng):
    y, mean, cov, alpha, beta = cavities(rng)
    alpha *= 0.2
    others = nested_sites.other_classes(y, 4)
    cavity = inner_ep.distribution_with(nested_sites.differences(y, others, mean, cov))
    distribution = inner_ep.parallel_refresh(cavity, alpha, beta)
    result = inner_ep.log_normaliser(cavity, distribution, alpha, beta)
    for i in range(5):
        direct = printed_log_normaliser(y[i], mean[i], cov[i], alpha[i], beta[i])
        np.testing.assert_allclose(result[i], direct, rtol=1e-9, atol=1e-9)  # dense inverses, condition 1e3


def plain_inner_ep(y, mean, cov):
    """Sites of the fixed point by sweeps over scalars, q(w) inverted each time."""
    alpha, beta = np.zeros(len(mean) - 1), np.zeros(len(mean) - 1)
    for _ in range(60):
        for j in range(alpha.size):
            B, mu, Sigma, *_ = augmented(y, mean, cov, alpha, beta)
            v, m = B[:, j] @ Sigma @ B[:, j], B[:, j] @ mu
            v_, m_ = 1 / (1 / v - alpha[j]), (m / v - beta[j]) / (1 / v - alpha[j])
            z = m_ / np.sqrt(1 + v_)
            rho = norm.pdf(z) / norm.cdf(z) / np.sqrt(1 + v_)
            v_hat, m_hat = v_ - v_**2 * (rho**2 + z * rho / np.sqrt(1 + v_)), m_ + rho * v_
            alpha[j], beta[j] = 1 / v_hat - 1 / v_, m_hat / v_hat - m_ / v_
    return alpha, beta


@pytest.mark.verifies(
    PAPER, "B-predict-prob", "25", route="plain inner EP in w and its printed log Z_q; mass of the rule"
)
def test_inner_ep_comes_near_the_integral_with_its_known_bias(rng):
    _, mean, cov, *_ = cavities(rng, n=6, C=3, scale=0.7)
    by_ep, by_rule = inner_ep_probabilities(mean, cov), quadrature_probabilities(mean, cov)
    for k in range(3):
        sites = plain_inner_ep(k, mean[0], cov[0])
        direct = np.exp(printed_log_normaliser(k, mean[0], cov[0], *sites))
        np.testing.assert_allclose(by_ep[0, k], direct, rtol=1e-9)  # fixed points to 1e-12, inverses of condition 1e3
    # the bias of the normaliser that the paper reports: below a percent of a probability here, and not zero
    assert 1e-6 < np.abs(by_ep - by_rule).max() < 0.01
    # three orthants by 1024 points each: 2e-5 stated, room for the sum
    np.testing.assert_allclose(by_rule.sum(axis=1), 1.0, rtol=0, atol=1e-4)


@pytest.mark.verifies(PAPER, "25", route="adaptive quadrature over s for independent classes")
@pytest.mark.parametrize(("nodes", "limit"), [(None, 3e-5), (40, 1e-7)])
def test_both_rules_agree_with_one_integral_where_classes_are_independent(nodes, limit):
    mean, var = np.array([0.4, -0.3, 0.1]), np.array([0.5, 0.8, 0.3])
    actual = quadrature_probabilities(mean[None], np.diag(var)[None], nodes)[0]
    for k in range(3):
        j = [i for i in range(3) if i != k]
        f = lambda s, k=k, j=j: (  # noqa: E731
            norm.pdf(s, mean[k], np.sqrt(1 + var[k])) * norm.cdf((s - mean[j]) / np.sqrt(1 + var[j])).prod()
        )
        direct = quad(f, -12, 12, epsabs=1e-12)[0]
        # stated for 1024 points: 2e-5; 40 Gauss-Hermite nodes a dimension at variances below 3
        np.testing.assert_allclose(actual[k], direct, rtol=0, atol=limit)


@pytest.mark.verifies(PAPER, "B-predict-prob", route="C = 2: closed form")
def test_two_classes_have_the_closed_form():
    mean, cov = np.array([[0.7, -0.2]]), np.array([[[1.0, 0.3], [0.3, 0.5]]])
    h, H = 0.9, 1.0 + 0.5 - 0.6
    direct = norm.cdf(h / np.sqrt(2.0 + H))
    # one probit factor: inner EP is exact
    np.testing.assert_allclose(inner_ep_probabilities(mean, cov)[0], [direct, 1 - direct], rtol=1e-12)


@pytest.mark.verifies(PAPER, "u3.2.3-incremental", route="one sweep in a loop over scalars")
@pytest.mark.parametrize("inner", ["incremental", "converged"])
def test_a_sweep_visits_factors_in_order_and_ends_at_the_fixed_point(rng, inner):
    y, mean, cov, *_ = cavities(rng, n=3)
    others = nested_sites.other_classes(y, 4)
    cavity = inner_ep.distribution_with(nested_sites.differences(y, others, mean, cov))
    zero = np.zeros((3, 3))
    alpha, beta = inner_proposal(cavity, None, zero, zero, inner=inner)
    for i in range(3):
        G, m, a, b = cavity.cov[i].copy(), cavity.mean[i].copy(), np.zeros(3), np.zeros(3)
        for _ in range(1 if inner == "incremental" else 300):
            for j in range(3):
                v_ = 1 / (1 / G[j, j] - a[j])
                m_ = v_ * (m[j] / G[j, j] - b[j])
                z = m_ / np.sqrt(1 + v_)
                rho = norm.pdf(z) / norm.cdf(z) / np.sqrt(1 + v_)
                gamma = rho**2 + z * rho / np.sqrt(1 + v_)
                v_hat, m_hat = v_ - v_**2 * gamma, m_ + rho * v_
                a[j], b[j] = 1 / v_hat - 1 / v_, m_hat / v_hat - m_ / v_
                G = np.linalg.inv(np.linalg.inv(cavity.cov[i]) + np.diag(a))
                m = G @ (np.linalg.solve(cavity.cov[i], cavity.mean[i]) + b)
        # dense inverses of condition 1e3 beside rank-one updates
        np.testing.assert_allclose(alpha[i], a, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(beta[i], b, rtol=1e-8, atol=1e-10)


def test_sequential_and_parallel_inner_runs_end_at_one_point(rng):
    y, mean, cov, *_ = cavities(rng, scale=0.8)
    others = nested_sites.other_classes(y, 4)
    cavity = inner_ep.distribution_with(nested_sites.differences(y, others, mean, cov))
    zero = np.zeros((5, 3))
    one = inner_ep.run(zero, zero, cavity)
    two = inner_ep.run(zero, zero, cavity, schedule="parallel", damping=0.7, cavity=cavity)
    np.testing.assert_allclose(one.alpha_tilde, two.alpha_tilde, rtol=1e-9, atol=1e-11)  # both to 1e-12 in a sweep


@pytest.mark.verifies(PAPER, "u3.2.2-iep", route="dense tilted covariance, differences of inverse variances")
def test_independent_sites_match_means_and_variances_of_the_inner_approximation(rng):
    y, mean, _, alpha, beta = cavities(rng)
    var = rng.uniform(0.3, 4.0, size=mean.shape)
    tau, nu = independent_update(mean, var, y, alpha, beta)
    for i in range(5):
        _, mu, Sigma, *_ = augmented(y[i], mean[i], np.diag(var[i]), alpha[i], beta[i])
        S = Sigma.diagonal()[:4]
        np.testing.assert_allclose(tau[i], 1 / S - 1 / var[i], rtol=1e-10, atol=1e-12)  # condition below 100
        np.testing.assert_allclose(nu[i], mu[:4] / S - mean[i] / var[i], rtol=1e-10, atol=1e-12)
    assert (tau >= 0).all()


@pytest.mark.verifies(PAPER, "u3.2.3-damping", route="definition")
def test_damping_is_a_convex_combination(rng):
    old, new = (rng.normal(size=(2, 3)), rng.normal(size=(2, 3))), (rng.normal(size=(2, 3)), rng.normal(size=(2, 3)))
    result = damp(old, new, 0.25)
    for part in range(2):
        np.testing.assert_allclose(result[part], 0.75 * old[part] + 0.25 * new[part], rtol=1e-14)  # two products
    assert damp(old, new, 1.0)[0] is not new[0]
