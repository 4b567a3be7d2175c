"""Threads of linear algebra for one call of `solve`.

Two threads win nothing where matrices are small, and lose a factor of 40 beside any other busy process.
The count belongs to the whole process. A block raises what it lowered itself and lowers nothing when it ends, so that
blocks that overlap in several threads leave behind what the first of them found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from validation.problem import Problem

# So many multiplications, of 200 x 200 by 200 x 200, take half a millisecond. The threads of OpenBLAS wait for each
# other, so that beside another busy process every call may wait for a turn of the scheduler, some ten milliseconds.
_WORK = 200**3

_BATCH = 100  # rows of a mini-batch where nobody says how many


@contextmanager
def blas_threads(n_rows: int, n_inducing: int | None) -> Iterator[int]:
    """Inside, linear algebra has one thread where matrices are small; yields the threads that it has.

    n_rows : int               rows that one step works on
    n_inducing : int | None    inducing points; None for a full GP
    """
    before = [library.num_threads for library in _libraries()]
    if not _small(n_rows, n_inducing):
        yield max(before, default=1)
        return
    try:
        for library in _libraries():
            library.set_num_threads(1)
        yield 1
    finally:
        for library, threads in zip(_libraries(), before, strict=True):
            if library.num_threads < threads:
                library.set_num_threads(threads)


@cache
def _libraries() -> tuple[Any, ...]:
    """The libraries of linear algebra in this process: NumPy's, and SciPy's own, which has to be loaded for that."""
    import scipy.linalg  # noqa: F401

    return tuple(value for value in ThreadpoolController().lib_controllers if value.user_api == "blas")


def _small(n_rows: int, n_inducing: int | None) -> bool:
    """Whether the largest product or factorisation of one step is cheap: n^3, or n m^2."""
    m = n_rows if n_inducing is None else n_inducing
    return max(n_rows, m) * m * m < _WORK


def step_rows(method: str, problem: Problem, options: Mapping[str, Any]) -> int:
    """Rows that one step works on: those of a mini-batch where the options ask for steps, else all."""
    batches = options.get("batches")
    if isinstance(batches, (list, tuple)) and batches:
        # not looked at yet, and a list may hold anything, itself included
        sizes = [len(batch) for batch in batches if isinstance(batch, (list, tuple))]
        sizes += [batch.size for batch in batches if isinstance(batch, np.ndarray)]
        return max(sizes, default=problem.n)
    asked = options.get("batch_size")
    if method != "x-gpc-svi" and asked is None and options.get("n_steps") is None:
        return problem.n
    return min(problem.n, asked if isinstance(asked, int) else _BATCH)
