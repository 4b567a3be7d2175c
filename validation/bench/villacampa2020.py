"""apep of `fast`: a mini-batch step with all gradients against its floor, step time against n and the classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf
from scipy.special import erfcx, log_ndtr

from fast.core.values import Data, Prior
from fast.methods import apep
from validation.bench import class_steps
from validation.bench.class_steps import LEARN, Floor, Operands
from validation.bench.measure import Row, step_seconds

_NODES = 56  # of the largest value's integral at the shape of `step`


def steps(
    data: Data, prior: Prior, count: int, batch_size: int, callback: Callable[[Any], None] | None = None
) -> object:
    """So many steps with the gradient in q and in every parameter."""
    options = apep.EnergyOptions(
        batch_size=batch_size, n_steps=count, learn=LEARN, rate=1e-5, evaluate=False, callback=callback,
        alpha=0.5, epsilon=1e-3,
    )  # fmt: skip
    return apep.fit(data, prior, options)


def _floor(C: int, m: int, b: int, d: int, shared: bool) -> Floor:
    """One product of each kind and one factorisation of each matrix a class, and the quadrature."""
    kinds = 1 if shared else C
    at = Operands.of(kinds, m, b, d, C * (m + m * (m + 1) // 2) + kinds * (m * d + d + 2))
    rng = np.random.default_rng(2)
    table, nodes = rng.standard_normal((b, _NODES, C - 1)), rng.standard_normal((b, _NODES))
    weights = rng.uniform(0.0, 1.0, (b, 1, _NODES))
    told = (
        f"{C} times: product ({m}, {m}) x ({m}, {m}) of an array and its transpose, Cholesky ({m}, {m}): cavity",
        f"{C} times: triangular solve ({m}, {m}) \\ ({m}, {m}), three: q whitened, H, derivatives of R",
        f"{C} times: product ({b}, {m}) x ({m}, {m}), twice: variances of the projections, derivatives of upsilon",
        f"{C} times: product ({m}, {b}) x ({b}, {m}) of an array and its transpose: Q",
        f"{C} times: product ({m}, {m}) x ({m}, {m}), two: Q H, M",
        f"quadrature: log_ndtr and erfcx ({b}, {_NODES}, {C - 1}), exp ({b}, {_NODES}), "
        f"products ({b}, 1, {_NODES}) x ({b}, {_NODES}, {C - 1}), three: P, g, h",
    )
    beyond = (
        f"{C} times: two products and two solves ({m}, {m}) for derivatives through H, whose own factor keeps small "
        "variances; an estimate of the condition of the factor"
    )

    def own() -> None:
        for _ in range(C):
            at.square.T @ at.square
            dpotrf(at.matrix, lower=1)
            for _ in range(3):
                dtrsm(1.0, at.factor, at.square, side=0, lower=1)
            at.rows @ at.square
            at.rows @ at.square
            at.rows.T @ at.rows
            for _ in range(2):
                at.square @ at.matrix
        log_ndtr(table)
        ratio = erfcx(table)
        np.exp(nodes)
        for _ in range(3):
            weights @ ratio

    return at.floor(own, told, beyond)


def step(*, C: int = 10, d: int = 784, m: int = 200, b: int = 200, repeats: int = 12) -> Iterable[Row]:
    """A mini-batch step with the gradient in q and in every parameter at the shape of MNIST."""
    return class_steps.against_floor("apep/step", steps, _floor, C, d, m, b, repeats)


def step_against_n(*, sizes: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7), d: int = 8) -> Iterable[Row]:
    """Time of a step with all gradients on memory maps of growing length, pages warm."""
    return class_steps.against_n("apep/length", steps, sizes, d)


def step_against_classes(*, counts: tuple[int, ...] = (5, 10, 20), d: int = 64, m: int = 100) -> Iterable[Row]:
    """Time of a step with all gradients for a growing number of classes, a kernel for each."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (2000, d))
    programs = [
        partial(steps, *class_steps.start(X, rng.integers(0, C, 2000), C, m, False), batch_size=100) for C in counts
    ]
    seconds = step_seconds(programs, class_steps.FEW, class_steps.MANY, 20)
    for C, time in zip(counts, seconds, strict=True):
        yield Row("apep/classes", f"C = {C}", 1e3 * time, "ms", "", None)
    power = float(np.log(seconds[-1] / seconds[0]) / np.log(counts[-1] / counts[0]))
    yield Row("apep/classes", "exponent of C", power, "", "<= 1.15", power <= 1.15)
