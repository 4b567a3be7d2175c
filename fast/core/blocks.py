"""Blocks of rows.

They are rounded up to whole tiles and the last one is padded with zero rows: BLAS then treats every row alike, and
the rows of A do not depend on the block size even where K_ZZ is ill conditioned. What is kept of blocks between passes
takes a share of free memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fast.core.types import FloatArray

_TILE = 64
_SHARE = 8  # of free memory one eighth: several processes that start together leave some
_UNKNOWN = 2**33  # bytes that are taken as free where the system reports none
_LINUX, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def padded(rows: int) -> int:
    """Rows rounded up to whole tiles.

    Parameters
    ----------
    rows : int    how many there are
    """
    return -(-rows // _TILE) * _TILE


def in_tiles(rows: FloatArray, buffer: FloatArray | None = None) -> FloatArray:
    """The rows, and zeros behind them up to a whole tile: (padded(b), m).

    Parameters
    ----------
    rows : (b, m)
    buffer : (at least padded(b), m)    where they are written to; None: an array of their own
    """
    b = len(rows)
    work = np.empty((padded(b), rows.shape[1])) if buffer is None else buffer[: padded(b)]
    work[:b] = rows
    work[b:] = 0.0
    return work


def block_edges(n: int, block_size: int) -> Iterator[tuple[int, int]]:
    """Start and stop of blocks of whole tiles that cover n rows.

    Parameters
    ----------
    n : int             rows to cover
    block_size : int    rows of a block, before rounding up
    """
    step = padded(block_size)
    for start in range(0, n, step):
        yield start, min(start + step, n)


def kept_bytes(memory_budget: float | None) -> int:
    """Bytes that may be kept between passes.

    Parameters
    ----------
    memory_budget : float | None    as given; None: an eighth of free memory
    """
    return _free_memory() // _SHARE if memory_budget is None else int(memory_budget)


def _free_memory() -> int:
    """Bytes that the system has available, and its control group allows; installed ones where only those are known."""
    if not _LINUX.exists():
        known = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else _UNKNOWN
    fields = dict(line.split(":") for line in _LINUX.read_text(encoding="ascii").splitlines())
    free = 1024 * int(fields["MemAvailable"].split()[0])
    limit = _GROUP / "memory.max"
    if limit.exists() and (most := limit.read_text(encoding="ascii").strip()) != "max":
        free = min(free, max(0, int(most) - int((_GROUP / "memory.current").read_text(encoding="ascii"))))
    return free
