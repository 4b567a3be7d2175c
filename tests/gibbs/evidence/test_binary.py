"""log Z by three routes against quadrature for n <= 3, and against each other where no quadrature reaches."""

import numpy as np
import pytest
from scipy.special import expit

from gibbs.core.kernels import squared_exponential
from gibbs.core.options import Particles
from gibbs.evidence import annealed, bridge, chib
from gibbs_samplers import full_covariance, sample_fitc, sample_full

X3 = np.array([[0.0, 0.2], [0.7, -0.5], [1.1, 1.0]])
Y3 = np.array([1.0, -1.0, -1.0])
Z2 = np.array([[0.2, 0.1], [1.0, 0.6]])
SCALES = np.array([1.0, 1.5])
# A single z per route and case; 4.9 is passed by chance once in a million, and fourteen are drawn.
LIMIT = 4.9


def within(actual, expected, most):
    """The estimate meets the truth, and is sharp enough for that to mean something."""
    assert actual.trusted
    assert 0.0 < actual.standard_error < most
    assert abs(actual.value - expected) < LIMIT * actual.standard_error


@pytest.mark.parametrize(("n", "variance"), [(1, 1.0), (2, 60.0), (3, 5.0)])
def test_full_evidence_by_three_routes_meets_quadrature(rng, quadrature_posterior, n, variance):
    K = full_covariance(X3[:n], variance, SCALES, 0.1, 1e-4)
    truth = quadrature_posterior(K, Y3[:n], 0.04 if n < 3 else 0.2).log_evidence
    within(annealed.log_evidence(rng, K, Y3[:n], Particles(n_particles=256)), truth, 0.03)
    chains = sample_full(X3[:n], Y3[:n], variance, SCALES, 0.1, 1e-4, n_chains=8, n_draws=800, n_warmup=100, seed=n)
    within(chib.log_evidence_full(K, Y3[:n], chains.omega_draws), truth, 0.03)
    within(bridge.log_evidence_full(rng, K, Y3[:n], chains.latent_draws), truth, 0.03)


def test_the_grid_that_judges_has_converged(quadrature_posterior):
    K = full_covariance(X3, 5.0, SCALES, 0.1, 1e-4)
    coarse, fine = (quadrature_posterior(K, Y3, step).log_evidence for step in (0.3, 0.2))
    assert abs(coarse - fine) < 1e-9  # the rule converges geometrically; the z-tests resolve 1e-3


def fitc_blocks(X, Z, variance, noise, jitter):
    K_ZZ = squared_exponential(Z, Z, variance, SCALES) + jitter * np.eye(len(Z))
    K_XZ = squared_exponential(X, Z, variance, SCALES)
    return K_ZZ, K_XZ, np.full(len(X), variance + noise)


def test_fitc_evidence_by_three_routes_meets_quadrature(rng, quadrature_posterior):
    K_ZZ, K_XZ, k_xx = fitc_blocks(X3, Z2, 20.0, 0.2, 1e-3)
    K = K_XZ @ np.linalg.solve(K_ZZ, K_XZ.T)
    np.fill_diagonal(K, k_xx)
    truth = quadrature_posterior(K, Y3, 0.2).log_evidence
    chains = sample_fitc(X3, Y3, Z2, 20.0, SCALES, 0.2, 1e-3, n_chains=8, n_draws=800, n_warmup=100, seed=2)
    within(annealed.log_evidence_fitc(rng, K_ZZ, K_XZ, k_xx, Y3, Particles(n_particles=256)), truth, 0.03)
    within(chib.log_evidence_fitc(K_ZZ, K_XZ, k_xx, Y3, chains.omega_draws), truth, 0.03)
    within(bridge.log_evidence_fitc(rng, K_ZZ, K_XZ, k_xx, Y3, chains.inducing_draws), truth, 0.03)


def toy(n, variance):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((n, 2))
    K = full_covariance(X, variance, SCALES, 0.01, 1e-6)
    f = np.linalg.cholesky(K) @ rng.standard_normal(n)
    return X, K, np.where(rng.random(n) < expit(f), 1.0, -1.0)


def test_annealing_and_the_bridge_agree_at_forty_data_and_log_variance_four(rng):
    X, K, y = toy(40, np.exp(4.0))
    chains = sample_full(X, y, np.exp(4.0), SCALES, 0.01, 1e-6, n_chains=8, n_draws=800, n_warmup=100, seed=3)
    first = annealed.log_evidence(rng, K, y)
    second = bridge.log_evidence_full(rng, K, y, chains.latent_draws)
    for value in (first, second):
        assert value.trusted
        assert value.standard_error <= 0.05
    assert abs(first.value - second.value) < LIMIT * np.hypot(first.standard_error, second.standard_error)


def test_chib_refuses_its_own_error_where_a_few_draws_carry_the_average():
    X, K, y = toy(60, np.exp(4.0))
    chains = sample_full(X, y, np.exp(4.0), SCALES, 0.01, 1e-6, n_chains=4, n_draws=200, n_warmup=50, seed=3)
    estimate = chib.log_evidence_full(K, y, chains.omega_draws)
    assert not estimate.trusted
    assert estimate.detail["weight_ess"] < 200.0


def test_chib_and_particles_agree_with_the_bridge_in_the_inducing_values(rng):
    X, _, y = toy(40, 3.0)
    Z = X[:8]
    K_ZZ, K_XZ, k_xx = fitc_blocks(X, Z, 3.0, 0.01, 1e-6)
    chains = sample_fitc(X, y, Z, 3.0, SCALES, 0.01, 1e-6, n_chains=8, n_draws=600, n_warmup=50, seed=6)
    first = chib.log_evidence_fitc(K_ZZ, K_XZ, k_xx, y, chains.omega_draws)
    second = bridge.log_evidence_fitc(rng, K_ZZ, K_XZ, k_xx, y, chains.inducing_draws)
    third = annealed.log_evidence_fitc(rng, K_ZZ, K_XZ, k_xx, y)
    for a, b in ((first, second), (first, third), (second, third)):
        assert a.trusted
        assert b.trusted
        assert abs(a.value - b.value) < LIMIT * np.hypot(a.standard_error, b.standard_error)


def test_a_shifted_evidence_is_seen():
    # the power of `within`: a dropped log 2 is far outside
    K = full_covariance(X3, 5.0, SCALES, 0.1, 1e-4)
    estimate = annealed.log_evidence(np.random.default_rng(1), K, Y3, Particles(n_particles=256))
    assert np.log(2.0) > 2 * LIMIT * estimate.standard_error


def test_chibs_point_does_not_matter(rng):
    K = full_covariance(X3, 2.0, SCALES, 0.1, 1e-4)
    chains = sample_full(X3, Y3, 2.0, SCALES, 0.1, 1e-4, n_chains=8, n_draws=800, n_warmup=50, seed=9)
    here = chib.log_evidence_full(K, Y3, chains.omega_draws)
    there = chib.log_evidence_full(K, Y3, chains.omega_draws, chains.latent_mean + np.array([0.2, -0.1, 0.1]))
    assert abs(here.value - there.value) < LIMIT * np.hypot(here.standard_error, there.standard_error)


def test_the_stated_errors_are_the_spread_of_repetitions(rng):
    K = full_covariance(X3, 5.0, SCALES, 0.1, 1e-4)
    runs = [annealed.log_evidence(rng, K, Y3, Particles(max_rounds=1, target_error=1.0)) for _ in range(20)]
    ratio = np.std([r.value for r in runs], ddof=1) / np.mean([r.standard_error for r in runs])
    # with 20 repetitions χ²₁₉ puts the ratio in (0.45, 1.75) but for one run in 10 000
    assert 0.45 < ratio < 1.75


def test_the_bridge_states_no_less_than_the_spread_of_repetitions(rng):
    # a likelihood close to constant: the posterior is the prior reweighted, so independent draws are at hand
    n, size = 40, 1600
    K = 0.04 * squared_exponential(rng.normal(size=(n, 2)), np.zeros((1, 2)), 1.0, SCALES)
    K = K @ K.T + 0.04 * np.eye(n)
    y, chol = np.ones(n), np.linalg.cholesky(K)
    runs = []
    for _ in range(30):
        f = rng.standard_normal((30_000, n)) @ chol.T
        weight = np.prod(2.0 * expit(y * f), axis=1)
        chosen = f[rng.choice(len(f), size=size, p=weight / weight.sum())]
        runs.append(bridge.log_evidence_full(rng, K, y, chosen.reshape(4, size // 4, n)))
    spread = np.std([r.value for r in runs], ddof=1)
    # χ²₂₉: a spread of 1.5 times the stated error would come by chance once in 10 000 runs; less is allowed, since
    # the errors of the two halves are added as if they were one
    assert 0.4 < spread / np.mean([r.standard_error for r in runs]) < 1.5


def test_too_tight_a_target_is_not_claimed(rng):
    K = full_covariance(X3, 5.0, SCALES, 0.1, 1e-4)
    assert not annealed.log_evidence(rng, K, Y3, Particles(target_error=1e-6, max_rounds=1, n_particles=8)).trusted


OMEGA = np.full((2, 64, 3), 0.2)
INFINITE = np.full((2, 200, 3), np.inf)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: annealed.log_evidence(r, np.full((3, 3), np.nan), Y3), r"K_XX: found NaN"),
        (lambda r: annealed.log_evidence(r, np.eye(2), Y3), r"K_XX: found shape \(2, 2\), expected \(3, 3\)"),
        (lambda r: annealed.log_evidence(r, np.eye(3), [1.0, 2.0, 1.0]), r"y_sign: found"),
        (lambda r: annealed.log_evidence(r, np.eye(3), Y3, Particles(n_islands=1)), r"n_islands: found 1, expected"),
        (lambda r: annealed.log_evidence(r, np.eye(3), Y3, Particles(target_error=0.0)), r"target_error: found 0.0"),
        (lambda r: annealed.log_evidence_fitc(r, np.eye(2), np.eye(3), np.ones(3), Y3), r"K_ZZ: found shape"),
        (lambda r: annealed.log_evidence_fitc(r, np.eye(2), np.ones((3, 2)), np.ones(3), Y3), r"k_xx: found -1 below"),
        (lambda r: chib.log_evidence_full(np.eye(3), Y3, OMEGA[:, :9]), r"omega: found 9 draws per chain"),
        (lambda r: chib.log_evidence_full(np.eye(3), Y3, -OMEGA), r"omega: found -0.2, expected > 0"),
        (lambda r: chib.log_evidence_full(np.eye(3), [1.0, 0.0, 1.0], OMEGA), r"y_sign: found values"),
        (lambda r: chib.log_evidence_fitc(np.eye(2), np.ones((3, 2)), np.ones(3), Y3, OMEGA), r"k_xx: found -1 below"),
        (lambda r: bridge.log_evidence_full(r, np.eye(3), Y3, OMEGA), r"latent_values: found 2 chains of 64 draws"),
        (lambda r: bridge.log_evidence_full(r, np.eye(3), Y3, INFINITE), r"latent_values: found NaN"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(rng, call, message):
    with pytest.raises(ValueError, match=message):
        call(rng)


def test_a_singular_covariance_is_an_error(rng):
    for call in (
        lambda: annealed.log_evidence(rng, np.ones((3, 3)), Y3),
        lambda: chib.log_evidence_full(np.ones((3, 3)), Y3, OMEGA),
    ):
        with pytest.raises(np.linalg.LinAlgError):
            call()


@pytest.mark.parametrize("sd", [0.0, 1e-3, 0.5, 1.0, 3.0, 55.0])
def test_averages_of_the_label_probability_hold_in_both_tails(sd):
    means = np.array([-30.0, -4.0, 0.0, 2.5, 40.0])
    got = [float(bridge._log_averages(np.array([[mean]]), np.array([sd]))[0]) for mean in means]
    for mean, value in zip(means, got, strict=True):
        # pieces of half a unit, each by thirty nodes of Gauss and Legendre: the integrand is smooth on each
        edges = np.arange(-12.0, 40.0, min(0.5, 2.0 / max(sd, 1e-3)))
        nodes, weights = np.polynomial.legendre.leggauss(30)
        z = (edges[:, None] + 0.5 * (nodes + 1.0) * (edges[1] - edges[0])).ravel()
        w = np.tile(0.5 * weights * (edges[1] - edges[0]), edges.size)
        expected = np.log(np.sum(w * expit(mean + sd * z) * np.exp(-0.5 * z * z)) / np.sqrt(2.0 * np.pi))
        assert value == pytest.approx(expected, rel=1e-11, abs=1e-12)
    # data of different deviations, each with the nodes of its group
    sds = np.array([0.0, 0.5, 1.0, 3.0, 55.0])
    mixed = bridge._log_averages(means[None], sds)
    each = [
        bridge._log_averages(means[None, k : k + 1], np.array([s])) for k, s in enumerate((0.0, 0.5, 1.0, 3.0, 55.0))
    ]
    np.testing.assert_allclose(mixed, np.sum(each, axis=0), rtol=1e-12)


def test_the_bridge_in_the_inducing_values_names_what_is_wrong(rng):
    K_ZZ, K_XZ, k_xx = fitc_blocks(X3, Z2, 2.0, 0.2, 1e-3)
    u = rng.standard_normal((2, 130, 2))
    with pytest.raises(ValueError, match=r"^k_xx: found .*, expected no less than"):
        bridge.log_evidence_fitc(rng, K_ZZ, K_XZ, 0.5 * k_xx, Y3, u)
    with pytest.raises(ValueError, match=r"^y_sign: found 2 labels, expected 3"):
        bridge.log_evidence_fitc(rng, K_ZZ, K_XZ, k_xx, Y3[:2], u)
    with pytest.raises(ValueError, match=r"^inducing_values: found 2 chains of 100 draws"):
        bridge.log_evidence_fitc(rng, K_ZZ, K_XZ, k_xx, Y3, u[:, :100])
