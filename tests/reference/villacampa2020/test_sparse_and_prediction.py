"""Sections 2.1 to 2.3, 5, A.8 and B: joint Gaussians, quadrature of the definition, tables."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from reference.villacampa2020.experiments import (
    ard_gaussian_kernel,
    initialise_hyperparameters,
    select_by_entropy,
    uci_dataset_table,
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
    exact_site_factor,
    fitc_conditional,
    joint_posterior_approximation,
    latent_marginal,
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


@pytest.mark.verifies("villacampa2020", "u7-joint-posterior-view", "u19-pep-posterior", route="scipy's densities")
def test_the_joint_approximation_keeps_the_conditional_prior(model, rng):
    s = model
    sites = [
        Site(0.2 * i, np.stack([s.c1[i, k] * np.outer(s.upsilon[k, i], s.upsilon[k, i]) for k in range(s.C)]),
             np.stack([s.c2[i, k] * s.upsilon[k, i] for k in range(s.C)])) for i in range(s.n)
    ]  # fmt: skip
    f = rng.normal(size=(s.n, s.C))
    wanted = 0.2 * np.sum(np.arange(s.n))
    for k in range(s.C):
        u, w = s.inducing_values[k], s.upsilon[k] @ s.inducing_values[k]
        wanted += multivariate_normal.logpdf(u, np.zeros(s.m), s.K_ZZ[k])
        wanted += np.sum(norm.logpdf(f[:, k], w, np.sqrt(s.cond_var[k])) - 0.5 * s.c1[:, k] * w**2 + s.c2[:, k] * w)
    got = joint_posterior_approximation(f, s.inducing_values, sites, s.k_xx, s.K_XZ, s.K_ZZ)
    assert got == pytest.approx(wanted, rel=1e-9, abs=0)


@pytest.mark.verifies("villacampa2020", "u8-latent-marginal", route="moments of the joint Gaussian's affine map")
@pytest.mark.verifies("villacampa2020", "A.31", "A.32", "A.33", route="moments of the joint Gaussian's affine map")
def test_marginals_of_latent_values(model):
    s = model
    at = latent_marginal(Gaussians(s.mean, s.cov), s.upsilon, s.cond_var)
    new = predictive_latent_distribution(Gaussians(s.mean, s.cov), s.k_xx, s.K_XZ, s.K_ZZ)
    for k in range(s.C):
        A = np.linalg.solve(s.K_ZZ[k], s.K_XZ[k].T).T
        mean, cov = A @ s.mean[k], A @ s.cov[k] @ A.T + np.diag(s.k_xx[k]) - A @ s.K_ZZ[k] @ A.T
        for found in (at, new):
            np.testing.assert_allclose(found.mean[:, k], mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.var[:, k], np.diag(cov), rtol=1e-9)
        one = predictive_latent_mean(s.K_XZ[k], s.K_ZZ[k], s.mean[k])
        np.testing.assert_allclose(one, mean, rtol=1e-9, atol=1e-12)
        one = predictive_latent_variance(s.k_xx[k], s.K_XZ[k], s.K_ZZ[k], s.cov[k])
        np.testing.assert_allclose(one, np.diag(cov), rtol=1e-9)


@pytest.mark.verifies("villacampa2020", "A.34", route="adaptive quadrature of the definition")
def test_class_probabilities_under_labelling_noise(model):
    s, epsilon = model, 0.12
    laws = predictive_latent_distribution(Gaussians(s.mean, s.cov), s.k_xx, s.K_XZ, s.K_ZZ)
    raw = predictive_class_probability_robust(*laws, epsilon)
    wanted = [
        [(1 - epsilon) * largest(laws.mean[i], laws.var[i], c) + epsilon / 3 for c in range(3)] for i in range(s.n)
    ]
    np.testing.assert_allclose(raw, wanted, rtol=1e-11)
    got = predict(Gaussians(s.mean, s.cov), s.k_xx, s.K_XZ, s.K_ZZ, epsilon)
    np.testing.assert_allclose(got.probability_mass, 1.0, atol=1e-13)  # one rule a class, each to 1e-15
    np.testing.assert_allclose(np.sum(got.probability, axis=1), 1.0, atol=1e-15)
    nobody = predictive_class_probability_robust(np.zeros((0, 3)), np.zeros((0, 3)), epsilon)
    assert nobody.shape == (0, 3)


@pytest.mark.verifies("villacampa2020", "u35-kernel", route="entry by entry")
def test_the_kernel_has_noise_on_its_own_diagonal_alone(rng):
    X1, X2, ell = rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), np.array([0.7, 1.9])

    def entry(a, b):
        return 1.3**2 * np.exp(-0.5 * ((a[0] - b[0]) / 0.7) ** 2 - 0.5 * ((a[1] - b[1]) / 1.9) ** 2)

    cross = [[entry(a, b) for b in X2] for a in X1]
    np.testing.assert_allclose(ard_gaussian_kernel(X1, X2, 1.3, ell, 0.4), cross, rtol=1e-12)
    own = [[entry(a, b) + 0.4 * (i == j) for j, b in enumerate(X1)] for i, a in enumerate(X1)]
    np.testing.assert_allclose(ard_gaussian_kernel(X1, None, 1.3, ell, 0.4), own, rtol=1e-12)


@pytest.mark.verifies("villacampa2020", "u36-initialisation", route="membership, medians and constants")
def test_all_methods_start_alike(rng):
    X = rng.normal(size=(7, 2)) * [1.0, 3.0]
    got = initialise_hyperparameters(X, 3, 4, seed=1)
    rows = [next(i for i in range(7) if np.array_equal(X[i], z)) for z in got.Z[0]]
    assert len(set(rows)) == 4
    assert all(np.array_equal(got.Z[0], other) for other in got.Z)
    for j in range(2):
        apart = [abs(X[a, j] - X[b, j]) for a in range(7) for b in range(a)]
        np.testing.assert_allclose(got.lengthscales[:, j], np.median(apart), rtol=1e-14)
    for found, value in ((got.variance, 1.0), (got.noise, 0.1), (got.jitter, 1e-6)):
        np.testing.assert_array_equal(found, np.full(3, value))
    assert not np.array_equal(got.Z, initialise_hyperparameters(X, 3, 4, seed=2).Z)
    with pytest.raises(ValueError, match="n_inducing"):
        initialise_hyperparameters(X, 3, 8, seed=1)


@pytest.mark.verifies("villacampa2020", "u44-entropy-selection", route="cases whose order is known")
def test_the_least_certain_candidate_is_asked_for():
    sure, torn, flat = [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.34, 0.33, 0.33]
    assert select_by_entropy(np.array([sure, torn, sure])) == 1
    assert select_by_entropy(np.array([torn, sure, flat])) == 2
    assert select_by_entropy(np.array([flat, flat, torn])) == 0


@pytest.mark.verifies("villacampa2020", "u45-table-b2", route="sums over the printed columns")
def test_the_table_of_data_sets():
    names = ("glass", "new-thyroid", "satellite", "svmguide2", "vehicle", "vowel", "waveform", "wine")
    table = [uci_dataset_table(name) for name in names]
    assert tuple(sum(column) for column in zip(*table, strict=True)) == (9819, 132, 34)
    assert uci_dataset_table("vowel") == (540, 10, 6)
    assert uci_dataset_table("wine").attributes == 13
    with pytest.raises(ValueError, match="name"):
        uci_dataset_table("iris")
