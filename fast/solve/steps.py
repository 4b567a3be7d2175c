"""The loop of steps that may leave the finite numbers: checkpoints, a look after each, and an end that says why."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from fast.core import checkpoint as checkpoints
from fast.core.ending import ended, reached
from fast.core.errors import NotPositiveDefiniteError


class Stepping(Protocol):
    """A run that moves step by step; one that fails leaves it at the last good state."""

    iteration: int  # steps made

    def step(self) -> float:
        """One step: the objective, NaN where it was not asked for. Raises ValueError, NotPositiveDefiniteError."""

    def arrays(self) -> dict[str, Any]:
        """What a checkpoint holds."""

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Continue where `arrays` was taken."""


class Saving(NamedTuple):
    """Where a run continues from and into."""

    path: str | os.PathLike[str]
    every: int  # steps between two checkpoints
    mark: str  # fingerprint of data and settings


class Ended(NamedTuple):
    """How the steps ended."""

    diverged: bool
    reason: str


def run_steps(
    run: Stepping, n_steps: int, saving: Saving | None = None, after: Callable[[float], None] | None = None
) -> Ended:
    """Steps up to n_steps, those in the checkpoint counted.

    A step that raises, at values that no prior or no distribution may have, ends the run as diverged; a run that has to
    end (`fast.core.ending`) does so between two steps.

    Parameters
    ----------
    run                 moved in place
    n_steps : int       in all
    saving              None: no checkpoint
    after : callable    called with the objective after every step, once it is saved
    """
    if saving is not None:
        arrays = checkpoints.load(saving.path, saving.mark, run.arrays(), growing=("trace",))
        if arrays is not None:
            run.restore(arrays)
    while run.iteration < n_steps:
        why = ended()
        if why:
            return Ended(False, f"{why}, {run.iteration} of {n_steps} steps made")
        number = run.iteration + 1
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
                value = run.step()
        except (ValueError, NotPositiveDefiniteError) as error:
            return Ended(True, f"step {number}: {error}")
        if saving is not None and run.iteration % saving.every == 0:
            checkpoints.save(saving.path, saving.mark, run.arrays())
        reached(f"step {run.iteration} of {n_steps}", value)
        if after is not None:
            after(value)
    return Ended(False, f"{n_steps} steps made")
