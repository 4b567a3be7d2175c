"""Work spread over processes: a set number of threads of linear algebra each, nothing left running, no lost result."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits

# Variables by which the usual linear algebra libraries are told how many threads to start.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

# Told of whatever the work tells, in the process that started it.
Hear = Callable[[Any], None]


def spread(
    work: Callable[[Any, Hear], Any],
    units: Sequence[Any],
    costs: Sequence[float],
    *,
    jobs: int | None,
    listen: Hear,
    threads: int = 1,
) -> Generator[tuple[int, Any], None, None]:
    """Yield (index, work(unit, listen)) as units get done, the costliest first.

    With more than one job the units run in fresh processes, and what they tell `listen` arrives here. A process that
    dies gives its exception in place of an answer. Linear algebra has `threads` in each process, whatever the number of
    jobs, so that numbers do not depend on it. On an interrupt the processes are stopped before it is raised again.
    """
    jobs = min(default_jobs() if jobs is None else jobs, max(1, len(units)))
    if jobs < 1:
        raise ValueError(f"jobs: found {jobs}, expected at least 1")
    if threads < 1:
        raise ValueError(f"threads: found {threads}, expected at least 1")
    order = sorted(range(len(units)), key=lambda i: -costs[i])
    if jobs == 1:
        with threadpool_limits(limits=threads):
            for i in order:
                yield i, work(units[i], listen)
        return
    yield from _spread_over_processes(work, units, order, jobs, listen, threads)


def default_jobs() -> int:
    """Two, or one on a machine with one core."""
    return min(2, os.cpu_count() or 1)


def linear_algebra_threads() -> int:
    """Threads of linear algebra in this process."""
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def _spread_over_processes(
    work: Callable[[Any, Hear], Any],
    units: Sequence[Any],
    order: Sequence[int],
    jobs: int,
    listen: Hear,
    threads: int,
) -> Iterator[tuple[int, Any]]:
    spawn = multiprocessing.get_context("spawn")
    events = spawn.SimpleQueue()
    hearing = threading.Thread(target=_hear, args=(events, listen), daemon=True)
    before = set(multiprocessing.active_children())
    with _environment_of(threads):
        pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_start_process, initargs=(events, threads))
        hearing.start()
        broken = False
        try:
            with _deaf():  # the processes start at the first of these
                futures: dict[Future[Any], int] = {pool.submit(_in_process, work, units[i]): i for i in order}
            for future in as_completed(futures):
                error = future.exception()
                if isinstance(error, KeyboardInterrupt):
                    raise error
                if error is not None and not isinstance(error, BrokenProcessPool):
                    # a defect of the machinery, not of a check: those were turned into answers where they arose
                    raise error
                broken = broken or error is not None
                yield futures[future], error if error is not None else future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        else:
            pool.shutdown()
            if not broken:  # a process that was killed may have taken the lock of the queue with it
                events.put(None)  # everything that was told stands before this
                hearing.join()


def _hear(events: Any, listen: Hear) -> None:
    while (event := events.get()) is not None:
        listen(event)


_events: Any = None
_threads = 1


def _start_process(events: Any, threads: int) -> None:
    """In a fresh process: an interrupt is for the parent, which stops its children; without a parent they end."""
    global _events, _threads
    _events, _threads = events, threads
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """For a thread: wait for the end of the process that started this one, and end it too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _in_process(work: Callable[[Any, Hear], Any], unit: Any) -> Any:
    with threadpool_limits(limits=_threads):
        return work(unit, _events.put)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started inside never hear an interrupt, not even while they load; the parent hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: `_start_process` alone has to do
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment_of(threads: int) -> Iterator[None]:
    """Processes started inside have this many threads for linear algebra."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
