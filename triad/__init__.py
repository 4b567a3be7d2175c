"""The public API of GPC Triad.

    import triad

    answer = triad.solve("fast", "x-gpc", triad.problems.get("toy"))

Problem, Solution      a problem and a solution, as plain arrays
solve                  solve a problem by a witness, or by a program of your own
compare                compare two solutions, with limits and reasons
judge                  judge a program of your own on every problem that its method allows
problems, truths       the built-in problems, and their stored posteriors
datasets               data sets by name
XGPClassifier, ...     scikit-learn classifiers, one for each method that trains

Public API; re-exports only, each loaded when it is used. Another module named `validation`, `fast`, `reference` or
`gibbs` that Python would find first is an error that names it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer to load than everything here
if TYPE_CHECKING:
    from typing import Any

    from fast.estimators import APEPClassifier as APEPClassifier
    from fast.estimators import ARPEPClassifier as ARPEPClassifier
    from fast.estimators import EPClassifier as EPClassifier
    from fast.estimators import EPGPClassifier as EPGPClassifier
    from fast.estimators import GFITCClassifier as GFITCClassifier
    from fast.estimators import JJClassifier as JJClassifier
    from fast.estimators import JJFullClassifier as JJFullClassifier
    from fast.estimators import JJHybridClassifier as JJHybridClassifier
    from fast.estimators import LaplaceClassifier as LaplaceClassifier
    from fast.estimators import NestedEPClassifier as NestedEPClassifier
    from fast.estimators import NestedIEPClassifier as NestedIEPClassifier
    from fast.estimators import PEPClassifier as PEPClassifier
    from fast.estimators import RobustVIClassifier as RobustVIClassifier
    from fast.estimators import RPAPEPClassifier as RPAPEPClassifier
    from fast.estimators import SEPClassifier as SEPClassifier
    from fast.estimators import SVGPClassifier as SVGPClassifier
    from fast.estimators import SVIClassifier as SVIClassifier
    from fast.estimators import TaylorClassifier as TaylorClassifier
    from fast.estimators import VBProbitClassifier as VBProbitClassifier
    from fast.estimators import XGPClassifier as XGPClassifier
    from validation import datasets as datasets
    from validation import problems as problems
    from validation import truth as truths
    from validation.door.problem import Problem as Problem
    from validation.door.solution import Solution as Solution
    from validation.door.solve import solve as solve
    from validation.judge.compare import compare as compare
    from validation.judge.judging import judge as judge
    from validation.judge.testing import parametrize_with_checks as parametrize_with_checks

__all__ = [
    "APEPClassifier",
    "ARPEPClassifier",
    "EPClassifier",
    "EPGPClassifier",
    "GFITCClassifier",
    "JJClassifier",
    "JJFullClassifier",
    "JJHybridClassifier",
    "LaplaceClassifier",
    "NestedEPClassifier",
    "NestedIEPClassifier",
    "PEPClassifier",
    "Problem",
    "RPAPEPClassifier",
    "RobustVIClassifier",
    "SEPClassifier",
    "SVGPClassifier",
    "SVIClassifier",
    "Solution",
    "TaylorClassifier",
    "VBProbitClassifier",
    "XGPClassifier",
    "compare",
    "datasets",
    "judge",
    "parametrize_with_checks",
    "problems",
    "solve",
    "truths",
]

# where each name is: (module, attribute), "" for the module itself; all other names are classifiers
_DOORS = {
    "Problem": ("validation.door.problem", "Problem"),
    "Solution": ("validation.door.solution", "Solution"),
    "compare": ("validation.judge.compare", "compare"),
    "datasets": ("validation.datasets", ""),
    "judge": ("validation.judge.judging", "judge"),
    "parametrize_with_checks": ("validation.judge.testing", "parametrize_with_checks"),
    "problems": ("validation.problems", ""),
    "solve": ("validation.door.solve", "solve"),
    "truths": ("validation.truth", ""),
}
_PACKAGES = ("reference", "fast", "gibbs", "validation")


def __getattr__(name: str) -> Any:
    """What a name stands for, from the package that has it; kept here from then on."""
    if name == "__version__":
        from importlib.metadata import version

        return version("gpc-triad")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _DOORS.get(name, ("fast.estimators", name))
    result = import_module(module)
    globals()[name] = value = getattr(result, attribute) if attribute else result
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"])


def _shadowed() -> list[str]:
    """A line for each of our packages that another module of its name hides, or that is missing."""
    import sys
    from importlib.util import find_spec
    from os.path import dirname, join, realpath

    lines = []
    for name in _PACKAGES:
        ours = join(dirname(dirname(realpath(__file__))), name, "__init__.py")
        if name in sys.modules:  # whatever was imported first stays
            result = getattr(sys.modules[name], "__file__", None)
        else:
            spec = find_spec(name)
            result = spec.origin if spec is not None else None
        if result is None:
            lines.append(f"{name}: found no such package, expected {ours}")
        elif realpath(result) != ours:
            lines.append(f"{name}: found {result}, expected {ours}")
    return lines


if _lines := _shadowed():
    raise ImportError(
        "gpc-triad: other modules stand before its packages on sys.path.\n  "
        + "\n  ".join(_lines)
        + "\nRename them, or start Python where they are not found first: in another folder, or with `python -P`, "
        "which leaves the folder of the script off the path. A missing package means a damaged installation: reinstall "
        "gpc-triad."
    )
