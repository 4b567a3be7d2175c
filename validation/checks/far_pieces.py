"""Pieces that ordinary problems leave alone: far tails, point masses, singular matrices, one prior for all classes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, log_ndtr

from validation.checks import hyper_definitions
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.problem import Problem
from validation.quoting import shown

Array = NDArray[np.float64]


def _near(actual: object, expected: object, limit: float, why: str, left: str) -> Compared:
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    gap = float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-300))) if a.shape == b.shape else np.inf
    return Compared(gap, limit, why, left, "definition", "relative difference, entry by entry")


@check(
    "identity/nested-ep/tails",
    paper="riihimaki2013",
    question="Are the logarithm of a normal distribution function and its derivatives right as far as numbers reach?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.riihimaki2013._phi import log_phi, mills

    for z in (-1e5, -300.0, -40.0, -8.0, -5.1, -4.9, -0.3, 0.0, 2.0, 9.0):
        yield _near(log_phi(z), log_ndtr(z), 1e-13, f"log of the function at {z:g}: another library's", "reference")
        ratio, gap = mills(z)
        # u = z + r is what is left of u' = ∫ t exp(-t²/2 + zt) / ∫ exp(-t²/2 + zt) over t > 0, the mean of a tail
        t = np.linspace(-4.5, 4.5, 4001)
        at = np.exp(t - np.exp(-t)) / max(1.0, -z)  # the half-line, its ends approached double-exponentially
        weight = at * (1.0 + np.exp(-t)) * np.exp(-0.5 * at * at + min(z, 30.0) * at)
        mean = float((weight * at).sum() / weight.sum())
        # the mean of a normal of mean z above 0 is z + φ(z)/Φ(z)
        yield _near(gap, mean, 1e-11, f"mean of a normal cut off below, its own mean {z:g}", "reference")
        if -100.0 < z < 3.0:  # beyond, one of the two is lost in rounding of the other
            yield _near(ratio, mean - z, 1e-10, f"hazard at {z:g}", "reference")


@check(
    "identity/svi/point_masses",
    paper="izmailov2016",
    question="Is the integral over a latent value without variance the function there?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common.quadrature import QuadratureError, gaussian_expectation, gaussian_integral

    def log_function(f: float) -> float:
        return float(log_expit(f))

    def derivative(f: float) -> float:
        return 1.0 / (1.0 + math.exp(f))

    for mean in (-1.3, 0.0, 2.1):
        result = gaussian_integral(log_function, derivative, mean, 0.0)
        yield _near(result.value, 1.0 / (1.0 + math.exp(-mean)), 1e-14, "a probability at a point", "reference")
        near = gaussian_integral(log_function, derivative, mean, 1e-14)
        yield _near(result.value, near.value, 1e-13, "and next to no variance", "reference")
        spread = gaussian_expectation(log_function, mean, 0.0)
        yield _near(spread.value, log_function(mean), 1e-14, "its logarithm at a point", "reference")
        yield Compared(abs(result.error) + abs(spread.error), 0.0, "no rule, no error", "reference", "definition",
                       "stated error")  # fmt: skip
        errors = [gaussian_integral(log_function, derivative, mean, 2.0).error]
        errors.append(gaussian_expectation(log_function, mean, 2.0).error)
        wrong = not all(0.0 < error < 1e-11 for error in errors)
        yield Compared(float(wrong), 0.0, f"a rule states errors: {errors}", "reference", "definition", "errors")
    # steps that no panel knows of: the stated error is too large for a user
    refused = 0
    for integral in (
        lambda: gaussian_integral(lambda f: math.floor(7.3 * f) / 7.3, lambda f: 1.0, 0.3, 2.0),
        lambda: gaussian_expectation(lambda f: math.floor(7.3 * f), 0.3, 2.0),
    ):
        try:
            integral()
        except QuadratureError:
            refused += 1
    yield Compared(2.0 - refused, 0.0, "functions with steps", "reference", "definition", "integrals not refused")


@check(
    "identity/ep/singular",
    paper="villacampa2017",
    question="Does an error of the printed inverses name the matrix, its size and its smallest singular value?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common.algebra import inverted, singular_values, solution
    from reference.common.errors import NotPositiveDefiniteError

    matrix = np.array([[3.0, 1.0], [1.0, 2.0]])
    yield _near(inverted(matrix, "V"), [[0.4, -0.2], [-0.2, 0.6]], 1e-14, "an inverse by hand", "reference")
    yield _near(solution(matrix, np.array([1.0, -2.0]), "V"), [0.8, -1.4], 1e-14, "a solution by hand", "reference")
    flat = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 5.0]])
    holes = np.array([[np.nan, 0.0], [np.inf, 1.0]])
    missed = 0
    questions: tuple[tuple[Any, Any, str], ...] = (
        (inverted, (flat, "V"), "V (3, 3): found smallest singular value 0"),
        (solution, (flat, np.ones(3), "W"), "W (3, 3): found smallest singular value 0"),
        (singular_values, (holes, "U"), "U (2, 2): found 2 entries not finite"),
    )
    messages = []
    for ask, arguments, words in questions:
        try:
            ask(*arguments)
        except NotPositiveDefiniteError as error:
            messages.append(str(error))
            missed += not _tells(str(error), words)
        else:
            missed += 1
    yield Compared(float(missed), 0.0, f"what is said: {shown('; '.join(messages))}", "reference", "definition",
                   "errors that say otherwise")  # fmt: skip


def _tells(text: str, words: str) -> bool:
    """Whether an error begins with these words; a singular value of zero may be one of rounding."""
    start, number = words.removesuffix(" 0"), text.partition("value ")[2].partition(",")[0]
    return text.startswith(start) and (not words.endswith(" 0") or abs(float(number)) < 1e-14)


class _Fixed:
    """A generator whose normals are known."""

    def __init__(self, normals: Array) -> None:
        self._normals = normals

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """The normals, in the shape that is asked for."""
        return self._normals.reshape(shape)


@check(
    "identity/mh-softmax/shift",
    paper="riihimaki2013",
    question="Has a shift of the latent values of all classes its conditional mean and covariance?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    rng = np.random.default_rng(17)
    n, C = len(hyper_definitions.X), 3
    for shared in (True, False):
        case = hyper_definitions.Case("softmax", C, 0.0, False, shared, ("variance",))
        model = hyper_definitions._model(case)
        root = rng.standard_normal((1 if shared else C, n, 2 * n))
        K = np.broadcast_to(root @ root.transpose(0, 2, 1), (C, n, n))
        latent = rng.standard_normal((C, n))
        # states 0..n-1 are given the unit vectors for normals, the last one zeros
        normals = np.concatenate([np.eye(n), np.zeros((1, n))])
        chol, values = (np.broadcast_to(a, (n + 1, *a.shape)) for a in (np.linalg.cholesky(K), latent))
        result = model.draw_shift(_Fixed(normals), chol, values)
        A = np.linalg.inv(K).sum(axis=0)
        mean = -np.linalg.solve(A, np.linalg.solve(K, latent[..., None]).sum(axis=0)[:, 0])
        yield _near(result[-1], mean, 1e-9, f"its mean, one prior for all: {shared}; dense solves", "gibbs")
        columns = result[:n] - result[-1]
        cov = np.linalg.inv(A)
        scale = float(np.abs(cov).max())
        gap = float(np.abs(columns.T @ columns - cov).max()) / scale
        yield Compared(gap, 1e-9, f"its covariance, one prior for all: {shared}; dense solves", "gibbs", "definition",
                       "relative difference")  # fmt: skip
