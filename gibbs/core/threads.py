"""Threads of linear algebra while chains run.

A sweep is many small calls: two threads win nothing there, and lose a factor of 40 beside any other busy process.
The count belongs to the whole process. A block raises what it lowered itself and lowers nothing when it ends, so that
blocks that overlap in several threads leave behind what the first of them found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

# So many multiplications, of 200 x 200 by 200 x 200, take half a millisecond. The threads of OpenBLAS wait for each
# other, so that beside another busy process every call may wait for a turn of the scheduler, some ten milliseconds.
_WORK = 200**3


@contextmanager
def _blas_threads(order: int) -> Iterator[int]:
    """Inside, linear algebra has one thread where matrices are small; yields the threads that it has.

    order : int    rows of the largest matrix
    """
    before = [library.num_threads for library in _libraries()]
    if not order**3 < _WORK:
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
