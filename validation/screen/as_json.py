"""What a command prints, as JSON for other programs: numbers that are none, or infinite, are null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from validation.door.problem import Problem
    from validation.door.solution import Solution


def text(value: Any) -> str:
    """One JSON text with a line at its end; keys keep their order."""
    return json.dumps(plain(value), indent=1, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """The value in JSON's own types: arrays become lists, whatever is not finite becomes None.

    Parameters
    ----------
    value    numbers, text, None, mappings and sequences of them, NumPy's arrays and scalars
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy, without loading it for those who have none
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    return str(value)


def problem_values(problem: Problem) -> dict[str, Any]:
    """Everything that defines a problem, by the names of its fields."""
    from dataclasses import fields

    return {field.name: getattr(problem, field.name) for field in fields(problem)}


def solution_values(solution: Solution) -> dict[str, Any]:
    """Everything that an implementation answered, by the names of its fields; of the problem what it was solved at."""
    from dataclasses import fields

    values = {field.name: getattr(solution, field.name) for field in fields(solution)}
    return values | {"problem": problem_values(solution.problem)}
