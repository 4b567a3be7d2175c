"""The door: a list of jobs, an engine that works them, a store that keeps what comes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

from validation.jobs import alone, processes
from validation.jobs import place as places
from validation.jobs.job import Done, Folder, Hear, Job, JobLostError, Work, check_names
from validation.jobs.store import Store


class Engine(Protocol):
    """Who works jobs."""

    def spread(
        self, work: Work, jobs: Sequence[Job], listen: Hear, shared: Folder | None = None
    ) -> Generator[Done, None, None]:
        """Yield jobs as they get done; `shared` is a folder that each of them reads."""
        ...


class Processes:
    """Processes of this machine: reused from job to job, or one for each where jobs have a patience.

    jobs       how many, by default the smaller of 2 and the number of cores; 1 stays in this process where it can
    threads    of linear algebra in each
    """

    def __init__(self, jobs: int | None = None, threads: int = 1) -> None:
        self.jobs, self.threads = jobs, threads

    def spread(
        self, work: Work, jobs: Sequence[Job], listen: Hear, shared: Folder | None = None
    ) -> Generator[Done, None, None]:
        """Yield jobs as they get done. The folder is where it is."""
        here = places.here()
        patient = [job for job in jobs if job.patience is not None]
        if patient:
            if len(patient) < len(jobs):
                raise ValueError(f"jobs: found {len(patient)} of {len(jobs)} with a patience, expected all or none")
            count = processes.default_jobs() if self.jobs is None else self.jobs
            for job, value, seconds, lost in alone.fresh(work, jobs, at_once=count, threads=self.threads):
                yield Done(job, value, None if lost else here, seconds, lost)
            return
        units = [(work, job.unit) for job in jobs]
        costs = [job.cost for job in jobs]
        with closing(
            processes.spread(timed, units, costs, jobs=self.jobs, listen=listen, threads=self.threads)
        ) as result:
            for index, outcome in result:
                if isinstance(outcome, BaseException):
                    text = (
                        f"the process that worked on {jobs[index].name} was lost ({type(outcome).__name__}: {outcome})"
                    )
                    yield Done(jobs[index], None, None, 0.0, JobLostError(text))
                else:
                    value, seconds = outcome
                    yield Done(jobs[index], value, here, seconds)


def timed(unit: tuple[Work, Any], listen: Hear) -> tuple[Any, float]:
    """The value of a job and its seconds."""
    import time

    work, own = unit
    started = time.perf_counter()
    value = work(own, listen)
    return value, time.perf_counter() - started


@contextmanager
def engine(cluster: str | None, *, jobs: int | None = None, threads: int = 1) -> Iterator[Engine]:
    """Who works the jobs of a command: a Dask cluster by its address, or "local"; without one, processes.

    Raises
    ------
    ValueError       for an address that is none, or without the packages
    ClusterError     if nobody answers there
    """
    if cluster is None:
        yield Processes(jobs, threads)
        return
    from validation.jobs.cluster import connected

    with connected(cluster, jobs=jobs, threads=threads) as value:
        yield value


def run(
    work: Work,
    jobs: Sequence[Job],
    engine: Engine,
    *,
    store: Store | None = None,
    listen: Hear | None = None,
    shared: Folder | None = None,
) -> Generator[Done, None, None]:
    """Yield every job once: first those that the store has, the others as they get done, each on the disk by then.

    Parameters
    ----------
    work : callable       a function of a module: (unit, hear) -> value
    jobs : list of Job    names differ
    engine : Engine       `Processes`, or a cluster (`engine`)
    store : Store         where results are kept; None: nowhere. Jobs that were lost are not kept
    listen : callable     told of what the work tells, in this process: while it runs where it runs here, with its
                          answer where it runs on a cluster
    shared : Folder       files that each job reads

    Raises
    ------
    ValueError       two jobs of one name
    OSError          no room for a result; those before it are on the disk
    ClusterError     the cluster was lost; those before are on the disk
    """
    check_names(jobs)
    waiting = []
    for job in jobs:
        value = store.read(job) if store is not None else None
        if value is None:
            waiting.append(job)
        else:
            yield value
    if not waiting:
        return
    with closing(engine.spread(work, waiting, listen or _nobody, shared)) as answers:
        for done in answers:
            if store is not None and done.lost is None:
                store.write(done)
            yield done


def _nobody(event: Any) -> None:
    """Nobody listens."""
