"""The Gibbs conditionals: exact moments by feeding unit vectors as normals, and Geweke's joint-distribution test."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from gibbs.core.kernels import squared_exponential
from gibbs.draws.polya_gamma import sample_polya_gamma
from gibbs.models.logit import (
    draw_inducing,
    draw_latent,
    draw_omega,
    draw_residual,
    ellipse_move,
    inducing_moments,
    latent_moments,
    log_likelihood,
    scale_move,
)
from gibbs_samplers import fitc_white

VARIANCE, SCALES, NOISE, JITTER = 4.0, np.array([0.8, 1.3]), 0.1, 1e-3


class FixedNormals:
    """A generator whose normals are given: an affine draw shows its mean and its square root."""

    def __init__(self, normals):
        self.normals = normals

    def standard_normal(self, shape):
        if self.normals.shape == tuple(shape):
            return self.normals
        now, self.normals = self.normals[0], self.normals[1:]  # a stack of what several calls want
        assert now.shape == tuple(shape)
        return now


def problem(n=4, t=2, m=2):
    rng = np.random.default_rng(3)
    X, X_test, Z = rng.normal(size=(n, 2)), rng.normal(size=(t, 2)), rng.normal(size=(m, 2))
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    K = squared_exponential(X, X, VARIANCE, SCALES) + (NOISE + JITTER) * np.eye(n)
    return X, X_test, Z, y, K, rng.uniform(0.02, 0.6, n)


def affine_draw(draw, shape):
    """Mean and covariance of a draw from normals of `shape` per chain, by one chain per unit vector."""
    size = int(np.prod(shape))
    normals = np.concatenate([np.zeros((1, size)), np.eye(size)])
    out = draw(normals.reshape(size + 1, *shape))
    jacobian = (out[1:] - out[0]).T
    return out[0], jacobian @ jacobian.T


@pytest.mark.verifies("wenzel2019", "u5.1-gibbs-f", route="dense inverse; the draw's affine map by unit vectors")
@pytest.mark.parametrize("variance_factor", [1.0, 60.0])
def test_the_latent_draw_has_the_dense_mean_and_covariance(variance_factor):
    _, _, _, y, K, omega = problem()
    K = variance_factor * K
    chol, n = np.linalg.cholesky(K), len(y)

    def draw(normals):
        rng = FixedNormals(np.moveaxis(normals, 1, 0))
        return draw_latent(rng, K, chol, y, np.tile(omega, (2 * n + 1, 1)))

    mean, cov = affine_draw(draw, (2, n))
    V = np.linalg.inv(np.linalg.inv(K) + np.diag(omega))
    # condition of K below 1e4: the explicit inverses keep eleven digits
    np.testing.assert_allclose(mean, V @ y / 2, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(cov, V, rtol=1e-9, atol=1e-11)


def test_the_latent_draw_of_one_chain_is_that_of_a_batch():
    _, _, _, y, K, omega = problem()
    chol = np.linalg.cholesky(K)
    one = draw_latent(np.random.default_rng(1), K, chol, y, omega)
    batch = draw_latent(np.random.default_rng(1), K, chol, y, omega[None])
    assert one.shape == (4,)
    np.testing.assert_array_equal(one, batch[0])


@pytest.mark.verifies("wenzel2019", "u5.1-gibbs", route="closed-form PG moments at each latent value, Monte Carlo")
def test_omega_given_f_has_the_polya_gamma_mean_of_its_own_latent(rng, assert_z):
    f = np.array([0.3, -1.5, 4.0, -30.0])
    draws = draw_omega(rng, np.tile(f, (200_000, 1)))
    mean = np.tanh(f / 2) / (2 * f)
    assert_z((draws.mean(axis=0) - mean) / (draws.std(axis=0) / np.sqrt(len(draws))))
    var = (np.sinh(f) - f) / (4 * f**3 * np.cosh(f / 2) ** 2)
    square = (draws - mean) ** 2
    assert_z((square.mean(axis=0) - var) / (square.std(axis=0) / np.sqrt(len(draws))))


def test_moments_given_omega_are_those_of_the_dense_joint_gaussian():
    X, X_test, _, y, K, omega = problem()
    cross = squared_exponential(X_test, X, VARIANCE, SCALES)
    latent, test = latent_moments(K, cross, np.full(2, VARIANCE + NOISE), y, np.stack([omega, 2 * omega]))
    for row, w in enumerate((omega, 2 * omega)):
        gain = np.linalg.inv(K + np.diag(1 / w))
        for got, block, prior in ((latent, K, np.diag(K)), (test, cross, VARIANCE + NOISE)):
            # small well-conditioned matrices
            np.testing.assert_allclose(got.mean[row], block @ gain @ (y / (2 * w)), rtol=1e-11)
            np.testing.assert_allclose(got.var[row], prior - np.diag(block @ gain @ block.T), rtol=1e-10)


def dense_fitc(X, X_test, Z, omega, y):
    """Posterior of (u, f, f*) given ω by conditioning the dense FITC joint covariance."""
    K_ZZ = squared_exponential(Z, Z, VARIANCE, SCALES) + JITTER * np.eye(len(Z))
    both = np.concatenate([X, X_test])
    upsilon = squared_exponential(both, Z, VARIANCE, SCALES) @ np.linalg.inv(K_ZZ)
    explained = upsilon @ K_ZZ @ upsilon.T
    K_f = explained + np.diag(VARIANCE + NOISE - np.diag(explained))
    joint = np.block([[K_ZZ, K_ZZ @ upsilon.T], [upsilon @ K_ZZ, K_f]])
    observed = slice(len(Z), len(Z) + len(X))
    gain = joint[:, observed] @ np.linalg.inv(joint[observed, observed] + np.diag(1 / omega))
    return gain @ (y / (2 * omega)), joint - gain @ joint[observed, :]


def test_fitc_moments_given_omega_are_those_of_the_dense_joint_gaussian():
    X, X_test, Z, y, _, omega = problem()
    data, test = (fitc_white(A, Z, VARIANCE, SCALES, NOISE, JITTER) for A in (X, X_test))
    mean, cov = dense_fitc(X, X_test, Z, omega, y)
    got = inducing_moments(data.white_rows, data.cond_var, test.white_rows, test.cond_var, y, omega[None])
    # condition of K_ZZ below 1e4
    np.testing.assert_allclose(data.factor @ got.white_mean[0], mean[:2], rtol=1e-10)
    np.testing.assert_allclose(data.factor @ got.white_cov[0] @ data.factor.T, cov[:2, :2], rtol=1e-10)
    np.testing.assert_allclose(got.latent.mean[0], mean[2:6], rtol=1e-10)
    np.testing.assert_allclose(got.latent.var[0], np.diag(cov)[2:6], rtol=1e-10)
    np.testing.assert_allclose(got.test.mean[0], mean[6:], rtol=1e-10)
    np.testing.assert_allclose(got.test.var[0], np.diag(cov)[6:], rtol=1e-10)


def test_the_fitc_draws_have_the_dense_joint_mean_and_covariance():
    X, X_test, Z, y, _, omega = problem()
    data = fitc_white(X, Z, VARIANCE, SCALES, NOISE, JITTER)
    m, n = len(Z), len(X)

    def draw(normals):
        w = np.tile(omega, (len(normals), 1))
        v = draw_inducing(FixedNormals(normals[:, :m]), data.white_rows, data.cond_var, y, w)
        proj = v @ data.white_rows.T
        e = draw_residual(FixedNormals(normals[:, m:]), proj, data.cond_var, y, w)
        return np.concatenate([v @ data.factor.T, proj + np.sqrt(data.cond_var) * e], axis=1)

    mean, cov = affine_draw(draw, (m + n,))
    dense_mean, dense_cov = dense_fitc(X, X_test, Z, omega, y)
    np.testing.assert_allclose(mean, dense_mean[: m + n], rtol=1e-9)
    # off-diagonal entries may cancel to near zero: absolute, on a scale of order one
    np.testing.assert_allclose(cov, dense_cov[: m + n, : m + n], rtol=1e-9, atol=1e-10)


# Geweke (2004): y and ω are drawn jointly given f, then f given both. Many chains start from the prior, so every
# sweep of every chain has the prior as its distribution if the conditionals are right; chains are independent of each
# other.
N_CHAINS, N_SWEEPS = 3000, 12


def successive_conditional(rng, latent, update, move_labels=True):
    """Per chain, averages over the sweeps of the test functions; and how often each class count was seen."""
    n = latent.shape[1]
    sums, counts, changed = 0.0, np.zeros(n + 1), np.zeros(N_CHAINS, dtype=bool)
    y = np.where(rng.random(latent.shape) < expit(latent), 1.0, -1.0)
    for _ in range(N_SWEEPS):
        if move_labels:
            new = np.where(rng.random(latent.shape) < expit(latent), 1.0, -1.0)
            changed |= np.any(new != y, axis=1)
            y = new
        omega = draw_omega(rng, latent)
        latent = update(rng, y, omega)
        counts += np.bincount((y > 0).sum(axis=1), minlength=n + 1)
        pairs = np.einsum("ri,rj->rij", latent, latent)[:, *np.triu_indices(n)]
        sums = sums + np.concatenate([latent, pairs, y, y * latent, omega, omega * latent], axis=1) / N_SWEEPS
    return sums, counts, changed


def expected_under_prior(K):
    n = len(K)

    def mean_of(function, var):
        sd = np.sqrt(var)
        return quad(lambda x: function(sd * x) * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi), -12, 12, limit=200)[0]

    def omega_mean(f):
        return 0.25 if abs(f) < 1e-8 else np.tanh(f / 2) / (2 * f)

    zero = np.zeros(n)
    signed = [mean_of(lambda f: f * np.tanh(f / 2), v) for v in np.diag(K)]
    weights = [mean_of(omega_mean, v) for v in np.diag(K)]
    return np.concatenate([zero, K[np.triu_indices(n)], zero, signed, weights, zero])


def z_of(sums, K):
    # y f uses the latent drawn after y, ω f the latent drawn after ω: both pairs have the joint distribution of the
    # model
    return (sums.mean(axis=0) - expected_under_prior(K)) / (sums.std(axis=0, ddof=1) / np.sqrt(len(sums)))


def full_update(K, omega_factor=1.0):
    chol = np.linalg.cholesky(K)
    return lambda rng, y, omega: draw_latent(rng, K, chol, y, omega_factor * omega)


@pytest.mark.verifies(
    "wenzel2019", "u5.1-gibbs", "u5.1-gibbs-f", route="Geweke's joint-distribution test", resolves=0.05
)
def test_the_full_sampler_leaves_the_joint_distribution_of_f_omega_and_y_alone(rng, assert_z):
    _, _, _, _, K, _ = problem()
    start = rng.standard_normal((N_CHAINS, 4)) @ np.linalg.cholesky(K).T
    sums, observed, changed = successive_conditional(rng, start, full_update(K))
    assert np.all(observed > 0)  # every class count moves
    assert changed.mean() > 0.99
    assert_z(z_of(sums, K))


def test_the_joint_distribution_test_sees_a_wrong_conditional_variance(rng):
    _, _, _, _, K, _ = problem()
    start = rng.standard_normal((N_CHAINS, 4)) @ np.linalg.cholesky(K).T
    sums, _, _ = successive_conditional(rng, start, full_update(K, omega_factor=1.1))
    assert np.abs(z_of(sums, K)).max() > 6.0  # far outside what the test above lets pass


def test_the_joint_distribution_test_sees_labels_that_never_move(rng):
    _, _, _, _, K, _ = problem()
    start = np.abs(rng.standard_normal((N_CHAINS, 4))) @ np.linalg.cholesky(K).T
    sums, _, changed = successive_conditional(rng, start, full_update(K), move_labels=False)
    assert not changed.any()
    assert np.abs(z_of(sums, K)).max() > 6.0


def fitc_model():
    X, _, Z, *_ = problem()
    data = fitc_white(X, Z, VARIANCE, SCALES, NOISE, JITTER)
    K = data.white_rows @ data.white_rows.T + np.diag(data.cond_var)
    return data, K


def fitc_update(data, cond_var_factor=1.0):
    used = cond_var_factor * data.cond_var

    def update(rng, y, omega):
        v = draw_inducing(rng, data.white_rows, used, y, omega)
        projected = v @ data.white_rows.T
        return projected + np.sqrt(data.cond_var) * draw_residual(rng, projected, data.cond_var, y, omega)

    return update


def test_the_fitc_sampler_leaves_the_joint_distribution_alone(rng, assert_z):
    data, K = fitc_model()
    start = rng.standard_normal((N_CHAINS, 4)) @ np.linalg.cholesky(K).T
    sums, observed, changed = successive_conditional(rng, start, fitc_update(data))
    assert np.all(observed > 0)
    assert changed.mean() > 0.99
    assert_z(z_of(sums, K))


def test_the_joint_distribution_test_sees_a_dropped_conditional_variance(rng):
    data, K = fitc_model()
    start = rng.standard_normal((N_CHAINS, 4)) @ np.linalg.cholesky(K).T
    sums, _, _ = successive_conditional(rng, start, fitc_update(data, cond_var_factor=0.0))
    assert np.abs(z_of(sums, K)).max() > 6.0


@pytest.mark.parametrize("move", ["scale", "ellipse"])
def test_a_further_move_alone_leaves_the_posterior_alone(rng, assert_z, quadrature_posterior, move):
    # chains start from exact posterior draws of a grid and take a few moves: their distribution must not change
    K, y = np.array([[6.0, 2.0], [2.0, 9.0]]), np.array([1.0, 1.0])
    truth = quadrature_posterior(K, y, 0.05)
    chol, r = np.linalg.cholesky(K), 40_000
    f = truth.f[rng.choice(len(truth.f), size=r, p=truth.weight)]
    f = f + 0.05 * (rng.random((r, 2)) - 0.5) @ chol.T  # spread over the cell of the grid
    for _ in range(4):
        if move == "scale":
            white = np.linalg.solve(chol, f.T).T
            f = scale_move(rng, white, y * f)[:, None] * f
        else:
            prior = rng.standard_normal(f.shape) @ chol.T
            cos, sin = ellipse_move(rng, f, prior, y)
            f = cos[:, None] * f + sin[:, None] * prior
    stats = np.concatenate([f, f**2, f[:, :1] * f[:, 1:], log_likelihood(f, y)[:, None]], axis=1)
    on_grid = np.concatenate(
        [truth.f, truth.f**2, truth.f[:, :1] * truth.f[:, 1:], log_likelihood(truth.f, y)[:, None]], axis=1
    )
    assert_z((stats.mean(axis=0) - truth.weight @ on_grid) / (stats.std(axis=0) / np.sqrt(r)))


def test_log_likelihood_is_the_sum_of_log_sigmoids_without_overflow():
    f, y = np.array([[0.5, -2.0], [800.0, 800.0]]), np.array([1.0, -1.0])
    expected = [np.log(expit(0.5)) + np.log(expit(2.0)), -800.0]
    np.testing.assert_allclose(log_likelihood(f, y), expected, rtol=1e-14)  # two correctly rounded terms


def test_omega_is_drawn_by_the_exact_sampler():
    f = np.linspace(-3, 3, 12).reshape(3, 4)
    np.testing.assert_array_equal(
        draw_omega(np.random.default_rng(2), f), sample_polya_gamma(np.random.default_rng(2), f)
    )
