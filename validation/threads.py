"""Threads of linear algebra for one call of `solve`: one, but where `fast` gains by more.

`fast` has a rule of its own and is asked about it. `reference` may import nothing that sets threads, so that its
threads are set here, and so are those of the judge's own quadrature.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from validation.problem import Problem

_BATCH = 100  # rows of a mini-batch where the options do not say how many

_lock = Lock()
_open: list[object] = []  # a mark of each block that is open, in all Python threads
_before: dict[str, int] = {}  # threads by library, as the first of these blocks found them


def solving(
    implementation: str, method: str, problem: Problem, options: Mapping[str, Any]
) -> AbstractContextManager[int]:
    """A block with the threads that suit the implementation; yields their number."""
    if implementation != "fast":
        return _one_thread()
    # by name: asking one witness loads no other
    block = importlib.import_module("fast.core.threads").blas_threads
    result: AbstractContextManager[int] = block(step_rows(method, problem, options), problem.m)
    return result


def step_rows(method: str, problem: Problem, options: Mapping[str, Any]) -> int:
    """Rows that one step works on: those of a mini-batch where the options ask for steps, else all."""
    batches = options.get("batches")
    if isinstance(batches, (list, tuple)) and batches:
        # not checked yet, and a list may hold anything, itself included
        sizes = [len(batch) for batch in batches if isinstance(batch, (list, tuple))]
        sizes += [batch.size for batch in batches if isinstance(batch, np.ndarray)]
        return max(sizes, default=problem.n)
    asked = options.get("batch_size")
    if method != "x-gpc-svi" and asked is None and options.get("n_steps") is None:
        return problem.n
    return min(problem.n, asked if isinstance(asked, int) else _BATCH)


@contextmanager
def _one_thread() -> Iterator[int]:
    """Inside, linear algebra has one thread; of blocks that overlap the last one restores what the first one found."""
    libraries, mark = _libraries(len(sys.modules)), object()
    try:
        with _lock:
            _open.append(mark)
            for library in libraries:
                if library.num_threads > 1:
                    _before.setdefault(library.filepath, library.num_threads)
                    _set(library, 1)
        yield 1
    finally:
        with _lock:
            _open.remove(mark)
            if not _open:
                for library in libraries:
                    if library.num_threads < _before.get(library.filepath, 1):
                        _set(library, _before[library.filepath])
                _before.clear()


@lru_cache(maxsize=1)  # finding libraries takes two milliseconds; modules imported later may load another one
def _libraries(_modules: int) -> tuple[Any, ...]:
    """The libraries of linear algebra in this process: NumPy's, and SciPy's own, which has to be loaded for that."""
    import scipy.linalg  # noqa: F401

    return tuple(value for value in ThreadpoolController().lib_controllers if value.user_api == "blas")


def _set(library: Any, count: int) -> None:
    """Set the threads of a library: threadpoolctl 3.8 grants that right to one Python thread until it is released."""
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)
