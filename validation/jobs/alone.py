"""A process for one job, killed when it is out of patience: what it changes in itself ends with it.

`fresh` starts processes of this machine, a few at once. On a worker of a cluster, which may have no children of
`multiprocessing`, `in_subprocess` runs this module as a program: the job comes through its standard input, which stays
open as long as the worker lives, the answer goes through its standard output.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from threadpoolctl import threadpool_limits

from validation.jobs import processes
from validation.jobs.job import Job, JobLostError, OutOfPatienceError, Work, add_copies, copies

# libraries that the witnesses and the checks import, seconds for each job otherwise; no witness: mutants replace those
_PRELOADED = (
    "numpy", "scipy.linalg", "scipy.special", "scipy.optimize", "scipy.stats", "scipy.integrate", "scipy.signal",
    "pandas", "emcee", "arviz_stats.base", "sklearn.base", "sklearn.cluster", "sklearn.datasets",
    "sklearn.utils.estimator_checks", "matplotlib.figure", "matplotlib.backends.backend_svg", "mpl_toolkits.mplot3d",
    "mpmath", "jinja2", "rich.progress", "typer", "unittest.mock",
)  # fmt: skip

Found = tuple[Job, Any, float, JobLostError | None]


def fresh(work: Work, jobs: Sequence[Job], *, at_once: int, threads: int) -> Iterator[Found]:
    """(job, value, seconds, how it was lost) as processes of this machine end."""
    fork = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    start: Any = multiprocessing.get_context(fork)
    if fork == "forkserver":
        start.set_forkserver_preload(list(_PRELOADED))
    waiting = sorted(jobs, key=lambda job: -job.cost)
    running: dict[int, tuple[Any, Any, Job, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                ours, theirs = start.Pipe(duplex=False)
                process = start.Process(target=_answer, args=(theirs, work, job.unit, threads), daemon=True)
                process.start()
                theirs.close()
                running[process.pid] = (process, ours, job, time.perf_counter())
            yield from _finished(running)
    finally:
        for process, *_ in running.values():
            process.kill()


def _finished(running: dict[int, tuple[Any, Any, Job, float]]) -> Iterator[Found]:
    multiprocessing.connection.wait([pipe for _, pipe, *_ in running.values()], timeout=1.0)
    for number, (process, pipe, job, started) in list(running.items()):
        spent = time.perf_counter() - started
        value, error, lost = None, None, None
        if pipe.poll():
            try:
                value, error = pipe.recv()
            except EOFError:
                process.join()
                lost = JobLostError(f"the process ended with {process.exitcode}")
        elif job.patience is not None and spent > job.patience:
            lost = OutOfPatienceError(f"no answer after {spent:.0f} s")
        else:
            continue
        process.kill()
        process.join()
        pipe.close()
        del running[number]
        if error is not None:
            raise error
        yield job, value, spent, lost


def _answer(pipe: Any, work: Work, unit: Any, threads: int) -> None:
    """In the fresh process, which ends with the one that started it, however that ended."""
    threading.Thread(target=processes.end_with_parent, daemon=True).start()
    try:
        with threadpool_limits(limits=threads):
            pipe.send((work(unit, _nobody), None))
    except Exception as error:  # noqa: BLE001 - raised again by whoever asked
        pipe.send((None, error))
    finally:
        pipe.close()


def _nobody(event: Any) -> None:
    """Nobody listens to a process of one job."""


# -- on a worker -------------------------------------------------------------------------------------------------


def in_subprocess(work: Work, unit: Any, *, patience: float, threads: int) -> Any:
    """The value of one job, worked by a program of its own.

    Raises
    ------
    JobLostError, OutOfPatienceError    if it ended without an answer, or was ended
    """
    content = pickle.dumps((work, unit, threads, copies()))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "validation.jobs.alone"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    timer = threading.Timer(patience, process.kill)
    timer.start()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(struct.pack(">Q", len(content)) + content)
            process.stdin.flush()
        except OSError:  # it ended before it had read its job: what it left says why
            pass
        answer = process.stdout.read()
        expired = not timer.is_alive()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what could not be written is not written when it is closed either
                    continue
    if not answer:
        if expired:
            raise OutOfPatienceError(f"no answer after {patience:.0f} s")
        raise JobLostError(f"the process ended with {process.returncode}")
    value, error = pickle.loads(answer)
    if error is not None:
        raise error
    return value


def _program() -> None:
    """Read a job, answer it, end; end as well when the worker does."""
    # what the work prints must not come between the bytes of the answer
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    size = struct.unpack(">Q", sys.stdin.buffer.read(8))[0]
    work, unit, threads, known = pickle.loads(sys.stdin.buffer.read(size))
    threading.Thread(target=_end_with_worker, daemon=True).start()
    add_copies({digest: Path(path) for digest, path in known.items()})
    try:
        with threadpool_limits(limits=threads):
            answer: tuple[Any, Exception | None] = (work(unit, _nobody), None)
    except Exception as error:  # noqa: BLE001 - raised again by the worker
        answer = (None, error)
    answers.write(pickle.dumps(answer))
    answers.flush()
    os._exit(0)


def _end_with_worker() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    _program()
