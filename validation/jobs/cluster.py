"""Jobs on the workers of a Dask cluster: no more of them under way than there are workers, the costliest first.

The scheduler gives a job of a worker that died to another one, up to the number of deaths that its setting
`distributed.scheduler.allowed-failures` grants. `local` starts a cluster here that gives a job up when it has cost
three workers.
A process works one job at a time, however many threads its worker has: the threads of linear algebra are the process's.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from validation.door.quoting import shown
from validation.jobs import alone
from validation.jobs import place as places
from validation.jobs.job import (
    ClusterError,
    Done,
    Folder,
    Hear,
    Job,
    JobLostError,
    OutOfPatienceError,
    Work,
    add_copies,
    contents,
)
from validation.jobs.place import Place
from validation.jobs.processes import default_jobs

LOCAL = "local"
LOOPBACK = "127.0.0.1"  # what `local` listens on
SCHEMES = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
DEATHS = 3  # of workers, after which `local` gives a job up
CONNECTING = 20  # seconds to wait for a scheduler
WITHOUT_WORKERS = 120.0  # seconds to wait for a worker while there is none
_LOOK = 0.5  # seconds between two looks at who is there


class Cluster:
    """An engine of `validation.jobs.run`: the workers of a Dask client.

    client     of the cluster
    threads    of linear algebra in each worker while it works a job
    """

    def __init__(self, client: Any, threads: int = 1) -> None:
        self.client, self.threads = client, threads
        self.address = str(client.scheduler.address)
        self._done_of = (0, 0)  # of the list that is worked, for messages: jobs done, all jobs

    def spread(
        self, work: Work, jobs: Sequence[Job], listen: Hear, shared: Folder | None = None
    ) -> Generator[Done, None, None]:
        """Yield jobs as they get done; what they told arrives with their answers.

        Raises
        ------
        ClusterError    the scheduler is lost, there is no worker, or one has other code than this process
        """
        self.check_workers()
        content = None
        if shared is not None:
            # each worker fetches it once, from whoever has it
            packed = [(shared.digest, contents(shared.at()))]
            (content,) = self._answered(partial(self.client.scatter, packed, hash=False))
        waiting = deque(sorted(jobs, key=lambda job: -job.cost))
        flying: dict[Any, Job] = {}
        ended = threading.Event()
        list_id, present, someone = uuid.uuid4().hex[:8], 1, time.monotonic()
        self._done_of = (0, len(jobs))
        try:
            while waiting or flying:
                present = self._workers(present)
                someone = time.monotonic() if present else someone
                if time.monotonic() - someone > WITHOUT_WORKERS:
                    raise self._nobody()
                while waiting and len(flying) < max(present, 1):
                    job = waiting.popleft()
                    future = self._submit(work, job, content, list_id)
                    flying[future] = job
                    future.add_done_callback(lambda _: ended.set())
                ended.wait(_LOOK)
                ended.clear()
                for future in [future for future in flying if future.done()]:
                    job = flying.pop(future)
                    done = self._done(job, future)
                    future.release()
                    self._done_of = (self._done_of[0] + 1, len(jobs))
                    for event in done.value.events if done.lost is None else ():
                        listen(event)
                    yield (
                        done
                        if done.lost is not None
                        else Done(job, done.value.value, done.value.place, done.value.seconds)
                    )
        finally:
            if flying and self.client.status == "running":
                self.client.cancel(list(flying), force=True)

    def check_workers(self) -> tuple[Place, ...]:
        """Where jobs will be worked; what differs in versions or kernels is for the report, other code is refused.

        Raises
        ------
        ClusterError    naming the worker and what differs
        """
        waited = time.monotonic()
        while not self._workers():
            if time.monotonic() - waited > WITHOUT_WORKERS:
                raise self._nobody()
            time.sleep(_LOOK)
        mine, results = places.here(), []
        for worker, answer in self._answered(partial(self.client.run, _here, on_error="return")).items():
            if isinstance(answer, OSError):  # it has died meanwhile; each job asks where it is, too
                continue
            if not isinstance(answer, Place):
                raise ClusterError(
                    f"worker {worker}: found {type(answer).__name__}: {answer}, "
                    f"expected gpc-triad as on the coordinator: {mine.describe()}"
                )
            place = answer._replace(worker=str(worker))
            _same_code(place, mine)
            results.append(place)
        return tuple(results)

    def _answered(self, ask: Callable[[], Any]) -> Any:
        """What a call of the client brings. One that is under way when the scheduler goes may never return."""
        answer: Future[Any] = Future()

        def call() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - raised again by whoever asked
                answer.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        while True:
            try:
                return answer.result(_LOOK)
            except TimeoutError:
                if answer.done():  # in this moment
                    return answer.result()
                if self.client.status != "running":
                    raise self._lost(f"client {self.client.status}") from None

    def _workers(self, before: int = 0) -> int:
        """How many there are, and may work a job each: so the death of one takes no other job with it.

        before    the number where the scheduler has no time to answer
        """
        try:
            return len(self._answered(self.client.nthreads))
        except OSError as error:
            if self.client.status != "running":
                raise self._lost(f"{type(error).__name__}: {error}") from error
            return before

    def _submit(self, work: Work, job: Job, content: Any, list_id: str) -> Any:
        how = _How(work, job.unit, self.threads, job.patience, places.here())
        return self.client.submit(_on_worker, how, content, key=f"triad-{job.name}-{list_id}", pure=False)

    def _done(self, job: Job, future: Any) -> Done:
        from distributed import KilledWorker

        if future.cancelled() or future.status == "lost":
            raise self._lost(f"{job.name} was cancelled")
        error = self._answered(future.exception)
        if error is None:
            return Done(job, self._answered(future.result), None, 0.0)
        if isinstance(error, KilledWorker):
            last = error.last_worker.address
            deaths = error.allowed_failures + 1
            lost = JobLostError(f"{job.name} cost {deaths} workers their lives, the last one {last}; it was given up")
            return Done(job, None, None, 0.0, lost)
        if isinstance(error, JobLostError):
            return Done(job, None, None, 0.0, error)
        raise error

    def _so_far(self) -> str:
        finished, count = self._done_of
        return f" with {finished} of {count} jobs done" if count else ""

    def _nobody(self) -> ClusterError:
        return ClusterError(
            f"{self.address}: found no worker for {WITHOUT_WORKERS:.0f} s{self._so_far()}, expected at least one"
        )

    def _lost(self, why: str) -> ClusterError:
        return ClusterError(
            f"{self.address}: found the scheduler lost ({why}){self._so_far()}, "
            "expected it to answer; results that were kept are on the disk: the same command goes on from there"
        )


def _same_code(place: Place, mine: Place) -> None:
    if place.code != mine.code:
        raise ClusterError(
            f"worker {place.worker}: found {'; '.join(place.differences(mine))} of the coordinator, "
            "expected the same code"
        )


# -- clusters ------------------------------------------------------------------------------------------------------


@contextmanager
def connected(address: str, *, jobs: int | None = None, threads: int = 1) -> Iterator[Cluster]:
    """A cluster by the address of its scheduler, or one of processes started here for as long as this lasts.

    Raises
    ------
    ValueError       for an address that is none, or without the packages
    ClusterError     if nobody answers there
    """
    if address != LOCAL and not address.startswith(SCHEMES):
        raise ValueError(
            f"cluster: found {shown(address)}, expected {LOCAL}, or the address of a scheduler as tcp://host:8786"
        )
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError(
            f"cluster: found no package {error.name}, expected the extra gpc-triad[cluster] to be installed"
        ) from error
    if address == LOCAL:
        with (
            started(default_jobs() if jobs is None else jobs) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield Cluster(client, threads)
        return
    if jobs is not None:
        raise ValueError(
            f"jobs: found {jobs} with a scheduler's address, expected none: its workers are as many as they are"
        )
    try:
        client = Client(address, timeout=CONNECTING, set_as_default=False)
    except OSError as error:
        raise ClusterError(f"{address}: found nobody who answers ({error}), expected a Dask scheduler") from error
    with client, _without_tracebacks():
        yield Cluster(client, threads)


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """A client whose scheduler goes writes a traceback of its own beside the error that says so."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def started(count: int, *, processes: bool = True, protocol: str | None = None) -> Iterator[Any]:
    """A cluster of this machine: so many workers with one thread each, a job given up at three deaths.

    Every process of it listens on 127.0.0.1 alone, and none serves a dashboard.

    count        workers
    processes    whether each is a process, or all are in this one
    protocol     "tcp://" for workers of other processes to join those in this one; None: as `processes` needs
    """
    import dask
    from distributed import Nanny, Scheduler, SpecCluster, Worker

    settings = {
        "distributed.scheduler.allowed-failures": DEATHS - 1,
        # who is not there fifteen seconds after a death, of a death since then or on a slow machine, would be given up
        # for ever: a nanny brings it back
        "distributed.deploy.lost-worker-timeout": "1000 days",
        # work stays beside its data, and messages can be counted
        "distributed.scheduler.work-stealing": False,
        # a hundred looks a second at what each thread does, for pictures that nobody sees here
        "distributed.worker.profile.enabled": False,
        # a worker that is short of memory is the machine's affair: pausing and ending it would look like a fault
        "distributed.worker.memory.terminate": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
    }
    protocol = protocol or ("tcp://" if processes else "inproc://")
    # without a dashboard there is still a server of health and metrics: it takes all interfaces unless told otherwise
    place = {"protocol": protocol, "dashboard": False, "dashboard_address": f"{LOOPBACK}:0"}
    if not protocol.startswith("inproc"):  # which has no interface
        place["host"] = LOOPBACK
    worker = {
        "cls": Nanny if processes else Worker,
        "options": {**place, "nthreads": 1, "memory_limit": 0, "silence_logs": 50},
    }
    with (
        dask.config.set(settings),
        SpecCluster(
            scheduler={"cls": Scheduler, "options": {**place, "port": 0}},
            worker=worker,
            workers=dict.fromkeys(range(count), worker),
            silence_logs=50,
        ) as cluster,
    ):
        yield cluster


# -- on a worker ---------------------------------------------------------------------------------------------------


class _How:
    """What a worker needs to work one job."""

    def __init__(self, work: Work, unit: Any, threads: int, patience: float | None, coordinator: Place) -> None:
        self.work, self.unit, self.threads = work, unit, threads
        self.patience, self.coordinator = patience, coordinator


class _Answer:
    """What comes back: the value, what was told meanwhile, where and how long."""

    def __init__(self, value: Any, events: list[Any], place: Place, seconds: float) -> None:
        self.value, self.events, self.place, self.seconds = value, events, place, seconds


_one_at_a_time = threading.Lock()


def _here() -> Place:
    return places.here()


def _on_worker(how: _How, content: tuple[str, dict[str, bytes]] | None) -> _Answer:
    from distributed import get_worker

    worker = get_worker()
    place = places.here(str(worker.address))
    _same_code(place, how.coordinator)
    if content is not None:
        _unpack(Path(worker.local_directory), *content)
    events: list[Any] = []
    started = time.perf_counter()
    if how.patience is not None:
        try:
            value = alone.in_subprocess(how.work, how.unit, patience=how.patience, threads=how.threads)
        except (OutOfPatienceError, JobLostError) as error:
            raise type(error)(f"{error} (worker {worker.address})") from None
    else:
        with _one_at_a_time, threadpool_limits(limits=how.threads):
            value = how.work(how.unit, events.append)
    return _Answer(value, events, place, time.perf_counter() - started)


def _unpack(folder: Path, digest: str, files: dict[str, bytes]) -> None:
    """A copy of the coordinator's folder, made once a worker, whole or not at all."""
    path = folder / f"triad-{digest[:24]}"
    if not path.is_dir():
        part = folder / f".triad-{digest[:24]}.{uuid.uuid4().hex[:8]}"
        for name, content in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(content)
        try:
            part.rename(path)
        except OSError:  # another thread was faster
            shutil.rmtree(part, ignore_errors=True)
            if not path.is_dir():
                raise
    add_copies({digest: path})
