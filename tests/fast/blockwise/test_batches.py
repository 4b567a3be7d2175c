"""Batches of rows that live elsewhere: as arrays to a method, and no more of them than it asks for."""

import numpy as np
import pytest

from fast.blockwise.batches import batches_from
from fast.blockwise.rows import rows_of
from fast.core.values import Data, Prior
from fast.methods import ep, x_gpc, x_gpc_svi


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((120, 2))
    y = (X[:, 0] + 0.5 * rng.standard_normal(120) > 0.0).astype(np.int64)
    return X, y, Prior(2.0, np.ones(2), 0.05, 1e-8, X[::20].copy())


def test_drawn_batches_are_those_of_the_array_path(case):
    X, y, prior = case
    options = x_gpc_svi.XGPCSteps(batch_size=25, n_steps=12, seed=3, pool_size=60, block_size=16)
    whole = x_gpc_svi.fit(Data(X, y), prior, options)
    with batches_from(rows_of([X[:50], X[50:]], [y[:50], y[50:]], leaf=17)) as data:
        parts = x_gpc_svi.fit(data, prior, options)
    assert parts.inducing_cov.tobytes() == whole.inducing_cov.tobytes()


def test_rows_come_in_the_order_of_their_list(case):
    X, y, _ = case
    wanted = np.array([119, 0, 17, 17, 16, 51])
    with batches_from(rows_of(X, y, leaf=17)) as data:
        assert np.array_equal(data.X[wanted], X[wanted])
        assert np.array_equal(data.y[wanted], y[wanted])
        assert np.array_equal(data.y[10:40], y[10:40])
        assert np.array_equal(data.X[100:500], X[100:])
        assert data.X[np.zeros(0, dtype=np.int64)].shape == (0, 2)
        assert (data.X.shape, data.X.ndim, data.y.shape) == ((120, 2), 2, (120,))
        with pytest.raises(IndexError, match="rows: found 5 to 120, expected 0 to 119"):
            data.X[[5, 120]]
        with pytest.raises(TypeError, match="rows: found 3, expected a slice or a list of numbers"):
            data.X[3]


def test_a_checkpoint_of_arrays_goes_on_from_rows_elsewhere(case, tmp_path):
    X, y, prior = case
    rng = np.random.default_rng(1)
    batches = [rng.permutation(120)[:30] for _ in range(8)]
    prior = Prior(np.full(2, 2.0), np.ones((2, 2)), np.full(2, 0.05), np.full(2, 1e-8), prior.Z)
    whole = ep.fit(Data(X, y, 2), prior, ep.EPOptions(batches=batches))
    path = tmp_path / "half.npz"
    ep.fit(Data(X, y, 2), prior, ep.EPOptions(batches=batches, n_steps=4, checkpoint=path, checkpoint_every=4))
    with batches_from(rows_of(X, y, leaf=17)) as data:
        parts = ep.fit(data, prior, ep.EPOptions(batches=batches, checkpoint=path, checkpoint_every=4))
    assert parts.trained.iterations == 8
    assert parts.inducing_cov.tobytes() == whole.inducing_cov.tobytes()


def test_a_bad_row_is_named_before_the_first_step(case):
    X, y, _ = case
    X = X.copy()
    X[77, 1] = np.inf
    with (
        pytest.raises(ValueError, match="X: found a value that is not finite in row 77, expected finite numbers"),
        batches_from(rows_of(X, y, leaf=17)),
    ):
        pass


def test_a_method_that_needs_all_rows_says_so(case):
    X, y, _ = case
    with (
        batches_from(rows_of(X, y, leaf=17)) as data,
        pytest.raises(TypeError, match="rows elsewhere: found a use that needs all 120 of them, expected batches"),
    ):
        x_gpc.fit(data, Prior(2.0, np.ones(2), 0.05, 1e-8))
