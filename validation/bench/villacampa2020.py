"""apep of `fast`: a mini-batch step with all gradients against its floor, step time against n and the classes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf
from scipy.special import erfcx, log_ndtr

from fast.alpha_energies import Energy
from fast.alpha_joint import JointSteps
from fast.alpha_runs import EnergyRun
from fast.class_data import ClassData
from fast.class_inference import inducing_classes
from fast.class_training import settings_of
from validation.bench.measure import Row, best_of

_LEARN = ("variance", "lengthscales", "noise", "Z")
_NODES = 56  # of the winner's integral at the shape of `step`


def _steps(X: Any, y: Any, C: int, m: int, b: int, shared: bool) -> JointSteps:
    """A run that is past its start."""
    data = ClassData(X, y, C)
    rng = np.random.default_rng(1)
    d = X.shape[1]
    Z = np.array(X[:m], dtype=np.float64)
    Z = np.tile(Z, (C, 1, 1)) + (0.0 if shared else 0.01) * rng.standard_normal((1 if shared else C, m, d))
    points = inducing_classes(data, 2.0, np.full(d, np.sqrt(d) / 2.0), 0.1, 1e-3, Z, shared)
    settings = settings_of(
        data.n, batch_size=b, n_steps=10**9, learn=_LEARN, scheme="inner-approximate", optimizer="adam", rate=1e-5
    )
    steps = JointSteps(EnergyRun(data, points, Energy("apep", 0.5, data.n), 1e-3), settings)
    for _ in range(5):
        steps.step()
    return steps


def _floor(C: int, m: int, b: int, d: int, shared: bool) -> tuple[Callable[[], None], tuple[str, ...]]:
    """The calls of a step that linear algebra, the kernels and the quadrature cannot do without."""
    rng = np.random.default_rng(0)
    kinds = 1 if shared else C
    points, centres = rng.standard_normal((b, d)), rng.standard_normal((d, m))
    corner = np.ascontiguousarray(centres.T)
    rows = rng.standard_normal((b, m)) / np.sqrt(m)
    matrix = np.asfortranarray(np.eye(m) * m + rows.T @ rows)
    factor, _ = dpotrf(matrix, lower=1, clean=1)
    other = rows + 1.0
    right, square = np.asfortranarray(rows.T), np.asfortranarray(rng.standard_normal((m, m)))
    table = rng.standard_normal((b, _NODES, C - 1))
    at, weights = rng.standard_normal((b, _NODES)), rng.uniform(0.0, 1.0, (b, 1, _NODES))
    p = C * (m + m * (m + 1) // 2) + kinds * (m * d + d + 2)
    vector = rng.standard_normal(p)
    first, second = np.zeros(p), np.zeros(p)
    calls = (
        f"{kinds} times: products ({b}, {d}) x ({d}, {m}) and ({m}, {d}) x ({d}, {m}), exp of both: kernels",
        f"{kinds} times: Cholesky ({m}, {m}): K_ZZ; triangular solve ({m}, {m}) \\ ({m}, {b}): rows",
        f"{C} times: product ({m}, {m}) x ({m}, {m}) of an array and its transpose, Cholesky ({m}, {m}): cavity",
        f"{C} times: triangular solve ({m}, {m}) \\ ({m}, {m}), five: q whitened, H, X, slopes of B, slopes of R",
        f"{C} times: product ({b}, {m}) x ({m}, {m}), twice: variances of the projections, slopes of upsilon",
        f"{C} times: product ({m}, {b}) x ({b}, {m}) of an array and its transpose: Q",
        f"{C} times: product ({m}, {m}) x ({m}, {m}), four: Q H, H'Q H, H H'Q H, M",
        f"quadrature: log_ndtr and erfcx ({b}, {_NODES}, {C - 1}), exp ({b}, {_NODES}), "
        f"products ({b}, 1, {_NODES}) x ({b}, {_NODES}, {C - 1}), three: P, g, h",
        f"Adam on {p} numbers: two running averages, a root, a quotient, the step",
        f"{kinds} times: product ({m}, {b}) x ({b}, {m}), triangular solve ({m}, {m}) \\ ({m}, {b}), "
        f"triangular solves ({m}, {m}) \\ ({m}, {m}) left and right: pull-back through K_ZZ",
        f"{kinds} times: products ({m}, {b}) x ({b}, {d}) and ({m}, {m}) x ({m}, {d}): pull-back through the kernels",
    )

    def all_calls() -> None:
        for _ in range(kinds):
            np.exp(-np.abs(points @ centres))
            np.exp(-np.abs(corner @ centres))
            dpotrf(matrix, lower=1)
            dtrsm(1.0, factor, right, side=0, lower=1)
        for _ in range(C):
            square.T @ square
            dpotrf(matrix, lower=1)
            for _ in range(5):
                dtrsm(1.0, factor, square, side=0, lower=1)
            rows @ square
            rows @ square
            rows.T @ rows
            for _ in range(4):
                square @ matrix
        log_ndtr(table)
        ratio = erfcx(table)
        np.exp(at)
        for _ in range(3):
            weights @ ratio
        vector + 1e-5 * (0.9 * first + 0.1 * vector) / (np.sqrt(0.999 * second + 0.001 * vector**2) + 1e-8)
        for _ in range(kinds):
            rows.T @ other
            dtrsm(1.0, factor, right, side=0, lower=1, trans_a=1)
            half = dtrsm(1.0, factor, square, side=0, lower=1, trans_a=1)
            dtrsm(1.0, factor, half, side=1, lower=1, overwrite_b=1)
            rows.T @ points
            square @ corner

    return all_calls, calls


def step(*, C: int = 10, d: int = 784, m: int = 200, b: int = 200, repeats: int = 12) -> Iterable[Row]:
    """A mini-batch step with the gradient in q and in every parameter at the shape of MNIST."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.0, 1.0, (2000, d)), rng.integers(0, C, 2000)
    for name, shared in (("a kernel for each class", False), ("one kernel", True)):
        steps = _steps(X, y, C, m, b, shared)
        floor, calls = _floor(C, m, b, d, shared)
        ours, bare = best_of([steps.step, floor], repeats)
        what = f"{name}: C = {C}, d = {d}, m = {m}, batch {b}"
        yield Row("apep/step", what, 1e3 * ours, "ms", "", None)
        yield Row("apep/step", f"{name}: floor", 1e3 * bare, "ms", "", None, calls)
        yield Row("apep/step", f"{name}: ratio to the floor", ours / bare, "", "<= 1.5", ours / bare <= 1.5)


def step_against_n(*, sizes: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7), d: int = 8) -> Iterable[Row]:
    """Time of a step with all gradients on memory maps of growing length, pages warm."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        longest = max(sizes)
        X = np.memmap(Path(folder, "X.bin"), dtype=np.float32, mode="w+", shape=(longest, d))
        y = np.memmap(Path(folder, "y.bin"), dtype=np.int8, mode="w+", shape=(longest,))
        for start in range(0, longest, 10**5):
            part = rng.standard_normal((min(10**5, longest - start), d), dtype=np.float32)
            X[start : start + len(part)] = part
            y[start : start + len(part)] = part[:, :3].argmax(axis=1)
        runs = [_steps(X[:n], y[:n], 3, 50, 100, True) for n in sizes]

        def several(run: JointSteps) -> None:
            for _ in range(20):
                run.step()

        seconds = best_of([partial(several, run) for run in runs], 10)
        for n, time in zip(sizes, seconds, strict=True):
            yield Row("apep/length", f"n = {n}", 1e3 * time / 20, "ms", "", None)
        ratio = seconds[-1] / seconds[0]
        yield Row("apep/length", "longest over shortest", ratio, "", "<= 1.25", ratio <= 1.25)
        del X, y, runs


def step_against_classes(*, counts: tuple[int, ...] = (5, 10, 20), d: int = 64, m: int = 100) -> Iterable[Row]:
    """Time of a step with all gradients for a growing number of classes, a kernel for each."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (2000, d))
    runs = [_steps(X, rng.integers(0, C, 2000), C, m, 100, False) for C in counts]
    seconds = best_of([run.step for run in runs], 20)
    for C, time in zip(counts, seconds, strict=True):
        yield Row("apep/classes", f"C = {C}", 1e3 * time, "ms", "", None)
    power = float(np.log(seconds[-1] / seconds[0]) / np.log(counts[-1] / counts[0]))
    yield Row("apep/classes", "exponent of C", power, "", "<= 1.15", power <= 1.15)
