"""Sums in a fixed tree over leaves: its shape depends on their number alone, so any division of labour adds alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from fast.core.types import FloatArray


class Most(NamedTuple):
    """A statistic of which the largest counts."""

    value: float


Sums = tuple["FloatArray | Most", ...]
SumsT = TypeVar("SumsT", bound=Sums)  # those of one visit: how many, and which of them are largest values
Plan = Any  # (start, stop) of a part, or a pair [left, right] of plans


def middle(start: int, stop: int) -> int:
    """Where the tree divides the leaves from start to stop: the left side has one more if they are odd.

    Parameters
    ----------
    start, stop : int    leaves
    """
    return (start + stop + 1) // 2


def add(left: SumsT, other: SumsT) -> SumsT:
    """One node.

    Parameters
    ----------
    left, other    sums over neighbouring leaves
    """
    return type(left)(_joined(a, b) for a, b in zip(left, other, strict=True))


def _joined(a: Any, b: Any) -> Any:
    return Most(max(a.value, b.value)) if isinstance(a, Most) else a + b


def over(start: int, stop: int, leaf: Callable[[int], SumsT]) -> SumsT:
    """The sum over leaves from start to stop. Memory: a sum for each level of the tree.

    Parameters
    ----------
    start, stop : int    at least one leaf
    leaf : callable      number of a leaf -> its sums
    """
    if stop - start == 1:
        return leaf(start)
    cut = middle(start, stop)
    return add(over(start, cut, leaf), over(cut, stop, leaf))


def plan(start: int, stop: int, depth: int) -> Plan:
    """The upper levels of the tree, down to parts: (start, stop) at the bottom, lists of two above.

    Parameters
    ----------
    start, stop : int    leaves
    depth : int          levels; a single leaf is not divided
    """
    if depth == 0 or stop - start == 1:
        return (start, stop)
    cut = middle(start, stop)
    return [plan(start, cut, depth - 1), plan(cut, stop, depth - 1)]


def parts(tree: Plan) -> Iterator[tuple[int, int]]:
    """The parts at the bottom of a tree, from left to right.

    Parameters
    ----------
    tree     from `plan`
    """
    if isinstance(tree, list):
        for side in tree:
            yield from parts(side)
    else:
        yield tree
