"""kernlab of R, asked by file: Laplace's approximation with the logistic function."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from validation.door.problem import Problem
from validation.peers import by_file
from validation.peers.program import Program, no_jitter, no_repeats

_PACKAGES = ("jsonlite", "kernlab")


@cache
def _release() -> str:
    """Version of kernlab, "" where R or one of the packages is missing."""
    program = shutil.which("Rscript")
    if program is None:
        return ""
    lines = "; ".join(f'cat(as.character(packageVersion("{name}")), "")' for name in _PACKAGES)
    done = subprocess.run([program, "-e", lines], capture_output=True, text=True, errors="replace", check=False)
    return done.stdout.split()[-1] if done.returncode == 0 else ""


def _laplace(problem: Problem) -> Mapping[str, Any]:
    no_jitter(problem)
    no_repeats(problem)
    with resources.as_file(resources.files("validation.peers") / "kernlab.R") as script:
        return by_file.ask(["Rscript", str(script)], problem)


laplace = Program(
    "kernlab-gausspr", "kernlab", "", ("laplace-binary",), ("logit",), "all rows", _laplace,
    note="means only; class probabilities at the mode, not averaged over the latent value",
    present=lambda: bool(_release()), release=_release,
)  # fmt: skip

PROGRAMS = (laplace,)
