"""What the benches of mini-batch steps with several classes share: problems, the floor's common calls, rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from fast.core.values import Data, Prior
from validation.bench.measure import Clock, Row, again, step_seconds

LEARN = ("variance", "lengthscales", "noise", "Z")
_ADAM_BLOCK = 4096
Floor = tuple[Callable[[], None], tuple[str, ...]]
FEW, MANY = 2, 8  # steps of two fits, whose difference is what steps take


class Steps(Protocol):
    """A fit by `count` steps on mini-batches."""

    def __call__(
        self, data: Data, prior: Prior, count: int, batch_size: int, callback: Callable[[Any], None] | None = None
    ) -> object:
        """The fit."""


def start(X: Any, y: Any, C: int, m: int, shared: bool) -> tuple[Data, Prior]:
    """Data, and classes whose inducing points are the first rows, a little apart where each class has its own."""
    rng = np.random.default_rng(1)
    d = X.shape[1]
    Z = np.array(X[:m], dtype=np.float64)
    Z = np.tile(Z, (C, 1, 1)) + (0.0 if shared else 0.01) * rng.standard_normal((1 if shared else C, m, d))
    return Data(X, y, C), Prior(2.0, np.full(d, np.sqrt(d) / 2.0), 0.1, 1e-3, Z, shared=shared)


class Operands(NamedTuple):
    """Arrays of the shapes of a step, and the calls that every step needs whatever its method is."""

    kinds: int  # kernels
    points: NDArray[np.float64]  # (b, d)
    centres: NDArray[np.float64]  # (d, m)
    corner: NDArray[np.float64]  # (m, d)
    rows: NDArray[np.float64]  # (b, m)
    other: NDArray[np.float64]  # (b, m)
    matrix: NDArray[np.float64]  # (m, m) positive definite
    factor: NDArray[np.float64]  # (m, m) its Cholesky factor
    right: NDArray[np.float64]  # (m, b)
    square: NDArray[np.float64]  # (m, m)
    vector: NDArray[np.float64]  # as many numbers as Adam moves

    @classmethod
    def of(cls, kinds: int, m: int, b: int, d: int, moved: int) -> Operands:
        """For kernels, inducing points, rows, inputs and numbers that Adam moves."""
        rng = np.random.default_rng(0)
        points, centres = rng.standard_normal((b, d)), rng.standard_normal((d, m))
        rows = rng.standard_normal((b, m)) / np.sqrt(m)
        matrix = np.asfortranarray(np.eye(m) * m + rows.T @ rows)
        return cls(
            kinds,
            points,
            centres,
            np.ascontiguousarray(centres.T),
            rows,
            rows + 1.0,
            matrix,
            dpotrf(matrix, lower=1, clean=1)[0],
            np.asfortranarray(rows.T),
            np.asfortranarray(rng.standard_normal((m, m))),
            rng.standard_normal(moved),
        )

    def called(self, own: tuple[str, ...], beyond: str) -> tuple[str, ...]:
        """All calls in words, those of the method in the middle, and what a step does beyond them."""
        kinds, moved = self.kinds, self.vector.size
        (b, d), m = self.points.shape, len(self.matrix)
        return (
            f"{kinds} times: product ({b}, {d}) x ({d}, {m}), product ({m}, {d}) x ({d}, {m}) of an array and its "
            "transpose, exp of both: kernels",
            f"{kinds} times: Cholesky ({m}, {m}): K_ZZ; triangular solve ({m}, {m}) \\ ({m}, {b}): rows",
            *own,
            f"Adam on {moved} numbers, in place and in blocks: two running averages, a root, a quotient, the step",
            f"{kinds} times: product ({m}, {b}) x ({b}, {m}), triangular solve ({m}, {m}) \\ ({m}, {b}), "
            f"triangular solves ({m}, {m}) \\ ({m}, {m}) left and right: pull-back through K_ZZ",
            f"{kinds} times: products ({m}, {b}) x ({b}, {d}) and ({m}, {m}) x ({m}, {d}): "
            "pull-back through the kernels",
            f"beyond the floor, {beyond}",
        )

    def floor(self, own: Callable[[], None], told: tuple[str, ...], beyond: str) -> Floor:
        """The least that any program does for the same estimate: own are the calls of the method."""
        points, rows, factor, vector = self.points, self.rows, self.factor, self.vector
        first, second, move = np.zeros(vector.size), np.ones(vector.size), np.empty(vector.size)

        def all_calls() -> None:
            for _ in range(self.kinds):
                np.exp(-np.abs(points @ self.centres))
                np.exp(-np.abs(self.corner @ self.corner.T))
                dpotrf(self.matrix, lower=1)
                dtrsm(1.0, factor, self.right, side=0, lower=1)
            own()
            for begin in range(0, vector.size, _ADAM_BLOCK):
                part = slice(begin, begin + _ADAM_BLOCK)
                first[part] += 0.1 * (vector[part] - first[part])
                second[part] += 0.001 * (vector[part] ** 2 - second[part])
                move[part] = 1e-5 * first[part] / (np.sqrt(second[part]) + 1e-8)
            for _ in range(self.kinds):
                rows.T @ self.other
                dtrsm(1.0, factor, self.right, side=0, lower=1, trans_a=1)
                whitened = dtrsm(1.0, factor, self.square, side=0, lower=1, trans_a=1)
                dtrsm(1.0, factor, whitened, side=1, lower=1, overwrite_b=1)
                rows.T @ points
                self.square @ self.corner

        return all_calls, self.called(told, beyond)


def against_floor(
    bench: str,
    steps: Steps,
    floor: Callable[[int, int, int, int, bool], Floor],
    C: int,
    d: int,
    m: int,
    b: int,
    repeats: int,
) -> Iterable[Row]:
    """A step beside its floor at the shape of MNIST, kernels for each class and one for all.

    The floor is the least arithmetic for the estimate, whoever makes it; `floor` of a row says what is done beyond it.
    """
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.0, 1.0, (2000, d)), rng.integers(0, C, 2000)
    for name, shared in (("a kernel for each class", False), ("one kernel", True)):
        given = start(X, y, C, m, shared)
        least, calls = floor(C, m, b, d, shared)
        ours, bare = step_seconds([partial(steps, *given, batch_size=b), again(least)], FEW, MANY, repeats)
        yield Row(bench, f"{name}: C = {C}, d = {d}, m = {m}, batch {b}", 1e3 * ours, "ms", "", None)
        yield Row(bench, f"{name}: floor", 1e3 * bare, "ms", "", None, calls)
        yield Row(bench, f"{name}: ratio to the floor", ours / bare, "", "<= 1.7", ours / bare <= 1.7)


def against_n(bench: str, steps: Steps, sizes: tuple[int, ...], d: int) -> Iterable[Row]:
    """Time of a step with all gradients on memory maps of growing length, pages warm."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        longest = max(sizes)
        X = np.memmap(Path(folder, "X.bin"), dtype=np.float32, mode="w+", shape=(longest, d))
        y = np.memmap(Path(folder, "y.bin"), dtype=np.int8, mode="w+", shape=(longest,))
        for begin in range(0, longest, 10**5):
            part = rng.standard_normal((min(10**5, longest - begin), d), dtype=np.float32)
            X[begin : begin + len(part)] = part
            y[begin : begin + len(part)] = part[:, :3].argmax(axis=1)
        seconds = []
        for n in sizes:
            clock = Clock()
            steps(*start(X[:n], y[:n], 3, 50, True), 206, 100, callback=clock)
            seconds.append(clock.best(20, 5))
        for n, time in zip(sizes, seconds, strict=True):
            yield Row(bench, f"n = {n}", 1e3 * time, "ms", "", None)
        ratio = seconds[-1] / seconds[0]
        yield Row(bench, "longest over shortest", ratio, "", "<= 1.25", ratio <= 1.25)
        del X, y
