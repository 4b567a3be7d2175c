"""The softmax moves leave known distributions alone: exact draws by rejection, exact Gaussians, dense algebra."""

import numpy as np
import pytest
from scipy.special import softmax

from gibbs.core.kernels import squared_exponential
from gibbs.moves.softmax import (
    contrasts,
    draw_shift,
    ellipse_move,
    energy,
    flow_move,
    laplace,
    log_likelihood,
    make_reference,
    make_target,
    scaled_move,
    shift_distribution,
    shift_mean,
    to_white,
)

X2 = np.array([[0.0, 0.2], [0.7, -0.5]])
VARIANCES = np.array([4.0, 1.0, 9.0])
Y2 = np.array([0, 2])
R = 20_000


def prior(variances, X=X2, noise=0.1):
    return np.stack([squared_exponential(X, X, v, np.array([1.0, 1.5])) + noise * np.eye(len(X)) for v in variances])


def exact_draws(rng, target, count):
    """ξ | y by rejection from the prior: the likelihood is at most one."""
    kept = []
    while sum(len(k) for k in kept) < count:
        white = rng.standard_normal((100_000, len(target.factor)))
        kept.append(white[np.log(rng.random(len(white))) < target.log_likelihood(white)])
    return np.concatenate(kept)[:count]


def moments_of(white):
    upper = np.triu_indices(white.shape[1])
    return np.concatenate([white, np.einsum("ri,rj->rij", white, white)[:, *upper]], axis=1)


def z_between(a, b):
    return (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))


@pytest.mark.verifies("riihimaki2013", "1", route="scipy.special.softmax, labels looked up one by one")
def test_the_likelihood_is_the_product_of_softmax_entries_also_far_out(rng):
    f, y = 3.0 * rng.normal(size=(5, 4, 6)), rng.integers(0, 4, 6)
    f[4] *= 300.0
    expected = [sum(float(np.log(max(softmax(f[r, :, i])[y[i]], 1e-300))) for i in range(6)) for r in range(4)]
    # sums of six logs of size below 50
    np.testing.assert_allclose(log_likelihood(f[:4], y), expected, rtol=1e-12)
    assert np.isfinite(log_likelihood(f, y)[4])


def test_contrasts_are_orthonormal_and_blind_to_a_common_shift():
    for C in (2, 3, 20):
        T = contrasts(C)
        np.testing.assert_allclose(T @ T.T, np.eye(C - 1), rtol=0, atol=1e-14)  # rounding of C products
        np.testing.assert_allclose(T.sum(axis=1), 0.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("variances", [VARIANCES, np.full(3, 4.0)])
def test_the_shift_has_the_dense_distribution_given_the_contrasts(rng, variances):
    cov = prior(variances)
    distribution = shift_distribution(cov)
    precision = np.linalg.inv(cov)
    dense = np.linalg.inv(precision.sum(axis=0))
    f = rng.normal(size=(1, 3, 2))
    # condition of K below 1e3: twelve digits are left
    np.testing.assert_allclose(distribution.cov, dense, rtol=1e-11)
    np.testing.assert_allclose(distribution.root @ distribution.root.T, dense, rtol=1e-11)
    expected = -dense @ np.einsum("cnm,cm->n", precision, f[0])
    np.testing.assert_allclose(shift_mean(f, distribution)[0], expected, rtol=1e-10)
    # what is drawn does not depend on the shift that was there
    seeds = [np.random.default_rng(5) for _ in range(2)]
    moved = draw_shift(seeds[0], f, distribution) - draw_shift(seeds[1], f + rng.normal(size=(1, 1, 2)), distribution)
    np.testing.assert_allclose(moved, 0.0, rtol=0, atol=1e-12)  # values below 10


def test_the_white_coordinates_have_the_prior_of_the_contrasts(rng, assert_z):
    cov = prior(VARIANCES)
    target = make_target(cov, Y2)
    f = np.einsum("cnm,rcm->rcn", np.linalg.cholesky(cov), rng.standard_normal((R, 3, 2)))
    white = to_white(f, target)
    np.testing.assert_allclose(target.latent(white), f - f.mean(axis=1, keepdims=True), rtol=0, atol=1e-12)
    assert_z(z_between(moments_of(white), moments_of(rng.standard_normal((R, 4)))))


def crude(target):
    """A reference that is nowhere near the posterior."""
    p = len(target.factor)
    return make_reference(np.linspace(-1.0, 1.0, p), np.tril(np.full((p, p), 0.3)) + 0.9 * np.eye(p), target)


def test_the_energy_is_minus_the_log_density_and_its_derivative_is_right(rng):
    target = make_target(prior(VARIANCES), Y2)
    reference, z = crude(target), rng.normal(size=(3, 4))
    white = reference.mean + z @ reference.root.T
    value, derivative = energy(z, target, reference)
    expected = 0.5 * np.square(white).sum(axis=1) - target.log_likelihood(white)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    h = np.finfo(float).eps ** (1 / 3)
    for k in range(4):
        e = h * np.eye(4)[k]
        numeric = (energy(z + e, target, reference)[0] - energy(z - e, target, reference)[0]) / (2 * h)
        # central differences: h² = 4e-11 of the third derivative and rounding eps/h = 4e-11 of values below 50
        np.testing.assert_allclose(derivative[:, k], numeric, rtol=1e-7, atol=1e-7)


def test_the_mode_has_no_derivative_and_the_factor_inverts_the_hessian():
    target = make_target(prior(VARIANCES), Y2)
    mean, root = laplace(target)
    reference = make_reference(mean, root, target)
    derivative = energy(np.zeros((1, 4)), target, reference)[1]
    # Newton stops when the density rises by less than 1e-9: a gradient of sqrt(2e-9) at most, in practice far less
    np.testing.assert_allclose(derivative, 0.0, rtol=0, atol=5e-5)
    h = 1e-4
    hessian = [
        (
            energy(h * np.eye(4)[k : k + 1], target, reference)[1]
            - energy(-h * np.eye(4)[k : k + 1], target, reference)[1]
        )
        / (2 * h)
        for k in range(4)
    ]
    np.testing.assert_allclose(np.concatenate(hessian), np.eye(4), rtol=0, atol=1e-4)  # white at the mode


def scaled(rng, white, target):
    return scaled_move(rng, white, target, 0.6, 3)[0]


def ellipse(rng, white, target):
    return ellipse_move(rng, white, target, 2)[0]


def flow(rng, white, target):
    return flow_move(rng, white, target, crude(target), 0.4, 3)[0]


@pytest.mark.verifies(
    "riihimaki2013", "u4.2.1-smh", route="exact posterior draws by rejection, Monte Carlo", resolves=0.05
)
def test_scaled_steps_leave_exact_posterior_draws_exact(rng, assert_z):
    check_invariance(rng, assert_z, scaled)


@pytest.mark.parametrize("move", [ellipse, flow])
def test_the_other_moves_leave_exact_posterior_draws_exact(rng, assert_z, move):
    check_invariance(rng, assert_z, move)


def check_invariance(rng, assert_z, move):
    target = make_target(prior(VARIANCES), Y2)
    exact = exact_draws(rng, target, 2 * R)
    before, fresh = exact[:R], exact[R:]
    after = move(rng, before, target)
    assert np.mean(np.any(after != before, axis=1)) > 0.2
    assert_z(z_between(moments_of(after), moments_of(fresh)))


def test_a_scaled_step_without_its_shrinking_is_seen(rng):
    target = make_target(prior(VARIANCES), Y2)
    exact = exact_draws(rng, target, 2 * R)
    white = exact[:R]
    for _ in range(3):  # f' = f + ε η with the likelihood ratio alone
        proposal = white + 0.6 * rng.standard_normal(white.shape)
        take = np.log(rng.random(R)) < target.log_likelihood(proposal) - target.log_likelihood(white)
        white = np.where(take[:, None], proposal, white)
    assert np.abs(z_between(moments_of(white), moments_of(exact[R:]))).max() > 10.0


def test_a_flow_around_the_prior_without_data_turns_without_loss(rng):
    # a reference equal to the target: no kicks, every path is accepted whatever its length
    target = make_target(prior(VARIANCES), Y2)
    blind = target._replace(basis=np.zeros_like(target.basis))  # the likelihood becomes a constant
    reference = make_reference(np.zeros(4), np.eye(4), blind)
    _, probability = flow_move(rng, rng.standard_normal((50, 4)), blind, reference, 0.7, 5)
    np.testing.assert_allclose(probability, 1.0, rtol=0, atol=1e-12)  # rounding of energies below 50
