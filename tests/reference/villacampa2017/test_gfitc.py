"""GFITC: sites with the moments of the exact factors, an evidence with every constant, gradients, and a search."""

import numpy as np
import pytest
from scipy.integrate import dblquad

from bivariate import bivariate_normal_cdf
from reference.common.errors import NotPositiveDefiniteError
from reference.common.priors import Prior
from reference.villacampa2017.evidence import ep_log_evidence_from_moments, factor_log_scale_rank_one
from reference.villacampa2017.factors import ep_refine_factors, parallel_ep_sweep
from reference.villacampa2017.gfitc import fitc_covariance, gfitc_baseline
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.posterior import Coefficients, Gaussians
from reference.villacampa2017.prediction import predict, predictive_distribution

FIELDS = ("variance", "lengthscales", "noise", "Z")


def problem(n=6, C=2, m=3, d=2, seed=4):
    """Data of which every class has some, and a prior."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    prior = Prior(
        rng.uniform(1.0, 3.0, C),
        rng.uniform(0.7, 1.5, (C, d)),
        rng.uniform(0.05, 0.2, C),
        np.full(C, 1e-2),
        rng.normal(size=(C, m, d)),
    )
    return rng.normal(size=(n, d)) + 0.5 * y[:, None], y, prior


@pytest.mark.verifies("villacampa2017", "u20-gfitc", route="two classes: EP on the inducing values is the same EP")
def test_with_two_classes_gfitc_is_the_scalable_method():
    X, y, prior = problem()
    got = gfitc_baseline(X, y, prior, damping=0.8)
    K = prior_matrices(X, prior)
    given = y, K.k_xx, K.K_XZ, K.K_ZZ
    at, q = Coefficients(*(np.zeros((6, 2)) for _ in range(4))), Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ)
    for _ in range(80):
        at, q, _ = parallel_ep_sweep(at, q, *given, 0.8)
    log_norm = ep_refine_factors(at, q, *given).log_norm
    scales = factor_log_scale_rank_one(log_norm, at, q, y, K.upsilon)
    wanted = ep_log_evidence_from_moments(q, K.K_ZZ, scales)
    # both stop at a residual of 1e-10 or below, the evidence is flat there
    assert got.log_evidence == pytest.approx(wanted, rel=1e-11, abs=0)
    np.testing.assert_allclose(got.posterior.mean, q.mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(got.posterior.cov, q.cov, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(got.log_norm, log_norm, rtol=1e-8, atol=1e-10)
    T = X[:3] + 0.1
    prediction = predict(got.posterior, T, prior)
    K_TZ = prior_matrices(T, prior).upsilon @ K.K_ZZ
    k_tt = np.repeat((prior.variance + prior.noise)[:, None], 3, axis=1)
    wanted = predictive_distribution(q, k_tt, K_TZ, K.K_ZZ)
    np.testing.assert_allclose(prediction.probability, wanted.probability, rtol=0, atol=1e-9)


def step_moments(mean, var):
    """Mass, means and variances of two independent Gaussians cut to f_0 > f_1, by quadrature over both."""
    sd = np.sqrt(var)

    def integral(power_0, power_1):
        def integrand(b, a):
            z = (np.array([a, b]) - mean) / sd
            return a**power_0 * b**power_1 * np.exp(-0.5 * z @ z) / (2.0 * np.pi * sd[0] * sd[1])

        low, high = mean - 9.0 * sd, mean + 9.0 * sd
        return dblquad(integrand, low[0], high[0], low[1], lambda a: max(min(a, high[1]), low[1]), epsabs=1e-10)[0]

    mass = integral(0, 0)
    first = np.array([integral(1, 0), integral(0, 1)]) / mass
    return mass, first, np.array([integral(2, 0), integral(0, 2)]) / mass - first**2


@pytest.mark.verifies("villacampa2017", "u20-gfitc", route="fixed point by definition: moments of the cut plane")
def test_at_the_fixed_point_tilted_moments_are_those_of_q_and_scales_match_masses():
    X, y, prior = problem(n=2, C=3, m=2)
    got = gfitc_baseline(X, y, prior)
    K = prior_matrices(X, prior)
    P = [K.upsilon[k] @ K.K_ZZ[k] @ K.upsilon[k].T + np.diag(K.cond_var[k]) for k in range(3)]
    precision, shift = np.linalg.inv(P), np.zeros((3, 2))
    for i, label in enumerate(y):
        for k in range(3):
            if k != label:
                precision[label, i, i] += got.sites.c1_label[i, k]
                precision[k, i, i] += got.sites.c1_other[i, k]
                shift[label, i] += got.sites.c2_label[i, k]
                shift[k, i] += got.sites.c2_other[i, k]
    cov = np.linalg.inv(precision)
    mean = np.einsum("kij,kj->ki", cov, shift)
    np.testing.assert_allclose(got.latent_mean, mean.T, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(got.latent_var, np.einsum("kii->ik", cov), rtol=1e-9, atol=0)
    # ∫ prior × sites without scales, then the scale of each site: Z_ik over the cavity's integral of the site
    total = sum(0.5 * np.linalg.slogdet(c @ np.linalg.inv(p))[1] for c, p in zip(cov, P, strict=True))
    total += 0.5 * np.sum(shift * mean)
    for i, label in enumerate(y):
        for k in range(3):
            if k == label:
                assert got.log_norm[i, k] == 0.0
                continue
            pair = [label, k]
            c1 = np.array([got.sites.c1_label[i, k], got.sites.c1_other[i, k]])
            c2 = np.array([got.sites.c2_label[i, k], got.sites.c2_other[i, k]])
            mu, var = mean[pair, i], cov[pair, i, i]
            cavity_var = 1.0 / (1.0 / var - c1)
            cavity_mean = cavity_var * (mu / var - c2)
            mass, first, second = step_moments(cavity_mean, cavity_var)
            np.testing.assert_allclose(first, mu, rtol=0, atol=1e-7)  # the quadrature's error
            np.testing.assert_allclose(second, var, rtol=1e-6, atol=0)
            assert got.log_norm[i, k] == pytest.approx(np.log(mass), rel=0, abs=1e-7)
            x, w = np.polynomial.hermite_e.hermegauss(80)
            for c, s, m, v in zip(c1, c2, cavity_mean, cavity_var, strict=True):
                f = m + np.sqrt(v) * x
                total -= np.log(np.sum(w * np.exp(-0.5 * c * f**2 + s * f)) / np.sqrt(2.0 * np.pi))
            total += np.log(mass)
    assert got.log_evidence == pytest.approx(total, rel=0, abs=1e-6)


def test_one_datum_of_two_classes_is_exact():
    X, _, prior = problem(n=2)
    got = gfitc_baseline(X[:1], np.array([1]), prior)
    assert got.log_evidence == pytest.approx(-np.log(2.0), rel=1e-12, abs=0)  # two independent Gaussians of mean zero


def test_two_data_are_near_the_orthant_probability():
    X, y, prior = problem(n=2)
    got = gfitc_baseline(X, y, prior)
    K = prior_matrices(X, prior)
    signs = np.array([1.0, -1.0])
    cov = np.sum(fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ), axis=0) * np.outer(signs, signs)
    exact = bivariate_normal_cdf(np.zeros(2), cov)
    # an estimate, not the integral: parts in a thousand are EP's error with two factors, a missing constant is more
    assert np.exp(got.log_evidence) == pytest.approx(exact, rel=5e-3, abs=0)


def test_dense_covariance_is_low_rank_plus_the_diagonal_that_keeps_the_prior_variance():
    X, _, prior = problem()
    K = prior_matrices(X, prior)
    P = fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ)
    np.testing.assert_allclose(
        np.einsum("kii->ki", P), (prior.variance + prior.noise)[:, None] * np.ones(6), rtol=1e-12, atol=0
    )
    off = P - np.stack([np.diag(s) for s in K.cond_var])
    assert all(np.linalg.matrix_rank(each, tol=1e-9) == 3 for each in off)


def test_the_gradient_is_that_of_the_evidence_of_ep_run_again():
    X, y, prior = problem(n=4, C=3, m=2, d=1)
    fit = gfitc_baseline(X, y, prior, tolerance=1e-12)
    gradients = fit.gradients
    for name in FIELDS:
        value = getattr(prior, name)
        for at in np.ndindex(value.shape):
            ends = []
            for side in (1e-5, -1e-5):
                moved = value.copy()
                moved[at] += side
                ends.append(
                    gfitc_baseline(X, y, prior._replace(**{name: moved}), damping=0.8, tolerance=1e-12).log_evidence
                )
            # differences of 1e-5: truncation 1e-10, rounding of log Z 1e-15/1e-5
            assert gradients[name][at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8), (name, at)


def test_learning_leaves_no_derivative_and_shared_classes_stay_alike():
    X, y, prior = problem(n=7, C=3, m=2, d=1)  # with two classes both would have the same derivatives
    same = Prior(*(np.broadcast_to(part[:1], part.shape).copy() for part in prior))
    fit = gfitc_baseline(X, y, same, damping=0.8, learn=("lengthscales", "noise"), shared=True, learn_tolerance=1e-4)
    assert fit.converged
    assert np.all(np.diff(fit.trace) >= -1e-9)  # the line search accepts no fall beyond rounding
    assert fit.log_evidence > gfitc_baseline(X, y, same).log_evidence
    derivatives = fit.gradients
    for name in ("lengthscales", "noise"):
        learned, start = getattr(fit.prior, name), getattr(same, name)
        assert np.all(learned == learned[:1])
        derivative = np.atleast_1d(np.sum(derivatives[name] * learned, axis=0))
        free = np.atleast_1d(np.abs(np.log(learned[0] / start[0])) < 0.99 * np.log(1e4))  # not held by the search's box
        assert np.all(np.abs(derivative[free]) < 1e-4)
    assert np.all(fit.prior.variance == same.variance)


def test_a_whole_step_and_a_half_step_from_the_start():
    X, y, prior = problem()
    halved, whole = (gfitc_baseline(X, y, prior, damping=rho, max_iterations=1) for rho in (0.5, 1.0))
    for a, b in zip(halved.sites, whole.sites, strict=True):
        np.testing.assert_allclose(2.0 * a, b, rtol=1e-14, atol=0)
    assert not halved.converged
    assert halved.residual == whole.residual  # of the undamped move


def test_trace_and_callback_follow_the_sweeps():
    X, y, prior = problem()
    states = []
    fit = gfitc_baseline(X, y, prior, trace=True, callback=states.append)
    assert [s.iteration for s in states] == list(range(1, fit.iterations + 1))
    assert len(fit.trace) == fit.iterations
    assert fit.trace[-1] == fit.log_evidence
    assert states[-1].residual == fit.residual <= 1e-10


def test_classes_may_be_renamed():
    X, y, prior = problem(n=6, C=3)
    order = np.array([2, 0, 1])
    a = gfitc_baseline(X, y, prior)
    b = gfitc_baseline(X, np.argsort(order)[y], Prior(*(part[order] for part in prior)))
    assert a.log_evidence == pytest.approx(b.log_evidence, rel=1e-12, abs=0)
    np.testing.assert_allclose(a.latent_mean[:, order], b.latent_mean, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"damping": 0.0}, "damping"),
        ({"damping": 1.5}, "damping"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"learn": ("amplitude",)}, "learn"),
        ({"n_steps": 0}, "n_steps"),
    ],
)
def test_a_bad_option_is_refused_by_name(change, name):
    with pytest.raises(ValueError, match=name):
        gfitc_baseline(*problem(), **change)


def test_bad_data_and_priors_are_refused_by_name():
    X, y, prior = problem()
    with pytest.raises(ValueError, match="y: found"):
        gfitc_baseline(X, y + 1, prior)
    with pytest.raises(ValueError, match="noise: found"):
        gfitc_baseline(X, y, prior._replace(noise=np.array([0.1, -0.1])))
    with pytest.raises(ValueError, match="learn: found 'noise'"):
        gfitc_baseline(X, y, prior._replace(noise=np.array([0.1, 0.0])), learn=("noise",))
    twice = prior.Z.copy()
    twice[:, 1] = twice[:, 0]
    with pytest.raises(NotPositiveDefiniteError, match="jitter"):
        gfitc_baseline(X, y, prior._replace(Z=twice, jitter=np.zeros(2)))
