"""The rule that chooses threads of linear algebra against both choices held by hand; a busy machine decides nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from threadpoolctl import ThreadpoolController

from fast.core.values import Data, Prior
from fast.full_classes.prior import prepare
from fast.methods import nested_ep, x_gpc
from validation.bench.measure import Row, best_of
from validation.threads import blas_threads

_SPARSE = ((100, 10), (1000, 40), (1000, 80), (1000, 120), (5000, 200))  # n, m on both sides of the rule
_FULL = (60, 150, 190, 250, 500)  # n
_LONG = 0.02  # seconds that a repetition takes at least


def rule(*, repeats: int = 9) -> Iterable[Row]:
    """Time under the rule over the shorter of the times with one thread and with as many as there are cores."""
    cores = os.cpu_count() or 1
    control = ThreadpoolController()

    def held(threads: int, work: Callable[[], object]) -> None:
        with control.limit(limits=threads, user_api="blas"):
            work()

    def ruled(n_rows: int, n_inducing: int | None, work: Callable[[], object]) -> None:
        with control.limit(limits=cores, user_api="blas"), blas_threads(n_rows, n_inducing):
            work()

    for what, n_rows, n_inducing, work in _cases():
        count = _count(work)
        long = partial(_repeated, work, count)
        chosen, one, all_ = best_of(
            [partial(ruled, n_rows, n_inducing, long), partial(held, 1, long), partial(held, cores, long)], repeats
        )
        ratio = chosen / min(one, all_)
        each = [1e3 * seconds / count for seconds in (one, all_)]
        times = (f"the shorter of {each[0]:.3g} ms with 1 thread and {each[1]:.3g} ms with {cores}",)
        yield Row("blas-threads/rule", what, ratio, "", "<= 1.1", ratio <= 1.1, times)


def _repeated(work: Callable[[], object], count: int) -> None:
    for _ in range(count):
        work()


def _count(work: Callable[[], object]) -> int:
    """How often the work has to be done to take long enough for a clock."""
    started = time.perf_counter()
    work()
    return 1 + int(_LONG / (time.perf_counter() - started))


def _cases() -> Iterator[tuple[str, int, int | None, Callable[[], object]]]:
    """A step of a sparse and of a full method: what it is, rows, inducing points or None, and the step."""
    rng = np.random.default_rng(0)
    for n, m in _SPARSE:
        X = rng.standard_normal((n, 3))
        prior = x_gpc.prepare(Data(X, (X[:, 0] > 0.0).astype(int)), Prior(2.0, np.full(3, 2.0), 0.01, 1e-6, X[:m]))
        yield f"x-gpc sweep, n = {n}, m = {m}", n, m, partial(x_gpc.sweep, prior, np.full(n, 0.5))
    for n in _FULL:
        X = rng.standard_normal((n, 3))
        classes = prepare(Data(X, np.arange(n) % 3, 3), Prior(3.0, np.ones(3), 0.0, 1e-6, shared=True))
        alpha, beta = rng.uniform(0.05, 0.8, (n, 2)), rng.standard_normal((n, 2))
        step = partial(nested_ep.one_outer_step, classes, alpha, beta)
        yield f"nested-ep step, n = {n}, C = 3", n, None, step
