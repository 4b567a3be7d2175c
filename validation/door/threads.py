"""One thread of linear algebra for a call of `solve`, where an implementation has no rule of its own.

`fast` has one. `reference` may import nothing that sets threads, so that its threads are set here, and so are those of
the judge's own quadrature.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = Lock()
_open: list[object] = []  # a mark of each block that is open, in all Python threads
_before: dict[str, int] = {}  # threads by library, as the first of these blocks found them


@contextmanager
def one_thread(*_asked: Any) -> Iterator[int]:
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
