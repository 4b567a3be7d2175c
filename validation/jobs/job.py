"""What a job is, what comes of it, and what can happen to it instead."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.jobs.place import Place

#: Of the option --cluster, the same for every command that has it.
HELP = "give the work to a Dask cluster: the address of its scheduler, as tcp://host:8786, or local to start one here"

# Told of whatever the work tells.
Hear = Callable[[Any], None]

# A module's function, so that another process finds it by name: (unit, hear) -> value
Work = Callable[[Any, Hear], Any]


class JobLostError(RuntimeError):
    """A job without an answer: its processes died, or it was out of patience."""


class OutOfPatienceError(JobLostError):
    """A job that was ended because it took too long."""


class ClusterError(RuntimeError):
    """A cluster that cannot be reached, or was lost; what is on the disk by then stays there."""


@dataclass(frozen=True)
class Job:
    """One independent piece of work.

    name        unique in its list
    unit        all that the work needs: numbers, text, arrays, tuples and dataclasses of them. Seeds are part of it
    cost        a hint of seconds; the costliest start first
    patience    seconds; a job that has it gets a process of its own, killed when they are over
    """

    name: str
    unit: Any
    cost: float = 0.0
    patience: float | None = None


@dataclass(frozen=True)
class Done:
    """What came of a job: a value and where it was computed, or in their place how it was lost."""

    job: Job
    value: Any
    place: Place | None
    seconds: float
    lost: JobLostError | None = None
    stored: bool = False  # read from the disk, where an earlier run left it


@dataclass(frozen=True)
class Folder:
    """Files that every job of a list reads; `Folder.of` lists them, `at` says where they are in this process."""

    path: str
    digest: str

    @classmethod
    def of(cls, path: Path) -> Folder:
        """A folder of the coordinator, by its content."""
        digest = hashlib.sha256()
        for name, content in contents(path).items():
            digest.update(f"{name}\n{len(content)}\n".encode() + content)
        return cls(str(path.resolve()), digest.hexdigest())

    def at(self) -> Path:
        """Its place here: that of a copy where a worker has one."""
        return _copies.get(self.digest, Path(self.path))


_copies: dict[str, Path] = {}


def copies() -> dict[str, Path]:
    """Copies of folders that this process has, by digest."""
    return dict(_copies)


def add_copies(known: dict[str, Path]) -> None:
    """Let `Folder.at` find these."""
    _copies.update(known)


def contents(path: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        value.relative_to(path).as_posix(): value.read_bytes() for value in sorted(path.rglob("*")) if value.is_file()
    }


def check_names(jobs: Iterable[Job]) -> None:
    """Refuse two jobs of one name: their results would be taken for each other.

    Raises
    ------
    ValueError    naming the job
    """
    known: set[str] = set()
    for job in jobs:
        if job.name in known:
            raise ValueError(f"jobs: found the name {job.name!r} twice, expected every job once")
        known.add(job.name)
