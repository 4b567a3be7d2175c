"""What a door is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Arguments = dict[str, Any]


class Door(NamedTuple):
    """A way in: `base` gives arguments that are right, `call` makes the call, `kinds` says what may be changed."""

    name: str
    weight: float
    base: Callable[[np.random.Generator], Arguments]
    call: Callable[[Arguments], Any]
    kinds: Mapping[str, str]  # of arguments, those that the base leaves out too: array, labels, any
