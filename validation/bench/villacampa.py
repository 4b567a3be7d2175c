"""sep of `fast`: a step with all gradients against its floor, step time against n, memory on a memory map."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrmm, dtrsm
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import log_ndtr

from fast.class_data import ClassData
from fast.class_inference import inducing_classes
from fast.class_sep import TiedRun
from fast.class_training import ClassPacking, _Steps, settings_of
from validation.bench.measure import Row, best_of

_LEARN = ("variance", "lengthscales", "noise", "Z")


def _steps(X: Any, y: Any, C: int, m: int, b: int, shared: bool) -> _Steps:
    """A run that is past its start."""
    data = ClassData(X, y, C)
    rng = np.random.default_rng(1)
    d = X.shape[1]
    Z = np.array(X[:m], dtype=np.float64)
    Z = np.tile(Z, (C, 1, 1)) + (0.0 if shared else 0.01) * rng.standard_normal((1 if shared else C, m, d))
    points = inducing_classes(data, 2.0, np.full(d, np.sqrt(d) / 2.0), 0.1, 1e-3, Z, shared)
    settings = settings_of(data.n, batch_size=b, n_steps=10**9, learn=_LEARN, rate=1e-5, lbfgs=False)
    run = TiedRun(data, points, "all")
    steps = _Steps(run, settings, ClassPacking(_LEARN, points.hyper, points.Z, shared))
    for _ in range(5):
        steps.step()
    return steps


def _floor(C: int, m: int, b: int, d: int, shared: bool) -> tuple[Callable[[], None], tuple[str, ...]]:
    """The calls of a step that linear algebra and the kernels cannot do without."""
    rng = np.random.default_rng(0)
    kinds = 1 if shared else C
    points, centres = rng.standard_normal((b, d)), rng.standard_normal((d, m))
    corner = np.ascontiguousarray(centres.T)
    rows = rng.standard_normal((b, m)) / np.sqrt(m)
    matrix = np.asfortranarray(np.eye(m) * m + rows.T @ rows)
    factor, _ = dpotrf(matrix, lower=1, clean=1)
    other = rows + 1.0
    right, square = np.asfortranarray(rows.T), np.asfortranarray(rng.standard_normal((m, m)))
    scalars = rng.standard_normal((b, C))
    vector = rng.standard_normal(kinds * (m * d + d + 2))
    first, second = np.zeros(vector.size), np.zeros(vector.size)
    calls = (
        f"{kinds} times: products ({b}, {d}) x ({d}, {m}) and ({m}, {d}) x ({d}, {m}), exp of both: kernels",
        f"{kinds} times: Cholesky ({m}, {m}): K_ZZ; triangular solve ({m}, {m}) \\ ({m}, {b}): rows",
        f"{C} times: Cholesky ({m}, {m}), four: q and cavity, before the move of the priors and after it",
        f"{C} times: triangular solve ({m}, {m}) \\ ({m}, {b}), twice: projections under both cavities",
        f"{C} times: product ({m}, {b}) x ({b}, {m}) of an array and its transpose: the new tied factor",
        f"{C} times: triangular inverse ({m}, {m}) and product with its transpose, twice: S of q and of the cavity",
        f"{C} times: product ({b}, {m}) x ({m}, {m}): S a",
        f"{C} times: triangular solve ({m}, {m}) \\ ({m}, {m}), twice: residual",
        f"{C} times: triangular solve ({m}, {m}) \\ ({m}, {m}), triangular products twice: the tied factor moves",
        f"2 times: log_ndtr ({b}, {C})",
        f"Adam on {kinds * (m * d + d + 2)} numbers: two running averages, a root, a quotient, the step",
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
            for _ in range(4):
                dpotrf(matrix, lower=1)
            for _ in range(2):
                dtrsm(1.0, factor, right, side=0, lower=1)
            rows.T @ rows
            for _ in range(2):
                inverse, _ = dtrtri(factor, lower=1)
                spread = inverse.T @ inverse
                dtrsm(1.0, factor, square, side=0, lower=1)
            rows @ spread
            turn = dtrsm(1.0, factor, square, side=0, lower=1)
            turn = dtrmm(1.0, factor, turn, side=0, lower=1, trans_a=1, overwrite_b=1)
            dtrmm(1.0, factor, turn, side=1, lower=1, overwrite_b=1)
        for _ in range(2):
            log_ndtr(scalars)
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
    """A mini-batch step with the gradient in every parameter at the shape of MNIST, kernels per class and shared."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.0, 1.0, (2000, d)), rng.integers(0, C, 2000)
    for name, shared in (("a kernel for each class", False), ("one kernel", True)):
        steps = _steps(X, y, C, m, b, shared)
        floor, calls = _floor(C, m, b, d, shared)
        ours, bare = best_of([steps.step, floor], repeats)
        what = f"{name}: C = {C}, d = {d}, m = {m}, batch {b}"
        yield Row("sep/step", what, 1e3 * ours, "ms", "", None)
        yield Row("sep/step", f"{name}: floor", 1e3 * bare, "ms", "", None, calls)
        yield Row("sep/step", f"{name}: ratio to the floor", ours / bare, "", "<= 1.5", ours / bare <= 1.5)


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

        def several(run: _Steps) -> None:
            for _ in range(20):
                run.step()

        seconds = best_of([partial(several, run) for run in runs], 10)
        for n, time in zip(sizes, seconds, strict=True):
            yield Row("sep/length", f"n = {n}", 1e3 * time / 20, "ms", "", None)
        ratio = seconds[-1] / seconds[0]
        yield Row("sep/length", "longest over shortest", ratio, "", "<= 1.25", ratio <= 1.25)
        del X, y, runs


_TRAIN = """
import sys
import numpy as np
from fast.methods import sep

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

n, d, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
X = np.memmap(folder + "/X.bin", dtype=np.float64, mode="r", shape=(n, d))
y = np.memmap(folder + "/y.bin", dtype=np.int8, mode="r", shape=(n,))
before, peak = anonymous(), 0.0

def look(progress):
    global peak
    peak = max(peak, anonymous())

Z = np.array(X[:50])
learn = ("variance", "lengthscales", "noise", "Z")
options = {"batch_size": 200, "n_steps": 300, "learn": learn, "rate": 1e-3, "callback": look}
found = sep.fit(X, y, 3, 2.0, np.full(d, 4.0), 0.1, 1e-4, Z, shared=True, **options)
assert np.isfinite(found.log_evidence)
print(max(peak, anonymous()) - before)
"""


def memory_map(*, n: int = 2_000_000, d: int = 8) -> Iterable[Row]:
    """Growth of anonymous memory: 300 steps and log Z_q of all data, in a process of its own (Linux)."""
    if not Path("/proc/self/status").exists():
        return
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        with open(Path(folder, "X.bin"), "wb") as inputs, open(Path(folder, "y.bin"), "wb") as labels:
            for start in range(0, n, 10**5):
                part = rng.standard_normal((min(10**5, n - start), d))
                part.tofile(inputs)
                part[:, :3].argmax(axis=1).astype(np.int8).tofile(labels)
        command = [sys.executable, "-c", _TRAIN, str(n), str(d), folder]
        grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    what = f"{n} x {d} memory map, 300 steps and log Z of all data: growth of anonymous memory"
    yield Row("sep/memory", what, grown, "MB", "< 150", grown < 150.0)
