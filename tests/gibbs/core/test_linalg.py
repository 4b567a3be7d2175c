"""Factors of matrices and stacks, solves with them, and the words of their errors."""

import re

import numpy as np
import pytest

from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.core.linalg import (
    cholesky,
    contrasts,
    factor,
    factor_over,
    invert_triangles,
    smallest_and_largest,
    solve,
    solve_factored,
    solve_triangles,
    spectrum,
    substitute,
)


@pytest.fixture
def stack():
    rng = np.random.default_rng(20250301)
    W = rng.normal(size=(2, 9, 4, 4))
    return W @ np.swapaxes(W, -1, -2) + np.eye(4)


@pytest.fixture
def indefinite():
    return np.diag([1.0, -3.0, 2.0, 1.0])


def test_what_a_matrix_is_given_does_not_hang_on_its_neighbours(stack, indefinite):
    alone, good = factor(stack)
    assert good.all()
    # backward stable: n eps |S| = 4 * 2e-16 * 50
    np.testing.assert_allclose(alone @ np.swapaxes(alone, -1, -2), stack, rtol=0, atol=1e-13)
    beside = stack.copy()
    beside[0, 3], beside[1, 0], beside[1, 8, 2, 1] = indefinite, np.inf, np.nan
    before = beside.copy()
    chol, good = factor(beside)
    np.testing.assert_array_equal(beside, before)
    bad = np.zeros((2, 9), dtype=bool)
    bad[0, 3] = bad[1, 0] = bad[1, 8] = True
    np.testing.assert_array_equal(good, ~bad)
    np.testing.assert_array_equal(chol[~bad], alone[~bad])
    np.testing.assert_array_equal(chol[bad], np.broadcast_to(np.eye(4), (3, 4, 4)))


@pytest.mark.parametrize("n", [2, 5])
def test_matrices_singular_to_rounding_are_sorted_each_by_itself(n):
    W = np.random.default_rng(7).normal(size=(300, n, n - 1))
    matrices = W @ W.transpose(0, 2, 1)
    chol, good = factor(matrices)
    # rounding decides: some of 300 fall on either side under every kernel
    assert 0 < good.sum() < 300
    scale = np.abs(matrices).max(axis=(1, 2), keepdims=True)
    gap = (chol @ chol.transpose(0, 2, 1) - matrices) / scale
    np.testing.assert_allclose(gap[good], 0.0, atol=1e-14)
    for one, L, sound in zip(matrices, chol, good, strict=True):
        np.testing.assert_array_equal(factor(one)[0], L)
        assert factor(one)[1] == sound
        if not sound:
            with pytest.raises(NotPositiveDefiniteError, match=rf"^S \({n}, {n}\): found smallest eigenvalue"):
                cholesky("S", one, "")


def test_a_factor_that_overflows_is_none():
    chol, good = factor(np.array([[[1e-300, 1e200], [1e200, 1.0]], [[4.0, 0.0], [0.0, 9.0]]]))
    assert list(good) == [False, True]
    np.testing.assert_array_equal(chol[1], np.diag([2.0, 3.0]))


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3, 3), (3, 0, 0), (2, 3, 4, 4), (4, 4)])
def test_any_stack_keeps_its_axes(shape):
    matrices = np.broadcast_to(np.eye(shape[-1]), shape)
    chol, good = factor(matrices)
    np.testing.assert_array_equal(chol, matrices)
    np.testing.assert_array_equal(good, np.ones(shape[:-2], dtype=bool))
    np.testing.assert_array_equal(cholesky("S", matrices, ""), matrices)


@pytest.mark.parametrize("place", [(0, 0), (1, 4), (1, 8)])
def test_an_error_names_matrix_place_size_eigenvalue_and_remedy(stack, indefinite, place):
    np.testing.assert_array_equal(cholesky("S", stack, ""), factor(stack)[0])
    stack[place] = indefinite
    words = rf"^S\[{place[0]}, {place[1]}\] \(4, 4\): found smallest eigenvalue -3, expected > 0; raise noise$"
    with pytest.raises(NotPositiveDefiniteError, match=words):
        cholesky("S", stack, "raise noise")
    with pytest.raises(NotPositiveDefiniteError, match=r"^S \(4, 4\): found smallest eigenvalue -3, "):
        cholesky("S", indefinite, "raise noise")
    stack[place] = np.nan
    with pytest.raises(ValueError, match=rf"^S\[{place[0]}, {place[1]}\] \(4, 4\): found 16 entries NaN or infinite"):
        cholesky("S", stack, "")


@pytest.mark.parametrize(("large", "small"), [(1.7e308, -1.5e308), (3e-300, -2e-300), (0.0, -1e5), (2.0, -1e-3)])
def test_an_error_names_the_eigenvalue_of_a_matrix_of_any_size(large, small):
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    matrix = turn @ np.diag([large / 4.0, small / 4.0]) @ turn.T
    told = re.escape(f"found smallest eigenvalue {small / 4.0:.3g},")
    with np.errstate(over="ignore"), pytest.raises(NotPositiveDefiniteError, match=told):
        cholesky("S", 0.5 * matrix + 0.5 * matrix.T, "")


def test_a_factor_is_written_over_its_matrix_and_solves(stack, indefinite):
    matrix = np.asfortranarray(stack[0, 0])
    chol = factor_over("B", matrix, "")
    assert np.shares_memory(chol, matrix)
    right = np.arange(12.0).reshape(4, 3)
    # condition below 100
    np.testing.assert_allclose(stack[0, 0] @ solve_factored(chol, right), right, rtol=0, atol=1e-12)
    np.testing.assert_allclose(stack[0, 0] @ solve_factored(chol, right[:, 0]), right[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.tril(chol) @ substitute(chol, right), right, rtol=0, atol=1e-13)
    assert solve_factored(chol, np.zeros((4, 0))).shape == (4, 0)
    full = indefinite + 0.5 * (np.ones((4, 4)) - np.eye(4))
    smallest = np.linalg.eigvalsh(full)[0]
    with pytest.raises(
        NotPositiveDefiniteError, match=rf"^B \(4, 4\): found smallest eigenvalue {smallest:.3g}, .*; less"
    ):
        factor_over("B", np.asfortranarray(full), "less")
    full[2, 1] = full[1, 2] = np.nan  # LAPACK's info is 0
    with pytest.raises(ValueError, match=r"^B \(4, 4\): found 2 entries NaN"):
        factor_over("B", np.asfortranarray(full), "less")


def test_triangles_and_squares_are_solved_and_inverted(stack):
    chol, right = factor(stack)[0], np.arange(24.0).reshape(4, 6)
    np.testing.assert_allclose(
        chol @ solve_triangles(chol, np.broadcast_to(right, (2, 9, 4, 6))),
        right + 0 * chol[..., :1],
        rtol=0,
        atol=1e-12,
    )
    np.testing.assert_allclose(chol @ invert_triangles(chol), np.eye(4) + 0 * chol, rtol=0, atol=1e-13)
    np.testing.assert_allclose(stack[0, 0] @ solve("H", stack[0, 0], right[:, 0], ""), right[:, 0], rtol=0, atol=1e-12)


def test_zero_pivots_are_refused():
    singular = np.array([[2.0, 0.0], [1.0, 0.0]])
    for run in (
        lambda: substitute(singular, np.ones((2, 1))),
        lambda: solve_triangles(np.stack([np.eye(2), singular]), np.ones((2, 2, 1))),
        lambda: invert_triangles(np.stack([np.eye(2), singular])),
    ):
        with pytest.raises(NotPositiveDefiniteError, match=r"found (0 on (its|a) diagonal|a zero pivot).*underflowed$"):
            run()
    with pytest.raises(NotPositiveDefiniteError, match=r"^H \(2, 2\): found a zero pivot, .*; lower variance$"):
        solve("H", np.ones((2, 2)), np.ones(2), "lower variance")


def test_spectra_come_from_their_definition(stack):
    values, vectors = spectrum("S", stack)
    # eps |S| with |S| < 50
    np.testing.assert_allclose(stack @ vectors, vectors * values[..., None, :], rtol=0, atol=1e-13)
    ends = smallest_and_largest("S", stack[0, 0])
    np.testing.assert_allclose(ends, values[0, 0][[0, -1]], rtol=0, atol=1e-13)
    stack[0, 0, 0, 0] = np.nan
    for run in (lambda: spectrum("S", stack), lambda: smallest_and_largest("S", stack[0, 0])):
        with pytest.raises(ValueError, match=r"^S .*: found 1 entries NaN or infinite, expected 0"):
            run()


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_contrasts_are_orthonormal_and_sum_to_zero(n_classes):
    H = contrasts(n_classes)
    np.testing.assert_allclose(H @ H.T, np.eye(n_classes - 1), rtol=0, atol=1e-14)
    np.testing.assert_allclose(H.sum(axis=1), 0.0, rtol=0, atol=1e-14)
