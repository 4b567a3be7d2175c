"""Questions and answers as files, for programs in any language and machines without this package.

    export(folder, questions_for(program, "laplace"))     # FOLDER/laplace/toy-3-softmax-1a2b3c4d5e.npz, ...
    judge(Files(answers, "laplace"))                      # ANSWERS/laplace/toy-3-softmax-1a2b3c4d5e.npz, ...

An answer has the name of its question, in a folder of its own. It is a .npz of fields of `Solution`; the problem,
`schema`, `implementation` and `method` may be left out. A question without an answer is named as not judged.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from validation.door.problem import Problem, digest
from validation.door.solution import SCHEMA, Solution
from validation.judge.judging import Session
from validation.judge.posing import Asked

_DIGITS = 10  # of a fingerprint in the name of a file


def file_of(method: str, problem: Problem) -> Path:
    """Where the question, and its answer, are in their folders."""
    return Path(method) / f"{problem.name}-{digest(problem)[:_DIGITS]}.npz"


def export(folder: str | PathLike[str], questions: Iterable[Asked]) -> list[Path]:
    """Write every question, the changed ones of invariances among them; the files."""
    written = []
    for asked in questions:
        for name in asked.problems:
            session = Session(asked.answer, asked.method, name, known=asked.known)
            for problem in (session.problem, *(problem for _, problem, *_ in session.variants())):
                path = Path(folder) / file_of(asked.method, problem)
                path.parent.mkdir(parents=True, exist_ok=True)
                problem.save(path)
                written.append(path)
    return written


class Files:
    """A program whose answers are files.

    folder           of the answers
    method           its method
    likelihoods, kernels, points    what it takes, where the method is none of `fast` or takes less
    """

    def __init__(self, folder: str | PathLike[str], method: str, **words: Any) -> None:
        """Nothing is read yet."""
        self._folder = Path(folder)
        self.name = self._folder.name or str(self._folder)
        self.methods = (method,)
        for word, value in words.items():
            if value:
                setattr(self, word, value)

    def __call__(self, method: str, problem: Problem) -> Solution:
        """The answer to a question, as its file has it."""
        path = self._folder / file_of(method, problem)
        if not path.is_file():
            raise NotImplementedError(f"{path}: found no file")
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files if name != "schema"}
                schema = str(archive["schema"]) if "schema" in archive.files else SCHEMA
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: found a file that cannot be read ({error}), expected a .npz") from error
        if schema != SCHEMA:
            raise ValueError(f"{path}: found schema {schema!r}, expected {SCHEMA!r}")
        if not any(name.startswith("problem/") for name in arrays):
            arrays |= {f"problem/{name}": value for name, value in problem.to_arrays().items()}
        named = {"implementation": np.asarray(self.name), "method": np.asarray(method)}
        return Solution.from_arrays(named | arrays, str(path))
