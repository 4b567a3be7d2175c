"""The judge's own marker of equations, for protocols that `validation` realises; see `validation.ledger.registry`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from validation.door.quoting import shown

P = ParamSpec("P")
R = TypeVar("R")

# Set by the perturbation audit, never by product code: hook(function, output) replaces the output.
hook: Callable[[Callable[..., Any], Any], Any] | None = None


def equation(paper: str, *ids: str, as_printed: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Say which entries of a paper's inventory a function realises.

    paper: key of the paper; ids: ids in its inventory; as_printed: the function holds a misprint as it stands.
    Decorators accumulate on one wrapper, so the hook sees each call once however many are stacked.

    Raises ValueError if no id is given or paper or an id is no text.
    """
    if not isinstance(paper, str) or not paper:
        raise ValueError(f"paper: found {shown(paper)}, expected the key of a paper")
    if not ids or not all(isinstance(name, str) and name for name in ids):
        raise ValueError(f"ids: found {shown(ids)}, expected at least one id of an equation")

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        marked: Any = function
        if not hasattr(function, "__equations__"):

            @functools.wraps(function)
            def routed(*args: P.args, **kwargs: P.kwargs) -> R:
                output = function(*args, **kwargs)
                return output if hook is None else hook(routed, output)

            marked = routed
            marked.__equations__ = ()
            marked.__as_printed__ = False
        # The upper decorator runs last, yet its ids are read first.
        marked.__equations__ = (*((paper, name) for name in ids), *marked.__equations__)
        marked.__as_printed__ = marked.__as_printed__ or as_printed
        return marked

    return mark
