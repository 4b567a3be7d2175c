"""What an option of a sampler may be, and the check of a value against it; `gibbs.core.options` has the table."""

from __future__ import annotations

import inspect
import math
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_REQUIRED: Any = inspect.Parameter.empty
_64_BITS = 2**63  # what counts things fits into an int64


@dataclass(frozen=True)
class Option:
    """One option: `check` gives its value as the samplers expect it, or a ValueError."""

    name: str
    kind: str  # number, integer, flag, choice, names, path, callable, data
    meaning: str
    interval: str = ""  # of a number or an integer, such as "[1, inf)"
    choices: tuple[str, ...] = ()  # texts; with an integer those that may stand in its place
    default: Any = _REQUIRED

    @property
    def expected(self) -> str:
        """What the value may be, in words."""
        listed = ", ".join(self.choices)
        words = {
            "flag": "True or False",
            "choice": f"one of {listed}",
            "names": f"different names out of {listed}",
            "path": "a path to write",
            "callable": "something to call",
            "data": "data",
        }
        text = words.get(self.kind) or self._range()
        if self.kind == "integer" and self.choices:
            text += f" or {', '.join(map(repr, self.choices))}"
        return text if not self.takes_none else f"{text}, or None"

    @property
    def takes_none(self) -> bool:
        """Whether None may be given: where it is the default."""
        return self.default is None

    def check(self, value: Any, n: int | None = None) -> Any:
        """The value, numbers and names as plain ones; n: rows of the data, which no option here is about."""
        if self.kind == "data" or (value is None and self.takes_none):
            return value
        result = self._plain(value)
        if result is None:
            raise ValueError(f"{self.name}: found {shown(value)}, expected {self.expected}")
        return result

    def _plain(self, value: Any) -> Any:
        """The value as the samplers take it, None if it is not what was expected."""
        if self.kind in ("number", "integer"):
            return self._number(value)
        if self.kind == "flag":
            return bool(value) if isinstance(value, bool | np.bool_) else None
        if self.kind == "choice":
            return str(value) if isinstance(value, str) and value in self.choices else None
        if self.kind == "names":
            return self._names(value)
        if self.kind == "path":
            return self._path(value)
        return value if callable(value) else None

    def _range(self) -> str:
        low, high = self.interval[1:-1].split(", ")
        noun = "an integer" if self.kind == "integer" else "a finite number" if high == "inf" else "a number"
        if high != "inf":
            return f"{noun} in {self.interval}"
        return f"{noun} {'>=' if self.interval[0] == '[' else '>'} {low}"

    def _inside(self, number: float) -> bool:
        low, high = map(float, self.interval[1:-1].split(", "))
        above = number >= low if self.interval[0] == "[" else number > low
        below = number <= high if self.interval[-1] == "]" else number < high
        return above and below

    def _number(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if value in self.choices else None
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
            return None
        if self.kind == "integer":
            whole = isinstance(value, int | np.integer) and abs(int(value)) < _64_BITS
            return int(value) if whole and self._inside(int(value)) else None
        try:
            with np.errstate(over="ignore"):  # a long double beyond float64 is infinite, and refused
                number = float(value)
        except OverflowError:  # an integer beyond float64
            return None
        return number if math.isfinite(number) and self._inside(number) else None

    def _names(self, value: Any) -> tuple[str, ...] | None:
        """Different names in the order of the choices."""
        entries = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(entries, str):
            entries = [entries]
        if not isinstance(entries, list | tuple | set | frozenset):
            return None
        given = list(entries)
        if any(not isinstance(name, str) or name not in self.choices for name in given):
            return None
        return tuple(name for name in self.choices if name in given) if len(set(given)) == len(given) else None

    def _path(self, value: Any) -> Any:
        text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
        if not isinstance(text, str) or not text or "\0" in text:
            return None
        file_name(self.name, text)
        return value


def file_name(name: str, value: str | os.PathLike[str]) -> Path:
    """The file behind value once links are resolved; ValueError naming the argument where none can be written.

    name: of the argument; value: a path in a folder that exists, to a plain file or to nothing.
    """
    path, found = Path(os.path.realpath(value)), shown(os.fspath(value))
    kind = None
    for candidate in (temporary_name(path, "a" * 8), path):
        try:
            kind = candidate.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            kind = None
        except OSError as error:  # too long, a circle of links, or a folder without permission
            raise ValueError(f"{name}: found {found} ({error.strerror}), expected a path to write") from error
    if not path.parent.is_dir():
        raise ValueError(f"{name}: found {found}, expected a path in a folder that exists")
    if kind is not None and not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "a pipe, socket or device"
        raise ValueError(f"{name}: found {found}, {what}, expected a file")
    return path


def temporary_name(path: Path, mark: str) -> Path:
    """Beside path, of a length that file systems take whatever the length of path's name is.

    Parameters
    ----------
    path : Path    the file
    mark : str     a few letters or digits, other ones for each writer
    """
    return path.parent / f".{path.name[:40]}.{mark}.part"


def shown(value: Any) -> str:
    """A value as an error quotes it: short, or its type and shape."""
    if isinstance(value, str) and len(value) > 70:  # both ends of a path say more than "str"
        value = value[:35] + "..." + value[-30:]
    plain = isinstance(value, str | bytes | int | float | complex | np.generic) or value is None
    text = ""
    if plain or (isinstance(value, tuple | list) and len(value) <= 10):
        with suppress(RecursionError, ValueError):  # lists too deep in lists, integers of too many digits
            text = repr(value)
    if text and len(text) <= 80 and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {shape}" if isinstance(shape, tuple) else type(value).__name__
