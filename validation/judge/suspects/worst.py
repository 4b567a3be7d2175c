"""The entry in which two values of a quantity differ most."""

from __future__ import annotations

from typing import Any

import numpy as np


def worst_entry(name: str, left: Any, right: Any, sides: tuple[str, str] = ("left", "right")) -> str:
    """Where two arrays of one shape differ most: index, both values, their difference; a log evidence in nats.

    sides are the words for the two. Empty where the shapes differ or there is no entry. NaN counts as the largest
    difference.
    """
    a, b = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    if a.shape != b.shape or a.size == 0:
        return ""
    apart = np.abs(a - b)
    index = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), a.shape)
    at = f"{name}[{', '.join(str(int(i)) for i in index)}]" if index else name
    unit = " nat" if name == "log_evidence" else ""
    gap = a[index] - b[index]
    first, second = sides
    return f"{at}: {first} {a[index]:.8g}, {second} {b[index]:.8g}, {first} - {second} {gap:+.4g}{unit}"
