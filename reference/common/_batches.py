"""The mini-batches of a run: as given, or drawn without replacement for each step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._options import shown

Batch = NDArray[np.intp]


def check_batch(batch: Any, n: int, name: str) -> Batch:
    """Indices into n data, at least one."""
    rows = np.asarray(batch)
    if rows.ndim != 1 or len(rows) == 0:
        raise ValueError(f"{name}: found shape {rows.shape}, expected a list of at least one index")
    if rows.dtype.kind not in "iu":
        raise ValueError(f"{name}: found dtype {rows.dtype}, expected whole numbers")
    if np.min(rows) < 0 or np.max(rows) >= n:
        outside = rows[(rows < 0) | (rows >= n)][0]
        raise ValueError(f"{name}: found index {outside}, expected 0 to {n - 1}")
    return rows.astype(np.intp)


def planned_batches(
    n: int, batches: Sequence[Any] | None, batch_size: Any, n_steps: Any, seed: Any, steps: int
) -> list[Batch]:
    """The indices of each step, in the order in which they are given or drawn.

    Parameters
    ----------
    n : int                   number of data
    batches : lists of ints   one a step; None: drawn
    batch_size : int          so many indices a step, at most n
    n_steps : int or None     steps; None: as many as batches, or `steps`
    seed : int                of the draws
    steps : int               of drawn mini-batches, unless n_steps says otherwise

    Raises
    ------
    ValueError                for an empty or foreign mini-batch, or more steps than batches
    """
    if batches is None:
        size = min(_check.count(batch_size, "batch_size"), n)
        wanted = steps if n_steps is None else _check.count(n_steps, "n_steps")
        rng = np.random.default_rng(seed)
        return [rng.choice(n, size, replace=False) for _ in range(wanted)]
    given = [check_batch(batch, n, f"batches[{place}]") for place, batch in enumerate(batches)]
    if not given:
        raise ValueError("batches: found an empty list, expected at least one mini-batch")
    wanted = len(given) if n_steps is None else _check.count(n_steps, "n_steps")
    if wanted > len(given):
        raise ValueError(f"n_steps: found {shown(n_steps)}, expected at most {len(given)}, the number of batches")
    return given[:wanted]


def ascending_batches(
    n: int, batches: Sequence[Any] | None, batch_size: Any, n_steps: Any, seed: Any, steps: int = 250
) -> list[Batch]:
    """`planned_batches` with each index once and ascending; without batches and batch_size all data in each step."""
    if batches is None and batch_size is None:
        return [np.arange(n)] * (steps if n_steps is None else _check.count(n_steps, "n_steps"))
    if batches is not None and batch_size is not None:
        raise ValueError(f"batch_size: found {shown(batch_size)} with batches, expected one of the two")
    return [np.unique(batch) for batch in planned_batches(n, batches, batch_size, n_steps, seed, steps)]
