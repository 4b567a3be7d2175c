"""The only door: `solve(implementation, method, problem, **options)` for the witnesses and for anyone else.

Third parties enter in two ways: by an entry point in the group `triad.implementations`, or by naming a callable
as `module:function`. Either is a callable `(method, problem, **options) -> Solution`; an attribute `methods` (a
tuple of method ids) lets the judge refuse a method it does not have before any work is done.
"""

from __future__ import annotations

import importlib
import inspect
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from types import ModuleType
from typing import Any

from validation import arguments
from validation.problem import Problem
from validation.solution import Solution

ENTRY_POINT_GROUP = "triad.implementations"
WITNESSES = ("reference", "fast", "gibbs")
JUDGE = ("quadrature",)  # the truth that the judge works out by itself

# how a module of somebody else can fail to load without being at fault in more than its imports, names or syntax
_UNIMPORTABLE = (ImportError, SyntaxError, AttributeError, NameError)

Implementation = Callable[..., Solution]


def solve(implementation: str, method: str, problem: Problem, **options: Any) -> Solution:
    """Ask one implementation for its answer to one problem.

    Hyper-parameters and Z are held as the problem gives them, iterations run to 1e-10 unless options say otherwise.

    Parameters
    ----------
    implementation : str     "reference", "fast", "gibbs", the name of an entry point, or "module:function"
    method : str             a method id of design.md, such as "x-gpc"
    problem : Problem        the question
    **options                the method's own: tolerance, max_iterations, block_size, seed, ...

    Raises
    ------
    ValueError, TypeError    unknown implementation, method or option (with the near misses), or a problem that the
                             method cannot answer
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem: found {type(problem).__name__}, expected a validation.Problem")
    arguments.string(method, "method")
    answer = find_implementation(implementation)
    known = known_methods(answer, implementation)
    if known and method not in known:
        raise ValueError(f"method: found {method!r}, expected one of {_listed(known, method)} ({implementation})")
    started = time.perf_counter()
    solution = answer(method, problem, **options)
    seconds = time.perf_counter() - started
    if not isinstance(solution, Solution):
        raise TypeError(f"{implementation}: found {type(solution).__name__} returned, expected a validation.Solution")
    learned = options.get("learn") or ()
    learned = (learned,) if isinstance(learned, str) else tuple(learned)
    changed = problem.differences(solution.problem, ignore=("name", *learned))
    if changed:
        raise ValueError(f"{implementation}: found a solution of another problem, which differs in {changed}")
    return replace(
        solution,
        seconds=seconds,
        settings={**solution.settings, **_settings(options)},
        versions={**versions(), **solution.versions},
    )


def implementations() -> dict[str, str]:
    """Names that `solve` takes, each with where it comes from."""
    found = dict.fromkeys(WITNESSES, "witness") | dict.fromkeys(JUDGE, "the judge's own")
    for point in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(point.name, f"entry point {point.value}")
    return found


def methods() -> dict[str, tuple[str, ...]]:
    """Method ids that each witness has."""
    return {name: known_methods(find_implementation(name), name) for name in WITNESSES + JUDGE}


def known_methods(answer: Implementation, name: str) -> tuple[str, ...]:
    """The method ids that an implementation says it has; none if it does not say."""
    known = getattr(answer, "methods", ())
    if isinstance(known, str) or not all(isinstance(entry, str) for entry in known):
        raise TypeError(f"{name}: found methods = {known!r}, expected a tuple of method ids")
    return tuple(known)


def find_implementation(name: str) -> Implementation:
    """The callable behind a name; see the module's first lines for what a name can be."""
    if not isinstance(name, str):
        raise TypeError(f"implementation: found {type(name).__name__}, expected a string")
    if name in WITNESSES + JUDGE:
        return importlib.import_module(f"validation.implementations.{name}").answer
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            try:
                return _callable(point.load(), name)
            except _UNIMPORTABLE as error:
                raise ValueError(
                    f"implementation: found the entry point {name!r} = {point.value!r}, which cannot be loaded "
                    f"({type(error).__name__}: {error}), expected module:function"
                ) from error
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in f"{module_name}.{attribute}".split(".")):
            raise ValueError(f"implementation: found {name!r}, expected module:function")
        # a module beside the user is meant too; the command `triad` does not have its folder on the path
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        try:
            target: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                raise ValueError(
                    f"implementation: found no module {module_name!r}, expected module:function"
                ) from error
            raise _cannot_import(module_name, error) from error  # it is there, but something that it imports is not
        except _UNIMPORTABLE as error:
            raise _cannot_import(module_name, error) from error
        for part in attribute.split("."):
            if not hasattr(target, part):
                raise ValueError(f"implementation: found no {attribute!r} in {module_name}, expected a function")
            target = getattr(target, part)
        return _callable(target, name)
    raise ValueError(
        f"implementation: found {name!r}, expected one of {_listed(implementations(), name)}, or module:function"
    )


def check_options(function: Callable[..., Any], options: Mapping[str, Any], where: str) -> None:
    """Refuse options that are no keyword of `function`, with the near misses."""
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            raise ValueError(f"option: found {option!r}, expected one of {_listed(known, option)} ({where})")


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in ("gpc-triad", "numpy", "scipy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _cannot_import(module_name: str, error: BaseException) -> ValueError:
    return ValueError(
        f"implementation: found {module_name!r}, which cannot be imported ({type(error).__name__}: {error}), "
        "expected module:function"
    )


def _callable(target: Any, name: str) -> Implementation:
    if isinstance(target, ModuleType) or not callable(target):
        raise TypeError(f"implementation: found {name!r} to be a {type(target).__name__}, expected a callable")
    return target


def _listed(known: Any, wanted: str) -> str:
    names = ", ".join(sorted(known))
    close = get_close_matches(wanted, list(known), n=1)
    return f"{names} (did you mean {close[0]!r}?)" if close else names


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a file can hold them: numbers, text and lists stay, anything else is named by its type."""
    settings: dict[str, Any] = {}
    for key, value in options.items():
        if callable(value):
            continue
        try:
            settings |= arguments.json_mapping({key: value}, "option")
        except TypeError:
            settings[key] = type(value).__name__
    return settings
