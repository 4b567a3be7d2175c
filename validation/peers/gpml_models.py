"""GPML, asked by file through Octave: $GPML names its folder, the one with `gp.m` and `startup.m`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from validation.door.problem import Problem
from validation.peers import by_file
from validation.peers.program import Program, no_jitter, no_repeats

ENVIRONMENT = "GPML"


def _present() -> bool:
    return shutil.which("octave") is not None and (Path(os.environ.get(ENVIRONMENT, "")) / "gp.m").is_file()


def _release() -> str:
    """What GPML says of itself in its Copyright file, "" where it says nothing."""
    path = Path(os.environ.get(ENVIRONMENT, "")) / "Copyright"
    words = path.read_text(encoding="utf-8", errors="replace").split() if path.is_file() else []
    return next((word.strip("().,") for before, word in pairwise(words) if before == "Version"), "")


def _run(method: str) -> Callable[[Problem], Mapping[str, Any]]:
    def run(problem: Problem) -> Mapping[str, Any]:
        no_jitter(problem)
        no_repeats(problem)
        with resources.as_file(resources.files("validation.peers") / "gpml.m") as script:
            return by_file.ask(["octave", "--no-gui", "-q", str(script), os.environ[ENVIRONMENT], method], problem)

    return run


laplace = Program(
    "gpml-laplace", "GPML", "", ("laplace-binary",), ("logit", "probit"), "all rows", _run("laplace"),
    present=_present, release=_release,
)  # fmt: skip
ep = Program(
    "gpml-ep", "GPML", "", ("epgpc",), ("probit",), "all rows", _run("ep"),
    present=_present, release=_release,
)  # fmt: skip

PROGRAMS = (laplace, ep)
