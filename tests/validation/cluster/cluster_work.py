"""Work for jobs, in a module that other processes can import."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from validation.jobs.job import Folder


def draw(unit, hear):
    """Numbers that depend on the seed of the job alone."""
    seed, size, seconds = unit
    time.sleep(seconds)
    hear(("drew", seed))
    return np.random.default_rng(seed).standard_normal(size)


def die(unit, hear):
    """End the process for unit 1, answer for others."""
    if unit == 1:
        time.sleep(0.5)  # a nanny does not replace a process that dies before it has heard that it is up
        os.kill(os.getpid(), signal.SIGKILL)
    return unit


def loop(unit, hear):
    """Take for ever for unit 1."""
    while unit == 1:
        time.sleep(0.05)
    return unit


def fail(unit, hear):
    """Raise for unit 1."""
    if unit == 1:
        raise ArithmeticError("made up")
    return unit


def process(unit, hear):
    """The process that this runs in."""
    return os.getpid()


def read(unit, hear):
    """A file of a shared folder."""
    folder, name = unit
    assert isinstance(folder, Folder)
    path = Path(folder.at()) / name
    return path.read_text(), str(path)


def threads(unit, hear):
    """Threads of linear algebra inside a job."""
    import threadpoolctl

    return max(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")


def awake():
    """The process of a worker that has imported what jobs and sweeps need."""
    import validation.jobs.cluster  # noqa: F401

    return os.getpid()


def serve(pipe):
    """A scheduler with one worker until the process is killed."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False, protocol="tcp://",
                      silence_logs=50) as cluster:  # fmt: skip
        pipe.send(cluster.scheduler_address)
        pipe.recv()
