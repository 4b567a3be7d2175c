"""The marker that gives a function its address in the ledger of equations."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

hook: Callable[[Callable[..., Any], Any], Any] | None = None
"""When set, every marked function returns hook(function, output) instead of output."""


def equation(paper: str, *ids: str, as_printed: bool = False) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Mark a function as the realisation of equations of a paper.

    The marked function carries `__equations__`, a tuple of (paper, id), and `__as_printed__`; several
    markers on one function accumulate into one wrapper.

    Parameters
    ----------
    paper : str           key of the paper, e.g. "wenzel2019"
    ids : str             one or more ids of the paper's inventory
    as_printed : bool     True for a function that holds a misprint as it stands in the paper

    Raises
    ------
    ValueError            if no id is given
    """
    if not ids:
        raise ValueError("ids: found none, expected at least one id of the inventory")
    marks = tuple((paper, one) for one in ids)

    def mark(function: Callable[_P, _R]) -> Callable[_P, _R]:
        earlier = getattr(function, "__equations__", None)
        if earlier is not None:  # already wrapped: one wrapper, so that the hook is called once
            function.__equations__ = marks + earlier  # type: ignore[attr-defined]
            function.__as_printed__ = as_printed or function.__as_printed__  # type: ignore[attr-defined]
            return function

        @wraps(function)
        def marked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            output = function(*args, **kwargs)
            return output if hook is None else hook(marked, output)

        marked.__equations__ = marks  # type: ignore[attr-defined]
        marked.__as_printed__ = as_printed  # type: ignore[attr-defined]
        return marked

    return mark
