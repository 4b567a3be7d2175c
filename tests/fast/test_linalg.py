"""Factors, triangular solves, and the words of their errors."""

import numpy as np
import pytest

from fast.errors import NotPositiveDefiniteError
from fast.linalg import cholesky, positive_factors, solve_rows, solve_vector, squared_norms, stacked_cholesky


def positive_definite(rng, m):
    W = rng.normal(size=(m, m))
    return W @ W.T + np.eye(m)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_factor_times_its_transpose_is_the_matrix_which_is_left_alone(rng, order):
    matrix = np.array(positive_definite(rng, 7), order=order)
    before = matrix.copy()
    factor = cholesky(matrix, "K_ZZ", "raise jitter")
    # backward stable: m eps |matrix| = 7 * 2e-16 * 30
    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(np.triu(factor, 1), 0.0)
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_are_solved_in_place(rng, transposed):
    factor = cholesky(positive_definite(rng, 6), "K", "")
    rhs = rng.normal(size=(4, 6))
    expected = np.linalg.solve(factor.T if transposed else factor, rhs.T).T
    vector = rhs[2].copy()
    got = solve_rows(factor, rhs, transposed=transposed)
    # condition of the factor below 100
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13)
    assert np.shares_memory(got, rhs)
    kept = vector.copy()
    np.testing.assert_allclose(solve_vector(factor, vector, transposed=transposed), expected[2], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(vector, kept)
    # a sum of six squares
    np.testing.assert_allclose(squared_norms(got), (got**2).sum(axis=1), rtol=1e-14, atol=0)


def test_an_indefinite_matrix_is_named_with_its_smallest_eigenvalue():
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(2, 2\): found smallest eigenvalue -1, .* raise jitter"):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]), "K_ZZ", "raise jitter")


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0, 1e-8, 7e6])
def test_a_singular_matrix_is_refused_even_if_rounding_makes_its_pivots_positive(scale):
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue"):
        cholesky(scale * np.ones((3, 3)), "K_ZZ", "raise jitter")


def test_a_value_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="K_ZZ: found a value that is not finite"):
        cholesky(np.array([[np.nan]]), "K_ZZ", "")


def at_rounding(rng, n, m):
    """Matrices W W' of rank m - 1: whether one has a Cholesky factor is a matter of its last digits."""
    W = rng.normal(size=(n, m, m - 1))
    return W @ W.transpose(0, 2, 1)


@pytest.mark.parametrize("m", [1, 2, 5, 11])
@pytest.mark.parametrize("n", [1, 15, 40])
def test_a_factor_in_a_stack_depends_on_its_matrix_alone(rng, n, m):
    matrices = np.array([positive_definite(rng, m) for _ in range(n)])
    alone = stacked_cholesky(matrices)
    # backward stable: m eps |matrix| < 11 * 2e-16 * 100
    np.testing.assert_allclose(alone.lower @ alone.lower.transpose(0, 2, 1), matrices, rtol=0, atol=3e-13)
    assert alone.good.all()
    beside = np.concatenate([matrices, -np.eye(m)[None], np.full((1, m, m), np.nan), np.full((1, m, m), np.inf)])
    before = beside.copy()
    lower, good = stacked_cholesky(beside)
    np.testing.assert_array_equal(beside, before)
    assert list(good) == [True] * n + [False] * 3
    np.testing.assert_array_equal(lower[:n], alone.lower)
    assert np.isnan(lower[n:]).all()
    filled, same = positive_factors(beside)
    np.testing.assert_array_equal(same, good)
    np.testing.assert_array_equal(filled[:n], alone.lower)
    np.testing.assert_array_equal(filled[n:], np.broadcast_to(np.eye(m), (3, m, m)))


@pytest.mark.parametrize("m", [2, 3, 8])
def test_a_stack_of_matrices_singular_to_rounding_is_sorted_and_never_raises(rng, m):
    matrices = at_rounding(rng, 400, m)
    lower, good = stacked_cholesky(matrices)
    # rounding decides: some of 400 fall on either side under every kernel
    assert 0 < good.sum() < 400
    scale = np.abs(matrices).max(axis=(1, 2), keepdims=True)
    kept = lower[good]
    np.testing.assert_allclose((kept @ kept.transpose(0, 2, 1) - matrices[good]) / scale[good], 0.0, atol=1e-14)
    assert np.isnan(lower[~good]).all()
    for i, one in enumerate(matrices):
        np.testing.assert_array_equal(stacked_cholesky(one).lower, lower[i])


def test_a_factor_that_overflows_is_none():
    # 1e200 / sqrt(1e-300) is beyond the largest double
    lower, good = stacked_cholesky(np.array([[[1e-300, 1e200], [1e200, 1.0]], [[4.0, 0.0], [0.0, 9.0]]]))
    assert list(good) == [False, True]
    np.testing.assert_array_equal(lower[1], np.diag([2.0, 3.0]))


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3, 3), (4, 0, 0), (2, 3, 4, 4), (4, 4)])
def test_any_stack_keeps_its_axes(shape):
    lower, good = stacked_cholesky(np.broadcast_to(np.eye(shape[-1]), shape))
    assert lower.shape == shape
    assert good.shape == shape[:-2]
    assert good.all()
    np.testing.assert_array_equal(lower, np.broadcast_to(np.eye(shape[-1]), shape))
