"""The loop of steps that may leave the finite numbers: batch, step, checkpoint, a look, and an end that says why."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fast.core import checkpoint as checkpoints
from fast.core.ending import ended, reached
from fast.core.errors import NotPositiveDefiniteError


class Stepping(ABC):
    """A run that moves step by step; a step that fails leaves it at the last good state.

    Only `step` may fail so: errors of its other methods are raised, as those of data that are read for a batch.
    """

    iteration = 0  # steps made
    at_least = 0  # steps made however early the run has to end
    growing: tuple[str, ...] = ("trace",)  # arrays that are longer in later checkpoints

    def start(self) -> None:  # noqa: B027
        """What comes before the first step, in a run that continues no other."""

    def draw(self) -> Any:
        """The batch of the next step."""
        return None

    @abstractmethod
    def step(self, batch: Any) -> float:
        """One step: the objective, NaN where it was not asked for. Raises ValueError, NotPositiveDefiniteError."""

    def measure(self, value: float) -> None:  # noqa: B027
        """What is kept of a step besides the state that it led to, before both are saved."""

    def arrays(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {}

    def optional(self) -> dict[str, Any]:
        """Further arrays that only some checkpoints hold, of the type and shape that they have there."""
        return {}

    def restore(self, arrays: Mapping[str, Any]) -> None:  # noqa: B027
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
    converged: bool = False
    error: Exception | None = None  # of the step that failed


def run_steps(
    run: Stepping,
    n_steps: int,
    saving: Saving | None = None,
    after: Callable[[float], Ended | None] | None = None,
) -> Ended:
    """Steps up to n_steps, those in the checkpoint counted.

    A step that raises, at values that no prior or no distribution may have, ends the run as diverged; a run that has to
    end (`fast.core.ending`) does so between two steps.

    Parameters
    ----------
    run                 moved in place
    n_steps : int       in all
    saving              None: no checkpoint
    after : callable    called with the objective after every step, once it is saved; what it returns, if not None, is
                        the end
    """
    if saving is None or not _continued(run, saving):
        run.start()
    while run.iteration < n_steps:
        why = ended() if run.iteration >= run.at_least else ""
        if why:
            return Ended(False, f"{why}, {run.iteration} of {n_steps} steps made")
        batch = run.draw()
        number = run.iteration + 1
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
                value = run.step(batch)
        except (ValueError, NotPositiveDefiniteError) as error:
            return Ended(True, f"step {number}: {error}", error=error)
        run.measure(value)
        if saving is not None and run.iteration % saving.every == 0:
            checkpoints.save(saving.path, saving.mark, run.arrays())
        reached(f"step {run.iteration} of {n_steps}", value)
        end = None if after is None else after(value)
        if end is not None:
            return end
    return Ended(False, f"{n_steps} steps made")


def _continued(run: Stepping, saving: Saving) -> bool:
    """Continue from the checkpoint, if there is one."""
    optional = run.optional()
    arrays = checkpoints.load(saving.path, saving.mark, {**run.arrays(), **optional}, run.growing, optional)
    if arrays is None:
        return False
    run.restore(arrays)
    return True
