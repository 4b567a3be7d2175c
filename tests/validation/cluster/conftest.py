"""A cluster in this process, for tests that need no process of their own; skipped by name where Dask is not there."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="distributed is not installed (extra gpc-triad[cluster])")

from validation.jobs.cluster import Cluster, started  # noqa: E402

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


class Killer(threading.Thread):
    """Kills a worker at a random moment, waits until there are as many as before, and again."""

    def __init__(self, client, count, seed):
        super().__init__(daemon=True)
        self.client, self.count, self.rng = client, count, np.random.default_rng(seed)
        self.ended, self.kills = threading.Event(), 0

    def run(self):
        while not self.ended.is_set():
            if len(self.client.nthreads()) < self.count:
                time.sleep(0.05)
                continue
            if self.ended.wait(float(self.rng.uniform(0.0, 0.8))):
                return
            pids = list(self.client.run(os.getpid, on_error="ignore").values())
            if len(pids) == self.count:
                os.kill(int(self.rng.choice(pids)), signal.SIGKILL)
                self.kills += 1
                while len(self.client.nthreads()) == self.count and not self.ended.is_set():
                    time.sleep(0.01)


@pytest.fixture
def killing():
    """(client, count, seed) -> a context in which workers die, with the number of deaths so far."""

    @contextmanager
    def of(client, count, seed):
        killer = Killer(client, count, seed)
        killer.start()
        try:
            yield killer
        finally:
            killer.ended.set()
            killer.join()

    return of


SCHEDULER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False, protocol="tcp://",
                      silence_logs=50) as c:
        print(c.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def scheduler_process():
    """(process, address) of a scheduler with one worker, to be killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCHEDULER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def kills_wanted():
    """Deaths of workers until a test is content; each costs the start of a process."""
    return int(os.environ.get("TRIAD_KILLS", "30"))
