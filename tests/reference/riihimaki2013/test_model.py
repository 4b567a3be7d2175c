"""Section 2: entry by entry, by scipy's densities, by quadrature and by orthant probabilities."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.riihimaki2013.model import (
    kernel_se_ard,
    log_marginal_likelihood,
    log_posterior,
    log_prior_latent,
    multinomial_probit_likelihood,
    multinomial_probit_region,
    prior_covariance,
    softmax_likelihood,
)

F = np.array([0.4, -1.1, 0.9])


@pytest.mark.verifies("riihimaki2013", "u2-se", route="entry by entry from the definition")
def test_kernel_entries(model):
    s = model
    got = kernel_se_ard(s.X, s.X[:2] + 0.3, 2.5, np.array([0.7, 1.9]))
    for i in range(s.n):
        for j in range(2):
            gap = s.X[i] - s.X[j] - 0.3
            wanted = 2.5 * np.exp(-0.5 * (gap[0] ** 2 / 0.49 + gap[1] ** 2 / 3.61))
            assert got[i, j] == pytest.approx(wanted, rel=1e-13, abs=0)  # a dozen roundings
    np.testing.assert_allclose(prior_covariance(s.X, *s.prior), s.K, rtol=1e-13, atol=0)


@pytest.mark.verifies("riihimaki2013", "u2-prior", route="scipy's multivariate normal density")
def test_log_prior(model, rng):
    f = rng.normal(size=len(model.K))
    wanted = multivariate_normal.logpdf(f, np.zeros(len(f)), model.K)
    assert log_prior_latent(f, model.K) == pytest.approx(wanted, rel=1e-10, abs=0)  # condition about 100


@pytest.mark.verifies("riihimaki2013", "1", route="definition with plain exponentials")
def test_softmax():
    for k in range(3):
        wanted = np.exp(F[k]) / np.sum(np.exp(F))
        assert softmax_likelihood(F, k) == pytest.approx(wanted, rel=1e-14, abs=0)
    assert softmax_likelihood(F + 1e4, 1) == pytest.approx(softmax_likelihood(F, 1), rel=1e-9, abs=0)  # 1e4 eps


@pytest.mark.verifies("riihimaki2013", "2", route="adaptive quadrature over u")
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_probit_as_an_expectation(scale):
    f = scale * F
    for k in range(3):
        others = np.delete(f, k)
        wanted = quad(lambda u: norm.pdf(u) * np.prod(ndtr(u + f[k] - others)), -10, 12, epsabs=0, epsrel=1e-12)[0]  # noqa: B023
        # the quadrature's own accuracy
        assert multinomial_probit_likelihood(f, k) == pytest.approx(wanted, rel=1e-10, abs=0)
    assert sum(multinomial_probit_likelihood(f, k) for k in range(3)) == pytest.approx(1.0, rel=1e-12, abs=0)


@pytest.mark.verifies("riihimaki2013", "24", route="orthant probability of v_y - v_k by quadrature over one difference")
def test_cone(rng):
    for k in range(3):
        others = np.delete(F, k)
        cov = np.eye(2) + 1.0
        wanted = bivariate_normal_cdf(F[k] - others, cov)
        assert multinomial_probit_region(F, k) == pytest.approx(wanted, rel=1e-9, abs=0)  # the bivariate normal's
    two = multinomial_probit_region(np.array([0.3, -0.5]), 0)
    assert two == pytest.approx(ndtr(0.8 / np.sqrt(2.0)), rel=1e-13, abs=0)  # one bend: exact to rounding


@pytest.mark.verifies("riihimaki2013", "3", route="scipy's density times likelihoods by quadrature")
def test_log_posterior(model, rng):
    s = model
    f = rng.normal(size=len(s.K))
    by_datum = f.reshape(s.c, s.n).T
    prior = multivariate_normal.logpdf(f, np.zeros(len(f)), s.K)
    softmax = sum(by_datum[i, s.y[i]] - np.log(np.sum(np.exp(by_datum[i]))) for i in range(s.n))
    assert log_posterior(f, s.y, s.K, "softmax") == pytest.approx(prior + softmax, rel=1e-10, abs=0)
    probit = 0.0
    for i in range(s.n):
        gap = by_datum[i, s.y[i]] - np.delete(by_datum[i], s.y[i])
        probit += np.log(bivariate_normal_cdf(gap, np.eye(2) + 1.0))
    # the bivariate normal's accuracy
    assert log_posterior(f, s.y, s.K, "multinomial-probit") == pytest.approx(prior + probit, rel=1e-8, abs=0)
    with pytest.raises(ValueError, match="likelihood: found 'logit'"):
        log_posterior(f, s.y, s.K, "logit")


@pytest.mark.verifies("riihimaki2013", "3", route="closed forms where the likelihood is below 1e-308")
def test_log_posterior_far_out(model):
    """One datum, the label's latent value 60 or 800 below another's, the third class too far down to matter."""
    K = np.diag([900.0, 1600.0, 2500.0])
    for gap, likelihood, log_label in (
        (60.0, "multinomial-probit", norm.logcdf(-60.0 / np.sqrt(2.0))),
        (800.0, "softmax", -800.0),
    ):
        f = np.array([0.0, gap, -900.0])
        wanted = multivariate_normal.logpdf(f, np.zeros(3), K) + log_label
        # the line's 1e-13 times curvatures of 900, and rounding
        assert log_posterior(f, np.array([0]), K, likelihood) == pytest.approx(wanted, rel=1e-11, abs=0)
        assert log_label < -745.0  # what exp still holds


@pytest.mark.verifies("riihimaki2013", "u2-evidence", route="arcsine formula of a bivariate orthant, symmetry, quad")
def test_evidence_of_two_data():
    K = np.array([[0.6, 0.3], [0.3, 0.5]])
    whole = np.kron(np.eye(2), K)
    y = np.array([0, 1])
    # h_i = f⁰ - f¹ + e⁰ - e¹ is Gaussian with covariance 2K + 2I; signs +, -
    cov = 2.0 * K + 2.0 * np.eye(2)
    rho = -cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])
    wanted = np.log(0.25 + np.arcsin(rho) / (2.0 * np.pi))
    # 40 nodes of Gauss-Hermite for a Φ as wide as the Gaussian
    assert log_marginal_likelihood(y, whole, "multinomial-probit") == pytest.approx(wanted, rel=1e-7, abs=0)
    single = log_marginal_likelihood(np.array([1]), 0.7 * np.eye(3), "multinomial-probit")
    assert single == pytest.approx(np.log(1.0 / 3.0), rel=1e-7, abs=0)
    one = log_marginal_likelihood(np.array([0]), np.diag([0.7, 0.4]), "softmax")
    assert one == pytest.approx(np.log(0.5), rel=1e-10, abs=0)  # symmetry
    with pytest.raises(ValueError, match="at most 1e6 points"):
        log_marginal_likelihood(np.arange(5), np.eye(25), "softmax")
