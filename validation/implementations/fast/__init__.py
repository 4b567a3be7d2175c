"""`fast` behind the one door: one module per family of methods, each with its table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from validation.implementations.common import dispatcher

if TYPE_CHECKING:
    from validation.door.problem import Problem

_BATCH = 100  # rows of a mini-batch where the options do not say how many

# module -> the methods of its TABLE
ADAPTERS = {
    "epgpc": ("epgpc",),
    "inducing": (
        "ep",
        "sep",
        "gfitc",
        "vi-robust",
        "pep",
        "apep",
        "arpep",
        "rpapep",
        "bb-alpha",
        "label-regression",
    ),
    "izmailov": ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor"),
    "laplace_binary": ("laplace-binary",),
    "riihimaki": ("nested-ep", "nested-iep", "qep", "qiep", "laplace", "laplace-tkp", "vb-probit"),
    "sparse_laplace": ("laplace-sparse",),
    "svgpc": ("svgpc",),
    "x_gpc": ("x-gpc",),
    "x_gpc_svi": ("x-gpc-svi",),
}


def threads(method: str, problem: Problem, options: Mapping[str, Any]) -> AbstractContextManager[int]:
    """A block with the threads of linear algebra that a run gains by; yields their number."""
    from fast.core.threads import blas_threads

    return blas_threads(step_rows(method, problem, options), problem.m)


def step_rows(method: str, problem: Problem, options: Mapping[str, Any]) -> int:
    """Rows that one step works on: those of a mini-batch where the options ask for steps, else all."""
    batches = options.get("batches")
    if isinstance(batches, (list, tuple)) and batches:
        # not checked yet, and a list may hold anything, itself included
        sizes = [len(batch) for batch in batches if isinstance(batch, (list, tuple))]
        sizes += [batch.size for batch in batches if isinstance(batch, np.ndarray)]
        return max(sizes, default=problem.n)
    asked = options.get("batch_size")
    if method != "x-gpc-svi" and asked is None and options.get("n_steps") is None:
        return problem.n
    return min(problem.n, asked if isinstance(asked, int) else _BATCH)


answer = dispatcher("fast", __name__, ADAPTERS, threads)
