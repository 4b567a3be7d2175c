"""The marker that gives an equation of a paper its address in this package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: Set by the judge to look at, or to perturb, what marked functions return: hook(function, output) -> output.
hook: Callable[[Callable[..., Any], Any], Any] | None = None


def equation(paper: str, *ids: str, as_printed: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function as the realisation of entries of a paper's inventory.

    Several ids, and several markers on top of each other, add up.

    Parameters
    ----------
    paper : str          key of the paper, e.g. "wenzel2019"
    ids : str            ids of its inventory, e.g. "11"
    as_printed : bool    the function holds a misprint as it stands in the paper

    Returns
    -------
    decorator            sets ``__equations__`` and ``__as_printed__``, and sends every output through ``hook``
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        added = tuple((paper, entry) for entry in ids)
        if hasattr(function, "__equations__"):  # already wrapped: one trip through the hook is enough
            function.__equations__ = added + function.__equations__
            function.__as_printed__ = as_printed or function.__as_printed__  # type: ignore[attr-defined]
            return function

        @functools.wraps(function)
        def marked(*args: P.args, **kwargs: P.kwargs) -> R:
            output = function(*args, **kwargs)
            return output if hook is None else hook(marked, output)

        marked.__equations__ = added  # type: ignore[attr-defined]
        marked.__as_printed__ = as_printed  # type: ignore[attr-defined]
        return marked

    return mark
