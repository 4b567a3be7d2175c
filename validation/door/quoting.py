"""How an error quotes a value; loads nothing, since commands that answer at once use it too."""

from __future__ import annotations

from typing import Any

_LONGEST = 80


def shown(value: Any) -> str:
    """A value as an error quotes it: itself where that is short, its type and shape where not."""
    if isinstance(value, str) and len(value) > 70:  # of a path both ends tell
        value = f"{value[:30]}...{value[-35:]}"
    shape = getattr(value, "shape", None)
    quoted = value is None or isinstance(value, (str, bytes, int, float, complex)) or shape == ()
    try:
        text = repr(value) if quoted or (isinstance(value, (tuple, list, dict)) and len(value) <= 10) else ""
    except (RecursionError, ValueError):  # lists too deep in lists, integers of too many digits
        text = ""
    if text and len(text) <= _LONGEST and text.isprintable():
        return text
    return type(value).__name__ + (f" of shape {shape}" if isinstance(shape, tuple) else "")
