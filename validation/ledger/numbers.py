"""How near a test came to its tolerance: the comparisons of arrays that it makes, watched while it runs."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.ledger import inventory
from validation.ledger.inventory import Equation

Array = NDArray[np.float64]


@dataclass
class Watched:
    """What `numpy.testing.assert_allclose` was handed.

    share      the largest difference, over what was allowed; None if nothing was compared
    """

    share: float | None = None


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
        original(actual, desired, rtol, atol, *args, **kwargs)
        try:
            value = share(actual, desired, rtol, atol)
        except (TypeError, ValueError):  # no arrays of numbers: nothing to measure
            return
        result.share = value if result.share is None else max(result.share, value)

    return compare


_LISTENING: list[Proof] = []  # at most one: cases run one after the other


def told_apart(paper: str, entry: str, printed: Any, corrected: Any) -> None:
    """Assert that a misprint changes a number, and leave both for the atlas while the audit listens.

    For tests of forms that `Proof` cannot ask alike, since print and correction take different arguments.

    Parameters
    ----------
    paper, entry           the misprinted entry
    printed, corrected     what both forms give there; of the same shape

    Raises
    ------
    AssertionError         if they are equal, not finite or of two shapes
    """
    a, b = np.asarray(printed, dtype=np.float64), np.asarray(corrected, dtype=np.float64)
    assert a.shape == b.shape, f"{paper}:{entry}: found shapes {a.shape} and {b.shape}, expected one"
    apart = _furthest(a, b)
    assert apart is not None, f"{paper}:{entry}: found no numbers, expected finite ones"
    assert apart[0] > 1e-9, f"{paper}:{entry}: found equal numbers, expected a misprint that changes one"
    for proof in _LISTENING:
        proof.keep((paper, entry), apart)


_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")


def assert_recorded(paper: str, entry: str, *values: float) -> None:
    """Assert that the numbers by which the ledger decides a misprint or slip are those that came out.

    Each value must stand in the entry's `number`, in this order and to the digits that are written there; other numbers
    may stand between them.

    Parameters
    ----------
    paper, entry    its address
    values          what the test computed; an int is a count, and stands there as one

    Raises
    ------
    AssertionError  if one of them does not
    """
    text = inventory.load().entry(paper, entry).number
    left = iter(_NUMBER.findall(text))
    for value in values:
        assert any(_reads(value, word) for word in left), f"{paper}:{entry}: computed {value!r}, the ledger has: {text}"


def _reads(value: float, word: str) -> bool:
    """Whether a number is what is written: the same, or rounded to the digits that are written, three at least."""
    written = Decimal(word)
    if isinstance(value, int) or float(written) == value:
        return float(written) == value
    digits = written.as_tuple()
    half = Decimal(5).scaleb(int(digits.exponent) - 1)
    # rounded half to even or away from zero, and a value that the last bit of another processor moves over the half
    return len(digits.digits) >= 3 and abs(Decimal(float(value)) - written) <= half * Decimal("1.001")


def _furthest(a: Array, b: Array) -> tuple[float, float, float] | None:
    """The largest difference over the largest entry of b, and the two entries there."""
    if not a.size or not np.all(np.isfinite(a) & np.isfinite(b)):
        return None
    place = np.unravel_index(np.argmax(np.abs(a - b)), a.shape)
    apart = float(np.abs(a - b)[place] / max(float(np.max(np.abs(b))), 1e-300))
    return apart, float(a[place]), float(b[place])


class Proof:
    """A hook of a package that asks the corrected form wherever a test asks the printed one, with the same arguments.

    values: equation -> (as printed, corrected), the entries that differ most of all that the test asked for, or that
    it told apart itself.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        """functions: the marked ones of the package."""
        self.values: dict[Equation, tuple[float, float]] = {}
        self._corrected = [item for item in functions if not item.__as_printed__]  # type: ignore[attr-defined]
        self._apart: dict[Equation, float] = {}
        self._asking = False

    def __call__(self, function: Callable[..., Any], output: Any) -> Any:
        """The output as it is; called from within the marked function, whose arguments are read from its frame."""
        if not self._asking and getattr(function, "__as_printed__", False):
            given = sys._getframe(1).f_locals
            self._asking = True  # what the corrected form calls is asked of nobody
            try:
                self._ask(function, output, given.get("args", ()), given.get("kwargs", {}))
            finally:
                self._asking = False
        return output

    def _ask(self, function: Callable[..., Any], output: Any, args: Any, kwargs: Any) -> None:
        named = inspect.signature(function).bind(*args, **kwargs).arguments
        for other in self._corrected:
            shared = set(other.__equations__) & set(function.__equations__)  # type: ignore[attr-defined]
            wanted = inspect.signature(other).parameters
            if not shared or set(wanted) != set(named):
                continue
            try:
                a, b = (np.asarray(value, dtype=np.float64) for value in (output, other(**named)))
            except (TypeError, ValueError):  # no numbers, or arguments that the corrected form refuses
                continue
            apart = _furthest(a, b) if a.shape == b.shape else None
            if apart is None:
                continue
            for equation in shared:
                self.keep(equation, apart)

    def keep(self, equation: Equation, apart: tuple[float, float, float]) -> None:
        """Take two numbers of an equation if they differ by more than what is known; `apart` as of `_furthest`."""
        if apart[0] > self._apart.get(equation, 0.0):
            self._apart[equation], self.values[equation] = apart[0], apart[1:]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear what the tests of the block tell apart."""
        _LISTENING.append(self)
        try:
            yield
        finally:
            _LISTENING.remove(self)
