"""How slow this machine is, so that limits in seconds judge programs and not machines."""

from __future__ import annotations

import functools
import time

import numpy as np

# Seconds of a core for `_work` on the machine that limits are stated for, on which a quick `triad verify` takes 71 s
# on two cores: a third of what it is on one where that run takes 219 s.
NOMINAL = 0.007
_REPEATS = 5


def _work() -> float:
    """What solves of some dozens of rows do most: calls of NumPy on small arrays, and the interpreter between them."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((24, 24))
    matrix, line, total = root @ root.T + 24.0 * np.eye(24), rng.standard_normal(400), 0.0
    for step in range(400):
        total += float(np.linalg.cholesky(matrix)[-1, -1]) + float(np.exp(-0.5 * line * line).sum())
        total += float(np.einsum("ij,jk->ik", root, matrix)[0, 0]) + sum(range(step % 50))
    return total


def measured() -> float:
    """Seconds of a core that the work takes here: the least of some runs, as other programs only ever add to it."""
    times = []
    for _ in range(_REPEATS):
        started = time.process_time()
        _work()
        times.append(time.process_time() - started)
    return min(times)


@functools.cache
def pace() -> float:
    """Seconds of a core here for one of the machine that limits are stated for; at least 1: no limit gets tighter."""
    return max(1.0, measured() / NOMINAL)
