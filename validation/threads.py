"""Threads of linear algebra for one call of `solve`: the rule is that of `fast.core.threads`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from fast.core.threads import blas_threads

if TYPE_CHECKING:
    from validation.problem import Problem

_BATCH = 100  # rows of a mini-batch where nobody says how many


def solving(
    implementation: str, method: str, problem: Problem, options: Mapping[str, Any]
) -> AbstractContextManager[int]:
    """A block with the threads that a witness gains by, whose number it yields: only `fast` gains by more than one."""
    if implementation == "fast":
        return blas_threads(step_rows(method, problem, options), problem.m)
    return blas_threads(0)


def step_rows(method: str, problem: Problem, options: Mapping[str, Any]) -> int:
    """Rows that one step works on: those of a mini-batch where the options ask for steps, else all."""
    batches = options.get("batches")
    if isinstance(batches, (list, tuple)) and batches:
        # not looked at yet, and a list may hold anything, itself included
        sizes = [len(batch) for batch in batches if isinstance(batch, (list, tuple))]
        sizes += [batch.size for batch in batches if isinstance(batch, np.ndarray)]
        return max(sizes, default=problem.n)
    asked = options.get("batch_size")
    if method != "x-gpc-svi" and asked is None and options.get("n_steps") is None:
        return problem.n
    return min(problem.n, asked if isinstance(asked, int) else _BATCH)
