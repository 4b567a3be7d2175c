"""Posterior, M, determinant, marginals, predictions and schedules against inverses of the whole precision."""

import numpy as np
import pytest

from reference.common.errors import NotPositiveDefiniteError
from reference.riihimaki2013.fit import cross_covariance
from reference.riihimaki2013.posterior import (
    Posterior,
    covariance_times,
    ep_log_determinant,
    ep_posterior,
    follow_site,
    log_det_of,
    m_matrix,
    posterior_from_inner_sites,
    posterior_m_matrix,
    stack_blocks,
    stacked_site_matrix,
    training_marginals,
)
from reference.riihimaki2013.prediction import predict_latent_covariance, predict_latent_mean
from reference.riihimaki2013.sites import Site, outer_site

TIGHT = {"rtol": 1e-9, "atol": 1e-10}  # matrices of 15 x 15 with conditions below 1e3


@pytest.fixture
def s(model):
    sites = [outer_site(a, b, int(y)) for a, b, y in zip(model.alpha, model.beta, model.y, strict=True)]
    model.precision = np.stack([site.precision for site in sites])
    model.location = np.stack([site.location for site in sites])
    model.pi = np.stack([np.insert(a, y, 1.0) for a, y in zip(model.alpha, model.y, strict=True)])
    T = np.zeros((15, 15))
    for i in range(5):
        for k in range(3):
            for j in range(3):
                T[5 * k + i, 5 * j + i] = model.precision[i, k, j]
    model.T, model.nu = T, model.location.T.ravel()
    model.cov = np.linalg.inv(np.linalg.inv(model.K) + T)
    model.mean = model.cov @ model.nu
    return model


@pytest.mark.verifies("riihimaki2013", "4", route="inverse of the whole precision, determinant")
def test_posterior(s):
    got = ep_posterior(s.K, s.precision, s.location)
    np.testing.assert_allclose(got.cov, s.cov, **TIGHT)
    np.testing.assert_allclose(got.mean, s.mean, **TIGHT)
    assert got.log_det == pytest.approx(np.linalg.slogdet(np.eye(15) + s.K @ s.T)[1], rel=1e-11, abs=0)
    singular = ep_posterior(np.ones((6, 6)), np.stack([np.eye(3)] * 2), np.ones((2, 3)))
    np.testing.assert_allclose(singular.cov, 1.0 / 7.0, rtol=1e-12, atol=0)  # one value seen six times


def test_a_column_and_the_determinant_need_no_covariance(s):
    vector = np.linspace(-1.0, 2.0, 15)
    np.testing.assert_allclose(covariance_times(s.K, s.precision, vector), s.cov @ vector, **TIGHT)
    wanted = np.linalg.slogdet(np.eye(15) + s.K @ s.T)[1]
    assert log_det_of(s.K, s.precision) == pytest.approx(wanted, rel=1e-11, abs=0)  # 15 pivots of size one


@pytest.mark.verifies("riihimaki2013", "16", route="inverse of the precision of f alone with (12) and (15)")
def test_posterior_with_the_auxiliary_variables(s):
    got = posterior_from_inner_sites(s.alpha, s.beta, s.y, s.K)
    np.testing.assert_allclose(got.mean, s.mean, **TIGHT)
    np.testing.assert_allclose(got.cov, s.cov, **TIGHT)


@pytest.mark.verifies("riihimaki2013", "B-site", route="blocks of (12), one datum at a time")
def test_stacked_sites(s):
    np.testing.assert_allclose(stacked_site_matrix(s.pi), s.T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(stack_blocks(s.precision), s.T, rtol=0, atol=0)


@pytest.mark.verifies("riihimaki2013", "B-M", route="T(I + KT)⁻¹ by dense solves")
def test_m_matrix(s):
    wanted = s.T @ np.linalg.inv(np.eye(15) + s.K @ s.T)
    np.testing.assert_allclose(posterior_m_matrix(s.pi, s.K), wanted, **TIGHT)
    np.testing.assert_allclose(m_matrix(s.K, s.precision), wanted, **TIGHT)


@pytest.mark.verifies("riihimaki2013", "B-det", route="determinant of the dense matrix")
def test_determinant(s):
    wanted = np.linalg.slogdet(np.eye(15) + s.K @ s.T)[1]
    assert ep_log_determinant(s.pi, s.K) == pytest.approx(wanted, rel=1e-11, abs=0)


@pytest.mark.verifies("riihimaki2013", "B-marginals", route="blocks of the inverse of the whole precision")
def test_marginals(s):
    got = training_marginals(s.K, s.nu, posterior_m_matrix(s.pi, s.K), s.n)
    for i in range(s.n):
        mine = [i, 5 + i, 10 + i]
        np.testing.assert_allclose(got.mean[i], s.mean[mine], **TIGHT)
        np.testing.assert_allclose(got.cov[i], s.cov[np.ix_(mine, mine)], **TIGHT)


@pytest.mark.verifies("riihimaki2013", "26", "27", route="conditional of the prior, averaged over the posterior")
def test_prediction(s, rng):
    X_test = rng.normal(size=(2, s.d))
    M = posterior_m_matrix(s.pi, s.K)
    K_ss = np.diag(s.prior.variance + s.prior.noise)
    for K_star in cross_covariance(X_test, s.X, s.prior):
        gain = K_star @ np.linalg.inv(s.K)
        np.testing.assert_allclose(predict_latent_mean(K_star, s.nu, M, s.K), gain @ s.mean, **TIGHT)
        wanted = K_ss - gain @ K_star.T + gain @ s.cov @ gain.T
        np.testing.assert_allclose(predict_latent_covariance(K_ss, K_star, M), wanted, **TIGHT)


@pytest.mark.verifies("riihimaki2013", "u3.1-schedule", route="inverse of the whole precision after the change")
@pytest.mark.parametrize("i", [0, 3])
def test_a_changed_site_is_followed_by_a_rank_c_update(s, rng, i):
    old = Site(s.precision[i], s.location[i])
    new = outer_site(rng.uniform(0.1, 2.0, size=2), rng.normal(size=2), int(s.y[i]))
    precision, location = s.precision.copy(), s.location.copy()
    precision[i], location[i] = new
    got = follow_site(Posterior(s.mean, s.cov, 0.0), i, old, new)
    wanted = np.linalg.inv(np.linalg.inv(s.K) + stack_blocks(precision))
    np.testing.assert_allclose(got.cov, wanted, **TIGHT)
    np.testing.assert_allclose(got.mean, wanted @ location.T.ravel(), **TIGHT)


def test_bad_input_is_named(s):
    with pytest.raises(NotPositiveDefiniteError, match="A, class 0"):
        posterior_m_matrix(s.pi, -50.0 * s.K)
