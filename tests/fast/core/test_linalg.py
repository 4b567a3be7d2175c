"""Factors, triangular solves, and the words of their errors."""

import re

import numpy as np
import pytest

from fast.core.errors import NotPositiveDefiniteError
from fast.core.linalg import (
    cholesky,
    cholesky_of_all,
    correlation_roots,
    eigenvalues,
    factorise,
    factorise_any,
    factorise_in_place,
    invert_in_place,
    invert_lower,
    largest_ritz_value,
    least_squares,
    positive_factors,
    solve_rows,
    solve_square,
    solve_stack,
    solve_vector,
    spectrum,
    squared_norms,
    stacked_cholesky,
)


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


@pytest.mark.parametrize("place", [0, 17, 39])
def test_the_first_of_a_stack_without_a_factor_is_named(rng, place):
    matrices = np.array([positive_definite(rng, 3) for _ in range(40)])
    np.testing.assert_array_equal(cholesky_of_all(matrices, "V", "raise noise"), stacked_cholesky(matrices).lower)
    matrices[place] = [[2.0, 0.0, 0.0], [0.0, 1.0, 3.0], [0.0, 3.0, 1.0]]
    with pytest.raises(
        NotPositiveDefiniteError, match=rf"^V\[{place}\] \(3, 3\): found smallest eigenvalue -2 .*; raise noise$"
    ):
        cholesky_of_all(matrices, "V", "raise noise")
    with pytest.raises(NotPositiveDefiniteError, match=rf"^V\[1, {place}\] \(3, 3\)"):
        cholesky_of_all(np.stack([np.broadcast_to(np.eye(3), matrices.shape), matrices]), "V", "")
    with pytest.raises(NotPositiveDefiniteError, match=r"^V \(3, 3\): found smallest eigenvalue -2 "):
        cholesky_of_all(matrices[place], "V", "")
    matrices[place, 1, 1] = np.nan
    with pytest.raises(ValueError, match=rf"^V\[{place}\]: found a value that is not finite"):
        cholesky_of_all(matrices, "V", "")


@pytest.mark.parametrize("root", [cholesky, factorise, factorise_any])
def test_every_road_to_a_factor_names_what_has_none(root):
    with pytest.raises(NotPositiveDefiniteError, match=r"^P \(2, 2\): found smallest eigenvalue -1, .*; lower rate$"):
        root(np.array([[1.0, 2.0], [2.0, 1.0]]), "P", "lower rate")
    with pytest.raises(ValueError, match=r"^P: found a value that is not finite"):
        root(np.array([[1.0, np.nan], [np.nan, 1.0]]), "P", "lower rate")


def test_a_matrix_whose_eigenvalues_are_bounded_keeps_its_factor_whatever_its_condition():
    steep = np.diag([1.0, 1e20])
    np.testing.assert_array_equal(factorise_any(steep, "P", ""), np.diag([1.0, 1e10]))
    with pytest.raises(NotPositiveDefiniteError):
        factorise(steep, "P", "")


def test_factor_and_inverse_are_written_over_the_matrix(rng):
    matrix = np.asfortranarray(positive_definite(rng, 6))
    wanted = np.linalg.inv(matrix)
    factor = factorise_in_place(matrix)
    assert np.shares_memory(factor, matrix)
    np.testing.assert_array_equal(np.triu(factor, 1), 0.0)
    inverse = invert_in_place(factor)
    assert np.shares_memory(inverse, matrix)
    # condition below 100
    np.testing.assert_allclose(np.tril(inverse), np.tril(wanted), rtol=0, atol=1e-14)
    assert factorise_in_place(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]])) is None
    # for these LAPACK's info is 0
    assert factorise_in_place(np.array([[np.nan]])) is None
    assert factorise_in_place(np.array([[np.inf, 0.0], [0.0, 1.0]], order="F")) is None


def test_a_factor_with_a_zero_pivot_is_refused_not_returned():
    # LAPACK leaves such a triangle as it was
    singular = np.array([[2.0, 0.0], [1.0, 0.0]])
    with pytest.raises(NotPositiveDefiniteError, match=r"^Cholesky factor \(2, 2\): found 0 on its diagonal at row 1"):
        invert_lower(singular)
    with pytest.raises(NotPositiveDefiniteError, match="found a zero pivot"):
        solve_stack(np.array([np.eye(2), singular]), np.ones((2, 2, 1)))
    with pytest.raises(
        NotPositiveDefiniteError, match=r"^S \(2, 2\): found a zero pivot, expected none; lower damping$"
    ):
        solve_square(np.ones((2, 2)), np.ones((2, 1)), "S", "lower damping")


def test_triangles_and_stacks_are_solved(rng):
    factor = cholesky(positive_definite(rng, 5), "K", "")
    kept = factor.copy()
    # condition of the factor below 100
    np.testing.assert_allclose(factor @ invert_lower(factor), np.eye(5), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(factor, kept)
    stack = np.stack([factor, 2.0 * factor])
    rhs = rng.normal(size=(2, 5, 3))
    np.testing.assert_allclose(stack @ solve_stack(stack, rhs), rhs, rtol=0, atol=1e-13)
    np.testing.assert_allclose(stack @ solve_square(stack, rhs, "S", ""), rhs, rtol=0, atol=1e-13)


def test_spectra_come_from_their_definition_and_refuse_what_is_not_finite(rng):
    stack = np.array([positive_definite(rng, 4) for _ in range(3)])
    values, vectors = spectrum(stack, "S")
    # eps |matrix| with |matrix| < 50
    np.testing.assert_allclose(stack @ vectors, vectors * values[:, None, :], rtol=0, atol=1e-13)
    np.testing.assert_allclose(eigenvalues(stack, "S"), values, rtol=0, atol=1e-13)
    stack[1, 0, 0] = np.inf
    for find in (spectrum, eigenvalues):
        with pytest.raises(ValueError, match=r"^S: found a value that is not finite"):
            find(stack, "S")


def test_least_squares_and_ritz_values_of_a_known_map(rng):
    A = np.diag([0.9, -0.5, 0.1])
    moved = rng.normal(size=(3, 3))
    # condition of the random columns below 1e3
    assert largest_ritz_value(moved, A @ moved - moved) == pytest.approx(0.9, rel=0, abs=1e-12)
    wanted = rng.normal(size=3)
    np.testing.assert_allclose(moved @ least_squares(moved, moved @ wanted, 1e-10), moved @ wanted, rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match=r"^differences of past steps: found a value that is not finite"):
        least_squares(np.full((3, 1), np.nan), wanted, 1e-10)
    with pytest.raises(ValueError, match=r"^step: found a value that is not finite"):
        least_squares(moved, np.full(3, np.inf), 1e-10)


@pytest.mark.parametrize("largest_and_smallest", [(1.7e308, -1.5e308), (3e-300, -2e-300), (0.0, -1e5), (2.0, -1e-3)])
def test_an_error_names_the_eigenvalue_of_a_turned_matrix_of_any_size(largest_and_smallest):
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    matrix = turn @ np.diag(np.array(largest_and_smallest) / 4.0) @ turn.T
    told = re.escape(f"{largest_and_smallest[1] / 4.0:.3g}")
    with np.errstate(over="ignore"), pytest.raises(NotPositiveDefiniteError, match=f"smallest eigenvalue {told}[,;]"):
        cholesky(0.5 * matrix + 0.5 * matrix.T, "K", "lower variance")


def test_roots_of_correlations_do_not_depend_on_the_order_of_coordinates(rng):
    sd = 10.0 ** rng.uniform(-6.0, 6.0, size=(5, 4))  # small variances beside large ones
    part = rng.normal(size=(5, 4, 7))
    covs = sd[:, :, None] * (part @ part.transpose(0, 2, 1)) * sd[:, None, :]
    roots, good = correlation_roots(covs, "K")
    assert good.all()
    scale = np.sqrt(np.einsum("nii->ni", covs))
    size = scale[:, :, None] * scale[:, None, :]
    np.testing.assert_allclose(roots @ roots.transpose(0, 2, 1) / size, covs / size, rtol=0, atol=1e-14)
    order = np.array([2, 0, 3, 1])
    renamed, _ = correlation_roots(covs[:, order][:, :, order], "K")
    wanted = (roots / scale[:, :, None])[:, order][:, :, order]  # entries of at most 1
    np.testing.assert_allclose(renamed / scale[:, order, None], wanted, rtol=0, atol=1e-13)
    covs[1], covs[2, 0, 0] = np.ones((4, 4)) * -1.0, np.nan
    roots, good = correlation_roots(covs, "K")
    assert good.tolist() == [True, False, False, True, True]
    np.testing.assert_array_equal(roots[1:3], np.broadcast_to(np.eye(4), (2, 4, 4)))
