"""Constants: the numbers that modules of the witnesses are steered by, against the table recorded for them.

Where one form of a computation gives way to another, how many nodes a rule has, from which step on an iteration is
given up, how far a line search may go: such a number was chosen once, on inputs harder than those of a quick run, and
on these another one may leave every answer where it is. So a change of it would only be seen by whoever meets such
inputs. What is recorded is no truth; a constant that is meant to change is recorded anew (`python -m
validation.checks.constants`), and its accuracy is measured again where the comment beside it states one.

A number is kept as it is, of an array its size, a sum with unequal weights, and the norm, as of recorded runs. Names
are those that a module gives a value to at its top level.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.recorded_runs import printed
from validation.problem import Problem

FILE = "constants.json"
PACKAGES = ("fast", "gibbs", "reference")
# tables are made of logarithms and roots of polynomials, whose last digits differ from machine to machine
_ROUNDING = 1e-9


@cache
def recorded() -> Mapping[str, Mapping[str, tuple[float, ...]]]:
    """package -> "module:name", parts of a table behind a dot -> a number, or three of an array."""
    text = resources.files("validation.checks").joinpath(FILE).read_text(encoding="utf-8")
    return {package: {name: tuple(row) for name, row in rows.items()} for package, rows in json.loads(text).items()}


def in_code(package: str) -> dict[str, tuple[float, ...]]:
    """The same of the code as it is."""
    root = importlib.import_module(package)
    names = (package, *(entry.name for entry in pkgutil.walk_packages(root.__path__, prefix=f"{package}.")))
    table = {}
    for module in map(importlib.import_module, names):
        for name in _given(module):
            for part, array in _numbers(getattr(module, name)).items():
                table[f"{module.__name__}:{name}{part}"] = printed(array) if array.ndim else (float(array),)
    return table


def _given(module: ModuleType) -> Iterator[str]:
    """Names that get a value at the top of a module, and not by an import or a definition."""
    assert module.__file__ is not None
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.expr):
                yield from (
                    entry.id for entry in ast.walk(target) if isinstance(entry, ast.Name) and entry.id in vars(module)
                )


def _numbers(value: Any, part: str = "") -> dict[str, NDArray[np.float64]]:
    """The numbers of a constant: itself, or the entries of a table by their place; types and functions have none."""
    if isinstance(value, Mapping):
        entries = [(f".{key}", entry) for key, entry in value.items()]
    elif isinstance(value, (list, tuple)):
        entries = [(f".{place}", entry) for place, entry in enumerate(value)]
    else:
        array = np.asarray(value) if isinstance(value, (int, float, np.generic, np.ndarray)) else np.empty(0, object)
        return {part: array.astype(np.float64)} if array.dtype.kind in "biuf" else {}
    return {name: array for key, entry in entries for name, array in _numbers(entry, part + key).items()}


def _apart(here: tuple[float, ...] | None, there: tuple[float, ...] | None) -> bool:
    if here is None or there is None or len(here) != len(there):
        return True
    # of an array the last number is the norm
    return any(a != b and not abs(a - b) <= _ROUNDING * abs(there[-1]) for a, b in zip(here, there, strict=True))


def compared(package: str) -> Iterable[Outcome]:
    """How many constants of a package differ from the record, by name."""
    here, there = in_code(package), recorded()[package]
    wrong = [name for name in sorted({*here, *there}) if _apart(here.get(name), there.get(name))]
    told = ", ".join(wrong[:3]) or f"{len(there)} constants are the recorded ones, to 1e-9: tables are rounded"
    yield Compared(len(wrong), 0.0, told, package, "recorded", unit="constants that differ")


def _register(package: str) -> None:
    @check(
        f"discrepancy/x-gpc/constants_of_{package}",
        paper="wenzel2019",
        question=f"Are the numbers by which modules of {package} are steered the recorded ones?",
        problems=(NO_PROBLEM,),
    )
    def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
        return compared(package)


for _package in PACKAGES:
    _register(_package)


def record() -> str:
    """The text of the file."""
    rows = []
    for package in PACKAGES:
        lines = [f"{json.dumps(name)}: {json.dumps(_short(row))}" for name, row in sorted(in_code(package).items())]
        rows.append(f"{json.dumps(package)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _short(row: tuple[float, ...]) -> list[float]:
    return [float(f"{value:.12e}") for value in row]


if __name__ == "__main__":
    from validation.storage import write_text

    write_text(Path(__file__).with_name(FILE), record())
