"""Slips of riihimaki2013: what is meant, by a route that needs neither wording, beside what is printed."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import sqrtm
from scipy.special import ndtr
from scipy.stats import norm

from reference.riihimaki2013.complexity import complexity_table
from reference.riihimaki2013.inner_ep import inner_posterior, inner_site_change, inner_tilted_moments
from reference.riihimaki2013.model import multinomial_probit_likelihood
from reference.riihimaki2013.posterior import stacked_site_matrix
from reference.riihimaki2013.prediction import class_probability_from_g
from reference.riihimaki2013.quadrature_ep import diagonal_lambda, tilted_moments_quadrature
from reference.riihimaki2013.sites import (
    augmented_tilted,
    difference_matrix,
    outer_site,
    site_precision,
    tilted_covariance,
    tilted_mean_augmented,
)
from validation.ledger.numbers import assert_recorded

PAPER = "riihimaki2013"
Y = 1
CLOSE = {"rel": 1e-9, "abs": 1e-11}  # matrices of 4 x 4 with conditions below 1e3


def integrated(alpha, y=Y):
    """Precision in f of exp(-½ Σ_j α_j (u + f_y - f_j)²) N(u|0, 1), u integrated out."""
    c = len(alpha) + 1
    precision = np.zeros((c + 1, c + 1))
    precision[c, c] = 1.0
    for a, j in zip(alpha, np.delete(np.arange(c), y), strict=True):
        b = np.zeros(c + 1)
        b[y], b[j], b[c] = 1.0, -1.0, 1.0
        precision += a * np.outer(b, b)
    return precision[:c, :c] - np.outer(precision[:c, c], precision[c, :c]) / precision[c, c]


def orthant(mean, cov):
    """P(z_1 > 0, z_2 > 0) of z ~ N(mean, cov), by quadrature over z_1."""
    sd, slope = np.sqrt(cov[0, 0]), cov[0, 1] / cov[0, 0]
    rest = np.sqrt(cov[1, 1] - slope * cov[0, 1])
    return quad(lambda z: norm.pdf(z, mean[0], sd) * ndtr((mean[1] + slope * (z - mean[0])) / rest), 0.0,
                mean[0] + 12.0 * sd, epsabs=1e-13, epsrel=1e-12)[0]  # fmt: skip


def test_a_site_of_the_latent_values_is_no_normal_density(model):
    precision = integrated(model.alpha[0])
    assert_recorded(PAPER, "slip-1", int(np.linalg.matrix_rank(precision)), len(precision))


def test_a_factor_of_the_likelihood_is_a_distribution_function():
    one = multinomial_probit_likelihood(np.zeros(2), 0)  # E[Φ(u)]
    assert_recorded(PAPER, "slip-2", one, quad(lambda u: norm.pdf(u) ** 2, -12, 12)[0])


def test_the_site_precision_is_what_the_tilted_one_has_beyond_the_cavity(model):
    s = model
    tilted = np.linalg.inv(tilted_covariance(s.cavity_cov, difference_matrix(3, Y), s.alpha[0]))
    site = integrated(s.alpha[0])
    np.testing.assert_allclose(tilted - np.linalg.inv(s.cavity_cov), site, rtol=1e-9, atol=1e-10)
    assert_recorded(PAPER, "slip-3", site[0, 0], tilted[0, 0])


def test_the_approximation_of_the_tilted_distribution_is_a_density():
    w = augmented_tilted(np.array([0.2, -0.4]), np.array([[1.3, 0.2], [0.2, 0.8]]), 0)
    b = w.B_tilde[:, 0]
    m, v = b @ w.mu_w, b @ w.Sigma_w @ b  # of two classes there is one site: its cavity is the prior
    tilted = inner_tilted_moments(m, v)
    alpha, beta = (float(part) for part in inner_site_change(tilted.mean, tilted.var, m, v, 1.0))
    # the site's scale, from the normaliser Φ(z) that it must have under the cavity
    sd = np.sqrt(v + 1.0 / alpha)
    scale = ndtr(m / np.sqrt(1.0 + v)) / norm.pdf(beta / alpha, m, sd)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = w.mu_w + np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1) @ np.linalg.cholesky(w.Sigma_w).T
    site = scale * norm.pdf(grid @ b, beta / alpha, np.sqrt(1.0 / alpha)) / ndtr(m / np.sqrt(1.0 + v))
    weights = weights / np.sum(weights)
    total = np.einsum("abc,a,b,c->", site, weights, weights, weights)
    assert total == pytest.approx(1.0, rel=1e-6, abs=0)  # forty nodes
    assert_recorded(PAPER, "slip-4", total)


def test_the_site_precision_is_like_the_negative_hessian(model):
    f, h = np.array([0.3, -0.2, 0.6]), 1e-3

    def value(x):
        gap = x[Y] - np.delete(x, Y)
        return np.log(orthant(gap, np.eye(2) + 1.0))

    hessian = np.array([[(value(f + a + b) - value(f + a - b) - value(f - a + b) + value(f - a - b)) / (4.0 * h * h)
                         for a in h * np.eye(3)] for b in h * np.eye(3)])  # fmt: skip
    assert_recorded(PAPER, "slip-5", np.linalg.eigvalsh(integrated(model.alpha[0]))[-1], np.linalg.eigvalsh(hessian)[0])


def test_the_selection_of_latent_values_is_one_for_all_data(model):
    s, kept = model, []
    for y in range(3):
        w = augmented_tilted(s.cavity_mean, s.cavity_cov, y)
        whole = inner_posterior(*w, s.alpha[0], s.beta[0]).mean
        part = tilted_mean_augmented(w.mu_w, w.Sigma_w, w.B_tilde, s.alpha[0], s.beta[0])
        kept.append(tuple(int(np.argmin(np.abs(whole - value))) for value in part))
        np.testing.assert_allclose(part, whole[list(kept[-1])], rtol=1e-9, atol=1e-11)
    assert_recorded(PAPER, "slip-6", len(set(kept)), s.n)


def test_the_natural_location_is_no_fixed_point_of_the_precision(model):
    s = model
    site = outer_site(s.alpha[0], s.beta[0], Y)
    assert_recorded(PAPER, "slip-7", site.location[0], (integrated(s.alpha[0]) @ site.location)[0])
    assert_recorded(PAPER, "slip-8", np.min(site.location))


def test_the_divergence_from_p_hat_and_from_q_hat_differ_by_a_constant():
    m, v = 0.3, 1.4
    tilted = inner_tilted_moments(m, v)

    def kl(log_p, p, q):
        return quad(lambda g: p(g) * (log_p(g) - norm.logpdf(g, q[0], np.sqrt(q[1]))), -9, 11, epsabs=1e-13)[0]

    norm_ = ndtr(m / np.sqrt(1.0 + v))

    def p_hat(g):
        return norm.pdf(g, m, np.sqrt(v)) * ndtr(g) / norm_

    def q_hat(g):
        return norm.pdf(g, tilted.mean, np.sqrt(tilted.var))

    apart = [kl(lambda g: np.log(p_hat(g)), p_hat, q) - kl(lambda g: np.log(q_hat(g)), q_hat, q)
             for q in ((0.0, 2.0), (1.1, 0.7))]  # fmt: skip
    assert apart[0] == pytest.approx(apart[1], rel=1e-6, abs=0)  # differences of quadratures to 1e-11
    assert_recorded(PAPER, "slip-9", *apart)


def test_the_diagonal_form_has_no_entries_beside_the_diagonal(model):
    s, B = model, difference_matrix(3, Y)
    mean, cov = B.T @ s.cavity_mean, B.T @ s.cavity_cov @ B + 1.0
    Lambda = np.linalg.inv(tilted_moments_quadrature(mean, cov, 100).cov) - np.linalg.inv(cov)
    cut = np.diag(diagonal_lambda(Lambda))
    assert_recorded(PAPER, "slip-10", cut[0, 1], Lambda[0, 1])


def test_a_product_rule_has_its_nodes_in_every_dimension(model):
    s, B = model, difference_matrix(3, Y)
    mean, cov = B.T @ s.cavity_mean, B.T @ s.cavity_cov @ B + 1.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    weights = weights / np.sum(weights)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    sd = np.sqrt(np.diag(cov))
    values = np.prod(ndtr(mean + sd * (grid @ sqrtm(cov / np.outer(sd, sd)))), axis=-1)
    assert tilted_moments_quadrature(mean, cov, 10).norm == pytest.approx(weights @ values @ weights, **CLOSE)
    assert_recorded(PAPER, "slip-11", len(nodes), grid.shape[-1])
    assert_recorded(PAPER, "slip-14", s.n * values.size)
    assert complexity_table("qep", s.n, s.c, 1, 10, 1).likelihood == s.n * values.size


def test_the_class_probability_needs_the_auxiliary_variable(model):
    s, B = model, difference_matrix(3, Y)
    m, S = B.T @ s.cavity_mean, B.T @ s.cavity_cov @ B
    with_u, without = (orthant(m, S + extra + np.eye(2)) for extra in (np.ones((2, 2)), np.zeros((2, 2))))
    # 1024 points: up to 1e-5 for three classes
    assert class_probability_from_g(s.cavity_mean, s.cavity_cov, Y) == pytest.approx(with_u, rel=1e-4, abs=0)
    assert_recorded(PAPER, "slip-12", with_u, without)


def test_the_posterior_is_skewed_and_its_approximation_is_not():
    sd = np.exp(2.0)  # log σ² = 4
    mass, first, second, third = (
        quad(lambda g, p=p: g**p * norm.pdf(g, 0.0, np.sqrt(2.0) * sd) * ndtr(g / np.sqrt(2.0)), -90, 90, limit=300)[0]
        for p in range(4)
    )
    m = first / mass
    var = second / mass - m**2
    assert_recorded(PAPER, "slip-13", (third / mass - 3.0 * m * var - m**3) / var**1.5, 0)


def test_two_precisions_share_a_letter(model):
    s = model
    pi = np.stack([site_precision(s.alpha[i], int(s.y[i])).pi for i in range(s.n)])
    T = stacked_site_matrix(pi)
    assert_recorded(PAPER, "slip-16", len(np.diag(s.alpha[0])), len(T))


def test_one_number_is_added_to_the_sum_of_the_inner_precisions(model):
    s, B = model, difference_matrix(3, Y)
    a = s.alpha[0]
    direct = B @ np.linalg.inv(np.diag(1.0 / a) + np.ones((2, 2))) @ B.T
    np.testing.assert_allclose(direct, integrated(a), rtol=1e-10, atol=1e-12)
    lowrank = B @ (np.diag(a) - np.outer(a, a) / (1.0 + np.sum(a))) @ B.T
    np.testing.assert_allclose(lowrank, direct, rtol=1e-10, atol=1e-12)
    assert_recorded(PAPER, "slip-17", direct[0, 0], np.size(1.0 + np.sum(a)), len(np.ones(2)))
