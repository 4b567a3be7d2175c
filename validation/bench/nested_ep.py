"""Nested EP of `fast`: an outer iteration against the calls that it cannot do without, a fixed point, exponents."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dpotri

from fast.core.values import Data, Prior
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.methods import nested_ep
from validation.bench.measure import Row, best_of

# n, C at which an iteration is asked to take at most 1.5 times its floor
_ASKED = ((1000, 3), (500, 10))


def _problem(n: int, C: int, d: int = 3) -> MulticlassPrior:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    F = np.sin(1.5 * X) @ rng.standard_normal((d, C)) * 3.0
    y = (F + rng.standard_normal((n, C))).argmax(axis=1)
    return prepare(Data(X, y, C), Prior(3.0, np.ones(d), 0.0, 1e-6, shared=True))


def _floor(matrices: list[np.ndarray], rows: np.ndarray) -> None:
    """C factorisations with inverses, one more factorisation, C triangular solves of n right-hand sides."""
    P = np.zeros_like(matrices[0])
    for A in matrices:
        factor, _ = dpotrf(A, lower=1)
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
        P += inverse
    factor, _ = dpotrf(P.T, lower=1)
    for _ in matrices:
        dtrsm(1.0, factor, rows, side=0, lower=1)


def step(*, repeats: int = 3) -> Iterable[Row]:
    """One outer iteration, one inner sweep, all data in parallel."""
    rng = np.random.default_rng(1)
    for n, C in _ASKED:
        prior = _problem(n, C)
        alpha, beta = rng.uniform(0.05, 0.8, (n, C - 1)), rng.standard_normal((n, C - 1))
        matrices = [np.asfortranarray(np.eye(n) + 0.3 * prior.K(k)) for k in range(C)]
        rows = np.asfortranarray(rng.standard_normal((n, n)))
        ours, bare = best_of(
            [partial(nested_ep.one_outer_step, prior, alpha, beta), partial(_floor, matrices, rows)], repeats
        )
        calls = (
            f"{C} x Cholesky ({n}, {n})",
            f"{C} x inverse from it",
            f"Cholesky of P ({n}, {n})",
            f"{C} x triangular solve ({n}, {n}) \\ ({n}, {n})",
        )
        where = f"n = {n}, C = {C}"
        yield Row("nested-ep/step", where, 1e3 * ours, "ms", "", None)
        yield Row("nested-ep/step", f"{where}: floor", 1e3 * bare, "ms", "", None, calls)
        yield Row("nested-ep/step", f"{where}: ratio", ours / bare, "", "<= 1.5", ours / bare <= 1.5)


def fixed_point(*, n: int = 300) -> Iterable[Row]:
    """Seconds to the fixed point at tolerance 1e-10."""
    for C, asked in ((3, 0.3), (6, 0.6), (10, 1.2)):
        prior = _problem(n, C)
        started = time.perf_counter()
        result = nested_ep.converge(prior)
        seconds = time.perf_counter() - started
        where = f"n = {n}, C = {C}, {result.iterations} iterations"
        met = result.converged and seconds <= asked
        yield Row("nested-ep/fixed-point", where, seconds, "s", f"<= {asked:g}", met)


def exponents(*, repeats: int = 2) -> Iterable[Row]:
    """Powers of n and C fitted to the time of an outer iteration."""

    def seconds(n: int, C: int) -> float:
        rng = np.random.default_rng(2)
        prior = _problem(n, C)
        alpha, beta = rng.uniform(0.05, 0.8, (n, C - 1)), rng.standard_normal((n, C - 1))
        return best_of([partial(nested_ep.one_outer_step, prior, alpha, beta)], repeats)[0]

    sizes, classes = (250, 500, 1000), (3, 6, 12)
    in_n = np.polyfit(np.log(sizes), np.log([seconds(n, 3) for n in sizes]), 1)[0]
    in_C = np.polyfit(np.log(classes), np.log([seconds(400, C) for C in classes]), 1)[0]
    yield Row("nested-ep/exponents", "power of n, C = 3", float(in_n), "", "<= 3", float(in_n) <= 3.0)
    yield Row("nested-ep/exponents", "power of C, n = 400", float(in_C), "", "about 1", None)
