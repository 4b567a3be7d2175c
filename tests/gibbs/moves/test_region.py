"""The bounce move against posteriors known by other means, with wrong twins, and at its edges."""

import numpy as np
import pytest

from gibbs.moves.region import bounce_move, inside, log_step, margins, swap_to_label

Y = np.array([0, 2, 1])
R = 20_000


def covariance(C=3, n=3, seed=1):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(C, n, n)) * np.array([1.0, 3.0, 0.4])[:C, None, None]
    return B @ B.transpose(0, 2, 1) + 0.2 * np.eye(n)


def exact_draws(rng, S, y, epsilon, r):
    """Rejection from the prior."""
    chol, kept, actual = np.linalg.cholesky(S), [], 0
    floor = epsilon / len(S)
    while actual < r:
        h = np.einsum("lij,rlj->rli", chol, rng.standard_normal((50_000, *S.shape[:2])))
        chance = np.prod(np.where(h.argmax(axis=1) == y, 1 - epsilon + floor, floor), axis=1)
        kept.append(h[rng.random(len(h)) < chance])
        actual += len(kept[-1])
    return np.concatenate(kept)[:r]


def statistics(h, y):
    flat = h.reshape(len(h), -1)
    pairs = np.einsum("ri,rj->rij", flat, flat)[:, *np.triu_indices(flat.shape[1])]
    return np.concatenate([flat, pairs, inside(h, y).astype(float), np.abs(flat)], axis=1)


def z_between(a, b):
    return (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b) + 1e-300)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 0.6])
def test_the_move_leaves_the_distribution_of_a_cut_gaussian_alone(rng, assert_z, epsilon):
    S = covariance()
    h, fresh = (exact_draws(rng, S, Y, epsilon, R) for _ in range(2))
    for _ in range(3):
        h = bounce_move(rng, h, S, np.linalg.cholesky(S), Y, log_height=log_step(epsilon, 3)).auxiliary
    assert_z(z_between(statistics(h, Y), statistics(fresh, Y)))


def test_a_constraint_of_the_wrong_height_is_seen(rng):
    S = covariance()
    h, fresh = (exact_draws(rng, S, Y, 0.1, R) for _ in range(2))
    for _ in range(3):
        h = bounce_move(rng, h, S, np.linalg.cholesky(S), Y, log_height=0.9 * log_step(0.1, 3)).auxiliary
    assert np.abs(z_between(statistics(h, Y), statistics(fresh, Y))).max() > 6.0


def test_a_reflection_along_the_wrong_covariance_is_seen(rng):
    S = covariance()
    h, fresh = (exact_draws(rng, S, Y, 0.0, R) for _ in range(2))
    for _ in range(3):
        h = bounce_move(rng, h, S * 1.1, np.linalg.cholesky(S), Y).auxiliary  # the factor 1.1 cancels: no change
    assert np.abs(z_between(statistics(h, Y), statistics(fresh, Y))).max() < 6.0
    for _ in range(3):
        h = bounce_move(rng, h, S + 0.3 * np.eye(3), np.linalg.cholesky(S), Y).auxiliary
    assert np.abs(z_between(statistics(h, Y), statistics(fresh, Y))).max() > 6.0


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_chains_with_covariances_of_their_own_keep_each_its_distribution(rng, assert_z, epsilon):
    # two kinds of chains in turn, each against draws from its own distribution
    S = np.stack([covariance(), covariance(seed=2)])
    kind = np.arange(R) % 2
    own, chol = S[kind], np.linalg.cholesky(S)[kind]
    start, fresh = np.empty((R, 3, 3)), [exact_draws(rng, S[k], Y, epsilon, R // 2) for k in range(2)]
    for k in range(2):
        start[kind == k] = exact_draws(rng, S[k], Y, epsilon, R // 2)
    h = start
    for _ in range(3):
        h = bounce_move(rng, h, own, chol, Y, log_height=log_step(epsilon, 3)).auxiliary
    z = [z_between(statistics(h[kind == k], Y), statistics(fresh[k], Y)) for k in range(2)]
    assert_z(z)
    for _ in range(3):  # each with the reflections of the other kind
        start = bounce_move(rng, start, own[::-1], chol, Y, log_height=log_step(epsilon, 3)).auxiliary
    wrong = [z_between(statistics(start[kind == k], Y), statistics(fresh[k], Y)) for k in range(2)]
    assert np.abs(wrong).max() > 6.0


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_equal_covariances_of_each_chain_are_the_shared_ones(epsilon):
    S = covariance()
    h = swap_to_label(np.random.default_rng(0).normal(size=(7, 3, 3)), Y)
    one, many = (
        bounce_move(np.random.default_rng(1), h, a, np.linalg.cholesky(a), Y, log_height=log_step(epsilon, 3))
        for a in (S, np.broadcast_to(S, (7, 3, 3, 3)))
    )
    for a, b in zip(one, many, strict=True):
        np.testing.assert_array_equal(a, b)


def test_chains_with_their_own_covariances_go_as_if_each_were_alone():
    S = np.stack([covariance(seed=k) for k in range(1, 6)])
    h = swap_to_label(np.random.default_rng(0).normal(size=(5, 3, 3)), Y)
    got = bounce_move(np.random.default_rng(1), h, S, np.linalg.cholesky(S), Y)
    rng = np.random.default_rng(1)
    for k in range(5):
        alone = bounce_move(rng, h[k : k + 1], S[k], np.linalg.cholesky(S[k]), Y)
        # the same sums, in another order at most; a handful of reflections
        np.testing.assert_allclose(got.auxiliary[k], alone.auxiliary[0], rtol=1e-9, atol=1e-9)
        assert got.events[k] == alone.events[0]


def test_covariances_of_another_shape_are_refused(rng):
    S = covariance()
    h = swap_to_label(rng.normal(size=(4, 3, 3)), Y)
    for cov, chol in ((S[0], S[0]), (np.broadcast_to(S, (5, 3, 3, 3)),) * 2, (S, np.broadcast_to(S, (4, 3, 3, 3)))):
        with pytest.raises(ValueError, match=r"cov: found shapes .* expected \(3, 3, 3\) or \(4, 3, 3, 3\) of both"):
            bounce_move(rng, h, cov, chol, Y)


def test_a_class_of_prior_variance_zero_is_a_fixed_threshold(rng, assert_z):
    S = np.stack([np.zeros((2, 2)), [[2.0, 1.2], [1.2, 1.0]]])
    chol = np.stack([np.zeros((2, 2)), np.linalg.cholesky(S[1])])
    y = np.array([1, 0])
    h = np.zeros((R, 2, 2))
    h[:, 1] = [0.5, -0.5]
    for _ in range(4):
        h = bounce_move(rng, h, S, chol, y).auxiliary
    assert np.all(h[:, 0] == 0.0)
    fresh = rng.standard_normal((20 * R, 2)) @ chol[1].T
    fresh = fresh[(fresh[:, 0] > 0) & (fresh[:, 1] < 0)]
    a, b = (np.concatenate([f, f**2, f[:, :1] * f[:, 1:]], axis=1) for f in (h[:, 1], fresh))
    assert_z(z_between(a, b))


def test_without_labels_that_bind_a_quarter_turn_is_an_independent_draw(rng, assert_z):
    # a constraint of no height is no constraint
    S = covariance()
    h = np.full((R, 3, 3), 100.0)
    out = bounce_move(rng, h, S, np.linalg.cholesky(S), Y, log_height=0.0).auxiliary
    flat = out.reshape(R, -1)
    assert_z(flat.mean(axis=0) / (flat.std(axis=0) / np.sqrt(R)))
    var = np.einsum("lii->li", S).ravel()
    assert_z((np.square(flat).mean(axis=0) / var - 1.0) / np.sqrt(2.0 / R))


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_paths_stay_inside_at_any_scale_and_in_narrow_regions(rng, scale):
    n, C = 40, 4
    x = np.linspace(0, 1, n)
    S = scale * np.broadcast_to(np.exp(-8 * np.subtract.outer(x, x) ** 2) + 1e-8 * np.eye(n), (C, n, n))
    chol = np.linalg.cholesky(S)
    y = np.repeat(np.arange(C), n // C)
    h = swap_to_label(np.einsum("lij,rlj->rli", chol, rng.standard_normal((5, C, n))), y)
    for _ in range(3):
        got = bounce_move(rng, h, S, chol, y)
        assert np.all(np.isfinite(got.auxiliary))
        assert np.all(inside(got.auxiliary, y))
        h = got.auxiliary


def test_a_path_with_too_many_constraints_is_taken_back_and_says_so(rng, assert_z):
    S = covariance()
    chol = np.linalg.cholesky(S)
    h, fresh = (exact_draws(rng, S, Y, 0.0, R) for _ in range(2))
    got = bounce_move(rng, h, S, chol, Y, max_events=2)
    np.testing.assert_array_equal(got.auxiliary[~got.moved], h[~got.moved])
    assert 0.05 < got.moved.mean() < 0.95
    assert np.all(got.auxiliary[got.moved] != h[got.moved])
    assert np.all(got.events[got.moved] <= 2)
    assert_z(z_between(statistics(got.auxiliary, Y), statistics(fresh, Y)))  # taken back on both ways: still exact


def test_swapping_brings_the_label_on_top_and_keeps_the_values(rng):
    h = rng.normal(size=(6, 4, 5))
    y = np.array([0, 3, 1, 1, 2])
    got = swap_to_label(h, y)
    assert np.all(inside(got, y))
    np.testing.assert_array_equal(np.sort(got, axis=1), np.sort(h, axis=1))
    np.testing.assert_array_equal(margins(got, y)[:, y, np.arange(5)], 0.0)


def test_the_height_of_a_constraint_is_the_ratio_of_the_likelihoods():
    for epsilon in (1e-12, 0.1, 0.5, 0.999):
        expected = np.log(1 - epsilon + epsilon / 4) - np.log(epsilon / 4)
        np.testing.assert_allclose(log_step(epsilon, 4), expected, rtol=1e-12)  # three roundings, one cancellation
    assert log_step(0.0, 4) == np.inf


def test_the_state_given_is_not_written_to_and_the_generator_gives_a_fixed_number():
    S = covariance()
    h = swap_to_label(np.random.default_rng(0).normal(size=(4, 3, 3)), Y)
    before, used, same = h.copy(), np.random.default_rng(1), np.random.default_rng(1)
    bounce_move(used, h, S, np.linalg.cholesky(S), Y)
    same.standard_normal(h.shape)
    np.testing.assert_array_equal(h, before)
    assert used.bit_generator.state == same.bit_generator.state


def path_by_mechanics(h, w, cov, y, height):
    """Where a quarter turn of one chain ends, h and w (L, n), and how many planes it meets: plane by plane.

    The potential rises by `height` for every datum whose label is not the largest. At a plane between two classes of a
    datum the velocity changes along cov times its normal, by so much that the energy is conserved; where it cannot be,
    the velocity is reflected.
    """
    L, n = h.shape
    planes = [(c, i) for i in range(n) for c in range(L) if c != y[i]]
    above = {(c, i): bool(h[y[i], i] >= h[c, i]) for c, i in planes}
    left, met = 0.5 * np.pi, 0
    while True:
        times = {}
        for c, i in planes:  # M cos t + Q sin t is zero within half a turn
            side = 1.0 if above[c, i] else -1.0
            M, Q = max(side * (h[y[i], i] - h[c, i]), 0.0), side * (w[y[i], i] - w[c, i])
            phase = np.arctan2(-M, Q)
            times[c, i] = phase + np.pi if phase <= 0.0 else phase
        plane = min(times, key=times.get)
        time = min(times[plane], left)
        h, w = np.cos(time) * h + np.sin(time) * w, np.cos(time) * w - np.sin(time) * h
        left -= time
        if left <= 0.0:
            return h, met
        met += 1
        c, i = plane
        alone = all(above[j, i] for j, k in planes if k == i and j != c)  # nothing else is wrong with this datum
        rise = 0.0 if not alone else height if above[plane] else -height
        speed, variance = w[y[i], i] - w[c, i], cov[y[i], i, i] + cov[c, i, i]
        energy = speed**2 - 2.0 * variance * rise
        if energy > 0.0:
            above[plane] = not above[plane]
        new = np.copysign(np.sqrt(energy), speed) if energy > 0.0 else -speed
        w = w.copy()
        w[y[i]] += (new - speed) / variance * cov[y[i]][:, i]
        w[c] -= (new - speed) / variance * cov[c][:, i]


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3, 0.7])
def test_a_path_is_that_of_mechanics_plane_by_plane(epsilon):
    S, r = covariance(), 30
    root, height = np.linalg.cholesky(S), log_step(epsilon, 3)
    start = np.einsum("lij,rlj->rli", root, np.random.default_rng(39).standard_normal((r, 3, 3)))
    if epsilon == 0.0:
        start = swap_to_label(start, Y)
    got = bounce_move(np.random.default_rng(40), start, S, root, Y, log_height=height)
    velocity = np.einsum("lij,rlj->rli", root, np.random.default_rng(40).standard_normal((r, 3, 3)))
    ends = [path_by_mechanics(start[k], velocity[k], S, Y, height) for k in range(r)]
    np.testing.assert_array_equal(got.events, [met for _, met in ends])
    assert got.events.max() > 3
    # each event multiplies what rounding has left
    np.testing.assert_allclose(got.auxiliary, [end for end, _ in ends], rtol=0.0, atol=1e-8)
