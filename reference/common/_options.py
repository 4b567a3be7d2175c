"""What an option of a method may be, and the check of a value against it; `options` has the table."""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

_REQUIRED: Any = inspect.Parameter.empty
_64_BITS = 2**63  # what counts things fits into an int64


@dataclass(frozen=True)
class Option:
    """One option; `check` returns its value with plain numbers and texts, or raises a ValueError that names it."""

    name: str
    kind: str  # number, integer, flag, choice, names, rate, batches, callable
    meaning: str
    interval: str = ""  # of numbers, integers and rates: "(0, 1]", "0 or [1e-8, 1]"
    choices: tuple[str, ...] = ()  # texts; of a number those that may stand in its place
    default: Any = _REQUIRED
    optional: bool = False  # None may be given; always so where it is the default

    @property
    def takes_none(self) -> bool:
        """Whether None may be given."""
        return self.optional or self.default is None

    @property
    def expected(self) -> str:
        """What the value may be, in words."""
        names = ", ".join(self.choices)
        if self.kind in ("number", "integer", "rate"):
            text = _numbers_in_words(self)
        elif self.kind == "names":
            text = f"some of {names}, each once"
        elif self.kind == "choice":
            text = f"one of {names}"
        else:
            text = {"flag": "True or False", "batches": "a list of lists of indices", "callable": "a callable"}[
                self.kind
            ]
        return text + " or None" * self.takes_none

    def check(self, value: Any, n: int | None = None) -> Any:
        """The value as the methods take it, or a ValueError; n: number of data, where known, for indices."""
        if value is None and self.takes_none:
            return None
        if self.kind == "batches":
            return _lists(self, value, n)
        checks = {"flag": _flag, "choice": _choice, "names": _names, "rate": _rate, "callable": _callable}
        result = checks.get(self.kind, _number)(self, value)
        if result is None:
            raise ValueError(f"{self.name}: found {shown(value)}, expected {self.expected}")
        return result


def shown(value: Any) -> str:
    """A value in an error: itself where that is short, or its type."""
    if isinstance(value, str) and len(value) > 70:
        value = f"{value[:25]}...{value[-40:]}"
    plain = value is None or isinstance(value, str | bytes | int | float | complex | np.generic)
    if plain or (isinstance(value, tuple | list) and len(value) <= 10):
        try:
            text = repr(value)
        except (RecursionError, ValueError):  # lists too deep in lists, whole numbers of too many digits
            return type(value).__name__
        if len(text) <= 80 and "\n" not in text:
            return text
    return f"{type(value).__name__} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _numbers_in_words(option: Option) -> str:
    *_, interval = option.interval.rpartition("0 or ")
    low, high = interval[1:-1].split(", ")
    noun = "a whole number" if option.kind == "integer" else "a number"
    at_least = ">=" if interval[0] == "[" else ">"
    text = f"{noun} {at_least} {low}" if high == "inf" else f"{noun} in {interval}"
    if option.interval != interval:
        text = f"0 or {text}"
    words = [repr(choice) for choice in option.choices]
    if option.kind == "rate":
        words.append("('decay', rho0, tau, kappa)")
    return " or ".join([*words, text])


def _contains(interval: str, number: float) -> bool:
    """Whether a number lies in an interval, before which "0 or " may stand."""
    if interval.startswith("0 or "):
        return number == 0.0 or _contains(interval[5:], number)
    low, high = (float(end) for end in interval[1:-1].split(", "))
    return (low < number or (interval[0] == "[" and low == number)) and (
        number < high or (interval[-1] == "]" and number == high)
    )


def _number(option: Option, value: Any) -> Any:
    if isinstance(value, str):
        return value if value in option.choices else None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer) and option.kind == "integer":
        return int(value) if abs(int(value)) < _64_BITS and _contains(option.interval, int(value)) else None
    if option.kind == "integer" or not isinstance(value, int | float | np.integer | np.floating):
        return None
    try:
        with np.errstate(over="ignore"):  # a long double beyond float64: infinite, which no interval holds
            number = float(value)
    except OverflowError:  # a whole number beyond float64
        return None
    return number if _contains(option.interval, number) else None


def _flag(_: Option, value: Any) -> Any:
    return bool(value) if isinstance(value, bool | np.bool_) else None


def _choice(option: Option, value: Any) -> Any:
    return str(value) if isinstance(value, str) and value in option.choices else None


def _callable(_: Option, value: Any) -> Any:
    return value if callable(value) else None


def _names(option: Option, value: Any) -> Any:
    """Names as a tuple; a text stands for one, a set is put in the order of the choices."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple | set | frozenset):
        return None
    if not all(isinstance(name, str) and name in option.choices for name in value) or len(set(value)) < len(value):
        return None
    if isinstance(value, list | tuple):
        return tuple(str(name) for name in value)
    return tuple(choice for choice in option.choices if choice in value)


def _rate(option: Option, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _number(option, value)
    if len(value) != 4 or not isinstance(value[0], str) or value[0] != "decay":
        return None
    parts = [_number(Option("", "number", "", where), v) for v, where in zip(value[1:], _DECAY, strict=True)]
    return None if None in parts else ("decay", *parts)


_DECAY = ("(0, inf)", "[0, inf)", "[0, inf)")  # rho0, tau, kappa


def _lists(option: Option, value: Any, n: int | None) -> Any:
    """Lists of indices, each as an array of whole numbers."""
    if not isinstance(value, list | tuple) and not (isinstance(value, np.ndarray) and value.ndim > 0):
        raise ValueError(f"{option.name}: found {shown(value)}, expected {option.expected}")
    if len(value) == 0:
        raise ValueError(f"{option.name}: found an empty list, expected at least one mini-batch")
    results = []
    for place, batch in enumerate(value):
        name = f"{option.name}[{place}]"
        try:
            rows = np.asarray(batch)
        except ValueError:
            raise ValueError(f"{name}: found rows of different lengths, expected a list of indices") from None
        if rows.ndim != 1 or len(rows) == 0:
            raise ValueError(f"{name}: found shape {rows.shape}, expected a list of at least one index")
        masked = isinstance(batch, np.ma.MaskedArray)
        if masked or rows.dtype.kind not in "iu":
            kind = "a masked array of " * masked + f"dtype {rows.dtype}"
            raise ValueError(f"{name}: found {kind}, expected whole numbers")
        outside = rows[rows < 0] if n is None else rows[(rows < 0) | (rows >= n)]
        if len(outside):
            limit = ">= 0" if n is None else f"0 to {n - 1}"
            raise ValueError(f"{name}: found index {outside[0]}, expected {limit}")
        results.append(rows.astype(np.int64))
    return results
