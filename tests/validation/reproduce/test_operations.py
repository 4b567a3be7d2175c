"""Operations counted: what a product, a factor and an elementwise result add, and orders of growth."""

from __future__ import annotations

import ast
import sys

import numpy as np
import pytest
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf
from scipy.special import log_ndtr

from validation.door.solve import solve
from validation.reproduce import operations


def count(text, **names):
    """Counter after a program whose operators and calls are routed."""
    counter = operations.Counter()
    tree = ast.fix_missing_locations(operations._Rewrite().visit(ast.parse(text)))
    exec(compile(tree, "program", "exec"), {operations._NAME: counter, "np": np, **names})
    return counter


A, B = np.ones((3, 4)), np.ones((4, 5))
SQUARE = 2.0 * np.eye(6)


@pytest.mark.parametrize(
    ("text", "linear", "elementwise"),
    [
        ("A @ B", 3 * 4 * 5, 0),
        ("np.matmul(A, B)", 3 * 4 * 5, 0),
        ("np.dot(A, B)", 3 * 4 * 5, 0),
        ("np.einsum('nm,mp->np', A, B)", 3 * 4 * 5, 0),
        ("np.einsum('nm,nm->n', A, A)", 3 * 4, 0),
        ("np.linalg.cholesky(SQUARE)", 6**3 / 3, 0),
        ("dpotrf(SQUARE, lower=1)", 6**3 / 3, 0),
        ("np.linalg.solve(SQUARE, np.ones((6, 2)))", 6**3 / 3 + 6 * 6 * 2, 0),
        ("dtrsm(1.0, SQUARE, np.ones((6, 2)), lower=1)", 6 * 6 * 2, 0),
        ("dsyrk(1.0, A)", 3 * 3 * 4, 0),
        ("A * 2.0 + A", 0, 2 * 12),
        ("np.exp(A)", 0, 12),
        ("A.sum()", 0, 12),
        ("x = A + 0.0\nx += A\nx[0] *= A[0]", 0, 12 + 12 + 4),
        ("2 + 3 * 4", 0, 0),
        ("(lambda f: f(A, B))(lambda a, b: a @ b)", 60, 0),
    ],
)
def test_what_a_program_takes(text, linear, elementwise):
    counter = count(text, A=A, B=B, SQUARE=SQUARE, dsyrk=dsyrk, dtrsm=dtrsm, dpotrf=dpotrf)
    assert counter.linear == pytest.approx(linear, rel=1e-12)
    assert counter.elementwise == elementwise
    assert counter.total == counter.linear + counter.elementwise


def test_factors_are_counted_by_the_side_of_their_matrices_and_values_of_the_log_normal_by_their_number():
    text = "np.linalg.cholesky(np.stack([SQUARE] * 3))\ndpotrf(SQUARE)\ndpotrf(SQUARE[:5, :5])\nlog_ndtr(A)"
    counter = count(text, A=A, SQUARE=SQUARE, dpotrf=dpotrf, log_ndtr=log_ndtr)
    assert (counter.factors, counter.log_normal) == ({6: 4, 5: 1}, 12)
    counter.clear()
    assert (counter.factors, counter.log_normal) == ({}, 0)


def test_the_usual_modules_are_back_and_answers_are_the_same(make_problem):
    problem = make_problem()
    before = solve("fast", "x-gpc", problem, max_iterations=3)
    module = sys.modules["fast.methods.x_gpc"]
    answers = []
    assert operations.operations(lambda: answers.append(solve("fast", "x-gpc", problem, max_iterations=3))) > 0.0
    np.testing.assert_array_equal(answers[0].latent_mean, before.latent_mean)
    assert sys.modules["fast.methods.x_gpc"] is module
    assert operations._NAME not in vars(module)


def test_the_usual_modules_are_back_after_an_error():
    before = {name: module for name, module in sys.modules.items() if name.startswith("fast")}
    with pytest.raises(ZeroDivisionError), operations.counted():
        raise ZeroDivisionError
    assert {name: module for name, module in sys.modules.items() if name.startswith("fast")} == before


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_the_order_is_the_degree(degree):
    assert operations.order([2.0 * size**degree + size * (degree > 0) for size in (4, 8, 12, 16, 20)]) == degree


def test_no_counts_have_no_order_and_what_is_no_polynomial_is_refused():
    assert operations.order([0.0, 0.0, 0.0]) == -1
    with pytest.raises(
        ValueError, match=r"counts: found \[2.0, 4.0, 8.0, 16.0\], expected values of a polynomial of degree 2"
    ):
        operations.order([2.0, 4.0, 8.0, 16.0])
