"""Running sums in batches: the same averages as from stored draws, calibrated errors, a memory that stays flat."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from gibbs.chains.moments import BatchSums, batch_average, batch_covariance, batches_per_chain, widening
from gibbs.chains.store import ThinnedStore


def fill(draws, block=None):
    """Sums of draws (r, s, ...) and their outer products, one draw at a time or in blocks."""
    sums = BatchSums(draws.shape[0])
    k = 0
    while k < draws.shape[1]:
        part = draws[:, k : k + min(block or 1, sums.room)]
        sums.add({"x": part.sum(axis=1), "xx": np.einsum("rsa,rsb->rab", part, part)}, part.shape[1])
        k += part.shape[1]
    return sums


def test_batches_give_the_moments_of_all_draws_whatever_is_left_over(rng):
    draws = rng.standard_normal((3, 1237, 2)) + np.array([1.0, -2.0])
    for n_batches in (1, 5, 64):
        got = fill(draws, 16).batches().joined(n_batches)
        assert got.widths.sum() == 1237
        mean = batch_average(got.means("x"), got.widths)
        cov = batch_covariance(got.means("x"), got.means("xx"), np.eye(2), got.widths)
        flat = draws.reshape(-1, 2)
        np.testing.assert_allclose(mean.mean, flat.mean(axis=0), rtol=1e-12)  # sums of 4000
        np.testing.assert_allclose(cov.mean, np.cov(flat.T, bias=True) + np.eye(2), rtol=1e-11)


def test_the_memory_of_batches_does_not_grow_with_the_draws(rng):
    sums = fill(rng.standard_normal((32, 100, 2)))
    size = sum(a.nbytes for a in sums.full.values())
    for _ in range(20_000):
        sums.add({"x": np.ones((32, 2)), "xx": np.ones((32, 2, 2))}, 1)
    assert sum(a.nbytes for a in sums.full.values()) == size
    assert sums.capacity // 2 <= sums.count < sums.capacity
    assert sums.batches().widths.sum() == 20_100


def test_errors_of_means_and_covariances_are_calibrated_for_correlated_chains(rng):
    """z of a thousand autoregressions with known moments: as wide as a normal once the widening is taken off."""
    rho, z_mean, z_cov = 0.5, [], []
    for _ in range(1000):
        draws = rng.standard_normal((16, 600, 1))
        for s in range(1, 600):
            draws[:, s] = rho * draws[:, s - 1] + np.sqrt(1 - rho**2) * draws[:, s]
        stored = fill(draws, 32).batches()
        got = stored.joined(batches_per_chain(16, 600, 3.0))
        assert got.widths.size * 16 >= 128
        mean = batch_average(got.means("x"), got.widths)
        cov = batch_covariance(got.means("x"), got.means("xx"), np.zeros((1, 1)), got.widths)
        z_mean.append(mean.mean[0] / mean.se[0])
        z_cov.append((cov.mean[0, 0] - 1.0) / cov.se[0, 0])
    for z in (np.array(z_mean), np.array(z_cov)):
        spread = z.std() * widening(16 * got.widths.size)
        # the spread of 1000 normals has an error of 2.2 %: four of them, and 5 % for what batches of 20 times miss
        assert abs(spread - 1.0) < 0.14
        assert np.abs(z).max() < 5.0


@pytest.mark.parametrize("n_batches", [8, 32, 128, 512])
def test_a_widened_error_makes_t_tails_normal_at_the_level_of_the_tests(n_batches):
    limit = norm.isf(5e-6)
    assert t.sf(limit * widening(n_batches), n_batches - 1) == pytest.approx(5e-6, rel=1e-6)  # inverse functions
    assert widening(n_batches) > 1.0


def test_batches_are_long_or_few():
    assert batches_per_chain(32, 10_000, 5.0) == 100
    assert batches_per_chain(2, 100, 1000.0) == 4
    assert batches_per_chain(16, 100, np.nan) == 1


def test_kept_draws_are_thinned_evenly_under_a_budget():
    store = ThinnedStore({"x": np.zeros((2, 1))}, 1000, 16 * 50)
    for number in range(1, 1001):
        store.offer(number, {"x": np.full((2, 1), float(number))})
    kept = store.kept()["x"]
    assert store.every == 32
    np.testing.assert_array_equal(kept[0, :, 0], np.arange(32, 1001, 32))
    assert kept.nbytes <= 16 * 50
    with pytest.raises(ValueError, match=r"max_kept_bytes: found 100, expected >= 128 for 8 draws"):
        ThinnedStore({"x": np.zeros((2, 1))}, 1000, 100)


@given(st.integers(1, 400), st.integers(8, 300), st.integers(0, 400))
def test_whatever_the_budget_the_kept_draws_are_evenly_spread_and_more_than_half_of_it(n_draws, most, resumed):
    store = ThinnedStore({"x": np.zeros((2, 1))}, n_draws, 16 * most)
    for number in range(1, n_draws + 1):
        store.offer(number, {"x": np.full((2, 1), float(number))})
        if number == resumed:
            arrays = {name: value.copy() for name, value in store.arrays().items()}
            store = ThinnedStore({"x": np.zeros((2, 1))}, n_draws, 16 * most)
            store.load(arrays)
    kept = store.kept()["x"]
    np.testing.assert_array_equal(kept[:, :, 0], [np.arange(store.every, n_draws + 1, store.every)] * 2)
    assert kept.shape[1] <= most
    assert kept.shape[1] == n_draws or 2 * (kept.shape[1] + 1) >= most - 1
