"""x-gpc on data in parts: one and two workers of this machine, messages counted, and a model for more of them.

The model of a sweep on W workers, a power of two, with n rows and m inducing points:

    n w / W + (1 + log2 W) (2 latency + 3 S / bandwidth) + 3 W s + u,   S = 8 (m (m + 1) / 2 + m + 1) bytes

for q on its way down and, at each level of the tree, two sums on their way up.

w seconds a row and u seconds to update q are measured here with one worker, s seconds a task of the scheduler on an
in-process cluster; latency and bandwidth are those of an ordinary network, stated below. Its messages, W - 1 copies
of q and 3 W / 2 - 2 sums from worker to worker at most, are counted on in-process clusters.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fast.core.values import Prior
from validation.bench.measure import Row
from validation.implementations.in_parts import part_rows, sweeps

ROWS, INDUCING, INPUTS = 1_000_000, 200, 8
SWEEPS = 3
LEAVES = 128  # at most; two workers have half of them each, while 13 leaves of 8192 rows would be 7 and 6
COUNTED = (8, 64)  # workers of in-process clusters
PREDICTED = (8, 64, 512)
LATENCY, BANDWIDTH = 5e-4, 1.25e9  # seconds a message; bytes a second, ten gigabit
_SMALL = 4096  # bytes of a message that carries no sum and no q
_BENCH = "scale"


class Timed(NamedTuple):
    """One run: seconds of each sweep, bytes and messages from worker to worker in a sweep."""

    seconds: tuple[float, ...]
    bytes: float
    messages: float
    largest: float  # bytes that one worker receives in a sweep
    busy: float  # seconds that the busiest worker computes in a sweep, of its processor
    serial: float  # seconds that the coordinator computes in a sweep, likewise
    bounds: Any  # after each sweep


def scale(n: int = ROWS, m: int = INDUCING, counted: Iterable[int] = COUNTED) -> Iterator[Row]:
    """Rows of the table, for n data in memory maps.

    n          rows
    m          inducing points
    counted    workers of the in-process clusters on which messages are counted
    """
    from distributed import Client

    from validation.jobs.cluster import connected, started

    with tempfile.TemporaryDirectory(prefix="triad-scale-") as folder:
        rows, prior = _data(Path(folder), n, m, leaf=-(-n // LEAVES))
        runs = {}
        for workers in (1, 2):
            before = _resident()
            with connected("local", jobs=workers) as cluster:
                runs[workers] = timed(rows, prior, cluster.client)
            grown = _resident() - before
            yield Row(_BENCH, f"seconds a sweep, n = {n}, m = {m}, {workers} workers", min(runs[workers].seconds), "s",
                      "", None)  # fmt: skip
            yield Row(_BENCH, f"memory of the coordinator gained, {workers} workers", grown / 2**20, "MiB",
                      "flat in n: below 64", grown < 2**26)  # fmt: skip
        one, two = (min(runs[workers].seconds) for workers in (1, 2))
        yield Row(_BENCH, "efficiency of two workers", one / (2.0 * two), "", ">= 0.9", one >= 1.8 * two)
        # beside other programs seconds say little: what has to be computed one after the other, of half of it all
        alone, halved = (runs[workers].busy + runs[workers].serial for workers in (1, 2))
        balance = alone / (2.0 * halved)
        yield Row(_BENCH, "efficiency of two workers, by processor time", balance, "", ">= 0.9", balance >= 0.9)
        yield Row(_BENCH, "processor time of the coordinator a sweep", runs[2].serial, "s", "", None)
        yield Row(_BENCH, "processor time of the busiest of two workers a sweep", runs[2].busy, "s", "", None)
        same = runs[1].bounds.tobytes() == runs[2].bounds.tobytes()
        yield Row(_BENCH, "bounds of one and of two workers differ in bits", float(not same), "", "0", same)
        most = 3 * 8 * m * m
        yield Row(_BENCH, "bytes that a worker receives in a sweep, two workers", runs[2].largest, "B",
                  f"<= 3 x 8 m^2 = {most}", runs[2].largest <= most)  # fmt: skip
    update = _update_seconds(m)
    per_row = max(one - update, 0.0) / n
    task = 0.0
    message = 8 * (m * (m + 1) // 2 + m + 1)
    with tempfile.TemporaryDirectory(prefix="triad-scale-") as folder:
        for workers in counted:
            small, prior = _data(Path(folder) / str(workers), 32 * workers, m, leaf=32)
            with started(workers, processes=False) as local, Client(local, set_as_default=False) as client:
                result = timed(small, prior, client)
            sent = workers - 1 + 3 * workers // 2 - 2
            yield Row(_BENCH, f"messages of a sweep, {workers} in-process workers", result.messages, "",
                      f"at most {sent}", result.messages <= 1.05 * sent)  # fmt: skip
            yield Row(_BENCH, f"bytes of a sweep, {workers} in-process workers", result.bytes, "B",
                      f"at most {sent * message}", result.bytes <= 1.05 * sent * message)  # fmt: skip
            yield Row(_BENCH, f"bytes that a worker receives, {workers} in-process workers", result.largest, "B",
                      f"<= 3 x 8 m^2 = {most}", result.largest <= most)  # fmt: skip
            # one process computes for all of them; what a sweep takes beyond that is the scheduler's
            alone = min(_alone(small, prior))
            task = max(task, (min(result.seconds) - alone) / (3 * workers))
    for workers in PREDICTED:
        levels = 1 + float(np.log2(workers))
        moved = levels * (2 * LATENCY + 3 * message / BANDWIDTH) + 3 * workers * task + update
        for rows_of_all in (n, 100 * n):
            seconds = rows_of_all * per_row / workers + moved
            share = (rows_of_all * per_row + update) / (workers * seconds)
            yield Row(
                _BENCH, f"predicted seconds a sweep, n = {rows_of_all}, {workers} workers", seconds, "s", "", None
            )
            yield Row(_BENCH, f"predicted efficiency, n = {rows_of_all}, {workers} workers", share, "", "", None)
    floor = f"model: latency {LATENCY:g} s, bandwidth {BANDWIDTH:g} B/s, {message} B a sum, update {update:.3g} s"
    yield Row(_BENCH, "seconds a task of the scheduler", task, "s", "", None, (floor,))


def timed(rows: Any, prior: Prior, client: Any) -> Timed:
    """Some sweeps; messages of all but the first, which fetches code and data as well.

    rows, prior    the question
    client         of the cluster
    """
    ends: list[float] = []
    own: list[float] = []
    logs: list[dict[str, tuple[int, int, float]]] = []

    def after(sweep: int, bound: float, step: float) -> None:
        ends.append(time.perf_counter())
        own.append(time.thread_time())
        logs.append(client.run(_received))
        ends.append(time.perf_counter())
        own.append(time.thread_time())

    bounds = sweeps("x-gpc", rows, prior, SWEEPS, after, client=client)
    seconds = tuple(ends[2 * k] - ends[2 * k - 1] for k in range(1, SWEEPS))
    first, last = logs[0], logs[-1]
    counts = [tuple(b - a for a, b in zip(first[w], last[w], strict=True)) for w in last]
    counted = SWEEPS - 1
    return Timed(
        seconds,
        sum(size for size, *_ in counts) / counted,
        sum(number for _, number, _ in counts) / counted,
        max(size for size, *_ in counts) / counted,
        max(spent for *_, spent in counts) / counted,
        float(np.mean([own[2 * k] - own[2 * k - 1] for k in range(1, SWEEPS)])),
        bounds,
    )


def _received(dask_worker: Any) -> tuple[int, int, float]:
    """Bytes and messages that a worker has fetched from others so far, and the processor time of its tasks' threads.

    What a worker's process spends besides (heartbeats) grows with the clock, not with the work.
    """
    sizes = [
        int(size)
        for entry in dask_worker.transfer_incoming_log
        for size in entry["keys"].values()
        if size and size > _SMALL
    ]
    # on Linux; elsewhere all that the process spends
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return sum(sizes), len(sizes), time.process_time()
    tasks = [thread.ident for thread in threading.enumerate() if "Dask-Default-Threads" in thread.name]
    spent = sum(time.clock_gettime(clock_of(ident)) for ident in tasks)
    return sum(sizes), len(sizes), spent


def _alone(rows: Any, prior: Prior) -> list[float]:
    """Seconds of sweeps in this process."""
    ends = [time.perf_counter()]
    sweeps("x-gpc", rows, prior, SWEEPS, lambda *_: ends.append(time.perf_counter()))
    return [b - a for a, b in pairwise(ends[1:])]


def _update_seconds(m: int) -> float:
    """What the coordinator does between two sweeps: of a sweep over one row, nearly all."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((m, INPUTS))
    return min(_alone(part_rows(Z[:1], np.zeros(1, dtype=np.int8)), _prior(Z)))


def _prior(Z: np.ndarray[Any, Any]) -> Prior:
    return Prior(2.0, np.full(INPUTS, 2.0), 0.05, 1e-6, Z)


def _data(folder: Path, n: int, m: int, leaf: int) -> tuple[Any, Prior]:
    """n rows in memory maps, drawn block by block."""
    folder.mkdir(parents=True, exist_ok=True)
    X = np.memmap(folder / "X", dtype=np.float64, mode="w+", shape=(n, INPUTS))
    y = np.memmap(folder / "y", dtype=np.int8, mode="w+", shape=(n,))
    rng = np.random.default_rng(1)
    for start in range(0, n, 65536):
        block = rng.standard_normal((min(65536, n - start), INPUTS))
        X[start : start + 65536] = block
        y[start : start + 65536] = rng.random(block.shape[0]) < 1.0 / (1.0 + np.exp(-2.0 * block[:, 0] * block[:, 1]))
    X.flush()
    y.flush()
    maps = (
        np.memmap(folder / "X", dtype=np.float64, mode="r", shape=(n, INPUTS)),
        np.memmap(folder / "y", dtype=np.int8, mode="r", shape=(n,)),
    )
    return part_rows(*maps, leaf=leaf), _prior(np.random.default_rng(2).standard_normal((m, INPUTS)))


def _resident() -> int:
    """Resident memory of this process now, in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)
