"""vi-jj of `fast`: an iteration against its floor, memory while it reads a memory map, exponents of its cost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf

from fast.core.values import Data, Prior
from fast.methods import vi_jj
from validation.bench.measure import Row, again, step_seconds

_LEARN = ("variance", "lengthscales")


_UPDATES, _EVALUATIONS = 3, 5  # of an iteration that learns; a search may end before it has made all
_FEW, _MANY = 2, 6  # iterations of two fits, whose difference is what iterations take


def _updates(n: int, m: int, d: int, learn: tuple[str, ...] = ()) -> Callable[[int], object]:
    """A fit of so many updates, or of so many iterations of Algorithm 1 where it learns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    data, prior = Data(X, y), Prior(2.0, np.full(d, 2.0), 0.1, 1e-6, X[:m].copy())

    def fit(count: int) -> object:
        options = vi_jj.JJOptions(
            max_iterations=count, accelerate=False, tolerance=1e-15, learn=learn, n_upd=_UPDATES, n_fun=_EVALUATIONS
        )
        return vi_jj.fit(data, prior, options)

    return fit


def _floor(n: int, m: int, d: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """The calls of one update, and of one evaluation of stage 2 with its gradient, that nothing can spare."""
    rng = np.random.default_rng(1)
    block = 4096
    rows = rng.standard_normal((n, m)) / np.sqrt(m)
    factor = dpotrf(np.asfortranarray(np.eye(m) + rows[:m].T @ rows[:m]), lower=1, clean=1)[0]
    signs, xi = rng.choice([-1.0, 1.0], n), rng.uniform(0.5, 2.0, n)
    points, centres = rng.standard_normal((n, d)), rng.standard_normal((d, m))
    buffer = np.empty((block, m))

    def update() -> None:
        B = np.eye(m, order="F")
        for start in range(0, n, block):
            part = slice(start, min(start + block, n))
            halved = buffer[: part.stop - start]
            halved[:] = rows[part]
            halved = dtrsm(1.0, factor, halved.T, side=0, lower=1, overwrite_b=1).T
            halved @ signs[:m]
            np.vecdot(halved, halved)
            root = np.sqrt(np.tanh(xi[part]) / xi[part])
            np.multiply(rows[part], root[:, None], out=buffer[: part.stop - start])
            B = dsyrk(1.0, buffer[: part.stop - start].T, beta=1.0, c=B, lower=1, overwrite_c=1)
            signs[part] @ rows[part]
        dpotrf(B, lower=1)

    def evaluation() -> None:
        B = np.eye(m, order="F")
        for start in range(0, n, block):
            part = slice(start, min(start + block, n))
            K = np.exp(points[part] @ centres)
            a = dtrsm(1.0, factor, K.T, side=0, lower=1, overwrite_b=1).T
            np.vecdot(a, a)
            a *= xi[part, None]
            B = dsyrk(1.0, a.T, beta=1.0, c=B, lower=1, overwrite_c=1)
            signs[part] @ a
        dpotrf(B, lower=1)
        for start in range(0, n, block):
            part = slice(start, min(start + block, n))
            work = dtrsm(1.0, factor, rows[part].T, side=0, lower=1).T
            work = dtrsm(1.0, factor, work.T, side=0, lower=1, trans_a=1, overwrite_b=1).T
            work *= xi[part, None]
            work = dtrsm(1.0, factor, work.T, side=0, lower=1, trans_a=1, overwrite_b=1).T
            work *= np.exp(points[part] @ centres)
            work.T @ points[part]
            work.sum(axis=1) @ points[part]

    return update, evaluation


def iteration(*, n: int = 20_000, m: int = 200, d: int = 8, repeats: int = 3) -> Iterable[Row]:
    """One update, and one whole iteration of Algorithm 1 (three updates, a search of at most five evaluations)."""
    update, evaluation = _floor(n, m, d)
    calls = (
        f"an update, in blocks: copy and triangular solve ({m}, {m}) \\ ({m}, b), squared norms, two products with a "
        f"vector, scale (b, {m}), dsyrk ({m}, b); tanh ({n},); Cholesky ({m}, {m})",
        f"an evaluation with its gradient, in blocks: product (b, {d}) x ({d}, {m}) and exp, twice; triangular solve "
        f"({m}, {m}) \\ ({m}, b), four times; scale, dsyrk ({m}, b); product ({m}, b) x (b, {d}); Cholesky ({m}, {m})",
    )

    def floor() -> None:
        for _ in range(_UPDATES):
            update()
        for _ in range(_EVALUATIONS):
            evaluation()

    programs = [_updates(n, m, d), again(update), _updates(n, m, d, _LEARN), again(floor)]
    one, bare_one, ours, bare = step_seconds(programs, _FEW, _MANY, repeats)
    yield Row("vi-jj/iteration", f"update, n = {n}, m = {m}", 1e3 * one, "ms", "", None)
    yield Row("vi-jj/iteration", "update: floor", 1e3 * bare_one, "ms", "", None, calls[:1])
    yield Row("vi-jj/iteration", "update: ratio", one / bare_one, "", "<= 1.5", one / bare_one <= 1.5)
    yield Row(
        "vi-jj/iteration",
        f"iteration, {_UPDATES} updates, at most {_EVALUATIONS} evaluations",
        1e3 * ours,
        "ms",
        "",
        None,
    )
    yield Row("vi-jj/iteration", "iteration: floor", 1e3 * bare, "ms", "", None, calls)
    yield Row("vi-jj/iteration", "iteration: ratio", ours / bare, "", "<= 1.5", ours / bare <= 1.5)


def exponents(*, repeats: int = 3) -> Iterable[Row]:
    """Derivatives of log time on log n and on log m, of an update: 1 and at most 2 by its cost n m^2 + m^3/3."""
    for letter, sizes in (
        ("n", [(n, 100) for n in (8_000, 16_000, 32_000, 64_000)]),
        ("m", [(16_000, m) for m in (64, 128, 256, 512)]),
    ):
        seconds = step_seconds([_updates(n, m, 8) for n, m in sizes], _FEW, _MANY, repeats)
        sides = [n if letter == "n" else m for n, m in sizes]
        derivative = float(np.polyfit(np.log(sides), np.log(seconds), 1)[0])
        limit = 1.2 if letter == "n" else 2.2
        for side, time in zip(sides, seconds, strict=True):
            yield Row("vi-jj/exponents", f"{letter} = {side}", 1e3 * time, "ms", "", None)
        yield Row("vi-jj/exponents", f"exponent in {letter}", derivative, "", f"<= {limit}", derivative <= limit)


_TRAIN = """
import sys
import numpy as np
from fast.core.values import Data, Prior
from fast.methods import vi_jj

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

n, d, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
X = np.memmap(folder + "/X.bin", dtype=np.float64, mode="r", shape=(n, d))
y = np.memmap(folder + "/y.bin", dtype=np.int8, mode="r", shape=(n,))
Z = np.array(X[:200])
before, peak = anonymous(), 0.0

def look(value):
    global peak
    peak = max(peak, anonymous())

options = vi_jj.JJOptions(accelerate=False, max_iterations=2, memory_budget=0, callback=look)
vi_jj.fit(Data(X, y), Prior(2.0, np.full(d, 4.0), 0.1, 1e-6, Z), options)
look(0.0)
print(peak - before)
"""


def memory_map(*, n: int = 2_000_000, d: int = 10) -> Iterable[Row]:
    """Growth of anonymous memory over two updates and the final moments, in a process of its own (Linux)."""
    if not Path("/proc/self/status").exists():
        return
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        with open(Path(folder, "X.bin"), "wb") as inputs, open(Path(folder, "y.bin"), "wb") as labels:
            for _ in range(0, n, 10**5):
                part = rng.standard_normal((10**5, d))
                part.tofile(inputs)
                (part[:, 0] > 0).astype(np.int8).tofile(labels)
        command = [sys.executable, "-c", _TRAIN, str(n // 10**5 * 10**5), str(d), folder]
        grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    what = f"{n} x {d} memory map, m = 200: growth of anonymous memory"
    yield Row("vi-jj/memory", what, grown, "MB", "< 200", grown < 200.0)
