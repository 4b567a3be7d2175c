"""Slips of villacampa2020: what is meant, by a route that needs neither wording, beside what is printed."""

from math import sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from reference.common._gaussians import natural_parameters
from reference.villacampa2020.divergence import alpha_divergence, alpha_divergence_gradient, gaussian_log_density
from reference.villacampa2020.pep import (
    parallel_pep_sweep,
    pep_include,
    pep_project,
    pep_refine_factors,
    pep_remove,
    pep_update,
    tilted_distributions,
)
from reference.villacampa2020.posterior import (
    Coefficients,
    Gaussians,
    Site,
    approximate_factor,
    factor_precision,
    log_approximate_factor,
    natural_prior,
    posterior_moments,
)
from reference.villacampa2020.prediction import predictive_latent_mean, predictive_latent_variance
from reference.villacampa2020.refinement import cavity_latent_variance
from reference.villacampa2020.tied import tied_factor_parameters
from validation.claims.inventory import load as load_claims
from validation.ledger.inventory import load as load_ledger
from validation.ledger.numbers import assert_recorded
from validation.reproduce.villacampa2020.uci import average_ranks

PAPER = "villacampa2020"
I, K = 1, 2  # a datum, whose label is 1, and a class that is not its label's  # noqa: E741
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / np.sum(WEIGHTS)
CLOSE = {"rel": 1e-8, "abs": 1e-10}  # forty nodes on smooth functions, inverses with conditions below 1e3


def largest(mean, var, y):
    """P(f_y is the largest) of independent normals; mean (..., C), var (C,)."""
    others = [k for k in range(mean.shape[-1]) if k != y]
    t = mean[..., y, None] + np.sqrt(var[y]) * NODES
    below = [ndtr((t - mean[..., k, None]) / np.sqrt(var[k])) for k in others]
    return np.prod(below, axis=0) @ WEIGHTS


def power(s, share, alpha):
    """E[p(y_i|f_i)^α] where the label's latent value is the largest with probability `share`."""
    low = (s.epsilon / s.C) ** alpha
    return low + ((1 - s.epsilon + s.epsilon / s.C) ** alpha - low) * share


def cavity_of(s, alpha):
    """Moments of q over the power α of the factor of datum I."""
    mean, cov = [], []
    for k in range(s.C):
        u = s.upsilon[k, I]
        cov.append(np.linalg.inv(np.linalg.inv(s.cov[k]) - alpha * s.c1[I, k] * np.outer(u, u)))
        mean.append(cov[-1] @ (np.linalg.solve(s.cov[k], s.mean[k]) - alpha * s.c2[I, k] * u))
    return Gaussians(np.array(mean), np.array(cov))


def along(s, q):
    """Mean and variance of υᵀf̄ of datum I, of every class."""
    u = s.upsilon[:, I]
    return np.einsum("km,km->k", u, q.mean), np.einsum("km,kml,kl->k", u, q.cov, u)


def tilted(s, alpha, power_alpha, k=K):
    """Log normaliser, mean and covariance of class k of the cavity times E[p(y_i|f_i)^power | f̄]."""
    q = cavity_of(s, alpha)
    m, v = along(s, q)
    w = m[k] + sqrt(v[k]) * NODES
    mean, var = np.tile(m, (len(w), 1)), s.cond_var[:, I] + v
    mean[:, k], var[k] = w, s.cond_var[k, I]
    values = WEIGHTS * power(s, largest(mean, var, int(s.y[I])), power_alpha)
    z = np.sum(values)
    first = values @ w / z
    second = values @ (w - first) ** 2 / z
    gain = q.cov[k] @ s.upsilon[k, I] / v[k]
    return np.log(z), q.mean[k] + gain * (first - m[k]), q.cov[k] + np.outer(gain, gain) * (second - v[k])


def refined(s, alpha):
    """The new factor of datum I and the moments of q_new, by the four steps."""
    cavity = pep_remove(Gaussians(s.mean, s.cov), s.c1[I], s.c2[I], s.upsilon[:, I], alpha)
    data = s.y[I : I + 1], s.k_xx[:, I : I + 1], s.upsilon[:, I : I + 1], s.K_ZZ
    included = pep_include([cavity], *data, s.epsilon, alpha)[0]
    new = pep_project(included)
    return pep_update(included, new, alpha), new


def test_a_sweep_keeps_coefficients_of_every_datum_and_class(model):
    s = model
    given = Coefficients(s.c1, s.c2), Gaussians(s.mean, s.cov), s.y, s.matrices, s.epsilon, s.alpha
    result = pep_refine_factors(*given)
    assert_recorded(PAPER, "slip-1", *result.coefficients.c1.shape)
    assert_recorded(PAPER, "slip-20", result.coefficients.c1.size, result.coefficients.c1.size * s.C)
    means = [pep_project(each).mean for each in tilted_distributions(*given)]
    assert_recorded(PAPER, "slip-23", sum(len(each) for each in means), len(means[0]))


def test_expected_log_likelihoods_do_not_depend_on_the_order_of_integration(model):
    s = model
    m, v = along(s, Gaussians(s.mean, s.cov))
    grid = np.stack(np.meshgrid(*[m[k] + sqrt(v[k]) * NODES for k in range(s.C)], indexing="ij"), axis=-1)
    weight = np.einsum("a,b,c->abc", WEIGHTS, WEIGHTS, WEIGHTS)
    high, low = np.log(1 - s.epsilon + s.epsilon / s.C), np.log(s.epsilon / s.C)
    nested = np.sum(weight * (low + (high - low) * largest(grid, s.cond_var[:, I], 1)))
    marginal = low + (high - low) * largest(m, s.cond_var[:, I] + v, 1)
    assert nested == pytest.approx(marginal, **CLOSE)
    assert_recorded(PAPER, "slip-2", nested, marginal)


def test_the_approximate_factor_is_integrated_with_the_inducing_values(model):
    s = model
    m, v = along(s, Gaussians(s.mean, s.cov))
    grid = np.stack(np.meshgrid(*[m[k] + sqrt(v[k]) * NODES for k in range(s.C)], indexing="ij"), axis=-1)
    weight = np.einsum("a,b,c->abc", WEIGHTS, WEIGHTS, WEIGHTS)
    inverse = np.exp(s.alpha * np.sum(0.5 * s.c1[I] * grid**2 - s.c2[I] * grid, axis=-1))  # φ̃^-α
    given = power(s, largest(grid, s.cond_var[:, I], 1), s.alpha)
    joint = np.log(np.sum(weight * given * inverse))
    apart = np.log(np.sum(weight * given)) + np.log(np.sum(weight * inverse))  # f_i and f̄ as if independent
    assert_recorded(PAPER, "slip-3", joint, apart)


def test_a_factor_moves_with_the_inducing_values_of_every_class(model):
    s = model
    site = Site(0.0, s.c1[I, :, None, None] * np.einsum("km,kl->kml", s.upsilon[:, I], s.upsilon[:, I]),
                s.c2[I, :, None] * s.upsilon[:, I])  # fmt: skip
    moved = s.inducing_values.copy()
    moved[K] += 1.0
    change = log_approximate_factor(site, moved) - log_approximate_factor(site, s.inducing_values)
    w, wider = s.upsilon[K, I] @ s.inducing_values[K], s.upsilon[K, I] @ moved[K]
    assert change == pytest.approx(-0.5 * s.c1[I, K] * (wider**2 - w**2) + s.c2[I, K] * (wider - w), **CLOSE)
    assert_recorded(PAPER, "slip-4", change, 0)


def test_precisions_of_tilted_and_approximate_factor_differ_by_that_of_the_cavity(model):
    s, k = model, K
    cov = tilted(s, s.alpha, s.alpha)[2]
    step = np.linalg.inv(cov) - np.linalg.inv(cavity_of(s, s.alpha).cov[k])
    assert_recorded(PAPER, "slip-5", np.linalg.inv(cov)[0, 0], (np.linalg.inv(s.cov[k]) + step)[0, 0])


def test_the_predictive_gaussian_is_the_integral_over_q(model):
    s, k = model, K
    x = s.X[0] + 0.3
    k_star = s.kernel(x[None], s.Z[k], k)
    k_tt = np.array([s.variance[k] + s.noise[k]])
    weights = np.linalg.solve(s.K_ZZ[k], k_star[0])
    var = k_tt[0] - k_star[0] @ weights
    L = np.linalg.cholesky(s.cov[k])
    grid = s.mean[k] + np.stack(np.meshgrid(NODES, NODES, indexing="ij"), axis=-1) @ L.T
    integral = WEIGHTS @ norm.pdf(0.4, grid @ weights, np.sqrt(var)) @ WEIGHTS
    mean = predictive_latent_mean(k_star, s.K_ZZ[k], s.mean[k])
    total = predictive_latent_variance(k_tt, k_star, s.K_ZZ[k], s.cov[k])
    gaussian = norm.pdf(0.4, mean[0], np.sqrt(total[0]))
    assert integral == pytest.approx(gaussian, **CLOSE)
    assert_recorded(PAPER, "slip-6", integral, gaussian)
    assert_recorded(PAPER, "slip-7", int(np.size(mean)), len(s.mean[k]))


def test_a_process_is_drawn_and_its_density_is_not(model, rng):
    var = model.k_xx[0, 0]
    value = np.sqrt(var) * rng.normal(size=200)
    assert_recorded(PAPER, "slip-9", np.min(value), np.min(norm.pdf(value, 0.0, np.sqrt(var))))


def test_the_conditional_prior_of_the_data_is_no_product(model):
    s, k = model, K
    covariance = s.kernel(s.X[:1], s.X[1:2], k)[0, 0] - s.K_XZ[k, 0] @ np.linalg.solve(s.K_ZZ[k], s.K_XZ[k, 1])
    assert_recorded(PAPER, "slip-10", covariance, 0)


def test_the_variance_of_a_latent_value_is_that_of_its_marginal(model):
    s = model
    v = along(s, Gaussians(s.mean, s.cov))[1][K]
    assert_recorded(PAPER, "slip-11", s.cond_var[K, I] + v, s.cond_var[K, I])


P, Q = (0.4, 0.7), (-0.3, 1.6)  # mean, variance


def test_the_divergence_at_one_half_is_four_squared_hellinger_distances():
    p, q = (lambda x, d=d: norm.pdf(x, d[0], sqrt(d[1])) for d in (P, Q))
    divergence = 4.0 * (1.0 - quad(lambda x: sqrt(p(x) * q(x)), -15, 15, epsabs=1e-13)[0])
    distance = sqrt(0.5 * quad(lambda x: (sqrt(p(x)) - sqrt(q(x))) ** 2, -15, 15, epsabs=1e-13)[0])
    assert divergence == pytest.approx(4.0 * distance**2, **CLOSE)
    assert_recorded(PAPER, "slip-12", divergence, distance)


def test_what_is_compared_with_q_integrates_to_one(model):
    s = model
    by_power, plain = (np.exp(tilted(s, alpha, alpha)[0]) for alpha in (s.alpha, 1.0))
    assert_recorded(PAPER, "slip-13", 1, by_power * plain)


def test_the_gradient_is_by_natural_parameters():
    alpha, h, reach = 0.25, 1e-4, (-16.0, 16.0)
    log_p = gaussian_log_density(*P)

    def divergence(mean, var):
        return alpha_divergence(log_p, gaussian_log_density(mean, var), alpha, *reach)

    first = Q[0] / Q[1] + np.array([h, -h])  # θ_1 = mean/var, at a held var
    ends = [divergence(theta * Q[1], Q[1]) for theta in first]
    natural = (ends[0] - ends[1]) / (2.0 * h)
    assert alpha_divergence_gradient(log_p, *Q, alpha, *reach)[0] == pytest.approx(natural, rel=1e-5, abs=0)
    ends = [divergence(mean, Q[1]) for mean in (Q[0] + h, Q[0] - h)]
    assert_recorded(PAPER, "slip-14", natural, (ends[0] - ends[1]) / (2.0 * h))


def test_the_quotient_of_q_and_a_factor_is_not_normalised(model):
    s = model
    m, v = along(s, Gaussians(s.mean, s.cov))
    w = m + np.sqrt(v) * NODES[:, None]
    quotient = np.prod(WEIGHTS @ np.exp(s.alpha * (0.5 * s.c1[I] * w**2 - s.c2[I] * w)))
    assert_recorded(PAPER, "slip-15", quotient, 1)


def test_the_ledger_knows_one_table_and_no_gradient_of_the_evidence_in_the_main_text():
    main = [entry for entry in load_ledger().paper(PAPER).entries if entry.section[0] in "123456"]
    assert_recorded(PAPER, "slip-16", sum("table" in entry.id for entry in main))
    gradients = [entry for entry in main if entry.kind == "gradient"]
    assert_recorded(PAPER, "slip-27", len(gradients), sum("evidence" in entry.title for entry in gradients))


def test_n_equal_factors_make_the_posterior_of_the_prior(model):
    s = model
    q, prior = natural_parameters(Gaussians(s.mean, s.cov)), natural_prior(s.K_ZZ)
    one = tied_factor_parameters(q, prior, s.n)
    assert_recorded(PAPER, "slip-17", round((q.precision - prior.precision)[K, 0, 0] / one.precision[K, 0, 0]), 1)


def test_the_projection_is_a_column(model):
    u = model.upsilon[K, I][:, None]
    np.testing.assert_allclose(factor_precision(0.4, u[:, 0]), 0.4 * u @ u.T, rtol=1e-14)
    assert_recorded(PAPER, "slip-18", *(u @ u.T).shape, *(u.T @ u).shape)


def test_q_is_a_product_over_classes_and_a_latent_value_a_number(model):
    s = model
    q = posterior_moments(s.c1, s.c2, s.upsilon, s.K_ZZ)
    assert_recorded(PAPER, "slip-19", q.mean.size, q.mean[K].size)
    variance = cavity_latent_variance(float(s.k_xx[K, I]), s.upsilon[K, I], s.K_ZZ[K], q.cov[K])
    assert_recorded(PAPER, "slip-21", q.cov[K].size, np.size(variance))


def test_moments_and_recovered_factor_hold_the_power(model):
    s, k = model, K
    assert_recorded(PAPER, "slip-22", *(tilted(s, s.alpha, power_alpha)[1][0] for power_alpha in (s.alpha, 1.0)))
    factor, _ = refined(s, s.alpha)
    step = np.linalg.inv(tilted(s, s.alpha, s.alpha)[2]) - np.linalg.inv(cavity_of(s, s.alpha).cov[k])
    ratio = step[0, 0] / factor_precision(factor.c1[k], s.upsilon[k, I])[0, 0]
    value = approximate_factor(factor.site, s.inducing_values)
    assert_recorded(PAPER, "slip-24", ratio, value**s.alpha, s.alpha * value)


def test_the_linear_part_of_a_class_is_of_its_own_moments(model):
    s, y = model, 1
    cavity = cavity_of(s, s.alpha)
    _, mean, cov = tilted(s, s.alpha, s.alpha)
    shift = np.linalg.solve(cov, mean) - np.linalg.solve(cavity.cov[K], cavity.mean[K])
    factor, _ = refined(s, s.alpha)
    g = np.linalg.solve(cavity.cov[K], mean - cavity.mean[K]) @ s.upsilon[K, I] / np.sum(s.upsilon[K, I] ** 2)
    c1, u = s.alpha * factor.c1[K], s.upsilon[y, I]
    printed = (g + c1 * u @ cavity.mean[y] + g * c1 * u @ cavity.cov[y] @ u) * u
    assert_recorded(PAPER, "slip-25", shift[0], printed[0])


def test_the_power_of_a_factor_integrates_as_that_of_the_likelihood(model):
    s = model
    site, cavity = refined(s, s.alpha)[0].site, cavity_of(s, s.alpha)
    m, v = along(s, cavity)
    w = m + np.sqrt(v) * NODES[:, None]
    factor = refined(s, s.alpha)[0]
    log_parts = -0.5 * factor.c1 * w**2 + factor.c2 * w
    by_power, plain = (np.exp(a * site.log_scale) * np.prod(WEIGHTS @ np.exp(a * log_parts)) for a in (s.alpha, 1.0))
    assert by_power == pytest.approx(np.exp(tilted(s, s.alpha, s.alpha)[0]), **CLOSE)
    assert_recorded(
        PAPER, "slip-26", by_power, np.exp(tilted(s, s.alpha, s.alpha)[0]), plain, np.exp(tilted(s, s.alpha, 1.0)[0])
    )


def test_table_c_4_holds_values_that_no_log_likelihood_has():
    cells = [claim.printed for claim in load_claims()[PAPER] if claim.where.startswith("Table C.4")]
    assert_recorded(PAPER, "slip-28", sum(value > 0 for value in cells if value is not None))


def test_ranks_of_four_methods_have_one_average(rng):
    assert_recorded(PAPER, "slip-29", np.mean(average_ranks(rng.normal(size=(20, 4)))))


def test_the_posterior_after_a_step_is_that_of_the_sites(model):
    s, means = model, []
    for alpha in (s.alpha, 1.0):
        factor, new = refined(s, alpha)
        c1, c2 = s.c1.copy(), s.c2.copy()
        c1[I], c2[I] = factor.c1, factor.c2
        u = s.upsilon[K]
        precision = np.linalg.inv(s.K_ZZ[K]) + (u.T * c1[:, K]) @ u
        means.append((np.linalg.solve(precision, u.T @ c2[:, K])[0], new.mean[K, 0]))
        swept = parallel_pep_sweep(Coefficients(s.c1, s.c2), s.y, s.matrices, s.epsilon, alpha, 1.0, np.array([I]))
        assert swept.posterior.mean[K, 0] == pytest.approx(means[-1][0], **CLOSE)
    assert means[1][0] == pytest.approx(means[1][1], **CLOSE)
    assert_recorded(PAPER, "slip-30", *means[0], *means[1])


def test_the_power_of_the_likelihood_is_taken_before_the_latent_values_are_integrated(model):
    s = model
    m, v = along(s, cavity_of(s, s.alpha))
    grid = np.stack(np.meshgrid(*[m[k] + np.sqrt(v[k]) * NODES for k in range(s.C)], indexing="ij"), axis=-1)
    weight = np.einsum("a,b,c->abc", WEIGHTS, WEIGHTS, WEIGHTS)
    share = largest(grid, s.cond_var[:, I], 1)
    before, after = (
        np.log(np.sum(weight * values)) for values in (power(s, share, s.alpha), power(s, share, 1.0) ** s.alpha)
    )
    data = s.y[I : I + 1], s.k_xx[:, I : I + 1], s.upsilon[:, I : I + 1], s.K_ZZ
    included = pep_include([cavity_of(s, s.alpha)], *data, s.epsilon, s.alpha)[0]
    assert included.log_norm == pytest.approx(before, **CLOSE)
    assert_recorded(PAPER, "slip-31", before, after)
