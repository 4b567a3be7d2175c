"""The judge: problems, solutions, checks, the ledger of equations, reports and the command line."""

from __future__ import annotations

# at once, for it loads nothing: as a name given later it would lose against the module of the same name
from validation.solve import solve

# not from `typing`: until this module is done, Ctrl-C is not ours (see `validation.entry`), and that takes 10 ms
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from validation.problem import Problem
    from validation.solution import Solution

__all__ = ["Problem", "Solution", "solve"]


def __getattr__(name: str) -> Any:
    """Problem and Solution once somebody asks: NumPy takes a quarter of a second that `triad --help` need not wait."""
    if name == "Problem":
        from validation.problem import Problem

        return Problem
    if name == "Solution":
        from validation.solution import Solution

        return Solution
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
