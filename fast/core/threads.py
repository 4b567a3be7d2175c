"""Threads of linear algebra: at most one library has more than one, and that only where the sizes gain by it.

NumPy and SciPy each bring an OpenBLAS with a pool of threads that spin while they wait. Code that alternates between
the two, as every step here does, makes the pools fight for the same cores.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")

# Multiplications of the largest product of a step from which one library keeps its threads. Measured on two cores as
# seconds with two threads in SciPy's library over those with one, idle and beside one busy process. laplace-binary on
# 1200 rows: 0.9 and 1.4 to 1.8; on 2500 rows: 0.7 to 0.8 and 1.04. Laplace with three classes on 300 and 800 rows: 0.8
# and 0.7 idle, 3 to 5 beside an uncontrolled load of several processes, where threads of short calls wait for each
# other. Between 1200 and 2500 rows nothing was measured: the border lies somewhere there. Below it a busy machine loses
# more than an idle one gains.
_WORK = 2000**3

_lock = threading.Lock()
_open: list[dict[str, int]] = []  # what each open block found: threads by library; oldest first
_of_thread = threading.local()  # many: whether the innermost block of this Python thread keeps several threads


@contextmanager
def blas_threads(n_rows: int | None = None, n_inducing: int | None = None) -> Iterator[int]:
    """Inside, one library of linear algebra has as many threads as before where sizes are large; all others have one.

    Yields the largest number of threads that a library has. A block inside another one of its Python thread may take
    fewer threads, never more. The numbers belong to the whole process: what the first open block found is put back by
    the last one, in whatever order they end.

    Parameters
    ----------
    n_rows : int | None        rows that one step works on; None: not known, as many threads as the block around, else 1
    n_inducing : int | None    inducing points; None for a full GP
    """
    around: bool | None = getattr(_of_thread, "many", None)
    many = bool(around) if n_rows is None else around is not False and _gains(n_rows, n_inducing)
    libraries = _libraries(len(sys.modules))
    single = libraries[many:]
    _of_thread.many = many
    try:
        # most blocks are inside another one, where nothing is left to lower
        needed = around is None or any(one.num_threads > 1 for one in single)
        with _lowered(libraries, single) if needed else nullcontext():
            yield max((one.num_threads for one in libraries), default=1)
    finally:
        _of_thread.many = around


@contextmanager
def _lowered(libraries: Sequence[Any], single: Sequence[Any]) -> Iterator[None]:
    """Inside, some of the libraries have one thread each."""
    found: dict[str, int] = {}
    try:
        with _lock:
            found |= {library.filepath: library.num_threads for library in libraries}
            _open.append(found)
            for library in single:
                if found[library.filepath] > 1:
                    _set(library, 1)
        yield
    finally:
        with _lock:
            at = next(index for index, other in enumerate(_open) if other is found)
            del _open[at]
            if at < len(_open):  # a later block, of another Python thread, is still open and puts back for this one
                later = _open[at]
                later |= {path: max(count, later.get(path, 1)) for path, count in found.items()}
            else:
                for library in libraries:
                    if library.num_threads < found[library.filepath]:
                        _set(library, found[library.filepath])


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run with one thread of linear algebra unless a block around it decided by the sizes.

    Parameters
    ----------
    function : callable    no generator: a block would close before it runs
    """

    @wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with blas_threads():
            return function(*args, **kwargs)

    return alone


def length(array: Any, axis: int = 0) -> int:
    """Entries along an axis, of a list along its own; 0 where there is no telling.

    Parameters
    ----------
    array         of any kind, not checked yet
    axis : int    0 or a negative one
    """
    shape: tuple[int, ...] = getattr(array, "shape", ())
    if isinstance(array, (list, tuple)):
        shape = (len(array),)
    return int(shape[axis]) if len(shape) >= max(1, -axis) else int(shape[0]) if len(shape) else 0


def _gains(n_rows: int, n_inducing: int | None) -> bool:
    """Whether the largest product or factorisation of one step, n^3 or n m^2, is long enough for several threads."""
    m = n_rows if n_inducing is None else n_inducing
    return max(n_rows, m) * m * m >= _WORK


@lru_cache(maxsize=1)  # finding libraries takes two milliseconds; modules imported later may load another one
def _libraries(_modules: int) -> tuple[Any, ...]:
    """The libraries of linear algebra in this process, SciPy's first, which works on the largest matrices."""
    import scipy.linalg  # noqa: F401

    found = [value for value in ThreadpoolController().lib_controllers if value.user_api == "blas"]
    return tuple(sorted(found, key=lambda library: not _is_scipys(Path(library.filepath))))


def _is_scipys(path: Path) -> bool:
    return any(folder in ("scipy", "scipy.libs") for folder in path.parts[-3:-1])


def _set(library: Any, count: int) -> None:
    """Set the threads of a library, from any Python thread.

    Since threadpoolctl 3.8 the first Python thread that sets those of OpenBLAS keeps the right to do so, and others set
    nothing. The right is released before and after.
    """
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)
