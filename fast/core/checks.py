"""What an option may be, and the check of a value against it; `fast.core.options` has the table."""

from __future__ import annotations

import inspect
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

_INTERVAL = re.compile(r"([\[(])(\S+), (\S+)([\])])")
_ZERO = "0 or "  # before an interval: zero itself is allowed too
_REQUIRED: Any = inspect.Parameter.empty
_64_BITS = 2**63  # what counts things fits into an int64


@dataclass(frozen=True)
class Option:
    """One option: `check` gives its value as the methods expect it, or a ValueError."""

    name: str
    kind: str  # number, integer, flag, choice, names, densities, rate, batches, path, callable, data
    meaning: str
    interval: str = ""  # of a number, an integer or a rate, such as "(0, 1]" or "0 or [1e-8, 1]"
    choices: tuple[str, ...] = ()  # texts; with a number or an integer those that may stand in its place
    default: Any = _REQUIRED
    optional: bool = False  # None is allowed; always so where it is the default

    @property
    def expected(self) -> str:
        """What the value may be, in words."""
        words = ", ".join(map(repr, self.choices))
        if self.kind in ("number", "integer", "rate"):
            text = _range_in_words(self.kind, self.interval)
            if words:
                text = f"{words} or {text}" if self.kind != "rate" else f"{words}, {text}"
            if self.kind == "rate":
                text += " or ('decay', rho_0, tau, kappa)"
        else:
            text = {
                "flag": "True or False",
                "choice": f"one of {words}",
                "densities": f"one of {words} or a mapping field -> (family, df, scale)",
                "names": f"different names of {', '.join(self.choices)}",
                "batches": "a sequence of index lists",
                "path": "a path",
                "callable": "something to call",
                "data": "data",
            }[self.kind]
        return f"{text}, or None" if self.takes_none else text

    @property
    def takes_none(self) -> bool:
        """Whether None may be given."""
        return self.optional or self.default is None

    def check(self, value: Any, n: int | None = None) -> Any:
        """The value: numbers and names as plain ones, index lists as arrays.

        n : int    rows of the data, where known: indices must be below

        Raises ValueError.
        """
        if self.kind == "data" or (value is None and self.takes_none):
            return value
        if self.kind == "batches":
            return _index_lists(self, value, n)
        if self.kind == "path":
            return _path(self, value)
        result = {"names": _names, "rate": _rate, "integer": _number, "number": _number}.get(self.kind, _other)(
            self, value
        )
        if result is None:
            raise ValueError(f"{self.name}: found {shown(value)}, expected {self.expected}")
        return result


def shown(value: Any) -> str:
    """A value as an error quotes it: short, or its type and shape."""
    if isinstance(value, str) and len(value) > 70:  # of a path both ends tell
        value = f"{value[:30]}...{value[-35:]}"
    quoted = value is None or isinstance(value, (str, bytes, int, float, complex, np.generic))
    quoted = quoted or (isinstance(value, (tuple, list)) and len(value) <= 10)
    try:
        text = repr(value) if quoted else ""
    except (RecursionError, ValueError):  # lists too deep in lists, integers of too many digits
        text = ""
    if 0 < len(text) <= 80 and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}" + (f" of shape {shape}" if isinstance(shape, tuple) else "")


def _range_in_words(kind: str, interval: str) -> str:
    if interval.startswith(_ZERO):
        return f"{_ZERO}{_range_in_words(kind, interval.removeprefix(_ZERO))}"
    noun = "an integer" if kind == "integer" else "a number" if not interval.endswith("inf)") else "a finite number"
    low = _INTERVAL.fullmatch(interval)
    assert low is not None, interval
    if low[3] == "inf":
        return f"{noun} {'>=' if low[1] == '[' else '>'} {low[2]}"
    return f"{noun} in {interval}"


def _inside(value: float, interval: str) -> bool:
    if interval.startswith(_ZERO):
        return value == 0.0 or _inside(value, interval.removeprefix(_ZERO))
    bounds = _INTERVAL.fullmatch(interval)
    assert bounds is not None, interval
    low, high = float(bounds[2]), float(bounds[3])
    above = low <= value if bounds[1] == "[" else low < value
    return above and (value <= high if bounds[4] == "]" else value < high)


def _number(option: Option, value: Any) -> Any:
    """A plain number within the interval, or one of the texts; None if it is neither."""
    if isinstance(value, str):
        return value if value in option.choices else None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    whole = isinstance(value, (int, np.integer))
    if isinstance(value, (bool, np.bool_)) or not (whole or isinstance(value, (float, np.floating))):
        return None
    if option.kind == "integer":
        within = whole and abs(int(value)) < _64_BITS and _inside(int(value), option.interval)
        return int(value) if within else None
    try:
        with np.errstate(over="ignore"):  # a long double beyond float64 is infinite, and refused
            number = float(value)
    except OverflowError:  # an integer beyond float64
        return None
    return number if _inside(number, option.interval) else None


def _rate(option: Option, value: Any) -> Any:
    if not isinstance(value, (tuple, list)):
        return _number(option, value)
    if len(value) != 4 or not isinstance(value[0], str) or value[0] != "decay":
        return None
    first, *others = (
        _number(replace(option, kind="number", interval=interval, choices=()), entry)
        for interval, entry in zip(("(0, inf)", "[0, inf)", "[0, inf)"), value[1:], strict=True)
    )
    if first is None or None in others:
        return None
    return ("decay", first, *others)


def _names(option: Option, value: Any) -> tuple[str, ...] | None:
    """Different names; one alone stands for itself, a set is put into the order of the choices."""
    if isinstance(value, str):
        value = (value,)
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (tuple, list, set, frozenset)) or not all(isinstance(one, str) for one in value):
        return None
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    if len(set(value)) != len(value) or any(one not in option.choices for one in value):
        return None
    return tuple(str(one) for one in value)


def _other(option: Option, value: Any) -> Any:
    if option.kind == "flag":
        return bool(value) if isinstance(value, (bool, np.bool_)) else None
    if option.kind == "choice":
        return str(value) if isinstance(value, str) and value in option.choices else None
    if option.kind == "densities":
        named = str(value) if isinstance(value, str) and value in option.choices else None
        return value if isinstance(value, Mapping) else named  # its entries are the door's to check
    return value if callable(value) else None


def _index_lists(option: Option, value: Any, n: int | None) -> list[Any]:
    listed = isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if not listed:
        raise ValueError(f"{option.name}: found {shown(value)}, expected {option.expected}")
    checked = []
    for number, batch in enumerate(value):
        name = f"{option.name}[{number}]"
        try:
            array = np.asarray(batch)
        except ValueError:
            raise ValueError(f"{name}: found rows of different lengths, expected a list of indices") from None
        if array.ndim != 1:
            raise ValueError(f"{name}: found {array.ndim} axes, expected 1")
        if array.size == 0:
            raise ValueError(f"{name}: found an empty batch, expected at least one index")
        if array.dtype.kind not in "iu" or isinstance(batch, np.ma.MaskedArray):
            raise ValueError(f"{name}: found {type(batch).__name__} of dtype {array.dtype}, expected integers")
        worst = array.min() if array.min() < 0 else array.max()
        if worst < 0 or (n is not None and worst >= n):
            limit = ">= 0" if n is None else f"0 to {n - 1}"
            raise ValueError(f"{name}: found index {worst}, expected {limit}")
        checked.append(array.astype(np.int64))
    if not checked:
        raise ValueError(f"{option.name}: found no batch, expected at least one")
    return checked


def _path(option: Option, value: Any) -> Any:
    name = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"{option.name}: found {shown(value)}, expected {option.expected}")
    file_name(option.name, name)
    return value


def file_name(name: str, value: str | os.PathLike[str]) -> Path:
    """Where a file is written and renamed to: symbolic links followed, so that they stay.

    Parameters
    ----------
    name : str      of the argument, for errors
    value : path    a file that may be there already, in a folder that is there

    Raises
    ------
    ValueError    the path is too long, is in no folder, or is a folder, pipe, socket or device
    """
    path = Path(os.path.realpath(value))
    modes: list[int | None] = []
    for wanted in (path, part_name(path, "0" * 8)):
        try:
            modes.append(wanted.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            modes.append(None)
        except OSError as error:
            raise ValueError(
                f"{name}: found {shown(os.fspath(value))} ({error.strerror}), expected a path to write"
            ) from error
    if not path.parent.is_dir():
        raise ValueError(f"{name}: found {shown(os.fspath(value))}, expected a path in a folder that exists")
    if modes[0] is not None and not stat.S_ISREG(modes[0]):
        kind = "a folder" if stat.S_ISDIR(modes[0]) else "a pipe, socket or device"
        raise ValueError(f"{name}: found {shown(os.fspath(value))}, {kind}, expected a file")
    return path


def part_name(path: Path, mark: str) -> Path:
    """The file beside a target that is written before it takes the name of the target.

    Parameters
    ----------
    path : path     the target
    mark : str    eight letters or digits
    """
    return path.parent / f".{path.name[:40]}.{mark}.part"
