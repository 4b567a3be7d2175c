"""Defaults: what a public function does when an argument is left out, against the table recorded for it.

A default is part of what a method is: another damping, another number of steps or draws gives users other numbers with
no line of theirs changed. Checks pass their options, so they would never notice. `python -m validation.checks.defaults`
records the table; a default that is meant to change changes it there too, and in the changelog.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import resources
from typing import Any

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.problem import Problem

FILE = "defaults.toml"
PACKAGES = ("fast", "gibbs", "reference")
# what a repr of a default may be: arrays and functions have none that is the same in every process
_PLAIN = (bool, int, float, str, bytes, tuple, type(None))


@cache
def recorded() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """package -> "module:function" -> argument -> repr of its default."""
    return tomllib.loads(resources.files("validation.checks").joinpath(FILE).read_text(encoding="utf-8"))


def in_code(package: str) -> dict[str, dict[str, str]]:
    """The same of the code as it is."""
    table = {}
    for module in _modules(package):
        for name, function in _public(module):
            stated = {key: _stated(value) for key, value in _defaults(function)}
            defaults = {key: text for key, text in stated.items() if text}
            if defaults:
                table[f"{module.__name__}:{name}"] = defaults
        if getattr(vars(module).get("options_of"), "__module__", "") == module.__name__:  # classes made from a table
            for method, row in module.METHODS.items():
                values = {name: option.default for name, option in row.items()}
                defaults = {name: repr(value) for name, value in values.items() if isinstance(value, _PLAIN)}
                table[f"{module.__name__}:options of {method}"] = defaults
    return table


def _stated(value: Any) -> str:
    """A default as it is recorded, options by those of their fields that are plain; "" for what is not."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if not is_dataclass(value) or isinstance(value, type):
        return ""
    plain = {field.name: getattr(value, field.name) for field in fields(value)}
    stated = [f"{name}={entry!r}" for name, entry in plain.items() if isinstance(entry, _PLAIN)]
    return f"{type(value).__name__}({', '.join(stated)})"


def _modules(package: str) -> Iterator[Any]:
    root = importlib.import_module(package)
    for entry in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        yield importlib.import_module(entry.name)


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    """Functions, classes and methods that a module defines and does not hide."""
    for name, value in vars(module).items():
        own = getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
        if own and inspect.isfunction(value):
            yield name, value
        elif own and inspect.isclass(value):
            yield name, value
            for key, method in vars(value).items():
                if inspect.isfunction(method) and not key.startswith("_"):
                    yield f"{name}.{key}", method


def _defaults(function: Any) -> Iterator[tuple[str, Any]]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a class without a signature of its own
        return
    for name, parameter in parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default


def compared(package: str) -> Iterable[Outcome]:
    """How many defaults of a package differ from the record, by name."""
    here, there = in_code(package), recorded()[package]
    wrong = [
        f"{address} {name}: found {here.get(address, {}).get(name, 'nothing')}, recorded {value}"
        for address, defaults in there.items()
        for name, value in defaults.items()
        if here.get(address, {}).get(name) != value
    ]
    wrong += [
        f"{address} {name}: found {value}, not recorded"
        for address, defaults in here.items()
        for name, value in defaults.items()
        if name not in there.get(address, {})
    ]
    told = "; ".join(wrong[:3]) or f"{sum(map(len, there.values()))} defaults of public functions are the recorded ones"
    yield Compared(len(wrong), 0.0, told, package, "recorded", unit="defaults that differ")


def _register(package: str) -> None:
    @check(
        f"discrepancy/x-gpc/defaults_of_{package}",
        paper="wenzel2019",
        question=f"Are the defaults of the public functions of {package} the recorded ones?",
        problems=(NO_PROBLEM,),
    )
    def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
        return compared(package)


for _package in PACKAGES:
    _register(_package)


def record() -> str:
    """The text of the file."""
    lines = ["# Made by `python -m validation.checks.defaults`: defaults of public functions. Do not edit by hand."]
    for package in PACKAGES:
        for address, defaults in sorted(in_code(package).items()):
            lines += ["", f'["{package}"."{address}"]']
            lines += [f"{name} = {_quoted(value)}" for name, value in defaults.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


if __name__ == "__main__":
    from pathlib import Path

    from validation.storage import write_text

    write_text(Path(__file__).with_name(FILE), record())
