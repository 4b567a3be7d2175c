"""Programs in any language: the problem as a JSON file, a command, the answer as a JSON file.

The command is run with two more arguments, the path of the problem and that of the answer. The problem has the fields
of `validation.Problem` as nested lists, row by row, those that are None left out. The answer may have any array of
`validation.Solution` (`latent_mean`, `test_latent_mean`, `test_latent_cov`, `probabilities`, ...), `log_evidence`,
`log_evidence_kind`, `converged` and `versions` (an object of strings).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from validation.door import catalogue, storage
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.peers.program import Program

SHAPES = {
    "latent_mean": "nL", "latent_cov": "nLL", "test_latent_mean": "tL", "test_latent_cov": "tLL", "probabilities": "tC",
    "inducing_mean": "Lm", "inducing_cov": "Lmm",
}  # fmt: skip
SCALARS = (
    "log_evidence", "log_evidence_kind", "evidence_target", "evidence_prior_model", "converged", "iterations",
    "versions",
)  # fmt: skip
SECONDS = 600.0


def ask(command: Sequence[str], problem: Problem, seconds: float = SECONDS) -> Mapping[str, Any]:
    """Fields of a Solution that a command gives for a problem.

    Parameters
    ----------
    command : sequence of str    a program and its first arguments
    seconds : float              that it may take

    Raises
    ------
    RuntimeError           it ended with another code than 0, took too long, or wrote no answer
    ValueError             the answer is no JSON object, or has a field that is not known
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "problem.json", Path(folder) / "answer.json"
        storage.write_text(asked, json.dumps(as_lists(problem), allow_nan=False))
        try:
            done = subprocess.run(
                [*command, str(asked), str(answered)],
                capture_output=True,
                text=True,
                errors="replace",  # it prints in an encoding of its own
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{command[0]}: found no answer after {seconds:g} s, expected one") from None
        if done.returncode != 0 or not answered.is_file():
            message = " ".join(done.stderr.split())[-400:]
            code = f"exit code {done.returncode}" if done.returncode else "no answer written"
            raise RuntimeError(f"{command[0]}: found {code}, expected an answer; it says: {message}")
        return from_lists(answered.read_text(encoding="utf-8"), problem)


def as_lists(problem: Problem) -> dict[str, Any]:
    """The fields of a problem as JSON has them."""
    return {name: array.tolist() for name, array in problem.to_arrays().items() if name != "hyperprior"}


def from_lists(text: str, problem: Problem) -> dict[str, Any]:
    """Fields of a Solution from the text of an answer; ValueError names what is wrong with it.

    Languages drop dimensions of length one: an array of the right size in another shape is given its own.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"answer: found no JSON ({error}), expected an object") from None
    if not isinstance(values, dict):
        raise ValueError(f"answer: found a JSON {type(values).__name__}, expected an object")  # noqa: TRY004
    known = (*SHAPES, *SCALARS)
    if unknown := sorted(set(values) - set(known)):
        raise ValueError(f"answer: found {', '.join(unknown)}, expected fields of {', '.join(known)}")
    fields = {name: values[name] for name in SCALARS if name in values}
    sizes = {
        "n": problem.n,
        "t": problem.t,
        "L": problem.n_latents,
        "C": problem.n_classes,
        "m": problem.m or problem.n,
    }
    for name in SHAPES.keys() & values.keys():
        try:
            array = np.asarray(values[name], dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"answer: found {name} ragged or no numbers, expected nested lists of one shape") from None
        shape = tuple(sizes[letter] for letter in SHAPES[name])
        squeezed = [[k for k in one if k > 1] for one in (array.shape, shape)]
        fields[name] = array.reshape(shape) if squeezed[0] == squeezed[1] else array
    return fields


def program(
    command: Sequence[str], method: str, likelihoods: Sequence[str], *, points: str = catalogue.ALL_ROWS
) -> Program:
    """A command as a program that `judge` takes: `program(["Rscript", "mine.R"], "laplace-binary", ["logit"])`.

    Parameters
    ----------
    command : sequence of str    a program and its first arguments
    method : str                 an id of `triad list methods`, or a name of its own
    likelihoods : sequence       those of `Problem` that it takes
    points : str                 "all rows", "inducing points" or "either"
    """
    listed = tuple(command)
    if isinstance(command, str) or not listed:
        raise TypeError(f"command: found {shown(command)}, expected a program and its arguments, as a list")
    return Program(
        Path(listed[-1]).stem, listed[0], "", (method,), tuple(likelihoods), points,
        lambda problem: ask(listed, problem), present=lambda: shutil.which(listed[0]) is not None, release=lambda: "",
    )  # fmt: skip
