"""The marker that gives a function its address in a paper, and the hook through which a judge can alter its output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Set by a judge for the length of one test: called as hook(function, output), its value replaces the output.
hook: Callable[[Callable[..., Any], Any], Any] | None = None


def equation(paper: str, *ids: str, as_printed: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Say that a function realises the entries `ids` of the inventory of `paper`.

    The decorated function carries `__equations__`, a tuple of (paper, id); stacked markers add up. `as_printed`
    (kept in `__as_printed__`) says that the function holds a misprint as it stands in the paper.
    Raises ValueError when no id is given.
    """
    if not ids:
        raise ValueError("ids: found none, expected at least one entry of the paper's inventory")
    addresses = tuple((paper, entry) for entry in ids)

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        earlier = getattr(function, "__equations__", None)
        if earlier is not None:  # already wrapped: one hook call per call, however many markers
            function.__equations__ = (*addresses, *earlier)  # type: ignore[attr-defined]
            function.__as_printed__ = as_printed or function.__as_printed__  # type: ignore[attr-defined]
            return function

        @functools.wraps(function)
        def marked(*args: P.args, **kwargs: P.kwargs) -> R:
            output = function(*args, **kwargs)
            return output if hook is None else hook(marked, output)

        marked.__equations__ = addresses  # type: ignore[attr-defined]
        marked.__as_printed__ = as_printed  # type: ignore[attr-defined]
        return marked

    return mark
