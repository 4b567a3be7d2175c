"""Chains run with one thread of linear algebra.

NumPy and SciPy each bring an OpenBLAS with a pool of threads that spin while they wait. A sweep alternates between the
two, and its calls are short: the pools fight for the same cores, and beside another busy process a call may take
ten milliseconds in place of one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")

_lock = Lock()
_running: list[Callable[..., Any]] = []  # calls that have not ended, in all Python threads
_before: dict[str, int] = {}  # threads by library, as the first of these calls found them


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run with one thread of linear algebra.

    The number belongs to the whole process: of calls that overlap in several Python threads the last one puts it back.
    """

    @wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        libraries = _libraries(len(sys.modules))
        try:
            with _lock:
                _running.append(function)
                for library in libraries:
                    if library.num_threads > 1:
                        _before.setdefault(library.filepath, library.num_threads)
                        _set(library, 1)
            return function(*args, **kwargs)
        finally:
            with _lock:
                _running.remove(function)
                if not _running:
                    for library in libraries:
                        if library.num_threads < _before.get(library.filepath, 1):
                            _set(library, _before[library.filepath])
                    _before.clear()

    return alone


@lru_cache(maxsize=1)  # finding libraries takes two milliseconds; modules imported later may load another one
def _libraries(_modules: int) -> tuple[Any, ...]:
    """The libraries of linear algebra in this process: NumPy's, and SciPy's own, which has to be loaded for that."""
    import scipy.linalg  # noqa: F401

    return tuple(value for value in ThreadpoolController().lib_controllers if value.user_api == "blas")


def _set(library: Any, count: int) -> None:
    """Set the threads of a library, from any Python thread.

    Since threadpoolctl 3.8 the first Python thread that sets those of OpenBLAS keeps the right to do so, and others set
    nothing. The right is released before and after.
    """
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)
