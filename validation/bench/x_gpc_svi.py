"""x-gpc-svi of `fast`: a step against its floor, step time against n, memory while training on a memory map."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dpotri

from fast.core.values import Data, Prior
from fast.methods import x_gpc_svi
from validation.bench.measure import Clock, Row

_LEARN = ("variance", "lengthscales", "noise")


_BEGINNING = 110  # steps that are left out


def _fit(X: Any, y: Any, Z: Any, learn: tuple[str, ...], count: int, callback: Callable[[Any], None], b: int) -> None:
    """So many steps, after those of a beginning."""
    options = x_gpc_svi.XGPCSteps(
        batch_size=b, n_steps=_BEGINNING + count, learn=learn, learning_rate=1e-4, stop=None, callback=callback
    )
    d = Z.shape[1]
    x_gpc_svi.fit(Data(X, y), Prior(2.0, np.full(d, 2.0), 0.1, 1e-6, Z), options)


class _InTurns:
    """The shortest step of a fit and the shortest run of a floor, which takes its turn after each step."""

    def __init__(self, floor: Callable[[], None]) -> None:
        self.floor, self.ours, self.bare = floor, np.inf, np.inf
        self.steps, self.since = 0, np.inf

    def __call__(self, progress: Any) -> None:
        ended = time.perf_counter()
        self.steps += 1
        if self.steps > _BEGINNING:
            self.ours = min(self.ours, ended - self.since)
            self.floor()
            self.bare = min(self.bare, time.perf_counter() - ended)
        self.since = time.perf_counter()


def _floor(m: int, b: int, d: int, learn: bool) -> tuple[Callable[[], None], tuple[str, ...]]:
    """The least that any program does for the same step; the rate's norms are beyond it, as other rates need none."""
    rng = np.random.default_rng(0)
    points, centres = rng.standard_normal((b, d)), rng.standard_normal((d, m))
    rows = rng.standard_normal((b, m)) / np.sqrt(m)
    matrix = np.asfortranarray(np.eye(m) * m + rows.T @ rows)
    factor, _ = dpotrf(matrix, lower=1, clean=1)
    right = np.asfortranarray(rows.T)
    square = np.asfortranarray(rng.standard_normal((m, m)))
    corner = rng.standard_normal((m, d))
    calls = [
        f"product ({b}, {d}) x ({d}, {m}) and exp ({b}, {m}): kernel",
        f"triangular solve ({m}, {m}) \\ ({m}, {b}), twice: A, R^-1 A",
        f"product ({m}, {b}) x ({b}, {m}) of an array and its transpose: A Theta A'",
        f"Cholesky ({m}, {m}): P",
    ]

    def fixed() -> None:
        np.exp(points @ centres)
        for _ in range(2):
            dtrsm(1.0, factor, right, side=0, lower=1)
        rows.T @ rows
        dpotrf(matrix, lower=1)

    beyond = f"beyond the floor: triangular solves ({m}, {m}) \\ ({m}, {m}) left and right, norms of the adaptive rate"
    if not learn:
        return fixed, (*calls, beyond)
    calls += [
        f"product ({m}, {d}) x ({d}, {m}) and exp ({m}, {m}): K_ZZ",
        f"Cholesky ({m}, {m}): K_ZZ",
        f"inverse from a Cholesky factor ({m}, {m}): S",
        f"product ({b}, {m}) x ({m}, {m}), ({m}, {b}) x ({b}, {m}): pull-back through A",
        f"triangular solve ({m}, {m}) \\ ({m}, {b}), ({m}, {m}) \\ ({m}, {m}) left and right: pull-back through L",
        f"products ({b}, {m}) x ({m}, {d}), ({m}, {m}) x ({m}, {d}): pull-back through the kernel",
    ]

    def with_gradients() -> None:
        fixed()
        np.exp(corner @ centres)
        dpotrf(matrix, lower=1)
        inner, _ = dpotri(factor, lower=1)
        pull = rows @ inner
        rows.T @ pull
        dtrsm(1.0, factor, right, side=0, lower=1, trans_a=1)
        whitened = dtrsm(1.0, factor, square, side=0, lower=1, trans_a=1)
        dtrsm(1.0, factor, whitened, side=1, lower=1, overwrite_b=1)
        pull @ corner
        inner @ corner

    beyond += (
        f"; P in the coordinates of the moved kernel, a solve and two products ({m}, {m}), and its factor; marginals, "
        "KL and A Lambda A' once more at the new q, where the gradient is taken"
    )
    return with_gradients, (*calls, beyond)


def step(*, n: int = 50_000, m: int = 100, d: int = 8, b: int = 100, repeats: int = 400) -> Iterable[Row]:
    """One step with the adaptive rate, prior held and prior learned; reading a pool counts in `step_against_n`."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    for name, learn, limit in (("prior held", (), 1.5), ("prior learned", _LEARN, 1.5)):
        floor, calls = _floor(m, b, d, bool(learn))
        # single steps: on a busy machine only a short stretch is ever undisturbed
        turns = _InTurns(floor)
        _fit(X, y, X[:m].copy(), learn, repeats, turns, b)
        ours, bare = turns.ours, turns.bare
        what = f"{name}, n = {n}, m = {m}, batch {b}"
        yield Row("x-gpc-svi/step", what, 1e3 * ours, "ms", "", None)
        yield Row("x-gpc-svi/step", f"{name}: floor", 1e3 * bare, "ms", "", None, calls)
        ratio = ours / bare
        yield Row("x-gpc-svi/step", f"{name}: ratio to the floor", ratio, "", f"<= {limit:g}", ratio <= limit)


def step_against_n(*, sizes: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7), d: int = 8) -> Iterable[Row]:
    """Step time on memory maps of growing length, pages warm; a pool of 8192 rows is read every 82 steps."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        longest = max(sizes)
        X = np.memmap(Path(folder, "X.bin"), dtype=np.float32, mode="w+", shape=(longest, d))
        y = np.memmap(Path(folder, "y.bin"), dtype=np.int8, mode="w+", shape=(longest,))
        for start in range(0, longest, 10**5):
            part = rng.standard_normal((min(10**5, longest - start), d), dtype=np.float32)
            X[start : start + len(part)] = part
            y[start : start + len(part)] = part[:, 0] > 0
        Z, seconds = np.array(X[:100], dtype=np.float64), []
        for n in sizes:
            clock = Clock()
            _fit(X[:n], y[:n], Z, (), 5 * 164 + 1, clock, 100)
            seconds.append(clock.best(164, _BEGINNING))  # whole pools, so that reading them counts
        for n, least in zip(sizes, seconds, strict=True):
            yield Row("x-gpc-svi/length", f"n = {n}", 1e3 * least, "ms", "", None)
        ratio = seconds[-1] / seconds[0]
        yield Row("x-gpc-svi/length", "longest over shortest", ratio, "", "<= 1.25", ratio <= 1.25)
        del X, y


_TRAIN = """
import sys
import numpy as np
from fast.core.values import Data, Prior
from fast.methods import x_gpc_svi

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

n, d, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
X = np.memmap(folder + "/X.bin", dtype=np.float64, mode="r", shape=(n, d))
y = np.memmap(folder + "/y.bin", dtype=np.int8, mode="r", shape=(n,))
before, peak = anonymous(), 0.0

def look(progress):
    global peak
    if progress.iteration % 500 == 0:
        peak = max(peak, anonymous())

Z = np.array(X[: 100])
options = x_gpc_svi.XGPCSteps(batch_size=1000, n_steps=n // 1000, stop=None, callback=look)
x_gpc_svi.fit(Data(X, y), Prior(2.0, np.full(d, 4.0), 0.1, 1e-6, Z), options)
print(peak - before)
"""


def memory_map(*, n: int = 5_000_000, d: int = 18) -> Iterable[Row]:
    """Growth of anonymous memory over one epoch of a memory map, in a process of its own (Linux)."""
    if not Path("/proc/self/status").exists():
        return
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        with open(Path(folder, "X.bin"), "wb") as inputs, open(Path(folder, "y.bin"), "wb") as labels:
            for start in range(0, n, 10**5):
                part = rng.standard_normal((min(10**5, n - start), d))
                part.tofile(inputs)
                (part[:, 0] > 0).astype(np.int8).tofile(labels)
        command = [sys.executable, "-c", _TRAIN, str(n), str(d), folder]
        grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    what = f"{n} x {d} memory map, one epoch: growth of anonymous memory"
    yield Row("x-gpc-svi/memory", what, grown, "MB", "< 100", grown < 100.0)
