"""Clusters in this process, and one of two worker processes; skipped by name where Dask is not there."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="distributed is not installed (extra gpc-triad[cluster])")

from validation.jobs.cluster import Cluster, connected, started  # noqa: E402

PATIENCE = 90  # seconds until a worker that does not come back is taken for lost
HERE = str(Path(__file__).resolve().parent)


@pytest.fixture(autouse=True, scope="session")
def found_by_workers():
    """Workers find the modules of the checkout, and `cluster_work` beside the tests."""
    root = str(Path(__file__).resolve().parents[3])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (HERE, root, before)))
    sys.path.insert(0, HERE)
    yield
    sys.path.remove(HERE)
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def clients():
    """count -> a client of so many workers in this process, kept for the module."""
    opened = {}

    def of(count):
        if count not in opened:
            context = started(count, processes=False)
            cluster = context.__enter__()
            opened[count] = (context, distributed.Client(cluster, set_as_default=False))
        return opened[count][1]

    yield of
    for context, client in opened.values():
        client.close()
        context.__exit__(None, None, None)


@pytest.fixture
def engines(clients):
    """count -> an engine with so many workers."""
    return lambda count: Cluster(clients(count))


@pytest.fixture(scope="session")
def processes(found_by_workers):
    """A context of processes that are forked from one which has the libraries, or of fresh ones where none can be.

    No witness among the libraries: other tests of this process may use the same fork server for mutants.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["scipy.linalg", "scipy.special", "scipy.optimize", "distributed", "dask.array"])
    return context


@pytest.fixture(scope="session")
def quick(processes):
    """Workers start from the fork server, and who asks a dead one learns it soon: Dask tries for thirty seconds.

    A live worker that a loaded machine keeps from answering so long is asked again, by Dask or by the engines.
    """
    import dask

    settings = {
        "distributed.worker.multiprocessing-method": processes.get_start_method(),
        "distributed.comm.timeouts.connect": "5s",
    }
    # Dask must not replace what the fork server loads
    if hasattr(distributed.utils, "_forkserver_preload_set"):
        distributed.utils._forkserver_preload_set = True
    with dask.config.set(settings):
        yield


@pytest.fixture(scope="session")
def _two(quick):
    """() -> the cluster of this session; a new one after `_two().close()`."""
    opened = []

    class Opened:
        def __init__(self):
            self._context = connected("local", jobs=2)
            self.who = self._context.__enter__()

        def close(self):
            opened.remove(self)
            self._context.__exit__(None, None, None)

    def of():
        if not opened:
            opened.append(Opened())
        return opened[0]

    yield of
    if opened:
        opened[0].close()


@pytest.fixture
def two_processes(_two):
    """An engine with two worker processes, both there; tests may kill them, others come in their place."""
    since = time.monotonic()
    while len(replaceable(_two().who.client)) < 2:
        time.sleep(0.05)
        if time.monotonic() - since > PATIENCE:  # a nanny gives up whose process does not find the scheduler in time
            _two().close()
            since = time.monotonic()
    return _two().who


def replaceable(client):
    """Addresses of workers that the scheduler has and that their nannies know to be up.

    A nanny replaces a process that it knows to be up, none that dies on its way there.
    """
    nannies = client.cluster.workers.values()
    up = {nanny.worker_address for nanny in nannies if nanny.process and nanny.process.status.name == "running"}
    return sorted(up & client.nthreads().keys())


class Killer(threading.Thread):
    """Kills a worker at a random moment, waits until there are as many as before and the run has moved, and again.

    Who runs something calls `moved` at every step: on a slow machine deaths would otherwise come faster than steps.
    A worker that came in a dead one's place imports what it needs before the next moment is drawn: a job would
    otherwise cost three workers their lives while they start, and be given up.
    """

    def __init__(self, client, count, seed, most):
        super().__init__(daemon=True)
        self.client, self.count, self.rng, self.most = client, count, np.random.default_rng(seed), most
        self.ended, self.kills, self._steps = threading.Event(), 0, threading.Event()
        self._steps.set()

    def moved(self, *_):
        self._steps.set()

    def wants_more(self):
        """Whether there are deaths to come; a worker that does not come back is an error, no wait."""
        assert self.is_alive() or self.kills == self.most, f"no worker came in a dead one's place for {PATIENCE} s"
        return self.kills < self.most

    def run(self):
        import cluster_work

        there = time.monotonic()
        while not self.ended.is_set() and self.kills < self.most:
            workers = replaceable(self.client)
            there = time.monotonic() if len(workers) == self.count else there
            if time.monotonic() - there > PATIENCE:
                self.ended.set()
            if len(workers) < self.count or not self._steps.is_set():
                self.ended.wait(0.05)
                continue
            pids = self.client.run(cluster_work.awake, workers=workers)
            if self.ended.wait(float(self.rng.uniform(0.0, 0.8))):
                return
            victim = workers[self.rng.integers(self.count)]
            self._steps.clear()
            os.kill(pids[victim], signal.SIGKILL)
            self.kills += 1
            while victim in replaceable(self.client) and not self.ended.is_set():
                time.sleep(0.01)


@pytest.fixture
def killing():
    """(client, count, seed, most) -> a context in which so many workers die."""

    @contextmanager
    def of(client, count, seed, most):
        killer = Killer(client, count, seed, most)
        killer.start()
        try:
            yield killer
        finally:
            killer.ended.set()
            killer.join()

    return of


@pytest.fixture
def scheduler_process(processes, quick):
    """(process, address) of a scheduler with one worker, to be killed."""
    import cluster_work

    here, there = processes.Pipe()
    process = processes.Process(target=cluster_work.serve, args=(there,))
    process.start()
    there.close()
    try:
        yield process, here.recv()
    finally:
        process.kill()
        process.join()
        here.close()


@pytest.fixture
def worker_process(quick):
    """(scheduler's address, cwd, **changes of the environment) -> a worker that is a program of its own.

    Kernels of linear algebra are chosen when the library is loaded, code is what the path finds: both need a fresh
    interpreter.
    """
    import subprocess

    opened = []

    def of(address, cwd=None, **environment):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard",
                   "--no-nanny"]  # fmt: skip
        quiet = subprocess.DEVNULL
        opened.append(subprocess.Popen(command, cwd=cwd, env=os.environ | environment, stdout=quiet, stderr=quiet))

    yield of
    for process in opened:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def kills_wanted():
    """Deaths of workers until a test is content; each costs the start of a process."""
    return int(os.environ.get("TRIAD_KILLS", "30"))
