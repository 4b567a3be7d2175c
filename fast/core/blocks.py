"""Blocks of rows.

They are rounded up to whole tiles and the last one is padded with zero rows: BLAS then treats every row alike, and
the rows of A do not depend on the block size even where K_ZZ is ill conditioned.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fast.core.types import FloatArray

_TILE = 64


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
