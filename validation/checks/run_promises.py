"""Where a function changes its sign."""

from __future__ import annotations

from collections.abc import Callable


def zero_of(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function changes its sign, by halving: both ends differ in sign."""
    below = function(low) < 0.0
    for _ in range(120):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if (function(middle) < 0.0) is below else (low, middle)
    return 0.5 * (low + high)
