"""The judge: problems, solutions, checks, the ledger of equations, reports and the command line."""

from __future__ import annotations

# at once, for it loads nothing that takes time
from validation.door.solve import JUDGE, OWN, WITNESSES, solve

# not from `typing`: until this module is done, Ctrl-C is not ours (`validation.command.entry`), and that takes 10 ms
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from validation.door.problem import Problem
    from validation.door.solution import Solution

OWN.update({name: f"validation.implementations.{name}" for name in WITNESSES + JUDGE})

__all__ = ["Problem", "Solution", "solve"]


def __getattr__(name: str) -> Any:
    """Problem and Solution once somebody asks: NumPy takes a quarter of a second that `triad --help` need not wait."""
    if name == "Problem":
        from validation.door.problem import Problem

        return Problem
    if name == "Solution":
        from validation.door.solution import Solution

        return Solution
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
