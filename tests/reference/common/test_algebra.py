"""Inverses, solutions and spectra by their definitions, and the words of their errors."""

import numpy as np
import pytest

from reference.common.algebra import eigenvalues, eigenvectors, inverted, solution
from reference.common.errors import NotPositiveDefiniteError


def test_each_is_what_its_name_says(rng):
    W = rng.normal(size=(4, 4))
    M, rhs = W @ W.T + np.eye(4), rng.normal(size=4)
    # condition below 100
    np.testing.assert_allclose(inverted(M, "M") @ M, np.eye(4), rtol=0, atol=1e-13)
    np.testing.assert_allclose(M @ solution(M, rhs, "M"), rhs, rtol=0, atol=1e-13)
    values, vectors = eigenvectors(M, "M")
    np.testing.assert_allclose(M @ vectors, vectors * values, rtol=0, atol=1e-13)
    np.testing.assert_allclose(eigenvalues(M, "M"), values, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "of", [lambda M: inverted(M, "Σ"), lambda M: solution(M, np.ones(2), "Σ")], ids=["inverted", "solution"]
)
def test_a_singular_matrix_is_named(of):
    with pytest.raises(
        NotPositiveDefiniteError, match=r"^Σ \(2, 2\): found smallest singular value 0, .*; lower variance, or raise"
    ):
        of(np.array([[1.0, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("of", [eigenvalues, eigenvectors])
def test_a_spectrum_that_lapack_does_not_find_is_named(of, monkeypatch):
    def fails(matrix):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", fails)
    monkeypatch.setattr(np.linalg, "eigvalsh", fails)
    with pytest.raises(
        NotPositiveDefiniteError, match=r"^Σ \(2, 2\): found smallest singular value 1, expected eigenv"
    ):
        of(np.eye(2), "Σ")
    with pytest.raises(NotPositiveDefiniteError, match=r"^Σ \(2, 2\): found 1 entries not finite, expected"):
        of(np.array([[1.0, 0.0], [0.0, np.nan]]), "Σ")
