"""Arrays whose rows are somewhere else: read where and when they are needed, by slices or by lists of their numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn

import numpy as np


class ByRows(ABC):
    """As much of an array as methods on batches ask for; NumPy is refused the whole.

    shape    as of an array
    dtype    of the rows that are given
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @abstractmethod
    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        """Rows of a slice, or of an array of their numbers, in its order."""

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """No silent copy of all rows."""
        raise TypeError(f"rows elsewhere: found a use that needs all {self.shape[0]} of them, expected batches")


def read_when_needed(array: Any) -> bool:
    """Whether rows are read when they are needed, and not kept: a memory map, or rows that are elsewhere.

    Parameters
    ----------
    array    of any kind
    """
    return isinstance(array, (np.memmap, ByRows))
