"""Sections 2.1 to 2.3, 5, A.8 and B: joint Gaussians, quadrature of the definition, tables."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.common.errors import NotPositiveDefiniteError
from reference.villacampa2020.experiments import (
    ard_gaussian_kernel,
    select_by_entropy,
)
from reference.villacampa2020.posterior import Coefficients, Gaussians, Site
from reference.villacampa2020.prediction import (
    predict,
    predictive_class_probability_robust,
    predictive_latent_distribution,
    predictive_latent_mean,
    predictive_latent_variance,
)
from reference.villacampa2020.sparse import (
    conditional_variances,
    exact_site_factor,
    fitc_conditional,
    joint_posterior_approximation,
    latent_marginal,
    projection_vectors,
    sep_tied_factor,
)


def largest(mean, var, label):
    """P(f_label is the largest) by adaptive quadrature."""
    others = [k for k in range(len(mean)) if k != label]
    sd = np.sqrt(var)

    def integrand(t):
        return norm.pdf(t, mean[label], sd[label]) * np.prod(norm.cdf((t - mean[others]) / sd[others]))

    reach = 12 * sd[label]
    return quad(integrand, mean[label] - reach, mean[label] + reach, epsabs=1e-13, epsrel=1e-12, limit=200)[0]


@pytest.mark.verifies("villacampa2020", "u3-fitc-prior", route="conditioning of the joint Gaussian by its precision")
def test_the_conditional_of_one_latent_value(model):
    s = model
    got = fitc_conditional(s.inducing_values, s.k_xx, s.K_XZ, s.K_ZZ)
    for k in range(s.C):
        for i in range(s.n):
            joint = np.block([[s.k_xx[k, i], s.K_XZ[k, i]], [s.K_XZ[k, i][:, None], s.K_ZZ[k]]])
            precision = np.linalg.inv(joint)
            assert got.var[k, i] == pytest.approx(1.0 / precision[0, 0], rel=1e-9, abs=0)
            mean = -precision[0, 1:] @ s.inducing_values[k] / precision[0, 0]
            assert got.mean[k, i] == pytest.approx(mean, rel=1e-9, abs=1e-12)


@pytest.mark.verifies("villacampa2020", "u51-projection-vector", route="partitioned inverse of the joint covariance")
def test_projection_vectors_are_the_weights_of_the_regression_on_inducing_values(model):
    s = model
    got = projection_vectors(s.K_XZ, s.K_ZZ)
    for k in range(s.C):
        for i in range(s.n):
            joint = np.block([[s.k_xx[k, i], s.K_XZ[k, i]], [s.K_XZ[k, i][:, None], s.K_ZZ[k]]])
            precision = np.linalg.inv(joint)
            # conditions of the joint covariances below 1e4
            np.testing.assert_allclose(got[k, i], -precision[0, 1:] / precision[0, 0], rtol=1e-9, atol=1e-11)


@pytest.mark.verifies("villacampa2020", "u4-likelihood-factor", route="adaptive quadrature")
def test_a_likelihood_factor_integrates_the_latent_values_out(model):
    mean, var = model.upsilon[:, 1, 0], model.cond_var[:, 1]
    wanted = (1 - 0.1) * largest(mean, var, 2) + 0.1 / 3
    assert exact_site_factor(mean, var, 2, 0.1) == pytest.approx(wanted, rel=1e-11, abs=0)


@pytest.mark.verifies("villacampa2020", "u6-sep-tied", route="matrix products")
def test_the_tied_factor_is_the_product_of_all(model):
    s = model
    got = sep_tied_factor(Coefficients(s.c1, s.c2), s.upsilon)
    for k in range(s.C):
        np.testing.assert_allclose(got.precision[k], s.upsilon[k].T @ np.diag(s.c1[:, k]) @ s.upsilon[k], rtol=1e-12)
        np.testing.assert_allclose(got.shift[k], s.upsilon[k].T @ s.c2[:, k], rtol=1e-12)


def scaled_sites(s):
    """The factors of the model, with scales."""
    return [
        Site(0.2 * i, np.stack([s.c1[i, k] * np.outer(s.upsilon[k, i], s.upsilon[k, i]) for k in range(s.C)]),
             np.stack([s.c2[i, k] * s.upsilon[k, i] for k in range(s.C)])) for i in range(s.n)
    ]  # fmt: skip


def full_covariances(s):
    return np.stack([s.kernel(s.X, s.X, k) + s.noise[k] * np.eye(s.n) for k in range(s.C)])


@pytest.mark.verifies(
    "villacampa2020",
    "u7-joint-posterior-view",
    "u19-pep-posterior",
    route="prior of f and f̄ in one piece times factors",
)
def test_the_joint_approximation_keeps_the_conditional_prior(model, rng):
    s, K_XX = model, full_covariances(model)
    f = rng.normal(size=(s.n, s.C))
    wanted, independent = 0.2 * np.sum(np.arange(s.n)), 0.0
    for k in range(s.C):
        u, w = s.inducing_values[k], s.upsilon[k] @ s.inducing_values[k]
        joint = np.block([[K_XX[k], s.K_XZ[k]], [s.K_XZ[k].T, s.K_ZZ[k]]])
        wanted += multivariate_normal.logpdf(np.append(f[:, k], u), np.zeros(s.n + s.m), joint)
        wanted += np.sum(-0.5 * s.c1[:, k] * w**2 + s.c2[:, k] * w)
        independent += np.sum(norm.logpdf(f[:, k], w, np.sqrt(s.cond_var[k])))
        independent -= multivariate_normal.logpdf(f[:, k], w, K_XX[k] - s.upsilon[k] @ s.K_XZ[k].T)
    got = joint_posterior_approximation(f, s.inducing_values, scaled_sites(s), K_XX, s.K_XZ, s.K_ZZ)
    assert got == pytest.approx(wanted, rel=1e-9, abs=0)
    assert abs(independent) > 0.1  # FITC's product over the data is another density


@pytest.mark.verifies("villacampa2020", "u8-latent-marginal", route="inverse of the Hessian of the joint log density")
def test_one_datum_sees_the_diagonal_of_the_conditional_covariance_alone(model):
    s, K_XX, sites = model, full_covariances(model), scaled_sites(model)
    at = latent_marginal(Gaussians(s.mean, s.cov), s.upsilon, s.cond_var)
    for k in range(s.C):

        def log_q(x, k=k):
            f, u = np.zeros((s.n, s.C)), np.zeros((s.C, s.m))
            f[:, k], u[k] = x[: s.n], x[s.n :]
            return joint_posterior_approximation(f, u, sites, K_XX, s.K_XZ, s.K_ZZ)

        # log q is a quadratic: its differences with steps of one are exact
        unit, zero = np.eye(s.n + s.m), np.zeros(s.n + s.m)
        derivative = np.array([0.5 * (log_q(e) - log_q(-e)) for e in unit])
        hessian = np.array([[log_q(a + b) - log_q(a) - log_q(b) + log_q(zero) for b in unit] for a in unit])
        cov = np.linalg.inv(-hessian)
        # log densities of order 1e3 lose 1e-13 of it in the differences, conditions are below 1e4
        np.testing.assert_allclose(at.var[:, k], np.diag(cov)[: s.n], rtol=1e-7)
        np.testing.assert_allclose(at.mean[:, k], (cov @ derivative)[: s.n], rtol=1e-7, atol=1e-8)


@pytest.mark.verifies("villacampa2020", "u8-latent-marginal", route="moments of the joint Gaussian's affine map")
@pytest.mark.verifies("villacampa2020", "A.31", "A.32", "A.33", route="moments of the joint Gaussian's affine map")
def test_marginals_of_latent_values(model):
    s = model
    at = latent_marginal(Gaussians(s.mean, s.cov), s.upsilon, s.cond_var)
    new = predictive_latent_distribution(Gaussians(s.mean, s.cov), s.k_xx, s.K_XZ, s.K_ZZ)
    for k in range(s.C):
        A = np.linalg.solve(s.K_ZZ[k], s.K_XZ[k].T).T
        mean, cov = A @ s.mean[k], A @ s.cov[k] @ A.T + np.diag(s.k_xx[k]) - A @ s.K_ZZ[k] @ A.T
        for value in (at, new):
            np.testing.assert_allclose(value.mean[:, k], mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(value.var[:, k], np.diag(cov), rtol=1e-9)
        one = predictive_latent_mean(s.K_XZ[k], s.K_ZZ[k], s.mean[k])
        np.testing.assert_allclose(one, mean, rtol=1e-9, atol=1e-12)
        one = predictive_latent_variance(s.k_xx[k], s.K_XZ[k], s.K_ZZ[k], s.cov[k])
        np.testing.assert_allclose(one, np.diag(cov), rtol=1e-9)


@pytest.mark.verifies("villacampa2020", "A.34", route="multivariate normal orthants; its last line by quadrature")
def test_class_probabilities_under_labelling_noise(model):
    s, epsilon = model, 0.12
    distributions = predictive_latent_distribution(Gaussians(s.mean, s.cov), s.k_xx, s.K_XZ, s.K_ZZ)
    raw = predictive_class_probability_robust(*distributions, epsilon)
    wanted = [
        [(1 - epsilon) * largest(distributions.mean[i], distributions.var[i], c) + epsilon / 3 for c in range(3)]
        for i in range(s.n)
    ]
    np.testing.assert_allclose(raw, wanted, rtol=1e-11)
    # before the integral in one dimension: the largest of three Gaussians is an orthant of two differences
    for i in range(s.n):
        for c in range(3):
            others = [k for k in range(3) if k != c]
            cov = np.diag(distributions.var[i, others]) + distributions.var[i, c]
            win = bivariate_normal_cdf(distributions.mean[i, c] - distributions.mean[i, others], cov)
            assert raw[i, c] == pytest.approx(
                (1 - epsilon) * win + epsilon / 3, rel=1e-8, abs=0
            )  # the orthant's accuracy
    got = predict(Gaussians(s.mean, s.cov), s.k_xx, s.K_XZ, s.K_ZZ, epsilon)
    np.testing.assert_allclose(got.probability_mass, 1.0, atol=1e-13)  # one rule a class, each to 1e-15
    np.testing.assert_allclose(np.sum(got.probability, axis=1), 1.0, atol=1e-15)
    nobody = predictive_class_probability_robust(np.zeros((0, 3)), np.zeros((0, 3)), epsilon)
    assert nobody.shape == (0, 3)


def test_variances_given_the_inducing_values_below_zero_beyond_rounding_are_refused():
    def matrices(gap):
        """Two pairs of inducing inputs that are nearly equal, and data at or beside them."""
        Z, X = np.array([0.0, gap, 1.0, 1.0 + gap]), np.array([0.3, 0.0, 0.5 * gap, 0.9])
        K, cross = (np.exp(-0.5 * (A[:, None] - Z) ** 2)[None] for A in (Z, X))
        return np.ones((1, 4)), cross, K

    k_xx, cross, K = matrices(1e-3)
    rest = conditional_variances(k_xx, cross, projection_vectors(cross, K))
    assert rest.min() >= 0.0
    assert rest[0, 1] < 1e-8  # a datum at an inducing input: what rounding leaves
    k_xx, cross, K = matrices(3e-7)  # condition 1e15; the variances come out as -0.02
    with pytest.raises(
        NotPositiveDefiniteError, match=r"K_ZZ: found variances of f given f̄ down to -0\.\d+ of the prior"
    ):
        conditional_variances(k_xx, cross, projection_vectors(cross, K))
    with pytest.raises(NotPositiveDefiniteError, match="K_ZZ: found variances of f given f̄"):
        predictive_latent_variance(k_xx[0], cross[0], K[0], K[0])


@pytest.mark.verifies("villacampa2020", "u35-kernel", route="entry by entry")
def test_the_kernel_has_noise_on_its_own_diagonal_alone(rng):
    X1, X2, ell = rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), np.array([0.7, 1.9])

    def entry(a, b):
        return 1.3**2 * np.exp(-0.5 * ((a[0] - b[0]) / 0.7) ** 2 - 0.5 * ((a[1] - b[1]) / 1.9) ** 2)

    cross = [[entry(a, b) for b in X2] for a in X1]
    np.testing.assert_allclose(ard_gaussian_kernel(X1, X2, 1.3, ell, 0.4), cross, rtol=1e-12)
    own = [[entry(a, b) + 0.4 * (i == j) for j, b in enumerate(X1)] for i, a in enumerate(X1)]
    np.testing.assert_allclose(ard_gaussian_kernel(X1, None, 1.3, ell, 0.4), own, rtol=1e-12)


@pytest.mark.verifies("villacampa2020", "u44-entropy-selection", route="cases whose order is known")
def test_the_least_certain_candidate_is_asked_for():
    sure, torn, flat = [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.34, 0.33, 0.33]
    assert select_by_entropy(np.array([sure, torn, sure])) == 1
    assert select_by_entropy(np.array([torn, sure, flat])) == 2
    assert select_by_entropy(np.array([flat, flat, torn])) == 0
