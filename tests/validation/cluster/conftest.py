"""A cluster in this process, for tests that need no process of their own; skipped by name where Dask is not there."""

import os
import sys
from pathlib import Path

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
