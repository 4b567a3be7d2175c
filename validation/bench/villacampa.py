"""sep of `fast`: a step with all gradients against its floor, step time against n, memory on a memory map."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import log_ndtr

from fast.core.values import Data, Prior
from fast.methods import sep
from validation.bench import class_steps
from validation.bench.class_steps import LEARN, Floor, Operands
from validation.bench.measure import Row


def steps(
    data: Data, prior: Prior, count: int, batch_size: int, callback: Callable[[Any], None] | None = None
) -> object:
    """So many steps with the gradient in every parameter."""
    options = sep.SEPOptions(
        batch_size=batch_size, n_steps=count, learn=LEARN, rate=1e-5, evaluate=False, callback=callback
    )
    return sep.fit(data, prior, options)


def _floor(C: int, m: int, b: int, d: int, shared: bool) -> Floor:
    """One product of each kind and one factorisation of each matrix a class: no program for a step of sep has less."""
    kinds = 1 if shared else C
    at = Operands.of(kinds, m, b, d, kinds * (m * d + d + 2))
    scalars = np.random.default_rng(2).standard_normal((b, C))
    told = (
        f"{C} times: Cholesky ({m}, {m}): the cavity",
        f"{C} times: triangular solve ({m}, {m}) \\ ({m}, {b}), there and back: variances of projections, S a",
        f"{C} times: product ({m}, {b}) x ({b}, {m}) of an array and its transpose: the new tied factor",
        f"{C} times: inverse from a Cholesky factor ({m}, {m}): S of q",
        f"log_ndtr ({b}, {C})",
    )
    beyond = (
        f"{C} times: the cavity once more after the update, with a Cholesky factor and a solve for {b} rows, as "
        "the priors move at the new q; q with factors before and after; T moved to the new whitened coordinates, "
        f"a solve and two products ({m}, {m}), which keeps eigenvalues of P above 1 whatever the kernel"
    )

    def own() -> None:
        for _ in range(C):
            dpotrf(at.matrix, lower=1)
            halved = dtrsm(1.0, at.factor, at.right, side=0, lower=1)
            dtrsm(1.0, at.factor, halved, side=0, lower=1, trans_a=1, overwrite_b=1)
            at.rows.T @ at.rows
            dpotri(at.factor, lower=1)
        log_ndtr(scalars)

    return at.floor(own, told, beyond)


def step(*, C: int = 10, d: int = 784, m: int = 200, b: int = 200, repeats: int = 12) -> Iterable[Row]:
    """A mini-batch step with the gradient in every parameter at the shape of MNIST, kernels per class and shared."""
    return class_steps.against_floor("sep/step", steps, _floor, C, d, m, b, repeats)


def step_against_n(*, sizes: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7), d: int = 8) -> Iterable[Row]:
    """Time of a step with all gradients on memory maps of growing length, pages warm."""
    return class_steps.against_n("sep/length", steps, sizes, d)


_TRAIN = """
import sys
import numpy as np
from fast.core.values import Data, Prior
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
options = sep.SEPOptions(batch_size=200, n_steps=300, learn=learn, rate=1e-3, callback=look)
fitted = sep.fit(Data(X, y, 3), Prior(2.0, np.full(d, 4.0), 0.1, 1e-4, Z, shared=True), options)
assert np.isfinite(fitted.log_evidence)
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
