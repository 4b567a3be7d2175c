"""Section H and section 2.3.1: joint Gaussians, orthant probabilities, and products of factors."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.common.errors import NotPositiveDefiniteError
from reference.villacampa2017.factors import posterior_of
from reference.villacampa2017.hyper import Matrices
from reference.villacampa2017.methods import SEP
from reference.villacampa2017.posterior import Coefficients, Natural
from reference.villacampa2017.prediction import (
    predictive_class_probability,
    predictive_distribution,
    predictive_latent_distribution,
    predictive_latent_mean,
    predictive_latent_variance,
)
from reference.villacampa2017.sep import factor_counts, sep_batch_update, sep_cavity, sep_tied_factor


@pytest.fixture
def there(model, rng):
    """Four test inputs: prior variances and cross-covariances, class first, and q of some factors."""
    s = model
    X_test = rng.normal(size=(4, s.d))
    K_TZ = np.stack([s.kernel(X_test, s.Z[c], c) for c in range(s.C)])
    k_tt = np.repeat((s.variance + s.noise)[:, None], 4, axis=1)
    q = posterior_of(Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other), s.y, s.upsilon, s.K_ZZ)
    return q, k_tt, K_TZ, s.K_ZZ


@pytest.mark.verifies("villacampa2017", "65", route="regression on pseudo-observations at the test input")
@pytest.mark.verifies("villacampa2017", "66", route="regression on pseudo-observations at the test input")
@pytest.mark.verifies("villacampa2017", "67", route="regression on pseudo-observations at the test input")
def test_latent_values_at_new_inputs(model, there):
    s = model
    q, k_tt, K_TZ, K_ZZ = there
    whole = predictive_latent_distribution(*there)
    for k in range(s.C):
        delta = np.where(s.y == k, s.c1_label.sum(axis=1), s.c1_other[:, k])
        mu = np.where(s.y == k, s.c2_label.sum(axis=1), s.c2_other[:, k])
        cross = K_TZ[k] @ s.upsilon[k].T  # of f* and the projections of the data
        total = s.upsilon[k] @ K_ZZ[k] @ s.upsilon[k].T + np.diag(1.0 / delta)
        mean = cross @ np.linalg.solve(total, mu / delta)
        var = k_tt[k] - np.sum(cross * np.linalg.solve(total, cross.T).T, axis=1)
        # matrices of 5 x 5 with conditions below 1e4
        np.testing.assert_allclose(whole.mean[:, k], mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(whole.var[:, k], var, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(predictive_latent_mean(K_TZ[k], K_ZZ[k], q.mean[k]), mean, rtol=1e-9, atol=1e-10)
        got = predictive_latent_variance(k_tt[k], K_TZ[k], K_ZZ[k], q.cov[k])
        np.testing.assert_allclose(got, var, rtol=1e-9, atol=1e-10)


@pytest.mark.verifies("villacampa2017", "68", route="bivariate normal distribution function")
@pytest.mark.verifies("villacampa2017", "11", route="bivariate normal distribution function")
def test_class_probabilities_are_orthant_probabilities(there):
    latent = predictive_latent_distribution(*there)
    raw, predicted = predictive_class_probability(*latent), predictive_distribution(*there)
    for i in range(4):
        for c in range(3):
            others = [k for k in range(3) if k != c]
            gaps, cov = latent.mean[i, c] - latent.mean[i, others], np.diag(latent.var[i, others]) + latent.var[i, c]
            wanted = bivariate_normal_cdf(gaps, cov)
            # the bivariate normal's accuracy
            assert raw[i, c] == pytest.approx(wanted, rel=0, abs=1e-8)
            assert predicted.probability[i, c] == pytest.approx(wanted, rel=0, abs=1e-8)
    np.testing.assert_allclose(predicted.probability_mass, 1.0, rtol=0, atol=1e-11)  # the rule's stated error


def test_probabilities_of_certain_and_of_many_classes():
    mean = np.array([[50.0, 0.0, -50.0], [0.0, 0.0, 0.0]])
    got = predictive_class_probability(mean, np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]]))
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=0, atol=1e-11)
    np.testing.assert_allclose(got[1], 1.0 / 3.0, rtol=1e-11, atol=0)
    # 50 against 0: the third class does not matter
    assert np.log(got[0, 1]) == pytest.approx(norm.logcdf(-50.0 / np.sqrt(3.0)), rel=1e-10, abs=0)
    many = predictive_class_probability(np.linspace(-1, 1, 40)[None], np.linspace(0.5, 2, 40)[None])
    np.testing.assert_allclose(many.sum(), 1.0, rtol=0, atol=1e-11)


@pytest.mark.verifies("villacampa2017", "u15-sep-tied-factor", route="product of all factors")
def test_the_tied_factor_is_the_product_of_all(model):
    s = model
    got = sep_tied_factor(Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other), s.y, s.upsilon)
    u = s.inducing_values
    exponent = 0.0
    for i in range(s.n):
        y = s.y[i]
        for k in range(s.C):
            if k != y:
                w, v = s.upsilon[y, i] @ u[y], s.upsilon[k, i] @ u[k]
                exponent += -0.5 * s.c1_label[i, k] * w**2 + s.c2_label[i, k] * w
                exponent += -0.5 * s.c1_other[i, k] * v**2 + s.c2_other[i, k] * v
    tied = sum(-0.5 * u[k] @ got[k].precision @ u[k] + u[k] @ got[k].shift for k in range(s.C))
    assert tied == pytest.approx(exponent, rel=1e-11, abs=0)
    for k in range(s.C):  # the shifts on their own: an odd function of f̄
        odd = sum(
            s.c2_label[i, j] * s.upsilon[k, i] if s.y[i] == k else s.c2_other[i, k] * s.upsilon[k, i] * (j == k)
            for i in range(s.n)
            for j in range(s.C)
            if j != s.y[i]
        )
        np.testing.assert_allclose(got[k].shift, odd, rtol=1e-11, atol=1e-13)


@pytest.mark.verifies("villacampa2017", "u16-sep-cavity", route="n-th powers multiply back to q")
def test_n_roots_of_the_tied_factor_make_up_for_the_cavity(model):
    s = model
    coefficients = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    tied = sep_tied_factor(coefficients, s.y, s.upsilon)
    q = posterior_of(coefficients, s.y, s.upsilon, s.K_ZZ)
    natural = [Natural(np.linalg.inv(V), np.linalg.solve(V, m)) for m, V in zip(q.mean, q.cov, strict=True)]
    counts = factor_counts(s.y, s.C)
    np.testing.assert_array_equal(counts, s.n * (s.C - 1))
    left = sep_cavity(natural, tied, counts)
    for k in range(s.C):  # without all n roots the prior is left
        prior = natural[k].precision + counts[k] * (left[k].precision - natural[k].precision)
        np.testing.assert_allclose(prior, np.linalg.inv(s.K_ZZ[k]), rtol=1e-9, atol=1e-9)
        nothing = natural[k].shift + counts[k] * (left[k].shift - natural[k].shift)
        np.testing.assert_allclose(nothing, 0.0, rtol=0, atol=1e-10)
    with pytest.raises(NotPositiveDefiniteError, match="cavity precision"):
        sep_cavity(natural, tied, np.full(s.C, 1e-3))


@pytest.mark.verifies("villacampa2017", "u42-sep-factor-count", route="one by one")
def test_factors_that_touch_a_class_are_counted_one_by_one(model):
    s = model
    touched = np.zeros(s.C)
    for y in s.y:
        for k in range(s.C):
            if k != y:
                touched[k] += 1
                touched[y] += 1
    np.testing.assert_array_equal(factor_counts(s.y, s.C, "per-class"), touched)
    np.testing.assert_array_equal(factor_counts(s.y, s.C), sum(s.C - 1 for _ in s.y))
    with pytest.raises(ValueError, match="count"):
        factor_counts(s.y, s.C, "some")


@pytest.mark.verifies("villacampa2017", "u44-sep-batch-share", route="a list of factors, all of one kind")
def test_a_batch_takes_the_place_of_its_share_of_equal_factors(model):
    s = model
    coefficients = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    tied = sep_tied_factor(coefficients, s.y, s.upsilon)[0]
    new = [Natural(0.1 * (i + 1) * np.eye(s.m), 0.2 * i * np.ones(s.m)) for i in range(3)]
    n, damping = 10, 0.6
    # ten equal factors, three of which move towards new ones
    kept = Natural(tied.precision * (n - 3) / n, tied.shift * (n - 3) / n)
    for each in new:
        kept = Natural(
            kept.precision + (1.0 - damping) * tied.precision / n + damping * each.precision,
            kept.shift + (1.0 - damping) * tied.shift / n + damping * each.shift,
        )
    refined = Natural(sum(each.precision for each in new), sum(each.shift for each in new))
    got = sep_batch_update(tied, refined, 3 / n, damping)
    # sums of a dozen terms
    np.testing.assert_allclose(got.precision, kept.precision, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.shift, kept.shift, rtol=1e-12, atol=1e-12)


@pytest.mark.verifies("villacampa2017", "u43-sep-log-evidence", route="density ratios at a point of inducing values")
@pytest.mark.parametrize("count", ["all", "per-class"])
def test_log_evidence_of_tied_factors_is_the_integral_of_what_they_stand_for(model, count):
    """Each factor is exchanged for Z_ik q/cavity: at any point log Z_q = log p - log q + sum of log Z_ik q/cavity."""
    s = model
    tied = sep_tied_factor(Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other), s.y, s.upsilon)
    K = Matrices(s.K_ZZ, s.upsilon, s.cond_var, s.K_XZ, s.k_xx)
    method = SEP(s.y, s.C, 0.5, count)
    q = method.posterior(tied, K)
    value = method.value(tied, q, K)
    total = float(value.log_norm.sum())
    for k in range(s.C):
        u, n = s.inducing_values[k], method.counts[k]
        P = np.linalg.inv(q.cov[k]) - tied[k].precision / n
        cov = np.linalg.inv(P)
        mean = cov @ (np.linalg.solve(q.cov[k], q.mean[k]) - tied[k].shift / n)
        log_q = multivariate_normal(q.mean[k], q.cov[k]).logpdf(u)
        total += multivariate_normal(np.zeros(s.m), s.K_ZZ[k]).logpdf(u) - log_q
        total += n * (log_q - multivariate_normal(mean, cov).logpdf(u))
    # 15 densities of logarithms below 100 at conditions of 1e3
    assert value.log_evidence == pytest.approx(total, rel=0, abs=1e-9)
