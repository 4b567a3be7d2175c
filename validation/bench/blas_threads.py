"""Fits as a user starts them, against one thread of linear algebra, idle and beside a busy process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from validation.bench.measure import Row
from validation.jobs.processes import THREAD_VARIABLES

_PATIENCE = 2.0  # times the fastest fit after which one is stopped


def rule(*, repeats: int = 3) -> Iterable[Row]:
    """Seconds of a fit as started over those with one thread, each in a fresh process."""
    for beside in (False, True):
        for what in FITS:
            with _busy(beside):
                best: dict[str, float] = {}
                for _ in range(repeats):
                    for how in ("started", "one"):
                        longest = _PATIENCE * min(best.values()) if best else None
                        seconds = _seconds(what, how, longest)
                        if seconds is not None:
                            best[how] = min(seconds, best.get(how, seconds))
            held = best.get("one", np.inf)
            ratio = best.get("started", np.inf) / held
            times = f"one thread {held:.3g} s" if np.isfinite(held) else "one thread: stopped"
            where = "beside a busy process" if beside else "idle"
            yield Row("blas-threads/rule", f"{what}, {where}", ratio, "", "<= 1.1", ratio <= 1.1, (times,))


def _seconds(what: str, how: str, longest: float | None) -> float | None:
    """Seconds of one fit in a fresh process; None if the process took longer than a start and `longest` seconds."""
    environment = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    if how == "one":
        environment |= dict.fromkeys(THREAD_VARIABLES, "1")
    command = f"from validation.bench import blas_threads; blas_threads.child({what!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", command], env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()  # the child is ready
        try:
            answer, _ = process.communicate(timeout=longest)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    if process.returncode != 0:
        raise RuntimeError(f"{what}: found exit code {process.returncode} of the timed process, expected 0")
    return float(answer)


@contextmanager
def _busy(beside: bool) -> Iterator[None]:
    """Inside, another process computes without end, if wanted."""
    if not beside:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def child(what: str) -> None:
    """In a process of its own: print a line when ready, then the seconds of one fit.

    what : str    one of FITS
    """
    fit = FITS[what]()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    started = time.perf_counter()
    fit()
    sys.stdout.write(f"{time.perf_counter() - started}\n")


def _rows(n: int, d: int, C: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    ranks = np.argsort(np.argsort(np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)))
    return X, ranks * C // n


def _ep() -> Callable[[], object]:
    from fast.estimators import EPClassifier

    X, y = _rows(1000, 8, 3)
    return lambda: EPClassifier(n_inducing=50, max_iter=3, random_state=0).fit(X, y)


def _epgp() -> Callable[[], object]:
    from fast.estimators import EPGPClassifier

    X, y = _rows(240, 4, 2)
    return lambda: EPGPClassifier(random_state=0).fit(X, y)


def _sep() -> Callable[[], object]:
    from fast.estimators import SEPClassifier

    X, y = _rows(1000, 784, 10)
    options: dict[str, Any] = {"n_inducing": 50, "training": "minibatch", "batch_size": 100, "max_iter": 2}
    return lambda: SEPClassifier(random_state=0, **options).fit(X, y)


def _laplace() -> Callable[[], object]:
    from fast.estimators import LaplaceClassifier

    X, y = _rows(800, 3, 3)
    return lambda: LaplaceClassifier(learn=(), random_state=0).fit(X, y)


FITS: dict[str, Callable[[], Callable[[], object]]] = {
    "EP, 1000 x 8, C = 3": _ep,
    "EPGP, 240 x 4": _epgp,
    "SEP on mini-batches, d = 784, C = 10": _sep,
    "Laplace, 800 x 3, C = 3": _laplace,
}
