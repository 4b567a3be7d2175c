"""The only door: `solve(implementation, method, problem, **options)` for the witnesses and for anyone else.

Third parties enter in two ways: by an entry point in the group `triad.implementations`, or by naming a callable
as `module:function`. Either is a callable `(method, problem, **options) -> Solution`; an attribute `methods` (a
tuple of method ids) lets the judge refuse a method it does not have before any work is done.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType

from validation.door.quoting import shown

# `import validation` loads this module, and with it nothing that takes time, not even `typing`: NumPy and what reads
# the metadata of installed packages are imported by the functions that need them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from validation.door.problem import Problem
    from validation.door.solution import Solution

ENTRY_POINT_GROUP = "triad.implementations"
WITNESSES = ("reference", "fast", "gibbs")
JUDGE = ("quadrature",)  # the truth that the judge works out by itself

Implementation = Callable[..., "Solution"]

# name of an implementation of our own -> its module, which has `answer`: set by `validation`, for the door knows none
OWN: dict[str, str] = {}


class ImplementationError(RuntimeError):
    """A third party's callable raised: who, which method, what, and where in their code; __cause__ is their error.

    Where it ran in a process of its own (`validation.judge.child`), `trace` is the text of its traceback instead.
    """

    trace = ""


def solve(implementation: str, method: str, problem: Problem, **options: Any) -> Solution:
    """Ask one implementation for its answer to one problem.

    Hyper-parameters and Z are held as the problem gives them, iterations run to 1e-10 unless options say otherwise.

    Parameters
    ----------
    implementation : str     "reference", "fast", "gibbs", the name of an entry point, or "module:function"
    method : str             a method id of design.md, such as "x-gpc"
    problem : Problem        the question
    **options                the method's own: tolerance, max_iterations, block_size, seed, ...

    Linear algebra has one thread, and in large problems of `fast` as many as the process has, in one library alone
    (`fast.core.threads`); `blas_threads` of the solution's settings is the number.

    Raises
    ------
    ValueError, TypeError    unknown implementation, method or option (with the near misses), or a problem that the
                             method cannot answer
    ImplementationError      if a third party's callable raises anything; its __cause__ is what was raised
    """
    from dataclasses import replace

    from validation.door import arguments
    from validation.door.problem import Problem
    from validation.door.solution import Solution
    from validation.door.threads import one_thread

    if not isinstance(problem, Problem):
        raise TypeError(f"problem: found {type(problem).__name__}, expected a validation.Problem")
    arguments.string(method, "method")
    answer = find_implementation(implementation)
    known = known_methods(answer, implementation)
    if known and method not in known:
        raise ValueError(f"method: found {shown(method)}, expected one of {_listed(known, method)} ({implementation})")
    own = implementation in WITNESSES + JUDGE
    started = time.perf_counter()
    threads: dict[str, Any] = {}
    try:
        if own:
            threaded = getattr(answer, "threads", one_thread)
            with threaded(method, problem, options) as count:
                threads["blas_threads"] = count
                solution = answer(method, problem, **options)
        else:  # somebody else's program, with threads of its own
            solution = answer(method, problem, **options)
    except (Exception, SystemExit) as error:  # a program that ends the process has given no answer
        if own:
            raise
        raise ImplementationError(f"{implementation} {method}: {raised(error, answer)}") from error
    seconds = time.perf_counter() - started
    if not isinstance(solution, Solution):
        raise TypeError(f"{implementation}: found {type(solution).__name__} returned, expected a validation.Solution")
    learned = options.get("learn")
    learned = () if learned is None else (learned,) if isinstance(learned, str) else tuple(learned)
    fields = ("lengthscales" if name == "scale" else name for name in learned)  # one factor of all lengthscales
    changed = problem.differences(solution.problem, ignore=("name", *fields))
    if changed:
        raise ValueError(f"{implementation}: found a solution of another problem, which differs in {changed}")
    given = _settings(options)
    # what a witness chose where None was given, such as the form of its equations, is what it says
    chosen = {key: value for key, value in solution.settings.items() if given.get(key) is None}
    settings = {**given, **chosen, **threads}
    if own and not solution.converged and not settings.get("reason"):
        settings["reason"] = _why_unfinished(solution, settings)
    return replace(
        solution,
        seconds=seconds,
        settings=settings,
        versions={**versions(), **solution.versions},
    )


def _why_unfinished(solution: Solution, settings: Mapping[str, Any]) -> str:
    """The reason of a witness that has none but its own stopping rule: nobody is left with a bare False."""
    from dataclasses import replace

    from validation.door import premises

    if premises.asked_for_steps(replace(solution, settings=settings)):
        return f"asked for {solution.iterations} steps, and not for a fixed point"
    left = "" if solution.residual is None else f" with a residual of {solution.residual:.2g}"
    tolerance = settings.get("tolerance")
    goal = f" of {tolerance:.2g}" if isinstance(tolerance, (int, float)) else ""
    return f"stopped after {solution.iterations} iterations{left}, expected the tolerance{goal} to be met first"


def raised(error: BaseException, answer: Callable[..., Any]) -> str:
    """What a callable raised, and the file and line of its own code where it arose, on one line."""
    return f"{_described(error)} ({_place(error, answer)})"


def _described(error: BaseException) -> str:
    """Type and message of an error on one line."""
    text = " ".join(line.strip() for line in str(error).splitlines())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException, answer: Implementation) -> str:
    """File and line of the innermost frame of the package that `answer` comes from: not of NumPy below it, nor of ours.

    Without such a frame the arguments did not fit the call, or the error arose in code without lines.
    """
    import traceback

    home = str(getattr(answer, "__module__", None) or type(answer).__module__).partition(".")[0]
    here = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == home
    ]
    return f"{here[-1][0]}:{here[-1][1]}" if here else "raised by the call itself"


def implementations() -> dict[str, str]:
    """Names that `solve` takes, each with where it comes from."""
    from importlib.metadata import entry_points

    value = dict.fromkeys(WITNESSES, "witness") | dict.fromkeys(JUDGE, "the judge's own")
    for point in entry_points(group=ENTRY_POINT_GROUP):
        value.setdefault(point.name, f"entry point {point.value}")
    return value


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
    if name in OWN:
        return importlib.import_module(OWN[name]).answer
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            try:
                result = point.load()
            except Exception as error:
                raise ValueError(
                    f"implementation: found the entry point {name!r} = {point.value!r}, which cannot be loaded "
                    f"({_described(error)}), expected module:function"
                ) from error
            return _callable(result, name)
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in f"{module_name}.{attribute}".split(".")):
            raise ValueError(f"implementation: found {shown(name)}, expected module:function")
        from pathlib import Path

        # a module beside the user is meant too; the command `triad` does not have its folder on the path
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        try:
            target: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                hint = f" (did you mean '{module_name[:-3]}:{attribute}'?)" if module_name.endswith(".py") else ""
                raise ValueError(
                    f"implementation: found no module {module_name!r}, expected module:function{hint}"
                ) from error
            raise _cannot_import(module_name, error) from error  # it is there, but something that it imports is not
        except (Exception, SystemExit) as error:  # a module of somebody else can do anything while it loads
            raise _cannot_import(module_name, error) from error
        for part in attribute.split("."):
            if not hasattr(target, part):
                raise ValueError(f"implementation: found no {attribute!r} in {module_name}, expected a function")
            target = getattr(target, part)
        return _callable(target, name)
    raise ValueError(
        f"implementation: found {shown(name)}, expected one of {_listed(implementations(), name)}, or module:function"
    )


def check_options(function: Callable[..., Any], options: Mapping[str, Any], where: str) -> None:
    """Refuse options that are no keyword of `function`, with the near misses."""
    import inspect

    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            raise ValueError(f"option: found {shown(option)}, expected one of {_listed(known, option)} ({where})")


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return dict(_versions())


@cache
def _versions() -> Mapping[str, str]:
    """Looked up once in a process: reading the metadata takes as long as solving a small problem."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    results = {"python": platform.python_version()}
    for package in ("gpc-triad", "numpy", "scipy"):
        try:
            results[package] = version(package)
        except PackageNotFoundError:
            results[package] = "not installed"
    return results


def _cannot_import(module_name: str, error: BaseException) -> ValueError:
    hidden = _hidden()
    hint = f"; gpc-triad's own packages hide {', '.join(hidden)}: rename it" if hidden else ""
    return ValueError(
        f"implementation: found {shown(module_name)}, which cannot be imported ({_described(error)}), "
        f"expected module:function{hint}"
    )


def _hidden() -> list[str]:
    """Modules beside the user that have the names of our packages: the command `triad` has loaded its own before."""
    from importlib.util import find_spec
    from pathlib import Path

    results: list[str] = []
    for name in ("validation", *WITNESSES):
        spec = find_spec(name)
        ours = Path(spec.origin) if spec is not None and spec.origin else None
        paths = [path for path in (Path(f"{name}.py"), Path(name, "__init__.py")) if path.is_file()]
        results += [str(path) for path in paths if ours is None or not path.samefile(ours)]
    return results


def _callable(target: Any, name: str) -> Implementation:
    if isinstance(target, ModuleType) or not callable(target):
        raise TypeError(f"implementation: found {shown(name)} to be a {type(target).__name__}, expected a callable")
    return target


def _listed(known: Any, wanted: str) -> str:
    from difflib import get_close_matches

    names = ", ".join(sorted(known))
    close = get_close_matches(wanted, list(known), n=1)
    return f"{names} (did you mean {close[0]!r}?)" if close else names


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a file can hold them: numbers, text and lists stay, anything else is named by its type."""
    from validation.door import arguments

    settings: dict[str, Any] = {}
    for key, value in options.items():
        if callable(value):
            continue
        try:
            settings |= arguments.json_mapping({key: value}, "option")
        except TypeError:
            settings[key] = type(value).__name__
    return settings
