"""Which cases of a family `make test` asks; the others are marked slow, and only `make test-all` asks them.

For families whose cases all look at the same code, or which `triad verify` asks too.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

#: Of a test that repeats what every `triad verify` asks: that the check is green.
asked_by_verify = pytest.mark.slow


def others_slow(cases: Iterable[Any], asked: Callable[..., bool]) -> list[Any]:
    """The cases for `pytest.mark.parametrize`, all of them, in their order.

    Parameters
    ----------
    cases : iterable     values, or tuples where several names are given
    asked : callable     gets a case, the parts of a tuple one by one; whether every run asks it

    Raises
    ------
    ValueError           if no case is left for every run, or none is slow
    """
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    chosen = [bool(asked(*value)) for value in values]
    if all(chosen) or not any(chosen):
        raise ValueError(f"asked: found {sum(chosen)} of {len(chosen)} cases for every run, expected some and not all")
    marks = {True: (), False: (pytest.mark.slow,)}
    return [pytest.param(*value, marks=marks[often]) for value, often in zip(values, chosen, strict=True)]
