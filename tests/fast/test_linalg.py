"""Factors, triangular solves, and the words of their errors."""

import numpy as np
import pytest

from fast.errors import NotPositiveDefiniteError
from fast.linalg import cholesky, solve_rows, solve_vector, squared_norms


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
