"""Results on the disk: one .npz a job, written atomically by the coordinator, read without unpickling.

A file's name holds the fingerprint of its job: of the unit's every byte, and of the text of the packages. So what was
computed for another question, or by other code, is not taken for an answer.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from validation.door import storage
from validation.jobs import place as places
from validation.jobs import plain
from validation.jobs.job import Done, Job
from validation.jobs.place import Place

SCHEMA = "gpc-triad/job/1"


class Store:
    """A folder of results.

    folder     made when the first result comes
    question   what all jobs of the list have in common beside the text of the packages
    types      NamedTuples, dataclasses and types with `from_arrays` that results are made of
    """

    def __init__(self, folder: Path, question: Any, types: Iterable[type]) -> None:
        self.folder, self.types = folder, (*types, Place)
        self._question = plain.fingerprint(places.code(), question)

    def path(self, job: Job) -> Path:
        """The file of a job."""
        mark = plain.fingerprint(self._question, job.name, job.unit)
        return self.folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', job.name)[:60]}-{mark[:24]}.npz"

    def read(self, job: Job) -> Done | None:
        """The result of a job, None where there is none.

        Raises
        ------
        FileFormatError    for a file that is damaged: files are written whole, so somebody else changed it
        """
        path = self.path(job)
        if not path.is_file():
            return None
        arrays = storage.load_npz(path, SCHEMA)
        try:
            tree = storage.read_json(storage.scalar(arrays.pop("tree")), str(path))
            value, place, seconds = plain.decode(tree, arrays, self.types)
        except (KeyError, ValueError) as error:
            raise storage.FileFormatError(
                f"{path}: found no result of a job ({error}), expected to remove it"
            ) from error
        return Done(job, value, place, seconds, stored=True)

    def write(self, done: Done) -> None:
        """Put a result in its place.

        Raises
        ------
        OSError    naming the file: no room, no permission
        """
        tree, arrays = plain.encode((done.value, done.place, done.seconds))
        storage.save_npz(self.path(done.job), SCHEMA, {"tree": np.asarray(json.dumps(tree)), **arrays})

    def clear(self) -> None:
        """Forget all results: the list is done, and what it was made for is written elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)
