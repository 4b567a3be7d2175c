"""Section 5.1: the tilted study put together by hand for one datum, and what Figure 1 says about it."""

import numpy as np
import pytest

from reference.riihimaki2013.experiments import compare_tilted_moments
from reference.riihimaki2013.fit import Prior, fit_ep
from reference.riihimaki2013.inner_ep import inner_ep, inner_log_normaliser
from reference.riihimaki2013.quadrature_ep import tilted_moments_full_quadrature, tilted_multinomial_probit
from reference.riihimaki2013.sites import augmented_tilted, cavity


@pytest.mark.verifies(
    "riihimaki2013", "u5.1-tilted-study", route="put together by hand for one datum; exact identities"
)
def test_tilted_study(rng):
    X = rng.normal(size=(8, 2))
    y = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    prior = Prior(np.full(3, np.e), np.full((3, 2), np.e), np.zeros(3), np.full(3, 1e-4))
    got = compare_tilted_moments(X, y, 3, prior)
    fit = fit_ep(X, y, 3, prior, max_iterations=2)
    left = cavity(fit.latent_mean[4], fit.latent_cov[4], fit.site_precision[4], fit.site_location[4])
    truth = tilted_multinomial_probit(left.mean, left.cov, 1)
    inner = inner_ep(left.mean, left.cov, 1, np.zeros(2), np.zeros(2))
    log_norm = inner_log_normaliser(augmented_tilted(left.mean, left.cov, 1), inner.alpha, inner.beta)
    actual = got["inner-ep"]
    # the same arithmetic in another order; differences of numbers of order one
    assert actual.log_norm[4] == pytest.approx(log_norm - np.log(truth.norm), rel=0, abs=1e-11)
    np.testing.assert_allclose(actual.mean[4], inner.mean[:3] - truth.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(actual.cov[4], inner.cov[:3, :3] - truth.cov, rtol=0, atol=1e-11)
    # full Λ and ξ give back the mean and covariance of f that the rule over g implies
    rule = tilted_multinomial_probit(left.mean, left.cov, 1, 10)
    np.testing.assert_allclose(got["Q10"].mean[4], rule.mean - truth.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(got["Q10"].cov[4], rule.cov - truth.cov, rtol=0, atol=1e-10)
    # a diagonal Λ keeps the normaliser and the mean of g, hence of f, and moves the covariance
    np.testing.assert_allclose(got["QD10"].log_norm, got["Q10"].log_norm, rtol=0, atol=1e-13)
    np.testing.assert_allclose(got["QD10"].mean, got["Q10"].mean, rtol=0, atol=1e-9)
    assert np.max(np.abs(got["QD10"].cov - got["Q10"].cov)) > 1e-6
    # Figure 1: means and covariances agree, the normaliser has a small bias
    assert np.max(np.abs(actual.mean)) < 0.05
    assert np.max(np.abs(actual.cov)) < 0.1
    assert 1e-5 < np.max(np.abs(actual.log_norm)) < 0.02
    assert np.max(np.abs(got["Q10"].log_norm)) < np.max(np.abs(got["Q5"].log_norm)) < 0.1  # 0.057 here
    paper = compare_tilted_moments(X, y, 3, prior, "augmented")["inner-ep"].log_norm[4]
    right = tilted_moments_full_quadrature(left.mean, left.cov, 1, 10).norm
    assert paper == pytest.approx(log_norm - np.log(right), rel=0, abs=1e-11)
