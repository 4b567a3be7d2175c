"""Nested EP of `fast`: an outer iteration against the calls that it cannot do without, a fixed point, exponents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dpotri

from fast.core.values import Data, Prior
from fast.methods import nested_ep
from validation.bench.measure import Row, again, step_seconds

# n, C at which an iteration is asked to take at most 1.5 times its floor
_ASKED = ((1000, 3), (500, 10))


_FEW, _MANY = 1, 3  # iterations of two fits, whose difference is what iterations take


def _problem(n: int, C: int, d: int = 3) -> tuple[Data, Prior]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    F = np.sin(1.5 * X) @ rng.standard_normal((d, C)) * 3.0
    y = (F + rng.standard_normal((n, C))).argmax(axis=1)
    return Data(X, y, C), Prior(3.0, np.ones(d), 0.0, 1e-6, shared=True)


def _iterations(n: int, C: int) -> Callable[[int], object]:
    """A fit of so many outer iterations, one inner step each."""
    data, prior = _problem(n, C)

    def fit(count: int) -> object:
        options = nested_ep.NestedOptions(max_iterations=count, accelerate=False, inner="incremental", tolerance=1e-15)
        return nested_ep.fit(data, prior, options)

    return fit


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
        K = np.exp(-np.abs(rng.standard_normal((n, n))) * 0.01)
        matrices = [np.asfortranarray(np.eye(n) + 0.3 * K @ K.T / n) for _ in range(C)]
        rows = np.asfortranarray(rng.standard_normal((n, n)))
        ours, bare = step_seconds([_iterations(n, C), again(partial(_floor, matrices, rows))], _FEW, _MANY, repeats)
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
        given = _problem(n, C)
        started = time.perf_counter()
        result = nested_ep.fit(*given)
        seconds = time.perf_counter() - started
        where = f"n = {n}, C = {C}, {result.iterations} iterations"
        met = result.converged and seconds <= asked
        yield Row("nested-ep/fixed-point", where, seconds, "s", f"<= {asked:g}", met)


def exponents(*, repeats: int = 2) -> Iterable[Row]:
    """Powers of n and C fitted to the time of an outer iteration."""

    def seconds(n: int, C: int) -> float:
        return step_seconds([_iterations(n, C)], _FEW, _MANY, repeats)[0]

    sizes, classes = (250, 500, 1000), (3, 6, 12)
    in_n = np.polyfit(np.log(sizes), np.log([seconds(n, 3) for n in sizes]), 1)[0]
    in_C = np.polyfit(np.log(classes), np.log([seconds(400, C) for C in classes]), 1)[0]
    yield Row("nested-ep/exponents", "power of n, C = 3", float(in_n), "", "<= 3", float(in_n) <= 3.0)
    yield Row("nested-ep/exponents", "power of C, n = 400", float(in_C), "", "about 1", None)
