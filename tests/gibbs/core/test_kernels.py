"""Kernels against mpmath, closed forms and limits, and the truths that take them."""

import mpmath
import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from gibbs.core.kernels import covariance, matern, squared_exponential
from gibbs_samplers import (
    check,
    exact_evidence,
    fitc_white,
    full_covariance,
    sample_exact,
    sample_full,
    sample_pairwise,
    sample_probit,
    sample_softmax,
    sample_threshold,
)

SCALES = np.array([0.7, 1.6])
ORDERS = (0.01, 0.3, 0.5, 1.0, 1.5, 1.75, 2.5, 3.2, 7.5, 24.9, 25.0, 25.1, 60.0, 1e3)


def definition(order, r):
    """2^(1-ν)/Γ(ν) (√(2ν) r)^ν K_ν(√(2ν) r), Rasmussen & Williams (4.14), in 60 digits."""
    with mpmath.workdps(60):
        order, r = mpmath.mpf(float(order)), mpmath.mpf(float(r))
        s = mpmath.sqrt(2 * order) * r
        return float(2 ** (1 - order) / mpmath.gamma(order) * s**order * mpmath.besselk(order, s))


@pytest.mark.parametrize("order", ORDERS)
def test_the_matern_kernel_is_the_bessel_function_of_its_definition(order):
    r = np.array([1e-12, 1e-8, 1e-3, 0.05, 0.4, 1.0, 2.5, 6.0, 15.0])
    actual = matern(np.zeros((1, 1)), 2.0 * r[:, None], 3.0, np.array([2.0]), order)[0]
    # some 1e-14 from the expansion in its region, and from exp and K_ν at arguments of up to 100
    np.testing.assert_allclose(actual, [3.0 * definition(order, x) for x in r], rtol=5e-14, atol=0)


@pytest.mark.parametrize("order", [0.5, 1.5, 2.5])
def test_half_integer_smoothness_has_its_closed_form_and_no_step_beside_it(rng, order):
    A, B = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    r = np.sqrt((((A[:, None] - B) / SCALES) ** 2).sum(-1))
    polynomial = {
        0.5: np.ones_like(r),
        1.5: 1.0 + np.sqrt(3.0) * r,
        2.5: 1.0 + np.sqrt(5.0) * r + 5.0 * r**2 / 3.0,
    }[order]
    expected = 1.7 * polynomial * np.exp(-np.sqrt(2.0 * order) * r)
    np.testing.assert_allclose(matern(A, B, 1.7, SCALES, order), expected, rtol=1e-13, atol=0)  # rounding
    # the Bessel function takes over: a relative change of 1e-9 in ν moves k by some 1e-9
    np.testing.assert_allclose(matern(A, B, 1.7, SCALES, order * (1.0 + 1e-9)), expected, rtol=2e-8, atol=0)


def test_the_matern_kernel_tends_to_the_squared_exponential_at_first_order(rng):
    A = rng.normal(size=(6, 2))
    limit = squared_exponential(A, A, 2.0, SCALES)
    gaps = [np.abs(matern(A, A, 2.0, SCALES, order) - limit).max() for order in (1e3, 1e4, 1e8)]
    # the difference is O(1/ν): ten times less for ten times ν, up to the next order, 1e-3 of it
    assert gaps[0] / gaps[1] == pytest.approx(10.0, rel=0.01)
    assert gaps[2] < 1e-7


@pytest.mark.parametrize("order", ORDERS)
def test_a_matern_matrix_is_symmetric_with_the_variance_on_its_diagonal_and_positive(rng, order):
    X = np.concatenate([rng.normal(size=(6, 2)), np.zeros((1, 2))])
    K = matern(X, X, 1.3, SCALES, order)
    assert np.array_equal(K, K.T)
    assert np.all(np.diag(K) == 1.3)
    assert K.max() == 1.3
    assert np.linalg.eigvalsh(K).min() > -1e-13  # rounding
    twins = np.stack([X[0], X[0], X[0] + 1e-200])
    assert np.all(matern(twins, twins, 1.3, SCALES, order) == 1.3)


def test_far_points_are_independent_without_a_warning_and_bad_smoothness_is_refused():
    far = np.array([[0.0], [1e6], [1e150]])
    for order in ORDERS:
        K = matern(far, far, 1.0, np.ones(1), order)
        assert np.all(np.isfinite(K))
        if order >= 0.5:
            assert np.all(np.eye(3) == K)
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="smoothness: found"):
            matern(far, far, 1.0, np.ones(1), bad)


def test_no_smoothness_is_the_squared_exponential(rng):
    A = rng.normal(size=(3, 2))
    assert np.array_equal(covariance(A, A, 2.0, SCALES), squared_exponential(A, A, 2.0, SCALES))
    assert np.array_equal(covariance(A, A, 2.0, SCALES, 1.75), matern(A, A, 2.0, SCALES, 1.75))


# -- the truths take the Matérn kernel ---------------------------------------------------------------------------------

X = np.array([[0.0, 0.2], [0.7, -0.4], [-0.5, 0.9]])
X_NEW = np.array([[0.3, 0.3]])
Z = np.array([[0.1, 0.0], [-0.4, 0.6], [0.8, -0.2]])
Y = np.array([0, 2, 1])
VARIANCES, ORDERS_OF_LATENTS = np.array([3.0, 1.0, 6.0]), np.array([0.8, 1.5, 30.0])
NOISE, JITTER = 0.3, 1e-6


def gram(A, B, variance, order):
    """Entry by entry from the definition."""
    r = np.sqrt((((A[:, None] - B) / SCALES) ** 2).sum(-1))
    return variance * np.array([[1.0 if x == 0.0 else definition(order, x) for x in row] for row in r])


def dense_prior(prior_model, variance, order):
    """Covariance of f at X and X_NEW, noise included, under the prior model."""
    both = np.concatenate([X, X_NEW])
    if prior_model == "full":
        jitter = np.diag([JITTER] * len(X) + [0.0] * len(X_NEW))
        return gram(both, both, variance, order) + NOISE * np.eye(len(both)) + jitter
    K_ZZ, K_BZ = gram(Z, Z, variance, order) + JITTER * np.eye(len(Z)), gram(both, Z, variance, order)
    K = K_BZ @ np.linalg.solve(K_ZZ, K_BZ.T)
    np.fill_diagonal(K, variance + NOISE)
    return K


def orthant(priors, y, unit):
    """p(y) as the c.d.f. of margins, for latent covariances `priors`, by SciPy's integration."""
    n, C = len(y), len(priors)
    rows = []
    for i in range(n):
        for j in range(C):
            if j != y[i]:
                row = np.zeros((C, n))
                row[y[i], i], row[j, i] = 1.0, -1.0
                rows.append(row.ravel())
    A = np.array(rows)
    K = block_diag(*[P[:n, :n] + unit * np.eye(n) for P in priors])
    return multivariate_normal(cov=A @ K @ A.T, abseps=1e-7, releps=1e-7, maxpts=2_000_000, seed=1).cdf(
        np.zeros(len(A))
    )


@pytest.mark.parametrize("prior_model", ["full", "fitc"])
@pytest.mark.parametrize("likelihood", ["multinomial-probit", "threshold"])
def test_exact_draws_with_matern_kernels_meet_the_normal_distribution_function(prior_model, likelihood, assert_z):
    settings = (likelihood, X, Y, 3, VARIANCES, SCALES, NOISE, JITTER, Z, prior_model)
    estimate = exact_evidence(*settings, seed=3, target_error=2e-3, smoothness=ORDERS_OF_LATENTS)
    priors = [dense_prior(prior_model, v, o) for v, o in zip(VARIANCES, ORDERS_OF_LATENTS, strict=True)]
    unit = 0.0 if likelihood == "threshold" else 1.0
    truth = np.log(orthant(priors, Y, unit))
    # SciPy's rule is asked for 1e-7 and may leave 1e-4
    assert_z((estimate.log_evidence - truth) / np.hypot(estimate.log_evidence_se, 1e-4))
    other = exact_evidence(*settings, seed=3, target_error=2e-3)
    assert abs(other.log_evidence - truth) > 10.0 * other.log_evidence_se  # the kernel matters here
    # a probability is a ratio of evidences: the label at X_NEW is one more datum
    drawn = sample_exact(*settings, X_NEW, n_draws=4000, seed=4, smoothness=ORDERS_OF_LATENTS)
    if prior_model == "fitc":  # data and test points are alike there; the full prior has its jitter at data only
        one_more = [orthant(priors, np.append(Y, c), unit) for c in range(3)]
        expected = np.array(one_more) / np.exp(truth)
        gap = drawn.probabilities[0] - expected
        assert_z(gap[:2] / np.hypot(drawn.probabilities_se[0, :2], 5e-4))


@pytest.mark.parametrize("prior_model", ["full", "fitc"])
def test_every_sampler_builds_the_same_matern_prior(prior_model):
    shared = (X, Y, 3, VARIANCES, SCALES, NOISE, JITTER, Z, prior_model, X_NEW)
    setting = check(X, Y, 3, 3, VARIANCES, SCALES, NOISE, JITTER, Z, prior_model, X_NEW, smoothness=ORDERS_OF_LATENTS)
    for k, (variance, order) in enumerate(zip(VARIANCES, ORDERS_OF_LATENTS, strict=True)):
        dense = dense_prior(prior_model, variance, order)
        # the definition's own rounding, and that of the solves
        np.testing.assert_allclose(setting.prior.K_XX[k], dense[:3, :3], rtol=1e-10)
        np.testing.assert_allclose(setting.prior.K_TX[k], dense[3:, :3], rtol=1e-10)
        binary = (X, variance, SCALES, NOISE, JITTER)
        if prior_model == "full":
            result = full_covariance(*binary, smoothness=order)
        else:
            white = fitc_white(X, Z, variance, SCALES, NOISE, JITTER, smoothness=order)
            result = white.white_rows @ white.white_rows.T + np.diag(white.cond_var)
        np.testing.assert_allclose(result, dense[:3, :3], rtol=1e-10)
    run = {"n_chains": 2, "n_draws": 8, "n_warmup": 4, "seed": 1}
    for sample in (sample_probit, sample_threshold, sample_softmax, sample_pairwise):
        matern_run, other = (sample(*shared, **run, smoothness=s) for s in (ORDERS_OF_LATENTS, None))
        assert np.all(np.isfinite(matern_run.test_latent_mean))
        assert not np.array_equal(matern_run.log_joint, other.log_joint)
        with pytest.raises(ValueError, match="smoothness: found"):
            sample(*shared, **run, smoothness=np.array([1.0, -1.0, 1.0]))
    y_sign = np.array([1.0, -1.0, 1.0])
    logit = sample_full(X, y_sign, 2.0, SCALES, NOISE, JITTER, X_NEW, **run, smoothness=1.5)
    other = sample_full(X, y_sign, 2.0, SCALES, NOISE, JITTER, X_NEW, **run)
    assert not np.array_equal(logit.log_joint, other.log_joint)


def test_chains_with_a_matern_kernel_meet_exact_draws(assert_z):
    shared = (X, Y, 3, VARIANCES, SCALES, NOISE, JITTER, None, "full", X_NEW)
    truth = sample_exact("threshold", *shared, n_draws=20_000, seed=5, smoothness=ORDERS_OF_LATENTS)
    chain = sample_threshold(*shared, n_chains=16, n_draws=1000, n_warmup=50, seed=6, smoothness=ORDERS_OF_LATENTS)
    for name in ("latent_mean", "test_latent_mean", "probabilities"):
        a, b = getattr(truth, name), getattr(chain, name)
        se = np.hypot(getattr(truth, f"{name}_se"), getattr(chain, f"{name}_se"))
        assert_z(((a - b) / se).ravel()[: 2 if name == "probabilities" else None])


def test_points_farther_apart_than_float64_reaches_have_no_covariance():
    X = np.array([[-1e308], [1e308]])
    assert squared_exponential(X, X, 2.0, np.ones(1)).tolist() == [[2.0, 0.0], [0.0, 2.0]]


@pytest.mark.parametrize("order", [0.8, 2.2, 12.0, 24.9, 25.1, 49.0])
def test_nearly_equal_inputs_have_the_variance_however_near_they_are(order):
    apart = 10.0 ** np.arange(-40.0, -8.0, 0.5)
    value = matern(np.zeros((1, 1)), apart[:, None], 1.7, np.ones(1), order)
    # 1 - M is of the order of r to the power 1.6 at least; sums of logarithms of Gamma functions leave 1e-12
    np.testing.assert_allclose(value, 1.7, rtol=1e-11)
