"""x-gpc and vi-jj on data in parts: the numbers of the array path, whatever holds the data and whoever adds."""

import numpy as np
import pytest

from fast.blockwise import quadratic
from fast.blockwise.quadratic import BlockwiseOptions
from fast.blockwise.rows import rows_of
from fast.core.values import Data, Prior
from fast.methods import x_gpc


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((700, 2))
    y = (rng.random(700) < 1.0 / (1.0 + np.exp(-3.0 * np.sin(2.0 * X[:, 0]) - X[:, 1]))).astype(np.int64)
    prior = Prior(2.5, np.array([0.8, 1.3]), 0.05, 1e-8, X[::40].copy())
    return X, y, prior


@pytest.fixture(scope="module")
def array_path(case):
    X, y, prior = case
    return x_gpc.fit(Data(X, y), prior, x_gpc.XGPCOptions(accelerate=False, max_iterations=6, tolerance=1e-300))


def maps(folder, X, y):
    """Three memory maps of each, of unequal length."""
    results = ([], [])
    for k, (start, stop) in enumerate([(0, 100), (100, 450), (450, 700)]):
        for parts, array, name in zip(results, (X, y), "Xy", strict=True):
            part = np.memmap(folder / f"{name}{k}", dtype=array.dtype, mode="w+", shape=array[start:stop].shape)
            part[:] = array[start:stop]
            part.flush()
            parts.append(np.memmap(folder / f"{name}{k}", dtype=array.dtype, mode="r", shape=part.shape))
    return results


@pytest.mark.parametrize("method", ["x-gpc", "vi-jj"])
@pytest.mark.parametrize("leaf", [64, 97, 5000])
def test_sweeps_are_those_of_the_array_path(case, array_path, method, leaf):
    X, y, prior = case
    posterior = quadratic.fit(method, rows_of(X, y, leaf=leaf), prior, BlockwiseOptions(1e-300, 6))
    # sums of 700 terms of size one in another order: 700 eps of the bound, times the condition of B, below 1e3
    np.testing.assert_allclose(posterior.trace, array_path.trace, rtol=1e-12, atol=0)
    scale = np.abs(array_path.inducing_mean).max()
    np.testing.assert_allclose(posterior.inducing_mean, array_path.inducing_mean, rtol=0, atol=1e-12 * scale)
    scale = np.abs(array_path.inducing_cov).max()
    np.testing.assert_allclose(posterior.inducing_cov, array_path.inducing_cov, rtol=0, atol=1e-12 * scale)


def test_the_fixed_point_is_that_of_the_array_path(case):
    X, y, prior = case
    posterior = quadratic.fit("x-gpc", rows_of(X, y), prior, BlockwiseOptions(1e-10))
    wanted = x_gpc.fit(Data(X, y), prior, x_gpc.XGPCOptions(tolerance=1e-12))
    assert posterior.converged
    # relative distance of each c_i at most 1e-10: the bound is flat there, moments move by a few times that
    assert abs(posterior.elbo - wanted.elbo) <= 1e-11 * abs(wanted.elbo)
    scale = np.abs(wanted.inducing_mean).max()
    np.testing.assert_allclose(posterior.inducing_mean, wanted.inducing_mean, rtol=0, atol=1e-8 * scale)


def test_the_step_bounds_the_change_of_every_local_parameter(case):
    X, y, prior = case
    steps, c = [], []
    for sweeps in (1, 2, 3, 4):
        told = []
        posterior = quadratic.fit(
            "x-gpc", rows_of(X, y), prior, BlockwiseOptions(1e-300, sweeps, lambda *s, t=told: t.append(s))
        )
        steps.append(told[-1][2])
        ((_, part),) = quadratic.predictions(posterior, rows_of(X))
        c.append(np.hypot(part.latent_mean, np.sqrt(part.latent_var)))
    for k in (2, 3):  # to first order: the first sweep from the prior is none
        assert np.abs(c[k] / c[k - 1] - 1.0).max() <= steps[k] * (1.0 + steps[k])


def test_memory_maps_give_the_bits_of_arrays_cut_alike(case, tmp_path):
    X, y, prior = case
    mapped = rows_of(*maps(tmp_path, X, y), leaf=100)
    cut = [X[:100], X[100:450], X[450:]], [y[:100], y[100:450], y[450:]]
    options = BlockwiseOptions(1e-300, 3)
    there = quadratic.fit("x-gpc", mapped, prior, options)
    here = quadratic.fit("x-gpc", rows_of(*cut, leaf=100), prior, options)
    assert there.trace.tobytes() == here.trace.tobytes()
    assert there.inducing_mean.tobytes() == here.inducing_mean.tobytes()


def test_predictions_come_in_order_and_are_those_of_all_rows_at_once(case):
    X, y, prior = case
    posterior = quadratic.fit("x-gpc", rows_of(X, y), prior)
    whole = next(quadratic.predictions(posterior, rows_of(X)))[1]
    pieces = list(quadratic.predictions(posterior, rows_of(X, leaf=100)))
    assert [first for first, _ in pieces] == list(range(0, 700, 100))
    joined = np.concatenate([part.probabilities for _, part in pieces])
    np.testing.assert_allclose(joined, whole.probabilities, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: X.__setitem__((437, 1), np.nan), "X: found a value that is not finite in row 437"),
        (lambda X, y: y.__setitem__(530, 2), "y: found 2 in row 530, expected 0 or 1"),
    ],
)
def test_a_bad_row_is_named_by_its_number_among_all(case, change, message):
    X, y, prior = (np.array(part) if isinstance(part, np.ndarray) else part for part in case)
    change(X, y)
    with pytest.raises(ValueError, match=message):
        quadratic.fit("x-gpc", rows_of(X, y, leaf=100), prior)


def test_what_cannot_be_cut_is_refused(case, tmp_path):
    X, y, prior = case
    (first, *_), _ = maps(tmp_path, X, y)
    with pytest.raises(ValueError, match="X: found a part of a memory map, expected whole ones"):
        rows_of(first[10:])
    with pytest.raises(ValueError, match="y: found 1 parts, expected as many as X has: 2"):
        rows_of([X, X], y)
    with pytest.raises(ValueError, match=r"X\[1\]: found 1 columns, expected 2"):
        rows_of([X, X[:, :1]])
    with pytest.raises(ValueError, match="Z: found None, expected inducing points"):
        quadratic.fit("x-gpc", rows_of(X, y), Prior(1.0, np.ones(2), 0.0, 0.0))
    with pytest.raises(ValueError, match="method: found 'svi'"):
        quadratic.fit("svi", rows_of(X, y), prior)
