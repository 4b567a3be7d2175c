"""How near a test came to its tolerance: the comparisons of arrays that it makes, watched while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np


@dataclass
class Watched:
    """What `numpy.testing.assert_allclose` was handed.

    share      the largest difference of those that passed, over what was allowed; None if nothing was compared
    refuted    the least of those that did not pass, as of a formula that a test shows to be misprinted
    """

    share: float | None = None
    refuted: float | None = None

    def note(self, passed: bool, value: float) -> None:
        """Take one comparison in."""
        if passed:
            self.share = value if self.share is None else max(self.share, value)
        else:
            self.refuted = value if self.refuted is None else min(self.refuted, value)


def share(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0) -> float:
    """The largest |actual - desired| over atol + rtol |desired|; 0 where they are equal, inf where neither is allowed.

    Parameters
    ----------
    actual, desired    of shapes that broadcast
    rtol, atol         as `numpy.testing.assert_allclose` takes them
    """
    a, b = np.asarray(actual), np.asarray(desired)
    with np.errstate(all="ignore"):
        distance, allowed = np.abs(a - b), atol + rtol * np.abs(b)
        ratio = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.divide(distance, allowed))
    return float(np.max(ratio, initial=0.0))


@contextmanager
def watch() -> Iterator[Watched]:
    """Watch the comparisons of the block."""
    result, original = Watched(), np.testing.assert_allclose
    np.testing.assert_allclose = _watching(original, result)
    try:
        yield result
    finally:
        np.testing.assert_allclose = original


def _watching(original: Callable[..., None], result: Watched) -> Callable[..., None]:
    @wraps(original)
    def compare(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0, *args: Any, **kwargs: Any) -> None:
        passed = False
        try:
            original(actual, desired, rtol, atol, *args, **kwargs)
            passed = True
        finally:
            try:
                value = share(actual, desired, rtol, atol)
            except (TypeError, ValueError):  # no arrays of numbers: nothing to measure
                value = float("nan")
            if value == value:
                result.note(passed, value)

    return compare
