"""Bugs of single steps: which are kept, what is carried over, what is looked at in each; of turns that few take."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import seeded


def _turned_round(original: Any) -> Any:
    def rows(leaves: Any, wanted: Any, labels: bool) -> Any:
        return original(leaves, np.sort(wanted), labels)

    return rows


_ENDS = ()


_TURNS = (
    seeded(
        "x-gpc",
        "rows-in-their-order",
        "rows that are asked for by number come in the order of the data",
        "fast.blockwise.engines:_rows",
        _turned_round,
        "invariance/x-gpc/rows_taken",
    ),
)


FAULTS = (*_ENDS, *_TURNS)
