"""Sections 2.1 and 2.2: dense Gaussian algebra, orthant probabilities and quadrature against the definitions."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.common.errors import NotPositiveDefiniteError
from reference.villacampa2017.model import (
    add_latent_noise,
    approximate_inducing_posterior,
    ard_gaussian_kernel,
    conditional_mean,
    conditional_variance,
    exact_site_factor,
    fitc_conditional,
    fitc_inducing_posterior,
    gp_prior,
    hard_max_likelihood,
    inducing_covariances,
    inducing_prior,
    label_from_latents,
    pairwise_factor,
    pairwise_probit_approximation,
    projection_vectors,
    standardised_margin,
)
from reference.villacampa2017.vi import robust_likelihood

MEAN, VAR = np.array([0.3, 0.5, -0.4]), np.array([0.7, 1.1, 0.4])
TIGHT = {"rtol": 1e-10, "atol": 1e-12}  # matrices of 3 x 3 with conditions below 1e3


def all_below_label(mean, var, label):
    """P(f_y > f_k for all k ≠ y) of three classes by the bivariate normal distribution function."""
    others = [k for k in range(3) if k != label]
    gaps = mean[label] - mean[others]
    return bivariate_normal_cdf(gaps, np.diag(var[others]) + var[label])


def conditional_by_joint(s, k, i):
    """Mean and variance of f_i^k given inducing values, from the joint precision of both."""
    joint = np.empty((s.m + 1, s.m + 1))
    joint[:-1, :-1], joint[-1, -1] = s.K_ZZ[k], s.variance[k] + s.noise[k]
    joint[-1, :-1] = joint[:-1, -1] = s.kernel(s.X[i : i + 1], s.Z[k], k)[0]
    precision = np.linalg.inv(joint)
    return -precision[-1, :-1] @ s.inducing_values[k] / precision[-1, -1], 1.0 / precision[-1, -1]


@pytest.mark.verifies("villacampa2017", "1", route="comparisons one by one")
@pytest.mark.verifies("villacampa2017", "u1-labelling-rule", route="comparisons one by one")
def test_the_label_is_the_class_whose_latent_is_largest(rng):
    f = rng.normal(size=(20, 4))
    labels = label_from_latents(f)
    for i in range(20):
        for c in range(4):
            wins = all(f[i, c] > f[i, k] for k in range(4) if k != c)
            assert (labels[i] == c) == wins
            assert hard_max_likelihood(f[i], c) == float(wins)


@pytest.mark.verifies("villacampa2017", "1", route="the exact factor of point masses")
def test_classes_that_tie_at_the_top_share(rng):
    for f, shares in (
        ([1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
        ([2.0, 2.0, 2.0, -1.0], [1 / 3, 1 / 3, 1 / 3, 0.0]),
        ([0.0, 0.0, 0.0, 0.0], [0.25] * 4),
        ([0.0, 0.0, 3.0], [0.0, 0.0, 1.0]),
    ):
        values = np.array(f)
        got = [hard_max_likelihood(values, c) for c in range(len(f))]
        np.testing.assert_allclose(got, shares, rtol=1e-15, atol=0)
        point = [exact_site_factor(values, np.zeros(len(f)), c) for c in range(len(f))]
        np.testing.assert_allclose(got, point, rtol=1e-15, atol=0)  # exp(-log 3) rounds once
        robust = [robust_likelihood(values, c, 0.05) for c in range(len(f))]  # (13): sums to one too
        assert sum(robust) == pytest.approx(1.0, rel=1e-15, abs=0)


@pytest.mark.verifies("villacampa2017", "u2-latent-noise", route="entry by entry")
def test_noise_adds_to_the_variances_of_its_own_class():
    got = add_latent_noise(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.25, 0.5]))
    np.testing.assert_array_equal(got, [[1.25, 2.25], [3.5, 4.5]])


@pytest.mark.verifies("villacampa2017", "u30-kernel", route="loops over entries and dimensions")
def test_the_kernel_entry_by_entry(model):
    A, B, ell = model.X, model.Z[0], model.lengthscales[1]
    for X2, noise in ((B, 0.0), (None, 0.3)):
        got = ard_gaussian_kernel(A, X2, 1.7, ell, 0.3)
        right = A if X2 is None else B
        for i in range(len(A)):
            for j in range(len(right)):
                q = sum((A[i, t] - right[j, t]) ** 2 / ell[t] ** 2 for t in range(2))
                wanted = 1.7**2 * np.exp(-q / 2) + (noise if i == j else 0.0)
                assert got[i, j] == pytest.approx(wanted, rel=1e-13, abs=0)  # a dozen roundings


@pytest.mark.verifies("villacampa2017", "u3-gp-prior", route="another formula of the kernel")
@pytest.mark.verifies("villacampa2017", "u4-inducing-points", route="another formula of the kernel")
def test_priors_of_latent_and_inducing_values(model):
    s = model
    got, inducing = (
        gp_prior(s.X, s.variance, s.lengthscales),
        inducing_covariances(s.Z, s.variance, s.lengthscales, s.jitter),
    )
    for c in range(s.C):
        np.testing.assert_allclose(got[c], s.kernel(s.X, s.X, c), **TIGHT)
        np.testing.assert_allclose(inducing[c], s.K_ZZ[c], **TIGHT)


@pytest.mark.verifies("villacampa2017", "19", route="scipy's normal density")
def test_the_prior_of_the_inducing_values(model):
    s = model
    wanted = sum(multivariate_normal.logpdf(u, cov=K) for u, K in zip(s.inducing_values, s.K_ZZ, strict=True))
    assert inducing_prior(s.inducing_values, s.K_ZZ) == pytest.approx(wanted, rel=1e-11, abs=0)
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ.*jitter"):
        inducing_prior(s.inducing_values, np.ones((3, 3, 3)))


@pytest.mark.verifies("villacampa2017", "u7-projection-vector", route="linear systems")
def test_projection_vectors_solve_their_systems(model):
    s = model
    np.testing.assert_allclose(projection_vectors(s.K_XZ, s.K_ZZ), s.upsilon, **TIGHT)


@pytest.mark.verifies("villacampa2017", "4", route="conditioning by the joint precision")
@pytest.mark.verifies("villacampa2017", "5", route="conditioning by the joint precision")
@pytest.mark.verifies("villacampa2017", "u5-fitc-conditional", route="conditioning by the joint precision")
def test_latent_values_given_inducing_values(model):
    s = model
    whole = fitc_conditional(s.inducing_values, s.k_xx, s.K_XZ, s.K_ZZ)
    for k in range(s.C):
        for i in range(s.n):
            mean, var = conditional_by_joint(s, k, i)
            np.testing.assert_allclose([whole.mean[k, i], whole.var[k, i]], [mean, var], **TIGHT)
            got = conditional_mean(s.K_XZ[k, i], s.K_ZZ[k], s.inducing_values[k])
            np.testing.assert_allclose(got, mean, **TIGHT)
            np.testing.assert_allclose(conditional_variance(s.k_xx[k, i], s.K_XZ[k, i], s.K_ZZ[k]), var, **TIGHT)
    with pytest.raises(ValueError, match="k_xx"):
        conditional_variance(1e-3, s.K_XZ[0, 0], s.K_ZZ[0])


@pytest.mark.verifies("villacampa2017", "3", route="bivariate normal distribution function")
@pytest.mark.parametrize("label", [0, 1, 2])
def test_the_exact_factor_is_an_orthant_probability(label):
    # the bivariate normal's accuracy
    assert exact_site_factor(MEAN, VAR, label) == pytest.approx(all_below_label(MEAN, VAR, label), rel=1e-8, abs=0)


def test_the_exact_factor_takes_point_masses():
    assert exact_site_factor(np.array([1.0, 0.0, 0.0]), np.zeros(3), 0) == 1.0
    assert exact_site_factor(np.array([1.0, 0.0, 0.0]), np.zeros(3), 1) == 0.0
    assert exact_site_factor(np.array([1.0, 1.0, 0.0]), np.zeros(3), 1) == pytest.approx(0.5, rel=1e-15)
    # N(0, 1) above a threshold, and a threshold above N(0, 1)
    for mean, var, label, wanted in (
        ((0.0, 0.7), (1.0, 0.0), 0, norm.sf(0.7)),
        ((0.4, 0.0), (0.0, 1.0), 0, norm.cdf(0.4)),
    ):
        assert exact_site_factor(np.array(mean), np.array(var), label) == pytest.approx(wanted, rel=1e-12, abs=0)


def test_the_exact_factor_keeps_variances_apart_that_differ_by_sixteen_decades():
    """Two sharp latent values 1e-4 apart and a third 1e4 wide: two comparisons, correlated by less than 1e-8."""
    mean, var = np.array([1e-4, 0.0, 0.0]), np.array([1e-8, 1e-8, 1e8])
    wanted = norm.cdf(1e-4 / np.sqrt(2e-8)) * norm.cdf(1e-4 / np.sqrt(1e8 + 1e-8))
    assert np.log(exact_site_factor(mean, var, 0)) == pytest.approx(np.log(wanted), rel=1e-7, abs=0)
    assert np.log(wanted) == pytest.approx(-0.967, abs=5e-4)


@pytest.mark.verifies("villacampa2017", "u6-standardised-margin", route="quadrature over f_y")
@pytest.mark.verifies("villacampa2017", "33", route="quadrature over f_y")
def test_the_pairwise_factor_is_the_probability_of_one_comparison():
    wanted = quad(lambda t: norm.pdf(t, MEAN[1], np.sqrt(VAR[1])) * norm.cdf((t - MEAN[0]) / np.sqrt(VAR[0])), -12, 12)[
        0
    ]
    # the quadrature asks for 1.5e-8 and does better on an analytic integrand
    assert pairwise_factor(MEAN[1], MEAN[0], VAR[1], VAR[0]) == pytest.approx(wanted, rel=1e-9, abs=0)
    assert standardised_margin(MEAN[1], MEAN[0], VAR[1], VAR[0]) == pytest.approx(norm.ppf(wanted), rel=1e-8, abs=0)


@pytest.mark.verifies("villacampa2017", "6", route="independent comparisons, each by its own quadrature")
@pytest.mark.parametrize("label", [0, 1, 2])
def test_the_approximation_multiplies_single_comparisons_and_is_below_the_exact_factor(label):
    wanted = 1.0
    for k in range(3):
        if k != label:
            sd = np.sqrt(VAR[[label, k]])
            wanted *= quad(
                lambda t, k=k, sd=sd: norm.pdf(t, MEAN[label], sd[0]) * norm.cdf((t - MEAN[k]) / sd[1]), -12, 12
            )[0]
    got = pairwise_probit_approximation(MEAN, VAR, label)
    assert got == pytest.approx(wanted, rel=1e-9, abs=0)
    # comparisons with the same f_y are positively correlated (Slepian), so their product is below the joint probability
    assert got < exact_site_factor(MEAN, VAR, label) - 1e-3


@pytest.mark.verifies("villacampa2017", "6", route="exact for two classes")
@pytest.mark.verifies("villacampa2017", "3", route="closed form for two classes")
def test_two_classes_need_no_approximation():
    pairs = pairwise_probit_approximation(MEAN[:2], VAR[:2], 1), exact_site_factor(MEAN[:2], VAR[:2], 1)
    wanted = norm.cdf((MEAN[1] - MEAN[0]) / np.sqrt(VAR[0] + VAR[1]))
    np.testing.assert_allclose(pairs, [wanted, wanted], rtol=1e-12, atol=0)  # panels of 24 nodes


@pytest.mark.verifies("villacampa2017", "2", route="normal densities and orthant probabilities")
@pytest.mark.verifies("villacampa2017", "7", route="normal densities and distribution functions")
def test_unnormalised_posteriors_of_the_inducing_values(model):
    s = model
    prior = sum(multivariate_normal.logpdf(u, cov=K) for u, K in zip(s.inducing_values, s.K_ZZ, strict=True))
    exact = pairwise = prior
    for i in range(s.n):
        distributions = np.array([conditional_by_joint(s, k, i) for k in range(s.C)])
        exact += np.log(all_below_label(distributions[:, 0], distributions[:, 1], s.y[i]))
        for k in range(s.C):
            if k != s.y[i]:
                gap = distributions[s.y[i]] + distributions[k] * [-1, 1]
                pairwise += norm.logcdf(gap[0] / np.sqrt(gap[1]))
    data = s.inducing_values, s.y, s.k_xx, s.K_XZ, s.K_ZZ
    assert fitc_inducing_posterior(*data) == pytest.approx(exact, rel=1e-8, abs=0)  # the bivariate normal's accuracy
    assert approximate_inducing_posterior(*data) == pytest.approx(pairwise, rel=1e-11, abs=0)
