"""Blocks of rows.

They are rounded up to whole tiles and the last one is padded with zero rows: BLAS then treats every row alike, and
the rows of A do not depend on the block size even where K_ZZ is ill conditioned.
"""

from __future__ import annotations

from collections.abc import Iterator

_TILE = 64


def padded(rows: int) -> int:
    """Rows rounded up to whole tiles.

    Parameters
    ----------
    rows : int    how many there are
    """
    return -(-rows // _TILE) * _TILE


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
