"""Which functions realise which equations. `collect` imports every module of the four packages and gives the functions
themselves, to be called; `validation.ledger.static` reads the same from the text of the files."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from validation.ledger.inventory import Equation


@dataclass(frozen=True, slots=True)
class Package:
    """A package, and its module that defines `equation` and the `hook` (tests lie under tests/<name>)."""

    name: str
    marker: str


PACKAGES = (
    Package("reference", "reference.common.ledger"),
    Package("fast", "fast.ledger"),
    Package("gibbs", "gibbs.ledger"),
    Package("validation", "validation.ledger.marker"),
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that says which equations it realises; `as_printed` ones hold a misprint as it stands.

    object: the function, where its module was imported; docstring, signature and source: where its file was read.
    """

    package: str
    address: str
    equations: tuple[Equation, ...]
    as_printed: bool
    file: str
    line: int
    object: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    docstring: str = field(default="", compare=False, repr=False)
    signature: str = field(default="", compare=False, repr=False)
    source: str = field(default="", compare=False, repr=False)

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.docstring.partition("\n")[0].strip()


@dataclass(frozen=True, slots=True)
class Registry:
    """All functions with an address in the ledger, and the modules or markers that could not be read."""

    functions: tuple[Function, ...]
    problems: tuple[str, ...]


def _modules(name: str, problems: list[str]) -> Iterator[ModuleType]:
    """The package and all modules below it, imported; one that cannot be imported is a problem, not an end."""
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an import raises is a finding of the audit
        problems.append(f"module {name}: failed to import: {type(error).__name__}: {error}")
        return
    yield module
    for value in sorted(pkgutil.iter_modules(getattr(module, "__path__", [])), key=lambda item: item.name):
        if value.name != "__main__":  # importing it would run the command
            yield from _modules(f"{name}.{value.name}", problems)


def _marked(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """Objects with `__equations__` that this module defines, methods of its classes included."""
    for value in list(vars(module).values()):
        holders = [value]
        if inspect.isclass(value) and value.__module__ == module.__name__:
            holders = list(vars(value).values())
        for held in holders:
            candidate = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
            candidate = candidate.fget if isinstance(candidate, property) else candidate
            if isinstance(candidate, functools.partial) or inspect.isclass(candidate):
                continue
            if "__equations__" in getattr(candidate, "__dict__", {}) and callable(candidate):
                yield candidate


def _location(function: Callable[..., Any]) -> tuple[str, int]:
    """File and line of what the markers wrap."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return ("", 0) if code is None else (str(Path(code.co_filename)), code.co_firstlineno)


def collect(packages: Iterable[Package] = PACKAGES) -> Registry:
    """Import every module of the packages and list the functions that carry equations.

    A function is counted once, in the module that defines it, however often it is re-exported. Whether its
    equations exist is for the audit to say. Problems name each module that does not import and each marker whose
    `__equations__` is no tuple of (paper, id).
    """
    problems: list[str] = []
    functions: dict[str, Function] = {}
    order: Sequence[Package] = tuple(packages)
    for package in order:
        for module in _modules(package.name, problems):
            for function in _marked(module):
                if function.__module__ != module.__name__:
                    continue
                address = f"{function.__module__}.{function.__qualname__}"
                equations = getattr(function, "__equations__", ())
                well_formed = isinstance(equations, tuple) and all(
                    isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item)
                    for item in equations
                )
                if not well_formed or not equations:
                    problems.append(f"function {address}: found __equations__ = {equations!r}, expected (paper, id)s")
                    continue
                file, line = _location(function)
                functions[address] = Function(
                    package=package.name,
                    address=address,
                    equations=tuple(dict.fromkeys(equations)),
                    as_printed=bool(getattr(function, "__as_printed__", False)),
                    file=file,
                    line=line,
                    object=function,
                )
    for package in order:
        if any(function.package == package.name for function in functions.values()):
            try:
                marker = importlib.import_module(package.marker)
            except ImportError as error:
                problems.append(f"module {package.marker}: failed to import: {type(error).__name__}: {error}")
                continue
            if not hasattr(marker, "hook"):
                problems.append(f"module {package.marker}: found no `hook`, expected it beside `equation`")
    rank = {package.name: place for place, package in enumerate(order)}
    ordered = sorted(functions.values(), key=lambda item: (rank[item.package], item.address))
    return Registry(tuple(ordered), tuple(problems))
